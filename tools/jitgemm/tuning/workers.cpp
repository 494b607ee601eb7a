// Workers are processes: a CUDA error that sticks to a context, or a crash of the driver, ends one of them and not the
// run, and CUDA_VISIBLE_DEVICES spares all else from knowing about several devices. What they share is on disk and made
// for several processes: the kernel cache and the tuning database, which a worker writes itself before it answers.
#include "tuning/workers.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "common/options.hpp"
#include "common/text.hpp"
#include "util/descriptor.hpp"
#include "util/errno_text.hpp"

namespace jitgemm::cli {
namespace {

constexpr const char* worker_command = "tune-worker";
constexpr int most_emulated = 64;
constexpr int most_attempts = 2;  // at one task that ends its worker: it may be the task's fault

[[noreturn]] void bad_gpus(const std::string& message) { throw Error(ErrorCode::invalid_option, message); }

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts{""};
  for (const char c : text) {
    if (c == ',')
      parts.emplace_back();
    else
      parts.back() += c;
  }
  return parts;
}

int parse_number(const std::string& text, const std::string& whole) {
  int number = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < 0) {
    bad_gpus("--gpus " + whole + " is not known: give all, a count such as 2, or a list such as 0,2");
  }
  return number;
}

/// Of the GPUs that this process sees, by their numbers here.
std::string visible_name(int gpu) {
  const char* const visible = std::getenv("CUDA_VISIBLE_DEVICES");
  return visible ? split(visible).at(std::size_t(gpu)) : std::to_string(gpu);
}

void check_same_kind(const std::vector<int>& numbers, const std::vector<DeviceDescription>& gpus) {
  for (const int number : numbers) {
    const DeviceDescription &x = gpus[std::size_t(number)], &first = gpus[0];
    if (x.name == first.name && x.architecture == first.architecture && x.sm_count == first.sm_count) continue;
    bad_gpus(
        fmt::format("GPU {} is another kind ({}) than the first one ({}): tune each kind on its own, with "
                    "CUDA_VISIBLE_DEVICES set to its GPUs",
                    number, x.name, first.name));
  }
}

/// The words after the command's name that give these options.
std::vector<std::string> words_of(const ContextOptions& options) {
  std::vector<std::string> words{"--device", options.device == Device::cuda ? "cuda" : "emulator"};
  const auto add = [&](const char* name, const std::string& value) { words.insert(words.end(), {name, value}); };
  if (!options.architecture.empty()) add("--arch", options.architecture);
  if (options.cache_dir) add("--cache-dir", *options.cache_dir);
  add("--emulator-sms", std::to_string(options.emulator_sm_count));
  add("--emulator-seed", std::to_string(options.emulator_seed));
  add("--tuning-budget", fmt::format("{}", options.tuning_budget_seconds));
  if (options.at_hand_within > 0) add("--at-hand-within", fmt::format("{}", options.at_hand_within));
  if (options.constraints.batch_invariant) words.push_back("--batch-invariant");
  if (options.constraints.workspace_bytes != Constraints{}.workspace_bytes)
    add("--workspace-limit", std::to_string(options.constraints.workspace_bytes));
  if (options.constraints.sms != 0) add("--sm-limit", std::to_string(options.constraints.sms));
  if (!options.dependent_launch) words.push_back("--no-dependent-launch");
  return words;
}

/// Strings as execve() takes them.
class Words {
 public:
  explicit Words(std::vector<std::string> words) : words_(std::move(words)) {
    for (std::string& word : words_) pointers_.push_back(word.data());
    pointers_.push_back(nullptr);
  }
  Words(const Words&) = delete;
  Words& operator=(const Words&) = delete;
  char** get() { return pointers_.data(); }

 private:
  std::vector<std::string> words_;
  std::vector<char*> pointers_;
};

std::vector<std::string> environment_with(const std::string& visible_to_cuda) {
  std::vector<std::string> environment;
  const std::string_view name = "CUDA_VISIBLE_DEVICES=";
  for (char** entry = environ; *entry; ++entry) {
    if (visible_to_cuda.empty() || !std::string_view(*entry).starts_with(name)) environment.emplace_back(*entry);
  }
  if (!visible_to_cuda.empty()) environment.push_back(std::string(name) + visible_to_cuda);
  return environment;
}

