// wisdom: what one machine has tuned and compiled, for others.
#include "wisdom/command.hpp"

#include <fcntl.h>
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <map>

#include "common/exit_status.hpp"
#include "common/options.hpp"
#include "common/text.hpp"
#include "core/device_info.hpp"
#include "jit/cache_directory.hpp"
#include "jitgemm/version.hpp"
#include "plan/constraints.hpp"
#include "tune/wisdom.hpp"
#include "util/trust.hpp"
#include "wisdom/input.hpp"

namespace jitgemm::cli {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

struct Options {
  std::string directory, file, architecture, shapes;
  std::vector<std::string> inputs;
  bool no_kernels = false, kernels = false, json = false;
};

struct Home {
  KernelCache cache;
  TuningDb db;
};

KernelCacheOptions cache_options(const Options& options) {
  KernelCacheOptions cache_options;
  if (!options.directory.empty()) cache_options.directory = checked_directory(options.directory, "--cache-dir");
  return cache_options;
}

/// shared: what is created is for others to read.
Home open_home(const Options& options, bool shared = false) {
  KernelCacheOptions kernels = cache_options(options);
  if (!shared && kernels.directory) existing_cache_directory(options.directory);
  kernels.shared = shared;
  KernelCache cache(kernels);
  std::optional<fs::path> own, system;
  if (const auto directory = cache.directory()) own = *directory / tuning_db_name;
  if (const auto directory = readable_system_cache_directory()) system = *directory / tuning_db_name;
  return {cache, TuningDb(own, system, shared ? shared_file_mode : 0600)};
}

std::uintmax_t kernel_bytes(const Wisdom& wisdom) {
  std::uintmax_t bytes = 0;
  for (const WisdomKernel& kernel : wisdom.kernels) bytes += kernel.bytes;
  return bytes;
}

/// What is in it that this library has no use for, in words; "" if nothing.
std::string remarks(const Wisdom& wisdom) {
  std::string text;
  const auto add = [&](std::int64_t count, const std::string& unit, const char* what) {
    if (count > 0) text += fmt::format("\n{} {}", counted(std::uint64_t(count), unit), what);
  };
  add(std::count_if(wisdom.records.begin(), wisdom.records.end(),
                    [](const TuningRecord& record) { return record.library_version != JITGEMM_VERSION; }),
      "record", "measured by another version of jitgemm");
  add(std::count_if(wisdom.kernels.begin(), wisdom.kernels.end(), [](const auto& kernel) { return !kernel.current; }),
      "kernel", "of other templates, which this version will not ask for");
  add(wisdom.foreign_records, "record", "of another version, which this one cannot read, left out");
  add(wisdom.foreign_kernels, "kernel", "of another version, which this one cannot read, left out");
  add(wisdom.strange_kernels, "kernel", "of the emulator, of another version or forged, left out");
  return text;
}

Json facts_of(const Wisdom& wisdom) {
  return {{"library", wisdom.library},
          {"records", wisdom.records.size()},
          {"records_of_other_versions",
           std::count_if(wisdom.records.begin(), wisdom.records.end(),
                         [](const TuningRecord& record) { return record.library_version != JITGEMM_VERSION; })},
          {"kernels", wisdom.kernels.size()},
          {"kernel_bytes", kernel_bytes(wisdom)},
          {"kernels_of_other_templates", std::count_if(wisdom.kernels.begin(), wisdom.kernels.end(),
                                                       [](const auto& kernel) { return !kernel.current; })},
          {"foreign_records", wisdom.foreign_records},
          {"foreign_kernels", wisdom.foreign_kernels},
          {"strange_kernels", wisdom.strange_kernels}};
}

std::string size_text(const Wisdom& wisdom) {
  return fmt::format("{}, {} ({})", counted(wisdom.records.size(), "record"), counted(wisdom.kernels.size(), "kernel"),
                     bytes_text(double(kernel_bytes(wisdom))));
}

std::string device_of(const TuningRecord& record) {
  return fmt::format("{}{}, {} SMs", record.device_name, record.emulated ? " (emulated)" : "", record.sm_count);
}

std::string problem_of(const TuningRecord& record) {
  const std::string constraints = to_string(record.constraints);
  return to_string(record.problem) + (constraints.empty() ? "" : " (" + constraints + ")");
}

Json to_json(const TuningRecord& record) { return Json::parse(to_json_line(record)); }

/// Throws Error if there is nothing to read. The system's layer alone will do unless another one is named.
void check_readable(const Options& options, const Home& home) {
  const auto directory = home.cache.directory();
  if (!directory && options.directory.empty() && readable_system_cache_directory()) return;
  const fs::path wanted =
      options.directory.empty() ? default_cache_directory() : checked_directory(options.directory, "--cache-dir");
  std::string why = directory ? why_not_readable(*directory) : why_not_writable(wanted);
  if (directory && why.empty()) {
    const Descriptor results = open_trusted(*directory / tuning_db_name, O_RDONLY, &why);
    if (results.get() >= 0 || errno == ENOENT) return;
    why = std::string(tuning_db_name) + ": " + why;
  }
  throw Error(ErrorCode::io, fmt::format("there is nothing to read: {} is not used: {}; name a cache directory "
                                         "of your own with --cache-dir or JITGEMM_CACHE_DIR",
                                         wanted.string(), why));
}

void export_wisdom(const Options& options) {
  Home home = open_home(options);
  check_readable(options, home);
  WisdomSelection selection;
  if (!options.architecture.empty()) selection.architecture = device_info_for(options.architecture).architecture();
  selection.kernels = !options.no_kernels;
  if (!options.shapes.empty()) {
    selection.problem = [shapes = read_shapes(options.shapes)](const Problem& p) {
      return std::any_of(shapes.begin(), shapes.end(),
                         [&](const Shape& shape) { return shape.m == p.m && shape.n == p.n && shape.k == p.k; });
    };
  }
  const Wisdom wisdom = collect_wisdom(home.db, home.cache, selection);
  write_wisdom(options.file, wisdom.records, wisdom.kernels);
  if (options.json) {
    Json json = facts_of(wisdom);
    json["file"] = options.file;
    return print_json(json);
  }
  fmt::print("exported {} to {}{}\n", size_text(wisdom), options.file, remarks(wisdom));
}

void import_wisdom(const Options& options) {
  std::vector<Wisdom> all;  // so that nothing is changed if one cannot be read
  for (const std::string& input : options.inputs) all.push_back(read_wisdom(input));
  // A directory of our own is nobody else's matter; one that is named may serve as JITGEMM_SYSTEM_CACHE_DIR.
  Home home = open_home(options, !options.directory.empty());
  const WisdomImport done =
      jitgemm::import_wisdom(all, home.db, home.cache, options.kernels ? Kernels::take : Kernels::leave);
  const Wisdom merged = merge_wisdom(all);
  const std::size_t asked = options.kernels ? merged.kernels.size() : 0, left_out = merged.kernels.size() - asked;
  const fs::path directory = *home.cache.directory();
  if (options.json) {
    Json json = facts_of(merged);
    json.erase("library");
    json["imported_records"] = done.records;
    json["imported_kernels"] = done.kernels;
    json["kernels_left_out"] = left_out;
    json["directory"] = directory.string();
    return print_json(json);
  }
  const bool all_new = done.records == merged.records.size() && done.kernels == asked;
  fmt::print("imported {} of {} and {} of {} into {}{}\n", done.records, counted(merged.records.size(), "record"),
             done.kernels, counted(asked, "kernel"), directory.string(),
             all_new ? "" : "; the others were here, or better");
  if (left_out > 0) {
    fmt::print(
        "{} left out, which would be compiled when needed: they are code for your GPU, take them with --kernels "
        "if you trust who made the file\n",
        counted(left_out, "kernel"));
  }
  if (const std::string text = remarks(merged); !text.empty()) fmt::print("{}\n", text.substr(1));
}

void merge(const Options& options) {
  std::vector<Wisdom> all;
  for (const std::string& input : options.inputs) all.push_back(read_wisdom(input));
  const Wisdom merged = merge_wisdom(all);
  write_wisdom(options.file, merged.records, merged.kernels);
  if (options.json) {
    Json json = facts_of(merged);
    json["file"] = options.file;
    return print_json(json);
  }
  fmt::print("merged {} into {}: {}{}\n", counted(all.size(), "file"), options.file, size_text(merged),
             remarks(merged));
}

/// A file's, or else what this user has tuned and compiled, or the system has for all.
Wisdom read_what_to_show(const Options& options) {
  if (!options.file.empty()) return read_wisdom_or_database(options.file);
  Home home = open_home(options);
  check_readable(options, home);
  return collect_wisdom(home.db, home.cache, {});
}

void show(const Options& options) {
  const Wisdom wisdom = read_what_to_show(options);
  if (options.json) {
    Json json = facts_of(wisdom);
    json["version"] = wisdom_version;
    json["list"] = {{"records", Json::array()}, {"kernels", Json::array()}};
    for (const TuningRecord& record : wisdom.records) json["list"]["records"].push_back(to_json(record));
    for (const WisdomKernel& kernel : wisdom.kernels) {
      json["list"]["kernels"].push_back({{"digest", kernel.digest},
                                         {"architecture", kernel.architecture},
                                         {"bytes", kernel.bytes},
                                         {"current", kernel.current}});
    }
    return print_json(json);
  }
  for (const TuningRecord& record : wisdom.records) {
    fmt::print("{:>10.2f} us  {}  {}  {}  {}\n", record.median_us, record.date, device_of(record), problem_of(record),
               to_string(record.config));
  }
  std::map<std::string, std::pair<std::size_t, std::uintmax_t>> architectures;
  for (const WisdomKernel& kernel : wisdom.kernels) {
    auto& [count, bytes] = architectures[kernel.architecture];
    ++count;
    bytes += kernel.bytes;
  }
  for (const auto& [architecture, sum] : architectures) {
    fmt::print("{} for {}, {}\n", counted(sum.first, "kernel"), architecture, bytes_text(double(sum.second)));
  }
  const std::string origin = options.file.empty()
                                 ? "in the cache"
                                 : fmt::format("of format {}, written by jitgemm {}", wisdom_version, wisdom.library);
  fmt::print("{}, {}{}\n", size_text(wisdom), origin, remarks(wisdom));
}

/// Returns whether they are equal.
bool diff(const Options& options) {
  const std::string &a = options.inputs.at(0), &b = options.inputs.at(1);
  const WisdomDiff diff = diff_wisdom(read_wisdom_or_database(a), read_wisdom_or_database(b));
  if (options.json) {
    Json json = {{"equal", diff.equal()},
                 {"same", diff.same},
                 {"only_a", Json::array()},
                 {"only_b", Json::array()},
                 {"differ", Json::array()},
                 {"kernels_same", diff.kernels_same},
                 {"kernels_only_a", diff.kernels_only_a},
                 {"kernels_only_b", diff.kernels_only_b}};
    for (const TuningRecord& record : diff.only_a) json["only_a"].push_back(to_json(record));
    for (const TuningRecord& record : diff.only_b) json["only_b"].push_back(to_json(record));
    for (const auto& [x, y] : diff.differ) {
      json["differ"].push_back({{"a", to_json(x)}, {"b", to_json(y)}, {"ratio", y.median_us / x.median_us}});
    }
    print_json(json);
    return diff.equal();
  }
  for (const auto& [records, file] : {std::pair(&diff.only_a, &a), std::pair(&diff.only_b, &b)}) {
    for (const TuningRecord& record : *records) {
      fmt::print("only in {}: {} on {}, {:.2f} us, {}\n", *file, problem_of(record), device_of(record),
                 record.median_us, to_string(record.config));
    }
  }
  for (const auto& [x, y] : diff.differ) {
    fmt::print("differs: {} on {}\n{:>12.2f} us  {}\n{:>12.2f} us  {}  ({:.3f} of the time)\n", problem_of(x),
               device_of(x), x.median_us, to_string(x.config), y.median_us, to_string(y.config),
               y.median_us / x.median_us);
  }
  fmt::print(
      "{} the same, {} in another configuration, {} only in {}, {} only in {}; kernels: {} in both, {} and {} in one\n",
      counted(diff.same, "record"), diff.differ.size(), diff.only_a.size(), a, diff.only_b.size(), b, diff.kernels_same,
      diff.kernels_only_a, diff.kernels_only_b);
  return diff.equal();
}

/// Like diff(1): 0 equal, 1 not, 2 trouble.
void diff_with_status(const Options& options) {
  bool equal = false;
  try {
    equal = diff(options);
  } catch (const std::exception& error) {
    throw ExitStatus{2, error.what()};
  }
  if (!equal) throw ExitStatus{1, ""};
}

void add_cover(CLI::App& wisdom, const std::shared_ptr<Options>& options) {
  auto cover_options = std::make_shared<CoverOptions>();
  CLI::App* cover = wisdom.add_subcommand("cover", "Pick the few kernels that serve all problems best");
  cover->footer(R"(
Examples:
  jitgemm wisdom cover h200.wisdom
  jitgemm wisdom cover h200.wisdom --kernels 24 --list few.txt  then jitgemm warm --configs few.txt
)");
  cover
      ->add_option("file", cover_options->file,
                   "Wisdom file, tuning database (*.jsonl), or what `jitgemm bench` wrote (*.csv)")
      ->required();
  cover->add_option("--kernels", cover_options->sizes, "How many")->capture_default_str();
  cover->add_option("--list", cover_options->list, "Write the largest set there, for `jitgemm warm --configs`");
  cover->add_option("--arch", cover_options->architecture, "Of a CSV's device")->capture_default_str();
  cover->callback([options, cover_options] {
    cover_options->json = options->json;
    wisdom_cover(*cover_options);
  });
}

}  // namespace

