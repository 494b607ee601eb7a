#include "backend/emulator/copies.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

#include "backend/emulator/barriers.hpp"
#include "backend/emulator/cluster.hpp"
#include "backend/emulator/operations.hpp"
#include "jitgemm/error.hpp"

namespace jitgemm::emulator {

namespace {

void perform(Thread& thread, const PendingCopy& copy) {
  unsigned char* to = thread.block->memory.at(thread, copy.shared, copy.size, copy.size, "cp_async");
  if (copy.bytes > 0) std::memcpy(to, copy.global, copy.bytes);
  std::memset(to + copy.bytes, 0, copy.size - copy.bytes);
}

constexpr u32 map_magic = 0x74e50a9;

/// device::TensorMap of the emulator. Lengths in bytes along the inner dimension, in rows along the outer.
struct Map {
  u32 magic;
  u32 element_bytes;
  u64 address;
  long long inner_bytes, outer, batch;
  u64 stride_bytes, batch_stride_bytes;
  u32 box_outer;
  u32 row_bytes;  // of the box
  unsigned short dimensions;
  unsigned short pairs;  // 2 where rows are pairs in turn, else 1
  u32 box_groups;        // groups of them, else 1
  long long groups;
  u64 pair_stride_bytes, group_stride_bytes;
  unsigned char rest[32];
};
static_assert(sizeof(Map) == sizeof(device::TensorMap));

Map decode(Thread& thread, const void* opaque, const char* operation) {
  if (reinterpret_cast<std::uintptr_t>(opaque) % 64 != 0)
    thread.launch->fault("%s: the tensor map is not 64-byte aligned", operation);
  Map map;
  std::memcpy(&map, opaque, sizeof map);
  if (map.magic != map_magic) thread.launch->fault("%s: the tensor map at %p is not one", operation, opaque);
  return map;
}
Map decode(const device::TensorMap& opaque) {
  Map map;
  std::memcpy(&map, &opaque, sizeof map);
  return map;
}

u32 box_rows(const Map& map) { return map.box_outer * map.pairs * map.box_groups; }
u32 box_bytes(const Map& map) { return box_rows(map) * map.row_bytes; }

/// Where the swizzle's pattern repeats; at least 128.
u32 box_alignment(const Map& map) { return map.row_bytes * 8; }

/// Address of the 16-byte chunk that the swizzle of the row's width puts in place of this one; of 16 bytes there is
/// none.
u32 swizzled(const Map& map, u32 address) { return address ^ (address >> 3 & (map.row_bytes - 1) & 0x70); }

/// Calls f(shared address of a 16-byte chunk of the box, where it begins to be in bounds, the global address of that,
/// how many bytes are).
template <class F>
void for_each_chunk(const Map& map, u32 shared, const BoxPlace& place, F f) {
  const auto is_in = [](long long x, long long extent) { return x >= 0 && x < extent; };
  for (u32 row = 0; row < box_rows(map); ++row) {
    const u32 block = row / map.box_outer;  // of rows of one kind
    const long long y = place.outer + (long long)(row % map.box_outer),
                    pair = place.pair + (long long)(block % map.pairs),
                    group = place.group + (long long)(block / map.pairs);
    const bool row_exists =
        is_in(y, map.outer) && is_in(pair, map.pairs) && is_in(group, map.groups) && is_in(place.batch, map.batch);
    for (u32 offset = 0; offset < map.row_bytes; offset += 16) {
      const long long x = (long long)place.inner * map.element_bytes + offset;
      const long long low = std::clamp(-x, 0LL, 16LL), high = std::clamp(map.inner_bytes - x, 0LL, 16LL);
      const bool exists = row_exists && low < high;
      const u64 global = map.address + u64(place.batch) * map.batch_stride_bytes + u64(group) * map.group_stride_bytes +
                         u64(pair) * map.pair_stride_bytes + u64(y) * map.stride_bytes + u64(x + low);
      f(swizzled(map, shared + row * map.row_bytes + offset), low,
        reinterpret_cast<unsigned char*>(exists ? global : 0), exists ? high - low : 0);
    }
  }
}

void perform(Block& block, Thread& thread, const PendingStore& store) {
  const Map map = decode(store.map);
  for_each_chunk(map, store.shared, store.place,
                 [&](u32 shared, long long begin, unsigned char* global, long long bytes) {
                   if (bytes > 0)
                     std::memcpy(global, block.memory.at(thread, shared, 16, 16, "TMA store") + begin, bytes);
                 });
}

/// Sends a load to its block, now or later. Returns when it lands, as the block's threads learn.
Stamp issue(Thread& thread, const PendingLoad& load, u32 alignment, const char* operation) {
  Launch& launch = *thread.launch;
  launch.check_dependencies(thread, operation);
  if (thread.acquired_by_generic_proxy)
    launch.fault("%s of what this thread has acquired, without a fence_proxy_async_global since", operation);
  const Map map_of_load = decode(load.map);
  if ((long long)load.place.inner * map_of_load.element_bytes % 16 != 0)  // seen on an H200: an illegal instruction
    launch.fault("%s from element %d of rows on, which is not a multiple of 16 bytes", operation, load.place.inner);
  Block& block = *load.block;
  const Map map = decode(load.map);
  Mbarrier& barrier = mbarrier_at(thread, block, load.barrier, operation);
  check_usable_by_tma(thread, barrier);
  const Stamp landing{barrier.entity, barrier.phase + 1};
  const u32 bytes = box_bytes(map);
  block.memory.at(thread, load.shared, bytes, alignment, operation);
  block.memory.write(thread, load.shared, bytes, landing, Proxy::tma, operation);
  ++barrier.outstanding;
  if (launch.acts_at_issue())
    land(launch, load);
  else
    launch.loads().push_back(load);
  return landing;
}

/// Completes the groups up to `done`, and calls `effect` for what had not taken effect.
template <class Pending, class Effect>
void complete_groups(std::vector<Pending>& pending, u32 done, Effect effect) {
  auto rest = pending.begin();
  for (auto& work : pending) {
    if (work.group <= done)
      effect(work);
    else
      *rest++ = work;
  }
  pending.erase(rest, pending.end());
}

}  // namespace

void cp_async(u32 shared, const void* global, u32 size, u32 bytes) {
  Thread& thread = *current;
  Launch& launch = *thread.launch;
  launch.preempt();
  launch.check_dependencies(thread, "cp_async");
  if (bytes > size) launch.fault("cp_async of %u bytes into %u", bytes, size);
  if (reinterpret_cast<std::uintptr_t>(global) % size != 0 && bytes > 0)
    launch.fault("cp_async of %u bytes from %p, which is not a multiple of that", size, global);
  SharedMemory& memory = thread.block->memory;
  memory.at(thread, shared, size, size, "cp_async");
  if (thread.copies.entity == 0)
    thread.copies.entity =
        thread.block->add_entity({"the cp.async of thread %u (group %u from 1)", thread.index, &thread});
  thread.last_copy_group = thread.copy_group;
  memory.write(thread, shared, size, {thread.copies.entity, thread.copy_group}, Proxy::generic, "cp_async");
  const PendingCopy copy{shared, size, bytes, thread.copy_group, global};
  if (launch.acts_at_issue())
    perform(thread, copy);
  else
    thread.pending_copies.push_back(copy);
}

void cp_async_commit_group() { ++current->copy_group; }

void cp_async_wait_group(u32 pending) {
  Thread& thread = *current;
  thread.launch->preempt();
  if (thread.copy_group <= pending) return;
  const u32 done = thread.copy_group - 1 - pending;
  if (done <= thread.copies.time) return;
  complete_groups(thread.pending_copies, done, [&](const PendingCopy& copy) { perform(thread, copy); });
  thread.copies.time = done;
}

void fire_copy(Thread& thread) {
  auto& pending = thread.pending_copies;
  if (pending.empty()) return;
  const std::size_t i = thread.launch->random() % pending.size();
  perform(thread, pending[i]);
  pending.erase(pending.begin() + i);
}

namespace {

/// That the instruction has as many coordinates as the map has dimensions.
void check_rank(Thread& thread, const TensorMap* opaque, int dimensions, const char* operation) {
  const Map map = decode(thread, opaque, operation);
  if (map.dimensions != dimensions)
    thread.launch->fault("%s: the tensor map has %d dimensions", operation, map.dimensions);
}

void load(u32 shared, const TensorMap* map, u32 barrier, const BoxPlace& place, int dimensions, const char* operation) {
  Thread& thread = *current;
  thread.launch->preempt();
  check_rank(thread, map, dimensions, operation);
  issue(thread, {thread.block, *map, shared, barrier, place}, box_alignment(decode(*map)), operation);
}

void load_multicast(u32 shared, const TensorMap* map, u32 barrier, const BoxPlace& place, u16 blocks, int dimensions,
                    const char* operation) {
  Thread& thread = *current;
  Launch& launch = *thread.launch;
  launch.preempt();
  check_rank(thread, map, dimensions, operation);
  if (blocks == 0 || blocks >> launch.cluster_size() != 0)
    launch.fault("%s to blocks 0x%x of a cluster of %u", operation, blocks, launch.cluster_size());
  PendingLoad load{nullptr, *map, shared, barrier, place};
  for (u32 rest = blocks; rest; rest &= rest - 1) {
    load.block = &peer(thread, u32(std::countr_zero(rest)), operation);
    const Stamp landing = issue(thread, load, box_alignment(decode(*map)), operation);
    load.block->remote_accesses.raise(landing);
  }
}

}  // namespace

void tma_load_3d(u32 shared, const TensorMap* map, u32 barrier, int inner, int outer, int batch) {
  load(shared, map, barrier, {.inner = inner, .outer = outer, .batch = batch}, 3, "tma_load_3d");
}
void tma_load_5d(u32 shared, const TensorMap* map, u32 barrier, int inner, int outer, int pair, int group, int batch) {
  load(shared, map, barrier, {inner, outer, pair, group, batch}, 5, "tma_load_5d");
}
void tma_load_multicast_3d(u32 shared, const TensorMap* map, u32 barrier, int inner, int outer, int batch, u16 blocks) {
  load_multicast(shared, map, barrier, {.inner = inner, .outer = outer, .batch = batch}, blocks, 3,
                 "tma_load_multicast_3d");
}
void tma_load_multicast_5d(u32 shared, const TensorMap* map, u32 barrier, int inner, int outer, int pair, int group,
                           int batch, u16 blocks) {
  load_multicast(shared, map, barrier, {inner, outer, pair, group, batch}, blocks, 5, "tma_load_multicast_5d");
}

void bulk_load(u32 shared, const void* global, u32 bytes, u32 barrier) {
  Thread& thread = *current;
  Launch& launch = *thread.launch;
  launch.preempt();
  if (bytes == 0 || bytes % 16 != 0 || reinterpret_cast<std::uintptr_t>(global) % 16 != 0)
    launch.fault("bulk_load of %u bytes from %p: both are multiples of 16, and not 0", bytes, global);
  Map map{};  // of one box, whose rows are chunks
  map.magic = map_magic;
  map.element_bytes = 1;
  map.address = reinterpret_cast<std::uintptr_t>(global);
  map.inner_bytes = map.row_bytes = 16;
  map.outer = map.box_outer = bytes / 16;
  map.stride_bytes = 16;
  map.dimensions = 3;
  map.batch = map.pairs = map.box_groups = 1;
  map.groups = 1;
  device::TensorMap opaque;
  std::memcpy(&opaque, &map, sizeof map);
  issue(thread, {thread.block, opaque, shared, barrier, {}}, 16, "bulk_load");
}

void land(Launch& launch, const PendingLoad& load) {
  Block& block = *load.block;
  Thread& thread = block.threads[0];
  const Map map = decode(load.map);
  bool reads = false;
  for_each_chunk(map, load.shared, load.place,
                 [&](u32 shared, long long begin, const unsigned char* global, long long bytes) {
                   unsigned char* to = block.memory.at(thread, shared, 16, 16, "TMA load");
                   std::memset(to, 0, 16);
                   if (bytes > 0) std::memcpy(to + begin, global, bytes);
                   reads = reads || bytes > 0;
                 });
  // Seen on an H100: of a box without anything in bounds the map's own address has to be memory.
  if (!reads) (void)*reinterpret_cast<const volatile unsigned char*>(map.address);
  for (Mbarrier& barrier : block.mbarriers) {
    if (barrier.address != load.barrier) continue;
    --barrier.outstanding;
    barrier.bytes -= box_bytes(map);
    complete_phase(launch, barrier);
  }
}

void tma_store_3d(const TensorMap* opaque, u32 shared, int inner, int outer, int batch) {
  Thread& thread = *current;
  Launch& launch = *thread.launch;
  Block& block = *thread.block;
  launch.preempt();
  launch.check_dependencies(thread, "tma_store_3d");
  check_rank(thread, opaque, 3, "tma_store_3d");
  const Map map = decode(thread, opaque, "tma_store_3d");
  if (map.inner_bytes % 16 != 0)  // seen on an H200: it clips at 16 bytes, and writes beside the row
    launch.fault("tma_store_3d: rows of %lld bytes, which is not a multiple of 16", map.inner_bytes);
  const u32 bytes = box_bytes(map);
  block.memory.at(thread, shared, bytes, box_alignment(map), "tma_store_3d");
  if (thread.stores.entity == 0)
    thread.stores.entity = block.add_entity({"the TMA stores of thread %u (group %u from 1)", thread.index});
  thread.last_store_group = thread.store_group;
  block.memory.read(thread, shared, bytes, {thread.stores.entity, thread.store_group}, Proxy::tma, "tma_store_3d");
  const PendingStore store{*opaque, shared, thread.store_group, {.inner = inner, .outer = outer, .batch = batch}};
  if (launch.acts_at_issue())
    perform(block, thread, store);
  else
    thread.pending_stores.push_back(store);
}

void tma_store_commit_group() { ++current->store_group; }

void tma_store_wait_group_read(u32 pending) {
  Thread& thread = *current;
  thread.launch->preempt();
  if (thread.store_group <= pending) return;
  const u32 done = thread.store_group - 1 - pending;
  if (done <= thread.stores.time) return;
  complete_groups(thread.pending_stores, done,
                  [&](const PendingStore& store) { perform(*thread.block, thread, store); });
  thread.stores.time = done;
}

void tma_store_wait_group(u32 pending) {
  tma_store_wait_group_read(pending);
  Thread& thread = *current;
  if (thread.store_group > pending)
    thread.written_group = std::max(thread.written_group, thread.store_group - 1 - pending);
}

void fire_store(Thread& thread) {
  auto& pending = thread.pending_stores;
  if (pending.empty()) return;
  const std::size_t i = thread.launch->random() % pending.size();
  perform(*thread.block, thread, pending[i]);
  pending.erase(pending.begin() + i);
}

void check_copies_finished(Thread& thread) {
  if (thread.last_copy_group > thread.copies.time)
    thread.launch->fault("ends with a cp.async of group %u unfinished: it waited for groups up to %u",
                         thread.last_copy_group, thread.copies.time);
  if (thread.last_store_group > thread.stores.time)
    thread.launch->fault(
        "ends while a TMA store of group %u may still read shared memory: it waited for groups up to %u",
        thread.last_store_group, thread.stores.time);
}

device::TensorMap encode_tensor_map(const TensorMapSpec& spec) {
  const auto refuse = [](const std::string& why) {
    throw Error(ErrorCode::invalid_operand, "a matrix that TMA cannot copy: " + why + "; use the sm80 main loop");
  };
  if (!spec.address) refuse("its address is null");
  if (reinterpret_cast<std::uintptr_t>(spec.address) % 16 != 0) refuse("its address is not a multiple of 16");
  if (const std::string why = why_unmappable(spec); !why.empty()) refuse(why);
  const long long size = (long long)size_of(spec.type), row_bytes = spec.box_inner * size;
  Map map{};
  map.magic = map_magic;
  map.element_bytes = u32(size);
  map.address = reinterpret_cast<std::uintptr_t>(spec.address);
  map.inner_bytes = spec.inner * size;
  map.outer = spec.outer;
  map.batch = spec.batch;
  map.stride_bytes = spec.outer > 1 ? u64(spec.stride * size) : 0;
  map.batch_stride_bytes = spec.batch > 1 ? u64(spec.batch_stride * size) : 0;
  map.box_outer = u32(spec.box_outer);
  map.row_bytes = u32(row_bytes);
  const bool in_pairs = spec.pairs.groups > 0;
  map.dimensions = in_pairs || spec.of_all_addresses ? 5 : 3;
  map.pairs = in_pairs ? 2 : 1;
  map.groups = in_pairs ? spec.pairs.groups : 1;
  map.box_groups = in_pairs ? u32(spec.pairs.box_groups) : 1;
  map.pair_stride_bytes = in_pairs ? u64(spec.pairs.stride * size) : 0;
  map.group_stride_bytes = spec.pairs.groups > 1 ? u64(spec.pairs.group_stride * size) : 0;
  if (spec.of_all_addresses) {
    map.groups = (long long)device::LOW_COUNT, map.group_stride_bytes = device::LOW_STEP;
    map.batch = (long long)device::HIGH_COUNT, map.batch_stride_bytes = device::HIGH_STEP;
  }
  device::TensorMap result;
  std::memcpy(&result, &map, sizeof map);
  return result;
}

}  // namespace jitgemm::emulator
