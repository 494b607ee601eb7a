#include <cmath>
#include <cstring>
#include <limits>

#include "catch.hpp"
#include "core/data_types.hpp"
#include "core/element.hpp"
#include "errors.hpp"
#include "random.hpp"
#include "test_emulator.hpp"

using namespace jitgemm;
using namespace jitgemm::test;
using Catch::Matchers::ContainsSubstring;

namespace {

// One 64 x 128 tile of D in f32: a warp loads by TMA, a warpgroup multiplies and stores by TMA. Bits 0 and 1 of
// Arguments::m say that A lies M-major and B N-major, bit 2 that they are bf16. n tells what is left out or wrong.
const char* const body = R"(
enum Omit {
  init_fence = 1, init_barrier = 2, empty_wait = 4, too_few_bytes = 8, too_many_bytes = 16, full_wait = 32,
  accumulator_fence = 64, commit = 128, early_release = 256, proxy_fence = 512, staged_barrier = 1024,
  reuse_wait = 2048, last_wait = 4096, early_read = 8192, wrong_parity = 16384, one_warp_skips = 32768,
  early_write = 65536,
};
constexpr u32 A_BYTES = 64 * 128, STAGE = 3 * A_BYTES, D_BYTES = 64 * 128;

__device__ u64 descriptor(u32 address) {
  return 1ull << 62 | u64(1024 / 16) << 32 | u64(64 * 128 / 16) << 16 | address >> 4;
}

template <bool M_MAJOR, bool N_MAJOR, class Element>
__device__ void multiply(const Arguments& p) {
  const int omit = p.n;
  const u32 t = thread_index(), smem = (dynamic_smem() + 1023) / 1024 * 1024, staged = smem + 2 * STAGE;
  const u32 full = staged + D_BYTES, empty = full + 16;
  const int steps = (p.k + 63) / 64, column = 0;
  if (t == 0) {
    for (int s = 0; s < 2; ++s) {
      mbarrier_init(full + 8 * s, 1);
      mbarrier_init(empty + 8 * s, 4);
    }
    if (!(omit & init_fence)) fence_mbarrier_init();
  }
  if (!(omit & init_barrier)) bar_sync(0, 160);

  if (t >= 128) {
    if (t > 128) return;
    for (int k = 0; k < steps; ++k) {
      const u32 s = k % 2, stage = smem + s * STAGE, bytes = (omit & too_few_bytes) ? A_BYTES : STAGE;
      if (!(omit & empty_wait)) mbarrier_wait_parity(empty + 8 * s, k / 2 % 2 ^ ((omit & wrong_parity) ? 0 : 1));
      mbarrier_arrive_expect_tx(full + 8 * s, (omit & too_many_bytes) ? STAGE + 16 : bytes);
      if (M_MAJOR)
        tma_load_3d(stage, &p.map_a, full + 8 * s, 0, k * 64, 0);
      else
        tma_load_3d(stage, &p.map_a, full + 8 * s, k * 64, 0, 0);
      if (N_MAJOR) {
        tma_load_3d(stage + A_BYTES, &p.map_b, full + 8 * s, 0, k * 64, 0);
        tma_load_3d(stage + 2 * A_BYTES, &p.map_b, full + 8 * s, 64, k * 64, 0);
      } else {
        tma_load_3d(stage + A_BYTES, &p.map_b, full + 8 * s, k * 64, 0, 0);
      }
    }
    return;
  }

  const u32 warp = t / 32, lane = t % 32;
  float d[64];
  for (int k = 0; k < steps; ++k) {
    const u32 s = k % 2, stage = smem + s * STAGE;
    if (!(omit & full_wait)) mbarrier_wait_parity(full + 8 * s, k / 2 % 2);
    if (!(omit & accumulator_fence)) wgmma_fence();
    for (int k16 = 0; k16 < 4; ++k16)
      wgmma<Element, Element, M_MAJOR, N_MAJOR>(d, descriptor(stage + k16 * (M_MAJOR ? 2048 : 32)),
                                         descriptor(stage + A_BYTES + k16 * (N_MAJOR ? 2048 : 32)), k > 0 || k16 > 0);
    if (!(omit & commit)) wgmma_commit_group();
    if ((omit & early_write) && t == 77) d[3] = 1;
    if ((omit & early_release) && lane == 0) mbarrier_arrive(empty + 8 * s);
    if (!((omit & early_read) && k + 1 == steps) && !((omit & one_warp_skips) && warp == 2)) wgmma_wait_group<0>();
    if (!(omit & early_release) && lane == 0) mbarrier_arrive(empty + 8 * s);
  }

  for (int box = 0; box < 4; ++box) {
    if (t == 0 && !(omit & reuse_wait)) tma_store_wait_group_read<0>();
    bar_sync(1, 128);
    for (int j = 0; j < 4; ++j)
      for (int h = 0; h < 2; ++h) {
        const u32 row = warp * 16 + lane / 4 + h * 8, chunk = j * 2 + lane % 4 / 2;
        const float* pair = d + (box * 4 + j) * 4 + h * 2;
        st_shared_v2(staged + row * 128 + (chunk ^ row % 8) * 16 + lane % 2 * 8, __builtin_bit_cast(u32, pair[0]),
                     __builtin_bit_cast(u32, pair[1]));
      }
    if (!(omit & proxy_fence)) fence_proxy_async();
    if (!(omit & staged_barrier)) bar_sync(1, 128);
    if (t == 0) {
      tma_store_3d(&p.map_d, staged, box * 32, 0, 0);
      tma_store_commit_group();
    }
  }
  if (t == 0 && !(omit & last_wait)) tma_store_wait_group_read<0>();
}

// Copies a box of A of n rows of k bytes at (lda, ldb, ldc) to one of D at (ldd, stride_a, stride_b).
__device__ void copy_box(const Arguments& p) {
  const u32 smem = (dynamic_smem() + 1023) / 1024 * 1024, barrier = smem + p.n * p.k;
  if (thread_index() == 0) {
    mbarrier_init(barrier, 1);
    fence_mbarrier_init();
    mbarrier_arrive_expect_tx(barrier, p.n * p.k);
    tma_load_3d(smem, &p.map_a, barrier, p.lda, p.ldb, p.ldc);
    mbarrier_wait_parity(barrier, 0);
    for (u32 i = 0; p.d && i < p.n * p.k; i += 4) static_cast<u32*>(p.d)[i / 4] = ld_shared_u32(smem + i);
    tma_store_3d(&p.map_d, smem, p.ldd, p.stride_a, p.stride_b);
    tma_store_commit_group();
    tma_store_wait_group_read<0>();
  }
}

__device__ void run(const Arguments& p) {
  void (*const kernels[])(const Arguments&) = {
      multiply<false, false, F16>, multiply<true, false, F16>,   multiply<false, true, F16>,
      multiply<true, true, F16>,   multiply<false, false, BF16>, multiply<true, true, BF16>, copy_box};
  kernels[p.m](p);
}
)";

