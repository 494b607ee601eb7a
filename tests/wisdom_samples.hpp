#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "cache_samples.hpp"
#include "jitgemm/wisdom.hpp"
#include "sandbox.hpp"
#include "tune/wisdom.hpp"
#include "tuning_samples.hpp"

namespace jitgemm::test {

inline const NormalProblem first = shape(1024, 1024, 1024), second = shape(2048, 512, 4096);

inline TuningRecord dated(TuningRecord record, const std::string& date, double median_us) {
  record.date = date;
  record.median_us = median_us;
  return record;
}

/// A machine's cache directory.
struct Home {
  explicit Home(const std::filesystem::path& path)
      : directory(path), cache({.directory = path}), db(path / "tuning.jsonl") {}

  std::filesystem::path directory;
  KernelCache cache;
  TuningDb db;

  StoredWisdom collect(const StoredSelection& selection = {}) { return collect_wisdom(db.records(), cache, selection); }
  void export_to(const std::filesystem::path& file, const StoredSelection& selection = {}) {
    const StoredWisdom wisdom = collect(selection);
    write_wisdom_file(file, wisdom.records, wisdom.kernels);
  }
  TakenWisdom import_from(const std::filesystem::path& file, Kernels kernels = Kernels::take) {
    return take_wisdom({read_wisdom_file(file)}, db, cache, kernels);
  }
};

/// A machine with two results, one of them an A100's, and two kernels.
struct Machine {
  TemporaryDirectory root;
  ScopedEnvironment no_system{"JITGEMM_SYSTEM_CACHE_DIR", nullptr};
  std::string cache = path("cache"), other = path("other"), file = path("a.wisdom");

  Machine() {
    Home home(cache);
    home.db.merge({dated(record_of(first), "2026-11-21", 12.5),
                   dated(record_of(second, 32, device_info_for("sm_80")), "2026-11-20", 7.25)});
    for (const char* name : {"a", "b"}) home.cache.store(key_of(sample_entry(name)), sample_entry(name));
  }
  std::string path(const char* name) const { return (root.path() / name).string(); }
  WisdomSelection all() const { return {.cache_dir = cache}; }
};

/// All files below a directory with what is in them, but the lock files.
inline std::map<std::filesystem::path, std::string> contents(const std::filesystem::path& directory) {
  std::map<std::filesystem::path, std::string> files;
  for (const auto& item : std::filesystem::recursive_directory_iterator(directory)) {
    if (item.is_regular_file()) files[item.path().lexically_relative(directory)] = file_text(item.path());
  }
  return files;
}

/// A small file of two records and two kernels.
inline std::string sample_wisdom(const std::filesystem::path& directory) {
  Home home(directory / "sample");
  home.db.add(dated(record_of(first), "2026-11-21", 12.5));
  home.db.add(dated(record_of(second, 32), "2026-11-20", 7.25));
  home.cache.store(key_of(sample_entry("a", 300)), sample_entry("a", 300));
  home.cache.store(key_of(sample_entry("b", 200)), sample_entry("b", 200));
  home.export_to(directory / "sample.wisdom");
  return file_text(directory / "sample.wisdom");
}

}  // namespace jitgemm::test
