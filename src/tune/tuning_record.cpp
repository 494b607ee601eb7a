#include <algorithm>
#include <cmath>
#include <concepts>
#include <limits>
#include <set>
#include <string_view>
#include <utility>

#include "core/enumerators.hpp"
#include "core/out_of_memory.hpp"
#include "core/problem.hpp"
#include "core/problem_fields.hpp"
#include "core/sharded_problem.hpp"
#include "jitgemm/error.hpp"
#include "jitgemm/version.hpp"
#include "plan/constraints.hpp"
#include "tune/tuning_db.hpp"
#include "util/control_character.hpp"
#include "util/json_document.hpp"

namespace jitgemm {
namespace {

using json = JsonDocument::Json;

// Raised when a field changes its meaning. A new one needs no other schema: a line without it means the default, and
// versions that do not know it skip the lines that have it in "problem", which they could not ask for.
constexpr int schema = 3;

/// What differs from the default.
void write(json& object, const Constraints& constraints) {
  constexpr Constraints none;
  object = json::object();
  if (constraints.batch_invariant) object["batch_invariant"] = true;
  if (constraints.workspace_bytes != none.workspace_bytes) object["workspace_bytes"] = constraints.workspace_bytes;
  if (constraints.sms != none.sms) object["sms"] = constraints.sms;
}

/// What differs from the default, and what texts always have. Ranks and their exchange are the problem's, since
/// versions that do not know them take the record for gemm()'s if it has them elsewhere.
void write(json& object, const TuningRecord& record) {
  const Problem defaults;
  const Problem& p = record.problem;
  object = json::object();
  for_each_field([&](const ProblemField& field, auto member) {
    const auto& value = member(p);
    if (!field.always_written && same_value(value, member(defaults))) return;
    if constexpr (std::is_enum_v<std::decay_t<decltype(value)>>)
      object[std::string(field.name)] = to_string(value);
    else
      object[std::string(field.name)] = value;
  });
  if (record.across.ranks > 1) {
    object["exchange"] = to_string(record.across.exchange);
    object["ranks"] = record.across.ranks;
  }
  if (constrain(record.constraints)) write(object["constraints"], record.constraints);
}

/// The members of an object, each read into a value of exactly its type. Throws std::exception.
class Fields {
 public:
  explicit Fields(const json& object) : object_(object) {}

  bool has(const std::string& key) const { return object_.contains(key); }

  template <typename T>
  void read(const std::string& key, T& value) {
    known_.insert(key);
    convert(key, at(key), value);
  }
  /// If it is there.
  template <typename T>
  void read_if(const std::string& key, T& value) {
    if (has(key)) read(key, value);
  }
  const json& object(const std::string& key) {
    known_.insert(key);
    if (!at(key).is_object()) refuse(key, "is not an object");
    return at(key);
  }
  const json& objects(const std::string& key) {
    known_.insert(key);
    const bool are =
        at(key).is_array() && std::ranges::all_of(at(key), [](const json& one) { return one.is_object(); });
    if (!are) refuse(key, "is not a list of objects");
    return at(key);
  }

  /// Throws if there is a member that nobody has read.
  void refuse_others() const {
    for (const auto& [key, value] : object_.items()) {
      if (!known_.contains(key)) refuse(key, "is not known");
    }
  }

