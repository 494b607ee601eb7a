#pragma once

#include <memory>
#include <string>

#include "jitgemm/jitgemm.hpp"

namespace jitgemm::cli {

/// The vendor's GEMM, to be timed beside ours: the same problem, accumulator and workspace limit, as far as it goes.
/// May be captured into a graph.
class Peers {
 public:
  virtual ~Peers() = default;
  virtual std::string version() const = 0;

  /// Looks up to `most` candidates of cuBLASLt up for a normalised problem; how many there are. `scales`: the operands
  /// will have scales of A and B.
  virtual int prepare(const Problem& normalised, int most, bool scales = false) = 0;
  /// Why there are none; empty if there are.
  virtual std::string why_none() const = 0;

  /// "default": cuBLAS's own choice. Where only cuBLASLt can do the problem "first candidate", of e4m3 and e5m2 with
  /// the problem's accumulation; empty if neither can.
  virtual std::string default_name() const = 0;
  virtual void gemm(const Operands& operands) = 0;
  /// cublasLtMatmul with one of the candidates.
  virtual void gemm(const Operands& operands, int candidate) = 0;
};

/// On this stream of the current CUDA context. nullptr in a build without cuBLASLt.
std::unique_ptr<Peers> make_peers(Stream stream, void* workspace, std::size_t workspace_bytes);

}  // namespace jitgemm::cli
