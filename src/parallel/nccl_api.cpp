#include "parallel/nccl_api.hpp"

#include <dlfcn.h>

namespace jitgemm::nccl {
namespace {

constexpr const char* way_out =
    "install NCCL 2.4 or newer (libnccl2, or nvidia-nccl-cu12 and -cu13 of PyPI), and have what makes the communicator "
    "use the same one";

using Symbol = std::function<void*(const char*)>;

template <typename Function>
void find(const Symbol& symbol, Function& function, const char* name) {
  function = reinterpret_cast<Function>(symbol(name));
}

template <typename Function>
void bind(const Symbol& symbol, Function& function, const char* name, const std::string& which) {
  find(symbol, function, name);
  if (!function) throw Error(ErrorCode::no_device, which + " has no " + name + "; " + way_out);
}

}  // namespace

std::atomic<const NcclApi*> nccl_for_tests = nullptr;

NcclApi bind_nccl(const Symbol& symbol, const std::string& library) {
  NcclApi api;
  bind(symbol, api.get_version, "ncclGetVersion", library);
  if (const Result result = api.get_version(&api.version); result != Result::success) {
    throw Error(ErrorCode::no_device,
                library + ": ncclGetVersion failed with " + std::to_string(int(result)) + "; " + way_out)
        .with_call("ncclGetVersion");
  }
  const std::string which = library + " is NCCL " + version_text(api.version) + ", which";
  if (api.version < oldest_version)
    throw Error(ErrorCode::no_device, which + " is older than 2.4; " + std::string(way_out));
  bind(symbol, api.get_error_string, "ncclGetErrorString", which);
  bind(symbol, api.comm_count, "ncclCommCount", which);
  bind(symbol, api.comm_user_rank, "ncclCommUserRank", which);
  bind(symbol, api.comm_cu_device, "ncclCommCuDevice", which);
  bind(symbol, api.comm_get_async_error, "ncclCommGetAsyncError", which);
  bind(symbol, api.all_gather, "ncclAllGather", which);
  bind(symbol, api.reduce_scatter, "ncclReduceScatter", which);
  bind(symbol, api.all_reduce, "ncclAllReduce", which);
  bind(symbol, api.broadcast, "ncclBroadcast", which);
  return api;
}

NcclApi load_nccl(const std::string& name) {
  if (dlsym(RTLD_DEFAULT, "ncclGetVersion"))
    return bind_nccl([](const char* function) { return dlsym(RTLD_DEFAULT, function); },
                     "what this process has loaded");
  void* library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
  if (!library) library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) throw Error(ErrorCode::no_device, std::string("no NCCL (") + dlerror() + "); " + way_out);
  return bind_nccl([library](const char* function) { return dlsym(library, function); }, name);
}

const NcclApi& nccl() {
  if (const NcclApi* const given = nccl_for_tests.load(std::memory_order_acquire)) return *given;
  static const NcclApi& api = *new NcclApi(load_nccl());  // outlives every static object that may still need it
  return api;
}

std::string version_text(int version) {
  // Up to 2.8 a digit for the minor version, then two.
  const int of_major = version < 10000 ? 1000 : 10000;
  return std::to_string(version / of_major) + "." + std::to_string(version % of_major / 100) + "." +
         std::to_string(version % 100);
}

Type type_of(const NcclApi& api, DataType type) {
  switch (type) {
    case f16:
      return Type::float16;
    case bf16:
      if (api.version < first_with_bfloat16) {
        throw Error(ErrorCode::invalid_problem, "NCCL " + version_text(api.version) +
                                                    " does not add bf16, which came with 2.10; take another type of D, "
                                                    "or update NCCL");
      }
      return Type::bfloat16;
    case f32:
      return Type::float32;
    case f64:
      return Type::float64;
    case s32:
      return Type::int32;
    default:
      throw Error(ErrorCode::internal, "sums do not travel as " + std::string(to_string(type)));
  }
}

Error nccl_error(const NcclApi& api, Result result, const char* call, int rank) {
  const char* const text = api.get_error_string(result);
  const std::string what = "rank " + std::to_string(rank) + ": " + call + " says " +
                           (text ? std::string(text) : std::string("nothing more")) + " (" +
                           std::to_string(int(result)) + ")";
  if (result == Result::remote_error) {
    return Error(ErrorCode::peer_lost, what + "; end all ranks, abort the communicator and make another")
        .with_call(call);
  }
  return Error(ErrorCode::communicator_failed,
               what + "; run with NCCL_DEBUG=WARN to see why, and make another communicator")
      .with_call(call);
}

}  // namespace jitgemm::nccl
