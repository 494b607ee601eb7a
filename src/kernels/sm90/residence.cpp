#include "kernels/sm90/residence.hpp"

#include <algorithm>

#include "geometry_sm90.cuh"
#include "kernels/parameters.hpp"

namespace jitgemm {

int usable_sms(int cluster_size, const DeviceInfo& device) {
  const int usual = (cluster_size <= 2 ? device.sm_count : device.sm_count * 10 / 11) / cluster_size;
  const int at_once = device.clusters_at_once.at(std::size_t(cluster_size));
  const int clusters = at_once > 0 ? std::min(at_once, device.sm_count / cluster_size) : usual;
  return std::max(1, clusters) * cluster_size;
}

bool two_fit(const KernelConfig& c, const KernelProblem& p, const DeviceInfo& device) {
  const device::sm90::Geometry geometry = device::sm90::geometry(parameters_of(c, p));
  return geometry.ctas_per_sm == 2 &&
         2 * (std::size_t(geometry.smem_bytes) + reserved_smem_bytes) <= device.smem_per_sm;
}

std::int64_t block_slots_sm90(const KernelConfig& c, const KernelProblem& p, const DeviceInfo& device) {
  const int cluster = cluster_size_of(c);
  return std::int64_t(usable_sms(cluster, device)) * (may_share_sm(cluster) && two_fit(c, p, device) ? 2 : 1);
}

}  // namespace jitgemm
