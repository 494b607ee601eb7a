#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/options.hpp"

namespace jitgemm::cli {

struct SoakOptions {
  DeviceOptions device;
  double seconds = 0, minutes = 0;
  int threads = 8, check_every = 1000, patterns = 200;
  std::int64_t max_size = 0;
  std::vector<std::string> sharing;
  std::optional<std::uint64_t> seed;
  bool json = false;
};

}  // namespace jitgemm::cli
