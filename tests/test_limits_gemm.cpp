// Sizes, leading dimensions, strides and batches at the limits that are documented, and one past them: on memory that
// takes space only where it is written, of which the emulator runs the thread blocks that meet the limit.
#include <iomanip>
#include <iostream>
#include <map>
#include <new>

#include "catch.hpp"
#include "core/element.hpp"
#include "core/operand_matrix.hpp"
#include "core/operands.hpp"
#include "core/problem.hpp"
#include "cuda_fixtures.hpp"
#include "errors.hpp"
#include "gemm_cases.hpp"
#include "jit/call.hpp"
#include "kernels/launch_shape.hpp"
#include "kernels/legality.hpp"
#include "sample_configs.hpp"
#include "sparse_memory.hpp"

using namespace jitgemm;
using namespace jitgemm::test;

namespace {

constexpr std::int64_t two_31 = std::int64_t(1) << 31, two_40 = std::int64_t(1) << 40, two_50 = std::int64_t(1) << 50;
constexpr Layout rows = Layout::row_major, columns = Layout::column_major;

/// One GEMM of which some CTAs run, of constant operands: A and B are `a` and `b` wherever these CTAs look, D
/// must be what follows wherever they write.
class Edge {
 public:
  Edge(const Problem& asked, const KernelConfig& config) : p(normalise(asked)), config_(config) {
    const auto room = [](const OperandMatrix& matrix) {
      return std::make_unique<SparseMemory>(std::size_t(matrix.batch_bytes()));
    };
    a_ = room(matrix_a(p));
    b_ = room(matrix_b(p));
    c_ = std::make_unique<SparseMemory>(reads_c(p) ? std::size_t(matrix_c(p).batch_bytes()) : 0);
    d_ = room(matrix_d(p));
    bias_ = std::make_unique<SparseMemory>(std::size_t(bias_elements(p)) * size_of(p.d.type));
    d_->set_guard();
    operands_ = {.a = a_->get(), .b = b_->get(), .c = c_->get(), .d = d_->get(), .bias = bias_->get()};
    p = with_operands(p, operands_);
    shape = launch_shape(p, config);
  }

  static void set(const SparseMemory& memory, std::int64_t element, double value, DataType type) {
    store_element(value, memory.get(), element, type);
  }
  void set_a(std::int64_t batch, std::int64_t row, std::int64_t k, double x) {
    set(*a_, batch * p.a.stride + (p.a.layout == rows ? row * p.a.ld + k : k * p.a.ld + row), x, p.a.type);
  }
  void set_b(std::int64_t batch, std::int64_t k, std::int64_t column, double x) {
    set(*b_, batch * p.b.stride + (p.b.layout == rows ? k * p.b.ld + column : column * p.b.ld + k), x, p.b.type);
  }
  void set_c(std::int64_t row, std::int64_t column, double x) { set(*c_, row * p.c.ld + column, x, p.d.type); }
  double d(std::int64_t batch, std::int64_t row, std::int64_t column) const {
    return load_element(d_->get(), batch * p.d.stride + row * p.d.ld + column, p.d.type);
  }
  bool writes_beside() const { return !d_->guard_is_whole(); }

  /// Empty CTAs: all.
  void run(const std::vector<std::uint32_t>& ctas) {
    INFO(to_string(p) << "; " << to_string(config_));
    const auto device = make_emulator_backend({.architecture = "sm_90a"})->device();
    REQUIRE(why_illegal(config_, p, device) == "");
    workspace_ = std::make_unique<SparseMemory>(shape.workspace_bytes() + 256);
    counters_.assign(std::size_t(shape.counters), 0);
    const auto backend = make_emulator_backend({.architecture = "sm_90a", .ctas = ctas});
    KernelCache cache({.directory = *GemmDevice::emulator().cache_dir});
    KernelStore store(*backend, cache);
    for_each_step(
        make_ready(store, p, config_, backend->device()), p, operands_, {workspace_->get(), counters_.data()},
        [&](const TensorMapSpec& spec) { return backend->encode_tensor_map(spec); },
        [&](const Step& step) { launch(*backend, step, nullptr); });
    CHECK_FALSE(writes_beside());
  }
  std::uint32_t last_cta() const { return std::uint32_t(shape.decomposition.ctas - 1); }
  const char* workspace() const { return workspace_->get(); }

  NormalProblem p;
  LaunchShape shape;

