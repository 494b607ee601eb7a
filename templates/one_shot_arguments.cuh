// What a launch gives the kernel that adds up the ranks' sums in one step. Plain C++, also compiled on the host.
#ifndef JITGEMM_ONE_SHOT_ARGUMENTS_CUH
#define JITGEMM_ONE_SHOT_ARGUMENTS_CUH
#include "finish_sums_arguments.cuh"
#include "shard_arguments.cuh"

namespace jitgemm::device {

constexpr int ONE_SHOT_THREADS = 512, ONE_SHOT_BLOCKS_PER_SM = 2;  // at most, so that all are resident together

/// Words of 64 bits by which so many bytes of sums travel: 32 bits of sums in each.
constexpr int one_shot_words(int bytes) { return bytes > 4 ? bytes / 4 : 1; }

/// The number of a call. 0 is no call's: memory has it where nothing was sent yet. Even and odd numbers take turns, at
/// the end of 32 bits, too.
constexpr unsigned epoch_after(unsigned epoch) { return epoch + 1 != 0 ? epoch + 1 : 2; }

/// Where a rank gets an item of `sender`, in words: in the buffer of even calls or of odd ones.
constexpr long long one_shot_place(unsigned epoch, long long buffer_words, int sender, long long items, long long item,
                                   int words) {
  return epoch % 2 * buffer_words + (sender * items + item) * words;
}

struct OneShotArguments : FinishSumsArguments {
  int rank, ranks;
  int threads;        // of a block
  const void* sums;   // of this rank, of ElementC, M x N, in one piece; D may be that
  unsigned* epoch;    // of the call before; of this one when all blocks have read it
  unsigned* tickets;  // of blocks that have; zero before and after the launch
  // Where each rank gets words: two buffers, and in each a part for each sender, of as many words as this call has.
  unsigned long long* received[most_ranks];
  long long buffer_words;
  Patience patience;
};

}  // namespace jitgemm::device

#endif
