#include "backend/cuda/captured_start.hpp"

#include <mutex>
#include <optional>

#include "backend/cuda/graph_capture.hpp"

namespace jitgemm::cuda {
namespace {

// More than a kernel may ask for without announcing it: it fills a pipeline, and that takes it several microseconds.
constexpr unsigned much_shared_memory = 48 << 10;

/// nullopt: it is no kernel.
std::optional<CUDA_KERNEL_NODE_PARAMS> kernel_of(const DriverApi& api, CUgraphNode node) {
  CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
  CUDA_KERNEL_NODE_PARAMS kernel = {};
  if (api.graph_node_get_type(node, &type) != CUDA_SUCCESS || type != CU_GRAPH_NODE_TYPE_KERNEL ||
      api.graph_kernel_node_get_params(node, &kernel) != CUDA_SUCCESS)
    return std::nullopt;
  if (!kernel.func) kernel.func = reinterpret_cast<CUfunction>(kernel.kern);  // the driver takes one for the other
  return kernel;
}

double blocks_of(const CUDA_KERNEL_NODE_PARAMS& kernel) {
  return double(kernel.gridDimX) * kernel.gridDimY * kernel.gridDimZ;
}

/// Whether `next`, which wants an empty GPU, would start by the trigger of one of our kernels that leaves it too little
/// room. A launch of more than half of the GPU, and less than what is as good as all of it, holds the next one back
/// itself where that matters.
bool crowds(const CUDA_KERNEL_NODE_PARAMS& kernel, const LaunchGrid& next, int device_sms) {
  constexpr double as_good_as_full = 0.84;
  const double blocks = blocks_of(kernel);
  return next.wants_empty_gpu && blocks + next.grid > device_sms &&
         (2 * blocks <= device_sms || blocks >= as_good_as_full * device_sms);
}

/// Whether it surely runs for longer than it takes to tell the next one that its blocks have all begun: it has blocks
/// that begin when others have ended, or works on much shared memory.
bool runs_for_a_while(const DriverApi& api, const CUDA_KERNEL_NODE_PARAMS& kernel, int device_sms) {
  if (kernel.sharedMemBytes > much_shared_memory) return true;
  const unsigned threads = kernel.blockDimX * kernel.blockDimY * kernel.blockDimZ;
  int at_once = 0;  // on an SM
  return api.occupancy_max_active_blocks(&at_once, kernel.func, int(threads), kernel.sharedMemBytes) == CUDA_SUCCESS &&
         blocks_of(kernel) > double(at_once) * device_sms;
}

}  // namespace

void EarlyTriggers::add(CUfunction kernel) {
  const std::unique_lock lock(mutex_);
  kernels_.insert(kernel);
}

void EarlyTriggers::remove(CUfunction kernel) noexcept {
  const std::unique_lock lock(mutex_);
  kernels_.erase(kernel);
}

bool EarlyTriggers::contains(CUfunction kernel) const {
  const std::shared_lock lock(mutex_);
  return kernels_.contains(kernel);
}

CapturedStart::CapturedStart(const DriverApi& api, const EarlyTriggers& triggers, int device_sms,
                             const LaunchGrid& next, Stream stream)
    : api_(api), stream_(stream) {
  const CapturePoint point = capture_point(api, stream);
  if (point.nodes.size() != 1) return;
  before_ = static_cast<CUgraphNode>(point.nodes.front());
  const auto kernel = kernel_of(api, before_);
  if (!kernel) return;
  by_trigger_ = triggers.contains(kernel->func) && !crowds(*kernel, next, device_sms);
  if (by_trigger_ || next.wants_empty_gpu || !api.stream_update_capture_dependencies_v2 ||
      !runs_for_a_while(api, *kernel, device_sms))
    return;
  CUgraphEdgeData once_its_blocks_run = {};
  once_its_blocks_run.from_port = CU_GRAPH_KERNEL_NODE_PORT_LAUNCH_ORDER;
  once_its_blocks_run.type = CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC;
  edge_set_ = set_edge(once_its_blocks_run) == CUDA_SUCCESS;
}

CapturedStart::~CapturedStart() {
  if (edge_set_) set_edge({});  // else whatever is captured next would start early, and not wait
}

CUresult CapturedStart::set_edge(const CUgraphEdgeData& edge) {
  return api_.stream_update_capture_dependencies_v2(stream_, &before_, &edge, 1, CU_STREAM_SET_CAPTURE_DEPENDENCIES);
}

}  // namespace jitgemm::cuda
