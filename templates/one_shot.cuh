// An all-reduce in one step, for results so small that the time of a message counts, not its size: each rank sends its
// sums to all others, adds up what comes in the order of ranks, and applies the epilogue. Each word that travels has 64
// bits, of which 32 are sums and 32 the number of the call, as in NCCL's protocol LL. So what is waited for is the data
// itself, and nothing is ordered: no fence, no flag behind the data, which would cost another way across NVLink.
//
// By the PTX memory model: scalar accesses up to 64 bits that are strong, as relaxed ones are, have single-copy
// atomicity, so that a word that has this call's number has this call's sums; a vector is an access for each of its
// elements, in no order, so that each word of two is looked at.
//
// A rank has two buffers for what comes, in turn by the number of the call. Two suffice: a rank sends words of call e
// when its call e - 1 is over, for which it had to have words of call e - 1 from every other rank; and these were sent
// when the other rank's call e - 2, the last one that read the same buffer, was over there. The number lies in memory
// of the device, so that a captured graph counts on with each replay.
//
// No wait is for what waits for this rank: a thread sends all that is its own before it waits, and all blocks are
// resident together. Waits end in time: Patience.
#pragma once
#include "finish_sums.cuh"
#include "ide.cuh"
#include "memory.cuh"
#include "one_shot_arguments.cuh"
#include "ptx/barrier.cuh"
#include "ptx/bits.cuh"
#include "ptx/dependent_launch.cuh"
#include "ptx/global.cuh"
#include "ptx/math.cuh"
#include "ptx/special_registers.cuh"
#include "ptx/system.cuh"
#include "wait_for_rank.cuh"

namespace jitgemm::device {

// A thread has so many neighbours of a row at a time, its item.
constexpr int ITEM_BYTES = ELEMENTS * int(sizeof(ElementC)), WORDS = one_shot_words(ITEM_BYTES);
static_assert(ITEM_BYTES <= 8, "a vector of two words");

__device__ __forceinline__ u64 word_of(u32 sums, u32 epoch) { return u64(epoch) << 32 | sums; }
__device__ __forceinline__ u32 epoch_of(u64 word) { return u32(word >> 32); }

__device__ __forceinline__ void load_item(const void* sums, i64 item, u32 (&data)[WORDS]) {
  const char* const from = static_cast<const char*>(sums) + item * ITEM_BYTES;
  if constexpr (ITEM_BYTES == 8) {
    const u64 both = ptx::ld_global<u64>(from);
    data[0] = u32(both);
    data[WORDS - 1] = u32(both >> 32);
  } else if constexpr (ITEM_BYTES == 4) {
    data[0] = ptx::ld_global<u32>(from);
  } else {
    data[0] = ptx::ld_global<u16>(from);
  }
}

/// T is ElementC.
template <typename T, int COUNT>
__device__ __forceinline__ void unpack_item(T, const u32 (&data)[WORDS], ElementCompute (&x)[COUNT]) {
  if constexpr (sizeof(T) == 8) {
    x[0] = ptx::from_bits(T(), data[0] | u64(data[WORDS - 1]) << 32);
  } else if constexpr (sizeof(T) == 4) {
#pragma unroll
    for (int i = 0; i < COUNT; ++i) x[i] = ptx::from_bits(T(), data[i]);
  } else if constexpr (COUNT == 1) {
    x[0] = ptx::to_f32(T{u16(data[0])});
  } else {
#pragma unroll
    for (int i = 0; i < COUNT; i += 2) unpack(T{}, data[i / 2], x[i], x[i + 1]);
  }
}

/// A call, as a thread has it.
class OneShot {
  const OneShotArguments& args;
  u32 epoch;
  i64 items;

 public:
  __device__ __forceinline__ OneShot(const OneShotArguments& its_args, u32 its_epoch)
      : args(its_args), epoch(its_epoch), items(i64(its_args.m) * its_args.n / ELEMENTS) {}

