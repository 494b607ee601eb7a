#include "backend/cuda/cuda_backend.hpp"
#include "core/out_of_memory.hpp"
#include "jitgemm/device.hpp"
#include "util/log.hpp"

namespace jitgemm::cuda {

DeviceInfo device_info(const DriverApi& api, CUdevice device) {
  const char* way_out = "check nvidia-smi";
  const auto attribute = [&](CUdevice_attribute which) {
    int value = 0;
    check(api, api.device_get_attribute(&value, which, device), ErrorCode::no_device, "cuDeviceGetAttribute", way_out);
    return value;
  };
  const auto attribute_if_known = [&](CUdevice_attribute which) {
    int value = 0;
    const CUresult result = api.device_get_attribute(&value, which, device);
    if (result == CUDA_ERROR_INVALID_VALUE) return 0;
    check(api, result, ErrorCode::no_device, "cuDeviceGetAttribute", way_out);
    return value;
  };
  char name[256] = "";
  check(api, api.device_get_name(name, int(sizeof name), device), ErrorCode::no_device, "cuDeviceGetName", way_out);
  DeviceInfo info;
  info.name = name;
  info.compute_capability = 10 * attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) +
                            attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
  info.sm_count = attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
  info.smem_per_block = std::size_t(attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN));
  info.smem_per_sm = std::size_t(attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR));
  info.l2_bytes = std::size_t(attribute(CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE));
  check(api, api.device_total_mem(&info.memory_bytes, device), ErrorCode::no_device, "cuDeviceTotalMem", way_out);
  // 0 where a driver does not say; the memory moves two words a clock.
  info.clock_ghz = 1e-6 * attribute_if_known(CU_DEVICE_ATTRIBUTE_CLOCK_RATE);
  info.memory_gb_s = 2e-6 * attribute_if_known(CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE) *
                     attribute_if_known(CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH) / 8;
  return info;
}

}  // namespace jitgemm::cuda

namespace jitgemm {
namespace {

std::vector<DeviceDescription> list_devices() {
  const cuda::DriverApi* api = nullptr;
  try {
    api = &cuda::driver();
  } catch (const Error& error) {
    if (is_out_of_memory(error)) throw;
    logger().info("no CUDA devices: {}", error.what());
    return {};
  }
  int count = 0;
  cuda::check(*api, api->device_get_count(&count), ErrorCode::no_device, "cuDeviceGetCount", "check nvidia-smi");
  std::vector<DeviceDescription> devices;
  for (int i = 0; i < count; ++i) {
    CUdevice device = 0;
    cuda::check(*api, api->device_get(&device, i), ErrorCode::no_device, "cuDeviceGet", "check nvidia-smi");
    devices.push_back(describe(cuda::device_info(*api, device)));
  }
  return devices;
}

}  // namespace

std::vector<DeviceDescription> cuda_devices() { return with_memory_errors(list_devices); }

}  // namespace jitgemm
