#include "backend/emulator/launch.hpp"

#include <bit>
#include <chrono>
#include <cstdio>
#include <numeric>
#include <thread>

#include "backend/emulator/cluster.hpp"
#include "backend/emulator/copies.hpp"
#include "backend/emulator/wgmma.hpp"
#include "core/out_of_memory.hpp"
#include "jitgemm/error.hpp"

namespace jitgemm::emulator {

Block::Block() = default;
Block::~Block() = default;

Entity Block::add_entity(const EntityInfo& info) {
  cluster->entities.push_back(info);
  cluster->entities.back().block = index;
  return Entity(cluster->threads + cluster->entities.size() - 1);
}

constexpr u64 last_priority = 0;  // what change points do not reach

Launch::Launch(const Options& options, std::function<void()> kernel)
    : options_(options), kernel_(std::move(kernel)), random_state_(options.seed * 0x9e3779b97f4a7c15 + 1) {
  fault_.reserve(most_fault_bytes);
}

Launch::~Launch() {
  for (auto& cluster : clusters_)
    for (auto& block : cluster->blocks)
      if (block->stacks) return_stacks(std::move(block->stacks));
}

u64 Launch::random() {  // splitmix64
  u64 z = random_state_ += 0x9e3779b97f4a7c15;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
  z = (z ^ z >> 27) * 0x94d049bb133111eb;
  return z ^ z >> 31;
}

bool Launch::acts_at_issue() {
  switch (options_.asynchrony) {
    case Asynchrony::at_wait:
      return false;
    case Asynchrony::random:
      return chance(2);
    default:
      return true;
  }
}

void Launch::set_ready(const Warp& warp, bool ready) {
  const u64 bit = u64(1) << warp.slot % 64;
  u64& word = ready_[warp.slot / 64];
  word = ready ? word | bit : word & ~bit;
  if (ready) reconsider_ = true;
}

void Launch::start_cluster(Cluster& cluster, u32 index) {
  cluster.threads = cluster.alive = threads() * cluster_size();
  cluster.barrier = {};
  cluster.entities.clear();
  cluster.global = {};
  // Any multiple of 128 is possible on a device, the same in all blocks; seed 0 has the friendliest.
  const u32 smem_base = 1024 + (adversarial() ? u32(random() % 16) * 128 : 0);
  for (auto& block : cluster.blocks) start_block(*block, index++, smem_base);
}

void Launch::start_block(Block& block, u32 index, u32 smem_base) {
  const u32 count = threads();
  block.index = index;
  block.alive = count;
  block.mbarriers.clear();
  block.remote_accesses = {};
  for (NamedBarrier& barrier : block.barriers) barrier = {};
  block.memory.reset(block, options_.smem_bytes, smem_base);
  block.threads.assign(count, {});
  block.warps.assign(count / 32, {});
  block.warpgroups.clear();
  for (u32 g = 0; g < (count + 127) / 128; ++g) block.warpgroups.push_back(std::make_unique<Warpgroup>(block, g * 128));
  block.free_registers = 0;
  block.waiting_for_registers.clear();
  for (u32 i = 0; i < count; ++i) {
    Thread& thread = block.threads[i];
    thread.launch = this;
    thread.block = &block;
    thread.warp = &block.warps[i / 32];
    thread.index = i;
    thread.lane = i % 32;
    thread.entity = index % cluster_size() * count + i;
    thread.dependencies_ended = !options_.dependent;
    thread.now = {thread.entity, 2};  // 1: it has started
    block.stacks->prepare(int(i), thread.fiber, {&thread, thread_main});
  }
  for (u32 w = 0; w < count / 32; ++w) {
    Warp& warp = block.warps[w];
    warp.block = &block;
    warp.slot = int(block.slot * (count / 32) + w);
    warp.first = w * 32;
    warp.runnable = all_lanes;
    warp.priority = (u64(1) << 62) + random() % (u64(1) << 62);
    slots_[warp.slot] = &warp;
    set_ready(warp, true);
  }
  // Else whoever runs much falls behind whoever waits, so that nobody stays behind for long.
  if (options_.seed % 4 == 3) block.warps[random() % block.warps.size()].priority = last_priority;
}

void Launch::run() {
  host_.adopt_host_stack();
  const int size = options_.cluster;
  std::vector<u32> order = options_.ctas;
  if (order.empty()) {
    order.resize(options_.grid / size);
    std::iota(order.begin(), order.end(), 0u);
  }
  if (adversarial())
    for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random() % i]);

  const std::size_t most_resident =
      options_.all_resident ? order.size() : std::max<std::size_t>(1, most_running / (threads() * std::size_t(size)));
  const std::size_t resident = std::min(
      {order.size(), std::size_t((options_.all_resident ? options_.grid : options_.resident) + size - 1) / size,
       most_resident});
  slots_.resize(resident * size * (threads() / 32));
  ready_.assign((slots_.size() + 63) / 64, 0);

  std::size_t started = 0, finished = 0;
  const auto start = [&](Cluster& cluster) { start_cluster(cluster, order[started++] * u32(size)); };
  for (std::size_t i = 0; i < resident; ++i) {
    Cluster& cluster = *clusters_.emplace_back(std::make_unique<Cluster>());
    for (int rank = 0; rank < size; ++rank) {
      Block& block = *cluster.blocks.emplace_back(std::make_unique<Block>());
      block.launch = this;
      block.cluster = &cluster;
      block.slot = int(i) * size + rank;
      block.stacks = take_stacks(int(threads()));
    }
    start(cluster);
  }
  try {
    while (finished < order.size()) {
      Thread* next = choose(nullptr, 0);
      if (!next) {
        if (fire(true)) continue;
        fault_ = hang_report();
        break;
      }
      running_ = next;
      switch_fiber(host_, next->fiber);
      running_ = nullptr;
      if (!fault_.empty()) break;
      if (finished_) {
        ++finished;
        if (started < order.size()) start(*finished_);
        finished_ = nullptr;
      }
    }
    // Then the launch after this one would not wait for the one before it either.
    if (fault_.empty() && options_.dependent && !some_thread_waited_)
      fault("the launch ends without a griddepcontrol_wait by any thread");
  } catch (const HostFault&) {
  }
  if (out_of_memory_) throw_out_of_memory();
  while (!words_.empty()) {
    if (adversarial() && chance(8)) std::this_thread::sleep_for(std::chrono::microseconds(50));
    words_.show_one(chance(2));
  }
  flush(global_);
  if (fault_.empty()) return;
  const std::string first_line = fault_.substr(0, fault_.find('\n'));
  throw Error(ErrorCode::emulator_fault, "the kernel is wrong: " + first_line + "; the emulator's seed " +
                                             std::to_string(options_.seed) + " shows it again")
      .with_log(fault_ + "\n(seed " + std::to_string(options_.seed) + ", " + std::to_string(options_.resident) +
                " resident blocks)");
}

