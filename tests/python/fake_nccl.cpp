// fake_nccl.hpp as a library that a process opens by NCCL's name, and what a test tells it by ctypes. Its communicators
// do not block: the emulator's streams, on which others would wait, are the package's own.
#include <memory>
#include <mutex>
#include <set>
#include <string>

#include "fake_nccl.hpp"

using namespace jitgemm;
using namespace jitgemm::test;

#define EXPORTED extern "C" __attribute__((visibility("default")))

namespace {

struct World {
  int ranks;
  FakeNccl nccl;

  explicit World(int its_ranks) : ranks(its_ranks), nccl(its_ranks) { nccl.nonblocking = true; }
};

std::mutex& mutex = *new std::mutex;  // of the set
std::set<const ncclComm*>& alive = *new std::set<const ncclComm*>;

/// A function of the communicator's world, where there is that world still: else what newer NCCLs say.
template <typename Function, typename... Arguments>
nccl::Result call(ncclComm* communicator, Function nccl::NcclApi::* function, Arguments... arguments) {
  {
    const std::lock_guard lock(mutex);
    if (!alive.contains(communicator)) return nccl::Result::invalid_argument;
  }
  return (communicator->world->api().*function)(arguments...);
}

}  // namespace

EXPORTED nccl::Result ncclGetVersion(int* version) { return *version = 22809, nccl::Result::success; }
EXPORTED const char* ncclGetErrorString(nccl::Result result) {
  return result == nccl::Result::invalid_argument ? "invalid argument" : "made to fail";
}
EXPORTED nccl::Result ncclCommCount(ncclComm* communicator, int* ranks) {
  return call(communicator, &nccl::NcclApi::comm_count, communicator, ranks);
}
EXPORTED nccl::Result ncclCommUserRank(ncclComm* communicator, int* rank) {
  return call(communicator, &nccl::NcclApi::comm_user_rank, communicator, rank);
}
EXPORTED nccl::Result ncclCommCuDevice(ncclComm* communicator, int* device) {
  return call(communicator, &nccl::NcclApi::comm_cu_device, communicator, device);
}
EXPORTED nccl::Result ncclCommGetAsyncError(ncclComm* communicator, nccl::Result* error) {
  return call(communicator, &nccl::NcclApi::comm_get_async_error, communicator, error);
}
EXPORTED nccl::Result ncclAllGather(const void* send, void* receive, std::size_t count, nccl::Type type,
                                    ncclComm* communicator, Stream stream) {
  return call(communicator, &nccl::NcclApi::all_gather, send, receive, count, type, communicator, stream);
}
EXPORTED nccl::Result ncclReduceScatter(const void* send, void* receive, std::size_t count, nccl::Type type,
                                        nccl::Reduction reduction, ncclComm* communicator, Stream stream) {
  return call(communicator, &nccl::NcclApi::reduce_scatter, send, receive, count, type, reduction, communicator,
              stream);
}
EXPORTED nccl::Result ncclAllReduce(const void* send, void* receive, std::size_t count, nccl::Type type,
                                    nccl::Reduction reduction, ncclComm* communicator, Stream stream) {
  return call(communicator, &nccl::NcclApi::all_reduce, send, receive, count, type, reduction, communicator, stream);
}
EXPORTED nccl::Result ncclBroadcast(const void* send, void* receive, std::size_t count, nccl::Type type, int root,
                                    ncclComm* communicator, Stream stream) {
  return call(communicator, &nccl::NcclApi::broadcast, send, receive, count, type, root, communicator, stream);
}

EXPORTED World* fake_make(int ranks) {
  auto* const world = new World(ranks);
  const std::lock_guard lock(mutex);
  for (int rank = 0; rank < ranks; ++rank) alive.insert(world->nccl.communicator(rank));
  return world;
}
EXPORTED void fake_destroy(World* world) {
  {
    const std::lock_guard lock(mutex);
    for (int rank = 0; rank < world->ranks; ++rank) alive.erase(world->nccl.communicator(rank));
  }
  delete world;
}
EXPORTED ncclComm* fake_communicator(World* world, int rank) { return world->nccl.communicator(rank); }
/// The call of a rank with this number, from 1 on, answers this instead.
EXPORTED void fake_fail(World* world, int rank, int number, int result) {
  world->nccl.fail(rank, number, nccl::Result(result));
}
EXPORTED void fake_set_async_error(World* world, int rank, int result) {
  world->nccl.set_async_error(rank, nccl::Result(result));
}
/// Who waits for a rank that does not come is left alone, and who comes later is told that a rank is gone.
EXPORTED void fake_give_up(World* world) { world->nccl.give_up(); }
EXPORTED void fake_set_device(World* world, int device) { world->nccl.device = device; }
/// Those of a rank so far, lines of name and count.
EXPORTED const char* fake_calls(World* world, int rank) {
  static std::string& last = *new std::string;
  last.clear();
  for (const std::string& one : world->nccl.calls(rank)) last += one + "\n";
  return last.c_str();
}