void add_wisdom(CLI::App& app) {
  auto options = std::make_shared<Options>();
  CLI::App* wisdom = app.add_subcommand("wisdom", "Carry tuning results and compiled kernels to other machines");
  wisdom->require_subcommand(1);
  wisdom->fallthrough();
  wisdom->add_option("--cache-dir", options->directory, "[JITGEMM_CACHE_DIR, else ~/.cache/jitgemm]");
  wisdom->add_flag("--json", options->json, "For machines");
  wisdom->footer(R"(
Examples:
  jitgemm wisdom show                                           what this machine knows
  jitgemm wisdom export h200.wisdom --arch sm_90a
  jitgemm wisdom import h200.wisdom                             tuning results, on another machine
  jitgemm wisdom import h200.wisdom --kernels                   its kernels too: as safe as running its author's programs
  jitgemm wisdom import h200.wisdom --kernels --cache-dir /opt/jitgemm
                                                                for an image that sets JITGEMM_SYSTEM_CACHE_DIR to it
  jitgemm wisdom cover h200.wisdom --kernels 24 --list few.txt  then jitgemm warm --configs few.txt
  jitgemm wisdom diff before.wisdom after.wisdom                fails with 1 if choices differ
Of two records of a problem on a device the later counts, of those of one day the faster.
)");
  const auto add = [&](const char* name, const char* what, const char* footer, void (*work)(const Options&)) {
    CLI::App* command = wisdom->add_subcommand(name, what);
    command->footer(footer);
    command->callback([options, work] { work(*options); });
    return command;
  };
  CLI::App* export_command = add("export", "Write what this machine knows to one file", R"(
Examples:
  jitgemm wisdom export all.wisdom
  jitgemm wisdom export h200.wisdom --arch sm_90a                  nothing of the emulator's, no other GPU's
  jitgemm wisdom export few.wisdom --shapes shapes.txt --no-kernels
)",
                                 export_wisdom);
  export_command->add_option("file", options->file, "The file")->required();
  export_command->add_option("--arch", options->architecture, "Only of GPUs of this architecture, e.g. sm_90a");
  export_command->add_option("--shapes", options->shapes, "Only of the sizes in a file of `m n k` lines");
  export_command->add_flag("--no-kernels", options->no_kernels, "Tuning results only");
  CLI::App* import_command = add("import", "Add what is new or better to what this machine knows", R"(
Examples:
  jitgemm wisdom import h200.wisdom                             tuning results
  jitgemm wisdom import h200.wisdom --kernels                   its kernels too: as safe as running its author's programs
  jitgemm wisdom import h200.wisdom --kernels --cache-dir /opt/jitgemm
                                                                for an image that sets JITGEMM_SYSTEM_CACHE_DIR to it
Of two records of a problem on a device the later counts, of those of one day the faster.
)",
                                 import_wisdom);
  import_command->add_option("files", options->inputs, "Wisdom files")->required();
  import_command->add_flag("--kernels", options->kernels,
                           "Take the kernels too, from whom you trust: they are code that runs on your GPU");
  CLI::App* merge_command = add("merge", "Make one file of several", R"(
Examples:
  jitgemm wisdom merge all.wisdom monday.wisdom tuesday.wisdom
Of two records of a problem on a device the later counts, of those of one day the faster.
)",
                                merge);
  merge_command->add_option("out", options->file, "The file to write")->required();
  merge_command->add_option("files", options->inputs, "Wisdom files")->required();
  add("diff", "Compare the choices in two files; fails with 1 if they differ, 2 if it cannot tell", R"(
Examples:
  jitgemm wisdom diff before.wisdom after.wisdom
  jitgemm wisdom diff before.wisdom ~/.cache/jitgemm/tuning.jsonl
)",
      diff_with_status)
      ->add_option("files", options->inputs, "Wisdom files, or tuning databases (*.jsonl)")
      ->required()
      ->expected(2);
  add_cover(*wisdom, options);
  add("show", "Print what is in a file, or what this machine knows", R"(
Examples:
  jitgemm wisdom show
  jitgemm wisdom show h200.wisdom
)",
      show)
      ->add_option("file", options->file, "Wisdom file, or tuning database (*.jsonl) [this machine's]");
}

}  // namespace jitgemm::cli
