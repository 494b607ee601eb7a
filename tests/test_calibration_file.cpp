// calibration.jsonl: what is kept, what is passed over, and what a Context makes of it.
#include "tune/calibration_file.hpp"

#include <cmath>
#include <nlohmann/json.hpp>

#include "catch.hpp"
#include "errors.hpp"
#include "jitgemm/jitgemm.hpp"
#include "plan/cost_model.hpp"
#include "sandbox.hpp"
#include "tuning_files.hpp"

using namespace jitgemm;
using namespace jitgemm::test;
using Catch::Matchers::ContainsSubstring;
namespace fs = std::filesystem;

namespace {

/// An H200's, all of them so many times as large.
DeviceRates scaled_rates(double factor) {
  DeviceRates rates;
  for (const auto& [name, rate] : fields_of(rates)) *rate *= factor;
  return rates;
}

/// By how much the rates for the device are scaled; 0: there are none, -1: not all by the same.
double scale_in(const fs::path& file, const DeviceInfo& device = h200) {
  std::optional<DeviceRates> rates = read_rates(file, device);
  if (!rates) return 0;
  DeviceRates shipped;
  const auto found = fields_of(*rates), plain = fields_of(shipped);
  const double scale = *found[0].second / *plain[0].second;
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (*found[i].second != scale * *plain[i].second) return -1;
  }
  return scale;
}

std::string line_of(double factor, const DeviceInfo& device = h200) {
  const TemporaryDirectory directory;
  add_rates(directory.path() / "line", device, scaled_rates(factor));
  return file_text(directory.path() / "line");
}

/// The line with a value changed.
std::string with(const std::string& line, const char* pointer, const nlohmann::json& value) {
  nlohmann::json json = nlohmann::json::parse(line);
  json.at(nlohmann::json::json_pointer(pointer)) = value;
  return json.dump() + "\n";
}

}  // namespace

TEST_CASE("Rates come back as they were added, the last of a device", "[calibration_file]") {
  const TemporaryDirectory directory;
  const fs::path file = directory.path() / "new" / "calibration.jsonl";
  const CapturedLog log;
  CHECK(scale_in(file) == 0);  // absent is no fault
  CHECK_FALSE(fs::exists(file.parent_path()));

  DeviceRates odd;
  double value = 1.0 / 3;
  for (const auto& [name, rate] : fields_of(odd)) *rate = value *= 1.7;
  add_rates(file, h200, odd);
  std::optional<DeviceRates> read = read_rates(file, h200);
  REQUIRE(read);
  CHECK(read->origin.starts_with("calibrated 2"));
  const auto written = fields_of(odd), found = fields_of(*read);
  for (std::size_t i = 0; i < written.size(); ++i) {
    CAPTURE(written[i].first);
    CHECK(*found[i].second == *written[i].second);
  }

  const DeviceInfo a100 = device_info_for("sm_80");
  add_rates(file, h200, scaled_rates(2));
  add_rates(file, a100, scaled_rates(4));
  CHECK(scale_in(file) == 2);
  CHECK(scale_in(file, a100) == 4);
  add_rates(file, h200, scaled_rates(0.5));
  CHECK(scale_in(file) == 0.5);
  CHECK(scale_in(file, a100) == 4);
  CHECK(log.text().empty());
}

TEST_CASE("Rates of other devices and versions are passed over silently", "[calibration_file]") {
  const TemporaryDirectory directory;
  const fs::path file = directory.path() / "calibration.jsonl";
  const CapturedLog log;
  append(file, line_of(2));
  for (const auto& [pointer, other] :
       std::initializer_list<std::pair<const char*, nlohmann::json>>{{"/library", "0.0.1"},
                                                                     {"/schema", 1},
                                                                     {"/device/name", "H200 NVL"},
                                                                     {"/device/compute_capability", 100},
                                                                     {"/device/sm_count", 114}}) {
    CAPTURE(pointer);
    append(file, with(line_of(4), pointer, other));
    CHECK(scale_in(file) == 2);
    fs::path alone = directory.path() / "alone";
    write_file(alone, with(line_of(4), pointer, other));
    CHECK(scale_in(alone) == 0);
  }
  append(file, R"({"schema":2,"library":"9.0.0","of":"a later version"})"
               "\n");
  CHECK(scale_in(file) == 2);
  CHECK(log.text().empty());
}

