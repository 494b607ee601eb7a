#include <atomic>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <functional>
#include <mutex>
#include <set>
#include <string>
#include <thread>

#include "exact_memory.hpp"
#include "gemm_cases.hpp"

namespace jitgemm::test {
namespace {

/// Kernels of earlier tests and runs: their key is their whole source.
std::string cache_directory() {
  if (const char* directory = std::getenv("JITGEMM_TEST_CACHE_DIR")) return directory;
  return (std::filesystem::current_path() / "test_kernels").string();
}

Memory allocate(Backend* cuda, std::size_t bytes, std::size_t alignment) {
  if (!cuda) return allocate_exactly(bytes, alignment);
  return {static_cast<char*>(cuda->allocate(bytes)), [cuda](char* data) { cuda->release(data); }};
}

}  // namespace

ContextOptions GemmDevice::emulator(std::uint64_t seed, int sm_count) {
  ContextOptions options;
  options.device = Device::emulator;
  options.architecture = "sm_90a";
  options.tuning = Tuning::off;
  options.cache_dir = cache_directory();
  options.emulator_sm_count = sm_count;
  options.emulator_seed = seed;
  return options;
}

ContextOptions GemmDevice::cuda() {
  ContextOptions options;
  options.tuning = Tuning::off;
  options.cache_dir = cache_directory();
  return options;
}

GemmDevice::GemmDevice(const ContextOptions& options) : context_(options) {
  if (options.device == Device::cuda) cuda_ = make_cuda_backend();
}
GemmDevice::~GemmDevice() = default;
GemmDevice::GemmDevice(GemmDevice&&) noexcept = default;

std::vector<char> GemmDevice::run(const GemmCase& gemm, const GemmInputs& inputs) {
  const auto upload = [this](const std::vector<char>& image, std::size_t alignment) {
    Memory memory = allocate(cuda_.get(), image.size(), alignment);
    if (image.empty()) return memory;
    if (cuda_) {
      cuda_->copy_to_device(memory.get(), image.data(), image.size());
    } else {
      std::memcpy(memory.get(), image.data(), image.size());
    }
    return memory;
  };
  const Memory a = upload(inputs.a, 16), b = upload(inputs.b, 16), c = upload(inputs.c, 16),
               bias = upload(inputs.bias, 16), d = upload(inputs.d, 16);
  const std::vector<char> nan(context_.workspace_size(gemm.problem, gemm.config), char(0xff));
  const Memory workspace = upload(nan, 256);

  Operands operands;
  operands.a = a.get() + gemm.offset_a;
  operands.b = b.get() + gemm.offset_b;
  operands.d = d.get() + d_guard_bytes + gemm.offset_d;
  operands.c = gemm.d_is_c ? operands.d : c.get() + gemm.offset_c;
  operands.bias = bias.get();
  std::vector<char> scale_image(sizeof gemm.scales);
  std::memcpy(scale_image.data(), gemm.scales.data(), scale_image.size());
  const Memory scales = upload(scale_image, 16);
  const auto* scale = reinterpret_cast<const float*>(scales.get());
  if (gemm.scales[0] != 0) operands.scale_a = scale;
  if (gemm.scales[1] != 0) operands.scale_b = scale + 1;
  if (gemm.scales[2] != 0) operands.scale_d = scale + 2;
  const auto upload_scales = [&](const std::vector<float>& scales, Scaling scaling) {
    std::vector<char> image(scales.size() * sizeof(float));
    if (!image.empty()) std::memcpy(image.data(), scales.data(), image.size());
    return upload(image, scaling == Scaling::block_1x128 ? 16 : sizeof(float));  // and no more
  };
  const Memory scales_a = upload_scales(inputs.scales_a, gemm.problem.a.scaling),
               scales_b = upload_scales(inputs.scales_b, gemm.problem.b.scaling);
  if (!inputs.scales_a.empty()) operands.scale_a = reinterpret_cast<const float*>(scales_a.get());
  if (!inputs.scales_b.empty()) operands.scale_b = reinterpret_cast<const float*>(scales_b.get());
  if (!nan.empty()) {
    operands.workspace = workspace.get();
    operands.workspace_bytes = nan.size();
  }
  context_.gemm(gemm.problem, operands, nullptr, gemm.config);

  std::vector<char> result(inputs.d.size());
  if (cuda_) {
    cuda_->synchronize(nullptr);
    cuda_->copy_to_host(result.data(), d.get(), result.size());
  } else {
    std::memcpy(result.data(), d.get(), result.size());
  }
  return result;
}

void GemmDevice::compile(const std::vector<GemmCase>& cases) {
  std::set<std::string> seen;
  std::vector<const GemmCase*> distinct;
  for (const GemmCase& gemm : cases) {
    if (seen.insert(context_.source(gemm.problem, gemm.config)).second) distinct.push_back(&gemm);
  }
  std::atomic<std::size_t> next{0};
  std::mutex mutex;
  std::exception_ptr failure;
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < std::max(1u, std::thread::hardware_concurrency()); ++i) {
    threads.emplace_back([&] {
      try {
        for (std::size_t at = next++; at < distinct.size(); at = next++)
          context_.compile(distinct[at]->problem, distinct[at]->config);
      } catch (...) {
        const std::lock_guard lock(mutex);
        failure = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (failure) std::rethrow_exception(failure);
}

}  // namespace jitgemm::test
