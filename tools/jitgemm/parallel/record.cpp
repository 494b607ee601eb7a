#include "parallel/record.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "common/text.hpp"
#include "measure/rounds.hpp"
#include "parallel/options.hpp"

namespace jitgemm::cli {
namespace {

double ratio(double peer_us, double our_us) { return peer_us > 0 && our_us > 0 ? peer_us / our_us : 0; }

std::string number(double value, const char* digits) {
  return std::isnan(value) || value == 0 ? "" : fmt::format(fmt::runtime(digits), value);
}

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
  return text;
}

using Fields = std::vector<std::pair<std::string, std::string>>;

Fields fields_of(const ParallelRecord& r, const std::string& device, const std::string& nccl) {
  Fields fields{{"exchange", std::string(to_string(r.shape.exchange))},
                {"m", std::to_string(r.shape.m)},
                {"n", std::to_string(r.shape.n)},
                {"k", std::to_string(r.shape.k)},
                {"ranks", std::to_string(r.ranks)},
                {"device", device},
                {"nccl", nccl}};
  int samples = 0;
  for (const std::string_view name : parallel_arm::all) {
    const auto found = r.arms.find(std::string(name));
    const Timing timing = found == r.arms.end() ? Timing{} : found->second;
    samples = std::max(samples, timing.launches);
    fields.push_back({fmt::format("{}_us", name), number(timing.median_us, "{:.4g}")});
    fields.push_back(
        {fmt::format("{}_spread", name), timing.median_us > 0 ? fmt::format("{:.4f}", timing.spread) : ""});
  }
  fields.push_back({"samples", std::to_string(samples)});
  fields.push_back({"over_cublas_nccl", number(over_cublas_nccl(r), "{:.4f}")});
  fields.push_back({"over_best_in_turn", number(over_best_in_turn(r), "{:.4f}")});
  fields.push_back({"alone_over_ours", number(alone_over_ours(r), "{:.4f}")});
  fields.push_back({"hidden", std::isnan(share_hidden(r)) ? "" : fmt::format("{:.4f}", share_hidden(r))});
  fields.push_back({"overlapped", r.overlapped ? "yes" : "no"});
  fields.push_back({"one_shot", r.one_shot ? "yes" : "no"});
  fields.push_back({"config", r.config});
  fields.push_back({"why", r.why});
  fields.push_back({"eager", joined(r.eager)});
  fields.push_back({"check", r.check});
  return fields;
}

}  // namespace

nlohmann::ordered_json to_json(const RankResult& r) {
  nlohmann::ordered_json json{{"exchange", to_string(r.shape.exchange)},
                              {"shape", {r.shape.m, r.shape.n, r.shape.k}},
                              {"us", r.us},
                              {"eager", r.eager},
                              {"overlapped", r.overlapped},
                              {"one_shot", r.one_shot},
                              {"config", r.config},
                              {"why", r.why},
                              {"check", r.check}};
  return json;
}

RankResult parse_rank_result(const nlohmann::ordered_json& json) {
  try {
    const auto& sizes = json.at("shape");
    return {.shape = {parse_exchange(json.at("exchange").get<std::string>()).value(), sizes.at(0), sizes.at(1),
                      sizes.at(2)},
            .us = json.at("us").get<std::map<std::string, std::vector<double>>>(),
            .eager = json.at("eager"),
            .overlapped = json.at("overlapped"),
            .one_shot = json.at("one_shot"),
            .config = json.at("config"),
            .why = json.at("why"),
            .check = json.at("check")};
  } catch (const std::exception& error) {
    throw Error(ErrorCode::internal, fmt::format("a rank's result is none ({}): run again", error.what()));
  }
}

double ParallelRecord::us(std::string_view arm) const {
  const auto found = arms.find(std::string(arm));
  return found == arms.end() ? 0 : found->second.median_us;
}

