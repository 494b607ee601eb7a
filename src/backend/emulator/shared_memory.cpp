#include "backend/emulator/shared_memory.hpp"

#include <algorithm>
#include <cstring>

#include "backend/emulator/operations.hpp"

namespace jitgemm::emulator {

namespace {

bool knows(const Thread& thread, Stamp stamp, Proxy proxy) {
  return proxy == Proxy::wgmma ? thread.known.knows(stamp) : thread.knows(stamp);
}

}  // namespace

void SharedMemory::reset(std::size_t bytes, std::uint32_t base) {
  base_ = base;
  bytes_.assign(bytes, 0xff);  // NaN as a float of any kind
  cells_.assign((bytes + 15) / 16, {});
  more_readers_.clear();
}

unsigned char* SharedMemory::at(Thread& thread, u32 address, u32 bytes, u32 alignment, const char* operation) {
  if (address < base_ || address - base_ + u64(bytes) > bytes_.size())
    thread.launch->fault("%s of %u bytes at shared address 0x%x, outside of the block's [0x%x, 0x%zx)", operation,
                         bytes, address, base_, base_ + bytes_.size());
  if (address % alignment != 0)
    thread.launch->fault("%s at shared address 0x%x, which is not a multiple of %u", operation, address, alignment);
  return &bytes_[address - base_];
}

void SharedMemory::check_no_mbarrier(Thread& thread, const Cell& c, u32 address, u32 end, const char* operation) {
  for (u32 a = address & ~7u; a < end; a += 8)
    if (c.mbarriers >> a / 8 % 2 & 1)
      thread.launch->fault("%s at shared address 0x%x, where an mbarrier is", operation, a);
}

void SharedMemory::check_fenced(Thread& thread, u32 address, Stamp writer, Proxy proxy, const char* operation) {
  const Block& block = *thread.block;
  if (writer.time == 0) return;
  Stamp fenced;
  if (writer.entity < block.threads.size()) {
    fenced = {block.threads[writer.entity].fenced.entity, writer.time};
  } else {
    const Thread* copier = block.entities[writer.entity - block.threads.size()].copier;
    if (!copier) return;  // written by TMA
    fenced = {copier->copies_fenced.entity, writer.time};
  }
  if (fenced.entity == 0 || !knows(thread, fenced, proxy))
    thread.launch->fault("%s at shared address 0x%x, written by %s without a fence_proxy_async after it", operation,
                         address, describe(block, writer).text);
}

void SharedMemory::add_reader(Thread& thread, u32 address, Cell& c, Stamp as) {
  Stamp* free = nullptr;
  for (Stamp& reader : c.readers) {
    if (reader.entity == as.entity && reader.time != 0) {
      reader.time = as.time;
      return;
    }
    // Whoever comes after this read comes after those that this one comes after.
    if (!free && (reader.time == 0 || thread.knows(reader))) free = &reader;
  }
  if (free) {
    *free = as;
    return;
  }
  c.more_readers = true;
  auto& more = more_readers_[(address - base_) / 16];
  if (as.entity >= more.size()) more.resize(as.entity + 1);
  more[as.entity] = as.time;
}

void SharedMemory::read(Thread& thread, u32 address, u32 bytes, Stamp as, Proxy proxy, const char* operation) {
  for (u32 a = address & ~15u; a < address + bytes; a += 16) {
    Cell& c = cell(a);
    if (c.mbarriers) check_no_mbarrier(thread, c, std::max(a, address), std::min(a + 16, address + bytes), operation);
    for (int word = 0; word < 4; ++word) {
      const Stamp writer = c.writers[word];
      if (word > 0 && writer == c.writers[0]) continue;
      if (!knows(thread, writer, proxy))
        thread.launch->fault("race: %s at shared address 0x%x, not synchronised with its writer, %s", operation,
                             a + 4 * word, describe(*thread.block, writer).text);
      if (proxy != Proxy::generic) check_fenced(thread, a, writer, proxy, operation);
    }
    add_reader(thread, a, c, as);
  }
}

void SharedMemory::write(Thread& thread, u32 address, u32 bytes, Stamp as, Proxy proxy, const char* operation) {
  const Block& block = *thread.block;
  for (u32 a = address & ~15u; a < address + bytes; a += 16) {
    Cell& c = cell(a);
    if (c.mbarriers) check_no_mbarrier(thread, c, std::max(a, address), std::min(a + 16, address + bytes), operation);
    const auto check_reader = [&](Stamp reader) {
      if (!thread.knows(reader))
        thread.launch->fault("race: %s at shared address 0x%x, not synchronised with its reader, %s", operation, a,
                             describe(block, reader).text);
    };
    for (const Stamp reader : c.readers)
      if (reader.time != 0) check_reader(reader);
    if (c.more_readers) {
      auto& more = more_readers_[(a - base_) / 16];
      for (Entity e = 0; e < more.size(); ++e) check_reader({e, more[e]});
      more.clear();
      c.more_readers = false;
    }
    for (Stamp& reader : c.readers) reader = {};
    for (u32 word = 0; word < 4; ++word) {
      if (a + 4 * word < address || a + 4 * word >= address + bytes) continue;
      Stamp& writer = c.writers[word];
      if (writer.time != 0) {
        if (!thread.knows(writer))
          thread.launch->fault("race: %s at shared address 0x%x, not synchronised with its previous writer, %s",
                               operation, a + 4 * word, describe(block, writer).text);
        if (proxy != Proxy::generic) check_fenced(thread, a, writer, proxy, operation);
      }
      writer = as;
    }
  }
}

void st_shared(u32 address, const void* data, u32 bytes) {
  Thread& thread = *current;
  thread.launch->preempt();
  SharedMemory& memory = thread.block->memory;
  unsigned char* to = memory.at(thread, address, bytes, bytes, "st_shared");
  memory.write(thread, address, bytes, thread.now, Proxy::generic, "st_shared");
  std::memcpy(to, data, bytes);
}

void ld_shared_v4(u32 address, u32* x) {
  Thread& thread = *current;
  thread.launch->preempt();
  SharedMemory& memory = thread.block->memory;
  const unsigned char* from = memory.at(thread, address, 16, 16, "ld_shared_v4");
  memory.read(thread, address, 16, thread.now, Proxy::generic, "ld_shared_v4");
  std::memcpy(x, from, 16);
}

void ldmatrix_x4(u32 address, u32* x, bool transposed) {
  Thread& thread = *current;
  Warp& warp = *thread.warp;
  thread.launch->preempt();
  SharedMemory& memory = thread.block->memory;
  LaneArguments& mine = warp.lanes[thread.lane];
  mine.a = reinterpret_cast<const u32*>(memory.at(thread, address, 16, 16, "ldmatrix_x4"));
  mine.result = x;
  memory.read(thread, address, 16, thread.now, Proxy::generic, "ldmatrix_x4");
  if (!arrive(thread, transposed ? Collective::ldmatrix_trans : Collective::ldmatrix)) return;
  for (int lane = 0; lane < 32; ++lane) {
    u32* to = static_cast<u32*>(warp.lanes[lane].result);
    for (int matrix = 0; matrix < 4; ++matrix) {
      const LaneArguments* rows = &warp.lanes[8 * matrix];
      if (transposed) {
        const auto element = [&](int row) { return reinterpret_cast<const std::uint16_t*>(rows[row].a)[lane / 4]; };
        to[matrix] = element(2 * (lane % 4)) | u32(element(2 * (lane % 4) + 1)) << 16;
      } else {
        to[matrix] = rows[lane / 4].a[lane % 4];
      }
    }
  }
  finish_collective(warp);
}

void stmatrix_x4(u32 address, u32 x0, u32 x1, u32 x2, u32 x3) {
  Thread& thread = *current;
  Warp& warp = *thread.warp;
  thread.launch->preempt();
  SharedMemory& memory = thread.block->memory;
  LaneArguments& mine = warp.lanes[thread.lane];
  mine.result = memory.at(thread, address, 16, 16, "stmatrix_x4");
  memory.write(thread, address, 16, thread.now, Proxy::generic, "stmatrix_x4");
  mine.x[0] = x0;
  mine.x[1] = x1;
  mine.x[2] = x2;
  mine.x[3] = x3;
  if (!arrive(thread, Collective::stmatrix)) return;
  for (int row = 0; row < 32; ++row)  // row % 8 of matrix row / 8
    for (int pair = 0; pair < 4; ++pair)
      static_cast<u32*>(warp.lanes[row].result)[pair] = warp.lanes[row % 8 * 4 + pair].x[row / 8];
  finish_collective(warp);
}

}  // namespace jitgemm::emulator
