#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "catch.hpp"
#include "core/data_types.hpp"
#include "core/element.hpp"
#include "core/type_rules.hpp"
#include "random.hpp"
#include "test_emulator.hpp"

using namespace jitgemm;
using namespace jitgemm::test;
using Catch::Matchers::ContainsSubstring;

namespace {

// Arguments::m chooses the types, k the kernel, n what it does wrong. A's rows and B's columns lie K-major, d and c row
// by row.
const char* const body = R"(
template <class T>
__device__ const T* at(const void* memory, u32 byte) {
  return reinterpret_cast<const T*>(static_cast<const char*>(memory) + byte);
}

template <class A, class B, class D>
__device__ void one_mma(const Arguments& p) {
  const u32 lane = thread_index(), g = lane / 4, t = lane % 4;
  u32 a[4], b[2];
  for (u32 r = 0; r < 4; ++r) a[r] = ld_global<u32>(at<u32>(p.a, (g + r % 2 * 8) * 32 + r / 2 * 16 + 4 * t));
  for (u32 r = 0; r < 2; ++r) b[r] = ld_global<u32>(at<u32>(p.b, g * 32 + r * 16 + 4 * t));
  D d[4];
  const auto place = [&](int r) { return ((g + r / 2 * 8) * 8 + 2 * t + r % 2) * sizeof(D); };
  for (int r = 0; r < 4; ++r) d[r] = ld_global<D>(at<D>(p.c, place(r)));
  mma_m16n8(A{}, B{}, d, a, b[0], b[1]);
  for (int r = 0; r < 4; ++r) st_global<D>(const_cast<D*>(at<D>(p.d, place(r))), d[r]);
}

__device__ void one_f64_mma(const Arguments& p) {
  const u32 lane = thread_index(), g = lane / 4, t = lane % 4;
  double d[4];
  const auto place = [&](int r) { return ((g + r / 2 * 8) * 8 + 2 * t + r % 2) * 8; };
  for (int r = 0; r < 4; ++r) d[r] = ld_global<double>(at<double>(p.c, place(r)));
  mma_m16n8k4(d, *at<double>(p.a, (g * 4 + t) * 8), *at<double>(p.a, ((g + 8) * 4 + t) * 8),
              *at<double>(p.b, (g * 4 + t) * 8));
  for (int r = 0; r < 4; ++r) st_global<double>(const_cast<double*>(at<double>(p.d, place(r))), d[r]);
}

__device__ u64 descriptor(u32 address) { return 1ull << 62 | u64(1024 / 16) << 32 | address >> 4; }

// 64 x 128 from 128 bytes of k, by a warpgroup.
template <class A, class B, class D>
__device__ void wgmmas(const Arguments& p) {
  const u32 thread = thread_index(), smem = (dynamic_smem() + 1023) / 1024 * 1024;
  for (u32 i = thread; i < 192 * 8; i += 128) {
    const u32 row = i / 8, chunk = i % 8;
    const void* from = row < 64 ? at<char>(p.a, row * 128 + chunk * 16) : at<char>(p.b, (row - 64) * 128 + chunk * 16);
    U32x4 x;
    __builtin_memcpy(&x, from, 16);
    st_shared_v4(smem + row * 128 + (chunk ^ row % 8) * 16, x);
  }
  fence_proxy_async();
  bar_sync(0, 128);
  D d[64];
  const u32 row = thread / 32 * 16 + thread % 32 / 4, column = thread % 4 * 2;
  const auto place = [&](int r) { return ((row + r / 2 % 2 * 8) * 128 + r / 4 * 8 + column + r % 2) * sizeof(D); };
  for (int r = 0; r < 64; ++r) d[r] = p.n ? ld_global<D>(at<D>(p.c, place(r))) : D(1);
  wgmma_fence();
  for (int step = 0; step < 4; ++step)
    wgmma<A, B, false, false>(d, descriptor(smem + step * 32), descriptor(smem + 8192 + step * 32), p.n || step > 0);
  wgmma_commit_group();
  wgmma_wait_group<0>();
  for (int r = 0; r < 64; ++r) st_global<D>(const_cast<D*>(at<D>(p.d, place(r))), d[r]);
}

__device__ void wrong_mma(const Arguments& p) {
  double d[4], a[4], b[4];
  const auto type = [](long long x) { return emulator::TensorType(x); };
  const bool differs = p.n && thread_index() >= 16;
  runtime.mma(differs ? type(p.ldc) : type(p.lda), differs ? type(p.ldd) : type(p.ldb), d, a, b);
}

__device__ void wrong_wgmma(const Arguments& p) {
  const u32 smem = (dynamic_smem() + 1023) / 1024 * 1024;
  const auto type = [](long long x) { return emulator::TensorType(x); };
  if (thread_index() < 64)
    for (u32 i = thread_index(); i < 40 * 1024 / 16; i += 64) st_shared_v4(smem + 16 * i, {});
  fence_proxy_async();
  bar_sync(0, 128);
  float d[128];
  wgmma_fence();
  runtime.wgmma(type(p.lda), type(p.ldb), p.ldc, p.n & 1, p.n & 2, d, descriptor(smem), descriptor(smem + 8192), false);
  if (p.n & 4) runtime.wgmma(type(p.ldd), type(p.ldd), p.ldc, false, false, d, descriptor(smem), descriptor(smem), true);
  wgmma_commit_group();
  wgmma_wait_group<0>();
}

__device__ void run(const Arguments& p) {
  void (*const mmas[])(const Arguments&) = {MMAS};
  void (*const warpgroups[])(const Arguments&) = {WGMMAS};
  if (p.k == 0) mmas[p.m](p);
  if (p.k == 1) warpgroups[p.m](p);
  if (p.k == 2) wrong_mma(p);
  if (p.k == 3) wrong_wgmma(p);
}
)";

