#include "parallel/sum_epilogue.hpp"

#include <algorithm>

#include "core/type_rules.hpp"
#include "jit/arguments.hpp"
#include "jit/source_generator.hpp"
#include "jitgemm/error.hpp"
#include "util/integers.hpp"

namespace jitgemm {
namespace {

// templates/sum_epilogue.cuh.
constexpr int threads = 256, blocks_per_sm = 8;

/// Whether every row begins where a pair of elements may be read or written at once. D's rows end so, too: normalise().
bool in_pairs(const NormalProblem& p, std::int64_t ld_sources) {
  const auto holds_pairs = [](const Matrix& matrix) {
    return std::size_t(matrix.alignment) >= 2 * size_of(matrix.type);
  };
  return ld_sources % 2 == 0 && holds_pairs(p.d) && (!reads_c(p) || holds_pairs(p.c));
}

}  // namespace

SumEpilogue::SumEpilogue(Backend& backend, KernelStore& store, const NormalProblem& problem, std::int64_t ld_sources)
    : backend_(backend),
      kernel_(store.get(generate_sum_epilogue(problem, in_pairs(problem, ld_sources), backend.device()), 0)) {}

void SumEpilogue::enqueue(const NormalProblem& problem, const Operands& operands, std::span<const void* const> sources,
                          std::int64_t ld_sources, Stream stream) const {
  if (is_empty(problem)) return;
  if (sources.empty() || sources.size() > device::MOST_SOURCES)
    throw Error(ErrorCode::internal, "a sum of " + std::to_string(sources.size()) + " matrices; please report it");
  const std::int64_t elements = problem.m * problem.n;
  const std::int64_t most = std::int64_t(blocks_per_sm) * backend_.device().sm_count;
  const LaunchGrid grid{.grid = int(std::clamp<std::int64_t>(ceil_div(elements, 2 * threads), 1, most)),
                        .threads = threads};
  backend_.launch(*kernel_->loaded, grid, bytes_of(make_sum_epilogue_arguments(problem, operands, sources, ld_sources)),
                  stream);
}

}  // namespace jitgemm