 private:
  KernelConfig config_;
  std::unique_ptr<SparseMemory> a_, b_, c_, d_, bias_, workspace_;
  std::vector<unsigned> counters_;
  Operands operands_;
};

/// Runs `test`, or says why this machine cannot: sparse memory is still address space.
template <typename Test>
void with_address_space(Test&& test) {
  try {
    test();
  } catch (const std::bad_alloc&) {
    SKIP("the system does not give that much address space without memory");
  }
}

constexpr KernelConfig small_sm80(int element) {
  return {.main_loop = MainLoop::sm80,
          .block_m = 32,
          .block_n = 32,
          .block_k = 64 / element,
          .group_m = 1,
          .stages = 2,
          .warps = 2};
}
constexpr KernelConfig small_sm90(int element, int block_m = 64, int warps = 4) {
  return {.main_loop = MainLoop::sm90,
          .block_m = block_m,
          .block_n = 16,
          .block_k = 128 / element,
          .group_m = 1,
          .stages = 2,
          .warps = warps};
}
KernelConfig swapped(KernelConfig config) {
  config.swap_ab = true;
  return config;
}
KernelConfig clustered(KernelConfig config, int m, int n) {
  config.cluster_m = m;
  config.cluster_n = n;
  return config;
}

/// The last rows of a long D, or the last columns of a wide one, of ones times twos.
void check_last_tiles(Problem problem, const KernelConfig& config) {
  with_address_space([&] {
    Edge edge(problem, config);
    const bool is_long = problem.m > problem.n;
    const std::int64_t extent = std::max(problem.m, problem.n), from = extent - 96,
                       other = std::min(problem.m, problem.n);
    for (std::int64_t k = 0; k < problem.k; ++k) {
      for (std::int64_t i = from; i < extent; ++i) is_long ? edge.set_a(0, i, k, 1) : edge.set_b(0, k, i, 2);
      for (std::int64_t j = 0; j < other; ++j) is_long ? edge.set_b(0, k, j, 2) : edge.set_a(0, j, k, 1);
    }
    if (problem.beta != 0)
      for (std::int64_t i = from; i < extent; ++i)
        for (std::int64_t j = 0; j < other; ++j) is_long ? edge.set_c(i, j, 4) : edge.set_c(j, i, 4);
    edge.run({edge.last_cta() - 1, edge.last_cta()});
    const double expected = double(problem.k) * 2 + problem.beta * 4;
    int wrong = 0;
    for (std::int64_t i = extent - 16; i < extent; ++i)
      for (std::int64_t j = 0; j < other; ++j) wrong += (is_long ? edge.d(0, i, j) : edge.d(0, j, i)) != expected;
    CHECK(wrong == 0);
  });
}

}  // namespace

TEST_CASE("The last rows and columns of m and n = 2^31 - 16 and 2^31 - 1 are right, and nothing is written behind them",
          "[limits][emulator]") {
  const std::int64_t extent = GENERATE(two_31 - 16, two_31 - 1);
  CAPTURE(extent);
  SECTION("the portable loop, rows") {
    check_last_tiles({.m = extent, .n = 16, .k = 1, .a = {e5m2}, .b = {e5m2}, .d = {e5m2}}, small_sm80(1));
  }
  SECTION("the portable loop, columns") {
    check_last_tiles({.m = 32, .n = extent, .k = 1, .a = {e5m2}, .b = {.type = e5m2, .layout = columns}, .d = {e5m2}},
                     small_sm80(1));
  }
  SECTION("the portable loop, C and A column-major") {
    check_last_tiles(
        {.m = extent, .n = 32, .k = 2, .a = {.layout = columns}, .beta = 0.5, .epilogue = {.bias = Bias::along_m}},
        small_sm80(2));
  }
  const Problem k_major{.k = 16, .a = {e5m2}, .b = {.type = e5m2, .layout = columns}, .d = {e5m2}};
  SECTION("the Hopper loop, rows, stored by TMA") {
    Problem problem = k_major;
    problem.m = extent, problem.n = 16;
    check_last_tiles(problem, small_sm90(1));
    check_last_tiles(problem, clustered(small_sm90(1), 2, 1));
    check_last_tiles(problem, small_sm90(1, 256, 8));
  }
  SECTION("the Hopper loop, rows, stored by threads and with C") {
    Problem problem = k_major;
    problem.m = extent, problem.n = 16, problem.d.ld = 17;
    check_last_tiles(problem, small_sm90(1));
    problem.d.ld = 0, problem.d.type = f16, problem.beta = 1;
    check_last_tiles(problem, small_sm90(1));
  }
  SECTION("the Hopper loop, 16-bit rows that TMA does not store") {
    check_last_tiles({.m = extent, .n = 15, .k = 8, .b = {.layout = columns}, .d = {.ld = 15}}, small_sm90(2));
  }
  SECTION("the Hopper loop, columns, plain and swapped") {
    Problem problem = k_major;
    problem.m = 16, problem.n = extent;
    check_last_tiles(problem, small_sm90(1));
    check_last_tiles(problem, swapped(small_sm90(1)));
    problem.d.ld = extent + 1;
    check_last_tiles(problem, swapped(small_sm90(1)));
    check_last_tiles(problem, clustered(small_sm90(1), 1, 4));
  }
  SECTION("tiles that reach beyond 2^31 are not legal") {
    const DeviceInfo device = device_info_for("sm_90a");
    Problem problem = k_major;
    problem.m = extent, problem.n = 16;
    const char* const rule = "tiles end at row and column 2^31 at most";
    CHECK(why_illegal(small_sm90(1, 192, 12), normalise(problem), device) == rule);
    problem.m = 16, problem.n = extent;
    KernelConfig wide = small_sm90(1);
    wide.block_n = 48;
    CHECK(why_illegal(wide, normalise(problem), device) == rule);
    problem.n = two_31 - two_31 % 48;
    CHECK(why_illegal(wide, normalise(problem), device) == "");
    problem.n += 1;
    CHECK(why_illegal(wide, normalise(problem), device) == rule);
  }
}

