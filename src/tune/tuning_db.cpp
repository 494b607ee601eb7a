#include "tune/tuning_db.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <iterator>
#include <limits>
#include <mutex>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "core/groups.hpp"
#include "core/problem.hpp"
#include "jitgemm/error.hpp"
#include "plan/constraints.hpp"
#include "util/errno_text.hpp"
#include "util/line_file.hpp"
#include "util/log.hpp"
#include "util/number_text.hpp"
#include "util/today.hpp"

namespace jitgemm {
namespace {

std::string origin(const TuningRecord& record) { return "measured " + record.date + " on " + record.device_name; }

bool same_device(const TuningRecord& record, const DeviceInfo& device) {
  return record.compute_capability == device.compute_capability && record.sm_count == device.sm_count &&
         record.emulated == device.emulated;
}

/// Infinite if it is no neighbour.
double distance(const TuningRecord& record, const NormalProblem& shape, const DeviceInfo& device) {
  const NormalProblem& p = record.problem;
  constexpr double none = std::numeric_limits<double>::infinity();
  if (record.across.ranks > 1) return none;  // it is more than a product that was measured
  if (p.a.type != shape.a.type || p.b.type != shape.b.type || p.d.type != shape.d.type ||
      p.a.layout != shape.a.layout || p.b.layout != shape.b.layout || reads_ab(p) != reads_ab(shape) ||
      p.grouping != shape.grouping || (p.batch != shape.batch && !has_groups(p))) {
    return none;
  }
  if (record.compute_capability != device.compute_capability || record.emulated != device.emulated) return none;
  const bool counts_on_sms = record.config.grid > 0 || record.config.splits > 1;
  if (counts_on_sms && record.sm_count != device.sm_count) return none;

  const auto ratio = [](double x, double y) { return std::abs(std::log2(std::max(1.0, x) / std::max(1.0, y))); };
  // Groups' own size is what they are expected to have of rows, or of k.
  const auto m_of = [](const NormalProblem& x) { return double(has_groups_of_rows(x) ? x.expected_m : x.m); };
  const auto k_of = [](const NormalProblem& x) { return double(x.grouping == Grouping::along_k ? x.expected_m : x.k); };
  const double m = ratio(m_of(p), m_of(shape)) + ratio(double(p.batch), double(shape.batch)),
               n = ratio(double(p.n), double(shape.n)), k = ratio(k_of(p), k_of(shape));
  if (std::max({m, n, k}) > 1) return none;
  // Rows that are aligned otherwise, or another size of device, count as distance too.
  return m + n + k + ratio(p.a.alignment, shape.a.alignment) + ratio(p.b.alignment, shape.b.alignment) +
         ratio(record.sm_count, device.sm_count);
}

/// One file's records, or those of none. Not thread-safe but for append to the file.
class Layer {
 public:
  struct Entry {
    TuningRecord record;
    std::uint64_t sequence;  // the higher, the later
  };
  struct Neighbour {
    const Entry* entry = nullptr;
    double distance = std::numeric_limits<double>::infinity();
  };

  /// way_out: how to be rid of a warning about the file.
  Layer(std::optional<LineFile> file, std::string name, std::string way_out)
      : name_(std::move(name)), way_out_(std::move(way_out)), file_(std::move(file)) {}

  const std::optional<LineFile>& file() const { return file_; }
  const std::vector<Entry>& entries() const { return entries_; }

  void insert(const TuningRecord& record) {
    if (const Entry* old = find(record)) {
      Entry entry{record, next_sequence_};
      std::swap(entries_[std::size_t(old - entries_.data())], entry);
      ++next_sequence_;
      return;
    }
    entries_.push_back({record, next_sequence_});
    try {
      by_shape_.emplace(hash_value(record.problem), entries_.size() - 1);
    } catch (...) {
      entries_.pop_back();  // or the two would differ from here on
      throw;
    }
    ++next_sequence_;
  }
  void insert(const std::vector<TuningRecord>& records) {
    for (const TuningRecord& record : records) insert(record);
  }

