// wisdom: what one machine has tuned and compiled, for others.
#include "wisdom/command.hpp"

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <map>
#include <optional>

#include "common/exit_status.hpp"
#include "common/options.hpp"
#include "common/shapes.hpp"
#include "common/text.hpp"
#include "jitgemm/version.hpp"
#include "wisdom/cover.hpp"

namespace jitgemm::cli {
namespace {

using Json = nlohmann::ordered_json;

struct Options {
  std::string directory, file, architecture, shapes;
  std::vector<std::string> inputs;
  bool no_kernels = false, kernels = false, json = false;
};

/// Without --cache-dir what the environment says.
std::optional<std::string> cache_dir(const Options& options) {
  return options.directory.empty() ? std::nullopt : std::optional(options.directory);
}

std::uint64_t kernel_bytes(const Wisdom& wisdom) {
  std::uint64_t bytes = 0;
  for (const WisdomKernel& kernel : wisdom.kernels) bytes += kernel.bytes;
  return bytes;
}

std::size_t results_of_other_versions(const Wisdom& wisdom) {
  return std::size_t(std::count_if(wisdom.results.begin(), wisdom.results.end(),
                                   [](const TuningResult& result) { return result.library != JITGEMM_VERSION; }));
}

std::size_t kernels_of_other_templates(const Wisdom& wisdom) {
  return std::size_t(std::count_if(wisdom.kernels.begin(), wisdom.kernels.end(),
                                   [](const WisdomKernel& kernel) { return !kernel.current; }));
}

/// What is in it that this library has no use for, in words; "" if nothing.
std::string remarks(const Wisdom& wisdom) {
  std::string text;
  const auto add = [&](std::size_t count, const std::string& unit, const char* what) {
    if (count > 0) text += fmt::format("\n{} {}", counted(count, unit), what);
  };
  add(results_of_other_versions(wisdom), "record", "measured by another version of jitgemm");
  add(kernels_of_other_templates(wisdom), "kernel", "of other templates, which this version will not ask for");
  add(wisdom.foreign_results, "record", "of another version, which this one cannot read, left out");
  add(wisdom.foreign_kernels, "kernel", "of another version, which this one cannot read, left out");
  add(wisdom.strange_kernels, "kernel", "of the emulator, of another version or forged, left out");
  return text;
}

Json facts_of(const Wisdom& wisdom) {
  return {{"library", wisdom.library},
          {"records", wisdom.results.size()},
          {"records_of_other_versions", results_of_other_versions(wisdom)},
          {"kernels", wisdom.kernels.size()},
          {"kernel_bytes", kernel_bytes(wisdom)},
          {"kernels_of_other_templates", kernels_of_other_templates(wisdom)},
          {"foreign_records", wisdom.foreign_results},
          {"foreign_kernels", wisdom.foreign_kernels},
          {"strange_kernels", wisdom.strange_kernels}};
}

std::string size_text(const Wisdom& wisdom) {
  return fmt::format("{}, {} ({})", counted(wisdom.results.size(), "record"), counted(wisdom.kernels.size(), "kernel"),
                     bytes_text(double(kernel_bytes(wisdom))));
}

std::string device_of(const TuningResult& result) {
  return fmt::format("{}{}, {} SMs", result.device, result.emulated ? " (emulated)" : "", result.sm_count);
}

std::string problem_of(const TuningResult& result) {
  const std::string constraints = to_string(result.constraints);
  std::string text = to_string(result.problem);
  if (result.ranks > 1) text += fmt::format(" in {} of {} ranks", to_string(result.exchange), result.ranks);
  return text + (constraints.empty() ? "" : " (" + constraints + ")");
}

std::string choice_of(const TuningResult& result) {
  return (result.ranks > 1 ? std::string(to_string(result.method)) + " " : "") + to_string(result.config);
}

Json to_json(const TuningResult& result) { return Json::parse(result.json()); }

void export_wisdom(const Options& options) {
  WisdomSelection selection{
      .cache_dir = cache_dir(options), .architecture = options.architecture, .kernels = !options.no_kernels};
  if (!options.shapes.empty()) {
    selection.result = [shapes = read_shapes(options.shapes)](const TuningResult& result) {
      const Problem& p = result.problem;
      return std::any_of(shapes.begin(), shapes.end(),
                         [&](const Shape& shape) { return shape.m == p.m && shape.n == p.n && shape.k == p.k; });
    };
  }
  const Wisdom wisdom = jitgemm::export_wisdom(options.file, selection);
  if (options.json) {
    Json json = facts_of(wisdom);
    json["file"] = options.file;
    return print_json(json);
  }
  fmt::print("exported {} to {}{}\n", size_text(wisdom), options.file, remarks(wisdom));
}

void import_wisdom(const Options& options) {
  const WisdomImport done =
      jitgemm::import_wisdom(options.inputs, {.kernels = options.kernels, .cache_dir = cache_dir(options)});
  const std::size_t asked = done.wisdom.kernels.size() - done.kernels_left_out;
  if (options.json) {
    Json json = facts_of(done.wisdom);
    json.erase("library");
    json["imported_records"] = done.results;
    json["imported_kernels"] = done.kernels;
    json["kernels_left_out"] = done.kernels_left_out;
    json["directory"] = done.directory;
    return print_json(json);
  }
  const bool all_new = done.results == done.wisdom.results.size() && done.kernels == asked;
  fmt::print("imported {} of {} and {} of {} into {}{}\n", done.results, counted(done.wisdom.results.size(), "record"),
             done.kernels, counted(asked, "kernel"), done.directory,
             all_new ? "" : "; the others were here, or better");
  if (done.kernels_left_out > 0) {
    fmt::print(
        "{} left out, which would be compiled when needed: they are code for your GPU, take them with --kernels "
        "if you trust who made the file\n",
        counted(done.kernels_left_out, "kernel"));
  }
  if (const std::string text = remarks(done.wisdom); !text.empty()) fmt::print("{}\n", text.substr(1));
}

void merge(const Options& options) {
  const Wisdom merged = merge_wisdom(options.file, options.inputs);
  if (options.json) {
    Json json = facts_of(merged);
    json["file"] = options.file;
    return print_json(json);
  }
  fmt::print("merged {} into {}: {}{}\n", counted(options.inputs.size(), "file"), options.file, size_text(merged),
             remarks(merged));
}

void show(const Options& options) {
  const Wisdom wisdom =
      options.file.empty() ? cached_wisdom({.cache_dir = cache_dir(options)}) : read_wisdom(options.file);
  if (options.json) {
    Json json = facts_of(wisdom);
    json["version"] = wisdom_version;
    json["list"] = {{"records", Json::array()}, {"kernels", Json::array()}};
    for (const TuningResult& result : wisdom.results) json["list"]["records"].push_back(to_json(result));
    for (const WisdomKernel& kernel : wisdom.kernels) {
      json["list"]["kernels"].push_back({{"digest", kernel.digest},
                                         {"architecture", kernel.architecture},
                                         {"bytes", kernel.bytes},
                                         {"current", kernel.current}});
    }
    return print_json(json);
  }
  for (const TuningResult& result : wisdom.results) {
    fmt::print("{:>10.2f} us  {}  {}  {}  {}\n", result.median_us, result.date, device_of(result), problem_of(result),
               choice_of(result));
  }
  std::map<std::string, std::pair<std::size_t, std::uint64_t>> architectures;
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
  const WisdomDiff diff = diff_wisdom(a, b);
  if (options.json) {
    Json json = {{"equal", diff.equal()},
                 {"same", diff.same},
                 {"only_a", Json::array()},
                 {"only_b", Json::array()},
                 {"differ", Json::array()},
                 {"kernels_same", diff.kernels_same},
                 {"kernels_only_a", diff.kernels_only_a},
                 {"kernels_only_b", diff.kernels_only_b}};
    for (const TuningResult& result : diff.only_a) json["only_a"].push_back(to_json(result));
    for (const TuningResult& result : diff.only_b) json["only_b"].push_back(to_json(result));
    for (const auto& [x, y] : diff.differ) {
      json["differ"].push_back({{"a", to_json(x)}, {"b", to_json(y)}, {"ratio", y.median_us / x.median_us}});
    }
    print_json(json);
    return diff.equal();
  }
  for (const auto& [results, file] : {std::pair(&diff.only_a, &a), std::pair(&diff.only_b, &b)}) {
    for (const TuningResult& result : *results) {
      fmt::print("only in {}: {} on {}, {:.2f} us, {}\n", *file, problem_of(result), device_of(result),
                 result.median_us, choice_of(result));
    }
  }
  for (const auto& [x, y] : diff.differ) {
    fmt::print("differs: {} on {}\n{:>12.2f} us  {}\n{:>12.2f} us  {}  ({:.3f} of the time)\n", problem_of(x),
               device_of(x), x.median_us, choice_of(x), y.median_us, choice_of(y), y.median_us / x.median_us);
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
  jitgemm wisdom cover prefill.csv decode.csv --any-types
  jitgemm wisdom cover prefill.csv --measured                   of what jitgemm bench --kernels has timed
)");
  cover
      ->add_option("files", cover_options->files,
                   "Wisdom files, tuning databases (*.jsonl), or what `jitgemm bench` wrote (*.csv); each weighs the "
                   "same, and a case of two files counts in the first, with what was measured in both")
      ->required();
  cover->add_option("--kernels", cover_options->sizes, "How many")->capture_default_str();
  cover->add_option("--list", cover_options->list, "Write the largest set there, for `jitgemm warm --configs`");
  cover->add_flag("--any-types", cover_options->any_types,
                  "Count kernels that differ only in types and layouts as one: a list for `jitgemm warm --type`");
  cover->add_flag("--measured", cover_options->measured_only,
                  "Count what was measured alone, as by `jitgemm bench --kernels`, and predict nothing");
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
