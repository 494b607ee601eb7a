#include "bench/record.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fstream>
#include <limits>
#include <map>
#include <sstream>

#include "common/options.hpp"
#include "common/text.hpp"

namespace jitgemm::cli {
namespace {

using Fields = std::vector<std::pair<std::string, std::string>>;

std::string time_text(double us) { return us > 0 ? fmt::format("{:.4g}", us) : ""; }
std::string ratio_text(const ArmResult& peer, const ArmResult& ours) {
  return peer.timed() && ours.timed() ? fmt::format("{:.4f}", peer.us / ours.us) : "";
}

/// "12.3 0.01 sm80 128x128x32 ..."
std::string arm_text(const ArmResult& arm) { return fmt::format("{:.5g} {:.4f} {}", arm.us, arm.spread, arm.config); }

ArmResult parse_arm(std::istream& text) {
  ArmResult arm;
  text >> arm.us >> arm.spread >> std::ws;
  std::getline(text, arm.config);
  return arm;
}

/// The texts of all, with "; " between them.
template <typename Item, typename Text>
std::string list_text(const std::vector<Item>& items, const Text& text_of) {
  std::string text;
  for (const Item& item : items) text += (text.empty() ? "" : "; ") + text_of(item);
  return text;
}
template <typename Item, typename Parse>
std::vector<Item> parse_list(const std::string& text, const Parse& parse) {
  std::vector<Item> items;
  std::istringstream parts(text);
  for (std::string part; std::getline(parts, part, ';');) {
    std::istringstream words(part);
    items.push_back(parse(words));
  }
  return items;
}

/// "repeat1 12.3 0.01 sm80 128x128x32 ..."
std::string named_arm_text(const NamedArm& arm) { return arm.name + " " + arm_text(arm.result); }

NamedArm parse_named_arm(std::istream& text) {
  NamedArm arm;
  text >> arm.name;
  arm.result = parse_arm(text);
  return arm;
}

Fields fields_of(const BenchRecord& r) {
  const Problem& p = r.problem;
  Fields fields{{"m", std::to_string(p.m)},
                {"n", std::to_string(p.n)},
                {"k", std::to_string(p.k)},
                {"device", r.device},
                {"problem", to_string(p)},
                {"protocol", to_string(r.protocol)},
                {"waves", fmt::format("{:.3f}", r.waves)},
                {"floor_us", fmt::format("{:.4g}", r.floor_us)},
                {"sets", std::to_string(r.sets)}};
  const auto add_arm = [&](const std::string& name, const ArmResult& arm) {
    fields.push_back({name + "_us", time_text(arm.us)});
    fields.push_back({name + "_spread", arm.timed() ? fmt::format("{:.4f}", arm.spread) : ""});
    fields.push_back({name + "_config", arm.config});
  };
  add_arm("model", r.model);
  add_arm("tuned", r.tuned);
  add_arm("best", r.best);
  add_arm("cublas", r.cublas);
  add_arm("cublaslt", r.cublaslt);
  add_arm("triton", r.triton);
  fields.push_back({"cublaslt_candidates", std::to_string(r.cublaslt_candidates)});
  fields.push_back({"cublas_over_model", ratio_text(r.cublas, r.model)});
  fields.push_back({"cublas_over_tuned", ratio_text(r.cublas, r.tuned)});
  fields.push_back({"cublas_over_best", ratio_text(r.cublas, r.best)});
  fields.push_back({"cublaslt_over_tuned", ratio_text(r.cublaslt, r.tuned)});
  fields.push_back({"cublaslt_over_best", ratio_text(r.cublaslt, r.best)});
  fields.push_back({"triton_over_tuned", ratio_text(r.triton, r.tuned)});
  fields.push_back({"floor_over_best", r.best.timed() ? fmt::format("{:.4f}", r.floor_us / r.best.us) : ""});
  fields.push_back({"pinned", list_text(r.pinned, arm_text)});
  fields.push_back({"others", list_text(r.others, named_arm_text)});
  fields.push_back({"absent", r.absent});
  fields.push_back({"check", r.check});
  return fields;
}

std::vector<std::string> split_csv(const std::string& line) {
  std::vector<std::string> fields(1);
  bool inside = false;
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (line[i] == '"') {
      if (inside && i + 1 < line.size() && line[i + 1] == '"')
        fields.back() += line[i++];
      else
        inside = !inside;
    } else if (line[i] == ',' && !inside) {
      fields.emplace_back();
    } else {
      fields.back() += line[i];
    }
  }
  return fields;
}

/// Of files that were written when there was rep alone.
std::string header_without_protocol() {
  std::string header = csv_header();
  const std::string column = ",protocol";
  return header.erase(header.find(column), column.size());
}

using Columns = std::map<std::string, std::string>;

/// 0 for none.
double number(const Columns& field, const std::string& name) {
  const std::string& text = field.at(name);
  double value = 0;
  const char* const end = text.data() + text.size();
  if (!text.empty()) {
    const auto [rest, error] = std::from_chars(text.data(), end, value);
    if (error != std::errc() || rest != end || !(std::abs(value) <= 1e300)) {
      throw Error(ErrorCode::io, fmt::format("\"{}\" is no number for the column {}", text, name));
    }
  }
  return value;
}

int count(const Columns& field, const std::string& name) {
  return int(std::clamp(number(field, name), 0.0, double(std::numeric_limits<int>::max())));
}

BenchRecord record_of(const Columns& field) {
  BenchRecord r;
  r.device = field.at("device");
  r.problem = parse_problem(field.at("problem"));
  if (const std::string& protocol = field.at("protocol"); !protocol.empty()) r.protocol = parse_protocol(protocol);
  r.waves = number(field, "waves");
  r.floor_us = number(field, "floor_us");
  r.sets = count(field, "sets");
  const auto arm = [&](const std::string& name) {
    return ArmResult{.config = field.at(name + "_config"),
                     .us = number(field, name + "_us"),
                     .spread = number(field, name + "_spread")};
  };
  r.model = arm("model");
  r.tuned = arm("tuned");
  r.best = arm("best");
  r.cublas = arm("cublas");
  r.cublaslt = arm("cublaslt");
  r.triton = arm("triton");
  r.cublaslt_candidates = count(field, "cublaslt_candidates");
  r.pinned = parse_list<ArmResult>(field.at("pinned"), parse_arm);
  r.others = parse_list<NamedArm>(field.at("others"), parse_named_arm);
  r.absent = field.at("absent");
  r.check = field.at("check");
  return r;
}

}  // namespace

