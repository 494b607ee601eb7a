#include <cmath>
#include <nlohmann/json.hpp>

#include "core/problem.hpp"
#include "jitgemm/error.hpp"
#include "tune/tuning_db.hpp"

namespace jitgemm {
namespace {

using nlohmann::json;

constexpr int schema = 1;

json to_json(const Problem& p) {
  return {{"m", p.m},
          {"n", p.n},
          {"k", p.k},
          {"a", to_string(p.a)},
          {"b", to_string(p.b)},
          {"d", to_string(p.d)},
          {"layout_a", to_string(p.layout_a)},
          {"layout_b", to_string(p.layout_b)},
          {"ld", {p.lda, p.ldb, p.ldc, p.ldd}},
          {"align", {p.align_a, p.align_b, p.align_c, p.align_d}},
          {"alpha", p.alpha},
          {"beta", p.beta},
          {"bias", p.bias},
          {"activation", to_string(p.activation)},
          {"slope", p.slope}};
}

template <typename Parse>
auto named(const json& object, const char* key, Parse parse) {
  const auto value = parse(object.at(key).get<std::string>());
  if (!value) throw std::invalid_argument(std::string("unknown ") + key);
  return *value;
}

Problem problem_from(const json& object) {
  Problem p;
  p.m = object.at("m").get<std::int64_t>();
  p.n = object.at("n").get<std::int64_t>();
  p.k = object.at("k").get<std::int64_t>();
  p.a = named(object, "a", parse_data_type);
  p.b = named(object, "b", parse_data_type);
  p.d = named(object, "d", parse_data_type);
  p.layout_a = named(object, "layout_a", parse_layout);
  p.layout_b = named(object, "layout_b", parse_layout);
  std::int64_t* const lds[] = {&p.lda, &p.ldb, &p.ldc, &p.ldd};
  int* const alignments[] = {&p.align_a, &p.align_b, &p.align_c, &p.align_d};
  for (std::size_t i = 0; i < 4; ++i) {
    *lds[i] = object.at("ld").at(i).get<std::int64_t>();
    *alignments[i] = object.at("align").at(i).get<int>();
  }
  p.alpha = object.at("alpha").get<double>();
  p.beta = object.at("beta").get<double>();
  p.bias = object.at("bias").get<bool>();
  p.activation = named(object, "activation", parse_activation);
  p.slope = object.at("slope").get<double>();
  return shape_of(normalise(p));
}

}  // namespace

std::string to_json_line(const TuningRecord& record) {
  const json line = {{"schema", schema},
                     {"problem", to_json(record.problem)},
                     {"device",
                      {{"name", record.device_name},
                       {"compute_capability", record.compute_capability},
                       {"sm_count", record.sm_count},
                       {"emulated", record.emulated}}},
                     {"config", to_string(record.config)},
                     {"median_us", record.median_us},
                     {"spread", record.spread},
                     {"library", record.library_version},
                     {"date", record.date}};
  return line.dump(-1, ' ', false, json::error_handler_t::replace);
}

std::optional<TuningRecord> parse_json_line(const std::string& line, std::string* why_not) {
  const auto refuse = [why_not](const std::string& why) {
    if (why_not) *why_not = why;
    return std::nullopt;
  };
  try {
    const json object = json::parse(line);
    if (object.at("schema").get<int>() != schema) return refuse("another schema");
    TuningRecord record;
    record.problem = problem_from(object.at("problem"));
    const json& device = object.at("device");
    record.device_name = device.at("name").get<std::string>();
    record.compute_capability = device.at("compute_capability").get<int>();
    record.sm_count = device.at("sm_count").get<int>();
    record.emulated = device.at("emulated").get<bool>();
    record.config = parse_kernel_config(object.at("config").get<std::string>());
    record.median_us = object.at("median_us").get<double>();
    record.spread = object.at("spread").get<double>();
    record.library_version = object.at("library").get<std::string>();
    record.date = object.at("date").get<std::string>();
    if (!(record.median_us > 0) || !std::isfinite(record.median_us)) return refuse("median_us is not a time");
    if (!(record.spread >= 0) || !std::isfinite(record.spread)) return refuse("spread is not a fraction");
    if (record.sm_count <= 0) return refuse("sm_count is not a count");
    return record;
  } catch (const std::exception& error) {  // nlohmann's, parse_kernel_config's, normalise's
    return refuse(error.what());
  }
}

}  // namespace jitgemm
