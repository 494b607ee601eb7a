#include <atomic>
#include <functional>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "cache_samples.hpp"
#include "catch.hpp"
#include "jit/cache_entry.hpp"
#include "jit/kernel_store.hpp"
#include "jitgemm/error.hpp"

using namespace jitgemm;
using namespace jitgemm::test;
using Catch::Matchers::ContainsSubstring;
namespace fs = std::filesystem;

namespace {

struct FakeKernel : LoadedKernel {
  FakeKernel(std::string code_of_kernel, std::atomic<int>& alive_kernels) : code(code_of_kernel), alive(alive_kernels) {
    ++alive;
  }
  ~FakeKernel() override { --alive; }
  std::string code;
  std::atomic<int>& alive;
};

/// Compiles by copying, and refuses to load the code that it is told to.
class FakeBackend : public Backend {
 public:
  std::atomic<int> compiles = 0, loads = 0, versions = 0, alive = 0;
  int compile_milliseconds = 0;
  std::string kind = "fake";
  std::function<void(const KernelSource&)> before_compile = [](const KernelSource&) {};
  std::set<std::string> refused;
  ErrorCode refusal = ErrorCode::load_failed;

  std::string code_of(const KernelSource& source) const { return "compiled " + source.text; }

  const DeviceInfo& device() const override { return device_; }
  std::string compiler_kind() const override { return kind; }
  std::string compiler_version() override { return ++versions, "fake 1.0"; }
  KernelBinary compile(const KernelSource& source) override {
    ++compiles;
    before_compile(source);
    std::this_thread::sleep_for(std::chrono::milliseconds(compile_milliseconds));
    return {code_of(source), source.entry, source.architecture, "fake 1.0", 32, 0, 16};
  }
  std::unique_ptr<LoadedKernel> load(const KernelBinary& binary, std::size_t) override {
    ++loads;
    if (refused.contains(binary.code)) throw Error(refusal, "this driver refuses the kernel");
    return std::make_unique<FakeKernel>(binary.code, alive);
  }

  [[noreturn]] static void unused() { throw std::logic_error("not for kernel stores"); }
  void launch(const LoadedKernel&, const LaunchGrid&, ArgumentBytes, Stream) override { unused(); }
  bool can_be_resident(const LoadedKernel&, const LaunchGrid&, Stream) override { unused(); }
  device::TensorMap encode_tensor_map(const TensorMapSpec&) override { unused(); }
  void* allocate(std::size_t) override { unused(); }
  void release(void*) noexcept override {}
  void fill(void*, unsigned char, std::size_t) override { unused(); }
  void copy_to_device(void*, const void*, std::size_t) override { unused(); }
  void copy_to_host(void*, const void*, std::size_t) override { unused(); }
  void copy_rows(void*, std::size_t, const void*, std::size_t, std::size_t, std::size_t, Stream) override { unused(); }
  void fill_random(void*, std::int64_t, DataType, std::uint64_t) override { unused(); }
  std::uint64_t stream_id(Stream) override { unused(); }
  CaptureStatus capture_status(Stream) override { unused(); }
  void synchronize(Stream) override { unused(); }
  bool is_idle(Stream) override { unused(); }
  Stream create_stream() override { unused(); }
  void destroy_stream(Stream) noexcept override {}
  void* create_event() override { unused(); }
  void record_event(void*, Stream) override { unused(); }
  double elapsed_us(void*, void*) override { unused(); }
  bool has_passed(void*) override { unused(); }
  void wait_event(void*, Stream) override { unused(); }
  void destroy_event(void*) noexcept override {}
  std::unique_ptr<RelaxedCapture> relax_capture() override { unused(); }
  void check_pointer(const void*, const char*, Stream) override { unused(); }

 private:
  DeviceInfo device_;
};

const std::string& code_of(const std::shared_ptr<const Kernel>& kernel) {
  return dynamic_cast<const FakeKernel&>(*kernel->loaded).code;
}

struct Fixture {
  TemporaryDirectory directory;
  FakeBackend backend;
  KernelCache cache = cache_at(directory.path());
  KernelStore store{backend, cache};
  KernelSource source = sample_entry("a").source;

