#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "jitgemm/jitgemm.hpp"

namespace CLI {
class App;
class Validator;
}  // namespace CLI

namespace jitgemm::cli {

/// Of options whose values are numbers; unlike CLI's they say what is wrong.
CLI::Validator positive_number();
CLI::Validator number_from_0();
CLI::Validator factor();  ///< 1 or more
/// What CLI11 would wrap or clip: it reads unsigned 64-bit numbers as strtoull() does.
CLI::Validator number_of_64_bits();

/// -m -n -k, --problem and whatever else describes a Problem; and --config.
class ProblemOptions {
 public:
  enum class Scope { whole, without_sizes };  ///< without_sizes: of all shapes in a file, --config not among them

  /// Not to be moved from then on.
  void add_to(CLI::App& app, Scope scope = Scope::whole);

  bool sizes_given() const;
  /// With sizes missing: a cube of this size; 0 makes that an error.
  Problem problem(std::int64_t default_size = 0) const;
  /// For these sizes, from a file.
  Problem problem(std::int64_t m, std::int64_t n, std::int64_t k) const;
  std::optional<KernelConfig> config() const;
  bool has_epilogue() const { return !epilogue_.empty(); }
  /// The option that gives this problem again, for hints: --problem "m=64 n=64 k=64 a=bf16 ...".
  static std::string command_line(const Problem& problem);
  /// The same of a problem of these options, whose epilogue is a file.
  std::string command_line_of(const Problem& problem) const;

 private:
  Problem without_sizes() const;

  std::string m_, n_, k_, groups_, line_, type_, layout_, scaling_, config_, epilogue_;
  std::map<std::string, std::string> fields_;  // of to_string(Problem), with what was given for them
};

/// Which device, which cache, how to choose.
class DeviceOptions {
 public:
  void add_to(CLI::App& app);
  void add_tuning_to(CLI::App& app,
                     const std::string& usual = "on, on the emulator cached");  ///< and the budget and constraints
  void add_budget_to(CLI::App& app);                                            ///< and constraints
  void add_constraints_to(CLI::App& app);

  /// What was asked for; without --device the GPU, else the emulator. With `compile_for_architecture`, --arch alone
  /// means no device at all.
  ContextOptions context_options(bool compile_for_architecture = false) const;
  /// Says on stderr that the emulator was `chosen` although nobody asked for it. Once what was asked for makes sense,
  /// and before it is done.
  void announce_emulator(const ContextOptions& chosen, bool compile_for_architecture = false) const;

  std::optional<double> tuning_budget() const { return tuning_budget_; }
  bool device_given() const { return !device_.empty(); }

 private:
  std::string device_, architecture_, cache_dir_, tuning_;
  std::optional<double> tuning_budget_;
  int emulator_sm_count_ = 4;
  std::uint64_t emulator_seed_ = 0;
  bool dependent_launch_ = true;
  Constraints constraints_;
  double at_hand_within_ = 0;
};

/// The words after a command's name that give these options.
std::vector<std::string> words_of(const ContextOptions& options);

/// One for each shape in the file, else, if that has no name, the one that the options give.
std::vector<Problem> problems_of(const ProblemOptions& options, const std::string& shapes_file);

}  // namespace jitgemm::cli
