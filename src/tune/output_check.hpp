#pragma once

#include <string>
#include <utility>
#include <vector>

#include "core/kernel_interface.hpp"
#include "core/problem.hpp"
#include "jit/kernel_store.hpp"
#include "tune/device_memory.hpp"
#include "tune/tolerance.hpp"

namespace jitgemm {

/// Judges the D that candidates compute from the same operands, on the device, by a kernel of its own
/// (templates/check.cuh): a sample of elements is recomputed, and all of D is compared with what the first accepted
/// candidate computed. Recomputing also says which of two that differ is wrong.
class OutputCheck {
 public:
  /// Operands in device memory that outlive this. Throws where the kernel cannot be had or run. Without memory for a
  /// second D, which the log says, the sample alone decides, and whether there are elements that nothing has written.
  OutputCheck(Backend& backend, KernelStore& store, const NormalProblem& problem, const Operands& operands,
              Stream stream);

  /// Fills D with NaN, and what lies between its rows.
  void poison();

  struct Verdict {
    std::string why_wrong;             ///< empty: D is accepted
    bool accepted_were_wrong = false;  ///< so far; this D takes their place
  };
  Verdict judge();

 private:
  struct Sampled {
    device::CheckedElement element;
    ExpectedElement expected;
  };

  void recompute_sample();
  void allow_for(const device::CheckedElement& element);
  void make_chunks();
  std::string sampled_error();
  /// The chunks with the elements that a scan of them objects to.
  void scan();
  /// Judges the first that each chunk has; empty, too, where the accepted ones are wrong.
  std::string error_of_found(bool& accepted_are_wrong);
  void keep();
  device::CheckedElement element_at(std::int64_t position) const;
  device::CheckedElement element_at(std::int64_t row, std::int64_t column) const;  // a row of the whole batch
  ExpectedElement expected(const device::CheckedElement& element) const;
  std::string error_at(const device::CheckedElement& element, const ExpectedElement& expected) const;

  void run(device::CheckTask task, int blocks);
  void run(device::CheckTask task, std::vector<device::CheckedElement>& elements, int blocks);

  Backend& backend_;
  NormalProblem problem_;
  Operands operands_;
  Stream stream_;
  const Kernel* kernel_;
  device::CheckArguments arguments_;
  std::vector<Sampled> sample_;
  std::vector<std::pair<std::int64_t, std::int64_t>> bounds_;  // of the chunks
  std::vector<device::CheckedChunk> chunks_;
  DeviceMemory element_memory_, chunk_memory_, accepted_memory_;
  bool has_accepted_ = false;
  double products_ = 0;  // the largest sum of |scale_d alpha a b| of what was recomputed
};

}  // namespace jitgemm
