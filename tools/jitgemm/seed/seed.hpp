#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common/options.hpp"
#include "common/shapes.hpp"

namespace jitgemm::cli {

/// What the seed commands have in common. They repeat what the documents do that this library began with: the matrix
/// multiplication tutorial of Triton (squares, checks) and a notebook on Stream-K (singles, sweep).
struct SeedOptions {
  DeviceOptions device;
  std::string json, csv, triton_manifest;
  bool peers = true, frozen = false, resume = false, tuned = false;
  double tune_seconds = 0.4;
  std::vector<std::string> types;
  std::string activation = "none";
  std::vector<std::int64_t> sizes;  ///< empty: the documents', or small ones on the emulator
  std::string shapes = "tests/corpora/seed_sweep_1000.txt", tile;
  int first = 0;       ///< shapes; 0: all
  double seconds = 0;  ///< 0: no limit
};

void seed_squares(const SeedOptions& options);
void seed_singles(const SeedOptions& options);
void seed_sweep(const SeedOptions& options);
void seed_checks(const SeedOptions& options);

}  // namespace jitgemm::cli
