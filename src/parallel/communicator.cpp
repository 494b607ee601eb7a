#include "parallel/communicator.hpp"

#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "jitgemm/error.hpp"
#include "parallel/left_behind.hpp"
#include "util/log.hpp"
#include "util/number_text.hpp"

namespace jitgemm {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

constexpr int quick_polls = 1000;  // before a wait gives its core to others
constexpr auto between_polls = std::chrono::microseconds(100);

}  // namespace

Communicator::Communicator(const nccl::NcclApi& api, NcclCommunicator communicator, Backend& backend,
                           double timeout_seconds)
    : api_(api), communicator_(communicator), backend_(backend), timeout_seconds_(timeout_seconds) {
  if (!communicator)
    throw Error(ErrorCode::communicator_failed, "the communicator is null; give one that ncclCommInitRank has made");
  call("ncclCommUserRank", [&] { return api_.comm_user_rank(communicator_, &rank_); });
  call("ncclCommCount", [&] { return api_.comm_count(communicator_, &ranks_); });
  int device = 0;
  call("ncclCommCuDevice", [&] { return api_.comm_cu_device(communicator_, &device); });
  if (const int own = backend.device_number(); own != device) {
    throw Error(ErrorCode::communicator_failed,
                "rank " + std::to_string(rank_) + ": the communicator is of device " + std::to_string(device) +
                    " and the Context of device " + std::to_string(own) +
                    "; make the Context with ContextOptions::cuda_device=" + std::to_string(device));
  }
  check_async();
  if (ranks_ == 1) return;
  memory_ = allocate_memory(backend, std::size_t(ranks_) * most_exchanged_bytes);
  stream_ = backend.create_stream();
}

Communicator::~Communicator() {
  if (!stream_) return;
  bool idle = false;
  try {
    idle = backend_.is_idle(stream_);
  } catch (...) {  // then nothing runs on the device any more
    idle = true;
  }
  if (idle)
    backend_.destroy_stream(stream_);
  else
    leave_behind(memory_.release());
}

void Communicator::fail(const Error& error) {
  const std::lock_guard lock(failure_mutex_);
  if (!failure_) failure_ = std::make_exception_ptr(error);
  throw error;
}

bool Communicator::has_failed() noexcept {
  if (aborted_) return true;
  const std::lock_guard lock(failure_mutex_);
  return failure_ != nullptr;
}

void Communicator::check_failed() {
  if (aborted_) {
    throw Error(ErrorCode::communicator_failed,
                "rank " + std::to_string(rank_) + ": abort() was called; make another TensorParallel");
  }
  const std::lock_guard lock(failure_mutex_);
  if (failure_) std::rethrow_exception(failure_);
}

void Communicator::check_async() {
  nccl::Result state = nccl::Result::success;
  nccl::Result asked = nccl::Result::success;
  backend_.in_its_context([&] { asked = api_.comm_get_async_error(communicator_, &state); });
  if (asked != nccl::Result::success) fail(nccl::nccl_error(api_, asked, "ncclCommGetAsyncError", rank_));
  if (state != nccl::Result::success && state != nccl::Result::in_progress)
    fail(nccl::nccl_error(api_, state, "ncclCommGetAsyncError", rank_));
}

void Communicator::check() {
  check_failed();
  if (ranks_ > 1) check_async();
}

void Communicator::call(const char* name, FunctionRef<nccl::Result()> function) {
  check_failed();
  nccl::Result result = nccl::Result::success;
  backend_.in_its_context([&] { result = function(); });
  if (result == nccl::Result::in_progress) {  // of a non-blocking communicator
    wait_until(name, [&] {
      nccl::Result state = nccl::Result::success;
      backend_.in_its_context([&] { result = api_.comm_get_async_error(communicator_, &state); });
      return result != nccl::Result::success || state != nccl::Result::in_progress;
    });
  }
  if (result != nccl::Result::success) fail(nccl::nccl_error(api_, result, name, rank_));
}

std::string Communicator::other_ranks() const {
  if (ranks_ == 2) return "rank " + std::to_string(1 - rank_);
  std::string text = "one of the ranks";
  for (int other = 0; other < ranks_; ++other)
    if (other != rank_) text += (other == (rank_ == 0 ? 1 : 0) ? " " : ", ") + std::to_string(other);
  return text;
}

void Communicator::wait_until(const char* what, FunctionRef<bool()> done) {
  const Clock::time_point begin = Clock::now();
  for (int poll = 0; !done(); ++poll) {
    check();
    if (timeout_seconds_ > 0 && seconds_since(begin) > timeout_seconds_) {
      fail(Error(ErrorCode::peer_lost,
                 "rank " + std::to_string(rank_) + ": " + other_ranks() + " did not answer in " +
                     general_text(timeout_seconds_, 6) + " s (" + what +
                     "); end all ranks and begin again, or give more timeout_seconds if that rank is only late")
               .with_call(what));
    }
    if (poll < quick_polls)
      std::this_thread::yield();
    else
      std::this_thread::sleep_for(between_polls);
  }
}

void Communicator::exchange(const char* what, std::size_t bytes, FunctionRef<void(char*)> enqueue) {
  check_failed();
  if (bytes > std::size_t(ranks_) * most_exchanged_bytes)
    throw Error(ErrorCode::internal, "an exchange of " + std::to_string(bytes) + " bytes; please report it");
  enqueue(static_cast<char*>(memory_.get()));
  wait_until(what, [this] { return backend_.is_idle(stream_); });
  check();  // what has failed may have ended the wait
}

void Communicator::all_gather_bytes(const void* mine, void* all, std::size_t bytes) {
  if (ranks_ == 1) {
    std::memcpy(all, mine, bytes);
    return;
  }
  exchange("ncclAllGather", bytes * std::size_t(ranks_), [&](char* memory) {
    char* const own = memory + bytes * std::size_t(rank_);
    backend_.copy_to_device(own, mine, bytes);
    all_gather(own, memory, bytes, stream_);
  });
  backend_.copy_to_host(all, memory_.get(), bytes * std::size_t(ranks_));
}

void Communicator::broadcast_bytes(void* data, std::size_t bytes, int root) {
  if (ranks_ == 1) return;
  exchange("ncclBroadcast", bytes, [&](char* memory) {
    if (rank_ == root) backend_.copy_to_device(memory, data, bytes);
    call("ncclBroadcast",
         [&] { return api_.broadcast(memory, memory, bytes, nccl::Type::int8, root, communicator_, stream_); });
  });
  if (rank_ != root) backend_.copy_to_host(data, memory_.get(), bytes);
}

void Communicator::all_gather(const void* send, void* receive, std::size_t send_bytes, Stream stream) {
  call("ncclAllGather",
       [&] { return api_.all_gather(send, receive, send_bytes, nccl::Type::int8, communicator_, stream); });
}

void Communicator::reduce_scatter(const void* send, void* receive, std::size_t receive_count, DataType type,
                                  Stream stream) {
  const nccl::Type travels = nccl::type_of(api_, type);
  call("ncclReduceScatter", [&] {
    return api_.reduce_scatter(send, receive, receive_count, travels, nccl::Reduction::sum, communicator_, stream);
  });
}

void Communicator::all_reduce(const void* send, void* receive, std::size_t count, DataType type, Stream stream) {
  const nccl::Type travels = nccl::type_of(api_, type);
  call("ncclAllReduce",
       [&] { return api_.all_reduce(send, receive, count, travels, nccl::Reduction::sum, communicator_, stream); });
}

}  // namespace jitgemm
