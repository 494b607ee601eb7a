#pragma once

#include <memory>
#include <string>
#include <vector>

#include "bench/options.hpp"

namespace jitgemm::cli {

/// An arm that a Context with other options chooses, or runs.
struct Variant {
  std::string name;        ///< of the arm
  ContextOptions options;  ///< of the Context
  bool chooses = true;     ///< else it runs the tuned choice, or the model's
  bool in_order = false;   ///< what it has chosen before counts, so that shapes come in turn
};

/// Those that are asked for, with what `options` say else. Throws Error{invalid_option} for one that the library lacks.
std::vector<Variant> variants(const BenchOptions& asked, const ContextOptions& options);

/// What a variant chooses, shape after shape: earlier choices may count in later ones.
class VariantChooser {
 public:
  explicit VariantChooser(const Variant& variant) : name_(variant.name), context_(variant.options) {}

  /// Of the tuning database, or measured if nothing is `frozen`. The kernel is compiled. What the choice stands on
  /// instead of a measurement is in `note`.
  KernelConfig choose(const Problem& normalised, bool frozen, std::string& note);

 private:
  std::string name_;
  Context context_;
};

}  // namespace jitgemm::cli
