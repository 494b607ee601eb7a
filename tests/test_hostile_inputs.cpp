// Inputs that are out to break a Context: each ends in one Error that says what to do, and the next call works, in C++
// and by way of C. What concerns a Problem alone is in test_problem_refusals.cpp, failing CUDA calls in
// test_fault_injection.cpp, what C alone can give in test_c_arguments.cpp.
#include <limits>

#include "backend/cuda/cuda_backend.hpp"
#include "c_context.hpp"
#include "catch.hpp"
#include "errors.hpp"
#include "fake_gpu.hpp"
#include "fake_nvrtc.hpp"
#include "jitgemm/jitgemm.hpp"
#include "sandbox.hpp"

using namespace jitgemm;
using namespace jitgemm::test;
using Catch::Matchers::ContainsSubstring;

namespace {

/// The Error of a call: on one line, and with a way out behind what is wrong.
template <typename Call>
Error refusal(Call&& call) {
  const Error error = error_of(call);
  const std::string text = error.what();
  CHECK(text.find('\n') == std::string::npos);
  CAPTURE(text);
  CHECK((text.find(": ") != std::string::npos || text.find("; ") != std::string::npos));
  return error;
}

constexpr KernelConfig small_sm80{
    .main_loop = MainLoop::sm80, .block_m = 64, .block_n = 64, .block_k = 32, .stages = 3};

/// A CUDA device that is none.
class FakeCuda {
 public:
  FakeCuda() {
    FakeGpu::reset();
    FakeNvrtc::reset();
    cuda::driver_for_tests = &driver;
    cuda::nvrtc_for_tests = &nvrtc;
  }
  ~FakeCuda() {
    cuda::driver_for_tests = nullptr;
    cuda::nvrtc_for_tests = nullptr;
    FakeGpu::reset();
  }
  FakeCuda(const FakeCuda&) = delete;
  FakeCuda& operator=(const FakeCuda&) = delete;

  ContextOptions options() const { return {.tuning = Tuning::off, .cache_dir = cache.path().string()}; }

  const TemporaryDirectory cache;
  cuda::DriverApi driver = FakeGpu::api();
  cuda::NvrtcApi nvrtc = FakeNvrtc::api();
};

/// A small problem and its memory on a FakeCuda or, since that is host memory too, on the emulator.
struct Small {
  const Problem problem{.m = 64, .n = 64, .k = 64};
  Operands operands{.a = FakeGpu::allocate(8192), .b = FakeGpu::allocate(8192), .d = FakeGpu::allocate(8192)};
};

ContextOptions emulator_in(const TemporaryDirectory& cache) {
  return {.device = Device::emulator, .tuning = Tuning::off, .cache_dir = cache.path().string()};
}

/// What the hidden test case `name` prints, in a process of its own with these variables.
std::string in_a_process(const std::string& name, const std::string& environment) {
  const std::string command =
      environment + " '" + std::filesystem::read_symlink("/proc/self/exe").string() + "' '" + name + "' 2>&1";
  FILE* const pipe = popen(command.c_str(), "r");
  if (!pipe) throw std::runtime_error("popen");
  std::string out;
  char piece[4096];
  for (std::size_t n; (n = std::fread(piece, 1, sizeof piece, pipe)) > 0;) out.append(piece, n);
  pclose(pipe);
  return out;
}

}  // namespace

