#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "core/kernel_interface.hpp"
#include "fake_check.hpp"
#include "fake_driver.hpp"
#include "jitgemm/types.hpp"
#include "reference.hpp"

namespace jitgemm::test {

/// FakeDriver with memory that holds something and kernels that multiply: D = A * B of row-major f16, or of what
/// FakeNvrtc says computes it as D^T = B^T * A^T. An access outside of live memory, or a launch whose counters are not
/// zero, ends as on a GPU.
struct FakeGpu : FakeDriver {
  static inline std::map<std::uintptr_t, std::size_t> memory;  // live, by address
  static inline std::map<const void*, std::string> modules;
  static inline std::mutex executing;       // one kernel at a time
  static inline bool slow_packing = false;  // leaves time for another thread's launch before the GEMM kernel

  static void reset() {
    FakeDriver::reset();
    for (const auto& [begin, bytes] : memory)
      if (!is_at_fixed_place(begin)) std::free(reinterpret_cast<void*>(begin));
    memory.clear();
    fixed_bytes = 0;
    modules.clear();
    slow_packing = false;
  }

  /// Memory of the test's own, which is not in the books of what is alive.
  static void* allocate(std::size_t bytes) {
    void* const made = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
    const std::lock_guard lock(mutex);
    memory[std::bit_cast<std::uintptr_t>(made)] = bytes;
    return made;
  }

