#include "options.hpp"

#include <fmt/core.h>

#include <charconv>
#include <fstream>
#include <sstream>

namespace jitgemm::cli {
namespace {

[[noreturn]] void bad_option(const std::string& message) { throw Error(ErrorCode::invalid_option, message); }

template <typename T>
T number(std::string_view name, std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) {
    bad_option(fmt::format("{}={} is not a number", name, text));
  }
  return value;
}

DataType data_type(const std::string& text) {
  const auto type = parse_data_type(text);
  if (!type) bad_option(fmt::format("unknown type \"{}\": use f16, bf16 or, for D, f32", text));
  return *type;
}

Layout layout(const std::string& text) {
  if (text == "n") return Layout::row_major;
  if (text == "t") return Layout::column_major;
  const auto layout = parse_layout(text);
  if (!layout) bad_option(fmt::format("unknown layout \"{}\": use row_major (n) or column_major (t)", text));
  return *layout;
}

Activation activation(const std::string& text) {
  const auto activation = parse_activation(text);
  if (!activation) bad_option(fmt::format("unknown activation \"{}\": use none, relu or leaky_relu", text));
  return *activation;
}

void set_field(Problem& p, std::string_view name, const std::string& value) {
  if (name == "m")
    p.m = number<std::int64_t>(name, value);
  else if (name == "n")
    p.n = number<std::int64_t>(name, value);
  else if (name == "k")
    p.k = number<std::int64_t>(name, value);
  else if (name == "a")
    p.a = data_type(value);
  else if (name == "b")
    p.b = data_type(value);
  else if (name == "d")
    p.d = data_type(value);
  else if (name == "layout_a")
    p.layout_a = layout(value);
  else if (name == "layout_b")
    p.layout_b = layout(value);
  else if (name == "lda")
    p.lda = number<std::int64_t>(name, value);
  else if (name == "ldb")
    p.ldb = number<std::int64_t>(name, value);
  else if (name == "ldc")
    p.ldc = number<std::int64_t>(name, value);
  else if (name == "ldd")
    p.ldd = number<std::int64_t>(name, value);
  else if (name == "alpha")
    p.alpha = number<double>(name, value);
  else if (name == "beta")
    p.beta = number<double>(name, value);
  else if (name == "bias")
    p.bias = number<int>(name, value) != 0;
  else if (name == "activation")
    p.activation = activation(value);
  else if (name == "slope")
    p.slope = number<double>(name, value);
  else if (name == "align_a")
    p.align_a = number<int>(name, value);
  else if (name == "align_b")
    p.align_b = number<int>(name, value);
  else if (name == "align_c")
    p.align_c = number<int>(name, value);
  else if (name == "align_d")
    p.align_d = number<int>(name, value);
  else
    bad_option(fmt::format("a problem has no field \"{}\": write it like \"{}\"", name, to_string(Problem{})));
}

}  // namespace

Problem parse_problem(const std::string& line) {
  Problem problem;
  std::istringstream words(line);
  for (std::string word; words >> word;) {
    const auto equals = word.find('=');
    if (equals != std::string::npos) {
      set_field(problem, std::string_view(word).substr(0, equals), word.substr(equals + 1));
      continue;
    }
    const auto first = word.find('x'), second = word.find('x', first + 1);
    if (first == std::string::npos || second == std::string::npos) {
      bad_option(fmt::format("cannot read \"{}\" in a problem: write it like \"{}\" or 64x64x64", word,
                             to_string(Problem{.m = 64, .n = 64, .k = 64})));
    }
    set_field(problem, "m", word.substr(0, first));
    set_field(problem, "n", word.substr(first + 1, second - first - 1));
    set_field(problem, "k", word.substr(second + 1));
  }
  return problem;
}

void ProblemOptions::add_to(CLI::App& app, Scope scope) {
  const std::string group = "Problem: D = activation(alpha * A * B + beta * C + bias)";
  const auto add = [&](const char* name, auto& value, const char* help) {
    return app.add_option(name, value, help)->group(group);
  };
  if (scope == Scope::whole) {
    add("-m", m_, "Rows of A and D");
    add("-n", n_, "Columns of B and D");
    add("-k", k_, "Columns of A, rows of B");
    add("--problem", line_, "All of it as one line: \"m=64 n=64 k=64 a=bf16 ...\", or 64x64x64");
  }
  add("--type,--a", type_, "Of A and B: f16 or bf16 [f16]");
  add("--d", d_, "Of C, D and bias: f16, bf16 or f32 [as A]");
  add("--layout", layout_, "Of A and B: nn, nt, tn or tt; n is row-major, t column-major [nn]");
  add("--layout-a", layout_a_, "Of A: row_major or column_major");
  add("--layout-b", layout_b_, "Of B: row_major or column_major");
  if (scope == Scope::whole) {
    add("--lda", lda_, "Elements from one row (column) of A to the next; 0 is packed");
    add("--ldb", ldb_, "Of B");
    add("--ldc", ldc_, "Of C");
    add("--ldd", ldd_, "Of D");
  }
  add("--alpha", alpha_, "[1]");
  add("--beta", beta_, "[0]");
  app.add_flag("--bias", bias_, "Add a bias to every row")->group(group);
  add("--activation", activation_, "none, relu or leaky_relu [none]");
  add("--slope", slope_, "Of leaky_relu [0.01]");
  app.add_option("--config", config_, "Use this configuration, a line as `explain` prints it")->group("Choice");
}

