// The rates that the cost model takes devices to have, before anything is measured.
#include "plan/device_rates.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <set>
#include <string>

#include "catch.hpp"
#include "core/enumerators.hpp"
#include "plan/cost_model.hpp"
#include "plan/ranking.hpp"
#include "random.hpp"
#include "tuning_samples.hpp"

using namespace jitgemm;
using namespace jitgemm::test;

namespace {

using Names = std::set<std::string>;

DeviceInfo device(const char* name, int compute_capability, int sms) {
  DeviceInfo info = device_info_for("sm_90a");
  info.name = name, info.compute_capability = compute_capability, info.sm_count = sms;
  return info;
}

bool same(DeviceRates x, DeviceRates y) {
  const auto of_x = fields_of(x), of_y = fields_of(y);
  for (std::size_t i = 0; i < of_x.size(); ++i) {
    if (*of_x[i].second != *of_y[i].second) return false;
  }
  return x.origin == y.origin;
}

/// Those that are `factor` times as large.
Names times(double factor, DeviceRates from, DeviceRates to) {
  Names names;
  const auto before = fields_of(from), after = fields_of(to);
  for (std::size_t i = 0; i < before.size(); ++i) {
    if (std::abs(*after[i].second / *before[i].second - factor) < 1e-9) names.emplace(before[i].first);
  }
  return names;
}

/// Of a family, without its name.
Names of(const std::string& family, const Names& names) {
  Names of_family;
  for (const std::string& name : names)
    if (name.starts_with(family + ".")) of_family.insert(name.substr(family.size() + 1));
  return of_family;
}

}  // namespace

TEST_CASE("An H200 and an H100 have rates of their own, other devices have derived ones", "[device_rates]") {
  CHECK(same(rates_of(device("NVIDIA H200", 90, 132)), DeviceRates{}));
  CHECK(same(rates_of(device("NVIDIA H200 NVL", 90, 132)), DeviceRates{}));
  CHECK(same(RatedDevice(device_info_for("sm_90a")).rates, DeviceRates{}));
  const DeviceInfo h100 = device("NVIDIA H100 80GB HBM3", 90, 132);
  CHECK(rates_of(h100).origin == "an H100's");
  CHECK_FALSE(same(rates_of(h100), DeviceRates{}));
  CHECK_FALSE(same(rates_of(h100), derived_rates(h100)));
  for (const DeviceInfo& other :
       {device("NVIDIA H100 PCIe", 90, 114), device("NVIDIA A100-SXM4-80GB", 80, 108),
        device("NVIDIA GeForce RTX 3090", 86, 82), device("NVIDIA L40S", 89, 142), device("NVIDIA B200", 100, 148),
        device("NVIDIA GeForce RTX 5090", 120, 170), device("an H200 of another kind", 100, 132)}) {
    CAPTURE(other.name);
    CHECK(same(rates_of(other), derived_rates(other)));
    CHECK(rates_of(other).origin.starts_with("derived"));
    // No more than half of them are an H200's, by chance or because they are factors of 1.
    CHECK(2 * times(1, DeviceRates{}, rates_of(other)).size() <= times(1, {}, {}).size());
  }
}

TEST_CASE("An emulated device has the rates of its architecture's typical one", "[device_rates]") {
  for (const int capability : {80, 89, 90}) {
    CAPTURE(capability);
    DeviceInfo emulated = device("emulator", capability, 4);
    emulated.emulated = true;
    CHECK(same(rates_of(emulated), rates_of(device_info_for("sm_" + std::to_string(capability)))));
  }
}

TEST_CASE("Derived rates are positive numbers, whatever is known of a device", "[device_rates]") {
  for (const int capability : {75, 80, 86, 87, 89, 90, 100, 103, 110, 120, 130}) {
    for (const int sms : {0, 1, 16, 132, 200}) {
      for (const double known : {0., 1.}) {
        DeviceInfo some = device("a GPU", capability, sms);
        some.clock_ghz = 1.5 * known, some.memory_gb_s = 1000 * known;
        DeviceRates rates = derived_rates(some);
        for (const auto& [name, rate] : fields_of(rates)) {
          CAPTURE(capability, sms, known, name);
          CHECK(std::isfinite(*rate));
          CHECK(*rate > 0);
        }
      }
    }
  }
}

