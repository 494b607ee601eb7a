// The functions that the emulator has for those of templates/ptx/.
#include "test_emulator.hpp"

#include <sys/resource.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <set>
#include <thread>

#include "backend/emulator/temporary_directory.hpp"
#include "catch.hpp"
#include "core/element.hpp"
#include "errors.hpp"
#include "random.hpp"
#include "sandbox.hpp"
#include "sanitizers.hpp"

using namespace jitgemm;
using namespace jitgemm::test;
using Catch::Matchers::ContainsSubstring;

namespace {

const char* const body = R"(
// d: every 16-bit pattern of both types as f32, c: the patterns that come back.
__device__ void convert_all(const Arguments& p) {
  float* wide = static_cast<float*>(p.d);
  u16* back = static_cast<u16*>(const_cast<void*>(p.c));
  for (u32 bits = thread_index(); bits < 65536; bits += 32) {
    F16 x{u16(bits)};
    BF16 y{u16(bits)};
    wide[bits] = to_f32(x);
    wide[65536 + bits] = to_f32(y);
    convert(to_f32(x), x);
    convert(to_f32(y), y);
    back[bits] = x.bits;
    back[65536 + bits] = y.bits;
  }
}

// Rounds the n floats of a, and what they are negated, to f16 and bf16, c: to e4m3 and e5m2.
__device__ void round_all(const Arguments& p) {
  for (int i = thread_index(); i < p.n; i += 32) {
    const float x = ld_global<float>(static_cast<const float*>(p.a) + i);
    st_global<u32>(static_cast<u32*>(p.d) + 2 * i, pack(F16{}, x, -x));
    st_global<u32>(static_cast<u32*>(p.d) + 2 * i + 1, pack(BF16{}, x, -x));
    u16* bytes = static_cast<u16*>(const_cast<void*>(p.c)) + 2 * i;
    st_global<u16>(bytes, pack(E4M3{}, x, -x));
    st_global<u16>(bytes + 1, pack(E5M2{}, x, -x));
  }
}

// D (16 x 8) = A (16 x 16) B (16 x 8) from row-major A, and B as given (k = 1: row-major, else column-major).
template <class Element>
__device__ void multiply(const Arguments& p) {
  const u32 lane = thread_index(), smem = dynamic_smem();
  for (u32 i = lane; i < 32; i += 32) {
    cp_async<16>(smem + i * 16, static_cast<const char*>(p.a) + i * 16, 16);
    cp_async<8>(smem + 512 + i * 16, static_cast<const char*>(p.b) + i * 16, i < 16 ? 8 : 0);
    cp_async<8>(smem + 512 + i * 16 + 8, static_cast<const char*>(p.b) + i * 16 + 8, i < 16 ? 8 : 0);
  }
  cp_async_commit_group();
  cp_async_wait_group<0>();
  warp_sync();
  u32 a[4], b[4];
  ldmatrix_x4(smem + lane % 16 * 32 + lane / 16 * 16, a);
  if (p.k == 1)
    ldmatrix_x4_trans(smem + 512 + lane % 16 * 16, b);
  else
    ldmatrix_x4(smem + 512 + lane % 8 * 32 + lane / 8 % 2 * 16, b);
  float d[4] = {};
  mma_m16n8(Element{}, Element{}, d, a, b[0], b[1]);
  for (int r = 0; r < 4; ++r)
    st_global<float>(static_cast<float*>(p.d) + (lane / 4 + r / 2 * 8) * 8 + lane % 4 * 2 + r % 2, d[r]);
}

// stmatrix then ldmatrix gives the same registers, and the rows in between lie where they should.
__device__ void matrix_round_trip(const Arguments& p) {
  const u32 lane = thread_index(), smem = dynamic_smem();
  stmatrix_x4<false>(smem + lane * 16, lane, 100 + lane, 200 + lane, 300 + lane);
  warp_sync();
  u32 x[4];
  ldmatrix_x4(smem + lane * 16, x);
  const U32x4 row = ld_shared_v4(smem + lane * 16);
  const u32 first = lane / 8 * 100 + lane % 8 * 4;
  const bool right = x[0] == lane && x[1] == 100 + lane && x[2] == 200 + lane && x[3] == 300 + lane && row.x == first &&
                     row.y == first + 1 && row.z == first + 2 && row.w == first + 3;
  warp_sync();
  // Two matrices, whose rows lanes 0 to 15 give.
  stmatrix_x2<false>(lane < 16 ? smem + 512 + lane * 16 : 1, lane, 100 + lane);
  warp_sync();
  const U32x4 half = ld_shared_v4(smem + 512 + lane % 16 * 16), other = ld_shared_v4(smem + lane * 16);
  const u32 begin = lane % 16 / 8 * 100 + lane % 8 * 4;
  const bool right_half = half.x == begin && half.y == begin + 1 && half.z == begin + 2 && half.w == begin + 3;
  warp_sync();
  // Transposed: the low half of row r, element c, is lane 4c + r / 2's.
  const u32 column = lane / 8 * 100 + lane % 8 / 2, pair = lane % 2 ? 0 : column | (column + 4) << 16;
  stmatrix_x4<true>(smem + lane * 16, lane, 100 + lane, 200 + lane, 300 + lane);
  stmatrix_x2<true>(lane < 16 ? smem + 512 + lane * 16 : 1, lane, 100 + lane);
  warp_sync();
  const bool right_transposed = ld_shared_v4(smem + lane * 16).x == pair &&
                                (lane >= 16 || ld_shared_v4(smem + 512 + lane * 16).x == pair);
  warp_sync();
  // One matrix, whose rows lanes 0 to 7 give.
  stmatrix_x1<true>(lane < 8 ? smem + 512 + lane * 16 : 1, lane);
  stmatrix_x1<false>(lane < 8 ? smem + 640 + lane * 16 : 1, lane);
  warp_sync();
  const bool right_one = lane >= 8 || (ld_shared_v4(smem + 512 + lane * 16).x == pair &&
                                       ld_shared_v4(smem + 640 + lane * 16).y == lane * 4 + 1);
  u32 y[4];
  ldmatrix_x4_trans(smem + lane * 16, y);
  const bool back = y[0] == lane && y[3] == 300 + lane;
  st_global<u32>(static_cast<u32*>(p.d) + lane, right && right_half && other.x == first && right_transposed &&
                                                 right_one && back);
}

__device__ void places(const Arguments& p) {
  const u32 uniform = warp_uniform(thread_index() + 7);
  u32* d = static_cast<u32*>(p.d) + (block_index() * 64 + thread_index()) * 2;
  d[0] = uniform;
  d[1] = grid_size();
}

// 12 floats, of which each lane has one, and then all lanes that of lane 5. n tells what is wrong.
__device__ void row_of_bytes(const Arguments& p) {
  const u32 t = thread_index(), smem = dynamic_smem(), barrier = smem + 64;
  if (t == 0) {
    mbarrier_init(barrier, 1);
    fence_mbarrier_init();
    mbarrier_arrive_expect_tx(barrier, 48);
    bulk_load(smem + (p.n == 2 ? 8 : 0), static_cast<const char*>(p.a) + (p.n == 3 ? 8 : 0), p.n == 4 ? 40 : 48, barrier);
  }
  warp_sync();
  if (p.n != 1) mbarrier_wait_parity(barrier, 0);
  float x = 0;
  if (t < 12) ld_shared(smem + t * 4, x);
  float* d = static_cast<float*>(p.d);
  d[t] = x;
  d[32 + t] = shuffle(x, 5);
}

__device__ void tell_lanes(const Arguments& p) {
  const u32 t = thread_index(), lane = t % 32;
  u32* d = static_cast<u32*>(p.d) + t * 5;
  d[0] = shuffle(3 * t, 31 - lane);
  d[1] = shuffle_up(t, 1);
  d[2] = shuffle_up(t, 16);
  d[3] = ballot(t % 3 == 0);
  d[4] = u32(lowest_bit(ballot(lane >= 5)));
}

__device__ void run(const Arguments& p) {
  void (*const kernels[])(const Arguments&) = {convert_all,       round_all, multiply<F16>, multiply<BF16>,
                                               matrix_round_trip, places,    row_of_bytes,   tell_lanes};
  kernels[p.m](p);
}
)";