TEMPLATE_TEST_CASE("Values that are no enumerators are refused by name", "[hostile]", Context, CContext) {
  const TemporaryDirectory cache;
  ContextOptions options{.device = Device::compile_only, .architecture = "sm_80", .cache_dir = cache.path().string()};
  TestType context(options);
  const auto refused = [&](auto change, const char* word) {
    Problem problem{.m = 64, .n = 64, .k = 64};
    change(problem);
    const Error error = refusal([&] { context.plan(problem); });
    CHECK(error.code() == ErrorCode::invalid_problem);
    CHECK_THAT(error.what(), ContainsSubstring(word));
  };
  for (const int value : {77, 255}) {
    refused([&](Problem& p) { p.a.type = DataType(value); }, "a = an unknown type");
    refused([&](Problem& p) { p.b.type = DataType(value); }, "b = an unknown type");
    refused([&](Problem& p) { p.a.type = p.b.type = DataType(value); }, "an unknown type");
    refused([&](Problem& p) { p.d.type = DataType(value); }, "d = an unknown type");
    refused([&](Problem& p) { p.a.layout = Layout(value); }, "layout");
    refused([&](Problem& p) { p.b.layout = Layout(value); }, "layout");
    refused([&](Problem& p) { p.epilogue.activation = Activation(value); }, "activation");
    for (Matrix Problem::* const matrix : {&Problem::a, &Problem::b, &Problem::c, &Problem::d})
      refused([&](Problem& p) { (p.*matrix).scaling = Scaling(value); }, "scaling");
    refused([&](Problem& p) { p.accumulation = Accumulation(value); }, "accumulation");

    const auto illegal = [&](auto change) {
      KernelConfig config = small_sm80;
      change(config);
      const Error error = refusal([&] { context.plan({.m = 64, .n = 64, .k = 64}, config); });
      CHECK(error.code() == ErrorCode::invalid_config);
      CHECK_THAT(error.what(), ContainsSubstring("unknown"));
    };
    illegal([&](KernelConfig& c) { c.main_loop = MainLoop(value); });
    illegal([&](KernelConfig& c) { c.schedule = Schedule(value); });

    options.tuning = Tuning(value);
    CHECK_THAT(refusal([&] { TestType made(options); }).what(), ContainsSubstring("use off, cached or on"));
    options.tuning = Tuning::off;
    const Error device = refusal([&] { TestType made({.device = Device(value)}); });
    CHECK(device.code() == ErrorCode::invalid_option);
    CHECK_THAT(device.what(), ContainsSubstring("use cuda, emulator"));
  }
  CHECK_NOTHROW(context.plan({.m = 64, .n = 64, .k = 64}));
}

TEMPLATE_TEST_CASE("Configurations with numbers out of all range are refused", "[hostile]", Context, CContext) {
  const TemporaryDirectory cache;
  TestType context({.device = Device::compile_only, .architecture = "sm_90a", .cache_dir = cache.path().string()});
  constexpr int least = std::numeric_limits<int>::min(), most = std::numeric_limits<int>::max();
  for (const MainLoop main_loop : {MainLoop::sm80, MainLoop::sm90}) {
    for (int KernelConfig::* const field :
         {&KernelConfig::block_m, &KernelConfig::block_n, &KernelConfig::block_k, &KernelConfig::group_m,
          &KernelConfig::stages, &KernelConfig::warps, &KernelConfig::cluster_m, &KernelConfig::cluster_n,
          &KernelConfig::splits, &KernelConfig::grid}) {
      for (const int value : {least, -1, most}) {
        KernelConfig config = main_loop == MainLoop::sm80
                                  ? small_sm80
                                  : KernelConfig{.main_loop = main_loop, .block_k = 64, .stages = 4, .warps = 8};
        config.schedule = field == &KernelConfig::splits ? Schedule::split_k : Schedule::stream_k;
        config.*field = value;
        CAPTURE(to_string(config));
        CHECK(refusal([&] { context.plan({.m = 64, .n = 64, .k = 64}, config); }).code() == ErrorCode::invalid_config);
      }
    }
  }
}