ParallelRecord merge(const std::vector<RankResult>& ranks) {
  const RankResult& first = ranks.at(0);
  ParallelRecord record{.shape = first.shape,
                        .ranks = int(ranks.size()),
                        .arms = {},
                        .eager = first.eager,
                        .overlapped = first.overlapped,
                        .one_shot = first.one_shot,
                        .config = first.config,
                        .why = first.why};
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    const bool same = ranks[rank].shape == first.shape &&
                      std::ranges::equal(ranks[rank].us, first.us, [](const auto& x, const auto& y) {
                        return x.first == y.first && x.second.size() == y.second.size();
                      });
    if (!same) throw Error(ErrorCode::internal, fmt::format("rank {} has measured something else: run again", rank));
    if (record.check == "ok" && ranks[rank].check != "ok")
      record.check = fmt::format("rank {}: {}", rank, ranks[rank].check);
  }
  for (const auto& [arm, samples] : first.us) {
    std::vector<double> slowest = samples;
    for (const RankResult& rank : ranks)
      for (std::size_t i = 0; i < slowest.size(); ++i) slowest[i] = std::max(slowest[i], rank.us.at(arm)[i]);
    record.arms[arm] = timing_of(slowest, int(slowest.size()));
  }
  return record;
}

double us_of_ours(const ParallelRecord& record) {
  const double overlapped = record.us(parallel_arm::ours);
  return overlapped > 0 ? overlapped : record.us(parallel_arm::ours_nccl);
}

double over_cublas_nccl(const ParallelRecord& record) {
  return ratio(record.us(parallel_arm::cublas_nccl), us_of_ours(record));
}

double over_best_in_turn(const ParallelRecord& record) {
  const double cublas = record.us(parallel_arm::cublas_nccl), ours = record.us(parallel_arm::ours_nccl);
  return ratio(cublas > 0 && ours > 0 ? std::min(cublas, ours) : 0, record.us(parallel_arm::ours));
}

double alone_over_ours(const ParallelRecord& record) {
  return ratio(record.us(parallel_arm::ours_alone), us_of_ours(record));
}

double share_hidden(const ParallelRecord& record) {
  const double in_turn = record.us(parallel_arm::ours_nccl), alone = record.us(parallel_arm::ours_alone),
               ours = record.us(parallel_arm::ours);
  if (ours <= 0 || alone <= 0 || in_turn <= alone) return std::numeric_limits<double>::quiet_NaN();
  return (in_turn - ours) / (in_turn - alone);
}

std::string csv_header_of_parallel() {
  std::string line;
  for (const auto& [name, value] : fields_of({}, "", "")) line += (line.empty() ? "" : ",") + name;
  return line;
}

std::string csv_line(const ParallelRecord& record, const std::string& device, const std::string& nccl) {
  std::string line;
  bool first = true;
  for (const auto& [name, value] : fields_of(record, device, nccl)) {
    line += (first ? "" : ",") + csv_field(value);
    first = false;
  }
  return line;
}

std::string table_head() {
  std::string line = fmt::format("{:<17}{:>6}{:>8}{:>8}", "us", "m", "n", "k");
  for (const std::string_view name : parallel_arm::all) line += fmt::format("{:>14}", name);
  return line + fmt::format("{:>8}{:>8}", "ratio", "hidden");
}

std::string table_row(const ParallelRecord& r) {
  std::string line = fmt::format("{:<17}{:>6}{:>8}{:>8}", to_string(r.shape.exchange), r.shape.m, r.shape.n, r.shape.k);
  for (const std::string_view name : parallel_arm::all) line += fmt::format("{:>14}", number(r.us(name), "{:.2f}"));
  const double hidden = share_hidden(r);
  line += fmt::format("{:>8}{:>8}", number(over_cublas_nccl(r), "{:.3f}"),
                      std::isnan(hidden) ? "" : fmt::format("{:.2f}", hidden));
  if (r.us(parallel_arm::ours) > 0 && !r.overlapped)
    line += r.one_shot ? "  in one shot" : "  not overlapped: " + r.why;
  if (!r.eager.empty()) line += "  not captured: " + joined(r.eager);
  if (r.check != "ok") line += "  " + r.check;
  return line;
}

}  // namespace jitgemm::cli
