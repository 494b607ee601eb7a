#include "jitgemm/wisdom.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <iterator>

#include "cache_home.hpp"
#include "core/out_of_memory.hpp"
#include "jitgemm/error.hpp"
#include "jitgemm/version.hpp"
#include "tune/tuning_result.hpp"
#include "tune/wisdom.hpp"
#include "util/descriptor.hpp"
#include "util/errno_text.hpp"

namespace jitgemm {
namespace {

namespace fs = std::filesystem;

Wisdom to_wisdom(const StoredWisdom& stored) {
  Wisdom wisdom{.library = stored.library,
                .results = to_results(stored.records),
                .kernels = {},
                .foreign_results = stored.foreign_records,
                .foreign_kernels = stored.foreign_kernels,
                .strange_kernels = stored.strange_kernels};
  for (const StoredKernel& kernel : stored.kernels)
    wisdom.kernels.push_back({kernel.digest, kernel.architecture, kernel.bytes, kernel.current});
  return wisdom;
}

fs::path checked_file(const std::string& file) {
  const char* const why = file.empty()                           ? "is an empty path"
                          : file.find('\0') != std::string::npos ? "has a NUL in it, which no path has"
                                                                 : nullptr;
  if (why) throw Error(ErrorCode::invalid_option, std::string("the wisdom file ") + why + "; give one");
  return file;
}

StoredWisdom collect(const WisdomSelection& selection) {
  StoredSelection wanted{.kernels = selection.kernels};
  // As results spell it: "sm_90" is "sm_90a".
  if (!selection.architecture.empty()) wanted.architecture = device_info_for(selection.architecture).architecture();
  if (selection.result) wanted.record = [&](const TuningRecord& record) { return selection.result(to_result(record)); };
  CacheHome home = open_home(selection.cache_dir);
  return collect_wisdom(home.records(), home.kernels, wanted);
}

/// A wisdom file, or the records of a tuning database, which is what is named *.jsonl.
StoredWisdom read(const fs::path& file) {
  if (file.extension() != ".jsonl") return read_wisdom_file(file);
  const Descriptor opened(open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat status{};
  const int error = opened.get() < 0 || fstat(opened.get(), &status) != 0 ? errno
                    : S_ISDIR(status.st_mode)                             ? EISDIR
                                                                          : 0;
  if (error != 0) {
    throw Error(ErrorCode::io,
                "cannot read " + file.string() + ": " + errno_text(error) + "; " +
                    (is_out_of_descriptors(error) ? more_descriptors : "give a wisdom file or a tuning database"));
  }
  StoredWisdom wisdom;
  wisdom.library = JITGEMM_VERSION;
  wisdom.records = read_records(file);
  return wisdom;
}

std::vector<StoredWisdom> read_all(const std::vector<std::string>& files) {
  if (files.empty()) throw Error(ErrorCode::invalid_option, "there is no wisdom file to read from; give one or more");
  std::vector<StoredWisdom> all;
  for (const std::string& file : files) all.push_back(read_wisdom_file(checked_file(file)));
  return all;
}

}  // namespace

Wisdom cached_wisdom(const WisdomSelection& selection) {
  return with_memory_errors([&] { return to_wisdom(collect(selection)); });
}

Wisdom export_wisdom(const std::string& file, const WisdomSelection& selection) {
  return with_memory_errors([&] {
    const fs::path to = checked_file(file);
    const StoredWisdom wisdom = collect(selection);
    write_wisdom_file(to, wisdom.records, wisdom.kernels);
    return to_wisdom(wisdom);
  });
}

Wisdom read_wisdom(const std::string& file) {
  return with_memory_errors([&] { return to_wisdom(read(checked_file(file))); });
}

WisdomImport import_wisdom(const std::vector<std::string>& files, const WisdomImportOptions& options) {
  return with_memory_errors([&] {
    const std::vector<StoredWisdom> all = read_all(files);  // so that nothing is changed if one cannot be read
    CacheHome home = open_home_to_fill(options.cache_dir);
    const TakenWisdom taken =
        take_wisdom(all, home.results, home.kernels, options.kernels ? Kernels::take : Kernels::leave);
    WisdomImport done{.wisdom = to_wisdom(merge_stored(all)),
                      .results = taken.records,
                      .kernels = taken.kernels,
                      .kernels_left_out = 0,
                      .directory = home.own().string()};
    if (!options.kernels) done.kernels_left_out = done.wisdom.kernels.size();
    return done;
  });
}

Wisdom merge_wisdom(const std::string& file, const std::vector<std::string>& from) {
  return with_memory_errors([&] {
    const fs::path to = checked_file(file);
    const StoredWisdom merged = merge_stored(read_all(from));
    write_wisdom_file(to, merged.records, merged.kernels);
    return to_wisdom(merged);
  });
}

WisdomDiff diff_wisdom(const std::string& a, const std::string& b) {
  return with_memory_errors([&] {
    const StoredDiff stored = diff_stored(read(checked_file(a)), read(checked_file(b)));
    WisdomDiff diff{.only_a = to_results(stored.only_a),
                    .only_b = to_results(stored.only_b),
                    .differ = {},
                    .same = stored.same,
                    .kernels_only_a = stored.kernels_only_a,
                    .kernels_only_b = stored.kernels_only_b,
                    .kernels_same = stored.kernels_same};
    for (const auto& [x, y] : stored.differ) diff.differ.emplace_back(to_result(x), to_result(y));
    return diff;
  });
}

}  // namespace jitgemm
