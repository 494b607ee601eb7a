#pragma once

#include "c/values.hpp"
#include "jitgemm/cache.hpp"
#include "jitgemm/wisdom.hpp"

// Handles that hold a value alone.
struct jitgemm_tuning_results {
  std::vector<jitgemm::TuningResult> all;
};
struct jitgemm_cached_kernels {
  std::vector<jitgemm::CachedKernel> all;
};
struct jitgemm_cache_export {
  jitgemm::CacheExport value;
};
struct jitgemm_wisdom {
  explicit jitgemm_wisdom(jitgemm::Wisdom of) : value(std::move(of)), results{std::move(value.results)} {}
  jitgemm::Wisdom value;  // but for its results
  jitgemm_tuning_results results;
};
struct jitgemm_wisdom_import {
  explicit jitgemm_wisdom_import(jitgemm::WisdomImport of) : value(std::move(of)), wisdom(std::move(value.wisdom)) {}
  jitgemm::WisdomImport value;  // but for its wisdom
  jitgemm_wisdom wisdom;
};
struct jitgemm_wisdom_diff {
  explicit jitgemm_wisdom_diff(jitgemm::WisdomDiff of);
  jitgemm_wisdom_diff_info info;
  jitgemm_tuning_results only_a, only_b, differ_a, differ_b;
};

namespace jitgemm::c {

// As in values.hpp. Texts are those of the value, and live as long.
jitgemm_tuning_result to_c(const TuningResult& result);
jitgemm_cached_kernel to_c(const CachedKernel& kernel);
jitgemm_cache_export_info to_c(const CacheExport& done);
jitgemm_wisdom_kernel to_c(const WisdomKernel& kernel);
jitgemm_wisdom_info to_c(const Wisdom& wisdom);
jitgemm_wisdom_import_info to_c(const WisdomImport& done);
jitgemm_wisdom_selection to_c(const WisdomSelection& selection);         ///< without texts and the filter
jitgemm_wisdom_import_options to_c(const WisdomImportOptions& options);  ///< without texts

WisdomSelection selection_of(const jitgemm_wisdom_selection* selection);  ///< nullptr: the defaults
WisdomImportOptions import_options_of(const jitgemm_wisdom_import_options* options);

/// One whose texts, which are empty, are there for good.
template <typename T>
const T& one_of() {
  static const T& one = *new T();
  return one;
}

JITGEMM_VERSIONED(jitgemm_tuning_result, to_c(one_of<TuningResult>()), 128, 144)
JITGEMM_VERSIONED(jitgemm_cached_kernel, to_c(one_of<CachedKernel>()), 96)
JITGEMM_VERSIONED(jitgemm_cache_export_info, to_c(one_of<CacheExport>()), 32)
JITGEMM_VERSIONED(jitgemm_wisdom_kernel, to_c(one_of<WisdomKernel>()), 40)
JITGEMM_VERSIONED(jitgemm_wisdom_info, to_c(one_of<Wisdom>()), 48)
JITGEMM_VERSIONED(jitgemm_wisdom_selection, to_c(WisdomSelection{}), 48)
JITGEMM_VERSIONED(jitgemm_wisdom_import_options, to_c(WisdomImportOptions{}), 24)
JITGEMM_VERSIONED(jitgemm_wisdom_import_info, to_c(one_of<WisdomImport>()), 40)
JITGEMM_VERSIONED(jitgemm_wisdom_diff_info, jitgemm_wisdom_diff_info{}, 48)

}  // namespace jitgemm::c