/// A child process that this command runs in, its standard input and output a socket to here. Ends with it.
class Worker {
 public:
  Worker(const WorkerDevice& device, const ContextOptions& options) : name_(device.name) {
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) cannot_start(errno);
    socket_.emplace(ends[0]);
    const Descriptor theirs(ends[1]);
    std::vector<std::string> line{"jitgemm", worker_command, "--parent", std::to_string(::getpid())};
    for (const std::string& word : words_of(options)) line.push_back(word);
    Words words(line), environment(environment_with(device.visible_to_cuda));
    posix_spawn_file_actions_t actions;
    if (const int error = posix_spawn_file_actions_init(&actions)) cannot_start(error);
    posix_spawn_file_actions_adddup2(&actions, theirs.get(), STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, theirs.get(), STDOUT_FILENO);
    const int error = posix_spawn(&pid_, "/proc/self/exe", &actions, nullptr, words.get(), environment.get());
    posix_spawn_file_actions_destroy(&actions);
    if (error) cannot_start(error);
  }
  ~Worker() {
    if (alive()) end("the run is over");
  }

  const std::string& name() const { return name_; }
  int descriptor() const { return socket_->get(); }
  bool alive() const { return pid_ > 0; }
  const std::optional<TuneTask>& task() const { return task_; }

  void begin(TuneTask task) {
    const std::string line = to_string(task.problem) + "\n";
    task_ = std::move(task);
    began_ = Clock::now();
    // One that has died says so when it is read from.
    (void)!::send(descriptor(), line.data(), line.size(), MSG_NOSIGNAL);
  }

  /// What has arrived, if that is a whole line; nullopt also for one that has ended, which is then not alive.
  std::optional<std::string> receive() {
    char buffer[1 << 14];
    const ssize_t count = ::recv(descriptor(), buffer, sizeof buffer, MSG_DONTWAIT);
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) return std::nullopt;
    if (count <= 0) {
      wait();
      return std::nullopt;
    }
    received_.append(buffer, std::size_t(count));
    if (!received_.ends_with('\n')) return std::nullopt;
    return std::exchange(received_, {});
  }

  TuneTask end_task() { return *std::exchange(task_, std::nullopt); }
  double seconds_at_task() const { return std::chrono::duration<double>(Clock::now() - began_).count(); }

  void end(const std::string& why) {
    ::kill(pid_, SIGKILL);
    wait();
    how_it_ended_ = "was ended: " + why;
  }

  /// Once it is idle: it ends at the end of its input.
  void finish() {
    socket_.reset();
    wait();
  }
  /// "ended by signal 9"
  const std::string& how_it_ended() const { return how_it_ended_; }

 private:
  [[noreturn]] static void cannot_start(int error) {
    throw Error(ErrorCode::io, fmt::format("cannot start a worker process: {}; leave --gpus out", errno_text(error)));
  }
  void wait() {
    int status = 0;
    while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
    pid_ = 0;
    how_it_ended_ = WIFSIGNALED(status) ? fmt::format("was ended by signal {}", WTERMSIG(status))
                                        : fmt::format("ended with status {}", WEXITSTATUS(status));
  }

  using Clock = std::chrono::steady_clock;
  std::string name_, received_, how_it_ended_;
  std::optional<Descriptor> socket_;
  pid_t pid_ = 0;
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
      for (const auto& worker : workers_) polled.push_back({worker->alive() ? worker->descriptor() : -1, POLLIN, 0});
      if (::poll(polled.data(), polled.size(), 200) < 0 && errno != EINTR) {
        throw Error(ErrorCode::io, fmt::format("cannot wait for the workers: {}; try again", errno_text(errno)));
      }
      for (std::size_t i = 0; i < workers_.size(); ++i) {
        if (polled[i].fd >= 0 && polled[i].revents) hear(*workers_[i]);
      }
      for (const auto& worker : workers_) {
        if (!worker->alive() || !worker->task() || worker->seconds_at_task() < most_seconds_) continue;
        worker->end(fmt::format("it took longer than {} s", most_seconds_));
        bury(*worker);
      }
      hand_out();
      events_.tick();
    }
    for (const auto& worker : workers_) {
      if (worker->alive()) worker->finish();
    }
  }

 private:
  void hand_out() {
    for (const auto& worker : workers_) {
      if (waiting_.empty()) return;
      if (!worker->alive() || worker->task()) continue;
      worker->begin(std::move(waiting_.front()));
      waiting_.pop_front();
    }
  }

  void hear(Worker& worker) {
    const std::optional<std::string> line = worker.receive();
    if (!worker.alive()) return bury(worker);
    if (!line || !worker.task()) return;
    const auto answer = nlohmann::ordered_json::parse(*line, nullptr, false);
    const TuneTask task = worker.end_task();
    if (answer.is_object() && answer.contains("report"))
      events_.tuned(task, answer["report"]);
    else
      events_.failed(task, answer.is_object() ? answer.value("error", *line) : *line);
  }

  void bury(Worker& worker) {
    std::string line = fmt::format("the worker of {} {}", worker.name(), worker.how_it_ended());
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

using File = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;

/// A standard stream, which becomes /dev/null: a compiler that outlives this process must not keep the socket open.
File take_over(int descriptor, const char* mode) {
  File file(::fdopen(::fcntl(descriptor, F_DUPFD_CLOEXEC, 3), mode), &std::fclose);
  const Descriptor null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  if (!file || null.get() < 0 || ::dup2(null.get(), descriptor) < 0) {
    throw Error(ErrorCode::io,
                fmt::format("a worker cannot set up its streams: {}; use `jitgemm tune`", errno_text(errno)));
  }
  return file;
}

std::optional<std::string> read_line(std::FILE* file) {
  std::string line;
  for (int c; (c = std::fgetc(file)) != EOF && c != '\n';) line += char(c);
  if (line.empty()) return std::nullopt;
  return line;
}

/// One problem a line from standard input, one line of JSON for each to standard output.
void work(const ContextOptions& options, pid_t parent) {
  // Else one that outlives a killed run would disturb what the next run measures.
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) return;  // it was killed before that
  const File in = take_over(STDIN_FILENO, "r"), out = take_over(STDOUT_FILENO, "w");
  Context context(options);
  while (const std::optional<std::string> line = read_line(in.get())) {
    nlohmann::ordered_json answer;
    try {
      answer["report"] = to_json(context.tune(parse_problem(*line)));
    } catch (const Error& error) {
      answer["error"] = error.what();
    }
    fmt::print(out.get(), "{}\n", answer.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
    std::fflush(out.get());
  }
}

}  // namespace

