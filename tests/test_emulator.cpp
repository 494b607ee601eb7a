// The emulator as a backend: memory, streams, options, its compiler.
#include "test_emulator.hpp"

#include <sys/resource.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <thread>

#include "backend/emulator/temporary_directory.hpp"
#include "catch.hpp"
#include "core/data_types.hpp"
#include "core/element.hpp"
#include "errors.hpp"
#include "random.hpp"
#include "sandbox.hpp"
#include "sanitizers.hpp"
#include "util/atomic_file.hpp"

using namespace jitgemm;
using namespace jitgemm::test;
using Catch::Matchers::ContainsSubstring;

namespace {

const char* const nothing = "__device__ void run(const Arguments&) {}\n";

}  // namespace

TEST_CASE("The emulator's memory, streams and events serve the host", "[emulator]") {
  const auto backend = make_emulator_backend({.architecture = "sm_80", .sm_count = 3});
  CHECK(backend->device().name == "emulator");
  CHECK(backend->device().emulated);
  CHECK(backend->device().compute_capability == 80);
  CHECK(backend->device().sm_count == 3);
  CHECK(backend->device().smem_per_block == 166912);
  CHECK(make_emulator_backend({})->device().smem_per_block == 232448);
  CHECK(make_emulator_backend({})->device().architecture() == "sm_90a");

  void* memory = backend->allocate(1001);
  CHECK(reinterpret_cast<std::uintptr_t>(memory) % 256 == 0);
  backend->zero(memory, 1001);
  char last = 1;
  backend->copy_to_host(&last, static_cast<char*>(memory) + 1000, 1);
  CHECK(last == 0);
  backend->release(memory);

  for (const DataTypeInfo& info : data_types()) {
    INFO(info.name);
    const DataType type = info.type;
    const double variance = info.is_integer() ? 9 : 1;
    std::vector<double> x(40001), again(40001);
    backend->fill_random(x.data(), 40000, type, 5);
    backend->fill_random(again.data(), 40000, type, 5);
    CHECK(std::memcmp(x.data(), again.data(), 40000 * size_of(type)) == 0);
    CHECK(load_element(x.data(), 40000, type) == 0);
    double mean = 0, square = 0;
    std::set<double> values;
    for (int i = 0; i < 40000; ++i) {
      const double value = load_element(x.data(), i, type);
      mean += value / 40000;
      square += value * value / 40000;
      values.insert(value);
    }
    CHECK(std::abs(mean) < 0.02 * std::sqrt(variance));
    CHECK(std::abs(square / variance - 1) < 0.03);
    CHECK(values.size() > (type == f64 || type == f32 || type == tf32 ? 30000 : variance == 9 ? 18 : 50));
  }

  const Stream first = backend->create_stream(), second = backend->create_stream();
  CHECK(first != nullptr);
  CHECK(first != second);
  CHECK(backend->stream_id(first) != backend->stream_id(second));
  CHECK(backend->stream_id(first) != backend->stream_id(nullptr));
  CHECK(backend->capture_status(first) == CaptureStatus::none);
  void* begin = backend->create_event();
  void* end = backend->create_event();
  backend->record_event(begin, first);
  std::this_thread::sleep_for(std::chrono::milliseconds(2));
  backend->record_event(end, first);
  CHECK(backend->elapsed_us(begin, end) >= 2000);
  backend->destroy_event(begin);
  backend->destroy_event(end);
  backend->destroy_stream(first);
  backend->destroy_stream(second);
  CHECK_THROWS_AS(backend->check_pointer(nullptr, "a", nullptr), Error);
}

