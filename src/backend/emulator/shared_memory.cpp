#include "backend/emulator/shared_memory.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

#include "backend/emulator/cluster.hpp"
#include "backend/emulator/operations.hpp"

namespace jitgemm::emulator {

namespace {

bool knows(const Thread& thread, Stamp stamp, Proxy proxy) {
  return proxy == Proxy::wgmma ? thread.known.knows(stamp) : thread.knows(stamp);
}

/// Of the cell that the addresses [from, to) are in.
Bytes bytes_of(u32 from, u32 to) { return Bytes(((1u << (to - from)) - 1) << from % 16); }

void check_size(Thread& thread, u32 bytes, const char* operation) {
  if (!std::has_single_bit(bytes) || bytes > 16) thread.launch->fault("%s of %u bytes", operation, bytes);
}

}  // namespace

void SharedMemory::reset(const Block& owner, std::size_t bytes, std::uint32_t base) {
  owner_ = &owner;
  base_ = base;
  bytes_.assign(bytes, 0xff);  // NaN as a float of any kind
  cells_.assign((bytes + 15) / 16, {});
  more_readers_.clear();
}

unsigned char* SharedMemory::at(Thread& thread, u32 address, u32 bytes, u32 alignment, const char* operation) {
  if (is_mapped(address)) fault_mapped(thread, address, operation);
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
  const Cluster& cluster = *owner_->cluster;
  if (writer.time == 0) return;
  Stamp fenced;
  if (writer.entity < cluster.threads) {
    fenced = {cluster.thread(writer.entity).fenced.entity, writer.time};
  } else {
    const EntityInfo& info = cluster.entities[writer.entity - cluster.threads];
    if (info.stores_from_peers) {
      if (owner_fenced(thread, writer, proxy)) return;
      thread.launch->fault("%s at shared address 0x%x, written by %s without a fence_proxy_async in block %u after it",
                           operation, address, describe(cluster, writer).text, owner_->index);
    }
    if (!info.copier) return;  // written by TMA
    fenced = {info.copier->copies_fenced.entity, writer.time};
  }
  if (fenced.entity == 0 || !knows(thread, fenced, proxy))
    thread.launch->fault("%s at shared address 0x%x, written by %s without a fence_proxy_async after it", operation,
                         address, describe(cluster, writer).text);
}

/// Whether a thread of the block fenced after it knew of this store from another block: the writer's own fence is for
/// its own block's memory.
bool SharedMemory::owner_fenced(Thread& thread, Stamp writer, Proxy proxy) const {
  for (const Thread& fencer : owner_->threads)
    for (auto fence = fencer.fences.rbegin(); fence != fencer.fences.rend(); ++fence)
      if (knows(thread, {fencer.fenced.entity, fence->time}, proxy)) {
        if (fence->known.knows(writer)) return true;
        break;  // it knew less before
      }
  return false;
}

void SharedMemory::add_reader(Thread& thread, u32 address, Cell& c, Bytes bytes, Stamp as) {
  int free = -1;
  for (int i = 0; i < 3; ++i) {
    Stamp& reader = c.readers[i];
    const bool covered = (c.bytes_read[i] & ~bytes) == 0;
    if (reader.entity == as.entity && reader.time != 0 && (covered || reader.time == as.time)) {
      reader.time = as.time;
      c.bytes_read[i] |= bytes;
      return;
    }
    // Whoever comes after this read comes after those that this one comes after.
    if (free < 0 && (reader.time == 0 || (covered && thread.knows(reader)))) free = i;
  }
  if (free >= 0) {
    c.readers[free] = as;
    c.bytes_read[free] = bytes;
    return;
  }
  c.more_readers = true;
  auto& more = more_readers_[(address - base_) / 16];
  if (as.entity >= more.size()) more.resize(as.entity + 1);
  // What it read earlier counts as read now: stricter, where one thread reads parts of a cell at different times.
  more[as.entity].time = as.time;
  more[as.entity].bytes |= bytes;
}

void SharedMemory::check_readers(Thread& thread, u32 address, Cell& c, Bytes bytes, const char* operation) {
  const auto come_after = [&](Stamp& reader, Bytes& read) {
    if ((read & bytes) == 0) return;
    if (!thread.knows(reader))
      thread.launch->fault("race: %s at shared address 0x%x, not synchronised with its reader, %s", operation, address,
                           describe(*owner_->cluster, reader).text);
    read &= Bytes(~bytes);
    if (read == 0) reader.time = 0;
  };
  for (int i = 0; i < 3; ++i) come_after(c.readers[i], c.bytes_read[i]);
  if (!c.more_readers) return;
  auto& more = more_readers_[(address - base_) / 16];
  bool any = false;
  for (Entity e = 0; e < more.size(); ++e) {
    Stamp reader{e, more[e].time};
    come_after(reader, more[e].bytes);
    any |= more[e].bytes != 0;
  }
  if (any) return;
  more.clear();
  c.more_readers = false;
}

void SharedMemory::read(Thread& thread, u32 address, u32 bytes, Stamp as, Proxy proxy, const char* operation) {
  const u32 end = address + bytes;
  for (u32 a = address & ~15u; a < end; a += 16) {
    Cell& c = cell(a);
    const u32 from = std::max(a, address), to = std::min(a + 16, end);
    if (c.mbarriers) check_no_mbarrier(thread, c, from, to, operation);
    const auto come_after = [&](u32 at, Stamp writer) {
      if (!knows(thread, writer, proxy))
        thread.launch->fault("race: %s at shared address 0x%x, not synchronised with its writer, %s", operation, at,
                             describe(*owner_->cluster, writer).text);
      if (proxy != Proxy::generic) check_fenced(thread, a, writer, proxy, operation);
    };
    Stamp checked;  // mostly, one store has written all of it
    for (u32 word = from & ~3u; word < to; word += 4) {
      if (c.split_words >> word / 4 % 4 & 1) {
        for (u32 byte = std::max(word, from); byte < std::min(word + 4, to); ++byte)
          come_after(byte, *byte_writers(byte));
      } else if (const Stamp writer = c.writers[word / 4 % 4]; !(writer == checked)) {
        come_after(word, writer);
        checked = writer;
      }
    }
    add_reader(thread, a, c, bytes_of(from, to), as);
  }
}

void SharedMemory::write(Thread& thread, u32 address, u32 bytes, Stamp as, Proxy proxy, const char* operation) {
  const u32 end = address + bytes;
  for (u32 a = address & ~15u; a < end; a += 16) {
    Cell& c = cell(a);
    const u32 from = std::max(a, address), to = std::min(a + 16, end);
    if (c.mbarriers) check_no_mbarrier(thread, c, from, to, operation);
    check_readers(thread, a, c, bytes_of(from, to), operation);
    const auto come_after = [&](u32 at, Stamp writer) {
      if (writer.time == 0) return;
      if (!thread.knows(writer))
        thread.launch->fault("race: %s at shared address 0x%x, not synchronised with its previous writer, %s",
                             operation, at, describe(*owner_->cluster, writer).text);
      if (proxy != Proxy::generic) check_fenced(thread, a, writer, proxy, operation);
    };
    for (u32 word = from & ~3u; word < to; word += 4) {
      Stamp& writer = c.writers[word / 4 % 4];
      const unsigned char split = 1 << word / 4 % 4;
      const u32 first = std::max(word, from), last = std::min(word + 4, to);
      const bool whole = last - first == 4;
      if (!(c.split_words & split)) {
        if (whole) {
          come_after(word, writer);
          writer = as;
          continue;
        }
        if (byte_writers_.size() < 16 * cells_.size()) byte_writers_.resize(16 * cells_.size());
        std::fill_n(byte_writers(word), 4, writer);
        c.split_words |= split;
      }
      for (u32 byte = first; byte < last; ++byte) {
        come_after(byte, *byte_writers(byte));
        *byte_writers(byte) = as;
      }
      if (whole) {
        c.split_words &= ~split;
        writer = as;
      }
    }
  }
}

void st_shared(u32 address, const void* data, u32 bytes) {
  Thread& thread = *current;
  thread.launch->preempt();
  check_size(thread, bytes, "st_shared");
  SharedMemory& memory = thread.block->memory;
  unsigned char* to = memory.at(thread, address, bytes, bytes, "st_shared");
  memory.write(thread, address, bytes, thread.now, Proxy::generic, "st_shared");
  std::memcpy(to, data, bytes);
}

void ld_shared(u32 address, void* data, u32 bytes) {
  Thread& thread = *current;
  thread.launch->preempt();
  check_size(thread, bytes, "ld_shared");
  SharedMemory& memory = thread.block->memory;
  const unsigned char* from = memory.at(thread, address, bytes, bytes, "ld_shared");
  memory.read(thread, address, bytes, thread.now, Proxy::generic, "ld_shared");
  std::memcpy(data, from, bytes);
}

void ldmatrix_x4(u32 address, u32* x, bool transposed) {
  Thread& thread = *current;
  Warp& warp = *thread.warp;
  thread.launch->preempt();
  SharedMemory& memory = thread.block->memory;
  LaneArguments& mine = warp.lanes[thread.lane];
  mine.a = memory.at(thread, address, 16, 16, "ldmatrix_x4");
  mine.result = x;
  memory.read(thread, address, 16, thread.now, Proxy::generic, "ldmatrix_x4");
  if (!arrive(thread, transposed ? Collective::ldmatrix_trans : Collective::ldmatrix)) return;
  for (int lane = 0; lane < 32; ++lane) {
    u32* to = static_cast<u32*>(warp.lanes[lane].result);
    for (int matrix = 0; matrix < 4; ++matrix) {
      const LaneArguments* rows = &warp.lanes[8 * matrix];
      if (transposed) {
        const auto element = [&](int row) { return static_cast<const std::uint16_t*>(rows[row].a)[lane / 4]; };
        to[matrix] = element(2 * (lane % 4)) | u32(element(2 * (lane % 4) + 1)) << 16;
      } else {
        to[matrix] = static_cast<const u32*>(rows[lane / 4].a)[lane % 4];
      }
    }
  }
  finish_collective(warp);
}

void stmatrix(u32 address, const u32* x, u32 matrices, bool transposed) {
  Thread& thread = *current;
  Warp& warp = *thread.warp;
  thread.launch->preempt();
  SharedMemory& memory = thread.block->memory;
  LaneArguments& mine = warp.lanes[thread.lane];
  const Collective collective = matrices == 1 ? (transposed ? Collective::stmatrix_x1_trans : Collective::stmatrix_x1)
                                : matrices == 2
                                    ? (transposed ? Collective::stmatrix_x2_trans : Collective::stmatrix_x2)
                                    : (transposed ? Collective::stmatrix_x4_trans : Collective::stmatrix_x4);
  const u32 rows = 8 * matrices;
  if (thread.lane < rows) {
    mine.result = memory.at(thread, address, 16, 16, to_string(collective));
    memory.write(thread, address, 16, thread.now, Proxy::generic, to_string(collective));
  }
  std::copy_n(x, matrices, mine.x);
  if (!arrive(thread, collective)) return;
  for (u32 row = 0; row < rows; ++row)  // row % 8 of matrix row / 8
    for (u32 i = 0; i < 8; ++i) {
      const u32 from_row = transposed ? i : row % 8, from_column = transposed ? row % 8 : i;
      static_cast<std::uint16_t*>(warp.lanes[row].result)[i] =
          std::uint16_t(warp.lanes[from_row * 4 + from_column / 2].x[row / 8] >> from_column % 2 * 16);
    }
  finish_collective(warp);
}

}  // namespace jitgemm::emulator
