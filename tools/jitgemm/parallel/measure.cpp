#include "parallel/measure.hpp"

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "backend/backend.hpp"
#include "context_internals.hpp"
#include "core/operand_matrix.hpp"
#include "core/problem.hpp"
#include "measure/check.hpp"
#include "measure/launch_graph.hpp"
#include "measure/rounds.hpp"

namespace jitgemm::cli {
namespace {

constexpr int warm_up_rounds = 3, most_samples = 1000;
constexpr double us_between = 150;         // of samples: the L2 is emptied, ranks meet, the host waits
constexpr std::int64_t checked_rows = 48;  // of D, on each rank

void reserve(DeviceMemory& memory, Backend& backend, std::size_t bytes) {
  if (memory.bytes() >= bytes && memory.data()) return;
  memory = DeviceMemory();  // the old one first: both may not fit
  memory = DeviceMemory(backend, bytes);
}

std::unique_ptr<Peers> peers_or_refusal(Stream stream, const DeviceMemory& workspace) {
  auto peers = make_peers(stream, workspace.data(), workspace.bytes());
  if (!peers)
    throw Error(ErrorCode::no_device,
                "this build found no cuBLASLt, which ours is timed against: install the CUDA toolkit and build again");
  return peers;
}

/// Each rank has other matrices, so that one in another's place is seen.
constexpr std::uint64_t seed_of(int rank) { return std::uint64_t(rank) * 100; }

}  // namespace

void make_rank_current(const RankPlace& place) { make_cuda_current(place.gpu); }

/// A shape's operands and what its arms enqueue.
class RankBench::Case {
 public:
  Case(RankBench& bench, const ParallelShape& shape)
      : bench_(bench),
        exchange_(shape.exchange),
        asked_(problem_of_rank(shape, bench.place_.ranks, bench.task_.type)),
        problem_(normalise(asked_)),
        result_(normalise(problem_of_result(shape, bench.place_.ranks, bench.task_.type))) {
    bench.inputs_.prepare(problem_, false);
    whole_ = bench.inputs_.operands(0);
    given_ = whole_;  // of an all-gather, the first of the rows are the rank's
    if (exchange_ == Exchange::all_gather_a) reserve(bench.gathered_, bench.backend_, bytes_of_a(problem_));
    for (DeviceMemory* const d : {&bench.d_, &bench.reference_}) reserve(*d, bench.backend_, bytes_of_d(result_));
    given_.d = bench.d_.data();
    bench.peers_->prepare(problem_, 1);
    if (bench.peers_->default_name().empty()) throw Error(ErrorCode::invalid_problem, bench.peers_->why_none());
    bench.in_turn_.prepare(asked_, exchange_);
    bench.overlapped_.prepare(asked_, exchange_);
    config_ = bench.in_turn_.plan(asked_, exchange_).gemm.config;
  }

  const NormalProblem& result() const { return result_; }
  ParallelPlan plan() { return bench_.overlapped_.plan(asked_, exchange_); }

  /// Puts an arm's work on the stream.
  void enqueue(std::string_view arm) {
    const Stream stream = bench_.stream_.get();
    if (arm == parallel_arm::cublas_nccl) return cublas_and_nccl(bench_.d_.data());
    if (arm == parallel_arm::ours_nccl) return bench_.in_turn_.gemm(asked_, exchange_, given_, stream);
    if (arm == parallel_arm::ours) return bench_.overlapped_.gemm(asked_, exchange_, given_, stream);
    if (arm == parallel_arm::cublas_alone) return bench_.peers_->gemm(whole_);
    bench_.context_.gemm(asked_, whole_, stream, config_);
  }

  void cublas_and_nccl(void* d) {
    Nccl& nccl = bench_.nccl_;
    const Stream stream = bench_.stream_.get();
    const std::size_t elements = std::size_t(result_.m * result_.n);
    Operands operands = whole_;
    if (exchange_ == Exchange::all_gather_a) {
      operands.a = bench_.gathered_.data();
      operands.d = d;
      nccl.all_gather(given_.a, bench_.gathered_.data(), bytes_of_a(problem_) / std::size_t(nccl.ranks()), stream);
      bench_.peers_->gemm(operands);
    } else if (exchange_ == Exchange::reduce_scatter_d) {
      bench_.peers_->gemm(operands);
      nccl.reduce_scatter(operands.d, d, elements, result_.d.type, stream);
    } else {
      operands.d = d;
      bench_.peers_->gemm(operands);
      nccl.all_reduce(d, d, elements, result_.d.type, stream);
    }
  }