TEST_CASE("The emulator refuses options and launches that make no sense", "[emulator]") {
  const auto refusal_with = [](const char* name, const char* value) {
    const ScopedEnvironment variable(name, value);
    return refusal(ErrorCode::invalid_option, [] { make_emulator_backend({}); });
  };
  CHECK_THAT(refusal_with("JITGEMM_EMULATOR_SEED", "many"), ContainsSubstring("JITGEMM_EMULATOR_SEED=many"));
  CHECK_THAT(refusal_with("JITGEMM_EMULATOR_ASYNC", "late"), ContainsSubstring("issue, wait or random"));
  CHECK_THAT(refusal_with("JITGEMM_EMULATOR_RESIDENT", "0"), ContainsSubstring("1..1024"));
  CHECK(refusal_with("JITGEMM_EMULATOR_SEED", "12") == "");
  CHECK_THROWS_AS(make_emulator_backend({.architecture = "sm_12"}), Error);
  CHECK_THROWS_AS(make_emulator_backend({.architecture = "sm_80", .sm_count = 0}), Error);

  const auto backend = make_emulator_backend({.architecture = "sm_89"});
  const auto kernel = backend->load(backend->compile({emulator_text(nothing), "kernel", "sm_89", "test"}), 1 << 20);
  const auto refused = [&](int grid, int threads, std::size_t smem) {
    const auto launch = [&] {
      backend->launch(*kernel, emulator_shape(grid, threads, smem), bytes_of(device::Arguments{}), nullptr);
    };
    return !refusal(ErrorCode::launch_failed, launch).empty();
  };
  CHECK(refused(0, 32, 0));
  CHECK(refused(1, 33, 0));
  CHECK(refused(1, 2048, 0));
  CHECK(refused(1, 32, 101377));
  CHECK_THAT(
      refusal(ErrorCode::launch_failed,
              [&] { backend->launch(*kernel, emulator_shape(1, 32, 0), bytes_of(device::PackArguments{}), nullptr); }),
      ContainsSubstring("bytes of arguments for a kernel that takes " + std::to_string(sizeof(device::Arguments))));
  CHECK_THROWS_AS(
      backend->load({.code = "not a shared object", .entry = "kernel", .architecture = "sm_89", .compiler = ""}, 0),
      Error);
}

TEST_CASE("The emulator without a compiler, or with a text that does not compile, says so", "[emulator]") {
  const auto code_of = [](const std::string& text) {
    try {
      make_emulator_backend({})->compile({text, "kernel", "sm_90a", "test"});
    } catch (const Error& error) {
      if (error.code() == ErrorCode::compile_failed) {
        CHECK_THAT(error.log(), ContainsSubstring("nonsense"));
        CHECK(error.config() == "test");
      }
      return error.code();
    }
    return ErrorCode::internal;
  };
  CHECK(code_of("nonsense") == ErrorCode::compile_failed);
  setenv("JITGEMM_CXX", "/nowhere/c++", 1);
  CHECK(code_of("int x;") == ErrorCode::no_compiler);
  unsetenv("JITGEMM_CXX");
  const std::string path = std::getenv("PATH");
  setenv("PATH", "/nowhere", 1);
  CHECK(code_of("int x;") == ErrorCode::no_compiler);
  setenv("PATH", path.c_str(), 1);
  CHECK_THAT(make_emulator_backend({})->compiler_kind(), ContainsSubstring("g++ emulator-"));
  CHECK(make_emulator_backend({})->compiler_version() != "");
}

namespace {

/// An executable that notes how it was run, and compiles with g++, as which it knows all words but zig's own.
void make_compiler(const std::filesystem::path& path) {
  std::ofstream(path) << "#!/bin/sh\n"
                         "echo \"${0##*/} $*\" >> \"${0%/*}/runs\"\n"
                         "echo \"$ZIG_GLOBAL_CACHE_DIR $ZIG_LOCAL_CACHE_DIR\" >> \"${0%/*}/caches\"\n"
                         "[ \"$1\" != c++ ] || shift\n"
                         "[ \"$1\" != --version ] || { echo \"${0##*/} 1.0\"; exit; }\n"
                         "for word; do shift; [ \"$word\" = -mcpu=baseline ] || set -- \"$@\" \"$word\"; done\n"
                         "PATH=/usr/local/bin:/usr/bin:/bin exec g++ \"$@\"\n";
  std::filesystem::permissions(path, std::filesystem::perms::owner_all);
}

std::string text_of(const std::filesystem::path& path) { return read_file(path).value_or(""); }

}  // namespace

