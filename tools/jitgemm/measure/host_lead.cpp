#include "measure/host_lead.hpp"

#include <dlfcn.h>

#include "backend/cuda/driver_api.hpp"

namespace jitgemm::cli {
namespace {

constexpr const char* text = R"(
extern "C" __global__ void spin(unsigned long long nanoseconds) {
  unsigned long long begin, now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
  do {
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  } while (now - begin < nanoseconds);
}
)";

using EventQuery = decltype(&cuEventQuery);

EventQuery load_event_query() {
  void* const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  void* const function = library ? dlsym(library, "cuEventQuery") : nullptr;
  if (!function) throw Error(ErrorCode::no_device, "the CUDA driver has no cuEventQuery: leave --eager out");
  return reinterpret_cast<EventQuery>(function);
}

}  // namespace

HostLead::HostLead(Backend& backend) : kernel_(backend, text, "spin") {}

void HostLead::spin(double us, Stream stream) const {
  auto nanoseconds = static_cast<unsigned long long>(1e3 * us);
  void* parameters[] = {&nanoseconds};
  kernel_.launch(1, 1, parameters, stream);
}

bool event_passed(void* event) {
  static const EventQuery query = load_event_query();
  const CUresult result = query(static_cast<CUevent>(event));
  if (result == CUDA_ERROR_NOT_READY) return false;
  cuda::check(cuda::driver(), result, ErrorCode::launch_failed, "cuEventQuery", "leave --eager out");
  return true;
}

}  // namespace jitgemm::cli
