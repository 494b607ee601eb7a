#include <clocale>
#include <locale>

#include "catch.hpp"
#include "errors.hpp"
#include "jitgemm/jitgemm.hpp"
#include "plan/constraints.hpp"
#include "sandbox.hpp"
#include "tune/calibration_file.hpp"
#include "tuning_samples.hpp"
#include "util/errno_text.hpp"
#include "util/number_text.hpp"

using namespace jitgemm;
using namespace jitgemm::test;

namespace {

/// As German and Turkish write numbers: 1.500,25.
class CommaPoint : public std::numpunct<char> {
  char do_decimal_point() const override { return ','; }
  char do_thousands_sep() const override { return '.'; }
  std::string do_grouping() const override { return "\3"; }
};

/// What the application's C++ streams do, until it is destroyed.
class ScopedCommaPoint {
 public:
  ~ScopedCommaPoint() { std::locale::global(before_); }

 private:
  std::locale before_ = std::locale::global(std::locale(std::locale::classic(), new CommaPoint));
};

/// setlocale() to a locale that is made for this, until it is destroyed.
class ScopedLocale {
 public:
  explicit ScopedLocale(const std::string& name)
      : before_(std::setlocale(LC_ALL, nullptr)), path_("LOCPATH", directory_.path().c_str()) {
    const std::string make =
        "localedef -i " + name + " -f UTF-8 '" + (directory_.path() / name).string() + "' >/dev/null 2>&1";
    is_set_ = std::system(make.c_str()) == 0 && std::setlocale(LC_ALL, name.c_str()) != nullptr;
  }
  ~ScopedLocale() { std::setlocale(LC_ALL, before_.c_str()); }
  bool is_set() const { return is_set_; }

 private:
  TemporaryDirectory directory_;
  std::string before_;
  ScopedEnvironment path_;
  bool is_set_ = false;
};

std::vector<std::string> text_of(const Error& error) {
  return {error.what(), error.problem(), error.config(), error.call(), error.log()};
}

/// All kinds of text that the library makes, or what came of reading it back.
std::vector<std::string> texts(const std::filesystem::path& directory) {
  std::vector<std::string> all;
  Context context({.device = Device::compile_only,
                   .architecture = "sm_90a",
                   .tuning = Tuning::off,
                   .cache_dir = directory.string()});
  const Problem problems[] = {{.m = 1500, .n = 12345, .k = 8192, .alpha = 0.5, .beta = 1e-3},
                              {.m = 2048,
                               .n = 4096,
                               .k = 65536,
                               .batch = 1024,
                               .alpha = 1.0 / 3,
                               .epilogue = {.activation = Activation::leaky_relu, .slope = 0.01}},
                              {.m = 1000, .n = 1000, .k = 1001, .a = {f64}, .b = {f64}, .d = {f64}, .alpha = 0.1}};
  for (const Problem& problem : problems) {
    const Plan plan = context.plan(problem);
    all.insert(all.end(), {to_string(problem), plan.explain(), to_string(plan.config), plan.why, plan.rates,
                           context.source(problem)});
    all.push_back(to_string(parse_kernel_config(to_string(plan.config))));
    TuningRecord record = record_of(shape_of(normalise(problem)));
    record.config = plan.config;
    record.median_us = 1234567.25;
    record.spread = 0.0625;
    const std::string line = to_json_line(record);
    const std::optional<TuningRecord> read = parse_json_line(line);
    all.insert(all.end(), {line, read ? to_json_line(*read) : "cannot be read"});
    all.insert(all.end(), {std::to_string(read->median_us == record.median_us), to_string(read->problem)});
  }
  for (const Problem& problem :
       {Problem{.m = 1500, .n = -1234567, .k = 8},
        Problem{.m = 1500, .n = 2000, .k = 3000, .a = {s8}, .b = {s8}, .d = {s32}, .alpha = 1.5},
        Problem{.m = 1500, .n = 2000, .k = 3000, .a = {.ld = 1234}}}) {
    const auto text = text_of(error_of([&] { context.plan(problem); }));
    all.insert(all.end(), text.begin(), text.end());
  }
  all.push_back(error_of([&] { parse_kernel_config("sm80 64x64x32 stages=1.500 warps=4"); }).what());
  all.push_back(to_string(Constraints{.workspace_bytes = 1234567, .sms = 1000}));
  DeviceRates rates = h200.rates;
  add_rates(directory / "rates", h200, rates);
  all.push_back(file_text(directory / "rates"));
  all.push_back(std::to_string(read_rates(directory / "rates", h200).has_value()));
  all.insert(all.end(), {fixed_text(1234567.891, 2), general_text(0.1, 17), general_text(1e300, 6),
                         std::to_string(parse_double("1234.5").value_or(-1) == 1234.5),
                         std::to_string(parse_double("1234,5").has_value()), errno_text(ENOENT)});
  std::filesystem::remove(directory / "rates");
  return all;
}

void compare(const std::vector<std::string>& all, const std::vector<std::string>& expected) {
  REQUIRE(all.size() == expected.size());
  for (std::size_t i = 0; i < all.size(); ++i) CHECK(all[i] == expected[i]);
}

}  // namespace

TEST_CASE("Numbers become text as printf writes them in the C locale, and are read back", "[util]") {
  CHECK(fixed_text(1234567.891, 2) == "1234567.89");
  CHECK(fixed_text(-0.005, 1) == "-0.0");
  CHECK(fixed_text(1e308, 3).size() == 313);
  CHECK(general_text(0.1, 17) == "0.10000000000000001");
  CHECK(general_text(0.1f, 9) == "0.100000001");
  CHECK(general_text(1e300, 6) == "1e+300");
  CHECK(general_text(2, 9) == "2");
  CHECK(general_text(std::numeric_limits<double>::quiet_NaN(), 9) == "nan");
  CHECK(general_text(-std::numeric_limits<double>::infinity(), 9) == "-inf");
  CHECK(parse_double("0.10000000000000001") == 0.1);
  CHECK(parse_double("-1e-3") == -1e-3);
  for (const char* text : {"", " 1", "1 ", "1,5", "1.5x", "x", "+1", "0x10", "1e999"})
    CHECK_FALSE(parse_double(text).has_value());
}

TEST_CASE("No text that the library makes or reads follows the C++ locale of the application", "[util]") {
  const TemporaryDirectory directory;
  const std::vector<std::string> expected = texts(directory.path());
  CHECK(expected[0] == "m=1500 n=12345 k=8192 a=f16 b=f16 d=f16 alpha=0.5 beta=0.00100000005");
  const ScopedCommaPoint german;
  std::ostringstream text;
  text << 1234.5;
  REQUIRE(text.str() == "1.234,5");
  compare(texts(directory.path()), expected);
}

TEST_CASE("No text that the library makes or reads follows setlocale()", "[util]") {
  const TemporaryDirectory directory;
  const std::vector<std::string> expected = texts(directory.path());
  for (const std::string name : {"de_DE", "tr_TR"}) {
    const ScopedLocale locale(name);
    if (!locale.is_set()) SKIP("localedef cannot make the locale " + name + ": install the package locales");
    REQUIRE(std::to_string(0.5).starts_with("0,5"));
    compare(texts(directory.path()), expected);
  }
}