enum Omit {
  init_fence = 1,
  init_barrier = 2,
  empty_wait = 4,
  too_few_bytes = 8,
  too_many_bytes = 16,
  full_wait = 32,
  accumulator_fence = 64,
  commit = 128,
  early_release = 256,
  proxy_fence = 512,
  staged_barrier = 1024,
  reuse_wait = 2048,
  last_wait = 4096,
  early_read = 8192,
  wrong_parity = 16384,
  one_warp_skips = 32768,
  early_write = 65536,
};

/// m x n of the tile exist, so that TMA clips.
struct Fixture {
  static constexpr int m = 61, n = 100, k = 232;  // rows of 16-byte multiples whatever the layout
  static constexpr int ld_m = 64, ld_n = 104;

  EmulatorKernel kernel{body};
  std::unique_ptr<Backend> backend = make_emulator_backend({});
  std::vector<std::uint16_t> a, b;
  std::vector<float> d;

  std::string run(int variant, int omit, const EmulatorOptions& options) {
    const bool m_major = variant == 1 || variant == 3 || variant == 5,
               n_major = variant == 2 || variant == 3 || variant == 5;
    const DataType type = variant >= 4 ? bf16 : f16;
    a.resize(m_major ? k * ld_m : m * k);
    b.resize(n_major ? k * ld_n : n * k);
    backend->fill_random(a.data(), std::int64_t(a.size()), type, 1);
    backend->fill_random(b.data(), std::int64_t(b.size()), type, 2);
    d.assign(64 * 128, NAN);
    device::Arguments p{};
    p.m = variant;
    p.n = omit;
    p.k = k;
    const auto map = [&](const void* address, std::int64_t inner, std::int64_t outer, std::int64_t stride,
                         int box_outer) {
      return backend->encode_tensor_map({address, type, inner, outer, 1, stride, 0, 64, box_outer});
    };
    p.map_a = m_major ? map(a.data(), m, k, ld_m, 64) : map(a.data(), k, m, k, 64);
    p.map_b = n_major ? map(b.data(), n, k, ld_n, 64) : map(b.data(), k, n, k, 128);
    p.map_d = backend->encode_tensor_map({d.data(), f32, n, m, 1, 128, 0, 32, 64});
    return kernel.run(options, {1, 160, 2 * 3 * 8192 + 8192 + 32 + 1024}, p);
  }

