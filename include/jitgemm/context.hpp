#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "jitgemm/device.hpp"
#include "jitgemm/export.hpp"
#include "jitgemm/kernel_config.hpp"
#include "jitgemm/options.hpp"
#include "jitgemm/plan.hpp"
#include "jitgemm/problem.hpp"

namespace jitgemm {

/// Counts since the Context was made.
struct Counters {
  std::uint64_t launches = 0, compiles = 0, disk_hits = 0, memory_hits = 0, rebuilt = 0, tuned = 0;
  std::uint64_t stopgaps = 0;  ///< calls served while their kernel was compiled in the background
  std::uint64_t unkept = 0;    ///< kernels compiled that the cache on disk did not take
  // Device memory that is held now.
  std::uint64_t workspace_bytes = 0;        ///< by the workspaces of streams
  std::uint64_t graph_workspace_bytes = 0;  ///< by those of captured graphs
};

/// The source, or the binary, of one kernel of a call.
struct KernelText {
  std::string name;   ///< what it does: "gemm", or "packing" of operands that the GEMM kernel cannot read as they lie
  std::string entry;  ///< the name of its function
  std::string text;
};

/// One device's kernels, tuning results and workspaces. Thread-safe: one Context serves all threads that use the
/// device. Nothing here aborts, or changes the current CUDA context. Nothing prints but the log: warnings on stderr, or
/// what JITGEMM_LOG=trace|debug|info|warn|error|off asks for. Every function may throw Error, and none std::bad_alloc:
/// where the host has no memory it is Error{out_of_memory}, after which the Context is as good as before.
///
/// A child that fork() makes while other threads use the library must not use it before exec: it has their locks, and
/// none of the threads that would open them.
class JITGEMM_EXPORT Context {
 public:
  Context();  ///< Error{no_device} without a driver or a current or first device
  /// Error{invalid_option} for options that contradict each other or their own line of ContextOptions.
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

  /// The generated source of the GEMM kernel that gemm() would run.
  std::string source(const Problem& problem);
  std::string source(const Problem& problem, const KernelConfig& config);
  /// The same compiled: a cubin, or a shared object on the emulator.
  std::string binary(const Problem& problem);
  std::string binary(const Problem& problem, const KernelConfig& config);
  /// Of all kernels that gemm() would run, in the order of their launches. The GEMM kernel is the last.
  std::vector<KernelText> sources(const Problem& problem);
  std::vector<KernelText> sources(const Problem& problem, const KernelConfig& config);
  std::vector<KernelText> binaries(const Problem& problem);
  std::vector<KernelText> binaries(const Problem& problem, const KernelConfig& config);

  /// Compiles into the on-disk cache what gemm() would run. Needs no GPU with Device::compile_only.
  void warm(const Problem& problem);

  /// Measures now, whatever the Tuning mode and stored results, and stores the winner. Waits for all candidates'
  /// kernels to be compiled, where a gemm() that tunes, and the emulator, whose times mean nothing, go on without late
  /// ones. `progress` is as ContextOptions::progress, for this call.
  TuneReport tune(const Problem& problem, const std::function<void(int, int)>& progress = {});

  /// The configurations that are worth a measurement, of those that are legal and keep to the constraints, best
  /// predicted first. Others may be pinned: other grids and splits, say.
  std::vector<Plan> candidates(const Problem& problem);

  /// Bytes of Operands::workspace with which gemm() runs what it would run without one, if the pointers are aligned as
  /// the problem says. Counts as the problem's first use: with Tuning::on it may measure. Whatever the size of the
  /// workspace and the alignment of the pointers, gemm() uses no more than it is given: see Operands::workspace.
  std::size_t workspace_size(const Problem& problem);
  std::size_t workspace_size(const Problem& problem, const KernelConfig& config);

  /// Frees all workspaces that neither a call in progress nor a graph uses, and waits for the device to do so. Also
  /// puts right what a kernel that was killed, in a debugger say, may have left in them.
  void trim();

  /// Waits for the stream, then throws Error{invalid_operand} if a call of this Context that has run since the last
  /// check was given Operands::group_rows that go backwards or out of range, or pointers to B that are none; it says in
  /// how many calls, or for how many tiles of D, and names a group. Where m, n or batch is 0 nothing runs, and nothing
  /// looks at them. Not in stream capture.
  void check(Stream stream = nullptr);

  DeviceDescription device() const;
  Counters counters() const;

 private:
  friend struct ContextInternals;  // for what measures and checks this library
  struct Impl;
  Impl& impl() const;
  std::unique_ptr<Impl> impl_;
};

}  // namespace jitgemm
