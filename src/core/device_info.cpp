#include "core/device_info.hpp"

#include <array>

#include "jitgemm/error.hpp"

namespace jitgemm {
namespace {

constexpr std::size_t KiB = 1024, MiB = 1024 * KiB, GiB = 1024 * MiB;

// One well-known device of each compute capability.
const std::array typical_devices{
    DeviceInfo{"A100", 80, 108, 163 * KiB, 164 * KiB, 40 * MiB, 80 * GiB},
    DeviceInfo{"RTX 3090", 86, 82, 99 * KiB, 100 * KiB, 6 * MiB, 24 * GiB},
    DeviceInfo{"Jetson AGX Orin", 87, 16, 163 * KiB, 164 * KiB, 4 * MiB, 32 * GiB},
    DeviceInfo{"RTX 4090", 89, 128, 99 * KiB, 100 * KiB, 72 * MiB, 24 * GiB},
    DeviceInfo{"H200", 90, 132, 227 * KiB, 228 * KiB, 50 * MiB, 141 * GiB},
    DeviceInfo{"B200", 100, 148, 227 * KiB, 228 * KiB, 126 * MiB, 180 * GiB},
    DeviceInfo{"B300", 103, 148, 227 * KiB, 228 * KiB, 126 * MiB, 268 * GiB},
    DeviceInfo{"RTX 5090", 120, 170, 99 * KiB, 100 * KiB, 96 * MiB, 32 * GiB},
};

}  // namespace

std::string DeviceInfo::architecture() const {
  // From 90 on, the tensor core instructions exist only in the architecture-specific targets.
  return "sm_" + std::to_string(compute_capability) + (compute_capability >= 90 ? "a" : "");
}

DeviceInfo device_info_for(const std::string& architecture) {
  std::string known;
  for (const DeviceInfo& device : typical_devices) {
    if (architecture == device.architecture() || architecture == "sm_" + std::to_string(device.compute_capability))
      return device;
    known += (known.empty() ? "" : ", ") + device.architecture();
  }
  throw Error(ErrorCode::invalid_option, "unknown architecture \"" + architecture + "\": use one of " + known);
}

DeviceDescription describe(const DeviceInfo& device) {
  return {.name = device.name,
          .architecture = device.architecture(),
          .sm_count = device.sm_count,
          .smem_bytes_per_block = device.smem_per_block,
          .l2_bytes = device.l2_bytes,
          .memory_bytes = device.memory_bytes,
          .emulated = device.emulated};
}

}  // namespace jitgemm