  /// What is wrong with d, empty if nothing is.
  std::string error(int variant) const {
    const bool m_major = variant == 1 || variant == 3 || variant == 5,
               n_major = variant == 2 || variant == 3 || variant == 5;
    const DataType type = variant >= 4 ? bf16 : f16;
    for (int i = 0; i < 64; ++i)
      for (int j = 0; j < 128; ++j) {
        const float value = d[i * 128 + j];
        if (i >= m || j >= n) {
          if (!std::isnan(value)) return "written out of bounds";
          continue;
        }
        double sum = 0, magnitude = 0;
        for (int x = 0; x < k; ++x) {
          const double product = load_element(a.data(), m_major ? x * ld_m + i : i * k + x, type) *
                                 load_element(b.data(), n_major ? x * ld_n + j : j * k + x, type);
          sum += product;
          magnitude += std::abs(product);
        }
        if (!(std::abs(value - sum) <= magnitude * k * 0x1p-24))
          return "wrong at " + std::to_string(i) + ", " + std::to_string(j);
      }
    return "";
  }
};

}  // namespace

TEST_CASE("The emulator multiplies with TMA and wgmma in every operand layout and type", "[emulator]") {
  Fixture f;
  for (int variant = 0; variant < 6; ++variant) {
    INFO("variant " << variant);
    REQUIRE(f.run(variant, 0, {}) == "");
    REQUIRE(f.error(variant) == "");
  }
}

TEST_CASE("The emulator runs a synchronised TMA and wgmma kernel under every adversary, with the same bits",
          "[emulator]") {
  Fixture f;
  REQUIRE(f.run(0, 0, {}) == "");
  const std::vector<float> expected = f.d;
  for (const EmulatorOptions& options : adversaries(50)) {
    INFO("seed " << options.seed << ", asynchrony " << int(options.asynchrony));
    REQUIRE(f.run(0, 0, options) == "");
    REQUIRE(std::memcmp(f.d.data(), expected.data(), expected.size() * sizeof(float)) == 0);
  }
}

TEST_CASE("The emulator finds a missing fence, wait or barrier around TMA and wgmma under every adversary",
          "[emulator]") {
  Fixture f;
  for (const EmulatorOptions& options : adversaries(4)) {
    INFO("seed " << options.seed << ", asynchrony " << int(options.asynchrony));
    CHECK_THAT(f.run(0, init_fence, options), ContainsSubstring("without a fence_mbarrier_init"));
    CHECK_THAT(f.run(0, init_barrier, options), ContainsSubstring("mbarrier"));
    CHECK_THAT(f.run(0, empty_wait, options),
               ContainsSubstring("race: tma_load_3d") || ContainsSubstring("all 1 threads have arrived"));
    CHECK_THAT(f.run(0, too_few_bytes, options), ContainsSubstring("mbarrier"));
    CHECK_THAT(f.run(0, too_many_bytes, options), ContainsSubstring("hangs") && ContainsSubstring("and 16 bytes"));
    CHECK_THAT(f.run(0, full_wait, options), ContainsSubstring("race: "));
    CHECK_THAT(f.run(0, accumulator_fence, options), ContainsSubstring("without a wgmma_fence"));
    CHECK_THAT(f.run(0, commit, options), ContainsSubstring("race: tma_load_3d") || ContainsSubstring("unfinished"));
    CHECK_THAT(f.run(0, early_release, options),
               ContainsSubstring("race: tma_load_3d") && ContainsSubstring("wgmma of warpgroup 0"));
    CHECK_THAT(f.run(0, proxy_fence, options), ContainsSubstring("without a fence_proxy_async"));
    CHECK_THAT(f.run(0, staged_barrier, options), ContainsSubstring("race: "));
    CHECK_THAT(f.run(0, reuse_wait, options),
               ContainsSubstring("race: st_shared") && ContainsSubstring("TMA stores of thread 0"));
    CHECK_THAT(f.run(0, last_wait, options), ContainsSubstring("may still read shared memory"));
    CHECK_THAT(f.run(0, early_read, options), ContainsSubstring("unfinished"));
    CHECK_THAT(f.run(0, wrong_parity, options), ContainsSubstring("hangs") && ContainsSubstring("mbarrier"));
    CHECK_THAT(f.run(0, one_warp_skips, options), ContainsSubstring("race: ") || ContainsSubstring("unfinished"));
    CHECK_THAT(f.run(0, early_write, options),
               ContainsSubstring("thread 77 wrote accumulator 3 before its wgmma_wait_group"));
  }
  CHECK(f.run(0, 0, {}) == "");
}

