#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <vector>

#include "backend/backend.hpp"
#include "catch.hpp"
#include "core/element.hpp"
#include "core/operand_matrix.hpp"
#include "core/type_rules.hpp"
#include "reference.hpp"
#include "sandbox.hpp"
#include "tune/output_check.hpp"

/// What the kernel that checks candidates is given.
namespace jitgemm::test::output_check {

inline constexpr Layout columns = Layout::column_major;

/// Kernels that the tests of one process share.
struct Kernels {
  TemporaryDirectory directory;
  KernelCache cache{{.directory = directory.path()}};
};
inline Kernels& kernels() {
  static Kernels all;
  return all;
}

/// Operands of a problem, the D that float64 has of them, and the check of whatever is put into D.
class Candidates {
 public:
  explicit Candidates(const Problem& asked, std::unique_ptr<Backend> device = make_emulator_backend({}),
                      double scale = 1)
      : p(normalise(asked)), backend(std::move(device)), store(*backend, kernels().cache) {
    const DataType addend = type_of_c(p);
    operands.a = random(matrix_a(p).batch_span(), p.a.type, on_device_.a);
    operands.b = random(matrix_b(p).batch_span(), p.b.type, on_device_.b);
    if (reads_c(p)) operands.c = random(matrix_c(p).batch_span(), addend, on_device_.c);
    if (p.epilogue.bias != Bias::none) operands.bias = random(bias_elements(p), addend, on_device_.bias);
    if (scale != 1) {
      operands.scale_a = scalar(0.5 * scale, on_device_.scale_a);
      operands.scale_b = scalar(3, on_device_.scale_b);
      if (is_fp8(p.d.type)) operands.scale_d = scalar(scale, on_device_.scale_d);
    }
    const void* d = nullptr;
    operands.d = random(matrix_d(p).batch_span(), p.d.type, d);
    on_device_.d = const_cast<void*>(d);
  }

  /// After whatever a test changes of the operands, which are on the host.
  void begin() {
    for (Array& array : arrays_) array.upload(*backend);
    Scales by;
    if (operands.scale_a) by.product = double(*operands.scale_a) * double(*operands.scale_b);
    if (operands.scale_d) by.d = *operands.scale_d;
    exact = reference(p, operands, MainLoop::sm80, by);
    check.emplace(*backend, store, p, on_device_, nullptr);
  }

  std::int64_t count() const { return p.batch * p.m * p.n; }
  std::int64_t place(std::int64_t element) const {
    const std::int64_t row = element / p.n;
    return row / p.m * p.d.stride + row % p.m * p.d.ld + element % p.n;
  }
  double right(std::int64_t element) const { return exact.d[std::size_t(element)]; }
  void put(std::int64_t element, double x) { store_element(x, operands.d, place(element), p.d.type); }
  /// What no rounding explains.
  void spoil(std::int64_t element) {
    const double x = load(operands.d, place(element), p.d.type);
    put(element, p.d.type == s32 ? x + 1 : x > 0 ? x / 2 - 8 : x / 2 + 8);
  }
  void unwrite(std::int64_t element) {
    const std::size_t size = size_of(p.d.type);
    std::memset(static_cast<char*>(operands.d) + std::size_t(place(element)) * size, device::POISON, size);
  }

  /// Of a D that is right but for what `change` does to it, each element `off` of what its accumulation allows away.
  template <typename Change>
  OutputCheck::Verdict judge(const Change& change, double off = 0) {
    check->poison();
    Array& d = arrays_.back();
    backend->copy_to_host(d.host.data(), d.device.get(), d.host.size());
    for (std::int64_t i = 0; i < count(); ++i) {
      const double bound = exact.bound[std::size_t(i)] - test::unit_roundoff(p.d.type) * std::abs(right(i));
      put(i, right(i) + (i % 2 ? off : -off) * std::max(0.0, bound));
    }
    change();
    d.upload(*backend);
    return check->judge();
  }
  OutputCheck::Verdict judge_right(double off = 0) {
    return judge([] {}, off);
  }

  const NormalProblem p;
  const std::unique_ptr<Backend> backend;
  KernelStore store;
  Operands operands;  // on the host
  Reference exact;
  std::optional<OutputCheck> check;

 private:
  struct Array {
    std::vector<char> host;
    DeviceMemory device;
    void upload(Backend& backend) const { backend.copy_to_device(device.get(), host.data(), host.size()); }
  };

  /// Returns the host's, and sets the device's.
  template <typename T>
  char* random(std::int64_t elements, DataType type, const T*& on_device) {
    const std::size_t bytes = std::size_t(elements) * size_of(type);
    Array& array =
        arrays_.emplace_back(std::vector<char>(std::max<std::size_t>(bytes, 1)), allocate_memory(*backend, bytes));
    backend->fill_random(array.device.get(), elements, type, arrays_.size());
    backend->copy_to_host(array.host.data(), array.device.get(), array.host.size());
    on_device = static_cast<const T*>(array.device.get());
    return array.host.data();
  }
  const float* scalar(double x, const float*& on_device) {
    char* const host = random(1, f32, on_device);
    store_element(x, host, 0, f32);
    return reinterpret_cast<const float*>(host);
  }

  std::vector<Array> arrays_;  // D is the last
  Operands on_device_;
};

inline void require_right(const OutputCheck::Verdict& verdict) {
  CHECK(verdict.why_wrong == "");
  CHECK_FALSE(verdict.accepted_were_wrong);
}

/// One of each type of operand and of D.
inline std::vector<Problem> of_each_type() {
  return {{.m = 70, .n = 91, .k = 64},
          {.m = 70, .n = 91, .k = 64, .d = {f32}},
          {.m = 70, .n = 91, .k = 64, .a = {bf16}, .b = {bf16}, .d = {bf16}},
          {.m = 70, .n = 91, .k = 64, .a = {e4m3}, .b = {e5m2}, .d = {e4m3}},
          {.m = 70, .n = 91, .k = 64, .a = {e5m2}, .b = {e5m2}, .d = {e5m2}, .accumulation = Accumulation::promoted},
          {.m = 70, .n = 91, .k = 64, .a = {tf32}, .b = {tf32}, .d = {f32}},
          {.m = 70, .n = 91, .k = 64, .a = {f32}, .b = {f32}, .d = {f32}},
          {.m = 70, .n = 91, .k = 64, .a = {f64}, .b = {f64}, .d = {f64}},
          {.m = 70, .n = 91, .k = 64, .a = {s8}, .b = {s8}, .d = {s32}}};
}

}  // namespace jitgemm::test::output_check
