#include "parallel/rank.hpp"

#include <exception>
#include <optional>

#include "common/exit_status.hpp"
#include "parallel/measure.hpp"
#include "parallel/nccl.hpp"
#include "parallel/processes.hpp"
#include "parallel/record.hpp"

namespace jitgemm::cli {
namespace {

using Json = nlohmann::ordered_json;

std::string line_of(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

void say_error(ParentProcess& parent, const std::exception& error) {
  parent.write_line(line_of({{rank_error, error.what()}}));
}

struct Assignment {
  RankPlace place;
  ParallelTask task;
};

Assignment parse_first_line(const std::string& line) {
  const Json json = Json::parse(line);
  Assignment its{.place = {.rank = json.at("rank"), .ranks = json.at("ranks"), .gpu = json.at("gpu")}, .task = {}};
  for (const Json& shape : json.at("shapes"))
    its.task.shapes.push_back(
        {parse_exchange(shape.at(0).get<std::string>()).value(), shape.at(1), shape.at(2), shape.at(3)});
  its.task.type = parse_data_type(json.at("type").get<std::string>()).value();
  its.task.arms = json.at("arms");
  its.task.samples = json.at("samples");
  its.task.seconds = json.at("seconds");
  return its;
}

/// Rank 0 makes it and tells the others.
std::string shared_id(ParentProcess& parent, int rank) {
  if (rank == 0) {
    const std::string id = new_nccl_id();
    parent.write_line(line_of({{to_others, id}}));
    return id;
  }
  const std::optional<std::string> line = parent.read_line();
  if (!line) throw Error(ErrorCode::internal, "rank 0 has sent no id: run again");
  return Json::parse(*line).at(to_others).get<std::string>();
}

void measure_all(ParentProcess& parent, const ContextOptions& options, const Assignment& its) {
  make_rank_current(its.place);
  const std::string id = shared_id(parent, its.place.rank);
  RankBench bench(options, its.place, id, its.task);
  parent.write_line(line_of(bench.describe()));
  try {
    for (const ParallelShape& shape : its.task.shapes) {
      parent.write_line(line_of({{"begins", to_string(shape)}}));
      parent.write_line(line_of(to_json(bench.measure(shape))));
    }
  } catch (const std::exception& error) {
    say_error(parent, error);  // now: the communicator's end may wait for the other ranks
    throw;
  }
}

}  // namespace

std::string first_line_of(const RankPlace& place, const ParallelTask& task) {
  Json json{{"rank", place.rank}, {"ranks", place.ranks},    {"gpu", place.gpu},       {"type", to_string(task.type)},
            {"arms", task.arms},  {"samples", task.samples}, {"seconds", task.seconds}};
  json["shapes"] = Json::array();
  for (const ParallelShape& shape : task.shapes)
    json["shapes"].push_back({to_string(shape.exchange), shape.m, shape.n, shape.k});
  return line_of(json);
}

void run_rank(ParentProcess& parent, const ContextOptions& options) {
  const std::optional<std::string> line = parent.read_line();
  if (!line) return;  // nobody is there any more
  try {
    measure_all(parent, options, parse_first_line(*line));
  } catch (const std::exception& error) {
    say_error(parent, error);
    throw ExitStatus{1, ""};
  }
}

}  // namespace jitgemm::cli
