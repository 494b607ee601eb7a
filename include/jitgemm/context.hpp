#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "jitgemm/error.hpp"
#include "jitgemm/export.hpp"
#include "jitgemm/kernel_config.hpp"
#include "jitgemm/problem.hpp"

namespace jitgemm {

enum class Device : std::uint8_t {
  cuda,          ///< the calling thread's current CUDA device
  emulator,      ///< this CPU: right results, slowly; for tests and for a first look without a GPU
  compile_only,  ///< no device: plan(), source() and warm() for ContextOptions::architecture
};

enum class Tuning : std::uint8_t {
  off,     ///< the cost model's choice
  cached,  ///< the tuning database's choice, exact or nearest, else the cost model's
  on,      ///< as cached for an exact hit, else measure on first use; never during stream capture
};

/// What every choice of a Context keeps to, besides being legal. Part of the key of tuning results: what is tuned with
/// other constraints counts for none. Does not concern what the caller pins or computes by other means
/// (ContextOptions::fallback).
struct Constraints {
  /// Any one configuration gives the same bits on every run; choices differ in theirs. With this they do not: the
  /// products of an element of D are added one after the other from k = 0 on, by one kind of instruction, whatever the
  /// tile. On devices of one compute capability the bits then depend neither on what was tuned nor on the number of
  /// SMs; but where operands must be packed they do depend on whether sms, workspace_bytes and a workspace let them be
  /// packed. Costs most where few tiles have a deep k.
  bool deterministic = false;
  std::size_t workspace_bytes = SIZE_MAX;  ///< most that workspace_size() comes to: partial tiles and packed operands
  /// Most SMs that the blocks of one call occupy, so most blocks of its grid; 0: all. Then no operands are packed. With
  /// ContextOptions::dependent_launch, blocks of the next call on the stream may begin while these still run.
  int sms = 0;

