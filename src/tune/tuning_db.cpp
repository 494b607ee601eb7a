#include "tune/tuning_db.hpp"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <limits>
#include <mutex>
#include <unordered_map>

#include "core/problem.hpp"
#include "util/atomic_file.hpp"
#include "util/log.hpp"

namespace jitgemm {
namespace {

constexpr double lock_timeout_seconds = 2;

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
      p.layout_b != shape.layout_b || reads_ab(p) != reads_ab(shape)) {
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

/// One write, so that lines of processes that cannot lock do not mix either. False with errno's text.
bool append_line(const std::filesystem::path& file, std::string line, std::string* why) {
  std::error_code ignored;
  std::filesystem::create_directories(file.parent_path(), ignored);  // if it fails, open() says so
  const FileLock lock(file.string() + ".lock", lock_timeout_seconds);
  const auto fail = [why] { return *why = std::strerror(errno), false; };
  const int descriptor = ::open(file.c_str(), O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0600);
  if (descriptor < 0) return fail();
  struct stat status {};
  char last = '\n';
  bool done = ::fstat(descriptor, &status) == 0;
  if (done && !S_ISREG(status.st_mode)) errno = EINVAL, done = false;
  if (done && status.st_size > 0) done = ::pread(descriptor, &last, 1, status.st_size - 1) == 1;
  line += '\n';
  if (last != '\n') line.insert(0, 1, '\n');  // what a killed process left gets a line of its own
  rlimit limit{};                             // past it, write() raises a signal
  if (done && getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
      rlim_t(status.st_size) + line.size() > limit.rlim_cur) {
    errno = EFBIG;
    done = false;
  }
  if (done) {
    const ssize_t written = ::write(descriptor, line.data(), line.size());
    if (written >= 0 && std::size_t(written) < line.size()) errno = ENOSPC;
    done = written == ssize_t(line.size());
  }
  if (done) done = ::fsync(descriptor) == 0 || errno == EINVAL || errno == ENOTSUP;
  if (!done) fail();
  ::close(descriptor);
  return done;
}

}  // namespace

struct TuningDb::Impl {
  struct Entry {
    TuningRecord record;
    std::uint64_t sequence;  // the higher, the later
  };

  std::mutex mutex;
  std::optional<std::filesystem::path> file;
  std::vector<Entry> entries;
  std::unordered_multimap<std::size_t, std::size_t> by_shape;  // hash_value(problem) -> place in entries
  std::uint64_t next_sequence = 0;
  // How far the file has been read.
  ino_t inode = 0;
  off_t offset = 0;
  int lines = 0;

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

  void forget() {
    entries.clear();
    by_shape.clear();
    inode = 0;
    offset = 0;
    lines = 0;
  }

  /// Reads the whole lines that the file has beyond those read before.
  void refresh() {
    if (!file) return;
    struct stat status {};
    const bool exists = ::stat(file->c_str(), &status) == 0 && S_ISREG(status.st_mode);
    if (inode != 0 && (!exists || status.st_ino != inode || status.st_size < offset)) forget();
    if (!exists || (status.st_ino == inode && status.st_size == offset)) return;
    const int descriptor = ::open(file->c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (descriptor < 0) return warn_once(file->string(), unusable("cannot be read", std::strerror(errno)));
    inode = status.st_ino;
    std::string text(std::size_t(status.st_size - offset), '\0');
    std::size_t got = 0;
    while (got < text.size()) {
      const ssize_t count = ::pread(descriptor, text.data() + got, text.size() - got, offset + off_t(got));
      if (count <= 0) break;
      got += std::size_t(count);
    }
    ::close(descriptor);
    text.resize(got);
    parse_lines(text);
  }

  void parse_lines(const std::string& text) {
    std::size_t begin = 0;
    for (std::size_t end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1) {
      ++lines;
      if (end == begin) continue;
      std::string why;
      if (const auto record = parse_json_line(text.substr(begin, end - begin), &why)) {
        insert(*record);
      } else {
        warn_once(file->string(), "tuning database " + file->string() + ": skipped line " + std::to_string(lines) +
                                      " (" + why + ") and maybe more; delete such lines to be rid of this");
      }
    }
    offset += off_t(begin);
  }

  std::string unusable(const std::string& what, const std::string& why) const {
    return "tuning database " + file->string() + " " + what + " (" + why +
           "): results last as long as this process; give a usable JITGEMM_CACHE_DIR";
  }
};

TuningDb::TuningDb(std::optional<std::filesystem::path> file) : impl_(std::make_shared<Impl>()) {
  impl_->file = std::move(file);
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
  std::string why = "no file";
  const bool written = impl_->file && append_line(*impl_->file, to_json_line(dated), &why);
  if (impl_->file && !written) warn_once(impl_->file->string() + " write", impl_->unusable("cannot be written", why));
  const std::lock_guard guard(impl_->mutex);
  impl_->refresh();
  if (!written) impl_->insert(dated);
}

std::vector<TuningRecord> TuningDb::records() {
  const std::lock_guard guard(impl_->mutex);
  impl_->refresh();
  std::vector<TuningRecord> records;
  for (const Impl::Entry& entry : impl_->entries) records.push_back(entry.record);
  return records;
}

}  // namespace jitgemm