struct Types {
  DataType a, b;
};

/// What tensor cores multiply, f64, which wgmma does not, last.
const std::vector<Types>& pairs() {
  static const std::vector<Types> all = [] {
    std::vector<Types> types;
    for (const DataTypeInfo& a : data_types())
      for (const DataTypeInfo& b : data_types())
        if (a.type != f64 && a.tensor_cores && a.partners.contains(b.type)) types.push_back({a.type, b.type});
    types.push_back({f64, f64});
    return types;
  }();
  return all;
}

/// With all of them, in this order.
std::string whole_body() {
  std::string mmas, wgmmas;
  for (const Types& types : pairs()) {
    const auto name = [](DataType type) { return std::string(info_of(type).device_name); };
    const std::string arguments =
        "<" + name(types.a) + ", " + name(types.b) + ", " + name(accumulator_of(types.a)) + ">, ";
    mmas += types.a == f64 ? "one_f64_mma" : "one_mma" + arguments;
    if (types.a != f64) wgmmas += "wgmmas" + arguments;
  }
  return "#define MMAS " + mmas + "\n#define WGMMAS " + wgmmas + "\n" + body;
}

/// What the bits of an 8-bit float say, from its definition.
double value_of_byte(unsigned bits, DataType type) {
  const int fraction_bits = type == e4m3 ? 3 : 2, bias = type == e4m3 ? 7 : 15;
  const int exponent = int(bits & 0x7f) >> fraction_bits, fraction = int(bits) & ((1 << fraction_bits) - 1);
  const double sign = bits & 0x80 ? -1 : 1;
  if (type == e4m3 && (bits & 0x7f) == 0x7f) return NAN;
  if (type == e5m2 && exponent == 31) return fraction ? NAN : sign * INFINITY;
  if (exponent == 0) return sign * std::ldexp(fraction, 1 - bias - fraction_bits);
  return sign * std::ldexp(1 + std::ldexp(fraction, -fraction_bits), exponent - bias);
}

/// Element i as a tensor core sees it.
double value_of(const unsigned char* memory, int i, DataType type) {
  if (type == e4m3 || type == e5m2) return value_of_byte(memory[i], type);
  if (type == tf32) {
    std::uint32_t bits;
    std::memcpy(&bits, memory + 4 * i, 4);
    bits = bits >> 13 << 13;
    float x;
    std::memcpy(&x, &bits, 4);
    return x;
  }
  return load_element(memory, i, type);
}

/// What the elements are like.
enum class Inputs { ordinary, any, subnormal };

