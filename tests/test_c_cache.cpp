// The cache on disk and wisdom by way of C: what C++ has, and nothing else.
#include <cstring>

#include "c/cache_values.hpp"
#include "c_context.hpp"
#include "cache_samples.hpp"
#include "catch.hpp"
#include "tuning_samples.hpp"
#include "wisdom_samples.hpp"

using namespace jitgemm;
using namespace jitgemm::test;
using Catch::Matchers::ContainsSubstring;
namespace fs = std::filesystem;

namespace {

template <typename Struct>
Struct made(jitgemm_status (*init)(Struct*)) {
  return made_by<Struct>(init);
}

void check_same(const jitgemm_tuning_results* results, const std::vector<TuningResult>& expected) {
  std::size_t count = 0;
  REQUIRE(jitgemm_tuning_results_count(results, &count) == JITGEMM_STATUS_SUCCESS);
  REQUIRE(count == expected.size());
  for (std::size_t i = 0; i < count; ++i) {
    const TuningResult& one = expected[i];
    auto problem = made(jitgemm_problem_init);
    auto config = made(jitgemm_config_init);
    auto facts = made(jitgemm_tuning_result_init);
    REQUIRE(jitgemm_tuning_results_get(results, i, &problem, &config, &facts) == JITGEMM_STATUS_SUCCESS);
    CHECK(to_string(c::problem_of(&problem)) == to_string(one.problem));
    CHECK(c::config_of(&config) == one.config);
    CHECK(facts.device == one.device);
    CHECK(facts.architecture == one.architecture);
    CHECK(facts.date == one.date);
    CHECK(facts.library == one.library);
    CHECK(facts.candidates == one.candidates);
    CHECK((facts.median_us == one.median_us && facts.spread == one.spread));
    CHECK((facts.sm_count == one.sm_count && (facts.emulated != 0) == one.emulated));
    CHECK((facts.ranks == one.ranks && facts.exchange == int(one.exchange) && facts.method == int(one.method)));
    CHECK(facts.constraints.workspace_bytes == one.constraints.workspace_bytes);
    REQUIRE(facts.runner_up_count == one.runners_up.size());
    for (std::size_t j = 0; j < one.runners_up.size(); ++j) {
      double us = 0;
      REQUIRE(jitgemm_tuning_results_runner_up(results, i, j, &config, &us) == JITGEMM_STATUS_SUCCESS);
      CHECK(c::config_of(&config) == one.runners_up[j].config);
      CHECK(us == one.runners_up[j].median_us);
    }
    CHECK(jitgemm_tuning_results_runner_up(results, i, one.runners_up.size(), nullptr, nullptr) ==
          JITGEMM_STATUS_INVALID_ARGUMENT);
    CHECK(line_of([&](char* b, std::size_t c, std::size_t* n) {
            return jitgemm_tuning_results_json(results, i, b, c, n);
          }) == one.json());
  }
  CHECK(jitgemm_tuning_results_get(results, count, nullptr, nullptr, nullptr) == JITGEMM_STATUS_INVALID_ARGUMENT);
}

void check_same(const jitgemm_cached_kernels* kernels, const std::vector<CachedKernel>& expected) {
  std::size_t count = 0;
  REQUIRE(jitgemm_cached_kernels_count(kernels, &count) == JITGEMM_STATUS_SUCCESS);
  REQUIRE(count == expected.size());
  auto kernel = made(jitgemm_cached_kernel_init);
  for (std::size_t i = 0; i < count; ++i) {
    const CachedKernel& one = expected[i];
    REQUIRE(jitgemm_cached_kernels_get(kernels, i, &kernel) == JITGEMM_STATUS_SUCCESS);
    CHECK(kernel.digest == one.digest);
    CHECK(kernel.path == one.path);
    CHECK(kernel.fault == one.fault);
    CHECK(kernel.entry == one.entry);
    CHECK(kernel.architecture == one.architecture);
    CHECK(kernel.config == one.config);
    CHECK(kernel.compiler == one.compiler);
    CHECK((kernel.bytes == one.bytes && kernel.last_used == one.last_used));
    CHECK((kernel.read_only == one.read_only && kernel.registers == one.registers));
    CHECK(kernel.spill_bytes == one.spill_bytes);
  }
  CHECK(jitgemm_cached_kernels_get(kernels, count, &kernel) == JITGEMM_STATUS_INVALID_ARGUMENT);
}

std::size_t result_count(const jitgemm_tuning_results* results) {
  std::size_t count = 0;
  throw_unless_success(jitgemm_tuning_results_count(results, &count));
  return count;
}

/// Takes results of at least this many rows; negative: stops.
int at_least(void* user, const jitgemm_problem* problem, const jitgemm_config* config,
             const jitgemm_tuning_result* result, std::int32_t* take) {
  const int rows = *static_cast<int*>(user);
  CHECK(config->size == sizeof *config);
  CHECK(std::strlen(result->device) > 0);
  CHECK(*take == 0);
  *take = problem->m >= rows;
  return rows < 0 ? rows : 0;
}

}  // namespace

