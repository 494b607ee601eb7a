#include "measure/inputs.hpp"

#include <algorithm>

#include "backend/backend.hpp"
#include "core/operand_matrix.hpp"
#include "core/problem.hpp"
#include "core/type_rules.hpp"

namespace jitgemm::cli {
namespace {

std::size_t padded(std::size_t bytes) { return (bytes + 255) / 256 * 256; }

}  // namespace

std::size_t bytes_of_a(const Problem& p) { return std::size_t(matrix_a(p).batch_bytes()); }
std::size_t bytes_of_b(const Problem& p) { return std::size_t(matrix_b(p).batch_bytes()); }
std::size_t bytes_of_c(const Problem& p) { return std::size_t(matrix_c(p).batch_bytes()); }
std::size_t bytes_of_d(const Problem& p) { return std::size_t(matrix_d(p).batch_bytes()); }

InputPools::InputPools(Backend& backend, DataType a, DataType b) : backend_(backend), type_a_(a), type_b_(b) {}

void InputPools::grow(DeviceMemory& pool, std::size_t bytes, DataType type, std::uint64_t seed) {
  if (pool.bytes() >= bytes && pool.data()) return;
  pool = DeviceMemory();  // the old one first: both may not fit
  pool = DeviceMemory(backend_, std::max<std::size_t>(bytes, 256));
  if (seed != 0) backend_.fill_random(pool.data(), std::int64_t(pool.bytes() / size_of(type)), type, seed);
}

void InputPools::prepare(const Problem& p, bool rotate) {
  step_a_ = padded(bytes_of_a(p));
  step_b_ = padded(bytes_of_b(p));
  step_c_ = reads_c(p) ? padded(bytes_of_c(p)) : 0;
  step_d_ = padded(bytes_of_d(p));
  const auto room = [&](std::size_t step) { return rotate ? std::max(pool_bytes, step) : step; };
  sets_ = 1;
  if (rotate) {
    std::size_t sets = rotation_bytes / std::max<std::size_t>(step_a_ + step_b_ + step_c_ + step_d_, 1) + 1;
    for (std::size_t step : {step_a_, step_b_, step_c_, step_d_})
      sets = std::min(sets, room(step) / std::max<std::size_t>(step, 1));
    sets_ = int(std::max<std::size_t>(sets, 1));
  }
  grow(a_, room(step_a_), type_a_, 1);
  grow(b_, room(step_b_), type_b_, 2);
  grow(d_, room(step_d_), p.d.type, 0);
  const DataType addend = type_of_c(p);
  if (reads_c(p)) grow(c_, room(step_c_), addend, 3);
  if (p.epilogue.bias != Bias::none) grow(bias_, std::size_t(bias_elements(p)) * size_of(addend), addend, 4);
  vectors_a_ = p.a.scaling != Scaling::value;
  vectors_b_ = p.b.scaling != Scaling::value;
  if (vectors_a_) grow(scales_a_, std::size_t(scales_of_a(p)) * sizeof(float), f32, 5);
  if (vectors_b_) grow(scales_b_, std::size_t(scales_of_b(p)) * sizeof(float), f32, 6);
}

void InputPools::add_scales() {
  const float one = 1;
  scale_ = DeviceMemory(backend_, sizeof one);
  backend_.copy_to_device(scale_.data(), &one, sizeof one);
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
  return {.a = a_.data() + std::size_t(set) * step_a_,
          .b = b_.data() + std::size_t(set) * step_b_,
          .c = c_.data() + std::size_t(set) * step_c_,
          .d = d_.data() + std::size_t(set) * step_d_,
          .bias = bias_.data(),
          .scale_a = scales(vectors_a_, scales_a_),
          .scale_b = scales(vectors_b_, scales_b_),
          .group_rows = reinterpret_cast<const std::int32_t*>(group_rows_.data())};
}

}  // namespace jitgemm::cli