TEST_CASE("The emulator compiles with the first compiler on PATH, else with the fallback", "[emulator]") {
  const jitgemm::test::TemporaryDirectory directory, elsewhere;
  const ScopedEnvironment unset("JITGEMM_CXX", nullptr);
  const ScopedEnvironment path("PATH", directory.path().c_str());
  const ScopedEnvironment fallback("JITGEMM_FALLBACK_CXX", (elsewhere.path() / "zig").c_str());
  const auto version = [] { return make_emulator_backend({})->compiler_version(); };
  const Error none = error_of(version);
  CHECK(none.code() == ErrorCode::no_compiler);
  CHECK_THAT(none.what(), ContainsSubstring("install g++ or clang++") && ContainsSubstring("JITGEMM_CXX") &&
                              ContainsSubstring("pip install 'jitgemm[emulator]'"));
  make_compiler(elsewhere.path() / "zig");
  CHECK(version() == "zig 1.0");
  for (const char* name : {"clang++", "g++", "c++"}) {
    make_compiler(directory.path() / name);
    CHECK(version() == std::string(name) + " 1.0");
  }
  const ScopedEnvironment chosen("JITGEMM_CXX", (elsewhere.path() / "zig").c_str());
  CHECK(version() == "zig 1.0");
}

TEST_CASE("zig is run as zig c++, builds nothing but the kernel, and keeps its caches out of HOME", "[emulator]") {
  const jitgemm::test::TemporaryDirectory directory;
  make_compiler(directory.path() / "zig");
  const ScopedEnvironment chosen("JITGEMM_CXX", (directory.path() / "zig").c_str());
  const ScopedEnvironment cache("ZIG_GLOBAL_CACHE_DIR", "/nowhere");
  const EmulatorKernel kernel(
      "__device__ void run(const Arguments& x) {\n"
      "  if (thread_index() == 0)\n"
      "    *static_cast<float*>(x.d) = erf(*static_cast<const float*>(x.a));\n"
      "}\n");
  float a = 0.5f, d = 0;
  device::Arguments arguments{};
  arguments.a = &a;
  arguments.d = &d;
  CHECK(kernel.run({}, {}, arguments) == "");
  CHECK(d == std::erf(0.5f));
  const std::string runs = text_of(directory.path() / "runs"), caches = text_of(directory.path() / "caches");
  CHECK_THAT(runs, ContainsSubstring("zig c++ --version\n") && ContainsSubstring("zig c++ -std=c++20") &&
                       ContainsSubstring("zig c++ -shared -nostdlib"));
  CHECK_THAT(runs, !ContainsSubstring("-fsyntax-only"));
  CHECK_THAT(caches, !ContainsSubstring("/nowhere") && ContainsSubstring("jitgemm"));
}

TEST_CASE("A place for temporary files that cannot be used is named with what is wrong", "[emulator]") {
  const jitgemm::test::TemporaryDirectory directory;
  const auto compile = [] { EmulatorKernel kernel(nothing); };
  const std::string nowhere = directory.path() / "nowhere";
  {
    const ScopedEnvironment tmpdir("TMPDIR", nowhere.c_str());
    CHECK_THAT(refusal(ErrorCode::io, compile),
               ContainsSubstring("in " + nowhere + ": No such file or directory; set"));
  }
  {
    const ScopedEnvironment tmpdir("TMPDIR", "/proc");
    CHECK_THAT(refusal(ErrorCode::io, compile), ContainsSubstring("in /proc: "));
  }
  const ScopedEnvironment empty("TMPDIR", "");
  compile();
}

TEST_CASE("A temporary file that cannot be written is named with what is wrong", "[emulator]") {
  if (ubsan) SKIP(ubsan_opens_pipes);
  const jitgemm::test::TemporaryDirectory directory;
  const auto write = [&](const char* name, const std::string& text = "text") {
    return refusal(ErrorCode::io, [&] { emulator::write_file((directory.path() / name).string(), text); });
  };
  CHECK(write("file") == "");
  CHECK_THAT(write("none/file"), ContainsSubstring("none/file: No such file or directory; set TMPDIR"));
  CHECK(wait_for(spawn([&] {
          rlimit limit{};
          getrlimit(RLIMIT_NOFILE, &limit);
          const rlimit none{0, limit.rlim_max};
          setrlimit(RLIMIT_NOFILE, &none);
          const std::string message = write("file");
          expect(message.find("file: Too many open files; close some files") != std::string::npos, message.c_str());
          const rlimit small{4096, RLIM_INFINITY};
          setrlimit(RLIMIT_NOFILE, &limit);
          setrlimit(RLIMIT_FSIZE, &small);
          const std::string full = write("file", std::string(1 << 16, 'x'));
          expect(full.find("file: File too large; set TMPDIR") != std::string::npos, full.c_str());
          return 0;
        })) == 0);
}
