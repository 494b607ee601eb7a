// Each status by way of C, and the last error of each thread.
#include <barrier>
#include <cstdint>
#include <filesystem>
#include <set>
#include <string>
#include <thread>

#include "c_fixture.hpp"
#include "catch.hpp"

using namespace jitgemm;
using namespace jitgemm::test;
using Catch::Matchers::ContainsSubstring;

namespace {

/// The kernels' templates without the barrier that lets threads read what others have loaded.
void write_broken_templates(const std::filesystem::path& to) {
  std::filesystem::copy(JITGEMM_SOURCE_DIR "/templates", to, std::filesystem::copy_options::recursive);
  std::string text = file_text(to / "mainloop_sm80.cuh");
  const std::string barrier = "ptx::bar_sync(0, THREADS);               //";
  const std::size_t at = text.find(barrier);
  REQUIRE(at != std::string::npos);
  write_file(to / "mainloop_sm80.cuh", text.replace(at, barrier.size(), "//"));
}

}  // namespace

TEST_CASE("Each status is what some call comes to", "[c]") {
  CFixture f;
  std::set<jitgemm_status> reached;
  const auto reach = [&](jitgemm_status status) {
    INFO(jitgemm_status_name(status) << ": " << jitgemm_last_error_message());
    CHECK(reached.insert(status).second);
    if (status != JITGEMM_STATUS_SUCCESS) {
      CHECK(jitgemm_last_error_status() == status);
      CHECK(std::string(jitgemm_last_error_message()).size() > 20);
    }
    return status;
  };
  // Of arguments.
  CHECK(reach(f.begin()) == JITGEMM_STATUS_SUCCESS);
  f.problem.m = -1;
  CHECK(reach(f.gemm()) == JITGEMM_STATUS_INVALID_PROBLEM);
  f.problem.m = 64;
  std::swap(f.operands.a, f.operands.c);
  f.operands.a = nullptr;
  CHECK(reach(f.gemm()) == JITGEMM_STATUS_INVALID_OPERAND);
  CHECK_THAT(jitgemm_last_error_problem(), ContainsSubstring("m=64 n=64 k=64"));
  f.operands.a = f.operands.c;
  jitgemm_config config = split_config();
  config.block_m = 63;
  CHECK(reach(f.gemm(&config)) == JITGEMM_STATUS_INVALID_CONFIG);
  CHECK_THAT(jitgemm_last_error_config(), ContainsSubstring("sm80 63x64x32"));
  CHECK(reach(f.gemm(reinterpret_cast<jitgemm_config*>(&f.problem))) == JITGEMM_STATUS_INVALID_ARGUMENT);
  char text[2];
  CHECK(reach(jitgemm_problem_to_string(&f.problem, text, 2, nullptr)) == JITGEMM_STATUS_BUFFER_TOO_SMALL);
  config = split_config();
  f.operands.workspace = FakeGpu::allocate(256);
  CHECK(reach(f.gemm(&config)) == JITGEMM_STATUS_WORKSPACE_TOO_SMALL);
  f.operands.workspace = nullptr;

  // Of the driver and NVRTC.
  f.driver.mem_alloc = [](CUdeviceptr*, std::size_t) { return CUDA_ERROR_OUT_OF_MEMORY; };
  CHECK(reach(f.gemm(&config)) == JITGEMM_STATUS_OUT_OF_MEMORY);
  CHECK_THAT(jitgemm_last_error_call(), ContainsSubstring("cuMemAlloc"));
  f.driver = FakeGpu::api();
  f.driver.launch_kernel_ex = [](const CUlaunchConfig*, CUfunction, void**, void**) {
    return CUDA_ERROR_ILLEGAL_ADDRESS;
  };
  CHECK(reach(f.gemm()) == JITGEMM_STATUS_LAUNCH_FAILED);
  f.driver = FakeGpu::api();
  f.driver.graph_retain_user_object = [](auto...) { return CUDA_ERROR_NOT_SUPPORTED; };
  const auto stream = reinterpret_cast<jitgemm_stream>(std::uintptr_t(0x5000));
  FakeGraphs::begin(stream);
  CHECK(reach(f.gemm(&config, stream)) == JITGEMM_STATUS_NOT_CAPTURABLE);
  FakeGraphs::destroy(FakeGraphs::end(stream));
  f.driver = FakeGpu::api();
  f.problem.k = 72;
  f.driver.module_load_data = [](CUmodule*, const void*) { return CUDA_ERROR_NO_BINARY_FOR_GPU; };
  config.stages = 4;
  CHECK(reach(f.gemm(&config)) == JITGEMM_STATUS_LOAD_FAILED);
  f.driver = FakeGpu::api();
  f.nvrtc.compile_program = [](nvrtcProgram, int, const char* const*) { return NVRTC_ERROR_COMPILATION; };
  config.stages = 5;
  CHECK(reach(f.gemm(&config)) == JITGEMM_STATUS_COMPILE_FAILED);
  CHECK_THAT(jitgemm_last_error_log(), ContainsSubstring("made_to_fail"));
  f.nvrtc = FakeNvrtc::api();
  f.problem.k = 64;
  f.driver.tensor_map_encode_tiled = [](CUtensorMap*, auto...) { return CUDA_ERROR_INVALID_VALUE; };
  config = split_config();
  config.main_loop = JITGEMM_MAIN_LOOP_SM90;
  config.block_m = 64, config.block_k = 64, config.splits = 1;
  config.schedule = JITGEMM_DATA_PARALLEL;
  CHECK(reach(f.gemm(&config)) == JITGEMM_STATUS_INTERNAL);
  f.driver = FakeGpu::api();
  f.driver.device_get_count = [](int* count) { return *count = 0, CUDA_SUCCESS; };
  CHECK(reach(f.begin()) == JITGEMM_STATUS_NO_DEVICE);
  f.driver = FakeGpu::api();

  // Of the emulator, the options and files.
  f.options.device = JITGEMM_DEVICE_EMULATOR;
  f.options.emulator_sm_count = 0;
  CHECK(reach(f.begin()) == JITGEMM_STATUS_INVALID_OPTION);
  f.options.emulator_sm_count = 4;
  f.options.emulator_seed = 1;
  REQUIRE(f.begin() == JITGEMM_STATUS_SUCCESS);
  {
    const ScopedEnvironment compiler("JITGEMM_CXX", "/nowhere/c++");
    CHECK(reach(f.gemm()) == JITGEMM_STATUS_NO_COMPILER);
  }
  {
    const ScopedEnvironment nowhere("TMPDIR", "/nowhere");
    CHECK(reach(f.gemm()) == JITGEMM_STATUS_IO);
    CHECK_THAT(jitgemm_last_error_message(), ContainsSubstring("/nowhere"));
  }
  {
    const TemporaryDirectory templates;
    write_broken_templates(templates.path());
    const ScopedEnvironment folder("JITGEMM_TEMPLATES_DIR", templates.path().c_str());
    CHECK(reach(f.gemm()) == JITGEMM_STATUS_EMULATOR_FAULT);
    CHECK_THAT(jitgemm_last_error_log(), ContainsSubstring("block"));
  }

  const auto stops = [](void*, std::int32_t, std::int32_t) { return 3; };
  f.options.device = JITGEMM_DEVICE_CUDA;
  REQUIRE(f.begin() == JITGEMM_STATUS_SUCCESS);
  CHECK(reach(jitgemm_tune(f.context, &f.problem, stops, nullptr, nullptr)) == JITGEMM_STATUS_INTERRUPTED);

  // Of ranks that multiply together: test_c_tensor_parallel.cpp.
  reached.insert({JITGEMM_STATUS_PEER_LOST, JITGEMM_STATUS_COMMUNICATOR_FAILED});
  for (std::int32_t status = 0; status < 1024; ++status) {
    INFO(status);
    CHECK(reached.contains(jitgemm_status(status)) == (jitgemm_status_name(status) != std::string("unknown")));
  }
}

