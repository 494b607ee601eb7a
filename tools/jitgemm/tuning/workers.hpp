#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tuning/plan.hpp"

namespace CLI {
class App;
}

namespace jitgemm::cli {

/// A device that a worker process tunes on.
struct WorkerDevice {
  std::string name;                ///< "GPU 2"
  std::string visible_to_cuda;     ///< CUDA_VISIBLE_DEVICES of the process; empty: as it is here
  bool first_visible_here = true;  ///< then this process can use it, too
};
/// From "all", a count or a list such as "0,2". Throws Error for what makes no sense here, and for GPUs of several
/// kinds.
std::vector<WorkerDevice> parse_gpus(const std::string& text, const ContextOptions& options);

struct TuneEvents {
  std::function<void(const TuneTask&, const nlohmann::ordered_json& report)> tuned;
  std::function<void(const TuneTask&, const std::string& why)> failed;
  std::function<void(const std::string& line)> worker_died;
  std::function<void()> tick;  ///< several times a second
};
/// Tunes the tasks, the longest first, in one worker process a device. Each gets the next task when it is done with
/// one, so that they end together. A worker that takes longer than `most_seconds` for a task is ended; what a worker
/// was at when it died goes to another one, once. On return no worker is left, and tasks without an event are those
/// that nobody was left for.
void tune_in_workers(const std::vector<WorkerDevice>& devices, const ContextOptions& options,
                     std::vector<TuneTask> tasks, double most_seconds, const TuneEvents& events);

/// Adds the hidden subcommand that a worker process runs.
void add_tune_worker(CLI::App& app);

}  // namespace jitgemm::cli
