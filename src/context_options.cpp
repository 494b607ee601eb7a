#include "context_options.hpp"

#include <fmt/core.h>

#include <cerrno>

#include "jit/cache_directory.hpp"
#include "jitgemm/error.hpp"
#include "tune/calibration_file.hpp"
#include "util/environment.hpp"
#include "util/trust.hpp"

namespace jitgemm {
namespace {

constexpr const char* calibration_name = "calibration.jsonl";

[[noreturn]] void invalid_option(const std::string& message) { throw Error(ErrorCode::invalid_option, message); }

Tuning tuning_mode(const ContextOptions& options) {
  if (options.tuning) {
    if (*options.tuning > Tuning::on) invalid_option("tuning is none of the enumerators; use off, cached or on");
    return *options.tuning;
  }
  const std::string mode = environment("JITGEMM_TUNING").value_or("");
  if (mode == "off") return Tuning::off;
  if (mode == "cached") return Tuning::cached;
  if (mode == "on") return Tuning::on;
  if (!mode.empty()) invalid_option("JITGEMM_TUNING=" + mode + " is not known; set it to off, cached or on");
  // Times of an emulated device say little, and take long to get.
  return options.device == Device::cuda ? Tuning::on : Tuning::cached;
}

/// Or may yet be created. Of one that is not, the kernel cache warns.
bool is_usable(const std::filesystem::path& home) {
  if (home.empty()) return false;
  return open_trusted_directory(home, nullptr).get() >= 0 || errno != EPERM;
}

void check_budget(const char* name, double seconds) {
  if (!(seconds >= 0)) invalid_option(std::string(name) + " is negative or not a number; give seconds, 0 or more");
}

}  // namespace

std::unique_ptr<Backend> make_backend(const ContextOptions& options) {
  if (options.cuda_device != -1) {
    const std::string given = "cuda_device=" + std::to_string(options.cuda_device);
    if (options.device != Device::cuda)
      invalid_option(given + " is for the device cuda; leave it at -1 for the emulator and for compile_only");
    if (options.cuda_device < 0)
      invalid_option(given + " is negative; give a device's number, or -1 for the thread's current one");
  }
  switch (options.device) {
    case Device::cuda:
      if (!options.architecture.empty()) {
        invalid_option("architecture=" + options.architecture +
                       " is for the devices compile_only and emulator; leave it empty for a CUDA device");
      }
      return make_cuda_backend(options.dependent_launch, options.cuda_device);
    case Device::emulator:
      if (options.emulator_sm_count < 1)
        invalid_option("emulator_sm_count is below 1; give the number of SMs to emulate");
      return make_emulator_backend({.architecture = options.architecture,
                                    .sm_count = options.emulator_sm_count,
                                    .seed = options.emulator_seed,
                                    .dependent_launch = options.dependent_launch});
    case Device::compile_only:
      if (options.architecture.empty()) {
        invalid_option("the device compile_only needs an architecture; give one such as sm_80 or sm_90a");
      }
      return make_compile_only_backend(options.architecture, options.dependent_launch);
  }
  invalid_option("device is none of the enumerators; use cuda, emulator or compile_only");
}

RatedDevice rated_device(const ContextOptions& options, const DeviceInfo& device) {
  if (device.emulated) return RatedDevice(device);
  std::optional<DeviceRates> rates;
  const std::filesystem::path home = home_of(options);
  if (is_usable(home)) rates = read_rates(home / calibration_name, device);
  if (const auto system = readable_system_cache_directory(); system && !rates)
    rates = read_rates(*system / calibration_name, device);
  return rates ? RatedDevice(device, *rates) : RatedDevice(device);
}

std::filesystem::path home_of(const ContextOptions& options) {
  return options.cache_dir ? checked_directory(*options.cache_dir, "cache_dir") : default_cache_directory();
}

std::optional<std::filesystem::path> calibration_file(const ContextOptions& options) {
  const std::filesystem::path home = home_of(options);
  if (home.empty()) return std::nullopt;
  return home / calibration_name;
}

ChooserOptions chooser_options(const ContextOptions& options) {
  check_budget("tuning_budget_seconds", options.tuning_budget_seconds);
  check_budget("tuning_total_budget_seconds", options.tuning_total_budget_seconds);
  ChooserOptions chooser;
  chooser.tuning = tuning_mode(options);
  if (const double within = options.at_hand_within; !(within == 0 || within >= 1)) {
    invalid_option(fmt::format("at_hand_within={} is no factor; give 1 or more, or 0 for none", within));
  }
  const bool measures = options.device != Device::compile_only && !options.compile_in_background;
  if (chooser.tuning == Tuning::on && !measures) chooser.tuning = Tuning::cached;
  chooser.budget_seconds = options.tuning_budget_seconds;
  chooser.total_budget_seconds = options.tuning_total_budget_seconds;
  chooser.bucket_m = options.bucket_m;
  chooser.at_hand_within = options.at_hand_within;
  chooser.constraints = options.constraints;
  chooser.progress = options.progress;
  if (const std::filesystem::path home = home_of(options); is_usable(home)) {
    chooser.tuning_db = home / tuning_db_name;
    if (is_bounded(options)) chooser.at_hand_db = home / at_hand_db_name;
  }
  if (const auto system = readable_system_cache_directory()) {
    chooser.system_tuning_db = *system / tuning_db_name;
    if (is_bounded(options)) chooser.system_at_hand_db = *system / at_hand_db_name;
  }
  return chooser;
}

KernelCacheOptions cache_options(const ContextOptions& options) {
  KernelCacheOptions cache;
  if (options.cache_dir) cache.directory = *options.cache_dir;
  return cache;
}

bool compiles_in_background(const ContextOptions& options) {
  if (options.fallback && !options.compile_in_background)
    invalid_option(
        "fallback serves while a kernel is compiled in the background; set compile_in_background, or leave it out");
  return options.compile_in_background;
}

}  // namespace jitgemm
