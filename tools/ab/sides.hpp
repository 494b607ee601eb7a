#pragma once

#include <cuda.h>

#include <filesystem>
#include <memory>
#include <stdexcept>
#include <string>

#include "device.hpp"
#include "library.hpp"

namespace ab {

/// One build of the library with a Context and a cache of its own.
class Side {
 public:
  Side(const AbLibrary* library, const char* device, const std::filesystem::path& cache)
      : library_(*library), context_(library_.open(device, cache.c_str())) {
    require(context_);
  }
  ~Side() { library_.close(context_); }
  Side(const Side&) = delete;
  Side& operator=(const Side&) = delete;

  const char* version() const { return library_.version(); }
  std::string choose(const AbProblem& problem) const {
    char config[512];
    require(library_.choose(context_, &problem, config, sizeof config));
    return config;
  }
  void* prepare(const AbProblem& problem, const std::string& config) const {
    void* const call = library_.prepare(context_, &problem, config.c_str());
    require(call);
    return call;
  }
  std::size_t workspace_size(void* call) const { return library_.workspace_size(call); }
  void gemm(void* call, const AbOperands& operands, CUstream stream) const {
    if (!library_.gemm(call, &operands, stream)) throw std::runtime_error(library_.error());
  }

 private:
  template <typename Result>
  void require(const Result& result) const {
    if (!result) throw std::runtime_error(library_.error());
  }

  const AbLibrary& library_;
  void* context_;
};

/// Both builds on one device.
struct Sides {
  Sides(bool emulator, const std::filesystem::path& directory)
      : device(emulator ? Device::host() : Device::cuda()),
        before(jitgemm_ab_old(), device->kind(), directory / "old"),
        after(jitgemm_ab_new(), device->kind(), directory / "new") {}

  std::unique_ptr<Device> device;
  Side before, after;
};

}  // namespace ab
