#include "backend/emulator/wgmma.hpp"

#include <cstring>

#include "backend/emulator/matrix_product.hpp"
#include "backend/emulator/operations.hpp"

namespace jitgemm::emulator {

namespace {

constexpr u32 poison = 0xffffffff;  // a NaN as a float
constexpr u32 register_file = 65536;

Warpgroup& warpgroup_of(Thread& thread) { return *thread.block->warpgroups[thread.index / 128]; }

/// A shared-memory matrix descriptor with the 128-byte swizzle.
struct Operand {
  u32 start, leading, stride;  // bytes
  bool transposed;             // rows of 64 16-bit elements of M (N), a row for each k; else rows of 128 bytes of k

  Operand(u64 descriptor, bool is_transposed)
      : start(u32(descriptor & 0x3fff) << 4),
        leading(u32(descriptor >> 16 & 0x3fff) << 4),
        stride(u32(descriptor >> 32 & 0x3fff) << 4),
        transposed(is_transposed) {}

  /// Where 16 bytes of a row lie.
  u32 chunk(u32 row, u32 byte) const {
    const u32 address = start + row / 8 * stride + row % 8 * 128 + byte % 128 + byte / 128 * leading;
    return address ^ (address >> 3 & 0x70);
  }

  /// Calls f(i, address) for the 16-byte chunks of extent x 32 bytes: in the order [mn][k], transposed [k][mn].
  template <class F>
  void for_each_chunk(u32 extent, F f) const {
    u32 i = 0;
    if (transposed) {
      for (u32 k = 0; k < 16; ++k)
        for (u32 byte = 0; byte < extent * 2; byte += 16) f(i++, chunk(k, byte));
    } else {
      for (u32 mn = 0; mn < extent; ++mn)
        for (u32 byte = 0; byte < 32; byte += 16) f(i++, chunk(mn, byte));
    }
  }
};

void check_operation(Launch& launch, TensorType a, TensorType b, u32 n, bool transposes) {
  if (!is_pair(a, b) || a == TensorType::f64)
    launch.fault("wgmma of %s and %s, which it does not multiply", name_of(a).c_str(), name_of(b).c_str());
  if (transposes && depth(a) != 16)
    launch.fault("wgmma of %s and %s: only 16-bit elements can be transposed", name_of(a).c_str(), name_of(b).c_str());
  const u32 step = is_integer(a) && n > 32 ? 16 : 8;
  if (n == 0 || n > max_n || n % step != 0)
    launch.fault("wgmma of %s: n = %u is not a multiple of %u in 8..%u", name_of(a).c_str(), n, step, max_n);
}

void check_descriptor(Launch& launch, u64 descriptor, const char* name) {
  const unsigned long long shown = descriptor;
  if (descriptor >> 62 != 1) launch.fault("wgmma: descriptor %s 0x%llx does not say 128-byte swizzle", name, shown);
  if (descriptor >> 49 & 7)
    launch.fault("wgmma: descriptor %s 0x%llx has a base offset, which is not emulated", name, shown);
  if ((descriptor & 0x3fff) << 4 & 0x380)
    launch.fault("wgmma: descriptor %s 0x%llx starts in the middle of a 1024-byte swizzle pattern", name, shown);
}

void transpose(const u32* from, u32* to, u32 rows, u32 columns) {
  for (u32 r = 0; r < rows; ++r)
    for (u32 c = 0; c < columns; ++c) to[c * rows + r] = from[r * columns + c];
}

void perform(Thread& thread, const PendingWgmma& operation) {
  SharedMemory& memory = thread.block->memory;
  WgmmaScratch& scratch = thread.launch->wgmma_scratch();
  u32 *const packed = scratch.packed, *const turned = scratch.turned;
  const u32 k = u32(depth(operation.a_type));
  const auto fetch = [&](TensorType type, const Operand& operand, u32 extent, u32* to, bool k_inside) {
    operand.for_each_chunk(extent, [&](u32 i, u32 address) {
      std::memcpy(packed + 4 * i, memory.at(thread, address, 16, 16, "wgmma"), 16);
    });
    const bool as_wanted = operand.transposed != k_inside;
    widen(type, packed, as_wanted ? to : turned, int(extent * 32));
    if (!as_wanted) transpose(turned, to, k_inside ? k : extent, k_inside ? extent : k);
  };
  fetch(operation.a_type, Operand(operation.a, operation.transpose_a), 64, scratch.a, true);
  fetch(operation.b_type, Operand(operation.b, operation.transpose_b), operation.n, scratch.b, false);
  auto& values = operation.accumulators->values;
  if (!operation.accumulate) std::fill(values.begin(), values.end(), 0);
  multiply_add(operation.a_type, scratch.a, scratch.b, values.data(), 64, int(operation.n));
}

void perform_until(Thread& thread, Warpgroup& group, std::size_t end) {
  for (std::size_t i = 0; i < end; ++i) perform(thread, group.pending[i]);
  group.pending.erase(group.pending.begin(), group.pending.begin() + end);
}

/// Calls f(register, element of values) for a thread of the warpgroup.
template <class F>
void for_each_register(u32 thread, u32 n, F f) {
  const u32 row = thread / 32 * 16 + thread % 32 / 4, column = thread % 4 * 2;
  for (u32 j = 0; j < n / 8; ++j)
    for (u32 h = 0; h < 2; ++h) {
      f(4 * j + 2 * h, (row + 8 * h) * n + 8 * j + column);
      f(4 * j + 2 * h + 1, (row + 8 * h) * n + 8 * j + column + 1);
    }
}

/// The tensor cores take the registers of one warp.
void take(Accumulators& accumulators, u32 warp, bool read) {
  for (u32 t = warp * 32; t < warp * 32 + 32; ++t) {
    u32* registers = accumulators.registers[t];
    if (read) for_each_register(t, accumulators.n, [&](u32 r, u32 v) { accumulators.values[v] = registers[r]; });
    std::memset(registers, 0xff, accumulators.n / 2 * sizeof(u32));
  }
  accumulators.in_flight[warp] = true;
}

void hand_back(Launch& launch, Accumulators& accumulators, u32 warp) {
  for (u32 t = warp * 32; t < warp * 32 + 32; ++t) {
    u32* registers = accumulators.registers[t];
    for_each_register(t, accumulators.n, [&](u32 r, u32 v) {
      if (registers[r] != poison)
        launch.fault("wgmma: thread %u wrote accumulator %u before its wgmma_wait_group", t, r);
      registers[r] = accumulators.values[v];
    });
  }
  accumulators.in_flight[warp] = false;
}

/// The accumulators that thread 0 of the warpgroup holds at `registers`.
Accumulators& accumulators_at(Warpgroup& group, u32* registers, u32 n, bool integers) {
  Accumulators* free = nullptr;
  for (auto& known : group.accumulators) {
    const bool in_flight = known->in_flight[0] || known->in_flight[1] || known->in_flight[2] || known->in_flight[3];
    if (in_flight && known->registers[0] == registers) {
      if (known->n != n || known->integers != integers)
        group.block.launch->fault("wgmma: n = %u, %s, on accumulators in flight with n = %u, %s", n,
                                  integers ? "s32" : "f32", known->n, known->integers ? "s32" : "f32");
      return *known;
    }
    if (!in_flight) free = known.get();
  }
  if (!free) free = group.accumulators.emplace_back(std::make_unique<Accumulators>()).get();
  free->n = n;
  free->integers = integers;
  free->values.resize(64 * n);
  return *free;
}

void issue(Thread& thread, Warpgroup& group) {
  Launch& launch = *thread.launch;
  Block& block = *thread.block;
  if (group.entity == 0)
    group.entity = block.add_entity({"the wgmma of warpgroup %u (group %u from 1)", group.first / 128});
  PendingWgmma operation = group.operation;
  for (u32 w = 1; w < 4; ++w)
    if (group.open_group[w] != group.open_group[0])
      launch.fault("wgmma: warps %u and %u are in different groups", group.first / 32, group.first / 32 + w);
  operation.group = group.open_group[0];

  Accumulators& accumulators = accumulators_at(group, static_cast<u32*>(block.warps[group.first / 32].lanes[0].result),
                                               operation.n, is_integer(operation.a_type));
  accumulators.last_group = operation.group;
  for (u32 w = 0; w < 4; ++w) {
    const Warp& warp = block.warps[group.first / 32 + w];
    if (accumulators.in_flight[w]) continue;
    if (group.needs_fence[w])
      launch.fault("wgmma: warp %u calls it on accumulators that it owned, without a wgmma_fence",
                   group.first / 32 + w);
    for (u32 lane = 0; lane < 32; ++lane)
      accumulators.registers[w * 32 + lane] = static_cast<u32*>(warp.lanes[lane].result);
    take(accumulators, w, operation.accumulate);
  }
  operation.accumulators = &accumulators;

  check_descriptor(launch, operation.a, "a");
  check_descriptor(launch, operation.b, "b");
  const Stamp as{group.entity, operation.group};
  const SharedClock* checked = nullptr;
  for (u32 t = group.first; t < group.first + 128; ++t) {  // mostly, all of them know the same
    Thread& member = block.threads[t];
    if (checked && member.known.adopt_if_equal(*checked)) continue;
    checked = &member.known;
    const auto check = [&](u32, u32 address) {
      block.memory.at(member, address, 16, 16, "wgmma");
      block.memory.read(member, address, 16, as, Proxy::wgmma, "wgmma");
    };
    Operand(operation.a, operation.transpose_a).for_each_chunk(64, check);
    Operand(operation.b, operation.transpose_b).for_each_chunk(operation.n, check);
  }
  group.pending.push_back(operation);
  if (launch.acts_at_issue()) perform_until(thread, group, group.pending.size());
}

/// Arrives at what all four warps do together; true for the last lane of the last warp, as arrive() for one warp.
/// `before` checks and records the warp's arguments.
template <class F>
bool arrive_warpgroup(Thread& thread, Collective collective, F before) {
  Launch& launch = *thread.launch;
  if (!arrive(thread, collective)) return false;
  Warpgroup& group = warpgroup_of(thread);
  if (group.first + 128 > launch.threads())
    launch.fault("%s in a warpgroup of fewer than 4 warps", to_string(collective));
  if (group.arrived > 0 && group.collective != collective)
    launch.fault("%s while another warp of its warpgroup is in %s", to_string(collective), to_string(group.collective));
  group.collective = collective;
  before(group);
  if (++group.arrived == 4) return true;
  launch.wait(Wait::warpgroup, 0, u32(collective));
  return false;
}

void finish_warpgroup(Warpgroup& group) {
  group.arrived = 0;
  for (u32 w = 0; w < 4; ++w) finish_collective(group.block.warps[group.first / 32 + w]);
}

}  // namespace

WgmmaScratch& Launch::wgmma_scratch() {
  if (!wgmma_scratch_) wgmma_scratch_ = std::make_unique_for_overwrite<WgmmaScratch>();
  return *wgmma_scratch_;
}

Warpgroup::Warpgroup(Block& its_block, u32 first_thread)
    : block(its_block),
      first(first_thread),
      registers(std::min(register_file / its_block.launch->threads(), 255u) / 8 * 8) {}

void wgmma_fence() {
  Thread& thread = *current;
  thread.launch->preempt();
  if (!arrive(thread, Collective::wgmma_fence)) return;
  warpgroup_of(thread).needs_fence[thread.index / 32 % 4] = false;
  finish_collective(*thread.warp);
}

void wgmma(TensorType a_type, TensorType b_type, u32 n, bool transpose_a, bool transpose_b, void* d, u64 a, u64 b,
           bool accumulate) {
  Thread& thread = *current;
  Warp& warp = *thread.warp;
  thread.launch->preempt();
  check_operation(*thread.launch, a_type, b_type, n, transpose_a || transpose_b);
  LaneArguments& mine = warp.lanes[thread.lane];
  mine.result = d;
  mine.descriptors[0] = a;
  mine.descriptors[1] = b;
  mine.x[0] = accumulate;
  const bool last = arrive_warpgroup(thread, Collective::wgmma, [&](Warpgroup& group) {
    const PendingWgmma operation{a_type, b_type, transpose_a, transpose_b, accumulate, n, 0, a, b, nullptr};
    for (const LaneArguments& lane : warp.lanes)
      if (lane.descriptors[0] != a || lane.descriptors[1] != b || bool(lane.x[0]) != accumulate)
        thread.launch->fault("wgmma: the lanes of the warp differ in their operands");
    if (group.arrived > 0 && !group.operation.same_operation(operation))
      thread.launch->fault("wgmma: the warps of the warpgroup differ in their operands");
    group.operation = operation;
  });
  if (!last) return;
  Warpgroup& group = warpgroup_of(thread);
  issue(thread, group);
  finish_warpgroup(group);
}

void wgmma_commit_group() {
  Thread& thread = *current;
  if (!arrive(thread, Collective::wgmma_commit_group)) return;
  ++warpgroup_of(thread).open_group[thread.index / 32 % 4];
  finish_collective(*thread.warp);
}

void wgmma_wait_group(u32 pending) {
  Thread& thread = *current;
  Warp& warp = *thread.warp;
  thread.launch->preempt();
  if (!arrive(thread, Collective::wgmma_wait_group)) return;
  Warpgroup& group = warpgroup_of(thread);
  const u32 w = thread.index / 32 % 4;
  if (group.entity != 0 && group.open_group[w] > pending) {
    const u32 done = group.open_group[w] - 1 - pending;
    std::size_t end = 0;
    while (end < group.pending.size() && group.pending[end].group <= done) ++end;
    perform_until(thread, group, end);
    for (auto& accumulators : group.accumulators) {
      if (!accumulators->in_flight[w] || accumulators->last_group > done) continue;
      hand_back(*thread.launch, *accumulators, w);
      group.needs_fence[w] = true;
    }
    for (u32 lane = 0; lane < 32; ++lane) {
      Stamp& waited = thread.block->threads[warp.first + lane].wgmmas;
      waited = {group.entity, std::max(waited.time, done)};
    }
  }
  finish_collective(warp);
}

void fire_wgmma(Thread& thread) {
  if (thread.index / 128 >= thread.block->warpgroups.size()) return;
  Warpgroup& group = warpgroup_of(thread);
  if (!group.pending.empty()) perform_until(thread, group, 1 + thread.launch->random() % group.pending.size());
}

void check_wgmma_finished(Thread& thread) {
  for (const auto& accumulators : warpgroup_of(thread).accumulators)
    if (accumulators->in_flight[thread.index / 32 % 4])
      thread.launch->fault("ends with wgmma group %u unfinished", accumulators->last_group);
}

void setmaxnreg(u32 registers, bool increase) {
  Thread& thread = *current;
  Launch& launch = *thread.launch;
  Block& block = *thread.block;
  launch.preempt();
  if (registers % 8 != 0 || registers < 24 || registers > 256)
    launch.fault("setmaxnreg to %u: not a multiple of 8 in 24..256", registers);
  if (!arrive_warpgroup(thread, Collective::setmaxnreg, [](Warpgroup&) {})) return;
  Warpgroup& group = warpgroup_of(thread);
  if (increase ? registers < group.registers : registers > group.registers)
    launch.fault("setmaxnreg_%s from %u to %u registers", increase ? "inc" : "dec", group.registers, registers);
  if (increase) {
    while (block.free_registers < (registers - group.registers) * 128) {
      block.waiting_for_registers.push_back(&thread);
      launch.wait(Wait::registers, 0, registers);
    }
    block.free_registers -= (registers - group.registers) * 128;
  } else {
    block.free_registers += (group.registers - registers) * 128;
    for (Thread* waiting : block.waiting_for_registers) launch.wake(*waiting);
    block.waiting_for_registers.clear();
  }
  group.registers = registers;
  finish_warpgroup(group);
}

}  // namespace jitgemm::emulator