TEST_CASE("The emulator's TMA reads zero and writes nothing beyond the edges of every dimension, in every type",
          "[emulator]") {
  const EmulatorKernel kernel(body);
  const auto backend = make_emulator_backend({});
  constexpr int box_outer = 8, outer = 11, batch = 3;
  for (const int width : {128, 64, 32, 16})
    for (const DataTypeInfo& info : data_types()) {
      const DataType type = info.type;
      const int size = int(size_of(type)), box_inner = width / size, inner = box_inner + 32 / size;
      const int stride = inner + 16 / size, matrix = (outer + 1) * stride;
      // The same memory for one matrix, when the batch stride does not matter.
      for (const int matrices : {1, batch}) {
        const auto spec = [&](const void* address) {
          return TensorMapSpec{address,   type,     inner, outer, matrices, stride, matrices > 1 ? matrix : 3,
                               box_inner, box_outer};
        };
        alignas(16) static unsigned char from[batch * 12 * 176], to[batch * 12 * 176], expected[batch * 12 * 176];
        REQUIRE(matrix * size == 12 * (width + 48));
        Random random(7);
        for (unsigned char& byte : from) byte = static_cast<unsigned char>(random.next() | 1);
        device::Arguments p{};
        p.m = 6;
        p.n = box_outer;
        p.k = width;
        p.map_a = backend->encode_tensor_map(spec(from));
        p.map_d = backend->encode_tensor_map(spec(to));
        const auto launch = [&] { return kernel.run({}, {1, 32, std::size_t(box_outer * width + 8 + 1024)}, p); };
        const auto run = [&](const int(&at)[6]) {
          INFO(to_string(type) << " " << width << " bytes, " << matrices << " matrices, from " << at[0] << " " << at[1]
                               << " " << at[2] << " to " << at[3] << " " << at[4] << " " << at[5]);
          p.lda = at[0], p.ldb = at[1], p.ldc = at[2], p.ldd = at[3], p.stride_a = at[4], p.stride_b = at[5];
          std::memset(to, 0xee, sizeof to);
          std::memset(expected, 0xee, sizeof expected);
          const auto place = [&](std::int64_t x, std::int64_t y, std::int64_t z) -> std::int64_t {
            if (x < 0 || x >= inner || y < 0 || y >= outer || z < 0 || z >= matrices) return -1;
            return (z * matrix + y * stride + x) * size;
          };
          for (int y = 0; y < box_outer; ++y)
            for (int x = 0; x < box_inner; ++x) {
              const auto source = place(std::int64_t(at[0]) + x, at[1] + y, at[2]),
                         target = place(std::int64_t(at[3]) + x, at[4] + y, at[5]);
              if (target < 0) continue;
              std::memset(expected + target, 0, std::size_t(size));
              if (source >= 0) std::memcpy(expected + target, from + source, std::size_t(size));
            }
          REQUIRE(launch() == "");
          REQUIRE(std::memcmp(to, expected, sizeof to) == 0);
        };
        for (const int z : {-1, 0, matrices - 1, matrices, std::numeric_limits<int>::max()}) {
          run({0, 0, z, 0, 0, 0});
          run({0, 0, 0, 0, 0, z});
          run({-16 / size, -2, z, 32 / size, 5, z});
          run({48 / size, 7, z, -32 / size, -1, z});
        }
        run({16 / size, 100, 0, 0, 0, 0});
        run({0, 0, 0, std::numeric_limits<int>::max(), 0, 0});
        p.lda = 3;
        REQUIRE_THAT(launch(), ContainsSubstring("tma_load_3d from element 3") &&
                                   ContainsSubstring("not a multiple of 16 bytes"));
      }
    }
}

