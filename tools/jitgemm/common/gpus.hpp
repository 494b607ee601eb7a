#pragma once

#include <string>
#include <vector>

#include "jitgemm/jitgemm.hpp"

namespace jitgemm::cli {

/// Of `most` devices, each a `unit` ("GPU"), from "all", a count or a list such as "0,2". Throws Error{invalid_option}
/// for what makes no sense.
std::vector<int> parse_device_numbers(const std::string& text, int most, const std::string& unit);

/// Throws Error{invalid_option} if one of these numbers is not of the first's kind; `advice` says what to do.
void check_same_kind(const std::vector<int>& numbers, const std::vector<DeviceDescription>& gpus,
                     const std::string& advice);

/// What CUDA_VISIBLE_DEVICES calls a GPU that this process sees under this number.
std::string visible_name(int gpu);

}  // namespace jitgemm::cli