  bool operator==(const Constraints&) const = default;
};

struct ContextOptions {
  Device device = Device::cuda;
  std::string architecture = {};       ///< of compile_only, and of the emulator if set: "sm_80", "sm_90a", ...
  std::optional<Tuning> tuning = {};   ///< default: JITGEMM_TUNING=off|cached|on, else on; on the emulator cached
  double tuning_budget_seconds = 1.0;  ///< measuring time for one problem
  double tuning_total_budget_seconds = 120.0;  ///< and for the life of the Context; spent: as Tuning::cached
  Constraints constraints = {};
  /// Bytes that the workspaces of streams keep at most; the least recently used goes first, which waits for the device.
  /// A single call that needs more gets it, and it stays until another stream's call needs some, or trim(). Workspaces
  /// of captured graphs are not counted: they live as long as their graphs.
  std::size_t workspace_bound_bytes = std::size_t(1) << 30;
  bool bucket_m = false;  ///< tune for M rounded up to a power of two, so that ever new M do not tune for ever
  /// On sm_90 and newer: let a kernel start while the one before it on the stream still runs, up to where it touches
  /// memory (programmatic dependent launch). Saves 0.2 to 0.4 us a launch. It relies on this, beside kernels of others:
  ///   - A kernel waits for the one before it, which has waited for the one before that. Others' kernels that have the
  ///   launch
  ///     attribute and never wait (griddepcontrol.wait, cudaGridDependencySynchronize) break this chain, between two
  ///     calls or between what writes an operand and the call.
  ///   - Others' kernels that have the attribute may start as soon as this one has. What they do before they wait must
  ///   not
  ///     touch the call's operands or its workspace, nor memory that an allocator has taken from them meanwhile.
  ///   - Loads of C, bias and scales go through the L1, which the hardware invalidates at the wait.
  /// Captured calls have programmatic edges then, and a cuGraphGetEdges without room for what edges carry may answer
  /// CUDA_ERROR_LOSSY_QUERY. With false, kernels neither start early nor let others: they are other kernels, so warm a
  /// cache with the option that it is for.
  bool dependent_launch = true;
  /// Serve a problem's first calls while its kernel compiles on another thread: with the best kernel that is at hand,
  /// else with `fallback`; with neither, the call waits. Never in stream capture. Whatever serves may round
  /// differently; if choices are deterministic, the fallback alone may. Nothing is measured then: Tuning::on is as
  /// cached. The Context's end waits for a compile that has begun.
  bool compile_in_background = false;
  /// Computes a call by other means, cuBLAS say, on the stream; false when it cannot. Called by the thread that calls
  /// gemm(), with what it was given.
  std::function<bool(const Problem&, const Operands&, Stream)> fallback = {};
  /// Where kernels and the tuning database live; default: JITGEMM_CACHE_DIR, $XDG_CACHE_HOME/jitgemm, ~/.cache/jitgemm.
  std::optional<std::string> cache_dir = {};
  int emulator_sm_count = 4;
  std::uint64_t emulator_seed = 0;  ///< of the emulator's adversarial order; 0: in order and fast
};

/// How good the answer is that chose a configuration, best first.
enum class PlanSource : std::uint8_t { pinned, exact, measured, nearest, model, fallback };
JITGEMM_EXPORT std::string_view to_string(PlanSource source);

/// Where the cost model expects the time to go, in microseconds. `us` is less than the sum: memory and power run beside
/// the main loop and the epilogue, mostly hidden behind whichever takes longest.
struct PredictedTime {
  double us = 0;
  double launch_us = 0, packing_us = 0, main_loop_us = 0, epilogue_us = 0;
  double fixup_us = 0;   ///< of tiles that several programs share
  double memory_us = 0;  ///< what has to be read and written, at the device's rate
  double power_us = 0;   ///< all products, at the rate that the device's power sustains
};

/// A configuration and its measured time.
struct MeasuredConfig {
  KernelConfig config;
  double median_us = 0;
};

/// A choice, and why.
struct JITGEMM_EXPORT Plan {
  Problem problem;  ///< normalised: leading dimensions filled in
  KernelConfig config;
  PlanSource source = PlanSource::model;
  std::string why;
  PredictedTime predicted = {};  ///< by the cost model
  std::string rates =
      {};  ///< what the cost model knows of the device: an H200's, derived, or when they were calibrated
  double measured_us = 0;  ///< median; 0 when not measured
  double spread = 0;       ///< of the measurement: (p90 - p10) / median
  /// Of PlanSource::nearest: predicted.us over that of the cost model's own best choice; 0 for all others.
  double expected_regret = 0;
  std::vector<MeasuredConfig> runners_up = {};  ///< of the measurement, best first
  Constraints constraints = {};                 ///< that it was chosen under
  // The schedule's facts.
  std::string device;
  int tiles_m = 0, tiles_n = 0;
  int stream_k_tiles = 0, data_parallel_tiles = 0;
  int programs = 0;                 ///< grid size of the launch
  int k_steps_per_tile = 0;         ///< iterations per tile
  std::int64_t stream_k_steps = 0;  ///< iterations in total that are dealt out k-step by k-step
  std::size_t workspace_bytes = 0, smem_bytes = 0;
  std::size_t packed_bytes = 0;  ///< of the workspace: the copies of packed operands
  int threads = 0;
  // Read back from the compiled kernel; -1 until it is compiled.
  int registers = -1, spill_bytes = -1;

