#include "tune/sampler.hpp"

#include <algorithm>
#include <cmath>

#include "core/operand_matrix.hpp"
#include "core/problem.hpp"
#include "kernels/packing.hpp"

namespace jitgemm {
namespace {

// Of one batch of launches between two events. Kernels that fill the device are timed for as long as it takes to meet
// the power limit that they will live under.
constexpr double sample_us = 400, long_sample_us = 2000, long_kernel_us = 60;
constexpr int most_launches = 32;     // of a batch
constexpr double host_launch_us = 6;  // generous: 3 measured
constexpr double no_lead_us = 500;    // of a kernel: 1 % that is every candidate's is no reason to run it twice

/// To enqueue one call.
double host_us(const Runnable& runnable) { return double(runnable.kernels.size()) * host_launch_us; }

}  // namespace

Sampler::Sampler(Backend& backend, const NormalProblem& problem, std::size_t workspace_bytes, int counters)
    : backend_(backend),
      problem_(problem),
      scratch_(backend, problem, workspace_bytes, counters),
      timer_(backend),
      encode_([this](const TensorMapSpec& spec) { return backend_.encode_tensor_map(spec); }) {}

void Sampler::run(const Runnable& runnable) {
  scratch_.zero_counters();  // one that failed may have left some
  launch_call(make_call(runnable, 0));
  backend_.synchronize(timer_.stream());
}

void Sampler::prepare(Runnable& runnable) {
  if (backend_.device().emulated) return;
  sample(runnable);  // the first launches of a kernel are slower
  const double once_us = sample(runnable);
  const double batch_us = once_us > long_kernel_us ? long_sample_us : sample_us;
  runnable.launches = std::clamp(int(batch_us / std::max(once_us, 0.1)), 1, most_launches);
  if (once_us < 2 * host_us(runnable)) prepare_lead(runnable);
  if (once_us > no_lead_us) runnable.lead_launches = 0;
}

/// A call shorter than its launch is timed behind a longer piece of work, or the host would be timed: its GEMM kernel
/// with a longer k, and operands that are taken for packed ones.
void Sampler::prepare_lead(Runnable& runnable) {
  if (!reads_ab(problem_)) return;
  KernelConfig config = runnable.config;
  NormalProblem longer = packed_problem(problem_, config);
  config.pack_a = config.pack_b = false;
  const bool a_rows = longer.a.layout == Layout::row_major, b_rows = longer.b.layout == Layout::row_major;
  const std::int64_t bytes_per_k = ((a_rows ? longer.m : longer.a.ld) + (b_rows ? longer.b.ld : longer.n)) *
                                   std::int64_t(size_of(longer.a.type)) * longer.batch;
  const std::int64_t affordable = (std::int64_t(scratch_.input_bytes()) - 512) / bytes_per_k / 64 * 64;
  longer.k = std::min<std::int64_t>(affordable, 1 << 20);
  if (longer.k <= 2 * problem_.k) return;
  if (a_rows) longer.a.ld = longer.k;
  if (!b_rows) longer.b.ld = longer.k;
  if (longer.a.stride != 0) longer.a.stride = matrix_a(longer).vectors * longer.a.ld;
  if (longer.b.stride != 0) longer.b.stride = matrix_b(longer).vectors * longer.b.ld;

  const LaunchShape shape = launch_shape(longer, config);
  if (shape.partial_bytes > scratch_.workspace_bytes() || shape.counters > scratch_.counters()) return;
  Operands operands = scratch_.operands(0);
  const auto a_bytes = std::size_t(matrix_a(longer).batch_bytes());
  operands.a = scratch_.inputs();
  operands.b = static_cast<const char*>(scratch_.inputs()) + (a_bytes + 255) / 256 * 256;
  Step lead;
  lead.kernel = &runnable.gemm();
  lead.grid = shape;
  lead.set_arguments([&] { return make_arguments(longer, config, shape, operands, scratch_.workspace(), encode_); });
  const auto run_lead = [&](int) { launch(backend_, lead, timer_.stream()); };
  const double lead_us = timer_.time_us(1, run_lead, [&] { run_lead(0); });
  runnable.lead_launches = std::clamp(int(std::ceil(runnable.launches * host_us(runnable) / lead_us)), 1, 16);
  runnable.lead = lead;
}

double Sampler::sample(const Runnable& runnable) {
  std::vector<Call> batch;  // made before the clock starts
  for (int i = 0; i < runnable.launches; ++i) batch.push_back(make_call(runnable, next_set()));
  const auto lead = [&] {
    if (backend_.device().emulated) return;
    for (int i = 0; i < runnable.lead_launches; ++i) {
      runnable.lead ? launch(backend_, *runnable.lead, timer_.stream()) : launch_call(batch.back());
    }
  };
  return timer_.time_us(runnable.launches, [&](int i) { launch_call(batch[std::size_t(i)]); }, lead);
}

Sampler::Call Sampler::make_call(const Runnable& runnable, int set) {
  Call call;
  for_each_step(runnable, problem_, scratch_.operands(set), scratch_.workspace(), encode_,
                [&](const Step& step) { call.push_back(step); });
  return call;
}

void Sampler::launch_call(const Call& call) {
  for (const Step& step : call) launch(backend_, step, timer_.stream());
}

}  // namespace jitgemm
