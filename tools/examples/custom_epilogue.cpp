// D = relu(y) + residual, y = row scale * column scale * A * B, which is kept: an epilogue of one's own, emulated.
#include <jitgemm/jitgemm.hpp>

#include <algorithm>
#include <cstdio>
#include <vector>

const char* const text = R"(// operand in row_scale along_m f32
// operand in column_scale along_n f32
// operand in residual matrix f32
// operand out before matrix f32
__device__ float epilogue(float x, const Args& args, Out& out) {
  const float y = x * args.row_scale * args.column_scale;
  out.before = y;
  return fmaxf(y, 0) + args.residual;
}
)";

int main() {
  const int m = 33, n = 48, k = 20;
  jitgemm::Problem problem{.m = m, .n = n, .k = k, .a = {jitgemm::f32}, .b = {jitgemm::f32}, .d = {jitgemm::f32}};
  problem.epilogue.function = jitgemm::define_epilogue(jitgemm::parse_epilogue(text));

  std::vector<float> a(m * k, 0.5f), b(k * n, 1), rows(m), columns(n, -0.25f), residual(m * n, 3), before(m * n),
      d(m * n);
  for (int i = 0; i < m; ++i) rows[i] = float(i - 16);
  const jitgemm::EpilogueValue values[] = {
      {.in = rows.data()}, {.in = columns.data()}, {.in = residual.data()}, {.out = before.data()}};

  jitgemm::Context context({.device = jitgemm::Device::emulator, .tuning = jitgemm::Tuning::off});
  context.gemm(problem, {.a = a.data(), .b = b.data(), .d = d.data(), .epilogue = values, .epilogue_count = 4});

  bool right = true;
  for (int i = 0; i < m * n; ++i) {
    const float y = 0.5f * k * rows[i / n] * -0.25f;
    right = right && before[i] == y && d[i] == std::max(y, 0.0f) + 3;
  }
  std::puts(right ? "D and what was before are right" : "wrong");
  return right ? 0 : 1;
}