TEST_CASE("Each thread has its own last error, which successes leave alone", "[c]") {
  CHECK(jitgemm_config_parse("sm80 1x", nullptr) == JITGEMM_STATUS_INVALID_ARGUMENT);
  const std::string mine = jitgemm_last_error_message();
  std::barrier both(2);
  std::string theirs[2];
  const auto fail = [&](int i) {
    CHECK(jitgemm_last_error_status() == JITGEMM_STATUS_SUCCESS);  // of a new thread
    CHECK(jitgemm_last_error_message() == std::string());
    CHECK(jitgemm_last_error_log() == std::string());
    both.arrive_and_wait();
    auto problem = made_by<jitgemm_problem>(jitgemm_problem_init);
    for (int round = 0; round < 100; ++round)
      jitgemm_problem_parse(("m=1 word" + std::to_string(i) + "=2").c_str(), &problem);
    both.arrive_and_wait();
    theirs[i] = jitgemm_last_error_message();
    CHECK(jitgemm_problem_parse("m=1 n=1 k=1", &problem) == JITGEMM_STATUS_SUCCESS);
    CHECK(jitgemm_last_error_status() == JITGEMM_STATUS_INVALID_PROBLEM);
    CHECK(jitgemm_last_error_message() == theirs[i]);
  };
  std::thread one([&] { fail(0); }), other([&] { fail(1); });
  one.join();
  other.join();
  CHECK_THAT(theirs[0], ContainsSubstring("word0"));
  CHECK_THAT(theirs[1], ContainsSubstring("word1"));
  CHECK(jitgemm_last_error_message() == mine);
}
