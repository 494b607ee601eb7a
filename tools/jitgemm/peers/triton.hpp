#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "jitgemm/jitgemm.hpp"
#include "peers/candidates.hpp"

namespace jitgemm::cli {

/// The kernels of Triton's matrix multiplication tutorial, compiled ahead by tools/triton_peer/compile.py, to be timed
/// beside ours. Plain products and leaky_relu, for sizes that the kernels are specialised for.
class TritonPeer {
 public:
  /// Reads the manifest and checks that it can be run. Throws Error{io}. Needs no GPU.
  explicit TritonPeer(const std::filesystem::path& manifest);
  ~TritonPeer();

  std::string version() const;  ///< "Triton 3.6.0, 54 kernels"

  /// The configurations for a normalised problem, none if the tutorial's kernel is not for it. Loads them into the
  /// current CUDA context; this outlives what it returns.
  PeerCandidates candidates(const Problem& normalised, Stream stream);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace jitgemm::cli