 private:
  const json& at(const std::string& key) const {
    const auto found = object_.find(key);
    if (found == object_.end()) refuse(key, "is missing");
    return *found;
  }
  [[noreturn]] static void refuse(const std::string& key, const std::string& why) {
    throw std::invalid_argument(key + " " + why);
  }
  static void convert(const std::string& key, const json& from, bool& to) {
    if (!from.is_boolean()) refuse(key, "is neither true nor false");
    to = from.get<bool>();
  }
  static void convert(const std::string& key, const json& from, double& to) {
    if (!from.is_number() || !std::isfinite(from.get<double>())) refuse(key, "is not a number");
    to = from.get<double>();
  }
  static void convert(const std::string& key, const json& from, std::string& to) {
    if (!from.is_string()) refuse(key, "is not a text");
    to = from.get<std::string>();
    if (std::any_of(to.begin(), to.end(), is_control_character))
      refuse(key, "has control characters");  // it is shown on terminals
  }
  template <typename Enum>
    requires std::is_enum_v<Enum>
  static void convert(const std::string& key, const json& from, Enum& to) {
    std::string text;
    convert(key, from, text);
    const auto parsed = parse_enumerator<Enum>(text);
    if (!parsed) refuse(key, "has the unknown value " + text);
    to = *parsed;
  }
  template <std::integral Integer>
  static void convert(const std::string& key, const json& from, Integer& to) {
    const bool fits = from.is_number_unsigned()
                          ? std::in_range<Integer>(from.get<std::uint64_t>())
                          : from.is_number_integer() && std::in_range<Integer>(from.get<std::int64_t>());
    if (!fits) refuse(key, "is not an integer, or too large");
    to = from.get<Integer>();
  }

