#include "tune/output_check.hpp"

#include <algorithm>
#include <cmath>
#include <compare>
#include <random>
#include <set>
#include <tuple>

#include "core/operand_matrix.hpp"
#include "jit/arguments.hpp"
#include "jit/source_generator.hpp"
#include "jitgemm/error.hpp"
#include "util/log.hpp"
#include "util/number_text.hpp"

namespace jitgemm {
namespace {

// templates/check.cuh.
constexpr int threads = 128, blocks_per_sm = 16;
constexpr std::size_t smem_bytes = 3 * threads * 8;

constexpr std::size_t sample_size = 64;
constexpr std::int64_t least_chunk = 2048;  // positions: below it a block does little but begin and end
constexpr std::int64_t most_of_gap = 256;   // looked at behind each row: no tile is wider
// Elements that differ, recomputed at once, and how often. A right D has few or none, a wrong one is found with the
// first.
constexpr std::size_t most_recomputed = 32;
constexpr int most_scans = 8;

struct Place {
  std::int64_t row, column;
  auto operator<=>(const Place&) const = default;
};

/// The corners and, drawn apart from each other, some between.
std::set<Place> sample(std::int64_t rows, std::int64_t columns) {
  std::set<Place> places{{0, 0}, {0, columns - 1}, {rows - 1, 0}, {rows - 1, columns - 1}};
  std::mt19937_64 random(1);
  const auto below = [&random](std::int64_t count) { return std::int64_t(random() % std::uint64_t(count)); };
  while (places.size() < sample_size && std::int64_t(places.size()) < rows * columns) {
    const std::int64_t row = below(rows);
    places.insert({row, below(columns)});
  }
  return places;
}

const Kernel* get_kernel(KernelStore& store, const NormalProblem& problem, const DeviceInfo& device) {
  try {
    return store.get(generate_check(problem, device), smem_bytes).get();
  } catch (const Error& error) {
    throw Error(error.code(), std::string("no candidate can be checked: ") + error.what())
        .with_config(error.config())
        .with_call(error.call())
        .with_log(error.log());
  }
}

/// Of the elements of D alone.
std::size_t bytes_without_gaps(const NormalProblem& p) { return std::size_t(p.batch * p.m * p.n) * size_of(p.d.type); }

}  // namespace

OutputCheck::OutputCheck(Backend& backend, KernelStore& store, const NormalProblem& problem, const Operands& operands,
                         Stream stream)
    : backend_(backend),
      problem_(problem),
      operands_(operands),
      stream_(stream),
      kernel_(get_kernel(store, problem, backend.device())),
      arguments_(make_check_arguments(problem, operands)) {
  make_chunks();
  element_memory_ = allocate_memory(backend, sizeof(device::CheckedElement) * std::max(sample_size, most_recomputed));
  chunk_memory_ = allocate_memory(backend, sizeof(device::CheckedChunk) * chunks_.size());
  arguments_.elements = static_cast<device::CheckedElement*>(element_memory_.get());
  arguments_.chunks = static_cast<device::CheckedChunk*>(chunk_memory_.get());
  recompute_sample();
  try {
    accepted_memory_ = allocate_memory(backend, bytes_without_gaps(problem));
  } catch (const Error& error) {
    if (error.code() != ErrorCode::out_of_memory) throw;
    logger().warn("no memory to compare all of D while tuning {}: a sample of it is checked; free device memory first",
                  to_string(problem));
  }
}

void OutputCheck::recompute_sample() {
  std::vector<device::CheckedElement> elements;
  for (const auto& [row, column] : sample(problem_.batch * problem_.m, problem_.n))
    elements.push_back(element_at(row, column));
  run(device::CheckTask::recompute, elements, int(elements.size()));
  for (const device::CheckedElement& element : elements) {
    sample_.push_back({element, expected(element)});
    allow_for(element);
  }
}

/// How far apart two right results may be is a guess where nothing was recomputed, so recomputing has the last word.
void OutputCheck::allow_for(const device::CheckedElement& element) {
  products_ = std::max(products_, std::abs(element.scale) * element.products);
  const Agreement bound = agreement(problem_, products_);
  arguments_.relative = bound.relative;
  arguments_.absolute = bound.absolute;
}

void OutputCheck::make_chunks() {
  const std::int64_t n = problem_.n, ld = problem_.d.ld;
  const bool gaps_are_nobodys = problem_.batch == 1 || problem_.d.stride >= problem_.m * ld;
  const std::int64_t width = gaps_are_nobodys ? std::min(ld, n + most_of_gap) : n;
  arguments_.width = width;
  const std::int64_t count = (problem_.batch * problem_.m - 1) * width + n;
  const std::int64_t most = std::int64_t(blocks_per_sm) * backend_.device().sm_count;
  const std::int64_t chunk = std::max(least_chunk, (count + most - 1) / most);
  for (std::int64_t begin = 0; begin < count; begin += chunk)
    bounds_.emplace_back(begin, std::min(count, begin + chunk));
  chunks_.resize(bounds_.size());
}

void OutputCheck::run(device::CheckTask task, int blocks) {
  arguments_.task = task;
  arguments_.accepted = has_accepted_ || task == device::CheckTask::keep ? accepted_memory_.get() : nullptr;
  const LaunchGrid grid{.grid = blocks, .threads = threads, .smem_bytes = smem_bytes};
  backend_.launch(*kernel_->loaded, grid, bytes_of(arguments_), stream_);
  backend_.synchronize(stream_);
}

void OutputCheck::run(device::CheckTask task, std::vector<device::CheckedElement>& elements, int blocks) {
  const std::size_t bytes = elements.size() * sizeof(device::CheckedElement);
  backend_.copy_to_device(element_memory_.get(), elements.data(), bytes);
  arguments_.element_count = int(elements.size());
  run(task, blocks);
  backend_.copy_to_host(elements.data(), element_memory_.get(), bytes);
}

void OutputCheck::scan() {
  const std::size_t bytes = chunks_.size() * sizeof(device::CheckedChunk);
  backend_.copy_to_device(chunk_memory_.get(), chunks_.data(), bytes);
  run(device::CheckTask::scan, int(chunks_.size()));
  backend_.copy_to_host(chunks_.data(), chunk_memory_.get(), bytes);
}

void OutputCheck::poison() {
  backend_.fill(operands_.d, device::POISON, std::size_t(matrix_d(problem_).batch_bytes()));
}

device::CheckedElement OutputCheck::element_at(std::int64_t position) const {
  return element_at(position / arguments_.width, position % arguments_.width);
}

device::CheckedElement OutputCheck::element_at(std::int64_t row, std::int64_t column) const {
  device::CheckedElement element{};
  element.batch = int(row / problem_.m);
  element.row = int(row % problem_.m);
  element.column = int(column);
  return element;
}

ExpectedElement OutputCheck::expected(const device::CheckedElement& element) const {
  return expected_element(
      problem_,
      {.linear = element.linear, .addends = element.addends, .products = element.products, .scale = element.scale},
      element.value);
}

std::string OutputCheck::error_at(const device::CheckedElement& element, const ExpectedElement& expected) const {
  if (expected.accepts(element.d)) return {};
  return "D[" + std::to_string(element.batch * problem_.m + element.row) + ", " + std::to_string(element.column) +
         "] is " + general_text(element.d, 9) + ", not " + general_text(expected.value, 9) + " +- " +
         general_text(expected.tolerance, 2);
}

std::string OutputCheck::sampled_error() {
  std::vector<device::CheckedElement> elements;
  for (const Sampled& sampled : sample_) elements.push_back(sampled.element);
  run(device::CheckTask::read, elements, 1);
  for (std::size_t i = 0; i < elements.size(); ++i) {
    if (std::string error = error_at(elements[i], sample_[i].expected); !error.empty()) return error;
  }
  return {};
}

std::string OutputCheck::error_of_found(bool& accepted_are_wrong) {
  std::int64_t found = 0;
  std::vector<device::CheckedElement> elements;
  for (device::CheckedChunk& chunk : chunks_) {
    if (chunk.written_outside != device::NOTHING_FOUND) {
      const device::CheckedElement at = element_at(chunk.written_outside);
      return "it writes beyond the end of row " + std::to_string(at.batch * problem_.m + at.row) + " of D, at column " +
             std::to_string(at.column);
    }
    found += chunk.found;
    if (chunk.found == 0) {
      chunk.begin = chunk.end;
    } else if (elements.size() < most_recomputed) {
      elements.push_back(element_at(chunk.first));
      chunk.begin = chunk.first + 1;
    }
  }
  if (elements.empty()) return {};
  run(device::CheckTask::recompute, elements, int(elements.size()));
  for (const device::CheckedElement& element : elements) {
    const ExpectedElement right = expected(element);
    if (std::string error = error_at(element, right); !error.empty()) {
      const std::string of_all = has_accepted_ ? "elements that differ from another candidate's"
                                               : "elements that nothing seems to have written";
      return error + " (" + of_all + ": " + std::to_string(found) + ")";
    }
    if (has_accepted_ && !right.accepts(element.accepted)) {
      accepted_are_wrong = true;
      return {};
    }
    allow_for(element);
  }
  return {};
}

void OutputCheck::keep() {
  if (!accepted_memory_) return;
  for (std::size_t i = 0; i < chunks_.size(); ++i) std::tie(chunks_[i].begin, chunks_[i].end) = bounds_[i];
  backend_.copy_to_device(chunk_memory_.get(), chunks_.data(), chunks_.size() * sizeof(device::CheckedChunk));
  run(device::CheckTask::keep, int(chunks_.size()));
  has_accepted_ = true;
}

OutputCheck::Verdict OutputCheck::judge() {
  if (std::string error = sampled_error(); !error.empty()) return {error};
  for (std::size_t i = 0; i < chunks_.size(); ++i) std::tie(chunks_[i].begin, chunks_[i].end) = bounds_[i];
  for (int i = 0; i < most_scans; ++i) {
    scan();
    Verdict verdict;
    verdict.why_wrong = error_of_found(verdict.accepted_were_wrong);
    if (verdict.accepted_were_wrong) keep();
    if (!verdict.why_wrong.empty() || verdict.accepted_were_wrong) return verdict;
    if (std::all_of(chunks_.begin(), chunks_.end(), [](const auto& chunk) { return chunk.begin == chunk.end; })) break;
  }
  if (!has_accepted_) keep();
  return {};
}

}  // namespace jitgemm
