#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace jitgemm::cli {

/// An arm that is chosen with another cache directory's tuning database and calibration.
struct NamedChoice {
  std::string name;  ///< letters, digits, '_', '-' and '.'
  std::filesystem::path directory;
};

/// From "NAME=DIR" each. Throws Error for what is no such text, for a name that another arm has, and for a directory
/// that is not there.
std::vector<NamedChoice> parse_named_choices(const std::vector<std::string>& texts);

}  // namespace jitgemm::cli
