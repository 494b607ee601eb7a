#include "backend/cuda/nvrtc.hpp"

#include <thread>

#include "backend/backend.hpp"
#include "catch.hpp"
#include "errors.hpp"
#include "nvrtc.hpp"
#include "sandbox.hpp"

using namespace jitgemm;
using namespace jitgemm::test;
using Catch::Matchers::ContainsSubstring;

namespace {

KernelSource kernel(const std::string& text, const std::string& architecture = "sm_90a") {
  return {.text = text, .entry = "f", .architecture = architecture, .config = "a configuration"};
}

const std::string add_one = R"(extern "C" __global__ void f(float* x) {
  __shared__ float s[256];
  s[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  x[threadIdx.x] = s[255 - threadIdx.x] + 1;
}
)";

}  // namespace

TEST_CASE("NVRTC makes a cubin and says what it needs", "[cuda]") {
  if (!nvrtc_for()) SKIP(no_nvrtc);
  const KernelBinary binary = cuda::compile(cuda::nvrtc(), kernel(add_one));
  CHECK(binary.code.substr(0, 4) ==
        "\x7f"
        "ELF");
  CHECK(binary.entry == "f");
  CHECK(binary.architecture == "sm_90a");
  CHECK_THAT(binary.compiler, ContainsSubstring("nvrtc 1"));
  CHECK(binary.registers >= 6);
  CHECK(binary.registers <= 255);
  CHECK(binary.spill_bytes == 0);
  CHECK(binary.static_smem_bytes == 1024);

  // 255 registers a thread are not to be had with 1024 threads.
  const KernelBinary spilling = cuda::compile(cuda::nvrtc(), kernel(R"(
extern "C" __global__ void __launch_bounds__(1024, 1) f(float* x, int n) {
  float v[128];
#pragma unroll
  for (int i = 0; i < 128; ++i) v[i] = x[i * n];
  __syncthreads();
#pragma unroll
  for (int i = 0; i < 128; ++i) x[i * n + 1] = v[i] * v[(i * 7 + 3) % 128];
})"));
  CHECK(spilling.registers <= 64);
  CHECK(spilling.spill_bytes > 0);
}

TEST_CASE("a kernel that does not compile gives the log with the line of the text", "[cuda]") {
  if (!nvrtc_for()) SKIP(no_nvrtc);
  const Error error = error_of([] {
    cuda::compile(cuda::nvrtc(),
                  kernel("extern \"C\" __global__ void f(float* x) {\n  x[0] = 1;\n  x[1] = nonsense;\n}\n"));
  });
  CHECK(error.code() == ErrorCode::compile_failed);
  CHECK_THAT(error.what(), ContainsSubstring("f.cu(3)") && ContainsSubstring("nonsense"));
  CHECK_THAT(error.log(), ContainsSubstring("f.cu(3)"));
  CHECK(error.call() == "nvrtcCompileProgram");
  CHECK(error.config() == "a configuration");
  CHECK(std::string(error.what()).find('\n') == std::string::npos);

  const Error assembly = error_of(
      [] { cuda::compile(cuda::nvrtc(), kernel("extern \"C\" __global__ void f() { asm volatile(\"no.such;\"); }")); });
  CHECK(assembly.code() == ErrorCode::compile_failed);
  CHECK_THAT(assembly.what(), ContainsSubstring("ptxas"));
}

TEST_CASE("a kernel that loses setmaxnreg or the asynchrony of wgmma is refused", "[cuda]") {
  if (!nvrtc_for()) SKIP(no_nvrtc);
  // Without launch bounds, ptxas ignores setmaxnreg and compiles on.
  const std::string text = R"(void f(float* x) {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
  x[threadIdx.x] = 1;
})";
  const Error error = error_of([&] { cuda::compile(cuda::nvrtc(), kernel("extern \"C\" __global__ " + text)); });
  CHECK(error.code() == ErrorCode::compile_failed);
  CHECK_THAT(error.what(), ContainsSubstring("C7508"));
  CHECK_THAT(error.log(), ContainsSubstring("setmaxnreg"));
  CHECK_NOTHROW(cuda::compile(cuda::nvrtc(), kernel("extern \"C\" __global__ __launch_bounds__(128, 1) " + text)));

  static std::string log;
  cuda::NvrtcApi api = cuda::nvrtc();
  api.get_program_log_size = [](nvrtcProgram, std::size_t* size) { return *size = log.size() + 1, NVRTC_SUCCESS; };
  api.get_program_log = [](nvrtcProgram, char* out) { return std::strcpy(out, log.c_str()), NVRTC_SUCCESS; };
  log = "ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized due to ...";
  CHECK_THAT(error_of([&] { cuda::compile(api, kernel(add_one)); }).what(), ContainsSubstring("serialized"));
  log = "ptxas info    : (C7600) something else, in function EC75101";
  CHECK_NOTHROW(cuda::compile(api, kernel(add_one)));
}