  /// Takes in what the file has beyond what was read before; what it was rewritten without is forgotten, but not
  /// `kept`. False if it cannot be read; what was read stays.
  bool refresh(const std::vector<TuningRecord>& kept) {
    if (!file_) return false;
    std::string why;
    const bool readable = read(kept, &why);
    if (!readable) warn("cannot be read", why);
    if (!fault_.empty()) warn_of_fault();
    return readable;
  }
  /// The same without a word. False, with the reason in *why, if it cannot be read.
  bool read(const std::vector<TuningRecord>& kept, std::string* why) {
    const auto forget = [&] {
      entries_.clear();
      by_shape_.clear();
      fault_.clear();
      foreign_ = 0;
      insert(kept);
    };
    return file_->read(forget, [this](const LineFile::Line& line) { take(line); }, why);
  }
  /// The first line that is no record: "line 3 (why)".
  const std::string& fault() const { return fault_; }
  /// Lines of other versions that this one cannot read.
  std::size_t foreign() const { return foreign_; }

  void warn_of_fault() const {
    const std::string path = file_->path().string();
    warn_once(path + " lines",
              name_ + " " + path + ": skipped " + fault_ + " and maybe more; delete such lines to be rid of this");
  }

  void warn(const std::string& what, const std::string& why) const {
    const std::string path = file_->path().string();
    warn_once(path + " " + what + why, name_ + " " + path + " " + what + " (" + why +
                                           "): " + (is_out_of_descriptors(why) ? more_descriptors : way_out_));
  }

  /// The record of this key.
  const Entry* find(const TuningRecord& record) const {
    const auto [begin, end] = by_shape_.equal_range(hash_value(record.problem));
    for (auto i = begin; i != end; ++i) {
      if (same_key(entries_[i->second].record, record)) return &entries_[i->second];
    }
    return nullptr;
  }

  const Entry* exact(const NormalProblem& shape, const AcrossRanks& across, const DeviceInfo& device,
                     const Constraints& constraints) const {
    const Entry* best = nullptr;
    const auto may_run = [&](const TuningRecord& record) {
      const NormalProblem problem = problem_of_kernel(record);
      return why_illegal(record.config, problem, device).empty() &&
             ConstraintFilter(constraints, problem, device).allows(record.config);
    };
    const auto better = [&](const Entry& entry) {
      if (!best) return true;
      const bool named = entry.record.device_name == device.name, best_named = best->record.device_name == device.name;
      return named != best_named ? named : entry.sequence > best->sequence;
    };
    const auto [begin, end] = by_shape_.equal_range(hash_value(shape));
    for (auto i = begin; i != end; ++i) {
      const Entry& entry = entries_[i->second];
      const TuningRecord& record = entry.record;
      if (!equal(record.problem, shape) || record.across != across || record.constraints != constraints ||
          !same_device(record, device))
        continue;
      if (better(entry) && may_run(record)) best = &entry;
    }
    return best;
  }

  Neighbour nearest(const NormalProblem& shape, const DeviceInfo& device, const Constraints& constraints) const {
    const ConstraintFilter filter(constraints, shape, device);
    Neighbour nearest;
    for (const Entry& entry : entries_) {
      if (entry.record.constraints != constraints) continue;
      const double far = distance(entry.record, shape, device);
      const bool nearer = far < nearest.distance ||
                          (nearest.entry && far == nearest.distance && entry.sequence > nearest.entry->sequence);
      const KernelConfig& config = entry.record.config;
      if (nearer && why_illegal(config, shape, device).empty() && filter.allows(config)) nearest = {&entry, far};
    }
    return nearest;
  }

 private:
  void take(const LineFile::Line& line) {
    if (line.ended && !line.skipped && line.text.empty()) return;
    std::string why = line.skipped ? line.skipped : "";
    bool foreign = false;
    if (!line.skipped) {
      if (const auto record = parse_json_line(std::string(line.text), &why, &foreign)) return insert(*record);
    }
    if (!line.ended) return;  // it may be an append under way
    const std::string path = file_->path().string(), number = std::to_string(line.number);
    if (foreign) {
      ++foreign_;
      logger().debug("{} {}: line {} is of another version ({})", name_, path, number, why);
    } else if (fault_.empty()) {
      fault_ = "line " + number + " (" + why + ")";
    }
  }

