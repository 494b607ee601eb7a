#include <cmath>
#include <cstring>

#include "catch.hpp"
#include "random.hpp"
#include "reference.hpp"
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
        tma_load_2d(stage, &p.map_a, full + 8 * s, 0, k * 64);
      else
        tma_load_2d(stage, &p.map_a, full + 8 * s, k * 64, 0);
      if (N_MAJOR) {
        tma_load_2d(stage + A_BYTES, &p.map_b, full + 8 * s, 0, k * 64);
        tma_load_2d(stage + 2 * A_BYTES, &p.map_b, full + 8 * s, 64, k * 64);
      } else {
        tma_load_2d(stage + A_BYTES, &p.map_b, full + 8 * s, k * 64, 0);
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
      wgmma_m64n128k16<M_MAJOR, N_MAJOR>(Element{}, d, descriptor(stage + k16 * (M_MAJOR ? 2048 : 32)),
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
        st_shared_v2_f32(staged + row * 128 + (chunk ^ row % 8) * 16 + lane % 2 * 8, d[(box * 4 + j) * 4 + h * 2],
                         d[(box * 4 + j) * 4 + h * 2 + 1]);
      }
    if (!(omit & proxy_fence)) fence_proxy_async();
    if (!(omit & staged_barrier)) bar_sync(1, 128);
    if (t == 0) {
      tma_store_2d(&p.map_d, staged, box * 32, 0);
      tma_store_commit_group();
    }
  }
  if (t == 0 && !(omit & last_wait)) tma_store_wait_group_read<0>();
}

__device__ void run(const Arguments& p) {
  void (*const kernels[])(const Arguments&) = {
      multiply<false, false, F16>, multiply<true, false, F16>,   multiply<false, true, F16>,
      multiply<true, true, F16>,   multiply<false, false, BF16>, multiply<true, true, BF16>};
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
      return backend->encode_tensor_map({address, type, inner, outer, stride, 64, box_outer});
    };
    p.map_a = m_major ? map(a.data(), m, k, ld_m, 64) : map(a.data(), k, m, k, 64);
    p.map_b = n_major ? map(b.data(), n, k, ld_n, 64) : map(b.data(), k, n, k, 128);
    p.map_d = backend->encode_tensor_map({d.data(), f32, n, m, 128, 32, 64});
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
          const double product = load(a.data(), m_major ? x * ld_m + i : i * k + x, type) *
                                 load(b.data(), n_major ? x * ld_n + j : j * k + x, type);
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
               ContainsSubstring("race: tma_load_2d") || ContainsSubstring("all 1 threads have arrived"));
    CHECK_THAT(f.run(0, too_few_bytes, options), ContainsSubstring("mbarrier"));
    CHECK_THAT(f.run(0, too_many_bytes, options), ContainsSubstring("hangs") && ContainsSubstring("and 16 bytes"));
    CHECK_THAT(f.run(0, full_wait, options), ContainsSubstring("race: "));
    CHECK_THAT(f.run(0, accumulator_fence, options), ContainsSubstring("without a wgmma_fence"));
    CHECK_THAT(f.run(0, commit, options), ContainsSubstring("race: tma_load_2d") || ContainsSubstring("unfinished"));
    CHECK_THAT(f.run(0, early_release, options),
               ContainsSubstring("race: tma_load_2d") && ContainsSubstring("wgmma of warpgroup 0"));
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

TEST_CASE("The emulator's tensor maps obey the hardware's rules", "[emulator]") {
  const auto backend = make_emulator_backend({});
  alignas(256) static char memory[256];
  const TensorMapSpec good{memory, f16, 100, 10, 104, 64, 64};
  CHECK_NOTHROW(backend->encode_tensor_map(good));
  const auto refused = [&](auto change) {
    TensorMapSpec spec = good;
    change(spec);
    try {
      backend->encode_tensor_map(spec);
      return false;
    } catch (const Error& error) {
      return error.code() == ErrorCode::invalid_operand;
    }
  };
  CHECK(refused([](TensorMapSpec& s) { s.address = memory + 8; }));
  CHECK(refused([](TensorMapSpec& s) { s.address = nullptr; }));
  CHECK(refused([](TensorMapSpec& s) { s.stride = 100; }));
  CHECK(refused([](TensorMapSpec& s) { s.box_outer = 257; }));
  CHECK(refused([](TensorMapSpec& s) { s.box_inner = 32; }));
  CHECK(refused([](TensorMapSpec& s) { s.type = f32; }));
  CHECK(refused([](TensorMapSpec& s) { s.outer = 0; }));
}
