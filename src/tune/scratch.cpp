#include "tune/scratch.hpp"

#include <algorithm>
#include <vector>

#include "core/groups.hpp"
#include "core/operand_matrix.hpp"
#include "core/problem.hpp"
#include "core/type_rules.hpp"
#include "jitgemm/error.hpp"

namespace jitgemm {
namespace {

constexpr std::size_t memory_budget = std::size_t{1} << 30;  // bytes, more only if one set needs it
constexpr std::uint64_t seed = 2024;
constexpr unsigned char same_scales = 0x3f;  // each byte of an f32: 0.747

std::size_t padded(std::size_t bytes) { return (bytes + 255) / 256 * 256; }

std::size_t group_table_bytes(const Problem& p) { return padded(std::size_t(p.batch) * sizeof(std::int32_t)); }

char* at(void* memory, std::size_t offset) { return static_cast<char*>(memory) + offset; }

}  // namespace

Scratch::Scratch(Backend& backend, const NormalProblem& p, std::size_t workspace_bytes, int counters)
    : backend_(backend), problem_(p), workspace_bytes_(workspace_bytes), counters_(counters) {
  const DataType addend = type_of_c(p);
  a_bytes_ = padded(std::size_t(matrix_a(p).batch_bytes()));
  b_bytes_ = padded(std::size_t(matrix_b(p).batch_bytes()));
  c_bytes_ = reads_c(p) ? padded(std::size_t(matrix_c(p).batch_bytes())) : 0;
  bias_bytes_ = padded(std::size_t(bias_elements(p)) * size_of(addend));
  d_bytes_ = padded(std::size_t(matrix_d(p).batch_bytes()));
  const auto scale_bytes = [&](std::int64_t scales) {
    return has_block_scales(p) || has_vector_scales(p) ? padded(std::size_t(scales) * sizeof(float)) : 0;
  };
  scale_a_bytes_ = scale_bytes(scales_of_a(p));
  scale_b_bytes_ = scale_bytes(scales_of_b(p));

  const DeviceInfo& device = backend.device();
  const std::size_t set_bytes =
      a_bytes_ + b_bytes_ + c_bytes_ + bias_bytes_ + d_bytes_ + scale_a_bytes_ + scale_b_bytes_;
  const std::size_t wanted = device.emulated ? 2 : 2 * device.l2_bytes / set_bytes + 1;
  sets_ = int(std::clamp<std::size_t>(wanted, 1, std::max<std::size_t>(1, memory_budget / set_bytes)));
  workspace_memory_ = allocate_memory(backend, workspace_bytes);
  counter_memory_ = allocate_memory(backend, std::size_t(counters) * sizeof(unsigned));
  for (;;) {
    try {
      allocate_sets();
      break;
    } catch (const Error& error) {
      if (error.code() != ErrorCode::out_of_memory || sets_ == 1) throw;
      sets_ /= 2;
    }
  }
  zero_counters();
  deal_rows_to_groups();
  point_to_b();
  backend.fill_random(inputs_.get(), std::int64_t(input_bytes() / size_of(p.a.type)), p.a.type, seed);
  if (const std::size_t bytes = std::size_t(sets_) * (c_bytes_ + bias_bytes_); bytes > 0) {
    backend.fill_random(addends_.get(), std::int64_t(bytes / size_of(addend)), addend, seed + 1);
  }
  if (const std::size_t bytes = std::size_t(sets_) * (scale_a_bytes_ + scale_b_bytes_); bytes > 0)
    backend.fill(scales_.get(), same_scales, bytes);
}

void Scratch::allocate_sets() {
  inputs_.reset();
  addends_.reset();
  outputs_.reset();
  scales_.reset();
  const auto sets = std::size_t(sets_);
  inputs_ = allocate_memory(backend_, sets * (a_bytes_ + b_bytes_));
  addends_ = allocate_memory(backend_, sets * (c_bytes_ + bias_bytes_));
  outputs_ = allocate_memory(backend_, sets * d_bytes_);
  scales_ = allocate_memory(backend_, sets * (scale_a_bytes_ + scale_b_bytes_));
}

void Scratch::deal_rows_to_groups() {
  if (!has_groups(problem_)) return;
  group_rows_ = allocate_memory(backend_, group_table_bytes(problem_) * distributions.size());
  for (const Distribution distribution : distributions) {
    const std::vector<std::int32_t> table = drawn_group_rows(problem_, distribution, seed, 1);
    backend_.copy_to_device(group_table(distribution), table.data(), table.size() * sizeof(std::int32_t));
  }
}

void* Scratch::group_table(Distribution distribution) const {
  return at(group_rows_.get(), std::size_t(distribution) * group_table_bytes(problem_));
}

/// Each group's to the matrix that a batch would have there.
void Scratch::point_to_b() {
  if (!has_pointers_to_b(problem_)) return;
  pointers_ = allocate_memory(backend_, std::size_t(sets_ * problem_.batch) * sizeof(void*));
  const std::size_t stride = std::size_t(problem_.b.stride) * size_of(problem_.b.type);
  for (int set = 0; set < sets_; ++set) {
    std::vector<const void*> pointers;
    for (std::int64_t group = 0; group < problem_.batch; ++group)
      pointers.push_back(at(const_cast<void*>(operands_as_batch(set).b), std::size_t(group) * stride));
    backend_.copy_to_device(pointers_to_b(set), pointers.data(), pointers.size() * sizeof(void*));
  }
}

void* Scratch::pointers_to_b(int set) const {
  return at(pointers_.get(), std::size_t(set * problem_.batch) * sizeof(void*));
}

Operands Scratch::operands(int set, Distribution distribution) const {
  Operands operands = operands_as_batch(set);
  if (has_pointers_to_b(problem_)) operands.b = pointers_to_b(set);
  if (has_groups(problem_)) operands.group_rows = static_cast<const std::int32_t*>(group_table(distribution));
  return operands;
}

Operands Scratch::operands_as_batch(int set) const {
  const std::size_t input = std::size_t(set) * (a_bytes_ + b_bytes_),
                    addend = std::size_t(set) * (c_bytes_ + bias_bytes_);
  Operands operands;
  operands.a = at(inputs_.get(), input);
  operands.b = at(inputs_.get(), input + a_bytes_);
  if (c_bytes_ > 0) operands.c = at(addends_.get(), addend);
  if (bias_bytes_ > 0) operands.bias = at(addends_.get(), addend + c_bytes_);
  operands.d = at(outputs_.get(), std::size_t(set) * d_bytes_);
  if (const std::size_t bytes = scale_a_bytes_ + scale_b_bytes_; bytes > 0) {
    operands.scale_a = reinterpret_cast<const float*>(at(scales_.get(), std::size_t(set) * bytes));
    operands.scale_b = reinterpret_cast<const float*>(at(scales_.get(), std::size_t(set) * bytes + scale_a_bytes_));
  }
  return operands;
}

Workspace Scratch::workspace() const {
  return {workspace_memory_.get(), static_cast<unsigned*>(counter_memory_.get())};
}

void Scratch::zero_counters() {
  if (counters_ > 0) backend_.zero(counter_memory_.get(), std::size_t(counters_) * sizeof(unsigned));
}

}  // namespace jitgemm
