// Workers are processes: a CUDA error that sticks to a context, or a crash of the driver, ends one of them and not the
// run, and CUDA_VISIBLE_DEVICES spares all else from knowing about several devices. What they share is on disk and made
// for several processes: the kernel cache and the tuning database, which a worker writes itself before it answers.
#include "tuning/workers.hpp"

#include <fmt/core.h>
#include <poll.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "common/child_process.hpp"
#include "common/gpus.hpp"
#include "common/options.hpp"
#include "common/text.hpp"
#include "util/errno_text.hpp"

namespace jitgemm::cli {
namespace {

constexpr const char* worker_command = "tune-worker";
constexpr int most_emulated = 64;
constexpr int most_attempts = 2;  // at one task that ends its worker: it may be the task's fault

std::vector<std::string> words_of_worker(const ContextOptions& options) {
  std::vector<std::string> words{"jitgemm", worker_command, parent_option, std::to_string(::getpid())};
  for (const std::string& word : words_of(options)) words.push_back(word);
  return words;
}

std::vector<std::string> environment_of(const WorkerDevice& device) {
  if (device.visible_to_cuda.empty()) return {};
  return {"CUDA_VISIBLE_DEVICES=" + device.visible_to_cuda};
}

/// A process that tunes one problem after another.
class Worker {
 public:
  Worker(const WorkerDevice& device, const ContextOptions& options)
      : process({.words = words_of_worker(options), .environment = environment_of(device)}), name_(device.name) {}

  const std::string& name() const { return name_; }
  const std::optional<TuneTask>& task() const { return task_; }

  void begin(TuneTask task) {
    process.send(to_string(task.problem));
    task_ = std::move(task);
    began_ = Clock::now();
  }
  TuneTask end_task() { return *std::exchange(task_, std::nullopt); }
  double seconds_at_task() const { return std::chrono::duration<double>(Clock::now() - began_).count(); }

  ChildProcess process;

 private:
  using Clock = std::chrono::steady_clock;
  std::string name_;
  std::optional<TuneTask> task_;
  Clock::time_point began_;
};

class WorkerPool {
 public:
  WorkerPool(const std::vector<WorkerDevice>& devices, const ContextOptions& options, std::vector<TuneTask> tasks,
             double most_seconds, const TuneEvents& events)
      : most_seconds_(most_seconds), events_(events) {
    std::stable_sort(tasks.begin(), tasks.end(),
                     [](const TuneTask& x, const TuneTask& y) { return x.expected_seconds > y.expected_seconds; });
    for (TuneTask& task : tasks) waiting_.push_back({std::move(task)});
    for (const WorkerDevice& device : devices) workers_.push_back(std::make_unique<Worker>(device, options));
  }

  void run() {
    hand_out();
    while (std::any_of(workers_.begin(), workers_.end(), [](const auto& worker) { return worker->task(); })) {
      std::vector<pollfd> polled;
      for (const auto& worker : workers_)
        polled.push_back({worker->process.alive() ? worker->process.descriptor() : -1, POLLIN, 0});
      if (::poll(polled.data(), polled.size(), 200) < 0 && errno != EINTR) {
        throw Error(ErrorCode::io, fmt::format("cannot wait for the workers: {}; try again", errno_text(errno)));
      }
      for (std::size_t i = 0; i < workers_.size(); ++i) {
        if (polled[i].fd >= 0 && polled[i].revents) hear(*workers_[i]);
      }
      for (const auto& worker : workers_) {
        if (!worker->process.alive() || !worker->task() || worker->seconds_at_task() < most_seconds_) continue;
        worker->process.end(fmt::format("it took longer than {} s", most_seconds_));
        bury(*worker);
      }
      hand_out();
      events_.tick();
    }
    for (const auto& worker : workers_) {
      if (worker->process.alive()) worker->process.finish();
    }
  }

