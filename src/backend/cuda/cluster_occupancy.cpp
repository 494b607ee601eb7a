#include "backend/cuda/cluster_occupancy.hpp"

#include "backend/cuda/launch_config.hpp"
#include "util/log.hpp"

namespace jitgemm::cuda {
namespace {

// The driver counts clusters of a kernel. This one does nothing.
constexpr const char* ptx = R"(
.version 7.8
.target sm_90
.address_size 64
.visible .entry occupant() {
  ret;
}
)";

constexpr const char* way_out = "the driver's PTX compiler (libnvidia-ptxjitcompiler) may be missing";

class Occupant {
 public:
  Occupant(const DeviceContext& context, std::size_t smem_bytes) : context_(context), smem_bytes_(smem_bytes) {
    const DriverApi& api = context.api;
    require(api.module_load_data(&module_, ptx), "cuModuleLoadData");
    try {
      require(api.module_get_function(&function_, module_, "occupant"), "cuModuleGetFunction");
      require(api.func_set_attribute(function_, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, int(smem_bytes)),
              "cuFuncSetAttribute");
    } catch (...) {
      unload();
      throw;
    }
  }
  ~Occupant() { unload(); }
  Occupant(const Occupant&) = delete;
  Occupant& operator=(const Occupant&) = delete;

  int clusters(int size) const {
    const LaunchConfig config({.cluster = size, .grid = size, .threads = 128, .smem_bytes = smem_bytes_}, false,
                              nullptr);
    int count = 0;
    const CUresult result = context_.api.occupancy_max_active_clusters(&count, function_, &config);
    if (result != CUDA_ERROR_INVALID_CLUSTER_SIZE) require(result, "cuOccupancyMaxActiveClusters");
    return count;
  }

 private:
  void require(CUresult result, const char* call) const {
    check(context_.api, result, ErrorCode::load_failed, call, way_out);
  }
  void unload() const noexcept {
    context_.attempt("cuModuleUnload", [&] { return context_.api.module_unload(module_); });
  }

  const DeviceContext& context_;
  std::size_t smem_bytes_;
  CUmodule module_ = nullptr;
  CUfunction function_ = nullptr;
};

}  // namespace

DeviceInfo::ClusterCounts cluster_counts(const DeviceContext& context, const DeviceInfo& device) {
  DeviceInfo::ClusterCounts counts{};
  try {
    const Occupant occupant(context, device.smem_per_block);
    for (std::size_t size = 2; size < counts.size(); ++size) counts[size] = occupant.clusters(int(size));
  } catch (const Error& error) {
    logger().warn("how many clusters {} runs at once is not known, and taken from an H200: {}", device.name,
                  error.what());
    return {};
  }
  logger().debug("{} runs {} clusters of 2 at once, {} of 4, {} of 8", device.name, counts[2], counts[4], counts[8]);
  return counts;
}

}  // namespace jitgemm::cuda
