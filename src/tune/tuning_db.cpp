#include "tune/tuning_db.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <iterator>
#include <limits>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "core/problem.hpp"
#include "util/line_file.hpp"
#include "util/log.hpp"

namespace jitgemm {
namespace {

std::string today() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  char text[16];
  std::strftime(text, sizeof text, "%Y-%m-%d", &utc);
  return text;
}

std::string origin(const TuningRecord& record) { return "measured " + record.date + " on " + record.device_name; }

bool same_device(const TuningRecord& record, const DeviceInfo& device) {
  return record.compute_capability == device.compute_capability && record.sm_count == device.sm_count &&
         record.emulated == device.emulated;
}

bool same_key(const TuningRecord& x, const TuningRecord& y) {
  return x.compute_capability == y.compute_capability && x.sm_count == y.sm_count && x.emulated == y.emulated &&
         x.device_name == y.device_name && equal(x.problem, y.problem);
}

/// Infinite if it is no neighbour.
double distance(const TuningRecord& record, const Problem& shape, const DeviceInfo& device) {
  const Problem& p = record.problem;
  constexpr double none = std::numeric_limits<double>::infinity();
  if (p.a != shape.a || p.b != shape.b || p.d != shape.d || p.layout_a != shape.layout_a ||
      p.layout_b != shape.layout_b || reads_ab(p) != reads_ab(shape) || p.batch != shape.batch) {
    return none;
  }
  if (record.compute_capability != device.compute_capability || record.emulated != device.emulated) return none;
  const bool counts_on_sms = record.config.grid > 0 || record.config.splits > 1;
  if (counts_on_sms && record.sm_count != device.sm_count) return none;

  const auto ratio = [](double x, double y) { return std::abs(std::log2(std::max(1.0, x) / std::max(1.0, y))); };
  const double m = ratio(double(p.m), double(shape.m)), n = ratio(double(p.n), double(shape.n)),
               k = ratio(double(p.k), double(shape.k));
  if (std::max({m, n, k}) > 1) return none;
  // Rows that are aligned otherwise, or another size of device, count as distance too.
  return m + n + k + ratio(p.align_a, shape.align_a) + ratio(p.align_b, shape.align_b) +
         ratio(record.sm_count, device.sm_count);
}

}  // namespace

struct TuningDb::Impl {
  struct Entry {
    TuningRecord record;
    std::uint64_t sequence;  // the higher, the later
  };

  std::mutex mutex;  // of all but append()
  std::optional<LineFile> file;
  std::vector<Entry> entries;
  std::unordered_multimap<std::size_t, std::size_t> by_shape;  // hash_value(problem) -> place in entries
  std::uint64_t next_sequence = 0;
  std::vector<TuningRecord> unwritten;  // what the file has not taken yet; tried again with each add()

  void insert(const TuningRecord& record) {
    const std::size_t hash = hash_value(record.problem);
    const auto [begin, end] = by_shape.equal_range(hash);
    for (auto i = begin; i != end; ++i) {
      Entry& entry = entries[i->second];
      if (!same_key(entry.record, record)) continue;
      entry = {record, next_sequence++};
      return;
    }
    by_shape.emplace(hash, entries.size());
    entries.push_back({record, next_sequence++});
  }

  void insert(const std::vector<TuningRecord>& records) {
    for (const TuningRecord& record : records) insert(record);
  }

  void forget() {
    entries.clear();
    by_shape.clear();
    insert(unwritten);
  }

  /// Takes in what the file has beyond what was read before. False if it cannot be read; what was read stays.
  bool refresh() {
    if (!file) return false;
    std::string why;
    if (file->read([this] { forget(); }, [this](const LineFile::Line& line) { take(line); }, &why)) return true;
    warn("cannot be read", why);
    return false;
  }