void fill(unsigned char* memory, int bytes, DataType type, Inputs inputs, Random& random) {
  for (int i = 0; i < bytes; ++i) memory[i] = static_cast<unsigned char>(random.next());
  const bool is_fp8 = type == e4m3 || type == e5m2;
  if (info_of(type).is_integer() || (is_fp8 && inputs == Inputs::any)) return;
  for (int i = 0; i < bytes / int(size_of(type)); ++i) {
    if (is_fp8 && inputs == Inputs::subnormal)
      memory[i] &= type == e4m3 ? 0x87 : 0x83;
    else if (is_fp8)
      while (!std::isfinite(value_of_byte(memory[i], type))) memory[i] = static_cast<unsigned char>(random.next());
    else
      store_element((random.uniform() - 0.5) * std::exp2(random.between(-8, 8)), memory, i, type);
  }
}

/// d (rows x columns) = c + a * b, in the type that is summed in; `bytes` of k.
template <class D>
void multiply(const unsigned char* a, const unsigned char* b, Types t, int rows, int columns, int bytes, D* d) {
  const int k_count = bytes / int(size_of(t.a));
  for (int i = 0; i < rows; ++i)
    for (int j = 0; j < columns; ++j) {
      D& sum = d[i * columns + j];
      for (int k = 0; k < k_count; ++k) {
        const double x = value_of(a + i * bytes, k, t.a), y = value_of(b + j * bytes, k, t.b);
        if constexpr (std::is_same_v<D, std::int32_t>) {
          sum = std::int32_t(std::uint32_t(sum) + std::uint32_t(int(x) * int(y)));
        } else {
          const volatile D product = D(x) * D(y);  // rounded before it is added
          sum += product;
        }
      }
    }
}

template <class D>
bool same(const D& x, const D& y) {
  return x == y || (x != x && y != y);
}

/// How many elements of D are wrong.
template <class D>
int wrong(const EmulatorKernel& kernel, int which, bool warpgroup, Inputs inputs, bool accumulate, Random& random,
          const EmulatorOptions& options) {
  constexpr int max_bytes = 128, max_columns = 128;
  const int rows = warpgroup ? 64 : 16, columns = warpgroup ? 128 : 8, bytes = warpgroup ? 128 : 32;
  alignas(16) static unsigned char a[64 * max_bytes], b[max_columns * max_bytes];
  static D c[64 * max_columns], d[64 * max_columns], expected[64 * max_columns];
  const Types t = pairs()[std::size_t(which)];
  fill(a, rows * bytes, t.a, inputs, random);
  fill(b, columns * bytes, t.b, inputs, random);
  for (int i = 0; i < rows * columns; ++i) {
    if constexpr (std::is_same_v<D, std::int32_t>)
      c[i] = i % 2 ? std::numeric_limits<int>::max() - random.between(0, 1000) : std::numeric_limits<int>::min();
    else
      c[i] = D(random.uniform() * 8 - 4);
    expected[i] = accumulate ? c[i] : 0;
    d[i] = 77;
  }
  multiply(a, b, t, rows, columns, bytes, expected);
  device::Arguments p{};
  p.m = which;
  p.n = accumulate;
  p.k = warpgroup;
  p.a = a;
  p.b = b;
  p.c = c;
  p.d = d;
  REQUIRE(kernel.run(options, {1, warpgroup ? 128 : 32, warpgroup ? 192 * 128 + 1024u : 0u}, p) == "");
  int count = 0;
  for (int i = 0; i < rows * columns; ++i) count += !same(d[i], expected[i]);
  return count;
}

int wrong(const EmulatorKernel& kernel, int which, bool warpgroup, Inputs inputs, bool accumulate, Random& random,
          const EmulatorOptions& options) {
  const DataType accumulator = accumulator_of(pairs()[std::size_t(which)].a);
  if (accumulator == s32) return wrong<std::int32_t>(kernel, which, warpgroup, inputs, accumulate, random, options);
  if (accumulator == f64) return wrong<double>(kernel, which, warpgroup, inputs, accumulate, random, options);
  return wrong<float>(kernel, which, warpgroup, inputs, accumulate, random, options);
}

std::string name_of(int which) {
  const Types& types = pairs()[std::size_t(which)];
  return std::string(to_string(types.a)) + " x " + std::string(to_string(types.b));
}

}  // namespace

TEST_CASE("The emulator's mma multiplies every pair of types as a direct loop does", "[emulator]") {
  const EmulatorKernel kernel(whole_body());
  const std::uint64_t seed = test_seed();
  Random random(seed);
  for (int which = 0; which < int(pairs().size()); ++which)
    for (const Inputs inputs : {Inputs::ordinary, Inputs::any, Inputs::subnormal})
      for (int repeat = 0; repeat < 20; ++repeat) {
        INFO(name_of(which) << ", inputs " << int(inputs) << ", JITGEMM_TEST_SEED=" << seed);
        REQUIRE(wrong(kernel, which, false, inputs, true, random, {}) == 0);
      }
}