TEST_CASE("Derived rates follow the device's memory, SMs and clock", "[device_rates]") {
  for (const int capability : {80, 90, 120}) {
    CAPTURE(capability);
    DeviceInfo base = device("a GPU", capability, 100);
    base.clock_ghz = 1.5, base.memory_gb_s = 2000;
    const DeviceRates rates = derived_rates(base);
    const std::size_t all = times(1, rates, rates).size();
    const auto with = [&](auto member, double factor) {
      DeviceInfo other = base;
      other.*member = factor * (other.*member);
      return derived_rates(other);
    };

    const DeviceRates memory = with(&DeviceInfo::memory_gb_s, 2);
    Names faster_memory;
    for (const auto& [main_loop, name] : enumerators<MainLoop>())
      faster_memory.insert(std::string(name) + ".memory_bytes_us");
    CHECK(times(2, rates, memory) == faster_memory);
    CHECK(times(1, rates, memory).size() == all - faster_memory.size());

    // What all SMs do together, and nothing else.
    const DeviceRates sms = with(&DeviceInfo::sm_count, 2);
    const Names more = times(2, rates, sms), less = times(0.5, rates, sms);
    CHECK(of("sm80", more) == Names{"operand_bytes_us", "partial_bytes_us", "power_flops_us"});
    CHECK(of("sm90", more) == Names{"power_flops_us"});
    CHECK(of("sm80", less).empty());
    CHECK(of("sm90", less) == Names{"row_ns", "straddling_row_ns"});
    CHECK(times(1, rates, sms).size() == all - more.size() - less.size());

    // Rates grow with the clock and times shrink, but for what has a clock of its own.
    const DeviceRates clock = with(&DeviceInfo::clock_ghz, 2);
    const Names faster = times(2, rates, clock), shorter = times(0.5, rates, clock);
    CHECK(faster.size() + shorter.size() + times(1, rates, clock).size() == all);
    for (const char* rate : {"sm90.clocks_us", "sm90.power_flops_us", "sm90.part_bytes_us", "sm80.sm_flops_us",
                             "sm80.power_flops_us", "sm80.sm_l2_bytes_us", "sm80.sm_smem_bytes_us"}) {
      CAPTURE(rate);
      CHECK(faster.contains(rate));
    }
    for (const char* time : {"sm90.row_ns", "sm90.straddling_row_ns", "sm90.latency_us", "sm90.epilogue_us",
                             "sm90.arrival_us", "sm80.step_us", "sm80.mma_us", "sm80.epilogue_us"}) {
      CAPTURE(time);
      CHECK(shorter.contains(time));
    }
    CHECK_FALSE(faster.contains("sm90.memory_bytes_us"));
    CHECK_FALSE(faster.contains("sm80.memory_bytes_us"));
    CHECK(std::ranges::none_of(faster, [](const std::string& name) { return name.ends_with("latency_us"); }));
  }
}

TEST_CASE("A device that does not say its clock or memory rate has a typical one of its architecture",
          "[device_rates]") {
  for (const int capability : {80, 86, 87, 89, 90, 100, 103, 110, 120}) {
    CAPTURE(capability);
    const DeviceInfo unknown = device("a GPU", capability, 100);
    const DeviceRates rates = derived_rates(unknown);
    DeviceInfo known = unknown;
    known.clock_ghz = 1.7;
    const auto& hopper = rates.of<HopperRates>();
    const double clock = 1.7 * hopper.clocks_us / derived_rates(known).of<HopperRates>().clocks_us;
    known.memory_gb_s = 1000;
    const double memory = 1000 * hopper.memory_bytes_us / derived_rates(known).of<HopperRates>().memory_bytes_us;
    CHECK((clock > 1.2 && clock < 2.6));
    CHECK((memory > 150 && memory < 8200));
  }
}

TEST_CASE("Every rate is above 0, as its logarithm is what calibration looks for", "[device_rates]") {
  for (DeviceRates rates : {DeviceRates{}, rates_of(device("NVIDIA H100 80GB HBM3", 90, 132)), derived_rates(h200)}) {
    for (const auto& [name, value] : fields_of(rates)) {
      CAPTURE(rates.origin, name);
      CHECK(*value > 0);
    }
  }
}

TEST_CASE("The rates' names are unique and cover each rate once", "[device_rates]") {
  DeviceRates rates;
  std::set<std::string> families;
  const auto check = [&families](auto& row) {
    std::set<std::string_view> names;
    std::set<const double*> values;
    const auto* const begin = reinterpret_cast<const double*>(&row);
    const std::string_view first = row.fields().front().first;
    const std::string family(first.substr(0, first.find('.') + 1));
    CHECK(families.insert(family).second);
    for (const auto& [name, value] : row.fields()) {
      CAPTURE(name);
      CHECK(name.starts_with(family));
      CHECK(names.insert(name).second);
      CHECK(values.insert(value).second);
      CHECK_FALSE(std::less<>()(value, begin));
      CHECK(std::less<>()(value, begin + sizeof row / sizeof(double)));
    }
    CHECK(values.size() == sizeof row / sizeof(double));
  };
  std::apply([&](auto&... row) { (check(row), ...); }, rates.rows);
  CHECK(families.size() == enumerators<MainLoop>().size());
}

TEST_CASE("An H200's derived rates choose nearly what its own choose", "[device_rates][cost_model]") {
  CAPTURE(test_seed());
  Random random(test_seed());
  const RatedDevice derived(h200, derived_rates(h200));
  double regrets = 0;
  constexpr int problems = 60;
  for (int i = 0; i < problems; ++i) {
    const int unit = i % 2 == 0 ? 8 : 1;
    const auto size = [&] { return unit * random.log_between(128 / unit, 8192 / unit); };
    const NormalProblem problem = normalise({.m = size(), .n = size(), .k = size()});
    CAPTURE(to_string(problem));
    const double best = rank(problem, h200, 16).front().predicted_us;
    const double chosen = predict_us(rank(problem, derived, 16).front().config, problem, h200);
    CHECK(chosen <= 1.3 * best);
    regrets += std::log(chosen / best);
  }
  const double regret = std::exp(regrets / problems);
  INFO("geometric mean " << regret);
  CHECK(regret <= 1.03);
}