TEST_CASE("A cache by way of C has the kernels and results of C++, drops, clears and exports them", "[c][cache]") {
  const Machine machine;
  const Cache expected(machine.cache);
  jitgemm_cache* cache = nullptr;
  REQUIRE(jitgemm_cache_create(machine.cache.c_str(), &cache) == JITGEMM_STATUS_SUCCESS);
  CHECK(line_of([&](char* b, std::size_t c, std::size_t* n) { return jitgemm_cache_directory(cache, b, c, n); }) ==
        machine.cache);
  std::uint64_t bytes = 0;
  REQUIRE(jitgemm_cache_max_bytes(cache, &bytes) == JITGEMM_STATUS_SUCCESS);
  CHECK(bytes == expected.max_bytes());

  const CacheEntry entry = sample_entry("a");
  std::string text = file_text(file_of(machine.cache, entry));
  text[text.size() - 100] ^= 1;
  write_file(file_of(machine.cache, entry), text);
  for (const auto list : {jitgemm_cache_kernels, jitgemm_cache_verify}) {
    jitgemm_cached_kernels* kernels = nullptr;
    REQUIRE(list(cache, &kernels) == JITGEMM_STATUS_SUCCESS);
    check_same(kernels, list == jitgemm_cache_verify ? expected.verify() : expected.kernels());
    jitgemm_cached_kernels_destroy(kernels);
  }
  jitgemm_tuning_results* results = nullptr;
  REQUIRE(jitgemm_cache_tuning_results(cache, &results) == JITGEMM_STATUS_SUCCESS);
  CHECK(result_count(results) == 2);
  check_same(results, expected.tuning_results());
  jitgemm_tuning_results_destroy(results);

  jitgemm_cache_export* done = nullptr;
  auto info = made(jitgemm_cache_export_info_init);
  REQUIRE(jitgemm_cache_export_kernels(cache, machine.other.c_str(), &done) == JITGEMM_STATUS_SUCCESS);
  REQUIRE(jitgemm_cache_export_get_info(done, &info) == JITGEMM_STATUS_SUCCESS);
  CHECK(info.kernels == 1);  // the other is damaged
  CHECK(info.directory == machine.other);
  jitgemm_cache_export_destroy(done);
  CHECK(Cache(machine.other).verify().size() == 1);
  REQUIRE(jitgemm_cache_export_binaries(cache, machine.path("text").c_str(), nullptr) == JITGEMM_STATUS_SUCCESS);
  CHECK(fs::exists(fs::path(machine.path("text")) / (key_of(sample_entry("b")).digest + ".cu")));

  REQUIRE(jitgemm_cache_prune(cache, UINT64_MAX, &bytes) == JITGEMM_STATUS_SUCCESS);
  CHECK(bytes == text.size());
  CHECK(expected.kernels().size() == 1);
  REQUIRE(jitgemm_cache_clear(cache, nullptr) == JITGEMM_STATUS_SUCCESS);
  CHECK(expected.kernels().empty());
  jitgemm_cache_destroy(cache);

  cache = nullptr;
  CHECK(jitgemm_cache_create(machine.path("nowhere").c_str(), &cache) == JITGEMM_STATUS_IO);
  CHECK_THAT(jitgemm_last_error_message(), ContainsSubstring("nowhere"));
  CHECK(cache == nullptr);
}

