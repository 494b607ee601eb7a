#include <bit>
#include <cstdarg>
#include <cstdio>

#include "backend/emulator/launch.hpp"

namespace jitgemm::emulator {

void Launch::fault(const char* format, ...) {
  char text[most_fault_bytes];
  int used = 0;
  if (running_)
    used = std::snprintf(text, sizeof text, "block %u, thread %u (warp %u): ", running_->block->index, running_->index,
                         running_->index / 32);
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text + used, sizeof text - used, format, arguments);
  va_end(arguments);
  fault_ = text;
  if (!running_) throw HostFault();
  Thread& thread = *running_;
  running_ = nullptr;
  leave_fiber(thread.fiber, host_);
}

const char* to_string(Collective collective) {
  static constexpr const char* names[] = {
      "nothing",           "warp_sync",         "warp_uniform", "shuffle",     "shuffle_up",  "ballot",
      "ldmatrix_x4",       "ldmatrix_x4_trans", "stmatrix_x1",  "stmatrix_x2", "stmatrix_x4", "stmatrix_x1_trans",
      "stmatrix_x2_trans", "stmatrix_x4_trans", "mma",          "wgmma_fence", "wgmma",       "wgmma_commit_group",
      "wgmma_wait_group",  "setmaxnreg"};
  return names[int(collective)];
}

std::string Launch::hang_report() const {
  std::string report = "nothing can run: the launch hangs";
  std::vector<const Block*> blocks;
  for (const auto& cluster : clusters_)
    for (const auto& block : cluster->blocks)
      if (cluster->alive != 0) blocks.push_back(block.get());
  for (const Block* block : blocks) {
    for (std::size_t i = 0; i < block->threads.size();) {
      const Thread& first = block->threads[i];
      std::size_t end = i;
      const auto same = [&](const Thread& t) {
        return t.wait == first.wait && t.wait_address == first.wait_address && t.wait_detail == first.wait_detail &&
               (first.wait != Wait::collective || t.warp == first.warp);
      };
      while (end < block->threads.size() && same(block->threads[end])) ++end;
      char text[256];
      const u32 a = first.wait_address, d = first.wait_detail;
      int used = std::snprintf(text, sizeof text, "\nblock %u, threads %zu-%zu: ", block->index, i, end - 1);
      char* rest = text + used;
      const std::size_t space = sizeof text - used;
      switch (first.wait) {
        case Wait::collective:
          std::snprintf(rest, space, "in %s, which the whole warp must call: %d of 32 lanes have",
                        to_string(first.warp->collective), std::popcount(first.warp->arrived));
          break;
        case Wait::warpgroup:
          std::snprintf(rest, space, "in %s, which the whole warpgroup must call", to_string(Collective(d)));
          break;
        case Wait::barrier:
          std::snprintf(rest, space, "at barrier %u, which %u threads have reached of %u", a,
                        block->barriers[a].arrived, d);
          break;
        case Wait::mbarrier: {
          std::snprintf(rest, space, "at mbarrier 0x%x for parity %u", a, d);
          for (const Mbarrier& barrier : block->mbarriers)
            if (barrier.address == a)
              std::snprintf(rest, space,
                            "at mbarrier 0x%x for parity %u: its phase %u lacks %d of %u arrivals and %lld bytes", a, d,
                            barrier.phase, barrier.pending, barrier.count, barrier.bytes);
          break;
        }
        case Wait::cluster:
          std::snprintf(rest, space, "at the cluster's barrier, at which %u of %u threads have arrived",
                        block->cluster->barrier.arrived, block->cluster->alive);
          break;
        case Wait::registers:
          std::snprintf(rest, space, "in setmaxnreg_inc(%u): %u registers are free", d, block->free_registers);
          break;
        case Wait::finished:
          std::snprintf(rest, space, "finished");
          break;
        case Wait::nothing:
          std::snprintf(rest, space, "runnable");
          break;
      }
      report += text;
      i = end;
    }
  }
  return report;
}

Description describe(const Cluster& cluster, Stamp stamp) {
  Description d;
  u32 block;
  int used;
  if (stamp.entity < cluster.threads) {
    const Thread& thread = cluster.thread(stamp.entity);
    used = std::snprintf(d.text, sizeof d.text, "thread %u (warp %u)", thread.index, thread.index / 32);
    block = thread.block->index;
  } else {
    const EntityInfo& info = cluster.entities[stamp.entity - cluster.threads];
    used = std::snprintf(d.text, sizeof d.text, info.name, info.of, stamp.time);
    block = info.block;
  }
  if (cluster.has_peers()) std::snprintf(d.text + used, sizeof d.text - used, " of block %u", block);
  return d;
}

}  // namespace jitgemm::emulator