std::vector<WorkerDevice> parse_gpus(const std::string& text, const ContextOptions& options) {
  const bool emulated = options.device == Device::emulator;
  const auto gpus = emulated ? std::vector<DeviceDescription>() : cuda_devices();
  if (!emulated && gpus.empty()) Context{options};  // throws, and says why there is none
  const int most = emulated ? most_emulated : int(gpus.size());
  std::vector<int> numbers;
  if (text == "all" || text.find(',') == std::string::npos) {
    const int count = text != "all" ? parse_number(text, text) : emulated ? 1 : most;
    if (count == 0) bad_gpus("--gpus 0 leaves nothing to tune on: give 1 or more, or all");
    if (count > most) {
      bad_gpus(fmt::format("--gpus {}: only {} here: give no more, or all", text,
                           counted(std::uint64_t(most), emulated ? "emulated device" : "GPU")));
    }
    for (int i = 0; i < count; ++i) numbers.push_back(i);
  } else {
    for (const std::string& part : split(text)) {
      const int number = parse_number(part, text);
      if (number >= most)
        bad_gpus(fmt::format("--gpus {}: there is no GPU {}, the last one is {}", text, number, most - 1));
      if (std::count(numbers.begin(), numbers.end(), number)) {
        bad_gpus(fmt::format("--gpus {} names GPU {} twice: name it once", text, number));
      }
      numbers.push_back(number);
    }
  }
  if (!emulated) check_same_kind(numbers, gpus);
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
  command->add_option("--parent", *parent, "The process that this one ends with")->required();
  command->callback([options, parent] { work(options->context_options(), *parent); });
}

}  // namespace jitgemm::cli