  /// The same, at addresses that are the same in each process, where the kernel allows it, and after each reset(): a
  /// Context keeps some of what it knows by the hash of an address, so how often it asks the driver again hangs on
  /// them.
  static void* allocate_at_fixed_place(std::size_t bytes) {
    const std::lock_guard lock(mutex);
    const std::size_t begin = fixed_bytes;
    fixed_bytes += (bytes + 255) / 256 * 256;
    if (fixed_bytes > fixed_room) throw std::bad_alloc();
    void* const made = fixed_place() + begin;
    memory[std::bit_cast<std::uintptr_t>(made)] = bytes;
    return made;
  }
  static constexpr std::size_t fixed_room = 1 << 20;
  static inline std::size_t fixed_bytes = 0;  // taken
  static char* fixed_place() {
    static char* const place = [] {
      void* const wish = reinterpret_cast<void*>(std::uintptr_t(0x2000'0000'0000));
      void* const made = mmap(wish, fixed_room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      return made == MAP_FAILED ? throw std::bad_alloc() : static_cast<char*>(made);
    }();
    return place;
  }
  static bool is_at_fixed_place(std::uintptr_t address) {
    return address - std::bit_cast<std::uintptr_t>(fixed_place()) < fixed_room;
  }

  static bool holds(const void* begin, std::size_t bytes) {
    const auto address = std::bit_cast<std::uintptr_t>(begin);
    const std::lock_guard lock(mutex);
    auto found = memory.upper_bound(address);
    return found != memory.begin() && (--found)->first + found->second >= address + bytes;
  }
  static bool holds(CUdeviceptr begin, std::size_t bytes) { return holds(reinterpret_cast<void*>(begin), bytes); }

  static CUresult copy(void* to, const void* from, const void* device, std::size_t bytes) {
    if (const CUresult result = unsafe_work(); result != CUDA_SUCCESS) return result;
    if (!holds(device, bytes)) return CUDA_ERROR_INVALID_VALUE;
    std::memmove(to, from, bytes);
    return CUDA_SUCCESS;
  }

  static CUresult pack(const device::PackArguments& x) {
    const std::lock_guard lock(executing);
    for (const device::PackedOperand& operand : x.operands) {
      if (operand.blocks == 0) continue;
      const std::size_t row_bytes = std::size_t(operand.row_chunks) * 16,
                        bytes = std::size_t(operand.extent) * size_of(f16);
      for (int row = 0; row < operand.vectors * operand.batch; ++row) {
        const char* const from =
            static_cast<const char*>(operand.source) +
            std::size_t(row / operand.vectors * operand.stride + row % operand.vectors * operand.ld) * size_of(f16);
        char* const to = static_cast<char*>(operand.packed) + std::size_t(row) * row_bytes;
        if (!holds(from, bytes) || !holds(to, row_bytes)) return CUDA_ERROR_ILLEGAL_ADDRESS;
        std::memset(to, 0, row_bytes);
        std::memcpy(to, from, bytes);
      }
    }
    if (slow_packing) std::this_thread::sleep_for(std::chrono::microseconds(20));
    return CUDA_SUCCESS;
  }

  static CUresult check(const device::CheckArguments& x, int blocks) {
    const std::lock_guard lock(executing);
    const bool by_element = x.task == device::CheckTask::recompute || x.task == device::CheckTask::read;
    const std::size_t count = x.task == device::CheckTask::read ? std::size_t(x.element_count) : std::size_t(blocks);
    if (by_element ? !holds(x.elements, count * sizeof *x.elements) : !holds(x.chunks, count * sizeof *x.chunks))
      return CUDA_ERROR_ILLEGAL_ADDRESS;
    if (!holds(x.d, std::size_t((x.m - 1) * x.row_d + x.n) * size_of(f16))) return CUDA_ERROR_ILLEGAL_ADDRESS;
    if (x.accepted && !holds(x.accepted, std::size_t(x.m) * std::size_t(x.n) * size_of(f16)))
      return CUDA_ERROR_ILLEGAL_ADDRESS;
    FakeCheck(x, f16).run(blocks);
    return CUDA_SUCCESS;
  }

  static CUresult multiply(const device::Arguments& given, bool transposed) {
    const std::lock_guard lock(executing);
    device::Arguments x = given;
    if (transposed) {
      std::swap(x.a, x.b);
      std::swap(x.lda, x.ldb);
      std::swap(x.m, x.n);
    }
    const auto span = [](int rows, int columns, long long ld) {
      return std::size_t((rows - 1) * ld + columns) * size_of(f16);
    };
    if (x.k > 0 && (!holds(x.a, span(x.m, x.k, x.lda)) || !holds(x.b, span(x.k, x.n, x.ldb))))
      return CUDA_ERROR_ILLEGAL_ADDRESS;
    if (!holds(x.d, span(x.m, x.n, x.ldd))) return CUDA_ERROR_ILLEGAL_ADDRESS;
    if (x.decomposition.splits > 1 || x.decomposition.stream_k_tiles > 0) {
      if (!holds(x.partials, 4) || !holds(x.counters, 4) || *x.counters != 0) return CUDA_ERROR_ILLEGAL_ADDRESS;
    }
    const std::vector<float> a = f32_of(x.a, x.m, x.k, x.lda), b = f32_of(x.b, x.k, x.n, x.ldb);
    for (int i = 0; i < x.m; ++i) {
      for (int j = 0; j < x.n; ++j) {
        float sum = 0;
        for (int l = 0; l < x.k; ++l) sum += a[std::size_t(i) * x.k + l] * b[std::size_t(l) * x.n + j];
        store(sum, x.d, i * x.ldd + j, f16);
      }
    }
    return CUDA_SUCCESS;
  }

  static cuda::DriverApi api() {
    cuda::DriverApi api = FakeDriver::api();
    api.get_error_name = [](CUresult result, const char** name) {
      static const std::map<CUresult, const char*> names{
          {CUDA_ERROR_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE"},
          {CUDA_ERROR_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY"},
          {CUDA_ERROR_NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED"},
          {CUDA_ERROR_DEINITIALIZED, "CUDA_ERROR_DEINITIALIZED"},
          {CUDA_ERROR_NO_DEVICE, "CUDA_ERROR_NO_DEVICE"},
          {CUDA_ERROR_INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE"},
          {CUDA_ERROR_INVALID_IMAGE, "CUDA_ERROR_INVALID_IMAGE"},
          {CUDA_ERROR_INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT"},
          {CUDA_ERROR_NO_BINARY_FOR_GPU, "CUDA_ERROR_NO_BINARY_FOR_GPU"},
          {CUDA_ERROR_NOT_FOUND, "CUDA_ERROR_NOT_FOUND"},
          {CUDA_ERROR_INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE"},
          {CUDA_ERROR_ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS"},
          {CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"},
          {CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"},
          {CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT"},
          {CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"},
          {CUDA_ERROR_UNKNOWN, "CUDA_ERROR_UNKNOWN"}};
      const auto found = names.find(result);
      *name = found == names.end() ? "CUDA_ERROR_OTHER" : found->second;
      return CUDA_SUCCESS;
    };
    api.device_get_count = [](int* count) { return *count = 1, step(); };
    api.device_get_name = [](char* name, int, CUdevice) { return std::strcpy(name, "Fake H200"), step(); };
    api.device_get_attribute = [](int* value, CUdevice_attribute attribute, CUdevice) {
      static const std::map<CUdevice_attribute, int> values{
          {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 9},
          {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 0},
          {CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 132},
          {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, 227 << 10},
          {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, 228 << 10},
          {CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, 64 << 10}};  // a small one, for small sets of inputs
      const auto found = values.find(attribute);
      if (found == values.end()) return CUDA_ERROR_INVALID_VALUE;
      return *value = found->second, step();
    };

    api.mem_alloc = [](CUdeviceptr* pointer, std::size_t bytes) {
      if (const CUresult result = unsafe_work(); result != CUDA_SUCCESS) return result;
      void* const made = allocate(bytes);
      const std::lock_guard lock(mutex);
      alive.insert(made);
      return *pointer = std::bit_cast<CUdeviceptr>(made), CUDA_SUCCESS;
    };
    api.mem_free = [](CUdeviceptr pointer) {
      if (const CUresult result = destroy(pointer); result != CUDA_SUCCESS) return result;
      const std::lock_guard lock(mutex);
      memory.erase(pointer);
      std::free(reinterpret_cast<void*>(pointer));
      return CUDA_SUCCESS;
    };
    api.memset_d8_async = [](CUdeviceptr to, unsigned char value, std::size_t bytes, CUstream) {
      if (const CUresult result = unsafe_work(); result != CUDA_SUCCESS) return result;
      if (!holds(to, bytes)) return CUDA_ERROR_INVALID_VALUE;
      std::memset(reinterpret_cast<void*>(to), value, bytes);
      return CUDA_SUCCESS;
    };
    api.memcpy_htod_async = [](CUdeviceptr to, const void* from, std::size_t bytes, CUstream) {
      return copy(reinterpret_cast<void*>(to), from, reinterpret_cast<void*>(to), bytes);
    };
    api.memcpy_dtoh_async = [](void* to, CUdeviceptr from, std::size_t bytes, CUstream) {
      return copy(to, reinterpret_cast<void*>(from), reinterpret_cast<void*>(from), bytes);
    };
    api.memcpy_dtod_async = [](CUdeviceptr to, CUdeviceptr from, std::size_t bytes, CUstream) {
      if (!holds(from, bytes)) return CUDA_ERROR_INVALID_VALUE;
      return copy(reinterpret_cast<void*>(to), reinterpret_cast<void*>(from), reinterpret_cast<void*>(to), bytes);
    };
    api.memcpy_2d_async = [](const CUDA_MEMCPY2D* copy, CUstream stream) {
      if (const CUresult result = work(); result != CUDA_SUCCESS) return result;
      const auto run = [x = *copy] {
        if (!holds(x.srcDevice, (x.Height - 1) * x.srcPitch + x.WidthInBytes) ||
            !holds(x.dstDevice, (x.Height - 1) * x.dstPitch + x.WidthInBytes))
          return CUDA_ERROR_INVALID_VALUE;
        for (std::size_t row = 0; row < x.Height; ++row)
          std::memcpy(reinterpret_cast<void*>(x.dstDevice + row * x.dstPitch),
                      reinterpret_cast<void*>(x.srcDevice + row * x.srcPitch), x.WidthInBytes);
        return CUDA_SUCCESS;
      };
      return FakeGraphs::take(stream, run) ? CUDA_SUCCESS : run();
    };
    api.pointer_get_attributes = [](unsigned count, CUpointer_attribute* attributes, void** values, CUdeviceptr p) {
      return answer(holds(p, 1) ? CU_MEMORYTYPE_DEVICE : 0, count, attributes, values, p);
    };

    api.module_load_data = [](CUmodule* module, const void* image) {
      const std::string_view text = static_cast<const char*>(image);
      if (!text.starts_with("\x7f"
                            "ELF") &&
          text.find(".visible .entry ") == text.npos)
        return CUDA_ERROR_INVALID_IMAGE;
      if (const CUresult result = make(module); result != CUDA_SUCCESS) return result;
      const std::lock_guard lock(mutex);
      modules[*module] = static_cast<const char*>(image);
      return CUDA_SUCCESS;
    };
    api.module_unload = [](CUmodule module) {
      if (const CUresult result = destroy(module); result != CUDA_SUCCESS) return result;
      const std::lock_guard lock(mutex);
      modules.erase(module);
      return CUDA_SUCCESS;
    };
    api.module_get_function = [](CUfunction* function, CUmodule module, const char*) {
      *function = reinterpret_cast<CUfunction>(module);
      return work();
    };
    api.launch_kernel_ex = [](const CUlaunchConfig* config, CUfunction function, void** parameters, void**) {
      if (const CUresult result = work(); result != CUDA_SUCCESS) return result;
      std::string code;
      {
        const std::lock_guard lock(mutex);
        if (!modules.contains(function)) return CUDA_ERROR_INVALID_HANDLE;
        code = modules[function];
        slowness = 1 + std::distance(modules.begin(), modules.find(function));
      }
      std::function<CUresult()> run;
      if (code.find("neighbour") != std::string::npos)
        run = [] { return CUDA_SUCCESS; };
      else if (code.find("packs") != std::string::npos)
        run = [arguments = *static_cast<const device::PackArguments*>(parameters[0])] { return pack(arguments); };
      else if (code.find("checks") != std::string::npos)
        run = [arguments = *static_cast<const device::CheckArguments*>(parameters[0]), blocks = int(config->gridDimX)] {
          return check(arguments, blocks);
        };
      else
        run = [arguments = *static_cast<const device::Arguments*>(parameters[0]),
               transposed = code.find("D^T") != std::string::npos] { return multiply(arguments, transposed); };
      if (FakeGraphs::take(config->hStream, run, config, function)) return CUDA_SUCCESS;
      return run();
    };
    api.event_elapsed_time = [](float* milliseconds, CUevent, CUevent) {
      return *milliseconds = 0.25f * float(slowness), work();
    };
    return api;
  }

 private:
  static inline std::atomic<long> slowness = 1;  // of the kernel launched last, so that no two are equally fast

  /// Rows of a matrix of f16, one after the other.
  static std::vector<float> f32_of(const void* matrix, int rows, int columns, std::int64_t ld) {
    std::vector<float> values;
    values.reserve(std::size_t(rows) * std::size_t(columns));
    for (int i = 0; i < rows; ++i)
      for (int j = 0; j < columns; ++j) values.push_back(float(load(matrix, i * ld + j, f16)));
    return values;
  }
};

}  // namespace jitgemm::test
