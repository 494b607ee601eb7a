#include "cache/command.hpp"

#include <fmt/chrono.h>
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <ctime>
#include <map>

#include "common/text.hpp"
#include "util/number_text.hpp"

namespace jitgemm::cli {
namespace {

struct Options {
  std::string directory, export_to, max_bytes;
  bool json = false, binaries = false;
};

Cache open_cache(const Options& options) { return options.directory.empty() ? Cache() : Cache(options.directory); }

std::string state_of(const CachedKernel& kernel) { return kernel.fault.empty() ? "ok" : kernel.fault; }

void print_as_json(const std::vector<CachedKernel>& kernels) {
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  for (const CachedKernel& kernel : kernels) {
    json.push_back({{"digest", kernel.digest},
                    {"state", state_of(kernel)},
                    {"bytes", kernel.bytes},
                    {"last_used", kernel.last_used},
                    {"architecture", kernel.architecture},
                    {"config", kernel.config},
                    {"compiler", kernel.compiler},
                    {"registers", kernel.registers},
                    {"spill_bytes", kernel.spill_bytes},
                    {"path", kernel.path}});
  }
  print_json(json);
}

void list(const Options& options) {
  const Cache cache = open_cache(options);
  const std::vector<CachedKernel> kernels = cache.kernels();
  if (options.json) return print_as_json(kernels);
  std::uint64_t bytes = 0;
  for (const CachedKernel& kernel : kernels) {
    bytes += kernel.bytes;
    fmt::print("{:.12}  {:%Y-%m-%d %H:%M}  {:>9}  {:<8}  {:<14}  {}\n", kernel.digest,
               fmt::localtime(std::time_t(kernel.last_used)), bytes_text(double(kernel.bytes)), kernel.architecture,
               kernel.compiler, kernel.fault.empty() ? kernel.config : kernel.fault);
  }
  const std::string directory = cache.directory();
  fmt::print("{}, {}, in {}\n", counted(kernels.size(), "kernel"), bytes_text(double(bytes)),
             directory.empty() ? "the system's cache" : directory);
}

void verify(const Options& options) {
  const std::vector<CachedKernel> kernels = open_cache(options).verify();
  const auto bad = std::size_t(
      std::count_if(kernels.begin(), kernels.end(), [](const CachedKernel& kernel) { return !kernel.fault.empty(); }));
  if (options.json) {
    print_as_json(kernels);
  } else {
    for (const CachedKernel& kernel : kernels) {
      if (!kernel.fault.empty()) fmt::print("{}  {}\n", kernel.path, kernel.fault);
    }
    fmt::print("whole: {}, damaged: {}\n", counted(kernels.size() - bad, "kernel"), bad);
  }
  if (bad) throw Error(ErrorCode::io, counted(bad, "damaged kernel") + " found: `jitgemm cache prune` drops them");
}

/// "300", "64K", "1.5G" and so on.
std::uint64_t parse_bytes(const std::string& option, const std::string& text) {
  const std::map<std::string, double> units{{"", 1}, {"K", 0x1p10}, {"M", 0x1p20}, {"G", 0x1p30}};
  const std::size_t end = text.find_last_not_of("KMG") + 1;
  const double value = parse_double(text.substr(0, end)).value_or(-1);
  const auto found = units.find(text.substr(end));
  if (!(value >= 0) || found == units.end() || value * found->second >= 0x1p64) {
    throw Error(ErrorCode::invalid_option,
                fmt::format("{} {} is no size: use bytes, or a number with K, M or G", option, text));
  }
  return std::uint64_t(value * found->second);
}

void report_freed(const Options& options, const Cache& cache, std::uint64_t bytes) {
  if (options.json) return print_json({{"freed_bytes", bytes}});
  fmt::print("freed {} in {}\n", bytes_text(double(bytes)), cache.directory());
}

void prune(const Options& options) {
  Cache cache = open_cache(options);
  report_freed(options, cache,
               options.max_bytes.empty() ? cache.prune() : cache.prune(parse_bytes("--max-bytes", options.max_bytes)));
}

void clear(const Options& options) {
  Cache cache = open_cache(options);
  report_freed(options, cache, cache.clear());
}

/// For JITGEMM_SYSTEM_CACHE_DIR, or for a disassembler.
void export_entries(const Options& options) {
  const Cache cache = open_cache(options);
  const CacheExport done =
      options.binaries ? cache.export_binaries(options.export_to) : cache.export_kernels(options.export_to);
  if (options.json) return print_json({{"exported", done.kernels}, {"directory", done.directory}});
  const std::string hint =
      fmt::format("; {}ship it and set JITGEMM_SYSTEM_CACHE_DIR to it", done.remark.empty() ? "" : done.remark + ", ");
  fmt::print("exported {} to {}{}\n", counted(done.kernels, "kernel"), done.directory, options.binaries ? "" : hint);
}

}  // namespace

void add_cache(CLI::App& app) {
  auto options = std::make_shared<Options>();
  CLI::App* cache = app.add_subcommand("cache", "Look after the compiled kernels on disk");
  cache->require_subcommand(1);
  cache->fallthrough();
  cache->add_option("--cache-dir", options->directory, "[JITGEMM_CACHE_DIR, else ~/.cache/jitgemm]");
  cache->add_flag("--json", options->json, "For machines");
  cache->footer(R"(
Examples:
  jitgemm cache ls
  jitgemm cache prune --max-bytes 200M     drop damaged kernels, then the least recently used ones
  jitgemm cache export /opt/jitgemm        for images that ship warmed
)");
  const auto add = [&](const char* name, const char* what, const char* footer, void (*work)(const Options&)) {
    CLI::App* command = cache->add_subcommand(name, what);
    command->footer(footer);
    command->callback([options, work] { work(*options); });
    return command;
  };
  add("ls", "List the kernels, last used first", R"(
Examples:
  jitgemm cache ls
  jitgemm cache ls --json    with the path of each
)",
      list);
  add("verify", "Read every kernel whole; fails if one is damaged", R"(
Examples:
  jitgemm cache verify
  jitgemm cache verify --cache-dir /opt/jitgemm    what an image ships
)",
      verify);
  CLI::App* prune_command = add("prune", "Drop damaged kernels, and old ones to fit a size", R"(
Examples:
  jitgemm cache prune                      damaged ones only
  jitgemm cache prune --max-bytes 200M     then the least recently used ones
)",
                                prune);
  prune_command->add_option("--max-bytes", options->max_bytes,
                            "Bytes to keep at most, e.g. 200M [drop damaged ones only]");
  add("clear", "Drop all kernels", R"(
Examples:
  jitgemm cache clear                      tuning results stay
)",
      clear);
  CLI::App* export_command = add("export", "Copy the kernels to a folder that others may read", R"(
Examples:
  jitgemm cache export /opt/jitgemm        in an image that sets JITGEMM_SYSTEM_CACHE_DIR to it: kernels for all its users
  jitgemm cache export cubins --binaries   for a disassembler
Tuning results go with `jitgemm wisdom export`.
)",
                                 export_entries);
  export_command->add_option("directory", options->export_to, "The folder")->required();
  export_command->add_flag("--binaries", options->binaries, "As cubin and source files, instead of cache entries");
}

}  // namespace jitgemm::cli
