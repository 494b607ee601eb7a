#pragma once

#include <memory>
#include <string>

#include "bench/arms.hpp"
#include "bench/options.hpp"
#include "peers/peers.hpp"
#include "peers/triton.hpp"

namespace jitgemm::cli {

/// What others do with a shape, as far as it was asked for and can be had; on the emulator nobody.
class BenchPeers {
 public:
  BenchPeers(Backend& backend, Stream stream, const DeviceMemory& workspace, const BenchOptions& options);

  /// cuBLAS's default, the best of cuBLASLt's candidates and the best of the Triton tutorial's configurations, each
  /// found by a short measurement of its own. Who cannot do the problem, which may say otherwise what the record's
  /// says, is in record.absent.
  void add(BenchRecord& record, const Problem& problem, BenchArms& arms, const InputPools& inputs,
           const std::vector<Protocol>& protocols, TimingOptions timing);

  std::string describe() const;  ///< a line for each
  std::string version() const { return peers_ ? peers_->version() : ""; }
  std::string triton_version() const { return triton_ ? triton_->version() : ""; }

 private:
  void add_default(BenchRecord& record, BenchArms& arms, const InputPools& inputs);
  void add_candidates(BenchRecord& record, const Problem& problem, BenchArms& arms, const InputPools& inputs,
                      const ArmTiming& timing);
  void add_triton(BenchRecord& record, BenchArms& arms, const InputPools& inputs, const ArmTiming& timing);
  double screening_ms() const;

  Backend& backend_;
  Stream stream_;
  const BenchOptions& options_;
  std::unique_ptr<Peers> peers_;
  std::unique_ptr<TritonPeer> triton_;
};

}  // namespace jitgemm::cli
