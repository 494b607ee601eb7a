#pragma once

#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>

#include "tuning_samples.hpp"

namespace jitgemm::test {

inline void append(const std::filesystem::path& file, const std::string& text) {
  std::ofstream stream(file, std::ios::app | std::ios::binary);
  if (!(stream << text << std::flush)) throw std::runtime_error("append to " + file.string());
}

inline std::string line_of(const TuningRecord& record) { return to_json_line(record) + "\n"; }

inline bool holds(TuningDb& db, const Problem& problem) {
  for (const TuningRecord& record : db.records()) {
    if (equal(record.problem, problem)) return true;
  }
  return false;
}
inline bool holds(const std::filesystem::path& file, const Problem& problem) {
  TuningDb db(file);
  return holds(db, problem);
}

}  // namespace jitgemm::test
