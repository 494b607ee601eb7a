#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "context_fixtures.hpp"
#include "errors.hpp"
#include "fake_nccl.hpp"
#include "parallel_cases.hpp"

namespace jitgemm::test {

inline constexpr Exchange parallel_exchanges[] = {Exchange::all_gather_a, Exchange::reduce_scatter_d,
                                                  Exchange::all_reduce_d};

/// Ranks on one Context, as all are of the same device.
struct ParallelWorld {
  explicit ParallelWorld(int rank_count, const TensorParallelOptions& options = {})
      : ranks(rank_count), nccl(rank_count) {
    parallel.resize(std::size_t(ranks));
    on_each_rank(ranks, [&](int rank) {
      parallel[std::size_t(rank)] = std::make_unique<TensorParallel>(context, nccl.communicator(rank), options);
    });
  }
  ~ParallelWorld() { nccl.give_up(); }

  /// One of a rank's own.
  static Stream stream_of(int rank, int number = 0) {
    return reinterpret_cast<Stream>(std::uintptr_t(0x70000 + 0x100 * number + 0x10 * rank));
  }

  TensorParallel& of(int rank) { return *parallel[std::size_t(rank)]; }

  /// Empty, or what is wrong with the D of the first rank that has a wrong one.
  std::string run(ParallelCase& product, Exchange exchange) {
    product.poison();
    on_each_rank(
        ranks, [&](int rank) { of(rank).gemm(product.problem(), exchange, product.operands(rank), stream_of(rank)); });
    for (int rank = 0; rank < ranks; ++rank)
      if (std::string wrong = product.violation(rank); !wrong.empty()) return wrong;
    return nccl.ranks_disagreed ? "the ranks' collectives differ" : "";
  }
  std::string run(const Problem& problem, Exchange exchange) {
    ParallelCase product(problem, exchange, ranks);
    return run(product, exchange);
  }
  /// What each rank's call throws.
  std::vector<std::optional<Error>> errors(const std::function<void(int)>& call) {
    std::vector<std::optional<Error>> thrown(static_cast<std::size_t>(ranks));
    on_each_rank(ranks, [&](int rank) { thrown[std::size_t(rank)] = error_if_any([&] { call(rank); }); });
    return thrown;
  }

  const TemporaryDirectory cache;
  int ranks;
  FakeNccl nccl;
  Context context{emulator_options(cache)};
  std::vector<std::unique_ptr<TensorParallel>> parallel;
};

}  // namespace jitgemm::test