TEMPLATE_TEST_CASE("Memory of the host, of nobody or misaligned is refused on a CUDA device, by the operand's name",
                   "[hostile]", Context, CContext) {
  FakeCuda cuda;
  TestType context(cuda.options());
  Small small;
  Problem problem = small.problem;
  problem.beta = 1;
  small.operands.c = FakeGpu::allocate(8192);
  small.operands.workspace = FakeGpu::allocate(1 << 20);
  small.operands.workspace_bytes = 1 << 20;
  KernelConfig config = small_sm80;
  config.schedule = Schedule::split_k;
  config.splits = 2;
  const Operands good = small.operands;

  alignas(256) static char host[8192];
  const auto refused = [&](const void* bad, const char* word) {
    const auto gemm = [&](const char* name, auto change) {
      Operands operands = good;
      change(operands);
      const Error error = refusal([&] { context.gemm(problem, operands, nullptr, config); });
      CHECK(error.code() == ErrorCode::invalid_operand);
      CHECK_THAT(error.what(), ContainsSubstring(name) && ContainsSubstring(word));
      CHECK_FALSE(error.problem().empty());
    };
    gemm("A", [&](Operands& o) { o.a = bad; });
    gemm("B", [&](Operands& o) { o.b = bad; });
    gemm("C", [&](Operands& o) { o.c = bad; });
    gemm("D", [&](Operands& o) { o.d = const_cast<void*>(bad); });
    gemm("workspace", [&](Operands& o) { o.workspace = const_cast<void*>(bad); });
  };
  refused(host, "points to host memory");
  refused(reinterpret_cast<void*>(std::uintptr_t(0xdead0000)), "points to host memory");
  refused(host + 1, "is not a multiple of");

  cuda.driver.device_get = [](CUdevice* device, int) { return *device = 11, CUDA_SUCCESS; };  // not the Context's
  FakeGpu::pointer_seen = false;
  Operands elsewhere = good;
  elsewhere.a = FakeGpu::allocate(8192);
  CHECK_THAT(refusal([&] { context.gemm(problem, elsewhere, nullptr, config); }).what(),
             ContainsSubstring("A is memory of another device than this Context's"));
  FakeGpu::pointer_seen = true;  // with peer access
  CHECK_NOTHROW(context.gemm(problem, elsewhere, nullptr, config));
}

TEMPLATE_TEST_CASE("A device that is not there, too old or too small is one Error", "[hostile]", Context, CContext) {
  FakeCuda cuda;
  Small small;
  cuda.driver.device_get_count = [](int* count) { return *count = 0, CUDA_SUCCESS; };
  const Error none = refusal([&] { TestType context(cuda.options()); });
  CHECK(none.code() == ErrorCode::no_device);
  CHECK_THAT(none.what(), ContainsSubstring("CUDA_VISIBLE_DEVICES"));
  CHECK(cuda_devices().empty());

  cuda.driver = FakeGpu::api();
  cuda.driver.device_get_attribute = [](int* value, CUdevice_attribute attribute, CUdevice device) {
    if (attribute == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) return *value = 7, CUDA_SUCCESS;
    if (attribute == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR) return *value = 5, CUDA_SUCCESS;
    return FakeGpu::api().device_get_attribute(value, attribute, device);
  };
  const Error old = refusal([&] { TestType context(cuda.options()); });
  CHECK(old.code() == ErrorCode::no_device);
  CHECK_THAT(old.what(), ContainsSubstring("7.5") && ContainsSubstring("8.0"));
  CHECK(FakeGpu::retained == 0);

  cuda.driver.device_get_attribute = [](int* value, CUdevice_attribute attribute, CUdevice device) {
    if (attribute == CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN) return *value = 4096, CUDA_SUCCESS;
    return FakeGpu::api().device_get_attribute(value, attribute, device);
  };
  TestType context(cuda.options());
  const Error pinned = refusal([&] { context.gemm(small.problem, small.operands, nullptr, small_sm80); });
  CHECK(pinned.code() == ErrorCode::invalid_config);
  CHECK_THAT(pinned.what(), ContainsSubstring("bytes of shared memory, the device has 4096"));
  const Error any = refusal([&] { context.gemm(small.problem, small.operands); });
  CHECK(any.code() == ErrorCode::no_device);
  CHECK_THAT(any.what(), ContainsSubstring("shared memory"));
  CHECK(FakeGpu::alive.size() == 1);  // the backend's own stream
}

