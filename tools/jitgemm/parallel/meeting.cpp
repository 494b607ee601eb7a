#include "parallel/meeting.hpp"

#include <algorithm>
#include <chrono>

#include "backend/backend.hpp"
#include "measure/inputs.hpp"

namespace jitgemm::cli {
namespace {

using Clock = std::chrono::steady_clock;

// Read, not written: what is left in the L2 need not be written back while something is timed.
constexpr const char* text = R"(
extern "C" __global__ void read_all(const uint4* from, unsigned long long count, unsigned int* never) {
  unsigned int bits = 0;
  for (unsigned long long i = blockIdx.x * 256ull + threadIdx.x; i < count; i += gridDim.x * 256ull) {
    const uint4 x = from[i];
    bits |= x.x | x.y | x.z | x.w;
  }
  if (bits != 0) *never = bits;
}
)";
constexpr int threads = 256;

}  // namespace

Meeting::Meeting(Backend& backend, Stream stream, Nccl& nccl)
    : backend_(backend),
      stream_(stream),
      nccl_(nccl),
      other_(backend, InputPools::rotation_bytes),
      value_(backend, 2 * sizeof(double)),
      read_other_(backend, text, "read_all"),
      lead_(backend),
      interval_(backend) {
  backend.zero(other_.data(), other_.bytes());
  backend.zero(value_.data(), value_.bytes());
}

void Meeting::begin_together(double lead_us) {
  const void* from = other_.data();
  unsigned long long count = other_.bytes() / 16;
  void* never = value_.data();
  void* parameters[] = {&from, &count, &never};
  read_other_.launch(8 * backend_.device().sm_count, threads, parameters, stream_);
  nccl_.all_max(value_.data(), value_.data() + sizeof(double), 1, stream_);
  lead_.spin(lead_us, stream_);
}

double Meeting::time_us(const Enqueued& enqueued) {
  begin_together(enqueued.lead_us);
  interval_.begin(stream_);
  enqueued.launch();
  interval_.end(stream_);
  return interval_.us();
}

double Meeting::warm_up_us(Enqueued& enqueued) {
  begin_together(enqueued.lead_us);
  interval_.begin(stream_);
  const auto begin = Clock::now();
  enqueued.launch();
  const double host_us = std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
  interval_.end(stream_);
  const double us = interval_.us();
  enqueued.lead_us = std::max(enqueued.lead_us, 1.5 * largest(host_us));
  return us;
}

double Meeting::largest(double value) {
  backend_.copy_to_device(value_.data(), &value, sizeof value);
  nccl_.all_max(value_.data(), value_.data() + sizeof value, 1, stream_);
  backend_.synchronize(stream_);
  backend_.copy_to_host(&value, value_.data() + sizeof value, sizeof value);
  backend_.zero(value_.data(), sizeof value);
  return value;
}

}  // namespace jitgemm::cli