Thread* Launch::choose_lane(Warp& warp, u32 after) {
  const u32 shift = (adversarial() ? u32(random()) : after + 1) % 32;
  const u32 lane = (std::countr_zero(std::rotr(warp.runnable, int(shift))) + shift) % 32;
  return &warp.block->threads[warp.first + lane];
}

Thread* Launch::choose(const Warp* warp, u32 lane) {
  const bool runnable = warp && warp->runnable;
  const bool by_priority = options_.seed % 2 == 1;
  if (runnable) {
    const bool stay = !adversarial() || (by_priority ? !reconsider_ : !chance(64));
    if (stay) return choose_lane(const_cast<Warp&>(*warp), lane);
  }
  int best = -1;
  if (adversarial() && by_priority) {
    for (std::size_t i = 0; i < ready_.size(); ++i)
      for (u64 word = ready_[i]; word; word &= word - 1) {
        const int slot = int(i * 64) + std::countr_zero(word);
        if (best < 0 || slots_[slot]->priority > slots_[best]->priority) best = slot;
      }
    reconsider_ = false;
  } else {
    const std::size_t count = slots_.size();
    const std::size_t first = adversarial() ? random() % count : warp ? warp->slot + 1 : 0;
    for (std::size_t i = 0; i < count && best < 0; ++i) {
      const std::size_t slot = (first + i) % count;
      if (ready_[slot / 64] >> slot % 64 & 1) best = int(slot);
    }
  }
  return best < 0 ? nullptr : choose_lane(*slots_[best], 31);
}

void Launch::dispatch() {
  Thread& from = *running_;
  Thread* next = choose(from.warp, from.lane);
  if (next == &from) return;
  running_ = next;
  switch_fiber(from.fiber, next ? next->fiber : host_);
}

void Launch::wait(Wait what, u32 address, u32 detail) {
  Thread& thread = *current;
  Warp& warp = *thread.warp;
  thread.wait = what;
  thread.wait_address = address;
  thread.wait_detail = detail;
  warp.runnable &= ~(1u << thread.lane);
  if (!warp.runnable) set_ready(warp, false);
  dispatch();
}

void Launch::wake(Thread& thread) {
  thread.wait = Wait::nothing;
  Warp& warp = *thread.warp;
  if (!warp.runnable) set_ready(warp, true);
  warp.runnable |= 1u << thread.lane;
}

void Launch::wake_lanes(Warp& warp, u32 lanes) {
  if (!warp.runnable) set_ready(warp, true);
  warp.runnable |= lanes;
  for (u32 rest = lanes; rest; rest &= rest - 1)
    warp.block->threads[warp.first + std::countr_zero(rest)].wait = Wait::nothing;
}

void Launch::preempt_slowly() {
  const u64 dice = random();
  if (options_.asynchrony == Asynchrony::random && dice % 8 == 0) fire(false);
  const u64 order = dice >> 8;
  if (options_.seed % 2 == 1) {
    if (order % 256 == 0 && running_->warp->priority != last_priority) {  // a change point: it falls behind all others
      running_->warp->priority = --lowest_priority_;
      reconsider_ = true;
    }
    if (reconsider_) dispatch();
  } else if (order % 32 == 0) {
    Thread& from = *running_;
    Thread* next = choose(nullptr, 0);
    if (next == &from) return;
    running_ = next;
    switch_fiber(from.fiber, next->fiber);
  }
}