 private:
  void hand_out() {
    for (const auto& worker : workers_) {
      if (waiting_.empty()) return;
      if (!worker->process.alive() || worker->task()) continue;
      worker->begin(std::move(waiting_.front()));
      waiting_.pop_front();
    }
  }

  void hear(Worker& worker) {
    const std::vector<std::string> lines = worker.process.receive();
    if (!worker.process.alive()) return bury(worker);
    for (const std::string& line : lines)
      if (worker.task()) hear(worker, line);
  }

  void hear(Worker& worker, const std::string& line) {
    const auto answer = nlohmann::ordered_json::parse(line, nullptr, false);
    const TuneTask task = worker.end_task();
    if (answer.is_object() && answer.contains("report"))
      events_.tuned(task, answer["report"]);
    else
      events_.failed(task, answer.is_object() ? answer.value("error", line) : line);
  }

  void bury(Worker& worker) {
    std::string line = fmt::format("the worker of {} {}", worker.name(), worker.process.how_it_ended());
    if (worker.task()) {
      TuneTask task = worker.end_task();
      const bool again = ++died_with_[to_string(task.problem)] < most_attempts;
      line += " while it tuned " + to_string(task.problem);
      if (again) {
        waiting_.push_front(std::move(task));
        events_.worker_died(line);
      } else {
        events_.worker_died(line);
        events_.failed(task, "it has ended two workers; JITGEMM_LOG=info may say why");
      }
    } else {
      events_.worker_died(line);
    }
  }

  double most_seconds_;
  const TuneEvents& events_;
  std::deque<TuneTask> waiting_;
  std::vector<std::unique_ptr<Worker>> workers_;
  std::map<std::string, int> died_with_;  // by problem
};

/// One problem a line from standard input, one line of JSON for each to standard output.
void work(const ContextOptions& options, pid_t parent) {
  ParentProcess pool(parent);
  Context context(options);
  while (const std::optional<std::string> line = pool.read_line()) {
    nlohmann::ordered_json answer;
    try {
      answer["report"] = to_json(context.tune(parse_problem(*line)));
    } catch (const Error& error) {
      answer["error"] = error.what();
    }
    pool.write_line(answer.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
  }
}

}  // namespace

std::vector<WorkerDevice> parse_gpus(const std::string& text, const ContextOptions& options) {
  const bool emulated = options.device == Device::emulator;
  const auto gpus = emulated ? std::vector<DeviceDescription>() : cuda_devices();
  if (!emulated && gpus.empty()) Context{options};  // throws, and says why there is none
  const int most = emulated ? most_emulated : int(gpus.size());
  // One emulator is all that there is, though several may run.
  const std::string asked = emulated && text == "all" ? "1" : text;
  const std::vector<int> numbers = parse_device_numbers(asked, most, emulated ? "emulated device" : "GPU");
  if (!emulated) check_same_kind(numbers, gpus, "tune each kind on its own, with CUDA_VISIBLE_DEVICES set to its GPUs");
  std::vector<WorkerDevice> devices;
  for (const int number : numbers) {
    if (emulated)
      devices.push_back({fmt::format("emulated device {}", number), "", true});
    else
      devices.push_back({fmt::format("GPU {}", number), visible_name(number), number == 0});
  }
  return devices;
}

void tune_in_workers(const std::vector<WorkerDevice>& devices, const ContextOptions& options,
                     std::vector<TuneTask> tasks, double most_seconds, const TuneEvents& events) {
  WorkerPool(devices, options, std::move(tasks), most_seconds, events).run();
}

void add_tune_worker(CLI::App& app) {
  auto options = std::make_shared<DeviceOptions>();
  auto parent = std::make_shared<pid_t>(0);
  CLI::App* command = app.add_subcommand(worker_command, "What `tune --gpus` runs on each GPU");
  command->group("");  // not in the list
  options->add_to(*command);
  options->add_budget_to(*command);
  command->add_option(parent_option, *parent, "The process that this one ends with")->required();
  command->callback([options, parent] { work(options->context_options(), *parent); });
}

}  // namespace jitgemm::cli
