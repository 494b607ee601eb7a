#include "bench/peers.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "backend/backend.hpp"
#include "core/epilogue_function.hpp"

namespace jitgemm::cli {
namespace {

constexpr int peer_candidates = 16;

}  // namespace

BenchPeers::BenchPeers(Backend& backend, Stream stream, const DeviceMemory& workspace, const BenchOptions& options)
    : backend_(backend), stream_(stream), options_(options) {
  const bool emulated = backend.device().emulated;
  if (!options.triton_manifest.empty()) {
    triton_ = std::make_unique<TritonPeer>(options.triton_manifest);  // which is read and checked in any case
    if (emulated) triton_ = nullptr;
  }
  if (options.peers && !emulated) peers_ = make_peers(stream, workspace.data(), workspace.bytes());
}

std::string BenchPeers::describe() const {
  std::string text =
      peers_ ? fmt::format("peer: {}\n", peers_->version())
             : fmt::format("no peers: {}\n", options_.peers ? "this build found no cuBLASLt" : "--no-peers");
  if (triton_) text += fmt::format("peer: {}\n", triton_->version());
  return text;
}

void BenchPeers::add(BenchRecord& record, const Problem& problem, BenchArms& arms, const InputPools& inputs,
                     const std::vector<Protocol>& protocols, TimingOptions timing) {
  timing.round_ms = screening_ms();
  timing.max_launches = 200;
  if (peers_) add_candidates(record, problem, arms, inputs, {protocols, timing});
  if (triton_ && !has_epilogue_function(record.problem)) add_triton(record, arms, inputs, {protocols, timing});
}

void BenchPeers::add_candidates(BenchRecord& record, const Problem& problem, BenchArms& arms, const InputPools& inputs,
                                const ArmTiming& timing) {
  const int candidates = peers_->prepare(problem, peer_candidates, options_.scales);
  add_default(record, arms, inputs);
  if (candidates == 0) return record.note_absent(peers_->why_none());

  const PeerCandidates lt{"cublaslt", candidates,
                          [this](const Operands& operands, int candidate) { peers_->gemm(operands, candidate); },
                          [](int candidate) { return std::to_string(candidate); }};
  record.cublaslt_candidates = arms.add_fastest(record.cublaslt, lt, backend_, stream_, inputs, timing);
  if (record.cublaslt_candidates == 0)
    record.note_absent(fmt::format("none of cuBLASLt's {} candidates runs", candidates));
}

void BenchPeers::add_default(BenchRecord& record, BenchArms& arms, const InputPools& inputs) {
  const std::string name = peers_->default_name();
  if (name.empty()) return;
  try {
    peers_->gemm(inputs.operands(0));
    backend_.synchronize(stream_);
  } catch (const Error& error) {
    return record.note_absent(error.what());
  }
  arms.add(record.cublas, "cublas", name, [this](const Operands& operands) { peers_->gemm(operands); });
}

void BenchPeers::add_triton(BenchRecord& record, BenchArms& arms, const InputPools& inputs, const ArmTiming& timing) {
  const PeerCandidates tutorial = triton_->candidates(record.problem, stream_);
  const int run = arms.add_fastest(record.triton, tutorial, backend_, stream_, inputs, timing);
  if (run < tutorial.count)
    throw Error(ErrorCode::launch_failed, "a Triton kernel does not run: leave --triton-manifest out");
}

double BenchPeers::screening_ms() const {
  return std::min(1.0, 0.1e3 * options_.seconds_per_shape / (4 * peer_candidates));
}

}  // namespace jitgemm::cli
