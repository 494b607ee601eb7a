#include "common/options.hpp"

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "common/shapes.hpp"
#include "core/data_types.hpp"
#include "jit/cache_directory.hpp"
#include "util/alternatives.hpp"
#include "util/atomic_file.hpp"
#include "util/number_text.hpp"

namespace jitgemm::cli {
namespace {

[[noreturn]] void bad_option(const std::string& message) { throw Error(ErrorCode::invalid_option, message); }

std::string epilogue_text(const std::filesystem::path& path) {
  constexpr std::uintmax_t most_bytes = 80 << 10;  // of code and operands
  std::error_code error;
  const bool is_file = std::filesystem::is_regular_file(path, error);
  if (is_file && std::filesystem::file_size(path, error) > most_bytes)
    throw Error(ErrorCode::io,
                fmt::format("{} is too large for an epilogue: 64 KiB of code are the most", path.string()));
  const std::optional<std::string> text = is_file ? read_file(path) : std::nullopt;
  if (!text)
    throw Error(ErrorCode::io,
                fmt::format("cannot read the epilogue in {}: give a file with a line for each operand and its code",
                            path.string()));
  return *text;
}

/// As the field of a problem that it sets: -m, --layout-a.
std::string option_of(std::string field) {
  std::replace(field.begin(), field.end(), '_', '-');
  return (field.size() == 1 && std::string_view("mnk").find(field) != std::string_view::npos ? "-" : "--") + field;
}

void set_option(Problem& problem, const std::string& field, const std::string& text, std::string option = "") {
  if (option.empty()) option = option_of(field);
  try {
    set_field(problem, field, text);
  } catch (const Error& error) {
    // As the user wrote it.
    std::string message = error.what();
    if (const std::string given = field + "=" + text; message.starts_with(given))
      message.replace(0, given.size(), option + " " + text);
    bad_option(message);
  }
}

/// "nn", "nt", "tn" or "tt", of A and B.
void set_layouts(Problem& p, const std::string& text) {
  if (text.size() != 2 || text.find_first_not_of("nt") != std::string::npos)
    bad_option(fmt::format("unknown layout \"{}\": use nn, nt, tn or tt", text));
  set_field(p, "layout_a", text.substr(0, 1));
  set_field(p, "layout_b", text.substr(1));
}

/// "none, along_n or along_m"
template <typename Enum>
std::string names_of_all(std::optional<Enum> (*parse)(std::string_view)) {
  std::vector<std::string_view> names;
  for (int i = 0; parse(to_string(Enum(i))) == Enum(i); ++i) names.push_back(to_string(Enum(i)));
  return alternatives(names);
}

CLI::Validator number_that(const std::string& what, bool (*is)(double)) {
  return CLI::Validator(
      [what, is](const std::string& text) {
        const std::optional<double> value = parse_double(text);
        return value && std::isfinite(*value) && is(*value) ? "" : "\"" + text + "\" is not " + what;
      },
      "");
}

}  // namespace

CLI::Validator positive_number() {
  return number_that("a positive number", [](double x) { return x > 0; });
}
CLI::Validator factor() {
  return number_that("a number of 1 or more", [](double x) { return x >= 1; });
}
CLI::Validator number_from_0() {
  return number_that("a number of 0 or more", [](double x) { return x >= 0; });
}

CLI::Validator number_of_64_bits() {
  return CLI::Validator(
      [](const std::string& text) {
        errno = 0;
        static_cast<void>(std::strtoull(text.c_str(), nullptr, 0));
        return errno == 0 && text.find('-') == std::string::npos ? "" : "\"" + text + "\" is not from 0 to 2^64 - 1";
      },
      "");
}

void ProblemOptions::add_to(CLI::App& app, Scope scope) {
  // An empty text is an option that was not given: run_command_line() takes none.
  const std::string group = "Problem: D = activation(alpha * A * B + beta * C + bias)";
  const auto add = [&](const char* option, std::string& text, const std::string& help) {
    return app.add_option(option, text, help)->group(group);
  };
  const auto add_field = [&](const char* option, const char* field, const std::string& help) {
    return add(option, fields_[field], help);
  };
  const auto add_size = [&](const char* option, const char* field, const std::string& help) {
    add_field(option, field, help)->type_name("INT");
  };
  const bool whole = scope == Scope::whole;
  if (whole) {
    add("-m", m_, "Rows of A and D")->type_name("INT");
    add("-n", n_, "Columns of B and D")->type_name("INT");
    add("-k", k_, "Columns of A, rows of B")->type_name("INT");
    add("--problem", line_, "All of it as one line: \"m=64 n=64 k=64 a=bf16 ...\", or 64x64x64");
  }
  add("--type,--a", type_, "Of A and B: " + input_type_names() + " [f16]");
  add_field("--b", "b", "Of B, if not as A: e4m3 and e5m2 mix");
  add_field("--d", "d", "Of D: " + output_type_names() + " [as A; bf16 for e4m3 and e5m2, else the accumulator's]");
  add("--layout", layout_, "Of A and B: nn, nt, tn or tt; n is row-major, t column-major [nn]");
  add_field("--layout-a", "layout_a", "Of A: row_major or column_major");
  add_field("--layout-b", "layout_b", "Of B: row_major or column_major");
  if (whole) {
    add_size("--lda", "lda", "Elements from one row (column) of A to the next; 0 is packed");
    add_size("--ldb", "ldb", "Of B");
    add_size("--ldc", "ldc", "Of C");
    add_size("--ldd", "ldd", "Of D");
  }
  add_size("--batch", "batch", "Matrices, or groups [1]");
  add("--groups", groups_, "So many groups of the rows of A, each with a B; where they end is on the device")
      ->type_name("INT");
  add_field("--grouping", "grouping",
            "Of matrices as groups: " + names_of_all(parse_grouping) + " [none, with --groups offsets]");
  add_size("--expected-m", "expected_m", "Rows, or of k, that a group is expected to have, for the choice [all alike]");
  add_field("--batch-mode-b", "batch_mode_b",
            "Where the B of each group of rows lies: " + names_of_all(parse_batch_mode) + " on the device [strided]");
  add_size("--stride-a", "stride_a", "Elements from one A to the next; 0 uses one for all [packed]");
  add_size("--stride-b", "stride_b", "Of B");
  add_size("--stride-c", "stride_c", "Of C");
  if (whole) add_size("--stride-d", "stride_d", "Of D, not 0");
  add_field("--alpha", "alpha", "[1]")->type_name("FLOAT");
  add_field("--beta", "beta", "[0]")->type_name("FLOAT");
  add_field("--bias", "bias",
            "Add a bias: " + names_of_all(parse_bias) + "; along_n, one a column, if none is named [none]")
      ->expected(0, 1)
      ->default_str("along_n");
  add_field("--activation", "activation", names_of_all(parse_activation) + " [none]");
  add_field("--slope", "slope", "Of leaky_relu [0.01]")->type_name("FLOAT");
  add_field("--accumulation", "accumulation",
            "Of e4m3 and e5m2 products: " + names_of_all(parse_accumulation) + " [fast]");
  add("--scaling", scaling_,
      "Of A and B: " + names_of_all(parse_scaling) +
          "; vector is a scale for each row of A and column of B, a block one for 128 of k [value]");
  add_field("--scaling-a", "scaling_a", "Of A");
  add_field("--scaling-b", "scaling_b", "Of B");
  add("--epilogue", epilogue_,
      "File with an epilogue of your own: a line for each operand, then CUDA C++ (jitgemm/epilogue.hpp)");
  if (!whole) return;
  add_size("--align-a", "align_a",
           "Bytes that the pointer to A is taken to be a multiple of, for what runs nothing [16]");
  add_size("--align-b", "align_b", "Of B");
  add_size("--align-c", "align_c", "Of C");
  add_size("--align-d", "align_d", "Of D");
  app.add_option("--config", config_, "Use this configuration, a line as `explain` prints it")->group("Choice");
}

bool ProblemOptions::sizes_given() const { return !(m_.empty() && n_.empty() && k_.empty() && line_.empty()); }

Problem ProblemOptions::without_sizes() const {
  Problem p = parse_problem(line_);
  if (!type_.empty()) {
    set_option(p, "a", type_);
    p.b.type = p.a.type;
    p.d.type = default_output(p.a.type);
  }
  if (!layout_.empty()) set_layouts(p, layout_);
  if (!scaling_.empty()) {
    set_option(p, "scaling_a", scaling_);
    set_option(p, "scaling_b", scaling_);
  }
  if (!groups_.empty()) {
    set_field(p, "grouping", "offsets");
    set_option(p, "batch", groups_, "--groups");
  }
  for (const auto& [name, text] : fields_) {
    if (!text.empty()) set_option(p, name, text);
  }
  if (!epilogue_.empty()) p.epilogue.function = define_epilogue(parse_epilogue(epilogue_text(epilogue_)));
  return p;
}

Problem ProblemOptions::problem(std::int64_t default_size) const {
  Problem p = without_sizes();
  if (!sizes_given() || (m_.empty() && n_.empty() && k_.empty() && p.m == 0 && p.n == 0 && p.k == 0)) {
    if (default_size == 0) bad_option("which problem? Give -m, -n and -k, or --problem 64x64x64");
    p.m = p.n = p.k = default_size;
    return p;
  }
  if (line_.empty() && (m_.empty() || n_.empty() || k_.empty()))
    bad_option("a problem has three sizes: give -m, -n and -k");
  if (!m_.empty()) set_option(p, "m", m_);
  if (!n_.empty()) set_option(p, "n", n_);
  if (!k_.empty()) set_option(p, "k", k_);
  return p;
}

Problem ProblemOptions::problem(std::int64_t m, std::int64_t n, std::int64_t k) const {
  Problem p = without_sizes();
  p.m = m;
  p.n = n;
  p.k = k;
  return p;
}

std::optional<KernelConfig> ProblemOptions::config() const {
  if (config_.empty()) return std::nullopt;
  return parse_kernel_config(config_);
}

std::string ProblemOptions::command_line(const Problem& problem) {
  return fmt::format("--problem \"{}\"", to_string(problem));
}

std::string ProblemOptions::command_line_of(const Problem& problem) const {
  if (!has_epilogue()) return command_line(problem);
  Problem without = problem;
  without.epilogue.function = 0;  // a digest means nothing to another process
  return command_line(without) + " --epilogue " + epilogue_;
}

void DeviceOptions::add_to(CLI::App& app) {
  const auto add = [&](const char* name, auto& value, const char* help) {
    return app.add_option(name, value, help)->group("Device");
  };
  add("--device", device_, "cuda, emulator or compile_only [cuda if there is a GPU, else emulator]")
      ->check(CLI::IsMember({"cuda", "emulator", "compile_only"}));
  add("--arch", architecture_, "Of emulator and compile_only: sm_80, sm_86, sm_89, sm_90a, ...");
  add("--cache-dir", cache_dir_, "Of kernels and tuning results [JITGEMM_CACHE_DIR, else ~/.cache/jitgemm]");
  app.add_flag("--dependent-launch,!--no-dependent-launch", dependent_launch_,
               "Let a kernel start while the one before it still runs [on]")
      ->group("Device");
  add("--emulator-sms", emulator_sm_count_, "Multiprocessors of the emulator")->capture_default_str();
  add("--emulator-seed", emulator_seed_, "Of the emulator's adversarial order; 0 is in order")
      ->check(number_of_64_bits())
      ->capture_default_str();
}

void DeviceOptions::add_tuning_to(CLI::App& app, const std::string& usual) {
  app.add_option(
         "--tuning", tuning_,
         "off: the cost model; cached: earlier results; on: measure what is new [JITGEMM_TUNING, else " + usual + "]")
      ->check(CLI::IsMember({"off", "cached", "on"}))
      ->group("Choice");
  add_budget_to(app);
}

void DeviceOptions::add_budget_to(CLI::App& app) {
  app.add_option("--tuning-budget", tuning_budget_, "Seconds of measuring for one problem [1]")
      ->check(positive_number())
      ->group("Choice");
  app.add_option("--at-hand-within", at_hand_within_,
                 "Choose a kernel of the cache where it is expected to take at most this factor of the best one's time "
                 "[compile the best]")
      ->check(factor())
      ->group("Choice");
  add_constraints_to(app);
}

void DeviceOptions::add_constraints_to(CLI::App& app) {
  app.add_flag("--batch-invariant", constraints_.batch_invariant,
               "Only choices that give the same bits as each other: one order of additions")
      ->group("Choice");
  app.add_option("--workspace-limit", constraints_.workspace_bytes,
                 "Only choices with as many bytes of workspace: 0, 64K, 8M [any]")
      ->transform(CLI::AsSizeValue(false))
      ->transform(number_of_64_bits())
      ->type_name("BYTES")
      ->group("Choice");
  app.add_option("--sm-limit", constraints_.sms, "Only choices whose blocks take as many SMs at most; 0 is all [0]")
      ->group("Choice");
}

ContextOptions DeviceOptions::context_options(bool compile_for_architecture) const {
  ContextOptions options;
  options.architecture = architecture_;
  if (!cache_dir_.empty()) options.cache_dir = checked_directory(cache_dir_, "--cache-dir").string();
  options.emulator_sm_count = emulator_sm_count_;
  options.emulator_seed = emulator_seed_;
  options.dependent_launch = dependent_launch_;
  options.constraints = constraints_;
  options.at_hand_within = at_hand_within_;
  if (tuning_ == "off") options.tuning = Tuning::off;
  if (tuning_ == "cached") options.tuning = Tuning::cached;
  if (tuning_ == "on") options.tuning = Tuning::on;
  if (tuning_budget_) options.tuning_budget_seconds = *tuning_budget_;

  if (device_ == "emulator") {
    options.device = Device::emulator;
  } else if (device_ == "compile_only" || (device_.empty() && compile_for_architecture && !architecture_.empty())) {
    options.device = Device::compile_only;
    if (architecture_.empty()) bad_option("--device compile_only needs an architecture: add --arch sm_90a");
  } else if (device_ == "cuda" || !cuda_devices().empty()) {
    options.device = Device::cuda;
    if (!architecture_.empty()) bad_option("--arch is for --device emulator or compile_only: a GPU has its own");
  } else {
    options.device = Device::emulator;
  }
  return options;
}

void DeviceOptions::announce_emulator(const ContextOptions& chosen, bool compile_for_architecture) const {
  if (!device_.empty() || chosen.device != Device::emulator) return;
  fmt::print(stderr, "jitgemm: no GPU found: running on the emulator, times mean nothing{}\n",
             compile_for_architecture ? " (--arch sm_90a compiles for a GPU without one)" : "");
}

std::vector<std::string> words_of(const ContextOptions& options) {
  std::vector<std::string> words{"--device", options.device == Device::cuda ? "cuda" : "emulator"};
  const auto add = [&](const char* name, const std::string& value) { words.insert(words.end(), {name, value}); };
  if (!options.architecture.empty()) add("--arch", options.architecture);
  if (options.cache_dir) add("--cache-dir", *options.cache_dir);
  add("--emulator-sms", std::to_string(options.emulator_sm_count));
  add("--emulator-seed", std::to_string(options.emulator_seed));
  add("--tuning-budget", fmt::format("{}", options.tuning_budget_seconds));
  if (options.at_hand_within > 0) add("--at-hand-within", fmt::format("{}", options.at_hand_within));
  if (options.constraints.batch_invariant) words.push_back("--batch-invariant");
  if (options.constraints.workspace_bytes != Constraints{}.workspace_bytes)
    add("--workspace-limit", std::to_string(options.constraints.workspace_bytes));
  if (options.constraints.sms != 0) add("--sm-limit", std::to_string(options.constraints.sms));
  if (!options.dependent_launch) words.push_back("--no-dependent-launch");
  return words;
}

std::vector<Problem> problems_of(const ProblemOptions& options, const std::string& shapes_file) {
  if (shapes_file.empty()) return {options.problem()};
  if (options.sizes_given()) bad_option("sizes come from --shapes or from -m, -n and -k: leave one out");
  std::vector<Problem> problems;
  for (const Shape& shape : read_shapes(shapes_file)) problems.push_back(options.problem(shape.m, shape.n, shape.k));
  return problems;
}

}  // namespace jitgemm::cli