TEST_CASE("The emulator's TMA swizzles boxes of every width as the hardware does", "[emulator]") {
  const EmulatorKernel kernel(body);
  const auto backend = make_emulator_backend({});
  constexpr int rows = 40;
  alignas(16) static std::uint32_t from[rows * 32], to[rows * 32], inside[rows * 32];
  for (int i = 0; i < rows * 32; ++i) from[i] = std::uint32_t(i);
  for (const int width : {128, 64, 32, 16}) {
    const int words = width / 4;
    device::Arguments p{};
    p.m = 6;
    p.n = rows;
    p.k = width;
    p.map_a = backend->encode_tensor_map({from, s32, words, rows, 1, words, 0, words, rows});
    p.map_d = backend->encode_tensor_map({to, s32, words, rows, 1, words, 0, words, rows});
    p.d = inside;
    for (const EmulatorOptions& options : adversaries(2)) {
      std::memset(to, 0, sizeof to);
      REQUIRE(kernel.run(options, {1, 32, std::size_t(rows * width + 8 + 1024)}, p) == "");
      for (int row = 0; row < rows; ++row)
        for (int word = 0; word < words; ++word) {
          const int turned = width == 128 ? row % 8 : width == 64 ? row / 2 % 4 : width == 32 ? row / 4 % 2 : 0;
          REQUIRE(inside[row * words + (word / 4 ^ turned) * 4 + word % 4] == std::uint32_t(row * words + word));
        }
      REQUIRE(std::memcmp(to, from, std::size_t(rows * width)) == 0);
    }
  }
}

TEST_CASE("The emulator's tensor maps obey the hardware's rules", "[emulator]") {
  const auto backend = make_emulator_backend({});
  alignas(256) static char memory[256];
  const TensorMapSpec good{memory, f16, 100, 10, 3, 104, 1040, 64, 64};
  CHECK_NOTHROW(backend->encode_tensor_map(good));
  TensorMapSpec largest = good;
  largest.inner = largest.outer = largest.batch = std::int64_t(1) << 32;
  largest.stride = largest.batch_stride = (std::int64_t(1) << 39) - 8;
  CHECK_NOTHROW(backend->encode_tensor_map(largest));
  TensorMapSpec one = good;
  one.batch = 1;
  one.batch_stride = -1;  // does not matter
  CHECK_NOTHROW(backend->encode_tensor_map(one));
  const auto refused = [&](auto change) {
    TensorMapSpec spec = good;
    change(spec);
    const std::string text = refusal(ErrorCode::invalid_operand, [&] { backend->encode_tensor_map(spec); });
    return ContainsSubstring("; use the sm80 main loop").match(text);
  };
  constexpr std::int64_t huge = std::numeric_limits<std::int64_t>::max() / 8 * 8;
  for (const std::int64_t size : {std::int64_t(0), std::int64_t(-1), (std::int64_t(1) << 32) + 1, huge, -huge}) {
    CHECK(refused([&](TensorMapSpec& s) { s.inner = size; }));
    CHECK(refused([&](TensorMapSpec& s) { s.outer = size; }));
    CHECK(refused([&](TensorMapSpec& s) { s.batch = size; }));
  }
  for (const std::int64_t stride : {std::int64_t(0), std::int64_t(-8), std::int64_t(1) << 39, huge, -huge}) {
    CHECK(refused([&](TensorMapSpec& s) { s.stride = stride; }));
    CHECK(refused([&](TensorMapSpec& s) { s.batch_stride = stride; }));
  }
  CHECK(refused([](TensorMapSpec& s) { s.batch_stride = 1044; }));
  CHECK(refused([](TensorMapSpec& s) { s.type = DataType(200); }));
  CHECK(refused([](TensorMapSpec& s) { s.address = memory + 8; }));
  CHECK(refused([](TensorMapSpec& s) { s.address = nullptr; }));
  CHECK(refused([](TensorMapSpec& s) { s.stride = 100; }));
  CHECK(refused([](TensorMapSpec& s) { s.box_outer = 257; }));
  for (const int box_inner : {4, 24, 48, 128}) CHECK(refused([&](TensorMapSpec& s) { s.box_inner = box_inner; }));
  for (const int box_inner : {8, 16, 32}) {
    TensorMapSpec narrow = good;
    narrow.box_inner = box_inner;
    CHECK_NOTHROW(backend->encode_tensor_map(narrow));
  }
  CHECK(refused([](TensorMapSpec& s) { s.type = f32; }));
}
