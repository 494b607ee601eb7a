#include "backend/emulator/cluster.hpp"

#include <cstring>

#include "backend/emulator/barriers.hpp"
#include "backend/emulator/operations.hpp"

namespace jitgemm::emulator {

namespace {

void complete_if_all_arrived(Cluster& cluster) {
  ClusterBarrier& barrier = cluster.barrier;
  if (barrier.arrived == 0 || barrier.arrived < cluster.alive) return;
  ++barrier.phase;
  barrier.arrived = 0;
  barrier.completed = SharedClock(std::move(barrier.arriving));
  barrier.arriving = {};
  for (Thread* thread : barrier.waiting) thread->launch->wake(*thread);
  barrier.waiting.clear();
}

/// What a mapped address is of.
struct Target {
  Block& block;
  u32 address;
};
Target target_of(Thread& thread, u32 mapped, const char* operation) {
  if (!is_mapped(mapped))
    thread.launch->fault("%s at 0x%x, which is not an address of the cluster: use map_to_rank", operation, mapped);
  const u32 rank = (mapped >> rank_shift) - 1;
  if (rank >= thread.launch->cluster_size())
    thread.launch->fault("%s at 0x%x, which is not an address that map_to_rank gave", operation, mapped);
  return {peer(thread, rank, operation), mapped & ((1u << rank_shift) - 1)};
}

void check_has_started(Thread& thread, const Block& block, const char* operation) {
  for (const Thread& other : block.threads)
    if (thread.knows({other.entity, 1})) return;
  thread.launch->fault("%s at block %u, which may not have started: synchronise with it first", operation, block.index);
}

/// By another block in this one's memory, that no thread of it has synchronised with; time 0 if there is none.
Stamp first_unknown_access(const Block& block) {
  Clock known;
  const SharedClock* latest = nullptr;
  for (const Thread& thread : block.threads) {
    if (!thread.known.get() || (latest && *latest == thread.known)) continue;
    known.join(*thread.known.get());
    latest = &thread.known;
  }
  return block.remote_accesses.first_unknown_to(known);
}

}  // namespace

void fault_mapped(Thread& thread, u32 address, const char* operation) {
  thread.launch->fault("%s at 0x%x, an address of the cluster, which it does not take", operation, address);
}

Block& peer(Thread& thread, u32 rank, const char* operation) {
  Block& block = *thread.block->cluster->blocks[rank];
  if (block.alive == 0)
    thread.launch->fault("%s at block %u, which has ended: keep it until an mbarrier tells it", operation, block.index);
  return block;
}

void leave_cluster(Thread& thread) {
  Cluster& cluster = *thread.block->cluster;
  --cluster.alive;
  complete_if_all_arrived(cluster);
}

void check_peers_are_done(Block& block) {
  if (!block.cluster->has_peers()) return;
  const Stamp access = first_unknown_access(block);
  if (access.time != 0)
    block.launch->fault(
        "the block ends, not synchronised with what %s does in its shared memory: keep it until an mbarrier tells it",
        describe(*block.cluster, access).text);
}

u32 cluster_rank() { return current->block->index % current->launch->cluster_size(); }

void cluster_arrive_relaxed() {
  Thread& thread = *current;
  thread.launch->preempt();
  if (thread.at_cluster_barrier)
    thread.launch->fault("cluster_arrive_relaxed for a second time without a cluster_wait");
  ClusterBarrier& barrier = thread.block->cluster->barrier;
  thread.at_cluster_barrier = true;
  thread.cluster_phase = barrier.phase;
  barrier.arriving.raise({thread.entity, 1});
  barrier.arriving.raise(thread.inits);
  ++barrier.arrived;
  complete_if_all_arrived(*thread.block->cluster);
}

void cluster_wait() {
  Thread& thread = *current;
  thread.launch->preempt();
  if (!thread.at_cluster_barrier) thread.launch->fault("cluster_wait without a cluster_arrive_relaxed");
  ClusterBarrier& barrier = thread.block->cluster->barrier;
  if (barrier.phase == thread.cluster_phase) {
    barrier.waiting.push_back(&thread);
    thread.launch->wait(Wait::cluster);
  }
  thread.at_cluster_barrier = false;
  acquire(thread, barrier.completed);
}

u32 map_to_rank(u32 address, u32 rank) {
  Thread& thread = *current;
  if (is_mapped(address)) fault_mapped(thread, address, "map_to_rank");
  if (rank >= thread.launch->cluster_size())
    thread.launch->fault("map_to_rank to block %u of a cluster of %u", rank, thread.launch->cluster_size());
  return address | (rank + 1) << rank_shift;
}

void mbarrier_arrive_cluster(u32 mapped) {
  Thread& thread = *current;
  const char* const operation = "mbarrier_arrive_cluster";
  thread.launch->preempt();
  const auto [block, address] = target_of(thread, mapped, operation);
  if (&block != thread.block) block.remote_accesses.raise(thread.now);
  arrive_at(thread, mbarrier_at(thread, block, address, operation), operation);
}

void mbarrier_arrive_expect_tx_cluster(u32 mapped, u32 bytes) {
  Thread& thread = *current;
  const char* const operation = "mbarrier_arrive_expect_tx_cluster";
  thread.launch->preempt();
  const auto [block, address] = target_of(thread, mapped, operation);
  if (&block != thread.block) block.remote_accesses.raise(thread.now);
  expect_at(thread, mbarrier_at(thread, block, address, operation), bytes, operation);
}

void st_async_cluster(u32 mapped, const void* data, u32 bytes, u32 mapped_barrier) {
  Thread& thread = *current;
  const char* const operation = "st_async_cluster";
  thread.launch->preempt();
  const auto [block, address] = target_of(thread, mapped, operation);
  const auto [block_of_barrier, barrier_address] = target_of(thread, mapped_barrier, operation);
  if (&block_of_barrier != &block)
    thread.launch->fault("%s to block %u, with a barrier of block %u: both are of one block", operation, block.index,
                         block_of_barrier.index);
  unsigned char* to = block.memory.at(thread, address, bytes, bytes, operation);
  Mbarrier& barrier = mbarrier_at(thread, block, barrier_address, operation);
  // Known by the barrier's phase alone: what the thread does next may overtake it.
  if (barrier.stores == 0)
    barrier.stores = block.add_entity({.name = "an st_async_cluster to mbarrier 0x%x (phase %u from 1)",
                                       .of = barrier.address,
                                       .stores_from_peers = true});
  const Stamp landing{barrier.stores, barrier.phase + 1};
  if (&block != thread.block) {
    check_has_started(thread, block, operation);
    block.remote_accesses.raise(landing);
  }
  block.memory.write(thread, address, bytes, landing, Proxy::generic, operation);
  std::memcpy(to, data, bytes);
  barrier.bytes -= bytes;
  complete_phase(*thread.launch, barrier);
}

}  // namespace jitgemm::emulator