  std::string name_, way_out_;
  std::optional<LineFile> file_;
  std::vector<Entry> entries_;
  std::unordered_multimap<std::size_t, std::size_t> by_shape_;  // hash_value(problem) -> place in entries_
  std::uint64_t next_sequence_ = 0;
  std::string fault_;
  std::size_t foreign_ = 0;
};

TuningLookup exact_answer(const TuningRecord& record, const std::string& layer) {
  return {.match = Match::exact,
          .config = record.config,
          .measured_us = record.median_us,
          .spread = record.spread,
          .why = origin(record) + layer,
          .runners_up = record.runners_up,
          .method = record.method};
}

TuningLookup nearest_answer(const TuningRecord& record, double distance, const std::string& layer) {
  const NormalProblem& p = record.problem;
  return {Match::nearest, record.config, 0, 0,
          "nearest is m=" + std::to_string(p.m) + " n=" + std::to_string(p.n) + " k=" + std::to_string(p.k) +
              " at distance " + fixed_text(distance, 2) + ", " + origin(record) + layer};
}

constexpr const char* of_system = ", of the system's database";

}  // namespace

struct TuningDb::Impl {
  std::mutex mutex;  // of all but append()
  Layer own;
  std::optional<Layer> system;
  std::vector<TuningRecord> unwritten;  // what the own file has not taken yet; tried again with each add()

