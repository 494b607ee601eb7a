#pragma once

#include <optional>
#include <random>
#include <vector>

#include "jitgemm/jitgemm.hpp"
#include "plan/rated_device.hpp"

namespace jitgemm::cli {

/// Calls that one kernel serves, or with the library's own choice a few: everything but the sizes and scalars.
struct SoakPattern {
  Problem problem;       ///< without sizes
  bool aligned = false;  ///< rows at 16 bytes; else at no more than an element
  bool batched = false;
  bool packs = false;                  ///< `config` copies operands first
  std::optional<KernelConfig> config;  ///< none: the library's choice, for `sizes` alone
  struct Sizes {
    std::int64_t m = 0, n = 0, k = 0, batch = 1;
  };
  std::vector<Sizes> sizes;
};

/// Draws what the soak calls. The same seed draws the same.
class SoakPatterns {
 public:
  /// Sizes are 1 to `largest`, a multiple of 16.
  SoakPatterns(int count, std::int64_t largest, const RatedDevice& device, std::uint64_t seed);

  const std::vector<SoakPattern>& all() const { return patterns_; }
  /// Every type of element that occurs.
  std::vector<DataType> types() const;
  /// Bytes that C or D spans at most, and any operand.
  std::size_t most_bytes() const;
  std::size_t most_input_bytes() const;

  /// What uses most of everything, for each of the pattern's kernels.
  std::vector<Problem> largest_problems(const SoakPattern& pattern) const;
  /// Legal for the pattern's configuration.
  Problem draw(const SoakPattern& pattern, std::mt19937_64& random) const;

 private:
  SoakPattern draw_pattern(std::size_t number, std::mt19937_64& random) const;
  bool has_slabs() const;
  /// Gives the pattern a configuration that packs its operands slab by slab, and sizes for that. False: there is none.
  bool draw_slabs(SoakPattern& pattern, std::mt19937_64& random) const;
  SoakPattern::Sizes draw_sizes(const SoakPattern& pattern, std::mt19937_64& random) const;
  Problem with_sizes(const SoakPattern& pattern, const SoakPattern::Sizes& sizes) const;

  std::int64_t largest_;
  RatedDevice device_;
  std::vector<SoakPattern> patterns_;
};

}  // namespace jitgemm::cli
