// How NCCL is found at run time.
#include <map>

#include "catch.hpp"
#include "errors.hpp"
#include "fake_nccl.hpp"

using namespace jitgemm;
using namespace jitgemm::test;
using Catch::Matchers::ContainsSubstring;

namespace {

int version_of_fake = 0;
const std::map<std::string, void*> functions = [] {
  std::map<std::string, void*> all;
  for (const char* name :
       {"ncclGetErrorString", "ncclCommCount", "ncclCommUserRank", "ncclCommCuDevice", "ncclCommGetAsyncError",
        "ncclAllGather", "ncclReduceScatter", "ncclAllReduce", "ncclBroadcast"})
    all[name] = &version_of_fake;  // any address
  nccl::Result (*const version)(int*) = [](int* to) { return *to = version_of_fake, nccl::Result::success; };
  all["ncclGetVersion"] = reinterpret_cast<void*>(version);
  return all;
}();

nccl::NcclApi bound(int version, const std::string& missing = {}) {
  version_of_fake = version;
  return nccl::bind_nccl([&](const char* name) { return name == missing ? nullptr : functions.at(name); },
                         "libnccl.so");
}

}  // namespace

TEST_CASE("Versions of NCCL read as its releases are called", "[parallel][nccl]") {
  CHECK(nccl::version_text(2408) == "2.4.8");
  CHECK(nccl::version_text(2806) == "2.8.6");
  CHECK(nccl::version_text(21003) == "2.10.3");
  CHECK(nccl::version_text(22809) == "2.28.9");
}

TEST_CASE("A missing or too old NCCL is one Error that says which was found and what to install", "[parallel][nccl]") {
  CHECK(bound(2400).version == 2400);
  const Error old = error_of([] { bound(2307); });
  CHECK(old.code() == ErrorCode::no_device);
  CHECK_THAT(old.what(),
             ContainsSubstring("libnccl.so is NCCL 2.3.7, which is older than 2.4; install NCCL 2.4 or newer"));
  for (const auto& [name, function] : functions) {
    const Error error = error_of([&] { bound(22809, name); });
    CHECK(error.code() == ErrorCode::no_device);
    CHECK_THAT(error.what(), ContainsSubstring("has no " + name + "; install NCCL"));
    if (name != "ncclGetVersion") CHECK_THAT(error.what(), ContainsSubstring("libnccl.so is NCCL 2.28.9, which"));
  }
  const Error none = error_of([] { nccl::load_nccl("libno_such_nccl.so.2"); });
  CHECK(none.code() == ErrorCode::no_device);
  CHECK_THAT(none.what(), ContainsSubstring("no NCCL (libno_such_nccl.so.2") && ContainsSubstring("install NCCL 2.4"));
}

TEST_CASE("The machine's own NCCL, if there is one, has every function", "[parallel][nccl]") {
  nccl::NcclApi api;
  if (const auto error = error_if_any([&] { api = nccl::load_nccl(); })) {
    CHECK(error->code() == ErrorCode::no_device);
    return;
  }
  CHECK(api.version >= nccl::oldest_version);
  CHECK_FALSE(std::string(api.get_error_string(nccl::Result::invalid_usage)).empty());
}

TEST_CASE("An NCCL before 2.10 does not add bf16, and says so", "[parallel][nccl]") {
  CHECK(nccl::type_of(bound(2806), f16) == nccl::Type::float16);
  CHECK(nccl::type_of(bound(21003), bf16) == nccl::Type::bfloat16);
  const Error error = error_of([] { nccl::type_of(bound(2806), bf16); });
  CHECK(error.code() == ErrorCode::invalid_problem);
  CHECK_THAT(error.what(), ContainsSubstring("NCCL 2.8.6 does not add bf16, which came with 2.10"));
}
