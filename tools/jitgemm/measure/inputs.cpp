#include "measure/inputs.hpp"

#include <algorithm>

#include "backend/backend.hpp"
#include "core/epilogue_function.hpp"
#include "core/groups.hpp"
#include "core/operand_matrix.hpp"
#include "core/problem.hpp"
#include "core/type_rules.hpp"
#include "jitgemm/error.hpp"

namespace jitgemm::cli {
namespace {

std::size_t padded(std::size_t bytes) { return (bytes + 255) / 256 * 256; }

}  // namespace

std::size_t bytes_of_a(const Problem& p) { return std::size_t(matrix_a(p).batch_bytes()); }
std::size_t bytes_of_b(const Problem& p) { return std::size_t(matrix_b(p).batch_bytes()); }
std::size_t bytes_of_c(const Problem& p) { return std::size_t(matrix_c(p).batch_bytes()); }
std::size_t bytes_of_d(const Problem& p) { return std::size_t(matrix_d(p).batch_bytes()); }

const Problem& checkable(const Problem& p) {
  if (has_own_scales_d(p))
    throw Error(ErrorCode::invalid_option,
                "a D with scales of its own is nothing that this command checks: leave scaling_d out");
  return p;
}

InputPools::InputPools(Backend& backend, DataType a, DataType b, std::uint64_t seed)
    : backend_(backend), type_a_(a), type_b_(b), seed_(seed) {}

void InputPools::grow(DeviceMemory& pool, std::size_t bytes, DataType type, std::uint64_t seed) {
  if (pool.bytes() >= bytes && pool.data()) return;
  pool = DeviceMemory();  // the old one first: both may not fit
  pool = DeviceMemory(backend_, std::max<std::size_t>(bytes, 256));
  if (seed != 0) backend_.fill_random(pool.data(), std::int64_t(pool.bytes() / size_of(type)), type, seed_ + seed);
}

void InputPools::prepare(const Problem& p, bool rotate, const std::vector<Problem>& beside) {
  checkable(p);
  step_a_ = padded(bytes_of_a(p));
  step_b_ = padded(bytes_of_b(p));
  step_c_ = step_d_ = 0;
  prepare_own(p);
  own_c_ = own_bias_ = std::nullopt;
  std::vector<Problem> all = beside;
  all.push_back(p);
  for (const Problem& each : all) {
    const Bias bias = each.epilogue.bias;
    if (reads_c(each)) own_c_ = find_own(OperandShape::matrix, type_of_c(each));
    if (bias != Bias::none)
      own_bias_ = find_own(bias == Bias::along_n ? OperandShape::along_n : OperandShape::along_m, type_of_c(each));
    if (reads_c(each) && !own_c_) step_c_ = std::max(step_c_, padded(bytes_of_c(each)));
    step_d_ = std::max(step_d_, padded(bytes_of_d(each)));
  }
  const auto room = [&](std::size_t step) { return rotate ? std::max(pool_bytes, step) : step; };
  std::vector<std::size_t> steps{step_a_, step_b_, step_c_, step_d_};
  for (const Own& own : own_) steps.push_back(own.step);
  sets_ = 1;
  if (rotate) {
    std::size_t of_one_set = 0;
    for (const std::size_t step : steps) of_one_set += step;
    std::size_t sets = rotation_bytes / std::max<std::size_t>(of_one_set, 1) + 1;
    for (const std::size_t step : steps) sets = std::min(sets, room(step) / std::max<std::size_t>(step, 1));
    sets_ = int(std::max<std::size_t>(sets, 1));
  }
  grow(a_, room(step_a_), type_a_, 1);
  grow(b_, room(step_b_), type_b_, 2);
  grow(d_, room(step_d_), p.d.type, 0);
  for (const Problem& each : all) {
    const DataType addend = type_of_c(each);
    if (reads_c(each) && !own_c_) grow(c_, room(step_c_), addend, 3);
    if (each.epilogue.bias != Bias::none && !own_bias_)
      grow(bias_, std::size_t(bias_elements(each)) * size_of(addend), addend, 4);
  }
  point_to_b(p);
  vectors_a_ = p.a.scaling != Scaling::value;
  vectors_b_ = p.b.scaling != Scaling::value;
  if (vectors_a_) grow(scales_a_, std::size_t(scales_of_a(p)) * sizeof(float), f32, 5);
  if (vectors_b_) grow(scales_b_, std::size_t(scales_of_b(p)) * sizeof(float), f32, 6);

  values_.assign(std::size_t(sets_), {});
  for (std::size_t i = 0; i < own_.size(); ++i) {
    Own& own = own_[i];
    if (own.step > 0)
      grow(own.pool, std::size_t(sets_) * own.step, own.operand.type, own.operand.output ? 0 : 7 + std::uint64_t(i));
    for (std::size_t set = 0; set < values_.size(); ++set) {
      std::byte* const data = own.step > 0 ? own.pool.data() + set * own.step : nullptr;
      values_[set].push_back({.in = own.operand.output ? nullptr : data,
                              .out = own.operand.output ? data : nullptr,
                              .scalar = own.scalar});
    }
  }
}

void InputPools::prepare_own(const Problem& p) {
  const std::vector<EpilogueOperand> operands =
      has_epilogue_function(p) ? epilogue_function(p).operands : std::vector<EpilogueOperand>();
  const auto are_of = [&](const Own& own, const EpilogueOperand& operand) {
    return own.operand.type == operand.type && own.operand.output == operand.output;
  };
  if (!std::ranges::equal(own_, operands, are_of)) own_ = std::vector<Own>(operands.size());
  const auto scalars = double(std::ranges::count(operands, OperandShape::scalar, &EpilogueOperand::shape));
  double counted = 0;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    Own& own = own_[i];
    own.operand = operands[i];
    if (own.operand.shape == OperandShape::scalar)
      own.scalar = compute_type_of(p) == s32 ? ++counted : ++counted / (scalars + 1);
    else
      own.step = padded(std::size_t(matrix_of(own.operand, {}, p).batch_bytes()));
  }
}