TEST_CASE("Wisdom by way of C is exported, read, imported, merged and compared as in C++", "[c][wisdom]") {
  const Machine machine;
  auto selection = made(jitgemm_wisdom_selection_init);
  CHECK(selection.kernels == 1);
  selection.cache_dir = machine.cache.c_str();
  jitgemm_wisdom* wisdom = nullptr;
  REQUIRE(jitgemm_wisdom_export(machine.file.c_str(), &selection, &wisdom) == JITGEMM_STATUS_SUCCESS);
  const Wisdom expected = read_wisdom(machine.file);
  const auto check_whole = [&](const jitgemm_wisdom* one) {
    check_same(jitgemm_wisdom_results(one), expected.results);
    auto info = made(jitgemm_wisdom_info_init);
    REQUIRE(jitgemm_wisdom_get_info(one, &info) == JITGEMM_STATUS_SUCCESS);
    CHECK(info.library == expected.library);
    CHECK((info.foreign_results == 0 && info.foreign_kernels == 0 && info.strange_kernels == 0));
    REQUIRE(info.kernels == expected.kernels.size());
    auto kernel = made(jitgemm_wisdom_kernel_init);
    for (std::size_t i = 0; i < info.kernels; ++i) {
      REQUIRE(jitgemm_wisdom_get_kernel(one, i, &kernel) == JITGEMM_STATUS_SUCCESS);
      CHECK(kernel.digest == expected.kernels[i].digest);
      CHECK(kernel.architecture == expected.kernels[i].architecture);
      CHECK((kernel.bytes == expected.kernels[i].bytes && (kernel.current != 0) == expected.kernels[i].current));
    }
    CHECK(jitgemm_wisdom_get_kernel(one, info.kernels, &kernel) == JITGEMM_STATUS_INVALID_ARGUMENT);
  };
  CHECK(result_count(jitgemm_wisdom_results(wisdom)) == 2);
  jitgemm_wisdom_destroy(wisdom);
  REQUIRE(jitgemm_wisdom_read(machine.file.c_str(), &wisdom) == JITGEMM_STATUS_SUCCESS);
  check_whole(wisdom);
  jitgemm_wisdom_destroy(wisdom);

  int rows = int(std::max(first.m, second.m));
  selection.filter = at_least;
  selection.filter_user = &rows;
  REQUIRE(jitgemm_wisdom_cached(&selection, &wisdom) == JITGEMM_STATUS_SUCCESS);
  CHECK(result_count(jitgemm_wisdom_results(wisdom)) == (first.m == second.m ? 2u : 1u));
  jitgemm_wisdom_destroy(wisdom);
  rows = -2;
  wisdom = nullptr;
  CHECK(jitgemm_wisdom_cached(&selection, &wisdom) == JITGEMM_STATUS_INTERRUPTED);
  CHECK_THAT(jitgemm_last_error_message(), ContainsSubstring("filter callback returned -2"));
  CHECK(wisdom == nullptr);
  selection.filter = nullptr;
  selection.architecture = "sm_80";
  const std::string less = machine.path("less.wisdom"), merged = machine.path("merged.wisdom");
  REQUIRE(jitgemm_wisdom_export(less.c_str(), &selection, nullptr) == JITGEMM_STATUS_SUCCESS);

  const char* const files[]{less.c_str(), machine.file.c_str()};
  REQUIRE(jitgemm_wisdom_merge(merged.c_str(), files, 2, &wisdom) == JITGEMM_STATUS_SUCCESS);
  CHECK(result_count(jitgemm_wisdom_results(wisdom)) == 2);
  jitgemm_wisdom_destroy(wisdom);

  jitgemm_wisdom_diff* diff = nullptr;
  auto differs = made(jitgemm_wisdom_diff_info_init);
  REQUIRE(jitgemm_wisdom_diff_create(machine.file.c_str(), less.c_str(), &diff) == JITGEMM_STATUS_SUCCESS);
  REQUIRE(jitgemm_wisdom_diff_get_info(diff, &differs) == JITGEMM_STATUS_SUCCESS);
  const WisdomDiff same = diff_wisdom(machine.file, less);
  CHECK((differs.same == same.same && differs.kernels_only_a == same.kernels_only_a));
  CHECK((differs.kernels_only_b == same.kernels_only_b && differs.kernels_same == same.kernels_same));
  CHECK(differs.equal == 0);
  check_same(jitgemm_wisdom_diff_only_a(diff), same.only_a);
  CHECK(result_count(jitgemm_wisdom_diff_only_a(diff)) == 1);
  check_same(jitgemm_wisdom_diff_only_b(diff), {});
  check_same(jitgemm_wisdom_diff_differ_a(diff), {});
  check_same(jitgemm_wisdom_diff_differ_b(diff), {});
  jitgemm_wisdom_diff_destroy(diff);

  auto options = made(jitgemm_wisdom_import_options_init);
  CHECK(options.kernels == 0);
  options.cache_dir = machine.other.c_str();
  jitgemm_wisdom_import* import = nullptr;
  auto taken = made(jitgemm_wisdom_import_info_init);
  for (const bool kernels : {false, true}) {
    options.kernels = kernels;
    REQUIRE(jitgemm_wisdom_import_files(files, 2, &options, &import) == JITGEMM_STATUS_SUCCESS);
    REQUIRE(jitgemm_wisdom_import_get_info(import, &taken) == JITGEMM_STATUS_SUCCESS);
    CHECK(taken.results == (kernels ? 0u : 2u));
    CHECK(taken.kernels == (kernels ? 2u : 0u));
    CHECK(taken.kernels_left_out == (kernels ? 0u : 2u));
    CHECK(taken.directory == machine.other);
    CHECK(result_count(jitgemm_wisdom_results(jitgemm_wisdom_import_wisdom(import))) == 2);
    jitgemm_wisdom_import_destroy(import);
  }
}

