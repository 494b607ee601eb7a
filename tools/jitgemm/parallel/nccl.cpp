#include "parallel/nccl.hpp"

#include <dlfcn.h>
#include <fmt/core.h>

#include <charconv>
#include <exception>
#include <type_traits>

#include "jitgemm/error.hpp"

namespace jitgemm::cli {
namespace {

// What of nccl.h is used here, whose numbers are NCCL's since 2.10.
struct UniqueId {
  char bytes[128];
};
using Result = int;  // 0: success
enum class NcclType : int { int8 = 0, f16 = 6, f32 = 7, f64 = 8, bf16 = 9 };
enum class NcclSum : int { sum = 0, max = 2 };

struct NcclApi {
  Result (*get_version)(int*) = nullptr;
  const char* (*get_error_string)(Result) = nullptr;
  Result (*get_unique_id)(UniqueId*) = nullptr;
  Result (*init_rank)(NcclCommunicator*, int ranks, UniqueId, int rank) = nullptr;
  Result (*destroy)(NcclCommunicator) = nullptr;
  Result (*abort)(NcclCommunicator) = nullptr;
  Result (*all_gather)(const void*, void*, std::size_t, NcclType, NcclCommunicator, Stream) = nullptr;
  Result (*reduce_scatter)(const void*, void*, std::size_t, NcclType, NcclSum, NcclCommunicator, Stream) = nullptr;
  Result (*all_reduce)(const void*, void*, std::size_t, NcclType, NcclSum, NcclCommunicator, Stream) = nullptr;
};

NcclApi load_api() {
  constexpr const char* name = "libnccl.so.2";
  void* const library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
  if (!library)
    throw Error(ErrorCode::no_device, fmt::format("cannot open {}, and products across GPUs need NCCL: install it, or "
                                                  "add its folder to LD_LIBRARY_PATH",
                                                  name));
  const auto bind = [&](auto& function, const char* symbol) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, symbol));
    if (!function) throw Error(ErrorCode::no_device, fmt::format("this NCCL has no {}: install a newer one", symbol));
  };
  NcclApi api;
  bind(api.get_version, "ncclGetVersion");
  bind(api.get_error_string, "ncclGetErrorString");
  bind(api.get_unique_id, "ncclGetUniqueId");
  bind(api.init_rank, "ncclCommInitRank");
  bind(api.destroy, "ncclCommDestroy");
  bind(api.abort, "ncclCommAbort");
  bind(api.all_gather, "ncclAllGather");
  bind(api.reduce_scatter, "ncclReduceScatter");
  bind(api.all_reduce, "ncclAllReduce");
  return api;
}

const NcclApi& nccl() {
  static const NcclApi api = load_api();
  return api;
}

void check(Result result, const char* call) {
  if (result == 0) return;
  throw Error(ErrorCode::communicator_failed, fmt::format("{} failed: {}; NCCL_DEBUG=WARN and NCCL_DEBUG_FILE say why",
                                                          call, nccl().get_error_string(result)));
}

NcclType type_of(DataType type) {
  switch (type) {
    case f16:
      return NcclType::f16;
    case bf16:
      return NcclType::bf16;
    case f32:
    case tf32:
      return NcclType::f32;
    case f64:
      return NcclType::f64;
    default:
      throw Error(ErrorCode::invalid_option,
                  fmt::format("NCCL adds up no {}: give a D of f16, bf16 or f32", to_string(type)));
  }
}

UniqueId parse_id(const std::string& text) {
  UniqueId id;
  if (text.size() != 2 * sizeof id.bytes)
    throw Error(ErrorCode::internal, "an id of NCCL's has another length: run again");
  for (std::size_t i = 0; i < sizeof id.bytes; ++i) {
    unsigned char byte = 0;
    std::from_chars(text.data() + 2 * i, text.data() + 2 * i + 2, byte, 16);
    id.bytes[i] = char(byte);
  }
  return id;
}

}  // namespace

void load_nccl() { nccl(); }

std::string nccl_version() {
  int version = 0;
  check(nccl().get_version(&version), "ncclGetVersion");
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

std::string new_nccl_id() {
  UniqueId id;
  check(nccl().get_unique_id(&id), "ncclGetUniqueId");
  std::string text;
  for (const char byte : id.bytes) text += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  return text;
}

Nccl::Nccl(int ranks, int rank, const std::string& id) : ranks_(ranks), exceptions_(std::uncaught_exceptions()) {
  check(nccl().init_rank(&communicator_, ranks, parse_id(id), rank), "ncclCommInitRank");
}

Nccl::~Nccl() { (std::uncaught_exceptions() > exceptions_ ? nccl().abort : nccl().destroy)(communicator_); }

void Nccl::all_gather(const void* part, void* whole, std::size_t bytes, Stream stream) {
  check(nccl().all_gather(part, whole, bytes, NcclType::int8, communicator_, stream), "ncclAllGather");
}
void Nccl::reduce_scatter(const void* whole, void* part, std::size_t count, DataType type, Stream stream) {
  check(nccl().reduce_scatter(whole, part, count, type_of(type), NcclSum::sum, communicator_, stream),
        "ncclReduceScatter");
}
void Nccl::all_reduce(const void* from, void* to, std::size_t count, DataType type, Stream stream) {
  check(nccl().all_reduce(from, to, count, type_of(type), NcclSum::sum, communicator_, stream), "ncclAllReduce");
}
void Nccl::all_max(const void* from, void* to, std::size_t count, Stream stream) {
  check(nccl().all_reduce(from, to, count, NcclType::f64, NcclSum::max, communicator_, stream), "ncclAllReduce");
}

}  // namespace jitgemm::cli