TEST_CASE("The last k-blocks of k = 2^31 - 1 and their place among the peers are right", "[limits][emulator]") {
  const bool hopper = GENERATE(false, true);
  with_address_space([&] {
    const KernelConfig config = with_schedule(hopper ? small_sm90(1) : small_sm80(1), Schedule::stream_k, 1, 65535);
    Problem problem{.m = 1, .n = 1, .k = two_31 - 1, .a = {s8}, .b = {.type = s8, .layout = columns}, .d = {s32}};
    problem.a.ld = problem.b.ld = two_31;  // a multiple of 16 bytes, of which one row exists
    Edge edge(problem, config);
    constexpr int ones = 1000;
    for (std::int64_t k = problem.k - ones; k < problem.k; ++k) edge.set_a(0, 0, k, 1), edge.set_b(0, k, 0, 1);
    edge.set_a(0, 0, 0, 3), edge.set_b(0, 0, 0, 5);
    edge.run({0, edge.last_cta()});
    const auto sum_of = [&](std::int64_t cta) {  // its slot: it begins and ends in the one tile
      const auto tile = std::int64_t(config.block_m) * config.block_n;
      std::int64_t sum = 0;
      for (std::int64_t i = 0; i < tile; ++i)
        sum += reinterpret_cast<const int*>(edge.workspace())
            [device::slot_of<device::Partition::stream_k>(edge.shape.decomposition, 0, int(cta)) * tile + i];
      return sum;
    };
    CHECK(sum_of(0) == 15);
    CHECK(sum_of(edge.last_cta()) == ones);
  });
}

TEST_CASE("The last of 2^30 - 1 matrices is right", "[limits][emulator]") {
  const std::int64_t batch = (std::int64_t(1) << 30) - 1;
  const auto check = [&](const Problem& problem, const KernelConfig& config) {
    with_address_space([&] {
      Edge edge(problem, config);
      for (std::int64_t k = 0; k < problem.k; ++k) edge.set_a(batch - 1, 0, k, 3), edge.set_b(batch - 1, k, 0, 5);
      edge.run({edge.last_cta()});
      CHECK(edge.d(batch - 1, 0, 0) == 15.0 * double(problem.k));
      CHECK(edge.d(batch - 2, 0, 0) == 0);
    });
  };
  check({.m = 1, .n = 1, .k = 1, .batch = batch}, small_sm80(2));
  check({.m = 1, .n = 1, .k = 8, .batch = batch, .b = {.layout = columns}}, small_sm90(2));
  check({.m = 1, .n = 8, .k = 8, .batch = batch, .b = {.layout = columns}}, swapped(small_sm90(2)));
}