  void take(const LineFile::Line& line) {
    if (line.ended && !line.skipped && line.text.empty()) return;
    std::string why = line.skipped ? line.skipped : "";
    bool foreign = false;
    if (!line.skipped) {
      if (const auto record = parse_json_line(std::string(line.text), &why, &foreign)) return insert(*record);
    }
    if (!line.ended) return;  // it may be an append under way
    const std::string name = file->path().string(), number = std::to_string(line.number);
    if (foreign) {
      logger().debug("tuning database {}: line {} is of another version ({})", name, number, why);
    } else {
      warn_once(name + " lines", "tuning database " + name + ": skipped line " + number + " (" + why +
                                     ") and maybe more; delete such lines to be rid of this");
    }
  }

  void warn(const std::string& what, const std::string& why) const {
    const std::string name = file->path().string();
    warn_once(name + " " + what, "tuning database " + name + " " + what + " (" + why +
                                     "): results last as long as this process; give a usable JITGEMM_CACHE_DIR");
  }
};

TuningDb::TuningDb(std::optional<std::filesystem::path> file) : impl_(std::make_shared<Impl>()) {
  if (file) impl_->file.emplace(std::move(*file));
}

TuningLookup TuningDb::find(const Problem& shape, const DeviceInfo& device) {
  const std::lock_guard guard(impl_->mutex);
  impl_->refresh();
  const auto legal = [&](const TuningRecord& record) { return why_illegal(record.config, shape, device).empty(); };

  const Impl::Entry* exact = nullptr;
  const auto better = [&](const Impl::Entry& entry) {
    if (!exact) return true;
    const bool named = entry.record.device_name == device.name, best_named = exact->record.device_name == device.name;
    return named != best_named ? named : entry.sequence > exact->sequence;
  };
  const auto [begin, end] = impl_->by_shape.equal_range(hash_value(shape));
  for (auto i = begin; i != end; ++i) {
    const Impl::Entry& entry = impl_->entries[i->second];
    if (!equal(entry.record.problem, shape) || !same_device(entry.record, device) || !legal(entry.record)) continue;
    if (better(entry)) exact = &entry;
  }
  if (exact) {
    const TuningRecord& record = exact->record;
    return {Match::exact, record.config, record.median_us, record.spread, origin(record)};
  }

  const Impl::Entry* nearest = nullptr;
  double least = std::numeric_limits<double>::infinity();
  for (const Impl::Entry& entry : impl_->entries) {
    const double far = distance(entry.record, shape, device);
    const bool nearer = far < least || (nearest && far == least && entry.sequence > nearest->sequence);
    if (!nearer || !legal(entry.record)) continue;
    nearest = &entry;
    least = far;
  }
  if (!nearest) return {};
  char text[32];
  std::snprintf(text, sizeof text, "%.2f", least);
  const Problem& p = nearest->record.problem;
  return {Match::nearest, nearest->record.config, 0, 0,
          "nearest is m=" + std::to_string(p.m) + " n=" + std::to_string(p.n) + " k=" + std::to_string(p.k) +
              " at distance " + text + ", " + origin(nearest->record)};
}

void TuningDb::add(const TuningRecord& record) {
  TuningRecord dated = record;
  dated.problem = shape_of(record.problem);
  if (dated.date.empty()) dated.date = today();
  std::vector<TuningRecord> records;
  {
    const std::lock_guard guard(impl_->mutex);
    records = std::exchange(impl_->unwritten, {});
  }
  records.push_back(std::move(dated));
  bool written = false;
  if (impl_->file) {
    std::vector<std::string> lines;
    std::transform(records.begin(), records.end(), std::back_inserter(lines), to_json_line);
    std::string why;
    written = impl_->file->append(lines, &why);
    if (!written) impl_->warn("cannot be written", why);
  }
  const std::lock_guard guard(impl_->mutex);
  if (const bool readable = impl_->refresh(); !readable || !written) impl_->insert(records);
  if (impl_->file && !written) std::move(records.begin(), records.end(), std::back_inserter(impl_->unwritten));
}

std::vector<TuningRecord> TuningDb::records() {
  const std::lock_guard guard(impl_->mutex);
  impl_->refresh();
  std::vector<TuningRecord> records;
  for (const Impl::Entry& entry : impl_->entries) records.push_back(entry.record);
  return records;
}

}  // namespace jitgemm