  std::string explain() const;  ///< all of the above for people, several lines
};

struct TunedCandidate {
  KernelConfig config;
  double predicted_us = 0, measured_us = 0, spread = 0;
  std::string skipped;  ///< why it was not measured or not accepted; empty if it was
};

struct TuneReport {
  Plan plan;                               ///< the winner
  std::vector<TunedCandidate> candidates;  ///< in the order of the cost model
  double seconds = 0;
};

struct DeviceDescription {
  std::string name;
  std::string architecture;  ///< "sm_90a"
  int sm_count = 0;
  std::size_t smem_bytes_per_block = 0, l2_bytes = 0, memory_bytes = 0;
  bool emulated = false;
};

/// Counts since the Context was made.
struct Counters {
  std::uint64_t launches = 0, compiles = 0, disk_hits = 0, memory_hits = 0, rebuilt = 0, tuned = 0;
  std::uint64_t stopgaps = 0;  ///< calls served while their kernel was compiled in the background
  std::uint64_t unkept = 0;    ///< kernels compiled that the cache on disk did not take
  // Device memory that is held now.
  std::uint64_t workspace_bytes = 0;        ///< by the workspaces of streams
  std::uint64_t graph_workspace_bytes = 0;  ///< by those of captured graphs
};

/// One device's kernels, tuning results and workspaces. Thread-safe: one Context serves all threads that use the
/// device. Nothing here prints, aborts, or changes the current CUDA context. Every function may throw Error.
class JITGEMM_EXPORT Context {
 public:
  Context();  ///< Error{no_device} without a driver or a current or first device
  explicit Context(const ContextOptions& options);
  /// Waits for nothing: the caller synchronises its streams first. Graphs that were captured with this Context may not
  /// be launched any more. Safe after the driver has shut down.
  ~Context();
  Context(Context&&) noexcept;
  Context& operator=(Context&&) noexcept;

  /// Enqueues D = activation(alpha * A * B + beta * C + bias) on `stream` and returns. The first call with a new
  /// problem may choose (Tuning), compile or load a kernel. Threads may share a stream: what a call launches stays
  /// together.
  ///
  /// Legal in stream capture. A graph, its clones and its instances share the memory that its calls need beyond their
  /// operands, so their launches must not overlap; it is freed by the first call outside of a capture, or trim(), after
  /// all of them are gone.
  void gemm(const Problem& problem, const Operands& operands, Stream stream = nullptr);
  /// The same with this configuration, which need not keep to the Context's constraints.
  void gemm(const Problem& problem, const Operands& operands, Stream stream, const KernelConfig& config);

  /// What gemm() would run now. Measures and compiles nothing.
  Plan plan(const Problem& problem);
  Plan plan(const Problem& problem, const KernelConfig& config);
  /// The plan of gemm() once its kernel is compiled, so that registers and spills are known.
  Plan compile(const Problem& problem);
  Plan compile(const Problem& problem, const KernelConfig& config);

  /// The generated kernel source that gemm() would compile.
  std::string source(const Problem& problem);
  std::string source(const Problem& problem, const KernelConfig& config);
  /// The source of the kernel that packs operands before it; empty if the configuration packs none.
  std::string packing_source(const Problem& problem, const KernelConfig& config);
  /// The compiled kernel: a cubin, or a shared object on the emulator.
  std::string binary(const Problem& problem);
  std::string binary(const Problem& problem, const KernelConfig& config);
  std::string packing_binary(const Problem& problem, const KernelConfig& config);

  /// Compiles into the on-disk cache what gemm() would run. Needs no GPU with Device::compile_only.
  void warm(const Problem& problem);

  /// Measures now, whatever the Tuning mode and stored results, and stores the winner. `progress` gets (done, total),
  /// on the calling thread; what it calls of this Context measures nothing.
  TuneReport tune(const Problem& problem, const std::function<void(int, int)>& progress = {});

  /// Every legal configuration that keeps to the constraints, best predicted first.
  std::vector<Plan> candidates(const Problem& problem);

  /// Bytes of Operands::workspace with which gemm() runs what it would run without one, if the pointers are aligned as
  /// the problem says. Counts as the problem's first use: with Tuning::on it may measure. Whatever the size of the
  /// workspace and the alignment of the pointers, gemm() uses no more than it is given: see Operands::workspace.
  std::size_t workspace_size(const Problem& problem);
  std::size_t workspace_size(const Problem& problem, const KernelConfig& config);

  /// Frees all workspaces that neither a call in progress nor a graph uses, and waits for the device to do so. Also
  /// puts right what a kernel that was killed, in a debugger say, may have left in them.
  void trim();

  DeviceDescription device() const;
  Counters counters() const;

 private:
  struct Impl;
  Impl& impl() const;
  std::unique_ptr<Impl> impl_;
};

/// The visible CUDA devices; empty without a driver. Throws Error when the driver does not answer.
JITGEMM_EXPORT std::vector<DeviceDescription> cuda_devices();

}  // namespace jitgemm
