#include "backend/emulator/barriers.hpp"

#include "backend/emulator/cluster.hpp"
#include "backend/emulator/operations.hpp"

namespace jitgemm::emulator {

namespace {

void check_init_visible(Thread& thread, const Mbarrier& barrier, const char* operation) {
  if (!thread.knows(barrier.initialised))
    thread.launch->fault("%s on mbarrier 0x%x, whose initialisation by %s it has not synchronised with", operation,
                         barrier.address, describe(*thread.block->cluster, barrier.initialised).text);
}

bool arrive_at_named(u32 id, u32 threads, bool reducing, bool predicate) {
  Thread& thread = *current;
  Launch& launch = *thread.launch;
  launch.preempt();
  if (id >= 16) launch.fault("bar_sync(%u, %u): there are barriers 0 to 15", id, threads);
  if (threads == 0 || threads % 32 != 0 || threads > launch.threads())
    launch.fault("bar_sync(%u, %u): not a multiple of 32 up to the block's %u threads", id, threads, launch.threads());
  NamedBarrier& barrier = thread.block->barriers[id];
  if (barrier.arrived == 0) {
    barrier.threads = threads;
    barrier.reducing = reducing;
    barrier.any = false;
  } else if (barrier.threads != threads || barrier.reducing != reducing) {
    launch.fault("barrier %u with %u threads%s, while thread %u waits there with %u%s", id, threads,
                 reducing ? " (bar_red_or)" : "", barrier.waiting.front()->index, barrier.threads,
                 barrier.reducing ? " (bar_red_or)" : "");
  }
  barrier.any |= predicate;
  barrier.waiting.push_back(&thread);
  if (++barrier.arrived < threads) {
    launch.wait(Wait::barrier, id, threads);
    return barrier.result;
  }
  u32 lanes[32] = {};
  for (const Thread* other : barrier.waiting) lanes[other->index / 32] |= 1u << other->lane;
  for (u32 warp = 0; warp < 32; ++warp)
    if (lanes[warp] != 0 && lanes[warp] != all_lanes)
      launch.fault("barrier %u: some lanes of warp %u have not come, only lanes 0x%x", id, warp, lanes[warp]);
  Clock clock;
  SharedClock merged;
  for (Thread* other : barrier.waiting) release_to(clock, merged, *other);
  const SharedClock joined(std::move(clock));
  for (Thread* other : barrier.waiting) {
    other->known = joined;
    if (other != &thread) launch.wake(*other);
  }
  barrier.waiting.clear();
  barrier.arrived = 0;
  // The next round cannot end before all of this one have left with the result.
  return barrier.result = barrier.any;
}

/// What `result` makes of all lanes' values, for each lane; they have `value` in x[0] and `detail` in x[1].
template <typename Result>
u32 exchange(Collective collective, u32 value, u32 detail, const Result& result) {
  Thread& thread = *current;
  Warp& warp = *thread.warp;
  warp.lanes[thread.lane].x[0] = value;
  warp.lanes[thread.lane].x[1] = detail;
  if (arrive(thread, collective)) {
    for (u32 lane = 0; lane < 32; ++lane) warp.lanes[lane].x[2] = result(warp, lane);
    finish_collective(warp);
  }
  return warp.lanes[thread.lane].x[2];
}

}  // namespace

Mbarrier& mbarrier_at(Thread& thread, Block& block, u32 address, const char* operation) {
  for (Mbarrier& barrier : block.mbarriers)
    if (barrier.address == address) return barrier;
  if (is_mapped(address)) fault_mapped(thread, address, operation);
  if (&block != thread.block)
    thread.launch->fault("%s: there is no initialised mbarrier at 0x%x in block %u", operation, address, block.index);
  thread.launch->fault("%s: there is no initialised mbarrier at 0x%x", operation, address);
}

void arrive_at(Thread& thread, Mbarrier& barrier, const char* operation) {
  check_init_visible(thread, barrier, operation);
  if (barrier.pending == 0)
    thread.launch->fault("%s on mbarrier 0x%x: all %u threads have arrived in phase %u already", operation,
                         barrier.address, barrier.count, barrier.phase);
  release_to(barrier.arriving, barrier.merged, thread);
  --barrier.pending;
  complete_phase(*thread.launch, barrier);
}

void expect_at(Thread& thread, Mbarrier& barrier, u32 bytes, const char* operation) {
  check_init_visible(thread, barrier, operation);
  if (bytes >= 1u << 20)
    thread.launch->fault("%s(0x%x, %u): at most 2^20 - 1 bytes", operation, barrier.address, bytes);
  barrier.bytes += bytes;
  arrive_at(thread, barrier, operation);
}

void check_usable_by_tma(Thread& thread, const Mbarrier& barrier) {
  check_init_visible(thread, barrier, "TMA load");
  if (barrier.fenced.time == 0 || !thread.knows(barrier.fenced))
    thread.launch->fault("TMA load on mbarrier 0x%x without a fence_mbarrier_init after its initialisation",
                         barrier.address);
}

void complete_phase(Launch& launch, Mbarrier& barrier) {
  if (barrier.pending != 0 || barrier.bytes != 0) return;
  if (barrier.outstanding != 0)
    launch.fault("phase %u of mbarrier 0x%x ends before %u of its TMA loads: too few bytes were announced",
                 barrier.phase, barrier.address, barrier.outstanding);
  ++barrier.phase;
  barrier.pending = int(barrier.count);
  barrier.arriving.raise({barrier.entity, barrier.phase});
  if (barrier.stores != 0) barrier.arriving.raise({barrier.stores, barrier.phase});
  if (barrier.completed.get()) barrier.arriving.join(*barrier.completed.get());
  barrier.completed = SharedClock(std::move(barrier.arriving));
  barrier.arriving = {};
  barrier.merged = {};
  for (Thread* thread : barrier.waiting) launch.wake(*thread);
  barrier.waiting.clear();
}

void bar_sync(u32 id, u32 threads) { arrive_at_named(id, threads, false, false); }
bool bar_red_or(u32 id, u32 threads, bool predicate) { return arrive_at_named(id, threads, true, predicate); }

void warp_sync() {
  Thread& thread = *current;
  thread.launch->preempt();
  if (!arrive(thread, Collective::warp_sync)) return;
  Thread* lanes = &thread.block->threads[thread.warp->first];
  Clock clock;
  SharedClock merged;
  for (int i = 0; i < 32; ++i) release_to(clock, merged, lanes[i]);
  const SharedClock joined(std::move(clock));
  for (int i = 0; i < 32; ++i) lanes[i].known = joined;
  finish_collective(*thread.warp);
}

u32 warp_uniform(u32 value) {
  return exchange(Collective::warp_uniform, value, 0, [](const Warp& warp, u32) { return warp.lanes[0].x[0]; });
}
u32 shuffle(u32 value, u32 lane) {
  if (lane >= 32) current->launch->fault("shuffle: there is no lane %u", lane);
  return exchange(Collective::shuffle, value, lane,
                  [](const Warp& warp, u32 own) { return warp.lanes[warp.lanes[own].x[1]].x[0]; });
}
u32 shuffle_up(u32 value, u32 by) {
  return exchange(Collective::shuffle_up, value, by, [](const Warp& warp, u32 own) {
    const u32 before = warp.lanes[own].x[1];
    return warp.lanes[before <= own ? own - before : own].x[0];
  });
}
u32 ballot(bool predicate) {
  return exchange(Collective::ballot, predicate, 0, [](const Warp& warp, u32) {
    u32 bits = 0;
    for (u32 lane = 0; lane < 32; ++lane) bits |= warp.lanes[lane].x[0] << lane;
    return bits;
  });
}

void mbarrier_init(u32 address, u32 count) {
  Thread& thread = *current;
  Launch& launch = *thread.launch;
  Block& block = *thread.block;
  if (count == 0 || count >= 1u << 20) launch.fault("mbarrier_init(0x%x, %u): not a legal count", address, count);
  block.memory.at(thread, address, 8, 8, "mbarrier_init");
  for (const Mbarrier& barrier : block.mbarriers)
    if (barrier.address == address) launch.fault("mbarrier_init: there is an mbarrier at 0x%x already", address);
  block.memory.write(thread, address, 8, thread.now, Proxy::generic, "mbarrier_init");
  block.memory.mark_mbarrier(address);
  Mbarrier& barrier = block.mbarriers.emplace_back();
  barrier.address = address;
  barrier.count = count;
  barrier.pending = int(count);
  barrier.initialised = thread.now;
  barrier.entity = block.add_entity({"a TMA load on mbarrier 0x%x (phase %u from 1)", address});
}

void fence_mbarrier_init() {
  Thread& thread = *current;
  for (Mbarrier& barrier : thread.block->mbarriers)
    if (barrier.initialised.entity == thread.entity) barrier.fenced = thread.now;
  thread.inits = thread.now;
  ++thread.now.time;
}

void mbarrier_arrive(u32 address) {
  Thread& thread = *current;
  thread.launch->preempt();
  if (thread.written_group > thread.published_group)  // whoever waits for it reads by the generic proxy
    thread.launch->fault("mbarrier_arrive after a wait for TMA stores, without a fence_proxy_async_global between");
  arrive_at(thread, mbarrier_at(thread, *thread.block, address, "mbarrier_arrive"), "mbarrier_arrive");
}

void mbarrier_arrive_expect_tx(u32 address, u32 bytes) {
  Thread& thread = *current;
  thread.launch->preempt();
  const char* const operation = "mbarrier_arrive_expect_tx";
  expect_at(thread, mbarrier_at(thread, *thread.block, address, operation), bytes, operation);
}

namespace {}  // namespace

void mbarrier_wait_parity(u32 address, u32 parity) {
  Thread& thread = *current;
  thread.launch->preempt();
  Mbarrier& barrier = mbarrier_at(thread, *thread.block, address, "mbarrier_wait_parity");
  check_init_visible(thread, barrier, "mbarrier_wait_parity");
  if (parity > 1) thread.launch->fault("mbarrier_wait_parity(0x%x, %u): a parity is 0 or 1", address, parity);
  while ((barrier.phase & 1) == parity) {
    barrier.waiting.push_back(&thread);
    thread.launch->wait(Wait::mbarrier, address, parity);
  }
  acquire(thread, barrier.completed);
}

void fence_proxy_async() {
  Thread& thread = *current;
  if (thread.fenced.entity == 0) {
    const EntityInfo info{"the fence_proxy_async of thread %u (at %u)", thread.index};
    thread.fenced.entity = thread.block->add_entity(info);
    thread.copies_fenced.entity = thread.block->add_entity(info);
  }
  thread.fenced.time = thread.now.time++;
  if (thread.block->cluster->has_peers()) thread.fences.push_back({thread.fenced.time, thread.known});
  thread.copies_fenced.time = thread.copies.time;
}

}  // namespace jitgemm::emulator
