#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "jitgemm/constraints.hpp"
#include "jitgemm/problem.hpp"

namespace jitgemm {

enum class Device : std::uint8_t {
  cuda,          ///< a GPU: ContextOptions::cuda_device
  emulator,      ///< this CPU: right results, slowly; for tests and for a first look without a GPU
  compile_only,  ///< no device: plan(), source() and warm() for ContextOptions::architecture
};

enum class Tuning : std::uint8_t {
  off,     ///< the cost model's choice
  cached,  ///< the tuning database's choice, exact or nearest, else the cost model's
  on,      ///< as cached for an exact hit, else measure on first use; never during stream capture
};

struct ContextOptions {
  Device device = Device::cuda;
  /// Of Device::cuda: its number, as cuda_devices() lists them; work is done in its primary context, which is what the
  /// CUDA runtime and all that is built on it use. -1: the context that is current on the thread that makes the
  /// Context, else the first device's primary one.
  int cuda_device = -1;
  std::string architecture = {};       ///< of compile_only, and of the emulator if set: "sm_80", "sm_90a", ...
  std::optional<Tuning> tuning = {};   ///< default: JITGEMM_TUNING=off|cached|on, else on; on the emulator cached
  double tuning_budget_seconds = 1.0;  ///< measuring time for one problem; 0 or more
  double tuning_total_budget_seconds = 120.0;  ///< and for the life of the Context; spent: as Tuning::cached
  /// Called between measurements, in a gemm() that tunes and in tune() (after its own callback), with the problem in
  /// full and the candidates compiled and checked so far, of how many. One measurement runs at a time: a call that
  /// waits for another thread's calls it every 50 ms with none done, so that threads may call it at the same time; it
  /// must not itself wait for another thread's call that may measure. What it throws ends the measurement or the wait
  /// and comes out of the call, after which the Context is as it was before. What it calls of this Context measures
  /// nothing, and tune() is Error{invalid_option} there.
  std::function<void(const Problem&, int done, int total)> progress = {};
  Constraints constraints = {};
  /// Bytes that the workspaces of streams keep at most; the least recently used goes first, which waits for the device.
  /// A single call that needs more gets it, and it stays until another stream's call needs some, or trim(). Workspaces
  /// of captured graphs are not counted: they live as long as their graphs.
  std::size_t workspace_bound_bytes = std::size_t(1) << 30;
  bool bucket_m = false;  ///< tune for M rounded up to a power of two, so that ever new M do not tune for ever
  /// On sm_90 and newer: let a kernel start while the one before it on the stream still runs, up to where it touches
  /// memory (programmatic dependent launch). Saves 0.2 to 0.4 us a launch; one behind which the next one's blocks
  /// would sit unevenly lets it start later. It relies on this, beside kernels of others:
  ///   - A kernel waits for the one before it, which has waited for the one before that. Others' kernels that have the
  ///     launch attribute and never wait (griddepcontrol.wait, cudaGridDependencySynchronize) break this chain, between
  ///     two calls or between what writes an operand and the call.
  ///   - Others' kernels that have the attribute may start as soon as this one has. What they do before they wait must
  ///     not touch the call's operands or its workspace, nor memory that an allocator has taken from them meanwhile.
  ///   - Loads of C, bias and scales go through the L1, which the hardware invalidates at the wait.
  ///
  /// Captured calls have programmatic edges then, and a cuGraphGetEdges without room for what edges carry may answer
  /// CUDA_ERROR_LOSSY_QUERY. With false, kernels neither start early nor let others: they are other kernels, so warm a
  /// cache with the option that it is for.
  bool dependent_launch = true;
  /// Serve a problem's first calls while its kernel compiles on another thread: with the best kernel that is at hand,
  /// else with `fallback`; with neither, the call waits. Never in stream capture. Whatever serves may round
  /// differently; if choices are batch-invariant, the fallback alone may. Nothing is measured then: Tuning::on is as
  /// cached. The call after a compile that failed throws what the compiler said, as do later ones: nothing serves that
  /// problem then. Where no thread can be started, the call waits. The Context's end waits for a compile that has
  /// begun.
  bool compile_in_background = false;
  /// A bounded set of kernels, as `jitgemm warm` makes one: where the chosen kernel is not at hand (loaded, or whole in
  /// the cache or the system's), the best that is serves instead, with no compile, unless the cost model expects it to
  /// take longer than this factor of the chosen one's time. 1 or more, HUGE_VAL: whenever one can compute the problem;
  /// 0: off. A kernel serves with any grid and splits. Tuning::on measures kernels at hand alone, where what checks
  /// them is at hand too, and keeps what it finds apart from other tuning results, until tune() measures anew. Before
  /// anything is compiled, the cache is asked for what others have added.
  double at_hand_within = 0;
  /// Computes a call by other means, cuBLAS say, on the stream; false when it cannot. Called by the thread that calls
  /// gemm(), with what it was given. Needs compile_in_background.
  std::function<bool(const Problem&, const Operands&, Stream)> fallback = {};
  /// Where kernels and the tuning database live; default: JITGEMM_CACHE_DIR, $XDG_CACHE_HOME/jitgemm, ~/.cache/jitgemm.
  std::optional<std::string> cache_dir = {};
  int emulator_sm_count = 4;        ///< 1 or more
  std::uint64_t emulator_seed = 0;  ///< of the emulator's adversarial order; 0: in order and fast
};

}  // namespace jitgemm