std::optional<std::size_t> InputPools::find_own(OperandShape shape, DataType type) const {
  const auto found = std::ranges::find_if(own_, [&](const Own& own) {
    return own.operand.shape == shape && own.operand.type == type && !own.operand.output;
  });
  if (found == own_.end()) return std::nullopt;
  return std::size_t(found - own_.begin());
}

void InputPools::add_scales() {
  const float one = 1;
  scale_ = DeviceMemory(backend_, sizeof one);
  backend_.copy_to_device(scale_.data(), &one, sizeof one);
}

void InputPools::point_to_b(const Problem& p) {
  pointers_ = DeviceMemory();
  step_pointers_ = 0;
  if (!has_pointers_to_b(p)) return;
  const std::size_t stride = std::size_t(p.b.stride) * size_of(p.b.type);
  step_pointers_ = std::size_t(p.batch) * sizeof(void*);
  pointers_ = DeviceMemory(backend_, std::max<std::size_t>(std::size_t(sets_) * step_pointers_, 256));
  std::vector<const void*> pointers;
  for (std::size_t set = 0; set < std::size_t(sets_); ++set)
    for (std::int64_t group = p.batch; group-- > 0;)
      pointers.push_back(b_.data() + set * step_b_ + std::size_t(group) * stride);
  if (!pointers.empty()) backend_.copy_to_device(pointers_.data(), pointers.data(), pointers.size() * sizeof(void*));
}

void InputPools::set_group_rows(const std::vector<std::int32_t>& table) {
  const std::size_t bytes = table.size() * sizeof(std::int32_t);
  group_rows_ = DeviceMemory(backend_, std::max<std::size_t>(bytes, 256));
  if (bytes > 0) backend_.copy_to_device(group_rows_.data(), table.data(), bytes);
}

Operands InputPools::operands(int set) const {
  const auto scales = [this](bool is_vector, const DeviceMemory& vector) {
    return reinterpret_cast<const float*>(is_vector ? vector.data() : scale_.data());
  };
  const auto shared_or = [&](const std::optional<std::size_t>& own, const void* pool) {
    return own ? values_[std::size_t(set)][*own].in : pool;
  };
  return {.a = a_.data() + std::size_t(set) * step_a_,
          .b = step_pointers_ > 0 ? pointers_.data() + std::size_t(set) * step_pointers_
                                  : b_.data() + std::size_t(set) * step_b_,
          .c = shared_or(own_c_, c_.data() + std::size_t(set) * step_c_),
          .d = d_.data() + std::size_t(set) * step_d_,
          .bias = shared_or(own_bias_, bias_.data()),
          .scale_a = scales(vectors_a_, scales_a_),
          .scale_b = scales(vectors_b_, scales_b_),
          .group_rows = reinterpret_cast<const std::int32_t*>(group_rows_.data()),
          .epilogue = values_.empty() ? nullptr : values_[std::size_t(set)].data(),
          .epilogue_count = own_.size()};
}

}  // namespace jitgemm::cli
