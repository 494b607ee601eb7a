#include "cache/command.hpp"

#include <fmt/chrono.h>
#include <fmt/core.h>
#include <sys/stat.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include "common/options.hpp"
#include "common/text.hpp"
#include "jit/cache_directory.hpp"
#include "jit/kernel_cache.hpp"
#include "util/atomic_file.hpp"
#include "util/number_text.hpp"
#include "util/output_file.hpp"
#include "util/trust.hpp"

namespace jitgemm::cli {
namespace {

namespace fs = std::filesystem;

struct Options {
  std::string directory, export_to, max_bytes;
  bool json = false, binaries = false;
};

KernelCache open_cache(const Options& options) {
  KernelCacheOptions cache_options;
  if (!options.directory.empty()) cache_options.directory = existing_cache_directory(options.directory);
  return KernelCache(cache_options);
}

fs::path directory_of(const KernelCache& cache, const Options& options) {
  if (const auto directory = cache.directory()) return *directory;
  const fs::path wanted =
      options.directory.empty() ? default_cache_directory() : checked_directory(options.directory, "--cache-dir");
  throw Error(
      ErrorCode::io,
      fmt::format("{} be used: {}; set {} to a directory of your own",
                  wanted.empty() ? "no kernel cache can" : fmt::format("the kernel cache {} cannot", wanted.string()),
                  why_not_writable(wanted), options.directory.empty() ? "JITGEMM_CACHE_DIR" : "--cache-dir"));
}

nlohmann::ordered_json to_json(const CacheEntryInfo& info) {
  return {{"digest", info.digest},
          {"state", info.state},
          {"bytes", info.bytes},
          {"last_used", info.last_used},
          {"architecture", info.entry.binary.architecture},
          {"config", info.entry.source.config},
          {"compiler", info.entry.binary.compiler},
          {"registers", info.entry.binary.registers},
          {"spill_bytes", info.entry.binary.spill_bytes},
          {"path", info.path.string()}};
}

void list(const Options& options) {
  KernelCache cache = open_cache(options);
  std::vector<CacheEntryInfo> entries = cache.list(false);
  std::sort(entries.begin(), entries.end(), [](const auto& x, const auto& y) { return x.last_used > y.last_used; });
  if (options.json) {
    nlohmann::ordered_json json = nlohmann::ordered_json::array();
    for (const CacheEntryInfo& info : entries) json.push_back(to_json(info));
    print_json(json);
    return;
  }
  std::uintmax_t bytes = 0;
  for (const CacheEntryInfo& info : entries) {
    bytes += info.bytes;
    fmt::print("{:.12}  {:%Y-%m-%d %H:%M}  {:>9}  {:<8}  {:<14}  {}\n", info.digest,
               fmt::localtime(std::time_t(info.last_used)), bytes_text(double(info.bytes)),
               info.entry.binary.architecture, info.entry.binary.compiler,
               info.state == "ok" ? info.entry.source.config : info.state);
  }
  fmt::print("{}, {}, in {}\n", counted(entries.size(), "kernel"), bytes_text(double(bytes)),
             directory_of(cache, options).string());
}

void verify(const Options& options) {
  KernelCache cache = open_cache(options);
  const std::vector<CacheEntryInfo> entries = cache.list(true);
  const auto good = [](const CacheEntryInfo& info) { return info.state == "ok"; };
  const auto bad = std::size_t(std::count_if(entries.begin(), entries.end(), std::not_fn(good)));
  if (options.json) {
    nlohmann::ordered_json json = nlohmann::ordered_json::array();
    for (const CacheEntryInfo& info : entries) json.push_back(to_json(info));
    print_json(json);
  } else {
    for (const CacheEntryInfo& info : entries) {
      if (!good(info)) fmt::print("{}  {}\n", info.path.string(), info.state);
    }
    fmt::print("whole: {}, damaged: {}\n", counted(entries.size() - bad, "kernel"), bad);
  }
  if (bad) throw Error(ErrorCode::io, counted(bad, "damaged kernel") + " found: `jitgemm cache prune` drops them");
}

/// "300", "64K", "1.5G" and so on.
std::uintmax_t parse_bytes(const std::string& option, const std::string& text) {
  const std::map<std::string, double> units{{"", 1}, {"K", 0x1p10}, {"M", 0x1p20}, {"G", 0x1p30}};
  const std::size_t end = text.find_last_not_of("KMG") + 1;
  const double value = parse_double(text.substr(0, end)).value_or(-1);
  const auto found = units.find(text.substr(end));
  if (!(value >= 0) || found == units.end() || value * found->second >= 0x1p64) {
    throw Error(ErrorCode::invalid_option,
                fmt::format("{} {} is no size: use bytes, or a number with K, M or G", option, text));
  }
  return std::uintmax_t(value * found->second);
}

void report_freed(const Options& options, const KernelCache& cache, std::uintmax_t bytes) {
  if (options.json) return print_json({{"freed_bytes", bytes}});
  fmt::print("freed {} in {}\n", bytes_text(double(bytes)), directory_of(cache, options).string());
}

std::vector<CacheEntryInfo> own_entries(KernelCache& cache, bool verify) {
  std::vector<CacheEntryInfo> entries = cache.list(verify);
  std::erase_if(entries, [](const CacheEntryInfo& info) { return info.read_only; });
  return entries;
}

/// Throws Error if, after the removal, kernels are left that were to go.
void remove(const Options& options, std::uintmax_t max_bytes, std::uintmax_t (*removal)(KernelCache&, std::uintmax_t)) {
  KernelCache cache = open_cache(options);
  const fs::path directory = directory_of(cache, options);
  std::set<fs::path> before;
  for (const CacheEntryInfo& info : own_entries(cache, false)) before.insert(info.path);
  const std::uintmax_t freed = removal(cache, max_bytes);
  const std::string why = why_not_writable(directory);
  std::uintmax_t left_bytes = 0;
  std::size_t damaged = 0;
  for (const CacheEntryInfo& info : own_entries(cache, !why.empty())) {
    if (!before.contains(info.path)) continue;  // another process has added it meanwhile
    left_bytes += info.bytes;
    damaged += info.state != "ok";
  }
  // Where files can be removed, a damaged one that is left is another version's.
  if (left_bytes > max_bytes || (damaged > 0 && !why.empty())) {
    throw Error(ErrorCode::io,
                fmt::format("kernels in {} cannot be removed: {}; make it writable, or run this as its owner",
                            directory.string(), why.empty() ? "they are protected" : why));
  }
  report_freed(options, cache, freed);
}

void prune(const Options& options) {
  remove(options, options.max_bytes.empty() ? std::uintmax_t(-1) : parse_bytes("--max-bytes", options.max_bytes),
         [](KernelCache& cache, std::uintmax_t max_bytes) { return cache.prune(max_bytes); });
}

void clear(const Options& options) {
  remove(options, 0, [](KernelCache& cache, std::uintmax_t) { return cache.clear(); });
}

/// The bits of chmod(1); 0 for what is not there.
mode_t mode_of(const fs::path& path) {
  struct stat status{};
  return stat(path.c_str(), &status) == 0 ? status.st_mode & 07777 : 0;
}

[[noreturn]] void cannot_write(const fs::path& path, const std::string& why) {
  throw Error(ErrorCode::io, fmt::format("cannot write {}: {}; export elsewhere", path.string(), why));
}

void write(const fs::path& path, std::string_view bytes) {
  if (std::string why = make_directories(path.parent_path(), shared_directory_mode); !why.empty())
    cannot_write(path, why);
  if (std::string why; !write_output(path, bytes, &why)) cannot_write(path, why);
}

/// An entry for others to read and nobody to change, whatever stood there.
void write_entry(const fs::path& path, std::string_view bytes) {
  if (std::string why = make_directories(path.parent_path(), shared_directory_mode); !why.empty())
    cannot_write(path, why);
  AtomicFile file(path, {shared_file_mode});
  if (!file.write(bytes) || !file.publish()) cannot_write(path, file.why());
}

/// The entries as they are, for JITGEMM_SYSTEM_CACHE_DIR; with --binaries each as a cubin and its source.
void export_entries(const Options& options) {
  KernelCache cache = open_cache(options);
  const fs::path from = directory_of(cache, options), to = checked_directory(options.export_to, "the folder");
  int exported = 0;
  for (const CacheEntryInfo& info : cache.list(true)) {
    if (info.state != "ok") continue;
    if (options.binaries) {
      const auto entry = cache.find(CacheKey{info.digest}, [&] { return info.entry.binary.compiler; });
      if (!entry) continue;
      const bool cubin = !entry->binary.compiler.starts_with("g++") && !entry->binary.compiler.starts_with("c++");
      write(to / (info.digest + (cubin ? ".cubin" : ".so")), entry->binary.code);
      write(to / (info.digest + ".cu"), entry->source.text);
    } else {
      const std::optional<std::string> bytes = read_trusted(info.path, nullptr);
      if (!bytes) continue;
      // An entry of the system layer is not under our own directory.
      const fs::path relative = info.path.lexically_relative(from);
      write_entry(to / (relative.empty() || *relative.begin() == ".." ? info.path.filename() : relative), *bytes);
    }
    ++exported;
  }
  if (exported == 0)
    throw Error(ErrorCode::io,
                fmt::format("there is no whole kernel in {} to export: `jitgemm warm` it first", from.string()));
  if (options.json) return print_json({{"exported", exported}, {"directory", to.string()}});
  std::string hint = "; ship it and set JITGEMM_SYSTEM_CACHE_DIR to it";
  if (const std::string why = why_not_readable(to); !why.empty())
    hint = fmt::format("; it is {}: correct that (chown, chmod go-w), ship it and set JITGEMM_SYSTEM_CACHE_DIR to it",
                       why);
  else if ((mode_of(to) & 05) != 05)  // as under a umask of 077, or made by another hand
    hint = "; others cannot read it: correct that (chmod -R a+rX), ship it and set JITGEMM_SYSTEM_CACHE_DIR to it";
  fmt::print("exported {} to {}{}\n", counted(std::uint64_t(exported), "kernel"), to.string(),
             options.binaries ? "" : hint);
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