TEST_CASE("The emulator's wgmma multiplies every pair of types, K-major, as a direct loop does", "[emulator]") {
  const EmulatorKernel kernel(whole_body());
  const std::uint64_t seed = test_seed();
  Random random(seed);
  for (int which = 0; which + 1 < int(pairs().size()); ++which)
    for (const Inputs inputs : {Inputs::ordinary, Inputs::any, Inputs::subnormal})
      for (const bool accumulate : {false, true})
        for (const EmulatorOptions& options : adversaries(1)) {
          INFO(name_of(which) << ", inputs " << int(inputs) << ", accumulate " << accumulate
                              << ", JITGEMM_TEST_SEED=" << seed);
          REQUIRE(wrong(kernel, which, true, inputs, accumulate, random, options) == 0);
        }
}

TEST_CASE("The emulator refuses what tensor cores do not multiply", "[emulator]") {
  const EmulatorKernel kernel(whole_body());
  device::Arguments p{};
  const auto mma = [&](DataType a, DataType b) {
    p.k = 2;
    p.lda = int(a);
    p.ldb = int(b);
    return kernel.run({}, {1, 32, 0}, p);
  };
  std::vector<DataType> all{DataType::automatic, DataType(200)};
  for (const DataTypeInfo& info : data_types()) all.push_back(info.type);
  int multiplied = 0;
  for (const DataType a : all)
    for (const DataType b : all) {
      INFO(int(a) << " x " << int(b));
      const auto is_it = [&](const Types& types) { return types.a == a && types.b == b; };
      const bool expected = std::any_of(pairs().begin(), pairs().end(), is_it);
      multiplied += expected;
      if (expected)
        CHECK(mma(a, b) == "");
      else
        CHECK_THAT(mma(a, b), ContainsSubstring("which tensor cores do not multiply"));
    }
  CHECK(multiplied == int(pairs().size()));
  CHECK_THAT(mma(f16, DataType(200)), ContainsSubstring("mma of f16 and no type"));
  CHECK_THAT(mma(f16, bf16), ContainsSubstring("mma of f16 and bf16"));
  p.n = 1;
  p.ldc = p.ldd = int(bf16);
  CHECK_THAT(mma(f16, f16), ContainsSubstring("the lanes of the warp differ in their types"));

  const auto wgmma = [&](DataType a, DataType b, int n, int wrong) {
    p.k = 3;
    p.lda = int(a);
    p.ldb = int(b);
    p.ldc = n;
    p.n = wrong;
    return kernel.run({}, {1, 128, 41 * 1024}, p);
  };
  for (const Types& types : pairs()) {
    const DataType type = types.a;
    if (type != types.b || type == f64) continue;
    CHECK(wgmma(type, type, 256, 0) == "");
    CHECK(wgmma(type, type, 8, 0) == "");
    for (const int transposed : {1, 2, 3})
      if (type == f16 || type == bf16)
        CHECK(wgmma(type, type, 64, transposed) == "");
      else
        CHECK_THAT(wgmma(type, type, 64, transposed), ContainsSubstring("only 16-bit elements can be transposed"));
    for (const int n : {0, 12, 264, -8}) CHECK_THAT(wgmma(type, type, n, 0), ContainsSubstring("is not a multiple of"));
  }
  CHECK(wgmma(e4m3, e5m2, 128, 0) == "");
  CHECK(wgmma(f16, f16, 40, 0) == "");
  CHECK_THAT(wgmma(s8, s8, 40, 0), ContainsSubstring("not a multiple of 16"));
  CHECK_THAT(wgmma(f64, f64, 64, 0), ContainsSubstring("wgmma of f64 and f64"));
  CHECK_THAT(wgmma(tf32, f16, 64, 0), ContainsSubstring("wgmma of tf32 and f16"));
  CHECK_THAT(wgmma(s8, e4m3, 64, 0), ContainsSubstring("wgmma of s8 and e4m3"));
  p.ldd = int(bf16);
  CHECK(wgmma(f16, f16, 64, 4) == "");
  p.ldd = int(s8);
  CHECK_THAT(wgmma(f16, f16, 64, 4), ContainsSubstring("on accumulators in flight with n = 64, f32"));
}
