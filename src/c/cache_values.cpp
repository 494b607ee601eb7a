#include "c/cache_values.hpp"

namespace jitgemm::c {
namespace {

std::optional<std::string> optional_text(const char* text) {
  return text ? std::optional<std::string>(text) : std::nullopt;
}

}  // namespace

jitgemm_tuning_result to_c(const TuningResult& result) {
  const auto& [problem, constraints, device, architecture, sm_count, emulated, config, median_us, spread, runners_up,
               date, library, candidates, ranks, exchange, method] = result;
  jitgemm_tuning_result to{};
  to.size = sizeof to;
  to.constraints = to_c(constraints);
  to.device = device.c_str();
  to.architecture = architecture.c_str();
  to.date = date.c_str();
  to.library = library.c_str();
  to.candidates = candidates.c_str();
  to.median_us = median_us;
  to.spread = spread;
  to.runner_up_count = runners_up.size();
  to.sm_count = sm_count;
  to.emulated = emulated;
  to.ranks = ranks;
  to.exchange = int(exchange);
  to.method = int(method);
  return to;
}

jitgemm_cached_kernel to_c(const CachedKernel& kernel) {
  const auto& [digest, path, fault, bytes, last_used, read_only, entry, architecture, config, compiler, registers,
               spill_bytes] = kernel;
  jitgemm_cached_kernel to{};
  to.size = sizeof to;
  to.digest = digest.c_str();
  to.path = path.c_str();
  to.fault = fault.c_str();
  to.entry = entry.c_str();
  to.architecture = architecture.c_str();
  to.config = config.c_str();
  to.compiler = compiler.c_str();
  to.bytes = bytes;
  to.last_used = last_used;
  to.read_only = read_only;
  to.registers = registers;
  to.spill_bytes = spill_bytes;
  return to;
}

jitgemm_cache_export_info to_c(const CacheExport& done) {
  const auto& [kernels, directory, remark] = done;
  return {sizeof(jitgemm_cache_export_info), kernels, directory.c_str(), remark.c_str()};
}

jitgemm_wisdom_kernel to_c(const WisdomKernel& kernel) {
  const auto& [digest, architecture, bytes, current] = kernel;
  return {sizeof(jitgemm_wisdom_kernel), digest.c_str(), architecture.c_str(), bytes, current, 0};
}

jitgemm_wisdom_info to_c(const Wisdom& wisdom) {
  const auto& [library, results, kernels, foreign_results, foreign_kernels, strange_kernels] = wisdom;
  return {
      sizeof(jitgemm_wisdom_info), library.c_str(), kernels.size(), foreign_results, foreign_kernels, strange_kernels};
}

jitgemm_wisdom_import_info to_c(const WisdomImport& done) {
  const auto& [wisdom, results, kernels, kernels_left_out, directory] = done;
  return {sizeof(jitgemm_wisdom_import_info), results, kernels, kernels_left_out, directory.c_str()};
}

jitgemm_wisdom_selection to_c(const WisdomSelection& selection) {
  const auto& [cache_dir, architecture, result, kernels] = selection;
  jitgemm_wisdom_selection to{};
  to.size = sizeof to;
  to.kernels = kernels;
  return to;
}

WisdomSelection selection_of(const jitgemm_wisdom_selection* given) {
  WisdomSelection to;
  if (!given) return to;
  const jitgemm_wisdom_selection from = read(given);
  check_reserved("jitgemm_wisdom_selection", from.reserved_word);
  auto& [cache_dir, architecture, result, kernels] = to;
  cache_dir = optional_text(from.cache_dir);
  if (from.architecture) architecture = from.architecture;
  if (from.filter) {
    result = [call = from.filter, user = from.filter_user](const TuningResult& one) {
      const jitgemm_problem problem = to_c(one.problem);
      const jitgemm_config config = to_c(one.config);
      const jitgemm_tuning_result facts = to_c(one);
      std::int32_t take = 0;
      run_callback("filter", [&] { return call(user, &problem, &config, &facts, &take); });
      return take != 0;
    };
  }
  kernels = from.kernels != 0;
  return to;
}

jitgemm_wisdom_import_options to_c(const WisdomImportOptions& options) {
  const auto& [kernels, cache_dir] = options;
  jitgemm_wisdom_import_options to{};
  to.size = sizeof to;
  to.kernels = kernels;
  return to;
}

WisdomImportOptions import_options_of(const jitgemm_wisdom_import_options* given) {
  WisdomImportOptions to;
  if (!given) return to;
  const jitgemm_wisdom_import_options from = read(given);
  check_reserved("jitgemm_wisdom_import_options", from.reserved_word);
  auto& [kernels, cache_dir] = to;
  kernels = from.kernels != 0;
  cache_dir = optional_text(from.cache_dir);
  return to;
}

}  // namespace jitgemm::c

jitgemm_wisdom_diff::jitgemm_wisdom_diff(jitgemm::WisdomDiff of) {
  auto& [first, second, differ, same, kernels_only_a, kernels_only_b, kernels_same] = of;
  info = {sizeof info, same, kernels_only_a, kernels_only_b, kernels_same, of.equal(), 0};
  only_a.all = std::move(first);
  only_b.all = std::move(second);
  for (auto& [a, b] : differ) {
    differ_a.all.push_back(std::move(a));
    differ_b.all.push_back(std::move(b));
  }
}

using namespace jitgemm::c;

jitgemm_status jitgemm_tuning_result_init_sized(jitgemm_tuning_result* result, std::size_t size) {
  return guarded([&] { init(result, size); });
}
jitgemm_status jitgemm_cached_kernel_init_sized(jitgemm_cached_kernel* kernel, std::size_t size) {
  return guarded([&] { init(kernel, size); });
}
jitgemm_status jitgemm_cache_export_info_init_sized(jitgemm_cache_export_info* info, std::size_t size) {
  return guarded([&] { init(info, size); });
}
jitgemm_status jitgemm_wisdom_info_init_sized(jitgemm_wisdom_info* info, std::size_t size) {
  return guarded([&] { init(info, size); });
}
jitgemm_status jitgemm_wisdom_kernel_init_sized(jitgemm_wisdom_kernel* kernel, std::size_t size) {
  return guarded([&] { init(kernel, size); });
}
jitgemm_status jitgemm_wisdom_selection_init_sized(jitgemm_wisdom_selection* selection, std::size_t size) {
  return guarded([&] { init(selection, size); });
}
jitgemm_status jitgemm_wisdom_import_options_init_sized(jitgemm_wisdom_import_options* options, std::size_t size) {
  return guarded([&] { init(options, size); });
}
jitgemm_status jitgemm_wisdom_import_info_init_sized(jitgemm_wisdom_import_info* info, std::size_t size) {
  return guarded([&] { init(info, size); });
}
jitgemm_status jitgemm_wisdom_diff_info_init_sized(jitgemm_wisdom_diff_info* info, std::size_t size) {
  return guarded([&] { init(info, size); });
}