bool BenchRecord::same_case(const BenchRecord& other) const {
  return device == other.device && protocol == other.protocol && to_string(problem) == to_string(other.problem);
}

void BenchRecord::note_absent(const std::string& why) { absent += (absent.empty() ? "" : "; ") + why; }

std::string csv_header() {
  std::string line;
  for (const auto& [name, value] : fields_of({})) line += (line.empty() ? "" : ",") + name;
  return line;
}

std::string csv_line(const BenchRecord& record) {
  std::string line;
  for (const auto& [name, value] : fields_of(record)) line += (line.empty() ? "" : ",") + csv_field(value);
  return line;
}

std::vector<BenchRecord> read_csv(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::string line;
  const auto next_line = [&] {
    if (!std::getline(file, line)) return false;
    if (line.ends_with('\r')) line.pop_back();
    return true;
  };
  if (!next_line()) return {};
  if (line != csv_header() && line != header_without_protocol()) {
    throw Error(ErrorCode::io, path.string() +
                                   " has other columns than `jitgemm bench` of this version writes: name a file "
                                   "that it wrote, or a new one");
  }
  const std::vector<std::string> names = split_csv(line);
  std::vector<BenchRecord> records;
  for (int row = 2; next_line(); ++row) {
    const std::vector<std::string> values = split_csv(line);
    if (values.size() != names.size() || file.eof()) continue;  // cut off when a run was stopped
    Columns field{{"protocol", ""}};
    for (std::size_t i = 0; i < names.size(); ++i) field[names[i]] = values[i];
    try {
      records.push_back(record_of(field));
    } catch (const Error& error) {
      throw Error(ErrorCode::io,
                  fmt::format("{}:{}: {}: remove the line, or name another file", path.string(), row, error.what()));
    }
  }
  return records;
}

nlohmann::ordered_json to_json(const BenchRecord& r) {
  const auto arm = [](const ArmResult& result) -> nlohmann::ordered_json {
    if (!result.timed()) return nullptr;
    return {{"us", result.us}, {"spread", result.spread}, {"config", result.config}};
  };
  nlohmann::ordered_json json{{"problem", to_string(r.problem)},
                              {"protocol", to_string(r.protocol)},
                              {"device", r.device},
                              {"waves", r.waves},
                              {"floor_us", r.floor_us},
                              {"sets", r.sets},
                              {"model", arm(r.model)},
                              {"tuned", arm(r.tuned)},
                              {"best", arm(r.best)},
                              {"cublas", arm(r.cublas)},
                              {"cublaslt", arm(r.cublaslt)},
                              {"triton", arm(r.triton)},
                              {"cublaslt_candidates", r.cublaslt_candidates},
                              {"absent", r.absent},
                              {"check", r.check}};
  for (const ArmResult& pinned : r.pinned) json["pinned"].push_back(arm(pinned));
  for (const NamedArm& other : r.others) json[other.name] = arm(other.result);
  return json;
}

}  // namespace jitgemm::cli
