// The check of candidates where there is no memory for it, or its kernel cannot be had or run.
#include <cmath>
#include <cstdint>
#include <string>

#include "catch.hpp"
#include "core/element.hpp"
#include "reference.hpp"
#include "tune/output_check.hpp"
#include "tuning_session.hpp"

using namespace jitgemm;
using namespace jitgemm::test;
using Catch::Matchers::ContainsSubstring;

TEST_CASE("Without memory for a second D the sample decides, and the log says so once", "[output_check]") {
  const std::size_t d_bytes = 48 * 40 * 4;
  FakeBackend backend({.memory_bytes = d_bytes + 2 * (48 + 40) * 64 + 8 * 1024});
  const TemporaryDirectory directory;
  const CapturedLog log;
  KernelCache cache({.directory = directory.path()});
  KernelStore store(backend, cache);
  const DeviceMemory a = allocate_memory(backend, 48 * 64 * 2), b = allocate_memory(backend, 64 * 40 * 2),
                     d = allocate_memory(backend, d_bytes);
  backend.fill_random(a.get(), 48 * 64, f16, 1);
  backend.fill_random(b.get(), 64 * 40, f16, 2);
  const Operands operands{.a = a.get(), .b = b.get(), .d = d.get()};
  OutputCheck check(backend, store, problem, operands, nullptr);
  CHECK(log.count("no memory to compare all of D") == 1);
  const Reference exact = reference(problem, operands, MainLoop::sm80);
  const auto judge = [&](std::int64_t wrong, double by) {
    check.poison();
    for (std::int64_t i = 0; i < 48 * 40; ++i) {
      if (i == wrong && std::isnan(by)) continue;
      store_element(exact.d[std::size_t(i)] + (i == wrong ? by : 0), d.get(), i, f32);
    }
    return check.judge().why_wrong;
  };
  for (int i = 0; i < 2; ++i) {
    CHECK(judge(0, 0) == "");
    CHECK(judge(0, 1) != "");
    CHECK(judge(48 * 40 - 1, 1) != "");
    CHECK(judge(17 * 40 + 22, NAN) != "");  // nothing has written it
  }
  CHECK(log.count("no memory") == 1);
}

TEST_CASE("A check that cannot be had or run lets no candidate through", "[output_check][faults]") {
  SECTION("its kernel does not compile") {
    Session session({.compile_check = [] { throw Error(ErrorCode::compile_failed, "ptxas is in a bad mood"); }});
    CHECK_FALSE(session.run());
    CHECK(session.log.count("given up: no candidate can be checked: ptxas is in a bad mood") == 1);
    CHECK(session.backend.alive() == 0);
  }
  for (const device::CheckTask failing :
       {device::CheckTask::recompute, device::CheckTask::read, device::CheckTask::scan, device::CheckTask::keep}) {
    SECTION("task " + std::to_string(int(failing)) + " fails, always") {
      Session session({.check = [failing](device::CheckTask task) {
        if (task == failing) throw Error(ErrorCode::launch_failed, "too hot");
      }});
      CHECK_FALSE(session.run());
      CHECK(session.backend.alive() == 0);
    }
    SECTION("task " + std::to_string(int(failing)) + " fails once") {
      int times = 0;
      Session session({.check = [failing, &times](device::CheckTask task) {
        if (task == failing && ++times == 1) throw Error(ErrorCode::launch_failed, "too hot");
      }});
      const auto result = session.run();
      CHECK(result.has_value() == (failing != device::CheckTask::recompute));
      if (result) CHECK_THAT(result->candidates[0].skipped, ContainsSubstring("too hot"));
      CHECK(session.backend.alive() == 0);
    }
  }
}
