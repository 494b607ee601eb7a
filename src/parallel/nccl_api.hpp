#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <string>

#include "jitgemm/error.hpp"
#include "jitgemm/types.hpp"

struct ncclComm;

namespace jitgemm::nccl {

// Declared as NCCL's public header nccl.h has them, which the library does not need to be built: the numbers are the
// same in every version that knows them.
enum class Result : int {
  success = 0,
  unhandled_cuda_error = 1,
  system_error = 2,
  internal_error = 3,
  invalid_argument = 4,
  invalid_usage = 5,
  remote_error = 6,  // a rank that is gone; not in the oldest
  in_progress = 7,   // of non-blocking communicators; not in the oldest
};
enum class Type : int {
  int8 = 0,
  int32 = 2,
  float16 = 6,
  float32 = 7,
  float64 = 8,
  bfloat16 = 9,  // since 2.10
};
enum class Reduction : int { sum = 0 };

inline constexpr int oldest_version = 2400;        // 2.4: ncclCommGetAsyncError
inline constexpr int first_with_bfloat16 = 21000;  // 2.10
inline constexpr int first_with_graphs = 20900;    // 2.9: what stream capture takes

/// NCCL's functions, found at run time, so that the library loads where there is no NCCL. Plain pointers: a test puts
/// functions of its own in.
struct NcclApi {
  Result (*get_version)(int* version) = nullptr;
  const char* (*get_error_string)(Result) = nullptr;
  Result (*comm_count)(ncclComm*, int* ranks) = nullptr;
  Result (*comm_user_rank)(ncclComm*, int* rank) = nullptr;
  Result (*comm_cu_device)(ncclComm*, int* device) = nullptr;
  Result (*comm_get_async_error)(ncclComm*, Result*) = nullptr;
  Result (*all_gather)(const void* send, void* receive, std::size_t send_count, Type, ncclComm*, Stream) = nullptr;
  Result (*reduce_scatter)(const void* send, void* receive, std::size_t receive_count, Type, Reduction, ncclComm*,
                           Stream) = nullptr;
  Result (*all_reduce)(const void* send, void* receive, std::size_t count, Type, Reduction, ncclComm*,
                       Stream) = nullptr;
  Result (*broadcast)(const void* send, void* receive, std::size_t count, Type, int root, ncclComm*, Stream) = nullptr;
  int version = 0;  // as ncclGetVersion answers: 21005 is 2.10.5
};

/// Finds every function in what `library` names. Throws Error{no_device} for an NCCL that is too old.
NcclApi bind_nccl(const std::function<void*(const char* name)>& symbol, const std::string& library);

/// The one that is in the process already, as a communicator belongs to the copy that made it; else the library's.
NcclApi load_nccl(const std::string& library = "libnccl.so.2");

/// The process's NCCL, found on first need and never unloaded. Throws Error{no_device}.
const NcclApi& nccl();

/// What nccl() answers instead while it is not null, as in tests only.
extern std::atomic<const NcclApi*> nccl_for_tests;

/// "2.10.5"
std::string version_text(int version);

/// The type as which sums of ranks travel; Error{invalid_problem} if this NCCL does not add it.
Type type_of(const NcclApi& api, DataType type);

/// Of a call that failed on `rank`: peer_lost where NCCL says so, else communicator_failed.
Error nccl_error(const NcclApi& api, Result result, const char* call, int rank);

}  // namespace jitgemm::nccl