TEST_CASE("Damaged lines of rates cost one warning, and the good one is used", "[calibration_file]") {
  const std::string good = line_of(2), bad = line_of(4);
  const auto renamed = [&] {
    std::string line = bad;
    return line.replace(line.find("sm80.step_us"), 12, "sm80.step_xx");
  };
  const auto not_finite = [&] {
    std::string line = with(bad, "/rates/sm90.launch_us", 12345.5);
    return line.replace(line.find("12345.5"), 7, "1e999");
  };
  const std::vector<std::pair<const char*, std::string>> damaged{{"torn", bad.substr(0, bad.size() / 2) + "\n"},
                                                                 {"not JSON", "calibrated\n"},
                                                                 {"not an object", "[1, 2]\n"},
                                                                 {"negative", with(bad, "/rates/sm90.launch_us", -1)},
                                                                 {"zero", with(bad, "/rates/sm80.memory_bytes_us", 0)},
                                                                 {"NaN", with(bad, "/rates/sm90.row_ns", std::nan(""))},
                                                                 {"infinite", not_finite()},
                                                                 {"text", with(bad, "/rates/sm90.row_ns", "0.009")},
                                                                 {"without a rate", renamed()},
                                                                 {"without rates", with(bad, "/rates", nullptr)},
                                                                 {"too long", std::string(100 << 10, 'x') + "\n"}};
  const TemporaryDirectory directory;
  const fs::path file = directory.path() / "calibration.jsonl";
  std::string all;
  for (const auto& [what, line] : damaged) {
    CAPTURE(what);
    all += line;
    for (const std::string& text : {good + line, line + good}) {
      const CapturedLog log;
      write_file(file, text);
      CHECK(scale_in(file) == 2);
      CHECK(log.count("warning") == 1);
      CHECK_THAT(log.text(), ContainsSubstring(file.string() + (text.starts_with(good) ? ":2: " : ":1: ")));
    }
  }
  {
    const CapturedLog log;
    write_file(file, all);
    CHECK(scale_in(file) == 0);
    append(file, good + all);
    CHECK(scale_in(file) == 2);
    CHECK(log.count("warning") == 2);  // one each time
  }

  // What a killed writer left, after which another adds its own.
  const CapturedLog log;
  write_file(file, bad.substr(0, bad.size() / 2));
  CHECK(scale_in(file) == 0);
  add_rates(file, h200, scaled_rates(2));
  CHECK(scale_in(file) == 2);
  CHECK(log.count("warning") == 1);
}

TEST_CASE("A file of rates that cannot be read costs one warning", "[calibration_file]") {
  const TemporaryDirectory directory;
  const CapturedLog log;
  CHECK(scale_in(directory.path()) == 0);
  CHECK(log.count("warning") == 1);
  CHECK_THAT(log.text(), ContainsSubstring("cannot be read"));
}

TEST_CASE("Rates that cannot be written are an Error", "[calibration_file]") {
  const TemporaryDirectory directory;
  const fs::path file = directory.path() / "calibration.jsonl";
  const auto check_refused = [&] {
    const std::string before = file_text(file);
    const std::string why = refusal(ErrorCode::io, [&] { add_rates(file, h200, scaled_rates(2)); });
    expect(why.starts_with("cannot write " + file.string() + ": "), why.c_str());
    expect(scale_in(file) == 0.5, "what was there is still read");
    expect(file_text(file).starts_with(before), "and still there");
  };
  SECTION("in a read-only directory") {
    CHECK(wait_for(spawn([&] {
            add_rates(file, h200, scaled_rates(0.5));
            fs::permissions(file, fs::perms(0444));
            fs::permissions(directory.path(), fs::perms(0555));
            if (geteuid() == 0) expect(become_nobody(), "become nobody");
            check_refused();
            return 0;
          })) == 0);
    fs::permissions(directory.path(), fs::perms::owner_all);
  }
  SECTION("on a full disk") {
    const int status = wait_for(spawn([&] {
      mount_tmpfs(directory.path(), 64 << 10);
      add_rates(file, h200, scaled_rates(0.5));
      std::ofstream filler(directory.path() / "filler");
      while (filler << 'x' << std::flush) {
      }
      for (int i = 0; i < 5 && scale_in(file) == 0.5; ++i) {
        const CapturedLog log;
        if (error_if_any([&] { add_rates(file, h200, scaled_rates(0.5)); })) break;
      }
      check_refused();
      return 0;
    }));
    if (status == not_allowed) SKIP("mounts are not allowed here");
    CHECK(status == 0);
  }
  SECTION("where the file is a directory") {
    fs::create_directory(file);
    CHECK_THAT(refusal(ErrorCode::io, [&] { add_rates(file, h200, scaled_rates(2)); }),
               ContainsSubstring("cannot write"));
  }
}

TEST_CASE("A Context predicts with the rates of its cache directory, else with the system's",
          "[calibration_file][context][system_layer]") {
  const TemporaryDirectory directory;
  const fs::path own = directory.path() / "own", system = directory.path() / "system";
  const NormalProblem problem = shape(1000, 2000, 3000);
  const ContextOptions options{
      .device = Device::compile_only, .architecture = "sm_90a", .tuning = Tuning::cached, .cache_dir = own.string()};
  /// By how much the rates that a new Context's prediction agrees with are scaled; 0: with none of these.
  const auto scale = [&](const ContextOptions& with_options) {
    const Plan plan = Context(with_options).plan(problem);
    RatedDevice device(device_info_for(with_options.architecture));
    if (plan.predicted.us == predict_us(plan.config, problem, device)) return 1.;
    for (const double factor : {2., 4.}) {
      device.rates = scaled_rates(factor);
      if (plan.predicted.us == predict_us(plan.config, problem, device)) return factor;
    }
    return 0.;
  };
  const ScopedEnvironment no_system("JITGEMM_SYSTEM_CACHE_DIR", nullptr);
  CHECK(scale(options) == 1);
  add_rates(system / "calibration.jsonl", h200, scaled_rates(4));
  CHECK(scale(options) == 1);
  {
    const ScopedEnvironment with_system("JITGEMM_SYSTEM_CACHE_DIR", system.c_str());
    CHECK(scale(options) == 4);
    add_rates(own / "calibration.jsonl", device_info_for("sm_80"), scaled_rates(2));
    CHECK(scale(options) == 4);
    add_rates(own / "calibration.jsonl", h200, scaled_rates(2));
    CHECK(scale(options) == 2);
  }
  CHECK(scale(options) == 2);
  ContextOptions other = options;
  other.architecture = "sm_100a";
  CHECK(scale(other) == 1);
}
