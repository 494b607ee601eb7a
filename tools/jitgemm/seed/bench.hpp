#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "bench/arms.hpp"
#include "measure/inputs.hpp"
#include "measure/memory.hpp"
#include "measure/timing.hpp"
#include "peers/peers.hpp"
#include "peers/triton.hpp"
#include "seed/seed.hpp"

namespace jitgemm::cli {

/// A device with inputs, peers and our own choice, for one problem after another.
class SeedBench {
 public:
  explicit SeedBench(const SeedOptions& options);

  bool emulated() const { return emulated_; }
  Backend& backend() { return backend_; }
  int sm_count() const { return tuner_.device().sm_count; }
  /// Device, library and peers, for a JSON file; and the same in a line on stdout.
  nlohmann::ordered_json description() const;
  void print_description() const;

  /// Makes the inputs of a problem, and forgets the arms of the last.
  void begin(const Problem& problem);
  const Problem& problem() const { return problem_; }
  Operands operands() const { return inputs_->operands(0); }

  // Each says where the result is to be put, which outlives the next begin().
  void add_ours(ArmResult& result, const KernelConfig& config);
  bool add_cublas(ArmResult& result);  ///< false where there is none, or not for this problem
  bool add_triton(ArmResult& result);

  /// Our own choice: the tuned one, on the emulator the cost model's.
  KernelConfig choice();
  Plan compiled(const KernelConfig& config);
  /// One launch on these operands, done on return.
  void run(const KernelConfig& config, const Operands& operands);
  bool run_cublas(const Operands& operands);

  /// Throws Error{internal} if an arm computes something else than the others or than float64.
  void check();
  /// Fills the results in. Nothing on the emulator.
  void time(const TimingOptions& options);

 private:
  Operands with_workspace(Operands operands) const;
  bool fits(const KernelConfig& config);

  ContextOptions context_options_;
  Context tuner_;
  Backend& backend_;
  bool emulated_;
  OwnStream stream_;
  std::optional<Context> runner_;
  DeviceMemory workspace_;
  std::unique_ptr<Peers> peers_;
  std::unique_ptr<TritonPeer> triton_;
  std::optional<InputPools> inputs_;
  DataType input_type_ = f16;
  Problem problem_;
  BenchArms arms_;
};

/// Writes a file at once, or throws Error{io}. Nothing if there is no name.
void write_file(const std::string& file, const std::string& text);

/// The milliseconds of an arm, null if it was not timed.
nlohmann::ordered_json ms_json(double us);

/// The notebook's configuration, or the tile of --tile, with a schedule of the notebook: stream-K over the last wave
/// (and with `two_tiles` one wave more) on `grid` programs; whole tiles if that is 0.
KernelConfig notebook_config(const SeedOptions& options, bool emulated, int grid, bool two_tiles);

}  // namespace jitgemm::cli
