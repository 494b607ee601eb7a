#include "tensor_map_cache.hpp"

#include <bit>

namespace jitgemm {
namespace {

std::size_t hash_value(const TensorMapSpec& spec) {
  std::uint64_t hash = 0;
  for (std::uint64_t x :
       {std::bit_cast<std::uint64_t>(spec.address), std::uint64_t(spec.inner), std::uint64_t(spec.outer),
        std::uint64_t(spec.stride), std::uint64_t(spec.batch), std::uint64_t(spec.batch_stride),
        std::uint64_t(spec.box_outer) << 4 | std::uint64_t(spec.type)}) {
    hash = (hash ^ x) * 0x9e3779b97f4a7c15;
    hash ^= hash >> 32;
  }
  return hash;
}

}  // namespace

device::TensorMap TensorMapCache::get(const TensorMapSpec& spec) {
  Slot& slot = slots_[hash_value(spec) % slot_count];
  if (!slot.busy.exchange(true, std::memory_order_acquire)) {
    const bool found = slot.spec == spec;
    const device::TensorMap map = slot.map;
    slot.busy.store(false, std::memory_order_release);
    if (found) return map;
  }
  const device::TensorMap map = backend_.encode_tensor_map(spec);
  if (!slot.busy.exchange(true, std::memory_order_acquire)) {
    slot.spec = spec;
    slot.map = map;
    slot.busy.store(false, std::memory_order_release);
  }
  return map;
}

}  // namespace jitgemm
