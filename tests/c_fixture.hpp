#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "backend/cuda/cuda_backend.hpp"
#include "c_context.hpp"
#include "fake_gpu.hpp"
#include "fake_nvrtc.hpp"
#include "sandbox.hpp"

namespace jitgemm::test {

/// A CUDA device that is none, options for it, and a problem with its memory.
class CFixture {
 public:
  CFixture() {
    FakeGpu::reset();
    FakeNvrtc::reset();
    cuda::driver_for_tests = &driver;
    cuda::nvrtc_for_tests = &nvrtc;
    for (const void** operand : {&operands.a, &operands.b, &operands.c}) *operand = FakeGpu::allocate(bytes);
    operands.d = FakeGpu::allocate(bytes);
    problem.m = problem.n = problem.k = 64;
    options.tuning = JITGEMM_TUNING_OFF;
    options.cache_dir = cache_path_.c_str();
  }
  ~CFixture() {
    end();
    cuda::driver_for_tests = nullptr;
    cuda::nvrtc_for_tests = nullptr;
    FakeGpu::reset();
  }
  CFixture(const CFixture&) = delete;
  CFixture& operator=(const CFixture&) = delete;

  jitgemm_status begin() {
    end();
    return jitgemm_context_create(&options, &context);
  }
  void end() { jitgemm_context_destroy(std::exchange(context, nullptr)); }
  jitgemm_status gemm(const jitgemm_config* config = nullptr, jitgemm_stream stream = nullptr) {
    return jitgemm_gemm(context, &problem, config, &operands, stream);
  }
  std::uint64_t launches() const {
    auto counters = made_by<jitgemm_counters>(jitgemm_counters_init);
    throw_unless_success(jitgemm_get_counters(context, &counters));
    return counters.launches;
  }

  static constexpr std::size_t bytes = 8192;
  cuda::DriverApi driver = FakeGpu::api();
  cuda::NvrtcApi nvrtc = FakeNvrtc::api();
  jitgemm_options options = made_by<jitgemm_options>(jitgemm_options_init);
  jitgemm_problem problem = made_by<jitgemm_problem>(jitgemm_problem_init);
  jitgemm_operands operands = made_by<jitgemm_operands>(jitgemm_operands_init);
  jitgemm_context* context = nullptr;

 private:
  const TemporaryDirectory cache_;
  const std::string cache_path_ = cache_.path().string();
};

inline jitgemm_config split_config() {
  auto config = made_by<jitgemm_config>(jitgemm_config_init);
  config.block_m = config.block_n = 64;
  config.schedule = JITGEMM_SPLIT_K;
  config.splits = 2;
  return config;
}

}  // namespace jitgemm::test