TEST_CASE("Pairs of wisdom that differ are at one index of both lists", "[c][wisdom]") {
  WisdomDiff of;
  TuningResult a, b;
  a.device = "a", b.device = "b";
  of.differ = {{a, b}, {b, a}};
  of.same = 1, of.kernels_only_a = 2, of.kernels_only_b = 3, of.kernels_same = 4;
  const jitgemm_wisdom_diff diff(of);
  CHECK((diff.info.same == 1 && diff.info.kernels_only_a == 2 && diff.info.kernels_only_b == 3));
  CHECK((diff.info.kernels_same == 4 && diff.info.equal == 0));
  CHECK(diff.differ_a.all.at(1).device == "b");
  CHECK(diff.differ_b.all.at(1).device == "a");
  CHECK(jitgemm_wisdom_diff(WisdomDiff{}).info.equal == 1);
}

TEST_CASE("NULL where a cache or wisdom must be is one error that names it", "[c][hostile]") {
  std::size_t n = 99;
  std::uint64_t bytes = 99;
  char text[4];
  int count = 0;
  const auto is_refused = [&](const char* word, jitgemm_status status) {
    INFO("case " << count++);
    CHECK(status == JITGEMM_STATUS_INVALID_ARGUMENT);
    CHECK_THAT(jitgemm_last_error_message(), ContainsSubstring(std::string(word) + " is NULL; "));
  };
  const TemporaryDirectory folder;
  jitgemm_cache* cache = nullptr;
  REQUIRE(jitgemm_cache_create(folder.path().c_str(), &cache) == JITGEMM_STATUS_SUCCESS);
  jitgemm_cached_kernels* kernels = nullptr;
  jitgemm_tuning_results* results = nullptr;
  jitgemm_wisdom* wisdom = nullptr;
  jitgemm_wisdom_diff* diff = nullptr;
  auto kernel = made(jitgemm_cached_kernel_init);
  is_refused("cache", jitgemm_cache_create(nullptr, nullptr));
  is_refused("cache", jitgemm_cache_directory(nullptr, text, sizeof text, &n));
  is_refused("cache", jitgemm_cache_max_bytes(nullptr, &bytes));
  is_refused("bytes", jitgemm_cache_max_bytes(cache, nullptr));
  is_refused("cache", jitgemm_cache_kernels(nullptr, &kernels));
  is_refused("kernels", jitgemm_cache_kernels(cache, nullptr));
  is_refused("cache", jitgemm_cache_verify(nullptr, &kernels));
  is_refused("cache", jitgemm_cache_tuning_results(nullptr, &results));
  is_refused("results", jitgemm_cache_tuning_results(cache, nullptr));
  is_refused("cache", jitgemm_cache_prune(nullptr, 0, &bytes));
  is_refused("cache", jitgemm_cache_clear(nullptr, &bytes));
  is_refused("cache", jitgemm_cache_export_kernels(nullptr, "/tmp", nullptr));
  is_refused("folder", jitgemm_cache_export_kernels(cache, nullptr, nullptr));
  is_refused("folder", jitgemm_cache_export_binaries(cache, nullptr, nullptr));
  is_refused("jitgemm_cache_export_info", jitgemm_cache_export_get_info(nullptr, nullptr));
  is_refused("kernels", jitgemm_cached_kernels_count(nullptr, &n));
  is_refused("kernels", jitgemm_cached_kernels_get(nullptr, 0, &kernel));
  is_refused("jitgemm_cached_kernel", jitgemm_cached_kernels_get(nullptr, 0, nullptr));
  is_refused("results", jitgemm_tuning_results_count(nullptr, &n));
  is_refused("results", jitgemm_tuning_results_get(nullptr, 0, nullptr, nullptr, nullptr));
  is_refused("results", jitgemm_tuning_results_runner_up(nullptr, 0, 0, nullptr, nullptr));
  is_refused("results", jitgemm_tuning_results_json(nullptr, 0, text, sizeof text, &n));
  is_refused("wisdom", jitgemm_wisdom_cached(nullptr, nullptr));
  is_refused("file", jitgemm_wisdom_export(nullptr, nullptr, nullptr));
  is_refused("file", jitgemm_wisdom_read(nullptr, &wisdom));
  is_refused("wisdom", jitgemm_wisdom_read("/nowhere", nullptr));
  is_refused("file", jitgemm_wisdom_merge(nullptr, nullptr, 0, nullptr));
  is_refused("from", jitgemm_wisdom_merge("/nowhere/at/all", nullptr, 1, nullptr));
  const char* const none[]{nullptr};
  is_refused("one of the files", jitgemm_wisdom_merge("/nowhere/at/all", none, 1, nullptr));
  is_refused("files", jitgemm_wisdom_import_files(nullptr, 1, nullptr, nullptr));
  is_refused("a", jitgemm_wisdom_diff_create(nullptr, "/nowhere", &diff));
  is_refused("b", jitgemm_wisdom_diff_create("/nowhere", nullptr, &diff));
  is_refused("diff", jitgemm_wisdom_diff_create("/nowhere", "/nowhere", nullptr));
  CHECK(jitgemm_wisdom_import_files(none, SIZE_MAX, nullptr, nullptr) == JITGEMM_STATUS_INVALID_ARGUMENT);
  CHECK_THAT(jitgemm_last_error_message(), ContainsSubstring("count is 18446744073709551615"));
  CHECK(jitgemm_wisdom_results(nullptr) == nullptr);
  CHECK(jitgemm_wisdom_import_wisdom(nullptr) == nullptr);
  for (const auto list : {jitgemm_wisdom_diff_only_a, jitgemm_wisdom_diff_only_b, jitgemm_wisdom_diff_differ_a,
                          jitgemm_wisdom_diff_differ_b})
    CHECK(list(nullptr) == nullptr);
  jitgemm_cache_destroy(nullptr);
  jitgemm_cached_kernels_destroy(nullptr);
  jitgemm_tuning_results_destroy(nullptr);
  jitgemm_cache_export_destroy(nullptr);
  jitgemm_wisdom_destroy(nullptr);
  jitgemm_wisdom_import_destroy(nullptr);
  jitgemm_wisdom_diff_destroy(nullptr);
  CHECK((n == 99 && bytes == 99));
  CHECK((!kernels && !results && !wisdom && !diff));
  jitgemm_cache_destroy(cache);

  auto selection = made(jitgemm_wisdom_selection_init);
  selection.reserved_word = 1;
  CHECK(jitgemm_wisdom_cached(&selection, &wisdom) == JITGEMM_STATUS_INVALID_ARGUMENT);
  auto options = made(jitgemm_wisdom_import_options_init);
  options.size = 3;
  CHECK(jitgemm_wisdom_import_files(none, 0, &options, nullptr) == JITGEMM_STATUS_INVALID_ARGUMENT);
  CHECK_THAT(jitgemm_last_error_message(), ContainsSubstring("jitgemm_wisdom_import_options_init()"));
}
