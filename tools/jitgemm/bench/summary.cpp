#include "bench/summary.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <tuple>

#include "measure/percentiles.hpp"

namespace jitgemm::cli {
namespace {

struct Group {
  const char* name;
  std::function<bool(const BenchRecord&)> holds;
};
const std::vector<Group>& groups() {
  static const std::vector<Group> all{
      {"all", [](const BenchRecord&) { return true; }},
      {"under 1 wave, K < 1024", [](const BenchRecord& r) { return r.waves < 1 && r.problem.k < 1024; }},
      {"under 1 wave, K >= 1024", [](const BenchRecord& r) { return r.waves < 1 && r.problem.k >= 1024; }},
      {"1 to 4 waves", [](const BenchRecord& r) { return r.waves >= 1 && r.waves < 4; }},
      {"4 waves and more", [](const BenchRecord& r) { return r.waves >= 4; }},
  };
  return all;
}

double ratio_of(const ArmResult& peer, const ArmResult& ours) {
  return peer.timed() && ours.timed() ? peer.us / ours.us : 0;
}

struct Ratio {
  std::string name;
  std::function<double(const BenchRecord&)> of;  ///< 0: not known
};
const std::vector<Ratio>& ratios_of_columns() {
  const auto over = [](ArmResult BenchRecord::* peer, ArmResult BenchRecord::* ours) {
    return [peer, ours](const BenchRecord& r) { return ratio_of(r.*peer, r.*ours); };
  };
  const auto floor_over = [](ArmResult BenchRecord::* arm) {
    return [arm](const BenchRecord& r) { return (r.*arm).timed() ? r.floor_us / (r.*arm).us : 0; };
  };
  static const std::vector<Ratio> all{
      {"cublas / model", over(&BenchRecord::cublas, &BenchRecord::model)},
      {"cublas / tuned", over(&BenchRecord::cublas, &BenchRecord::tuned)},
      {"cublas / best", over(&BenchRecord::cublas, &BenchRecord::best)},
      {"cublaslt best / tuned", over(&BenchRecord::cublaslt, &BenchRecord::tuned)},
      {"cublaslt best / best", over(&BenchRecord::cublaslt, &BenchRecord::best)},
      {"triton / tuned", over(&BenchRecord::triton, &BenchRecord::tuned)},
      {"floor / best", floor_over(&BenchRecord::best)},
      {"floor / cublas", floor_over(&BenchRecord::cublas)},
  };
  return all;
}

/// And those of arms without a column over the tuned choice.
std::vector<Ratio> ratios_of(const std::vector<BenchRecord>& records) {
  std::vector<Ratio> all = ratios_of_columns();
  for (const BenchRecord& record : records) {
    for (const NamedArm& other : record.others) {
      const std::string name = other.name + " / tuned";
      const bool known = std::ranges::any_of(all, [&](const Ratio& ratio) { return ratio.name == name; });
      if (known || other.name.starts_with("finalist")) continue;
      all.push_back({name, [arm = other.name](const BenchRecord& r) {
                       const auto found = std::ranges::find(r.others, arm, &NamedArm::name);
                       return found == r.others.end() ? 0 : ratio_of(found->result, r.tuned);
                     }});
    }
  }
  return all;
}

std::vector<Protocol> protocols_of(const std::vector<BenchRecord>& records) {
  std::vector<Protocol> protocols;
  for (const BenchRecord& record : records) {
    if (std::ranges::count(protocols, record.protocol) == 0) protocols.push_back(record.protocol);
  }
  std::ranges::sort(protocols, {}, [](const Protocol& p) { return std::tuple(p.eager, p.mix, p.large); });
  return protocols;
}

struct Line {
  std::string protocol, group, ratio;
  Percentiles over;
};

/// Those that have shapes.
std::vector<Line> lines_of(const std::vector<BenchRecord>& records) {
  std::vector<Line> lines;
  const std::vector<Ratio> ratios = ratios_of(records);
  for (const Protocol& protocol : protocols_of(records)) {
    for (const Group& group : groups()) {
      for (const Ratio& ratio : ratios) {
        std::vector<double> values;
        for (const BenchRecord& record : records) {
          const double value = record.protocol == protocol && group.holds(record) ? ratio.of(record) : 0;
          if (value > 0) values.push_back(value);
        }
        if (!values.empty())
          lines.push_back({to_string(protocol), group.name, ratio.name, percentiles(std::move(values))});
      }
    }
  }
  return lines;
}

}  // namespace

std::string summary(const std::vector<BenchRecord>& records) {
  std::string text, last;
  for (const Line& line : lines_of(records)) {
    const std::string head = line.group + ", " + line.protocol;
    if (last != head) text += fmt::format("\n{:<33} shapes  geomean    p10    p50    p90\n", head);
    last = head;
    const Percentiles& x = line.over;
    text += fmt::format("  {:<31} {:>6} {:>8.3f} {:>6.3f} {:>6.3f} {:>6.3f}\n", line.ratio, x.count, x.geomean, x.p10,
                        x.p50, x.p90);
  }
  return text;
}

nlohmann::ordered_json summary_json(const std::vector<BenchRecord>& records) {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  for (const auto& [protocol, group, ratio, x] : lines_of(records))
    json[protocol][group][ratio] = {
        {"shapes", x.count}, {"geomean", x.geomean}, {"p10", x.p10}, {"p50", x.p50}, {"p90", x.p90}};
  return json;
}

}  // namespace jitgemm::cli