  fs::path file() const { return directory.path() / (cache_key(source, backend.kind).digest + ".kernel"); }
};

/// Runs body(i) in n threads at once; the number of those that threw.
int run_threads(int n, const std::function<void(int)>& body) {
  std::atomic<int> waiting = n, thrown = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < n; ++i) {
    threads.emplace_back([&, i] {
      --waiting;
      while (waiting > 0) std::this_thread::yield();
      try {
        body(i);
      } catch (...) {
        ++thrown;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return thrown;
}

}  // namespace

TEST_CASE("a kernel comes from the compiler, then from memory, then from disk", "[store]") {
  Fixture f;
  const auto kernel = f.store.get(f.source, 4096);
  CHECK(code_of(kernel) == f.backend.code_of(f.source));
  CHECK(kernel->smem_bytes == 4096);
  CHECK(kernel->facts.registers == 32);
  CHECK(kernel->facts.compiler == "fake 1.0");
  CHECK(kernel->facts.code.empty());
  CHECK(f.store.get(f.source, 4096) == kernel);
  CHECK((f.store.compiles() == 1 && f.store.memory_hits() == 1 && f.store.disk_hits() == 0));

  KernelStore next(f.backend, f.cache);
  const auto found = next.get(f.source, 4096);
  CHECK(code_of(found) == code_of(kernel));
  CHECK(found->facts.static_smem_bytes == 16);
  CHECK((next.compiles() == 0 && next.memory_hits() == 0 && next.disk_hits() == 1 && next.rebuilt() == 0));
  CHECK(f.backend.compiles == 1);
  CHECK(f.backend.loads == 2);
  CHECK(f.backend.versions == 0);  // a hit must not load the compiler
}

TEST_CASE("kernels are told apart by source and by kind of compiler", "[store]") {
  Fixture f;
  KernelSource other = f.source;
  other.text += "// more";
  CHECK(code_of(f.store.get(other, 0)) != code_of(f.store.get(f.source, 0)));
  f.backend.kind = "another fake";
  f.store.get(f.source, 0);
  CHECK(f.store.compiles() == 3);
}

TEST_CASE("a store keeps its kernels alive and lets go of them", "[store]") {
  Fixture f;
  {
    KernelStore store(f.backend, f.cache);
    store.get(f.source, 0);
    CHECK(f.backend.alive == 1);
  }
  CHECK(f.backend.alive == 0);
}

TEST_CASE("warm compiles into the disk cache and loads nothing", "[store]") {
  Fixture f;
  const CacheEntry entry = f.store.warm(f.source);
  CHECK(entry.source.text == f.source.text);
  CHECK(entry.binary.code == f.backend.code_of(f.source));
  CHECK(f.backend.loads == 0);
  CHECK(f.store.warm(f.source).binary.code == entry.binary.code);
  CHECK((f.store.compiles() == 1 && f.store.disk_hits() == 1));
  KernelStore next(f.backend, f.cache);
  next.get(f.source, 0);
  CHECK((next.compiles() == 0 && next.disk_hits() == 1));
}

TEST_CASE("16 threads that ask for one new kernel compile and load it once", "[store]") {
  Fixture f;
  f.backend.compile_milliseconds = 100;
  const bool on_disk = GENERATE(true, false);
  if (!on_disk) {
    write_file(f.directory.path() / "file", "");
    f.cache = cache_at(f.directory.path() / "file");
  }
  std::mutex mutex;
  std::set<std::shared_ptr<const Kernel>> kernels;
  CHECK(run_threads(16, [&](int) {
          const auto kernel = f.store.get(f.source, 0);
          const std::lock_guard lock(mutex);
          kernels.insert(kernel);
        }) == 0);
  CHECK(kernels.size() == 1);
  CHECK(f.backend.compiles == 1);
  CHECK(f.backend.loads == 1);
  CHECK(f.store.memory_hits() == 15);
}

TEST_CASE("a compile holds up nobody who asks for another kernel", "[store]") {
  Fixture f;
  const KernelSource slow = sample_entry("slow").source;
  const auto ready = f.store.get(f.source, 0);
  std::atomic<bool> compiling = false, others_done = false, waited = false;
  f.backend.before_compile = [&](const KernelSource& source) {
    if (source.text != slow.text) return;
    compiling = true;
    for (int i = 0; i < 10000 && !others_done; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    waited = others_done.load();
  };
  std::thread compiler([&] { f.store.get(slow, 0); });
  while (!compiling) std::this_thread::yield();
  CHECK(f.store.get(f.source, 0) == ready);
  CHECK(f.store.get(sample_entry("new").source, 0));
  others_done = true;
  compiler.join();
  CHECK(waited);
}

TEST_CASE("a failed compile reaches all who wait, each with an Error of its own, and is not kept", "[store]") {
  Fixture f;
  f.backend.compile_milliseconds = 100;
  f.backend.before_compile = [](const KernelSource&) {
    throw Error(ErrorCode::compile_failed, "does not compile").with_log("line 1");
  };
  std::mutex mutex;
  std::set<const Error*> errors;
  std::atomic<int> asked = 0;
  CHECK(run_threads(8, [&](int i) {
          try {
            f.store.get(f.source, 0);
          } catch (Error& error) {
            error.with_problem("of thread " + std::to_string(i));  // as callers do
            ++asked;
            while (asked < 8) std::this_thread::yield();
            const std::lock_guard lock(mutex);
            if (error.log() == "line 1" && error.problem() == "of thread " + std::to_string(i)) errors.insert(&error);
            throw;
          }
        }) == 8);
  CHECK(errors.size() == 8);
  CHECK(f.cache.list(false).empty());

  f.backend.before_compile = [](const KernelSource&) {};
  const int before = f.backend.compiles;
  CHECK(code_of(f.store.get(f.source, 0)) == f.backend.code_of(f.source));
  CHECK(f.backend.compiles == before + 1);
}

TEST_CASE("an entry that the driver refuses is dropped and rebuilt once, with one warning", "[store]") {
  Fixture f;
  const CacheKey key = cache_key(f.source, f.backend.kind);
  const KernelBinary unfit{"for another driver", "gemm", "sm_90a", "fake 0.9", 32, 0, 0};
  f.backend.refused = {unfit.code};
  const CapturedLog log;
  const bool in_system_layer = GENERATE(false, true);
  if (in_system_layer) {
    cache_at(f.directory.path() / "system").store(key, {f.source, unfit});
    f.cache = KernelCache({.directory = f.directory.path() / "own", .system_directory = f.directory.path() / "system"});
  } else {
    f.cache.store(key, {f.source, unfit});
  }
  CHECK(code_of(f.store.get(f.source, 0)) == f.backend.code_of(f.source));
  CHECK((f.store.rebuilt() == 1 && f.store.compiles() == 1));
  CHECK(log.count("this driver refuses the kernel") == 1);
  CHECK(log.count("warning") == 1);

  KernelStore next(f.backend, f.cache);
  next.get(f.source, 0);
  CHECK((next.compiles() == 0 && next.disk_hits() == 1 && next.rebuilt() == 0));
}

TEST_CASE("a driver that refuses the rebuilt kernel too is an error, tried afresh by the next call", "[store]") {
  Fixture f;
  const CapturedLog log;
  f.store.warm(f.source);
  f.backend.refused = {f.backend.code_of(f.source)};
  CHECK_THROWS_WITH(f.store.get(f.source, 0), ContainsSubstring("refuses"));
  CHECK((f.store.compiles() == 2 && f.store.rebuilt() == 1));
  f.backend.refused.clear();
  CHECK(f.store.get(f.source, 0));
}

TEST_CASE("a kernel fresh from the compiler is not rebuilt when it does not load", "[store]") {
  Fixture f;
  f.backend.refused = {f.backend.code_of(f.source)};
  CHECK_THROWS_AS(f.store.get(f.source, 0), Error);
  CHECK((f.store.compiles() == 1 && f.store.rebuilt() == 0));
}

TEST_CASE("an entry is not blamed for a device without memory", "[store]") {
  Fixture f;
  f.store.warm(f.source);
  f.backend.refused = {f.backend.code_of(f.source)};
  f.backend.refusal = ErrorCode::out_of_memory;
  CHECK_THROWS_AS(f.store.get(f.source, 0), Error);
  CHECK((f.store.compiles() == 1 && f.store.rebuilt() == 0));
  CHECK(fs::exists(f.file()));
}

TEST_CASE("an entry that holds another source is not used", "[store]") {
  Fixture f;
  const CapturedLog log;
  CacheEntry other = sample_entry("other");
  f.cache.store(cache_key(f.source, f.backend.kind), other);
  CHECK(code_of(f.store.get(f.source, 0)) == f.backend.code_of(f.source));
  CHECK(f.store.rebuilt() == 1);
  CHECK(log.count("holds another kernel") == 1);
  CHECK(f.store.warm(f.source).binary.code == f.backend.code_of(f.source));
  CHECK(f.store.compiles() == 1);
}

TEST_CASE("processes of 4 threads each that ask for the same new kernels compile each once", "[store]") {
  const TemporaryDirectory directory;
  const fs::path counter = directory.path() / "compiles";
  std::vector<pid_t> children;
  for (int process = 0; process < 8; ++process) {
    children.push_back(spawn([&] {
      FakeBackend backend;
      backend.before_compile = [&](const KernelSource&) {
        const int descriptor = open(counter.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
        expect(write(descriptor, "x", 1) == 1, "a compile is counted");
        close(descriptor);
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
      };
      KernelCache cache = cache_at(directory.path() / "cache");
      KernelStore store(backend, cache);
      const int thrown = run_threads(4, [&](int i) {
        const KernelSource source = sample_entry(std::to_string(i % 2)).source;
        expect(code_of(store.get(source, 0)) == backend.code_of(source), "it is the right kernel");
      });
      return thrown;
    }));
  }
  for (const pid_t child : children) CHECK(wait_for(child) == 0);
  CHECK(file_text(counter).size() == 2);
}