  /// For each item of this thread. Warps are dealt to blocks one by one: more SMs send at a time.
  template <typename Work>
  __device__ __forceinline__ void for_each_item(const Work& work) const {
    const u32 thread = ptx::thread_index(), blocks = ptx::grid_size();
    const i64 first = (i64(thread / 32) * blocks + ptx::block_index()) * 32 + thread % 32;
#pragma unroll 1
    for (i64 item = first; item < items; item += i64(args.threads) * blocks) work(item);
  }

  __device__ __forceinline__ void send(i64 item) const {
    u32 data[WORDS];
    load_item(args.sums, item, data);
    u64 words[WORDS];
#pragma unroll
    for (int i = 0; i < WORDS; ++i) words[i] = word_of(data[i], epoch);
#pragma unroll 1
    for (int i = 1; i < args.ranks; ++i)
      ptx::st_relaxed_sys(place_of(item, args.rank, recipient_at(args.rank, args.ranks, i)), words);
  }

  /// The same bits on all ranks: each adds in the order of ranks.
  __device__ __forceinline__ void add_and_finish(const EpilogueFunctor& functor, i64 item) const {
    const i64 columns = args.n / ELEMENTS, row = item / columns, column = (item - row * columns) * ELEMENTS;
    u32 data[WORDS];
    load_item(args.sums, item, data);
    u64 words[most_ranks][WORDS];
#pragma unroll
    for (int rank = 0; rank < most_ranks; ++rank)  // all on their way before the first is looked at
      if (rank < args.ranks && rank != args.rank) ptx::ld_relaxed_sys(place_of(item, rank, args.rank), words[rank]);
    ElementCompute sums[ELEMENTS] = {};
#pragma unroll
    for (int rank = 0; rank < most_ranks; ++rank) {
      if (rank >= args.ranks) break;
      u32 its[WORDS];
      if (rank != args.rank) await_words(item, rank, words[rank]);
#pragma unroll
      for (int i = 0; i < WORDS; ++i) its[i] = rank == args.rank ? data[i] : u32(words[rank][i]);
      ElementCompute next[ELEMENTS];
      unpack_item(ElementC{}, its, next);
#pragma unroll
      for (int i = 0; i < ELEMENTS; ++i) sums[i] = rank == 0 ? next[i] : ptx::add(sums[i], next[i]);
    }
    finish_sums<ELEMENTS>(args, functor, row, column, sums);
  }

 private:
  /// Where `recipient` gets an item of `sender`.
  __device__ __forceinline__ u64* place_of(i64 item, int sender, int recipient) const {
    return args.received[recipient] + one_shot_place(epoch, args.buffer_words, sender, items, item, WORDS);
  }

  /// Loads the words again until all are of this call, or no wait makes sense any more.
  __device__ __forceinline__ void await_words(i64 item, int sender, u64 (&words)[WORDS]) const {
    Wait wait;
#pragma unroll 1
    while (epoch_of(words[0]) != epoch || epoch_of(words[WORDS - 1]) != epoch) {
      if (wait.is_over(args.patience, sender, epoch)) return;
      ptx::between_polls();
      ptx::ld_relaxed_sys(place_of(item, sender, args.rank), words);
    }
  }
};

__device__ __forceinline__ void one_shot(const OneShotArguments& args) {
  if constexpr (DEPENDENT_LAUNCH) {
    ptx::griddepcontrol_wait();
    ptx::griddepcontrol_launch_dependents();
  }
  const u32 epoch = epoch_after(ptx::ld_global<u32>(args.epoch));
  const OneShot call(args, epoch);
  call.for_each_item([&](i64 item) { call.send(item); });
  ptx::bar_sync(0, args.threads);  // all of the block have read the epoch
  if (ptx::thread_index() == 0) {
    const u32 last = ptx::grid_size() - 1;
    if (ptx::atom_inc_acq_rel_gpu(args.tickets, last) == last) ptx::st_global(args.epoch, epoch);
  }
  const EpilogueFunctor functor = functor_of(args);
  call.for_each_item([&](i64 item) { call.add_and_finish(functor, item); });
}

}  // namespace jitgemm::device
