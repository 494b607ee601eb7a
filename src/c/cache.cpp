// The cache on disk, and lists of what is in it.
#include "c/cache_values.hpp"
#include "c/handles.hpp"
#include "c/text.hpp"

struct jitgemm_cache {
  jitgemm::Cache cache;
};

namespace jitgemm::c {
namespace {

const TuningResult& result_at(const jitgemm_tuning_results* results, std::size_t index) {
  const std::vector<TuningResult>& all = given(results, "results").all;
  check_index(index, all.size(), "tuning results");
  return all[index];
}

/// What a list function of a Cache gives.
template <typename List, typename Made>
jitgemm_status put_list(const jitgemm_cache* cache, List** list, const char* name, Made made) {
  return guarded([&] {
    const Cache& of = given(cache, "cache").cache;
    given(list, name);
    put_handle(list, std::unique_ptr<List>(new List{made(of)}));
  });
}

template <typename Free>
jitgemm_status free_bytes(jitgemm_cache* cache, std::uint64_t* freed_bytes, Free free) {
  return guarded([&] {
    const std::uint64_t bytes = free(given(cache, "cache").cache);
    if (freed_bytes) *freed_bytes = bytes;
  });
}

template <typename Export>
jitgemm_status export_to(const jitgemm_cache* cache, const char* folder, jitgemm_cache_export** done, Export to) {
  return guarded([&] {
    const Cache& from = given(cache, "cache").cache;
    auto made = std::unique_ptr<jitgemm_cache_export>(new jitgemm_cache_export{to(from, &given(folder, "folder"))});
    if (done) put_handle(done, std::move(made));
  });
}

}  // namespace
}  // namespace jitgemm::c

using namespace jitgemm::c;

jitgemm_status jitgemm_tuning_results_count(const jitgemm_tuning_results* results, std::size_t* count) {
  return guarded([&] { given(count, "count") = given(results, "results").all.size(); });
}

jitgemm_status jitgemm_tuning_results_get(const jitgemm_tuning_results* results, std::size_t index,
                                          jitgemm_problem* problem, jitgemm_config* config,
                                          jitgemm_tuning_result* result) {
  return guarded([&] {
    const Out<jitgemm_problem> problem_out(problem);
    const Out<jitgemm_config> config_out(config);
    const Out<jitgemm_tuning_result> result_out(result);
    const jitgemm::TuningResult& one = result_at(results, index);
    problem_out.put(to_c(one.problem));
    config_out.put(to_c(one.config));
    result_out.put(to_c(one));
  });
}

jitgemm_status jitgemm_tuning_results_runner_up(const jitgemm_tuning_results* results, std::size_t index,
                                                std::size_t runner_up, jitgemm_config* config, double* median_us) {
  return guarded([&] {
    const Out<jitgemm_config> out(config);
    const std::vector<jitgemm::MeasuredConfig>& all = result_at(results, index).runners_up;
    check_index(runner_up, all.size(), "runners-up");
    out.put(to_c(all[runner_up].config));
    if (median_us) *median_us = all[runner_up].median_us;
  });
}

jitgemm_status jitgemm_tuning_results_json(const jitgemm_tuning_results* results, std::size_t index, char* buffer,
                                           std::size_t capacity, std::size_t* needed) {
  return guarded([&] {
    const TextOut out(buffer, capacity, needed);
    out.put_text(result_at(results, index).json());
  });
}

void jitgemm_tuning_results_destroy(jitgemm_tuning_results* results) { delete results; }

jitgemm_status jitgemm_cached_kernels_count(const jitgemm_cached_kernels* kernels, std::size_t* count) {
  return guarded([&] { given(count, "count") = given(kernels, "kernels").all.size(); });
}

jitgemm_status jitgemm_cached_kernels_get(const jitgemm_cached_kernels* kernels, std::size_t index,
                                          jitgemm_cached_kernel* kernel) {
  return guarded([&] {
    const auto out = required(kernel);
    const std::vector<jitgemm::CachedKernel>& all = given(kernels, "kernels").all;
    check_index(index, all.size(), "kernels");
    out.put(to_c(all[index]));
  });
}

void jitgemm_cached_kernels_destroy(jitgemm_cached_kernels* kernels) { delete kernels; }

jitgemm_status jitgemm_cache_create(const char* directory, jitgemm_cache** cache) {
  return guarded([&] {
    given(cache, "cache");
    put_handle(cache, std::unique_ptr<jitgemm_cache>(new jitgemm_cache{
                          jitgemm::Cache(directory ? std::optional<std::string>(directory) : std::nullopt)}));
  });
}

void jitgemm_cache_destroy(jitgemm_cache* cache) { delete cache; }

jitgemm_status jitgemm_cache_directory(const jitgemm_cache* cache, char* buffer, std::size_t capacity,
                                       std::size_t* needed) {
  return guarded([&] {
    const TextOut out(buffer, capacity, needed);
    out.put_text(given(cache, "cache").cache.directory());
  });
}

jitgemm_status jitgemm_cache_max_bytes(const jitgemm_cache* cache, std::uint64_t* bytes) {
  return guarded([&] { given(bytes, "bytes") = given(cache, "cache").cache.max_bytes(); });
}

jitgemm_status jitgemm_cache_kernels(const jitgemm_cache* cache, jitgemm_cached_kernels** kernels) {
  return put_list(cache, kernels, "kernels", [](const jitgemm::Cache& of) { return of.kernels(); });
}
jitgemm_status jitgemm_cache_verify(const jitgemm_cache* cache, jitgemm_cached_kernels** kernels) {
  return put_list(cache, kernels, "kernels", [](const jitgemm::Cache& of) { return of.verify(); });
}
jitgemm_status jitgemm_cache_tuning_results(const jitgemm_cache* cache, jitgemm_tuning_results** results) {
  return put_list(cache, results, "results", [](const jitgemm::Cache& of) { return of.tuning_results(); });
}

jitgemm_status jitgemm_cache_prune(jitgemm_cache* cache, std::uint64_t max_bytes, std::uint64_t* freed_bytes) {
  return free_bytes(cache, freed_bytes, [&](jitgemm::Cache& of) { return of.prune(max_bytes); });
}
jitgemm_status jitgemm_cache_clear(jitgemm_cache* cache, std::uint64_t* freed_bytes) {
  return free_bytes(cache, freed_bytes, [](jitgemm::Cache& of) { return of.clear(); });
}

jitgemm_status jitgemm_cache_export_kernels(const jitgemm_cache* cache, const char* folder,
                                            jitgemm_cache_export** done) {
  return export_to(cache, folder, done,
                   [](const jitgemm::Cache& from, const char* to) { return from.export_kernels(to); });
}
jitgemm_status jitgemm_cache_export_binaries(const jitgemm_cache* cache, const char* folder,
                                             jitgemm_cache_export** done) {
  return export_to(cache, folder, done,
                   [](const jitgemm::Cache& from, const char* to) { return from.export_binaries(to); });
}
jitgemm_status jitgemm_cache_export_get_info(const jitgemm_cache_export* done, jitgemm_cache_export_info* info) {
  return guarded([&] {
    const auto out = required(info);
    out.put(to_c(given(done, "done").value));
  });
}
void jitgemm_cache_export_destroy(jitgemm_cache_export* done) { delete done; }