bool ProblemOptions::sizes_given() const { return m_ || n_ || k_ || !line_.empty(); }

Problem ProblemOptions::without_sizes() const {
  Problem p = parse_problem(line_);
  if (!type_.empty()) p.a = p.b = p.d = data_type(type_);
  if (!d_.empty()) p.d = data_type(d_);
  if (!layout_.empty()) {
    if (layout_.size() != 2) bad_option(fmt::format("unknown layout \"{}\": use nn, nt, tn or tt", layout_));
    p.layout_a = layout(layout_.substr(0, 1));
    p.layout_b = layout(layout_.substr(1));
  }
  if (!layout_a_.empty()) p.layout_a = layout(layout_a_);
  if (!layout_b_.empty()) p.layout_b = layout(layout_b_);
  p.lda = lda_.value_or(p.lda);
  p.ldb = ldb_.value_or(p.ldb);
  p.ldc = ldc_.value_or(p.ldc);
  p.ldd = ldd_.value_or(p.ldd);
  p.alpha = alpha_.value_or(p.alpha);
  p.beta = beta_.value_or(p.beta);
  p.bias = p.bias || bias_;
  if (!activation_.empty()) p.activation = activation(activation_);
  p.slope = slope_.value_or(p.slope);
  return p;
}

Problem ProblemOptions::problem(std::int64_t default_size) const {
  Problem p = without_sizes();
  if (!sizes_given()) {
    if (default_size == 0) bad_option("which problem? Give -m, -n and -k, or --problem 64x64x64");
    p.m = p.n = p.k = default_size;
    return p;
  }
  if (line_.empty() && !(m_ && n_ && k_)) bad_option("a problem has three sizes: give -m, -n and -k");
  p.m = m_.value_or(p.m);
  p.n = n_.value_or(p.n);
  p.k = k_.value_or(p.k);
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

void DeviceOptions::add_to(CLI::App& app) {
  const auto add = [&](const char* name, auto& value, const char* help) {
    return app.add_option(name, value, help)->group("Device");
  };
  add("--device", device_, "cuda, emulator or compile_only [cuda if there is a GPU, else emulator]")
      ->check(CLI::IsMember({"cuda", "emulator", "compile_only"}));
  add("--arch", architecture_, "Of emulator and compile_only: sm_80, sm_86, sm_89, sm_90a, ...");
  add("--cache-dir", cache_dir_, "Of kernels and tuning results [JITGEMM_CACHE_DIR, else ~/.cache/jitgemm]");
  add("--emulator-sms", emulator_sm_count_, "Multiprocessors of the emulator")->capture_default_str();
  add("--emulator-seed", emulator_seed_, "Of the emulator's adversarial order; 0 is in order")->capture_default_str();
}

void DeviceOptions::add_tuning_to(CLI::App& app) {
  app.add_option("--tuning", tuning_, "off: the cost model; cached: earlier results; on: measure what is new [on]")
      ->check(CLI::IsMember({"off", "cached", "on"}))
      ->envname("JITGEMM_TUNING")
      ->group("Choice");
  app.add_option("--tuning-budget", tuning_budget_, "Seconds of measuring for one problem [1]")
      ->check(CLI::PositiveNumber)
      ->group("Choice");
}

ContextOptions DeviceOptions::context_options(bool compile_for_architecture) const {
  ContextOptions options;
  options.architecture = architecture_;
  if (!cache_dir_.empty()) options.cache_dir = std::filesystem::absolute(cache_dir_).string();
  options.emulator_sm_count = emulator_sm_count_;
  options.emulator_seed = emulator_seed_;
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
    fmt::print(stderr, "jitgemm: no GPU found: running on the emulator, times mean nothing{}\n",
               compile_for_architecture ? " (--arch sm_90a compiles for a GPU without one)" : "");
  }
  return options;
}

std::unique_ptr<Backend> make_backend(const ContextOptions& options) {
  switch (options.device) {
    case Device::cuda:
      return make_cuda_backend();
    case Device::compile_only:
      return make_compile_only_backend(options.architecture);
    case Device::emulator:
      break;
  }
  return make_emulator_backend(
      {.architecture = options.architecture, .sm_count = options.emulator_sm_count, .seed = options.emulator_seed});
}

std::vector<Shape> read_shapes(const std::filesystem::path& path) {
  std::ifstream file(path);
  if (!file)
    throw Error(ErrorCode::io,
                fmt::format("cannot read the shapes in {}: give a file of `m n k` lines", path.string()));
  std::vector<Shape> shapes;
  std::string line;
  for (int row = 1; std::getline(file, line); ++row) {
    std::istringstream words(line.substr(0, line.find('#')));
    Shape shape;
    std::string rest;
    if (!(words >> rest)) continue;
    words.seekg(0);
    if (!(words >> shape.m >> shape.n >> shape.k) || words >> rest) {
      throw Error(ErrorCode::io, fmt::format("{}:{}: \"{}\" is not `m n k`", path.string(), row, line));
    }
    shapes.push_back(shape);
  }
  if (shapes.empty()) throw Error(ErrorCode::io, fmt::format("{} has no `m n k` line", path.string()));
  return shapes;
}

}  // namespace jitgemm::cli