enum Kernel {
  convert_all,
  round_all,
  multiply_f16,
  multiply_bf16,
  matrix_round_trip,
  places,
  row_of_bytes,
  tell_lanes
};

}  // namespace

TEST_CASE("The emulator converts every 16-bit value there and back", "[emulator]") {
  const EmulatorKernel kernel(body);
  std::vector<float> wide(2 * 65536);
  std::vector<std::uint16_t> back(2 * 65536);
  device::Arguments p{};
  p.m = convert_all;
  p.d = wide.data();
  p.c = back.data();
  REQUIRE(kernel.run({}, {}, p) == "");
  int wrong = 0;
  for (int type = 0; type < 2; ++type)
    for (int bits = 0; bits < 65536; ++bits) {
      const std::uint16_t pattern = std::uint16_t(bits);
      const double expected = load_element(&pattern, 0, type ? bf16 : f16);
      const float got = wide[type * 65536 + bits];
      if (std::isnan(expected))
        wrong += !std::isnan(got) || back[type * 65536 + bits] != 0x7fff;
      else
        wrong += double(got) != expected || std::signbit(got) != std::signbit(expected) ||
                 back[type * 65536 + bits] != pattern;
    }
  CHECK(wrong == 0);
}

TEST_CASE("The emulator rounds to nearest even, overflows to infinity or saturates, and keeps NaN", "[emulator]") {
  const EmulatorKernel kernel(body);
  std::vector<float> x{0.0f,         65504.0f,      65519.99f, 65520.0f,     1e10f,
                       INFINITY,     NAN,           0x1p-24f,  0x1p-25f,     0x1.8p-25f,
                       0x1.ffcp-15f, 0x1.ffep-15f,  0x1p-14f,  1 + 0x1p-11f, 1 + 0x1.8p-10f,
                       1 + 0x1p-8f,  1 + 0x1.8p-7f, 3.4e38f,   1e-40f,       448,
                       464,          465,           57344,     61440,        0x1p-9f,
                       0x1p-10f,     0x1.8p-10f,    0x1.8p-9f, 0x1p-16f,     0x1p-17f,
                       0x1.8p-17f,   0x1.ep-7f,     0x1.fp-7f, 0x1.cp-15f,   1.0625f,
                       1.1875f,      1.125f,        1.375f};
  for (int bits = 0; bits < 256; ++bits)  // every value that 8 bits have, and the ties between them
    for (const DataType type : {e4m3, e5m2}) {
      const unsigned char low = static_cast<unsigned char>(bits), high = static_cast<unsigned char>(bits + 1);
      x.push_back(float(load_element(&low, 0, type)));
      x.push_back(float((load_element(&low, 0, type) + load_element(&high, 0, type)) / 2));
    }
  const std::uint64_t seed = test_seed();
  INFO("JITGEMM_TEST_SEED=" << seed);
  Random random(seed);
  while (x.size() < 20000) {
    const auto bits = std::uint32_t(random.next());
    float y;
    std::memcpy(&y, &bits, 4);
    x.push_back(x.size() % 2 ? y : std::ldexp(float(random.uniform()) + 1, random.between(-20, 18)));
  }
  std::vector<std::uint16_t> packed(4 * x.size());
  std::vector<std::uint8_t> bytes(4 * x.size());
  device::Arguments p{};
  p.m = round_all;
  p.n = int(x.size());
  p.a = x.data();
  p.d = packed.data();
  p.c = bytes.data();
  REQUIRE(kernel.run({}, {}, p) == "");
  int wrong = 0;
  for (std::size_t i = 0; i < x.size(); ++i)
    for (int part = 0; part < 4; ++part) {
      const float y = part % 2 ? -x[i] : x[i];
      std::uint16_t expected;
      store_element(y, &expected, 0, part < 2 ? f16 : bf16);
      if (std::isnan(y)) expected = 0x7fff;
      wrong += packed[4 * i + part] != expected;
      std::uint8_t byte;
      store_element(y, &byte, 0, part < 2 ? e4m3 : e5m2);
      if (std::isnan(y)) byte = 0x7f;
      wrong += bytes[4 * i + part] != byte;
    }
  CHECK(wrong == 0);
}

