#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "backend/backend.hpp"
#include "core/problem.hpp"
#include "jitgemm/context.hpp"
#include "reference.hpp"

namespace jitgemm::test {

/// One GEMM and where its operands lie. The problem's alignments are those of the pointers.
struct GemmCase {
  Problem problem;  ///< normalised once place_all() has placed its operands
  KernelConfig config;
  int offset_a = 0, offset_b = 0, offset_c = 0, offset_d = 0;  ///< bytes past a 16-byte boundary
  bool d_is_c = false;
  std::array<float, 3> scales{};  ///< of A, B and D, where they are single values; 0: none is passed
};
std::string to_string(const GemmCase& gemm);

/// Types, layouts, alignments, leading dimensions, batches, schedules, group sizes, epilogues, accumulations, tiles and
/// ragged shapes, pairwise. Each kernel appears `shapes` times, with other sizes, CTAs and scalars; the first of
/// each are the pairwise ones.
std::vector<GemmCase> pairwise_cases(MainLoop main_loop, int shapes);

/// The product of types, layouts, alignments, epilogues, schedules and ragged shapes, for one tile.
std::vector<GemmCase> product_cases(MainLoop main_loop);

/// Whether Fill::integers makes the result exact, whatever the order of accumulation: not through activations that
/// round themselves, nor where wgmma cuts bits of 8-bit products off: what is promoted, sums of one k-block, is too
/// short for that.
bool exact_with_integers(const GemmCase& gemm);

/// What the Hopper main loop is made of, each in a small problem that has several tiles a CTA.
struct Mechanism {
  std::string part;  ///< cluster, ping_pong, cluster_sum, store or packed
  GemmCase gemm;
};
std::vector<Mechanism> hopper_mechanisms();

/// Each type in each layout with both depths of a k-block: what pairs do not reach.
std::vector<GemmCase> layout_cases(MainLoop main_loop);

/// How the case's scales multiply.
Scales scales_of(const GemmCase& gemm);

/// A case with these sizes; A, B, C and D are aligned to so many bytes and no more.
GemmCase plain_case(const Problem& problem, const KernelConfig& config, std::array<int, 4> align = {16, 16, 16, 16},
                    bool d_is_c = false);

enum class Fill : std::uint8_t {
  normal,    ///< about N(0, 1)
  integers,  ///< small ones, so that D is exact whatever the order of accumulation
};

/// Bytes before and behind D that nothing may write.
inline constexpr std::size_t d_guard_bytes = 256;

/// Memory images, elements in place and NaN elsewhere: pads in front, gaps between rows, operands that must not be
/// read.
struct GemmInputs {
  std::vector<char> a, b, c, bias;
  std::vector<float> scales_a, scales_b;  ///< those that are no single values: powers of two for Fill::integers
  std::vector<char> d;                    ///< before the call, with guard zones on both sides
  Fill fill = Fill::normal;
};
GemmInputs make_inputs(const GemmCase& gemm, Fill fill, std::uint64_t seed);

/// Empty, or how D's image after the call breaks the numerics contract, or what was written beside D.
std::string check(const GemmCase& gemm, const GemmInputs& inputs, const std::vector<char>& d);

/// A Context and memory for it. On the emulator each operand ends at memory that faults when touched.
class GemmDevice {
 public:
  static ContextOptions emulator(std::uint64_t seed = 0, int sm_count = 3);
  static ContextOptions cuda();

  explicit GemmDevice(const ContextOptions& options);
  ~GemmDevice();
  GemmDevice(GemmDevice&&) noexcept;

  Context& context() { return context_; }
  /// D's image after the call. The workspace is this function's own, full of NaN.
  std::vector<char> run(const GemmCase& gemm, const GemmInputs& inputs);
  /// Compiles the cases' kernels on all cores.
  void compile(const std::vector<GemmCase>& cases);

 private:
  Context context_;
  std::unique_ptr<Backend> cuda_;  // owns the memory of a CUDA device
};

/// Makes inputs, runs, checks. Empty, or what went wrong, with the case and the error's log.
std::string run_and_check(GemmDevice& device, const GemmCase& gemm, Fill fill, std::uint64_t seed);

}  // namespace jitgemm::test
