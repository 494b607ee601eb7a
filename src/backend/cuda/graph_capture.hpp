#pragma once

#include <memory>

#include "backend/backend.hpp"
#include "backend/cuda/driver_api.hpp"

namespace jitgemm::cuda {

// Backend's functions of the same names; the context is current.
CapturePoint capture_point(const DriverApi& api, Stream stream);
bool comes_after(const DriverApi& api, const CapturePoint& point, void* node);
void hold_with_graph(const DriverApi& api, const CapturePoint& point, std::shared_ptr<const void> held);

}  // namespace jitgemm::cuda
