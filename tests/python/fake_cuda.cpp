// The driver and the NVRTC of the fault injection tests as a library that a process opens by name, and what a test
// tells them by ctypes. A function that JITGEMM_FAKE_MISSING names when it is looked up is not there.
#include <bit>
#include <cstdlib>
#include <iterator>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "fake_gpu.hpp"
#include "fake_nvrtc.hpp"
#include "fault_injection.hpp"
#include "fault_results.hpp"

using namespace jitgemm;
using namespace jitgemm::test;

#define EXPORTED extern "C" __attribute__((visibility("default")))

namespace {

constexpr int devices = 2;
std::map<std::uintptr_t, int>& device_of = *new std::map<std::uintptr_t, int>;  // of the test's memory

/// What was put on streams, in lines of a word and the stream. Under FakeGpu::mutex.
std::string& order = *new std::string;

void note(const char* what, CUstream stream) {
  const std::lock_guard lock(FakeGpu::mutex);
  order += std::string(what) + " " + std::to_string(std::bit_cast<std::uintptr_t>(stream)) + "\n";
}

void note_order(cuda::DriverApi& api) {
  api.event_record = [](CUevent event, CUstream stream) {
    note("record", stream);
    static const auto record = FakeGpu::api().event_record;
    return record(event, stream);
  };
  api.stream_wait_event = [](CUstream stream, CUevent event, unsigned flags) {
    note("wait", stream);
    static const auto wait = FakeGpu::api().stream_wait_event;
    return wait(stream, event, flags);
  };
  api.launch_kernel_ex = [](const CUlaunchConfig* config, CUfunction function, void** parameters, void** extra) {
    note("launch", config->hStream);
    static const auto launch = FakeGpu::api().launch_kernel_ex;
    return launch(config, function, parameters, extra);
  };
}

cuda::DriverApi several_gpus() {
  cuda::DriverApi api = FakeGpu::api();
  api.device_get_count = [](int* count) { return *count = devices, FakeGpu::step(); };
  api.pointer_get_attributes = [](unsigned count, CUpointer_attribute* attributes, void** values, CUdeviceptr pointer) {
    {
      const std::lock_guard lock(FakeGpu::mutex);
      const auto after = device_of.upper_bound(pointer);
      FakeGpu::pointer_device = after == device_of.begin() ? 0 : std::prev(after)->second;
    }
    static const auto ask = FakeGpu::api().pointer_get_attributes;
    return ask(count, attributes, values, pointer);
  };
  note_order(api);
  return api;
}

std::mutex& compiling = *new std::mutex;  // helper threads, one at a time; held by who wants them to wait

cuda::NvrtcApi patient_nvrtc() {
  cuda::NvrtcApi api = FakeNvrtc::api();
  api.compile_program = [](nvrtcProgram program, int count, const char* const* options) {
    std::unique_lock lock(compiling, std::defer_lock);
    if (std::this_thread::get_id() != Faults::main_thread) lock.lock();
    static const auto compile = FakeNvrtc::api().compile_program;
    return compile(program, count, options);
  };
  return api;
}

/// The one that is current on the test's thread, and is nothing to the library.
CUcontext own_context() { return FakeGpu::context(9); }

[[maybe_unused]] const bool ready = [] {
  unwrapped<cuda::DriverApi> = several_gpus();
  unwrapped<cuda::NvrtcApi> = patient_nvrtc();
  Faults::reset();
  FakeGpu::current = own_context();
  return true;
}();

const char* kept(std::string text) {
  static std::string& last = *new std::string;
  return (last = std::move(text)).c_str();
}

}  // namespace

void (*fake_symbol(const char* name))() {
  const char* const missing = std::getenv("JITGEMM_FAKE_MISSING");
  if (missing && std::string(missing) == name) return nullptr;
  void* const driver = symbols<DriverFunctions>()(name);
  return reinterpret_cast<void (*)()>(driver ? driver : symbols<NvrtcFunctions>()(name));
}

/// The names that are looked up, one a line.
EXPORTED const char* fake_names() {
  return
#define FAKE_FUNCTION(name) #name "\n"
#include "fake_functions.def"
      ;
}
/// What a function may plausibly answer when it fails, lines of its name and number, the likeliest first.
EXPORTED const char* fake_failures(const char* function) {
  std::string text;
  for (const int result : failures_of(function))
    text += name_of(function, result) + " " + std::to_string(result) + "\n";
  return kept(text);
}

/// Counts from zero, and lets the call of that number fail; `function` may be null.
EXPORTED void fake_arm(const char* function, int helper_thread, int occurrence, int result) {
  const std::lock_guard lock(Faults::mutex);
  Faults::arm({function ? function : "", helper_thread != 0, occurrence, result});
  Faults::always.clear();
}
/// Beside, each call of a function fails.
EXPORTED void fake_fail_always(const char* function, int result) {
  const std::lock_guard lock(Faults::mutex);
  Faults::always[function] = result;
}
EXPORTED int fake_fired() { return Faults::fired; }
/// Lines of a function that can fail, whether a helper thread has called it, and how often.
EXPORTED const char* fake_counts() {
  const std::lock_guard lock(Faults::mutex);
  std::string text;
  const auto add = [&](auto function) {
    for (const bool helper_thread : {false, true}) {
      const auto found = Faults::counts.find({function.text, helper_thread});
      if (!function.can_fail || found == Faults::counts.end()) continue;
      text += std::string(function.text) + (helper_thread ? " 1 " : " 0 ") + std::to_string(found->second) + "\n";
    }
  };
  for_each_function<DriverFunctions>(add);
  for_each_function<NvrtcFunctions>(add);
  return kept(text);
}

/// Helper threads wait before they compile, until they are let go.
EXPORTED void fake_hold_compiling() { compiling.lock(); }
EXPORTED void fake_let_compile() { compiling.unlock(); }

/// How much is alive of what a library makes.
EXPORTED int fake_alive() {
  const std::scoped_lock lock(FakeGpu::mutex, FakeNvrtc::mutex, FakeGraphs::mutex);
  return int(FakeGpu::alive.size() + FakeNvrtc::alive.size() + FakeGraphs::handles.size()) + FakeGpu::retained +
         FakeGraphs::objects_alive;
}
/// Whether this thread's CUDA context and capture mode are its own; makes them so again.
EXPORTED int fake_restore_thread() {
  const bool same = FakeGpu::current == own_context() && FakeGpu::stack.empty() &&
                    FakeGpu::capture_mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
  FakeGpu::current = own_context();
  FakeGpu::stack.clear();
  FakeGpu::capture_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  return same;
}

/// Lines of what was put on streams since it was asked last: record or wait, of an event, or launch, and the stream.
EXPORTED const char* fake_order() {
  const std::lock_guard lock(FakeGpu::mutex);
  return kept(std::exchange(order, {}));
}

EXPORTED void* fake_allocate(std::size_t bytes, int device) {
  void* const made = FakeGpu::allocate(bytes);
  const std::lock_guard lock(FakeGpu::mutex);
  device_of[std::bit_cast<std::uintptr_t>(made)] = device;
  return made;
}

EXPORTED void fake_begin_capture(CUstream stream) { FakeGraphs::begin(stream); }
EXPORTED CUgraph fake_end_capture(CUstream stream) { return FakeGraphs::end(stream); }
EXPORTED int fake_launch_graph(CUgraph graph) { return FakeGraphs::launch(graph); }
EXPORTED void fake_destroy_graph(CUgraph graph) { FakeGraphs::destroy(graph); }