void Launch::yield() {
  if (++steps_ > options_.step_cap) fault("no end after %llu steps", (unsigned long long)options_.step_cap);
  fire(true);
  Thread& from = *running_;
  const std::size_t count = slots_.size(), own = std::size_t(from.warp->slot);
  std::size_t slot = (own + 1) % count;
  while (!(ready_[slot / 64] >> slot % 64 & 1)) slot = (slot + 1) % count;  // its own is ready
  Thread* const next = choose_lane(*slots_[slot], slot == own ? from.lane : 31);
  if (next == &from) return;
  running_ = next;
  switch_fiber(from.fiber, next->fiber);
}

/// Lets one piece of asynchronous work take effect. `any`: nothing else can run, so a TMA load must.
bool Launch::fire(bool any) {
  if (!words_.empty() && (any || chance(2))) {
    words_.show_one(chance(2));
    return true;
  }
  if (!loads_.empty() && (any || chance(2))) {
    const std::size_t i = random() % loads_.size();
    std::swap(loads_[i], loads_.back());
    const PendingLoad load = loads_.back();
    loads_.pop_back();
    land(*this, load);
    return true;
  }
  if (any || !running_) return false;
  fire_copy(*running_);
  fire_store(*running_);
  fire_wgmma(*running_);
  return true;
}

void Launch::thread_main() { current->launch->run_thread(); }

void Launch::run_thread() {
  Description failure = {};
  try {
    kernel_();
  } catch (const std::exception& error) {  // must not leave the fiber, nor may the handler be left by another one
    out_of_memory_ = is_out_of_memory(error);
    std::snprintf(failure.text, sizeof failure.text, "the emulator fails: %s", error.what());
  }
  if (failure.text[0]) fault("%s", failure.text);
  Thread& thread = *current;
  Warp& warp = *thread.warp;
  Block& block = *thread.block;
  if (warp.arrived) fault("ends while other lanes of its warp wait in %s", to_string(warp.collective));
  check_copies_finished(thread);
  check_wgmma_finished(thread);
  if (thread.at_cluster_barrier) fault("ends between cluster_arrive_relaxed and cluster_wait");
  thread.wait = Wait::finished;
  warp.exited |= 1u << thread.lane;
  warp.runnable &= ~(1u << thread.lane);
  if (!warp.runnable) set_ready(warp, false);
  Thread* next = nullptr;
  leave_cluster(thread);
  if (--block.alive == 0) {
    check_finished(block);
    if (block.cluster->alive == 0) finished_ = block.cluster;
  } else {
    next = choose(&warp, thread.lane);
  }
  running_ = next;
  leave_fiber(thread.fiber, next ? next->fiber : host_);
}

void Launch::check_finished(Block& block) {
  for (u32 id = 0; id < 16; ++id)
    if (block.barriers[id].arrived)
      fault("the block ends with %u of %u threads at barrier %u", block.barriers[id].arrived,
            block.barriers[id].threads, id);
  for (const Mbarrier& barrier : block.mbarriers) {
    if (barrier.outstanding)
      fault("the block ends with %u TMA loads on mbarrier 0x%x unfinished", barrier.outstanding, barrier.address);
    if (barrier.bytes)
      fault("the block ends with %lld announced bytes missing at mbarrier 0x%x", barrier.bytes, barrier.address);
  }
  check_peers_are_done(block);
}

bool arrive(Thread& thread, Collective collective) {
  Warp& warp = *thread.warp;
  if (warp.arrived == 0) {
    if (warp.exited)
      thread.launch->fault("%s after lane %d of the warp has ended", to_string(collective),
                           std::countr_zero(warp.exited));
    warp.collective = collective;
  } else if (warp.collective != collective) {
    thread.launch->fault("%s while lane %d of the warp is in %s: the warp has diverged", to_string(collective),
                         std::countr_zero(warp.arrived), to_string(warp.collective));
  }
  warp.arrived |= 1u << thread.lane;
  if (warp.arrived == all_lanes) return true;
  thread.launch->wait(Wait::collective);
  return false;
}

void finish_collective(Warp& warp) {
  warp.arrived = 0;
  warp.block->launch->wake_lanes(warp, all_lanes);
}

void release_to(Clock& clock, SharedClock& merged, Thread& thread) {
  if (thread.known.get() && !(thread.known == merged)) {
    clock.join(*thread.known.get());
    merged = thread.known;
  }
  for (const Stamp stamp :
       {thread.now, thread.copies, thread.copies_fenced, thread.stores, thread.fenced, thread.wgmmas})
    clock.raise(stamp);
  ++thread.now.time;
}

void acquire(Thread& thread, const SharedClock& clock) {
  thread.known = thread.launch->joiner().join(thread.known, clock);
}

}  // namespace jitgemm::emulator
