// Ranks are processes, as those of torchrun and mpirun are: one GPU each, all GPUs visible.
#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <vector>

#include "common/gpus.hpp"
#include "common/progress.hpp"
#include "common/text.hpp"
#include "parallel/command.hpp"
#include "parallel/nccl.hpp"
#include "parallel/options.hpp"
#include "parallel/processes.hpp"
#include "parallel/rank.hpp"
#include "parallel/record.hpp"
#include "parallel/summary.hpp"
#include "util/output_file.hpp"

namespace jitgemm::cli {
namespace {

namespace fs = std::filesystem;

constexpr double most_silent_seconds = 600;  // the first call of a new problem compiles and tunes

[[noreturn]] void refuse(const std::string& why) { throw Error(ErrorCode::invalid_option, why); }

DataType type_of(const std::string& name) {
  const std::optional<DataType> type = parse_data_type(name);
  if (!type) refuse(fmt::format("unknown type \"{}\"", name));
  return *type;
}

/// The GPUs of the ranks. Throws Error{no_device} where there are none, or no NCCL.
std::vector<int> gpus_of(const ParallelBenchOptions& options, const ContextOptions& context_options) {
  constexpr const char* needs = "products across GPUs need GPUs of one host, and NCCL";
  if (options.device.device_given() && context_options.device != Device::cuda)
    throw Error(ErrorCode::no_device, fmt::format("{}: leave --device out", needs));
  const std::vector<DeviceDescription> gpus = cuda_devices();
  if (gpus.empty())
    throw Error(ErrorCode::no_device, fmt::format("no GPU found, and {}: run this on a machine with several", needs));
  const std::vector<int> numbers = parse_device_numbers(options.gpus, int(gpus.size()), "GPU");
  if (numbers.size() < 2)
    refuse(fmt::format("--gpus {} is one GPU, which exchanges nothing: give 2 or more", options.gpus));
  check_same_kind(numbers, gpus, "give GPUs of one kind");
  load_nccl();
  return numbers;
}

/// What comes of the ranks' answers.
class ParallelBench {
 public:
  ParallelBench(const ParallelBenchOptions& options, const ParallelTask& task, const std::vector<int>& gpus)
      : options_(options), task_(task), gpus_(gpus), answers_(gpus.size()) {}

  void run(const ContextOptions& context_options) {
    open_csv();
    std::vector<ChildCommand> commands;
    std::vector<std::string> first_lines;
    for (std::size_t rank = 0; rank < gpus_.size(); ++rank) {
      commands.push_back(rank_command(context_options));
      first_lines.push_back(first_line_of({int(rank), int(gpus_.size()), gpus_[rank]}, task_));
    }
    run_ranks(commands, first_lines, most_silent_seconds,
              {.said = [this](int rank, const nlohmann::ordered_json& line) { hear(rank, line); },
               .tick = [this] { show(); }});
    progress_.hide();
    fmt::print("{}", parallel_summary(records_));
    finish();
  }

 private:
  void open_csv() {
    if (options_.csv.empty()) return;
    std::error_code none;  // why a path leads nowhere, write_output() says
    if (fs::exists(options_.csv, none) && fs::is_regular_file(options_.csv, none) && fs::file_size(options_.csv) > 0)
      throw Error(ErrorCode::io, options_.csv + " exists: remove it, or write elsewhere");
    std::string why;
    if (!write_output(options_.csv, csv_header_of_parallel() + "\n", &why))
      throw Error(ErrorCode::io, "cannot write " + options_.csv + ": " + why + "; write elsewhere");
    csv_.open(options_.csv, std::ios::app);
  }

  void hear(int rank, const nlohmann::ordered_json& line) {
    if (line.contains("device")) {
      if (rank == 0) describe(line);
    } else if (line.contains("begins")) {
      if (rank == 0) now_ = line["begins"].get<std::string>();
    } else {
      answers_[std::size_t(rank)].push_back(parse_rank_result(line));
      if (std::ranges::all_of(answers_, [this](const auto& of_rank) { return of_rank.size() > records_.size(); }))
        finish_shape();
    }
    show();
  }

  void describe(const nlohmann::ordered_json& line) {
    device_ = line.value("device", "");
    nccl_ = line.value("nccl", "");
    progress_.hide();
    fmt::print("{}, {}, on {} {}\npeer: {}, NCCL {}, without NVLink multicast\n{}\n",
               counted(task_.shapes.size(), "shape"), to_string(task_.type), gpus_.size(), device_,
               line.value("cublas", ""), nccl_, table_head());
    std::fflush(stdout);
  }

  void finish_shape() {
    std::vector<RankResult> ranks;
    for (const auto& of_rank : answers_) ranks.push_back(of_rank[records_.size()]);
    const ParallelRecord& record = records_.emplace_back(merge(ranks));
    progress_.hide();
    fmt::print("{}\n", table_row(record));
    std::fflush(stdout);
    if (csv_.is_open()) csv_ << csv_line(record, device_, nccl_) << '\n' << std::flush;
  }

  void show() { progress_.update(int(records_.size()), int(task_.shapes.size()), now_); }

  void finish() const {
    if (csv_.is_open() && !csv_) throw Error(ErrorCode::io, "cannot write " + options_.csv + ": is the disk full?");
    if (records_.size() < task_.shapes.size())
      throw Error(ErrorCode::internal, fmt::format("the ranks ended after {} of {} shapes: run again", records_.size(),
                                                   task_.shapes.size()));
    const auto wrong = std::ranges::count_if(records_, [](const ParallelRecord& r) { return r.check != "ok"; });
    if (wrong > 0)
      throw Error(ErrorCode::internal, counted(std::uint64_t(wrong), "shape") + " came out wrong, as their lines say");
  }

  const ParallelBenchOptions& options_;
  const ParallelTask& task_;
  const std::vector<int>& gpus_;
  std::vector<std::vector<RankResult>> answers_;  // of each rank
  std::vector<ParallelRecord> records_;
  std::string device_, nccl_, now_;
  std::ofstream csv_;
  Progress progress_{"parallel bench"};
};

}  // namespace

ParallelTask task_of(const ParallelBenchOptions& options, int ranks) {
  ParallelTask task{.shapes = options.shapes.empty() ? llama_shapes() : read_parallel_shapes(options.shapes),
                    .type = type_of(options.type),
                    .arms = options.arms,
                    .samples = options.samples,
                    .seconds = options.seconds};
  for (const ParallelShape& shape : task.shapes) problem_of_rank(shape, ranks, task.type);
  for (const std::string& arm : task.arms)
    if (std::ranges::count(task.arms, arm) > 1) refuse(fmt::format("--arms names {} twice: name it once", arm));
  return task;
}

void parallel_bench(const ParallelBenchOptions& options) {
  const ContextOptions context_options = options.device.context_options();
  if (!options.shapes.empty()) read_parallel_shapes(options.shapes);  // what is wrong with it needs no GPU to be said
  const std::vector<int> gpus = gpus_of(options, context_options);
  const ParallelTask task = task_of(options, int(gpus.size()));
  ParallelBench(options, task, gpus).run(context_options);
}

}  // namespace jitgemm::cli
