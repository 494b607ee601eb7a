#pragma once

#include <filesystem>
#include <memory>
#include <optional>

#include "backend/backend.hpp"
#include "chooser.hpp"
#include "jit/kernel_cache.hpp"
#include "jitgemm/options.hpp"

namespace jitgemm {

// What ContextOptions, and the environment where they leave something open, mean for the parts of a Context. What makes
// no sense is an Error{invalid_option}.

std::unique_ptr<Backend> make_backend(const ContextOptions& options);
/// With the device's calibrated rates, where the cache directory or the system's has them.
RatedDevice rated_device(const ContextOptions& options, const DeviceInfo& device);
/// The cache directory; empty without one.
std::filesystem::path home_of(const ContextOptions& options);
/// Where calibrated rates are kept; nullopt without a cache directory.
std::optional<std::filesystem::path> calibration_file(const ContextOptions& options);
ChooserOptions chooser_options(const ContextOptions& options);
KernelCacheOptions cache_options(const ContextOptions& options);
bool compiles_in_background(const ContextOptions& options);
/// Whether kernels at hand are to serve.
inline bool is_bounded(const ContextOptions& options) { return options.at_hand_within > 0; }

}  // namespace jitgemm
