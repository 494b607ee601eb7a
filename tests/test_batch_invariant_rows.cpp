// The same row of A gives the same row of D, whatever M, its place, and how many SMs calls may use.
#include <algorithm>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "backend/backend.hpp"
#include "catch.hpp"
#include "context_internals.hpp"
#include "core/problem.hpp"
#include "jitgemm/error.hpp"
#include "jitgemm/jitgemm.hpp"
#include "plan/ranking.hpp"
#include "random.hpp"
#include "reference.hpp"
#include "sandbox.hpp"

using namespace jitgemm;
using namespace jitgemm::test;

namespace {

struct Rows {
  std::vector<std::int64_t> m;
  std::int64_t n, k;
  std::vector<int> sms;  // limits; 0: none
};

/// Device memory with these bytes, freed with it.
class Bytes {
 public:
  Bytes(Backend& backend, const std::string& bytes) : backend_(backend), data_(backend.allocate(bytes.size())) {
    backend.copy_to_device(data_, bytes.data(), bytes.size());
  }
  ~Bytes() { backend_.release(data_); }
  Bytes(const Bytes&) = delete;
  Bytes& operator=(const Bytes&) = delete;
  void* data() const { return data_; }

 private:
  Backend& backend_;
  void* data_;
};

std::string random_elements(Random& random, std::int64_t count, DataType type) {
  std::string bytes(std::size_t(count) * size_of(type), '\0');
  for (std::int64_t i = 0; i < count; ++i) store(2 * random.uniform() - 1, bytes.data(), i, type);
  return bytes;
}

/// All rows of D that one row of A became, each once.
std::map<std::string, std::string> rows_of(const ContextOptions& base, const Problem& kind, const Rows& rows) {
  Random random(test_seed());
  const std::string row = random_elements(random, rows.k, kind.a.type);
  const std::string b = random_elements(random, rows.k * rows.n, kind.b.type);
  std::map<std::string, std::string> found;
  for (const Tuning tuning : {Tuning::off, Tuning::on}) {
    for (const int sms : rows.sms) {
      ContextOptions options = base;
      options.tuning = tuning;
      options.tuning_budget_seconds = 0.05;
      options.constraints = {.batch_invariant = true, .sms = sms};
      Context context(options);
      Backend& backend = ContextInternals::backend(context);
      const Bytes b_memory(backend, b);
      for (const std::int64_t m : rows.m) {
        if (tuning == Tuning::on && (backend.device().emulated || m > 300)) continue;
        Problem p = kind;
        p.m = m, p.n = rows.n, p.k = rows.k;
        const std::string others = random_elements(random, m * p.k, p.a.type);
        for (const std::int64_t at : {std::int64_t{0}, m / 2, m - 1}) {
          std::string a = others;
          a.replace(std::size_t(at) * row.size(), row.size(), row);
          const std::size_t row_bytes = std::size_t(p.n) * size_of(normalise(p).d.type);
          std::string d(row_bytes * std::size_t(m), '\xff');
          const Bytes a_memory(backend, a), d_memory(backend, d);
          context.gemm(p, {.a = a_memory.data(), .b = b_memory.data(), .d = d_memory.data()});
          backend.synchronize(nullptr);
          backend.copy_to_host(d.data(), d_memory.data(), d.size());
          found.try_emplace(d.substr(std::size_t(at) * row_bytes, row_bytes),
                            "m=" + std::to_string(m) + " row " + std::to_string(at) + " sms=" + std::to_string(sms) +
                                " " + to_string(context.plan(p).config));
        }
      }
    }
  }
  return found;
}

std::vector<Problem> kinds(bool has_fp8) {
  std::vector<Problem> all{{.a = {bf16}, .b = {.type = bf16, .layout = Layout::column_major}, .d = {bf16}},
                           {.a = {bf16}, .b = {bf16}, .d = {f32}}};
  if (!has_fp8) return all;
  Problem fp8{.a = {e4m3}, .b = {.type = e4m3, .layout = Layout::column_major}, .d = {bf16}};
  all.push_back(fp8);
  fp8.accumulation = Accumulation::promoted;
  all.push_back(fp8);
  return all;
}

void check_rows(const ContextOptions& options, const Rows& rows, bool has_fp8) {
  INFO("JITGEMM_TEST_SEED=" << test_seed());
  for (const Problem& kind : kinds(has_fp8)) {
    const auto found = rows_of(options, kind, rows);
    std::string who;
    for (const auto& [bits, first] : found) who += first + "\n";
    CAPTURE(to_string(kind), who);
    CHECK(found.size() == 1);
  }
}

}  // namespace

TEST_CASE("A row's bits do not depend on M, on its place or on the SMs, on the emulator", "[constraints][emulator]") {
  const TemporaryDirectory cache;
  ContextOptions options;
  options.device = Device::emulator;
  options.cache_dir = cache.path().string();
  check_rows(options, {{1, 2, 17, 33, 64, 129}, 48, 272, {0, 1}}, true);
  options.architecture = "sm_80";
  check_rows(options, {{1, 17, 65}, 48, 272, {0, 1}}, false);
}

TEST_CASE("A row's bits do not depend on M, on its place, on tuning or on the SMs, on a GPU", "[constraints][gpu]") {
  if (cuda_devices().empty()) SKIP("no CUDA device");
  const TemporaryDirectory cache;
  ContextOptions options;
  options.cache_dir = cache.path().string();
  const bool has_fp8 = Context(options).device().architecture != "sm_80";
  check_rows(options, {{1, 2, 17, 33, 64, 128, 257, 1024, 4096}, 576, 1536, {0, 4, 132}}, has_fp8);
}

TEST_CASE("The main loop of batch-invariant choices follows from N, K, types and alignments, not from M",
          "[constraints]") {
  const RatedDevice h200(device_info_for("sm_90a"));
  Random random(test_seed());
  INFO("JITGEMM_TEST_SEED=" << test_seed());
  int varied = 0;
  for (int i = 0; i < 60; ++i) {
    Problem p = kinds(true)[std::size_t(random.between(0, 3))];
    const int step = 16 / int(size_of(p.a.type));
    p.n = random.between(1, 600) * step;
    p.k = random.between(1, 1200) * step;
    std::map<MainLoop, std::int64_t> loops;
    for (const std::int64_t m : {1, 2, 17, 33, 64, 128, 257, 1024, 4096, 60000}) {
      p.m = m;
      for (const int sms : {0, 4, 132}) {
        const NormalProblem problem = normalise(p);
        const KernelConfig config = rank(problem, h200, 1, {.batch_invariant = true, .sms = sms}).at(0).config;
        loops.try_emplace(config.main_loop, m);
        CHECK(config.cluster_k == 1);
        CHECK(config.splits == 1);
        ++varied;
      }
    }
    CAPTURE(to_string(p));
    CHECK(loops.size() == 1);
  }
  CHECK(varied == 60 * 30);
}
