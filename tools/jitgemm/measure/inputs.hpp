#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "jitgemm/epilogue.hpp"
#include "jitgemm/problem.hpp"
#include "measure/memory.hpp"

namespace jitgemm::cli {

std::size_t bytes_of_a(const Problem& normalised);
std::size_t bytes_of_b(const Problem& normalised);
std::size_t bytes_of_c(const Problem& normalised);
std::size_t bytes_of_d(const Problem& normalised);

/// The problem itself, if its D is one that commands check. Throws ErrorCode::invalid_option.
const Problem& checkable(const Problem& p);

/// Random A, B, C, bias, scales that are no single values and arrays of an epilogue of one's own, about N(0,1), and
/// room for D, for one normalised problem after another; the epilogue's scalars are spread over (0, 1) in their order.
/// A problem gets several sets that lie side by side: enough for the sets in turn to exceed the L2, as far as the pools
/// go.
class InputPools {
 public:
  static constexpr std::size_t rotation_bytes = std::size_t(200) << 20;  ///< over three times the L2 of an H200
  static constexpr std::size_t pool_bytes = std::size_t(768) << 20;      ///< of each of A, B, C and D

  /// Those of another `seed` are others.
  InputPools(Backend& backend, DataType a, DataType b, std::uint64_t seed = 0);
  InputPools(Backend& backend, DataType both) : InputPools(backend, both, both) {}

  /// Makes the pools large enough, and counts the sets. `rotate` false: one set. `beside`: other problems of the same
  /// sizes and A and B that are given the same operands: C and bias are, where the epilogue of one's own has what they
  /// may be, its first such operand.
  void prepare(const Problem& normalised, bool rotate, const std::vector<Problem>& beside = {});
  /// From now on A and B have single scales, of 1 in device memory.
  void add_scales();
  /// From now on calls have this Operands::group_rows.
  void set_group_rows(const std::vector<std::int32_t>& table);
  int sets() const { return sets_; }
  /// The operands of one set, without workspace.
  Operands operands(int set) const;

 private:
  /// Of the epilogue, one set after another.
  struct Own {
    EpilogueOperand operand;
    double scalar = 0;
    std::size_t step = 0;
    DeviceMemory pool;
  };
  void prepare_own(const Problem& p);
  /// The first operand that is read, of this shape and type.
  std::optional<std::size_t> find_own(OperandShape shape, DataType type) const;
  /// The pointers of each set name its matrices from the last to the first, as no stride does.
  void point_to_b(const Problem& p);
  void grow(DeviceMemory& pool, std::size_t bytes, DataType type, std::uint64_t seed);

  Backend& backend_;
  DataType type_a_, type_b_;
  std::uint64_t seed_;
  DeviceMemory a_, b_, c_, d_, bias_, scale_, scales_a_, scales_b_, group_rows_, pointers_;
  std::size_t step_a_ = 0, step_b_ = 0, step_c_ = 0, step_d_ = 0;
  std::size_t step_pointers_ = 0;  // 0: B lies by its stride
  bool vectors_a_ = false, vectors_b_ = false;
  int sets_ = 1;
  std::vector<Own> own_;
  std::optional<std::size_t> own_c_, own_bias_;     ///< those of them that other problems' C and bias are
  std::vector<std::vector<EpilogueValue>> values_;  ///< of each set
};

}  // namespace jitgemm::cli