TEMPLATE_TEST_CASE("A kernel whose text does not compile is one Error with the compiler's log", "[hostile]", Context,
                   CContext) {
  const TemporaryDirectory cache, templates;
  std::filesystem::copy(JITGEMM_SOURCE_DIR "/templates", templates.path(), std::filesystem::copy_options::recursive);
  write_file(templates.path() / "epilogue.cuh", "this is no C++;\n");
  FakeGpu::reset();
  Small small;
  TestType context(emulator_in(cache));
  {
    const ScopedEnvironment broken("JITGEMM_TEMPLATES_DIR", templates.path().c_str());
    const Error error = refusal([&] { context.gemm(small.problem, small.operands, nullptr, small_sm80); });
    CHECK(error.code() == ErrorCode::compile_failed);
    CHECK_THAT(error.log(), ContainsSubstring("this is no C++"));
    CHECK_FALSE(error.config().empty());
    CHECK_FALSE(error.call().empty());
  }
  {
    const ScopedEnvironment nowhere("JITGEMM_TEMPLATES_DIR", "/nowhere");
    const Error error = refusal([&] { context.source(small.problem); });
    CHECK(error.code() == ErrorCode::invalid_option);
    CHECK_THAT(error.what(), ContainsSubstring("JITGEMM_TEMPLATES_DIR") && ContainsSubstring("/nowhere"));
  }
  CHECK_NOTHROW(context.gemm(small.problem, small.operands, nullptr, small_sm80));
  FakeGpu::reset();
}

TEMPLATE_TEST_CASE("Variables with nonsense in them are refused by name, and empty ones do not count", "[hostile]",
                   Context, CContext) {
  const TemporaryDirectory cache, home;
  const std::string endless(100000, '9');
  struct Nonsense {
    const char* variable;
    std::vector<const char*> values;
  };
  const std::vector<Nonsense> all{
      {"JITGEMM_TUNING", {"sometimes", "ON", "on ", "0", endless.c_str(), "\xff\xfe"}},
      {"JITGEMM_CACHE_DIR", {"here", "./cache", "~/cache", "%"}},
      {"JITGEMM_SYSTEM_CACHE_DIR", {"here", "..", "\xff"}},
      {"JITGEMM_CACHE_MAX_BYTES", {"0", "-1", "+1", "1e9", "1 G", "1T", "0x100", " 5", "nan", endless.c_str()}},
      {"JITGEMM_CACHE_COMPILER", {"Exact", "1", "same"}},
      {"JITGEMM_EMULATOR_SEED", {"many", "-1", "1.5", " 1", endless.c_str()}},
      {"JITGEMM_EMULATOR_RESIDENT", {"0", "1025", "-3", "x", endless.c_str()}},
      {"JITGEMM_EMULATOR_ASYNC", {"late", "ISSUE", "issue,wait"}}};
  const ScopedEnvironment own("JITGEMM_CACHE_DIR", cache.path().c_str());
  const ContextOptions options{.device = Device::emulator};
  for (const Nonsense& nonsense : all) {
    for (const char* value : nonsense.values) {
      CAPTURE(nonsense.variable, std::string(value).substr(0, 40));
      const ScopedEnvironment set(nonsense.variable, value);
      const Error error = refusal([&] { TestType context(options); });
      CHECK(error.code() == ErrorCode::invalid_option);
      CHECK_THAT(error.what(), ContainsSubstring(nonsense.variable));
    }
    const ScopedEnvironment empty(nonsense.variable, "");
    const ScopedEnvironment fallback("XDG_CACHE_HOME", home.path().c_str());
    CHECK_NOTHROW(TestType{options});
  }
  FakeGpu::reset();
  Small small;
  TestType context(options);
  {
    const ScopedEnvironment compiler("JITGEMM_CXX", "/nowhere/c++");
    const Error error = refusal([&] { context.gemm(small.problem, small.operands, nullptr, small_sm80); });
    CHECK(error.code() == ErrorCode::no_compiler);
    CHECK_THAT(error.what(), ContainsSubstring("JITGEMM_CXX=/nowhere/c++"));
  }
  {
    const ScopedEnvironment compiler("JITGEMM_CXX", "/bin/true");  // compiles nothing
    const Error error = refusal([&] { context.gemm(small.problem, small.operands, nullptr, small_sm80); });
    CHECK((error.code() == ErrorCode::compile_failed || error.code() == ErrorCode::io));
  }
  FakeGpu::reset();
}