TEST_CASE("Rows and matrices a TiB and more apart are right where they are legal", "[limits][emulator]") {
  KernelConfig packing = small_sm90(2);
  packing.pack_a = packing.pack_b = true;
  const auto check = [&](const Problem& problem, const KernelConfig& config) {
    with_address_space([&] {
      Edge edge(problem, config);
      for (std::int64_t i = 0; i < problem.batch; ++i) {
        for (std::int64_t k = 0; k < problem.k; ++k) {
          for (std::int64_t row = 0; row < problem.m; ++row) edge.set_a(i, row, k, 1 + double(row));
          for (std::int64_t column = 0; column < problem.n; ++column) edge.set_b(i, k, column, 2 + double(i));
        }
      }
      edge.run({});
      int wrong = 0;
      for (std::int64_t i = 0; i < problem.batch; ++i)
        for (std::int64_t row = 0; row < problem.m; ++row)
          for (std::int64_t column = 0; column < problem.n; ++column)
            wrong += edge.d(i, row, column) != double(problem.k) * double(1 + row) * double(2 + i);
      CHECK(wrong == 0);
    });
  };
  const Problem small{.m = 3, .n = 8, .k = 8, .b = {.layout = columns}};
  const DeviceInfo device = device_info_for("sm_90a");
  for (const std::int64_t apart : {two_40 / 2 - 8, two_40 / 2, two_40 * 4}) {  // f16: bytes are twice that
    Problem rows_of_a = small, rows_of_d = small, matrices = small;
    rows_of_a.a.ld = apart;
    rows_of_d.d.ld = apart;
    matrices.batch = 2;
    matrices.a.stride = matrices.b.stride = matrices.d.stride = apart;
    for (const Problem& problem : {rows_of_a, rows_of_d, matrices}) {
      check(problem, small_sm80(2));
      const std::string why = why_illegal(small_sm90(2), normalise(problem), device);
      if (apart * 2 < two_40) {
        CHECK(why == "");
        check(problem, small_sm90(2));
      } else {
        CHECK(why == "rows and matrices that TMA copies are less than 2^40 bytes apart");
        if (problem.d.ld == 0 && problem.batch == 1) check(problem, packing);
      }
    }
  }
  // Of one row the leading dimension means nothing, whatever it is.
  Problem one = small;
  one.m = 1, one.a.ld = one.d.ld = two_50 / 2;
  CHECK(why_illegal(small_sm90(2), normalise(one), device) == "");
  check(one, small_sm90(2));
  check(one, small_sm80(2));
}

TEST_CASE("On the GPU, m = 2^31 - 16 is right to the last row, and nothing is written behind it", "[gpu][limits]") {
  if (cuda_devices().empty()) SKIP(no_gpu);
  const auto backend = make_cuda_backend();
  if (backend->device().compute_capability < 89) SKIP("e5m2 needs sm_89");
  const std::int64_t m = two_31 - 16, n = 16;
  constexpr std::size_t guard_bytes = 1 << 20;
  struct Memory {
    Memory(Backend& its, std::size_t bytes) : backend(its), memory(its.allocate(bytes)) {}
    ~Memory() { backend.release(memory); }
    Backend& backend;
    void* memory;
  };
  std::unique_ptr<Memory> a, b, d;
  try {
    d = std::make_unique<Memory>(*backend, std::size_t(m * n) + guard_bytes);
    a = std::make_unique<Memory>(*backend, std::size_t(m * n));
    b = std::make_unique<Memory>(*backend, std::size_t(n * n));
  } catch (const Error& error) {
    if (error.code() != ErrorCode::out_of_memory) throw;
    SKIP("A and D take 34 GB each, of " + std::to_string(backend->device().memory_bytes >> 30) + " GiB");
  }
  // Of ones and twos, rows of k = 1 or, for the Hopper loop, 16.
  std::string ones(1 << 20, '\x3c'), twos(std::size_t(n * n), '\x40'), guard(guard_bytes, '\x5a'), seen(guard_bytes, 0);
  for (std::int64_t at = 0; at < m * n; at += std::int64_t(ones.size()))
    backend->copy_to_device(static_cast<char*>(a->memory) + at, ones.data(),
                            std::size_t(std::min<std::int64_t>(m * n - at, 1 << 20)));
  backend->copy_to_device(b->memory, twos.data(), twos.size());
  const TemporaryDirectory cache;
  Context context(options_in(cache));
  char* const end = static_cast<char*>(d->memory) + m * n;
  const auto check = [&](const Problem& problem, const KernelConfig& config) {
    INFO(to_string(config));
    backend->zero(end - guard_bytes, guard_bytes);
    backend->copy_to_device(end, guard.data(), guard_bytes);
    context.gemm(problem, {.a = a->memory, .b = b->memory, .d = d->memory}, nullptr, config);
    backend->synchronize(nullptr);
    backend->copy_to_host(seen.data(), end, guard_bytes);
    CHECK(seen == guard);
    backend->copy_to_host(seen.data(), end - guard_bytes, guard_bytes);
    std::string expected(1, '\0');
    store_element(2.0 * double(problem.k), expected.data(), 0, e5m2);
    CHECK(seen == std::string(guard_bytes, expected[0]));
  };
  const Problem thin{.m = m, .n = n, .k = 1, .a = {e5m2}, .b = {.type = e5m2, .layout = columns}, .d = {e5m2}};
  check(thin, small_sm80(1));
  if (!backend->device().has_wgmma()) return;
  Problem k_major = thin;
  k_major.k = 16;
  check(k_major, small_sm90(1));
  check(k_major, small_sm90(1, 256, 8));
  check(k_major, clustered(small_sm90(1), 2, 1));
}
