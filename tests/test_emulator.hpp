#pragma once

#include <memory>
#include <string>
#include <vector>

#include "backend/backend.hpp"
#include "jit/templates.hpp"
#include "jitgemm/error.hpp"
#include "kernels/launch_shape.hpp"

namespace jitgemm::test {

/// A kernel text as the generator would put it together; `body` defines run(const Arguments&) in namespace
/// jitgemm::device.
inline std::string emulator_text(const std::string& body, bool dependent_launch = false) {
  std::string text = "namespace jitgemm::device {\nconstexpr bool DEPENDENT_LAUNCH = " +
                     std::string(dependent_launch ? "true" : "false") + ";\n}\n";
  for (const char* file : {"types.cuh", "schedule.cuh", "arguments.cuh"}) text += without_includes(template_text(file));
  return text + "#ifdef JITGEMM_EMULATOR\n#include JITGEMM_EMULATOR\n#endif\n" +
         "namespace jitgemm::device {\nusing namespace ptx;\n" + body +
         "}\nextern \"C\" __global__ void __launch_bounds__(1024, 1) kernel(const __grid_constant__ "
         "jitgemm::device::Arguments "
         "arguments) { jitgemm::device::run(arguments); }\n";
}

inline LaunchShape emulator_shape(int grid, int threads, std::size_t smem, int cluster = 1) {
  LaunchShape shape;
  shape.grid = grid;
  shape.threads = threads;
  shape.smem_bytes = smem;
  shape.cluster = cluster;
  return shape;
}

/// A compiled kernel text; `smem` bytes at most.
class EmulatorKernel {
 public:
  explicit EmulatorKernel(const std::string& body, bool dependent_launch = false)
      : backend_(make_emulator_backend({})) {
    const std::string text = emulator_text(body, dependent_launch);
    kernel_ = backend_->load(backend_->compile({text, "kernel", "sm_90a", "test"}), 200 << 10);
  }

  struct Launch {
    int grid = 1, threads = 32;
    std::size_t smem = 0;
    int cluster = 1;
    Stream stream = nullptr;
  };

  /// Returns the fault's log, empty if there is none.
  std::string run(const EmulatorOptions& options, const Launch& launch, const device::Arguments& arguments) const {
    try {
      make_emulator_backend(options)->launch(*kernel_,
                                             emulator_shape(launch.grid, launch.threads, launch.smem, launch.cluster),
                                             bytes_of(arguments), launch.stream);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::emulator_fault) throw;
      return error.log();
    }
    return "";
  }

 private:
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<LoadedKernel> kernel_;
};

/// Seeds 0 to `seeds`, each with copies and wgmma acting at issue, at the wait and in between.
inline std::vector<EmulatorOptions> adversaries(int seeds) {
  std::vector<EmulatorOptions> all;
  for (int seed = 0; seed <= seeds; ++seed)
    for (const auto asynchrony :
         {EmulatorAsynchrony::at_issue, EmulatorAsynchrony::at_wait, EmulatorAsynchrony::random}) {
      EmulatorOptions options;
      options.seed = std::uint64_t(seed);
      options.asynchrony = asynchrony;
      all.push_back(options);
    }
  return all;
}

}  // namespace jitgemm::test