TEST_CASE("A missing NVRTC is one Error of the call that compiles", "[hostile]") {
  const TemporaryDirectory empty;
  CHECK_THAT(in_a_process("an NVRTC that JITGEMM_NVRTC names", "JITGEMM_NVRTC=/nowhere"),
             ContainsSubstring("invalid_option: JITGEMM_NVRTC=/nowhere"));
  CHECK_THAT(in_a_process("an NVRTC that JITGEMM_NVRTC names", "JITGEMM_NVRTC='" + empty.path().string() + "'"),
             ContainsSubstring("invalid_option: JITGEMM_NVRTC="));
  write_file(empty.path() / "libnvrtc.so.13", "no library");
  CHECK_THAT(
      in_a_process("an NVRTC that JITGEMM_NVRTC names", "JITGEMM_NVRTC='" + empty.path().string() + "'"),
      ContainsSubstring("no_compiler: ") && ContainsSubstring("cannot be loaded") && ContainsSubstring("pip install"));
  std::filesystem::remove(empty.path() / "libnvrtc.so.13");
  for (const char* folder :
       {"/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib64", "/usr/lib64", "/lib/aarch64-linux-gnu"}) {
    const std::filesystem::path other = std::filesystem::path(folder) / "libm.so.6";
    if (!std::filesystem::exists(other)) continue;
    CHECK_THAT(in_a_process("an NVRTC that JITGEMM_NVRTC names", "JITGEMM_NVRTC='" + other.string() + "'"),
               ContainsSubstring("no_compiler: ") && ContainsSubstring("nvrtcVersion"));
    break;
  }
}

TEST_CASE("an NVRTC that JITGEMM_NVRTC names", "[.]") {
  const TemporaryDirectory cache;
  Context context({.device = Device::compile_only, .architecture = "sm_80", .cache_dir = cache.path().string()});
  CHECK_NOTHROW(context.plan({.m = 64, .n = 64, .k = 64}));  // compiles nothing
  for (int call = 0; call < 2; ++call) {                     // and is not worse the second time
    const Error error = refusal([&] { context.compile({.m = 64, .n = 64, .k = 64}); });
    std::printf("%s: %s\n", to_string(error.code()).c_str(), error.what());
  }
}

TEMPLATE_TEST_CASE("A workspace that is too small leaves D alone, and the next call works", "[hostile]", Context,
                   CContext) {
  FakeCuda cuda;
  TestType context(cuda.options());
  Small small;
  KernelConfig config = small_sm80;
  config.schedule = Schedule::split_k;
  config.splits = 2;
  const std::size_t needed = context.workspace_size(small.problem, config);
  REQUIRE(needed > 0);
  small.operands.workspace = FakeGpu::allocate(needed);
  std::memset(small.operands.d, 0x5a, 8192);
  for (const std::size_t bytes : {std::size_t(0), std::size_t(1), needed - 1}) {
    small.operands.workspace_bytes = bytes;
    const Error error = refusal([&] { context.gemm(small.problem, small.operands, nullptr, config); });
    CHECK(error.code() == ErrorCode::workspace_too_small);
    CHECK_THAT(error.what(), ContainsSubstring(std::to_string(needed)));
  }
  const auto* const d = static_cast<const unsigned char*>(small.operands.d);
  CHECK(std::all_of(d, d + 8192, [](unsigned char byte) { return byte == 0x5a; }));
  small.operands.workspace_bytes = needed;
  CHECK_NOTHROW(context.gemm(small.problem, small.operands, nullptr, config));
  CHECK(context.counters().launches == 1);
}