TEST_CASE("an architecture that this NVRTC does not know asks for a newer one", "[cuda]") {
  if (!nvrtc_for()) SKIP(no_nvrtc);
  const Error error = error_of([] { cuda::compile(cuda::nvrtc(), kernel(add_one, "sm_990a")); });
  CHECK(error.code() == ErrorCode::no_compiler);
  CHECK_THAT(error.what(), ContainsSubstring("sm_990a") && ContainsSubstring("JITGEMM_NVRTC"));
}

TEST_CASE("threads compile side by side", "[cuda]") {
  if (!nvrtc_for()) SKIP(no_nvrtc);
  std::vector<KernelBinary> binaries(4);
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < binaries.size(); ++i) {
    threads.emplace_back([&, i] {
      binaries[i] =
          cuda::compile(cuda::nvrtc(), kernel(add_one + "// " + std::to_string(i), i % 2 ? "sm_80" : "sm_90a"));
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (std::size_t i = 0; i < binaries.size(); ++i) {
    CHECK(binaries[i].architecture == (i % 2 ? "sm_80" : "sm_90a"));
    CHECK(binaries[i].code.size() > 1000);
  }
}

TEST_CASE("registers, spills and shared memory are read from ptxas's report", "[cuda]") {
  const cuda::PtxasInfo info = cuda::parse_ptxas_info(
      "ptxas info    : 0 bytes gmem\n"
      "ptxas         .     32 bytes stack frame, 28 bytes spill stores, 36 bytes spill loads\n"
      "ptxas info    : Used 168 registers, used 9 barriers, 1056 bytes smem, 600 bytes cmem[0]\n");
  CHECK(info.registers == 168);
  CHECK(info.spill_bytes == 64);
  CHECK(info.static_smem_bytes == 1056);
  CHECK(cuda::parse_ptxas_info("").registers == 0);
}

TEST_CASE("a missing NVRTC is one Error with the way out", "[cuda]") {
  const Error error = error_of([] { cuda::load_nvrtc({"/nowhere/libnvrtc.so.13", "/nowhere/libnvrtc.so.12"}); });
  CHECK(error.code() == ErrorCode::no_compiler);
  CHECK_THAT(error.what(), ContainsSubstring("JITGEMM_NVRTC"));
  CHECK_THAT(error_of([] { cuda::load_nvrtc({"libm.so.6"}); }).what(), ContainsSubstring("libm.so.6 is no NVRTC"));
}

TEST_CASE("JITGEMM_NVRTC names a library, or a folder that has one", "[cuda]") {
  const TemporaryDirectory directory;
  const auto wheel = directory.path() / "site-packages/nvidia/cu13/lib";
  std::filesystem::create_directories(wheel);
  write_file(wheel / "libnvrtc.so.13", "");
  {
    const ScopedEnvironment named("JITGEMM_NVRTC", (directory.path() / "site-packages").c_str());
    CHECK(cuda::nvrtc_libraries() == std::vector<std::string>{(wheel / "libnvrtc.so.13").string()});
  }
  {
    const ScopedEnvironment named("JITGEMM_NVRTC", (wheel / "libnvrtc.so.13").c_str());
    CHECK(cuda::nvrtc_libraries() == std::vector<std::string>{(wheel / "libnvrtc.so.13").string()});
  }
  {
    const ScopedEnvironment named("JITGEMM_NVRTC", "/nowhere");
    const Error error = error_of([] { cuda::nvrtc_libraries(); });
    CHECK(error.code() == ErrorCode::invalid_option);
    CHECK_THAT(error.what(), ContainsSubstring("JITGEMM_NVRTC=/nowhere"));
  }
  const ScopedEnvironment unnamed("JITGEMM_NVRTC", nullptr), home("CUDA_HOME", "/a/toolkit");
  const std::vector<std::string> libraries = cuda::nvrtc_libraries();
  CHECK(libraries.front() == "libnvrtc.so.13");
  CHECK(std::count(libraries.begin(), libraries.end(), "/a/toolkit/lib64/libnvrtc.so.12") == 1);
}

TEST_CASE("the compile-only backend compiles, and refuses what needs a device", "[cuda]") {
  const auto backend = make_compile_only_backend("sm_80");
  CHECK(backend->device().compute_capability == 80);
  CHECK(error_of([&] { backend->allocate(1); }).code() == ErrorCode::no_device);
  CHECK(error_of([&] { backend->load({}, 0); }).code() == ErrorCode::no_device);
  CHECK(error_of([&] { backend->create_stream(); }).code() == ErrorCode::no_device);
  CHECK(error_of([] { make_compile_only_backend("sm_oops"); }).code() == ErrorCode::invalid_option);
  if (!nvrtc_for()) SKIP(no_nvrtc);
  CHECK(backend->compile(kernel(add_one, "sm_80")).registers > 0);
}