TEST_CASE("The emulator's ldmatrix, mma and stmatrix have the hardware's fragment layouts", "[emulator]") {
  const EmulatorKernel kernel(body);
  const auto backend = make_emulator_backend({});
  for (const int which : {int(multiply_f16), int(multiply_bf16)})
    for (const int row_major : {0, 1}) {
      const DataType type = which == multiply_f16 ? f16 : bf16;
      alignas(16) std::uint16_t a[16 * 16], b[16 * 8];
      float d[16 * 8];
      backend->fill_random(a, 16 * 16, type, 1);
      backend->fill_random(b, 16 * 8, type, 2);
      device::Arguments p{};
      p.m = which;
      p.k = row_major;
      p.a = a;
      p.b = b;
      p.d = d;
      for (const EmulatorOptions& options : adversaries(2)) {
        REQUIRE(kernel.run(options, {1, 32, 1024}, p) == "");
        for (int i = 0; i < 16; ++i)
          for (int j = 0; j < 8; ++j) {
            float sum = 0;
            for (int k = 0; k < 16; ++k)
              sum += float(load_element(a, i * 16 + k, type)) *
                     float(load_element(b, row_major ? k * 8 + j : j * 16 + k, type));
            REQUIRE(d[i * 8 + j] == sum);
          }
      }
    }
  std::uint32_t right[32] = {};
  device::Arguments p{};
  p.m = matrix_round_trip;
  p.d = right;
  REQUIRE(kernel.run({}, {1, 32, 768}, p) == "");
  for (const std::uint32_t is_right : right) CHECK(is_right);
}

