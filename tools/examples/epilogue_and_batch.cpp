// D = silu(A * B + C + bias) for each of four matrices, in one launch. They share B. On the CPU emulator.
#include <jitgemm/jitgemm.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <vector>

int main() {
  const int batch = 4, m = 33, n = 48, k = 20;
  jitgemm::Problem problem{.m = m, .n = n, .k = k, .a = {jitgemm::f32}, .b = {jitgemm::f32}, .d = {jitgemm::f32}};
  problem.batch = batch;
  problem.b.stride = 0;  // one B for all; the matrices of A, C and D lie one after the other
  problem.beta = 1;      // without it C is never read
  problem.epilogue.bias = jitgemm::Bias::along_n;
  problem.epilogue.activation = jitgemm::Activation::silu;

  std::vector<float> a(batch * m * k), b(k * n), c(batch * m * n), bias(n), d(batch * m * n);
  for (std::size_t i = 0; i < a.size(); ++i) a[i] = float(i % 7) / 8 - 0.25f;
  for (std::size_t i = 0; i < b.size(); ++i) b[i] = float(i % 5) / 4 - 0.5f;
  for (std::size_t i = 0; i < c.size(); ++i) c[i] = float(i % 3);
  for (std::size_t i = 0; i < bias.size(); ++i) bias[i] = float(i) / 16;

  jitgemm::Context context({.device = jitgemm::Device::emulator});
  context.gemm(problem, {.a = a.data(), .b = b.data(), .c = c.data(), .d = d.data(), .bias = bias.data()});

  double worst = 0;
  for (int row = 0; row < batch * m; ++row) {
    for (int column = 0; column < n; ++column) {
      double x = c[row * n + column] + bias[column];
      for (int i = 0; i < k; ++i) x += a[row * k + i] * b[i * n + column];
      worst = std::max(worst, std::abs(d[row * n + column] - x / (1 + std::exp(-x))));
    }
  }
  std::printf("the largest error is %g\n", worst);
  return worst < 1e-5 ? 0 : 1;
}