  bool refresh() {
    if (system) system->refresh({});
    return own.refresh(unwritten);
  }
  /// Of the own file, else of the system's.
  std::optional<TuningLookup> exact(const NormalProblem& shape, const AcrossRanks& across, const DeviceInfo& device,
                                    const Constraints& constraints) const {
    if (const auto* entry = own.exact(shape, across, device, constraints)) return exact_answer(entry->record, "");
    if (const auto* entry = system ? system->exact(shape, across, device, constraints) : nullptr)
      return exact_answer(entry->record, of_system);
    return std::nullopt;
  }
  /// To the own file; false, with a warning, if it does not take them or there is none.
  bool append(const std::vector<TuningRecord>& records) const {
    const auto& file = own.file();
    if (!file) return false;
    std::vector<std::string> lines;
    std::transform(records.begin(), records.end(), std::back_inserter(lines), to_json_line);
    std::string why;
    if (file->append(lines, &why)) return true;
    own.warn("cannot be written", why);
    return false;
  }
  /// For the next add(). Those that another thread keeps meanwhile come first.
  void keep(std::vector<TuningRecord> records) {
    const std::lock_guard guard(mutex);
    unwritten.reserve(unwritten.size() + records.size());
    std::move(records.begin(), records.end(), std::back_inserter(unwritten));
  }
};

TuningDb::TuningDb(std::optional<std::filesystem::path> file, std::optional<std::filesystem::path> system_file,
                   mode_t mode)
    : impl_(new Impl{.mutex = {},
                     .own = {file ? std::optional(LineFile(std::move(*file), mode)) : std::nullopt, "tuning database",
                             "results last as long as this process; correct the file's owner and permissions, or name "
                             "another cache directory"},
                     .system = {},
                     .unwritten = {}}) {
  if (system_file) {
    impl_->system.emplace(LineFile(std::move(*system_file)), "system tuning database",
                          "correct its owner and permissions, or unset JITGEMM_SYSTEM_CACHE_DIR");
  }
}

TuningLookup TuningDb::find(const NormalProblem& shape, const DeviceInfo& device, const Constraints& constraints) {
  const std::lock_guard guard(impl_->mutex);
  impl_->refresh();
  const Layer& own = impl_->own;
  const std::optional<Layer>& system = impl_->system;
  if (auto exact = impl_->exact(shape, {}, device, constraints)) return *std::move(exact);
  const Layer::Neighbour ours = own.nearest(shape, device, constraints);
  const Layer::Neighbour theirs = system ? system->nearest(shape, device, constraints) : Layer::Neighbour{};
  if (theirs.distance < ours.distance) return nearest_answer(theirs.entry->record, theirs.distance, of_system);
  if (ours.entry) return nearest_answer(ours.entry->record, ours.distance, "");
  return {};
}

TuningLookup TuningDb::find(const NormalProblem& shape, const AcrossRanks& across, const DeviceInfo& device,
                            const Constraints& constraints) {
  const std::lock_guard guard(impl_->mutex);
  impl_->refresh();
  return impl_->exact(shape, across, device, constraints).value_or(TuningLookup{});
}

void TuningDb::add(const TuningRecord& record) {
  TuningRecord dated = record;
  dated.problem = shape_of(record.problem);
  if (dated.date.empty()) dated.date = today();
  std::vector<TuningRecord> records;
  {
    const std::lock_guard guard(impl_->mutex);
    impl_->unwritten.push_back(std::move(dated));
    records = std::exchange(impl_->unwritten, {});
  }
  bool written = false;
  try {
    written = impl_->append(records);
    const std::lock_guard guard(impl_->mutex);
    if (const bool readable = impl_->refresh(); !readable || !written) impl_->own.insert(records);
  } catch (...) {
    if (!written) impl_->keep(std::move(records));
    throw;
  }
  if (!written && impl_->own.file()) impl_->keep(std::move(records));
}

std::size_t TuningDb::merge(const std::vector<TuningRecord>& records) {
  std::vector<std::string> lines;
  const auto better_ones = [&] {
    const std::lock_guard guard(impl_->mutex);
    impl_->refresh();
    Layer best(std::nullopt, "", "");
    const auto beats = [](const TuningRecord& record, const Layer& layer) {
      const Layer::Entry* old = layer.find(record);
      return !old || replaces(record, old->record);
    };
    for (const TuningRecord& record : records) {
      if (beats(record, impl_->own) && beats(record, best)) best.insert(record);
    }
    for (const Layer::Entry& entry : best.entries()) {
      lines.push_back(to_json_line(entry.record));
      if (!impl_->own.file()) impl_->own.insert(entry.record);
    }
    return lines;
  };
  const auto& file = impl_->own.file();
  std::string why;
  // The file's lock keeps others from adding meanwhile what would then be overwritten.
  if (!file) {
    better_ones();
  } else if (!file->append(better_ones, &why)) {
    throw Error(ErrorCode::io, "cannot write " + file->path().string() + ": " + why +
                                   "; make room or choose another directory, and import again");
  }
  return lines.size();
}

std::vector<TuningRecord> read_records(const std::filesystem::path& file, std::size_t& foreign) {
  Layer layer(LineFile::of_anyone(file), "tuning database", "");
  std::string why;
  struct stat status{};
  if (stat(file.c_str(), &status) != 0) {
    why = errno_text(errno);
  } else if (layer.read({}, &why) && layer.entries().empty() && layer.foreign() == 0 && status.st_size > 0) {
    why = "it has no tuning result" + (layer.fault().empty() ? "" : ", as in " + layer.fault());
  }
  if (!why.empty()) {
    throw Error(ErrorCode::io,
                "cannot read the tuning database " + file.string() + ": " + why + "; " +
                    (is_out_of_descriptors(why) ? more_descriptors : "give one that can be read, or a wisdom file"));
  }
  if (!layer.fault().empty()) layer.warn_of_fault();
  foreign = layer.foreign();
  std::vector<TuningRecord> records;
  for (const Layer::Entry& entry : layer.entries()) records.push_back(entry.record);
  return records;
}

std::vector<TuningRecord> TuningDb::records() {
  const std::lock_guard guard(impl_->mutex);
  impl_->refresh();
  std::vector<TuningRecord> records;
  for (const Layer::Entry& entry : impl_->own.entries()) records.push_back(entry.record);
  if (!impl_->system) return records;
  for (const Layer::Entry& entry : impl_->system->entries()) {
    if (!impl_->own.find(entry.record)) records.push_back(entry.record);
  }
  return records;
}

}  // namespace jitgemm