TEST_CASE("The emulator copies a row of bytes on an mbarrier, and a lane's value to its warp", "[emulator]") {
  const EmulatorKernel kernel(body);
  alignas(16) float a[16], d[64] = {};
  for (int i = 0; i < 16; ++i) a[i] = float(i + 1);
  device::Arguments p{};
  p.m = row_of_bytes;
  p.a = a;
  p.d = d;
  const auto run = [&](int wrong, const EmulatorOptions& options = {}) {
    p.n = wrong;
    return kernel.run(options, {1, 32, 128}, p);
  };
  for (const EmulatorOptions& options : adversaries(2)) {
    REQUIRE(run(0, options) == "");
    for (int t = 0; t < 32; ++t) {
      REQUIRE(d[t] == (t < 12 ? a[t] : 0));
      REQUIRE(d[32 + t] == a[5]);
    }
    CHECK_THAT(run(1, options), ContainsSubstring("race: ld_shared"));
  }
  CHECK_THAT(run(2), ContainsSubstring("bulk_load at shared address") && ContainsSubstring("not a multiple of 16"));
  CHECK_THAT(run(3), ContainsSubstring("bulk_load of 48 bytes from"));
  CHECK_THAT(run(4), ContainsSubstring("bulk_load of 40 bytes from"));
}

TEST_CASE("The emulator launches concurrently from several threads", "[emulator]") {
  const EmulatorKernel kernel(body);
  std::vector<std::thread> threads;
  std::vector<std::vector<std::uint32_t>> results(4, std::vector<std::uint32_t>(9 * 64 * 2));
  std::vector<std::string> logs(4);
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&, i] {
      device::Arguments p{};
      p.m = places;
      p.d = results[i].data();
      for (int repeat = 0; repeat < 20; ++repeat) {
        EmulatorOptions options;
        options.seed = std::uint64_t(i * repeat);
        logs[i] += kernel.run(options, {9, 64, 0}, p);
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (int i = 0; i < 4; ++i) {
    CHECK(logs[i] == "");
    for (int t = 0; t < 9 * 64; ++t) {
      REQUIRE(results[i][2 * t] == std::uint32_t(t % 64 / 32 * 32 + 7));
      REQUIRE(results[i][2 * t + 1] == 9);
    }
  }
}

TEST_CASE("Lanes of the emulator's warps tell each other what a GPU's do", "[emulator]") {
  const EmulatorKernel kernel(body);
  device::Arguments p{};
  p.m = tell_lanes;
  for (const EmulatorOptions& options : adversaries(2)) {
    std::vector<std::uint32_t> told(5 * 64);
    p.d = told.data();
    REQUIRE(kernel.run(options, {1, 64, 0}, p) == "");
    for (std::uint32_t t = 0; t < 64; ++t) {
      const std::uint32_t lane = t % 32, first = t - lane;
      std::uint32_t bits = 0;
      for (std::uint32_t i = 0; i < 32; ++i) bits |= std::uint32_t((first + i) % 3 == 0) << i;
      CAPTURE(t);
      CHECK(told[5 * t] == 3 * (first + 31 - lane));
      CHECK(told[5 * t + 1] == (lane >= 1 ? t - 1 : t));
      CHECK(told[5 * t + 2] == (lane >= 16 ? t - 16 : t));
      CHECK(told[5 * t + 3] == bits);
      CHECK(told[5 * t + 4] == 5);
    }
  }
}
