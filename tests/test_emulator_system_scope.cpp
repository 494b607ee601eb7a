// Words by which emulated devices tell each other something, without any order between them.
#include <thread>

#include "catch.hpp"
#include "test_emulator.hpp"

using namespace jitgemm;
using namespace jitgemm::test;
using Catch::Matchers::ContainsSubstring;

namespace {

// Thread t of device m = 0 sends two words of round k to that of device 1, which waits for them. n: what is wrong.
const char* const body = R"(
__device__ void run(const Arguments& p) {
  const u32 t = thread_index();
  u64* place = static_cast<u64*>(p.d) + 2 * t;
  const u64 round = u64(p.k), sent[2] = {round << 32 | t, round << 32 | (t + 100)};
  if (p.m == 0 && p.n == 1) {
    for (int i = 0; i < 2; ++i) st_global(place + i, sent[i]);
  } else if (p.m == 0 && p.n == 2) {
    for (int i = 0; i < 4; ++i) st_global(reinterpret_cast<u32*>(place) + i, u32(sent[i / 2] >> i % 2 * 32));
  } else if (p.m == 0) {
    st_relaxed_sys(place + (p.n == 5), sent);
  }
  if (p.m == 0) return;
  u64 got[2];
  for (bool first = false, second = false; !first || !second;) {
    between_polls();
    if (p.n == 3)
      for (int i = 0; i < 2; ++i) got[i] = ld_global<u64>(place + i);
    else
      ld_relaxed_sys(place, got);
    first = got[0] >> 32 == round;
    second = got[1] >> 32 == round || p.n == 4;
  }
  u32* d = static_cast<u32*>(const_cast<void*>(p.c));
  for (int i = 0; i < 2; ++i) st_global(d + 2 * t + i, u32(got[i]));
}
)";

struct Devices {
  static const EmulatorKernel& kernel() {
    static const EmulatorKernel its{body};
    return its;
  }
  std::unique_ptr<Backend> backend = make_emulator_backend({});
  std::vector<std::uint32_t> d = std::vector<std::uint32_t>(64);
  void* words = backend->allocate(512);

  Devices() { backend->zero(words, 512); }
  ~Devices() { backend->release(words); }
  Devices(const Devices&) = delete;
  Devices& operator=(const Devices&) = delete;

  /// Both devices' faults.
  std::string run(EmulatorOptions options, int round, int wrong) {
    device::Arguments p{};
    p.d = words;
    p.c = d.data();
    p.n = wrong;
    p.k = round;
    std::string faults[2];
    const auto launch = [&](int device, device::Arguments its) {
      its.m = device;
      EmulatorOptions of_device = options;
      if (of_device.seed != 0) of_device.seed += std::uint64_t(device);
      faults[device] =
          kernel().run(of_device, {.stream = reinterpret_cast<Stream>(std::uintptr_t(16 + 16 * device))}, its);
    };
    if (wrong == 5) return launch(0, p), faults[0];
    std::thread other([&] { launch(0, p); });
    launch(1, p);
    other.join();
    return faults[0] + faults[1];
  }
  bool is_right() const {
    for (std::uint32_t t = 0; t < 32; ++t)
      if (d[2 * t] != t || d[2 * t + 1] != t + 100) return false;
    return true;
  }
};

}  // namespace

TEST_CASE("Words of 64 bits reach another emulated device whole, under every adversary", "[emulator]") {
  Devices devices;
  int round = 0;
  for (const EmulatorOptions& options : adversaries(20)) {
    INFO("seed " << options.seed << ", asynchrony " << int(options.asynchrony));
    devices.d.assign(64, 77);
    REQUIRE(devices.run(options, ++round, 0) == "");
    REQUIRE(devices.is_right());
  }
}

TEST_CASE("Other accesses of words between emulated devices are found", "[emulator]") {
  for (const EmulatorOptions& options : adversaries(3)) {
    INFO("seed " << options.seed << ", asynchrony " << int(options.asynchrony));
    CHECK_THAT(Devices().run(options, 1, 1), ContainsSubstring("which st_relaxed_sys did not store there"));
    CHECK_THAT(Devices().run(options, 1, 2), ContainsSubstring("which st_relaxed_sys did not store there"));
    CHECK_THAT(Devices().run(options, 1, 3), ContainsSubstring("by neither ld_relaxed_sys nor st_relaxed_sys"));
    CHECK_THAT(Devices().run(options, 1, 5),
               ContainsSubstring("16 bytes of global memory") && ContainsSubstring("which is not a multiple of that"));
  }
}

TEST_CASE("One word between emulated devices does not speak for another", "[emulator]") {
  Devices devices;
  int round = 0, wrong = 0;
  for (const EmulatorOptions& options : adversaries(20)) {
    devices.d.assign(64, 77);
    devices.backend->zero(devices.words, 512);
    if (devices.run(options, ++round, 4) != "" || !devices.is_right()) ++wrong;
  }
  CHECK(wrong > 0);
}