 private:
  RankBench& bench_;
  const Exchange exchange_;
  const Problem asked_;
  const NormalProblem problem_, result_;
  Operands whole_, given_;
  KernelConfig config_;
};

RankBench::RankBench(const ContextOptions& options, const RankPlace& place, const std::string& nccl_id,
                     const ParallelTask& task)
    : place_(place),
      task_(task),
      context_(open_context(options)),
      backend_(ContextInternals::backend(context_)),
      stream_(backend_),
      nccl_(place.ranks, place.rank, nccl_id),
      in_turn_(context_, nccl_.get(), {.overlap = Overlap::none}),
      overlapped_(context_, nccl_.get()),
      workspace_(backend_, workspace_bytes),
      peers_(peers_or_refusal(stream_.get(), workspace_)),
      inputs_(backend_, task.type, task.type, seed_of(place.rank)),
      meeting_(backend_, stream_.get(), nccl_) {}

nlohmann::ordered_json RankBench::describe() const {
  return {{"device", context_.device().name}, {"nccl", nccl_version()}, {"cublas", peers_->version()}};
}

RankResult RankBench::measure(const ParallelShape& shape) {
  meeting_.largest(0);  // all ranks are done with the operands of the shape before
  Case its(*this, shape);
  RankResult result;
  result.shape = shape;
  const ParallelPlan plan = its.plan();
  result.overlapped = plan.overlapped;
  result.one_shot = plan.one_shot;
  result.config = to_string(plan.gemm.config);
  result.why = plan.why;

  const auto into = [](const DeviceMemory& d) { return Operands{.d = d.data()}; };
  poison(backend_, its.result(), into(reference_));
  its.cublas_and_nccl(reference_.data());
  backend_.synchronize(stream_.get());
  const bool has_nan = !compare_rows(backend_, its.result(), into(reference_), reference_.data(), checked_rows).empty();
  if (has_nan) result.check = "cublas_nccl: D has NaN";

  std::vector<Enqueued> arms;
  std::vector<LaunchGraph> graphs;
  graphs.reserve(task_.arms.size());
  for (const std::string& arm : task_.arms) {
    poison(backend_, its.result(), into(d_));
    its.enqueue(arm);
    backend_.synchronize(stream_.get());
    const bool has_d = arm != parallel_arm::cublas_alone && arm != parallel_arm::ours_alone;
    if (has_d && result.check == "ok") {
      const std::string wrong = compare_rows(backend_, its.result(), into(d_), reference_.data(), checked_rows);
      if (!wrong.empty()) result.check = arm + ": " + wrong;
    }
    try {
      LaunchGraph& graph = graphs.emplace_back(stream_.get(), [&] { its.enqueue(arm); });
      arms.push_back({.launch = [&graph] { graph.launch(); }});
    } catch (const Error& error) {
      if (error.code() != ErrorCode::not_capturable) throw;
      result.eager.push_back(arm);
      arms.push_back({.launch = [&its, &arm] { its.enqueue(arm); }});
    }
  }

  Rounds rounds(arms.size());  // in the same order on all ranks
  double round_us = 0;
  for (int i = 0; i < warm_up_rounds; ++i) {
    round_us = 0;
    rounds.next([&](std::size_t arm) { round_us += meeting_.warm_up_us(arms[arm]) + arms[arm].lead_us + us_between; });
  }
  const double slowest_us = meeting_.largest(round_us);
  const int samples = std::max(task_.samples, int(std::min(1e6 * task_.seconds / slowest_us, double(most_samples))));
  for (int i = 0; i < samples; ++i)
    rounds.next([&](std::size_t arm) { result.us[task_.arms[arm]].push_back(meeting_.time_us(arms[arm])); });
  in_turn_.check();
  overlapped_.check();
  return result;
}

}  // namespace jitgemm::cli