  const json& object_;
  std::set<std::string, std::less<>> known_;
};

void read_constraints(const json& object, Constraints& constraints) {
  Fields fields(object);
  fields.read_if("batch_invariant", constraints.batch_invariant);
  fields.read_if("workspace_bytes", constraints.workspace_bytes);
  fields.read_if("sms", constraints.sms);
  fields.refuse_others();
}

/// The problem, the ranks that it is computed by, and the constraints that its choice keeps to.
void read_problem(const json& object, TuningRecord& record) {
  Fields fields(object);
  Problem p;
  for_each_field([&](const ProblemField& field, auto member) {
    if (field.always_written)
      fields.read(std::string(field.name), member(p));
    else
      fields.read_if(std::string(field.name), member(p));
  });
  if (fields.has("ranks")) {
    fields.read("ranks", record.across.ranks);
    fields.read("exchange", record.across.exchange);
    if (record.across.ranks < 2) throw std::invalid_argument("ranks is not a count of several");
  }
  if (fields.has("constraints")) read_constraints(fields.object("constraints"), record.constraints);
  fields.refuse_others();
  record.problem = shape_of(normalise(p));
}

/// Whether the configuration can run the problem on a device of this kind, however much shared memory that has, and
/// keeps to its constraints.
std::string why_illegal(const TuningRecord& record) {
  DeviceInfo device;
  device.compute_capability = record.compute_capability;
  device.sm_count = record.sm_count;
  device.smem_per_block = device.smem_per_sm = std::numeric_limits<std::size_t>::max();
  const NormalProblem problem = problem_of_kernel(record);
  if (std::string why = why_illegal(record.config, problem, device); !why.empty()) return why;
  return ConstraintFilter(record.constraints, problem, part_of(device, record.constraints)).why_not(record.config);
}

bool is_foreign(const json& object) {
  const auto differs = [&](const char* key, const json& ours) {
    const auto found = object.find(key);
    return found != object.end() && found->type() == ours.type() && *found != ours;
  };
  return object.is_object() && (differs("schema", json(unsigned(schema))) || differs("library", json(JITGEMM_VERSION)));
}

TuningRecord record_from(const json& object) {
  TuningRecord record;
  Fields fields(object);
  read_problem(fields.object("problem"), record);
  Fields device(fields.object("device"));
  device.read("name", record.device_name);
  device.read("compute_capability", record.compute_capability);
  device.read("sm_count", record.sm_count);
  device.read("emulated", record.emulated);
  std::string config;
  fields.read("config", config);
  record.config = parse_kernel_config(config);
  if (record.across.ranks > 1) fields.read("method", record.method);
  fields.read("median_us", record.median_us);
  fields.read("spread", record.spread);
  fields.read("library", record.library_version);
  fields.read("date", record.date);
  fields.read_if("candidates", record.candidates);
  if (fields.has("runners_up")) {
    for (const json& runner_up : fields.objects("runners_up")) {
      MeasuredConfig& measured = record.runners_up.emplace_back();
      Fields its(runner_up);
      its.read("config", config);
      measured.config = parse_kernel_config(config);
      its.read("median_us", measured.median_us);
    }
  }
  return record;
}

std::string why_implausible(const TuningRecord& record) {
  if (!(record.median_us > 0)) return "median_us is not a time";
  if (!(record.spread >= 0)) return "spread is not a fraction";
  for (const MeasuredConfig& runner_up : record.runners_up) {
    if (!(runner_up.median_us > 0)) return "a runner-up's median_us is not a time";
  }
  if (record.sm_count <= 0) return "sm_count is not a count";
  if (record.compute_capability <= 0) return "compute_capability is not one";
  if (record.method == ParallelMethod::one_shot) return "method is chosen without measuring";
  return why_illegal(record);
}

/// The date if it is one, else nothing, which counts as the earliest.
std::string_view day_of(const TuningRecord& record) {
  const std::string& date = record.date;
  const auto fits = [&date](std::size_t i) {
    return i == 4 || i == 7 ? date[i] == '-' : date[i] >= '0' && date[i] <= '9';
  };
  if (date.size() != 10) return {};
  for (std::size_t i = 0; i < 10; ++i) {
    if (!fits(i)) return {};
  }
  return date;
}

}  // namespace

std::string to_string(const AcrossRanks& across) {
  if (across.ranks < 2) return {};
  return std::string(to_string(across.exchange)) + " of " + std::to_string(across.ranks) + " ranks";
}

NormalProblem problem_of_kernel(const TuningRecord& record) {
  const auto& [ranks, exchange] = record.across;
  return ranks < 2 ? record.problem : problem_of(rank_problem(record.problem, exchange, ranks), record.method);
}

std::string to_json_line(const TuningRecord& record) {
  JsonDocument document;
  json& line = document.root();
  line["schema"] = schema;
  write(line["problem"], record);
  json& device = line["device"];
  device["name"] = record.device_name;
  device["compute_capability"] = record.compute_capability;
  device["sm_count"] = record.sm_count;
  device["emulated"] = record.emulated;
  line["config"] = to_string(record.config);
  if (record.across.ranks > 1) line["method"] = to_string(record.method);
  line["median_us"] = record.median_us;
  line["spread"] = record.spread;
  line["library"] = record.library_version;
  line["date"] = record.date;
  if (!record.candidates.empty()) line["candidates"] = record.candidates;
  for (const MeasuredConfig& runner_up : record.runners_up) {
    json& its = line["runners_up"].emplace_back();
    its["config"] = to_string(runner_up.config);
    its["median_us"] = runner_up.median_us;
  }
  return document.text();
}

std::optional<TuningRecord> parse_json_line(const std::string& line, std::string* why_not, bool* foreign) {
  const auto refuse = [why_not](const std::string& why) {
    if (why_not) *why_not = why;
    return std::nullopt;
  };
  try {
    const JsonDocument document(line);
    const json& object = document.root();
    if (foreign) *foreign = is_foreign(object);
    int written_as = 0;
    Fields(object).read("schema", written_as);
    if (written_as != schema) return refuse("another schema");
    const TuningRecord record = record_from(object);
    if (const std::string why = why_implausible(record); !why.empty()) return refuse(why);
    return record;
  } catch (const std::exception& error) {  // JsonDocument's, parse_kernel_config's, normalise's
    if (is_out_of_memory(error)) throw;
    return refuse(error.what());
  }
}

bool same_key(const TuningRecord& x, const TuningRecord& y) {
  return x.compute_capability == y.compute_capability && x.sm_count == y.sm_count && x.emulated == y.emulated &&
         x.device_name == y.device_name && x.constraints == y.constraints && x.across == y.across &&
         equal(x.problem, y.problem);
}

bool replaces(const TuningRecord& record, const TuningRecord& old) {
  if (day_of(record) != day_of(old)) return day_of(record) > day_of(old);
  if (record.median_us != old.median_us) return record.median_us < old.median_us;
  return to_json_line(record) > to_json_line(old);
}

}  // namespace jitgemm
