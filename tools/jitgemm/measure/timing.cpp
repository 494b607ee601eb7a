#include "measure/timing.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>
#include <random>
#include <utility>

#include "core/operand_matrix.hpp"
#include "core/problem.hpp"
#include "core/type_rules.hpp"
#include "measure/launch_graph.hpp"

namespace jitgemm::cli {
namespace {

std::size_t padded(std::size_t bytes) { return (bytes + 255) / 256 * 256; }

class Event {
 public:
  explicit Event(Backend& backend) : backend_(backend), event_(backend.create_event()) {}
  ~Event() { backend_.destroy_event(event_); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  void record(Stream stream) { backend_.record_event(event_, stream); }
  double elapsed_us_since(const Event& begin) const { return backend_.elapsed_us(begin.event_, event_); }

 private:
  Backend& backend_;
  void* event_;
};

Timing timing_of(const std::vector<double>& us, int launches) {
  const double middle = median(us), p20 = quantile(us, 0.2), p80 = quantile(us, 0.8);
  return {.median_us = middle,
          .spread = middle > 0 ? (p80 - p20) / middle : 0,
          .p20_us = p20,
          .p80_us = p80,
          .launches = launches};
}

using Clock = std::chrono::steady_clock;

/// Visits every arm in each round, in an order drawn anew: whoever always came after the same arm would live with the
/// clocks that that one leaves behind.
class Rounds {
 public:
  explicit Rounds(std::size_t arms) : order_(arms) { std::iota(order_.begin(), order_.end(), std::size_t(0)); }

  template <typename Visit>
  void next(const Visit& visit) {
    std::shuffle(order_.begin(), order_.end(), random_);
    for (std::size_t arm : order_) visit(arm);
  }

 private:
  std::vector<std::size_t> order_;
  std::mt19937 random_{1};
};

std::vector<Timing> time_on_host(const std::vector<Arm>& arms, int rounds) {
  std::vector<std::vector<double>> us(arms.size());
  Rounds order(arms.size());
  for (int round = 0; round < rounds; ++round)
    order.next([&](std::size_t arm) {
      const auto begin = Clock::now();
      arms[arm](0);
      us[arm].push_back(std::chrono::duration<double, std::micro>(Clock::now() - begin).count());
    });
  std::vector<Timing> timings;
  for (const auto& values : us) timings.push_back(timing_of(values, 1));
  return timings;
}

}  // namespace

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + std::ptrdiff_t(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

double quantile(std::vector<double> values, double part) {
  if (values.empty()) return 0;
  const auto at = values.begin() + std::lround(part * double(values.size() - 1));
  std::nth_element(values.begin(), at, values.end());
  return *at;
}

DeviceMemory::DeviceMemory(Backend& backend, std::size_t bytes)
    : backend_(&backend), data_(static_cast<std::byte*>(backend.allocate(bytes))), bytes_(bytes) {}

DeviceMemory::~DeviceMemory() {
  if (data_) backend_->release(data_);
}

DeviceMemory::DeviceMemory(DeviceMemory&& other) noexcept
    : backend_(other.backend_), data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

DeviceMemory& DeviceMemory::operator=(DeviceMemory&& other) noexcept {
  std::swap(backend_, other.backend_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

OwnStream::OwnStream(Backend& backend) : backend_(backend) {
  if (!backend.device().emulated) stream_ = backend.create_stream();
}

OwnStream::~OwnStream() {
  if (stream_) backend_.destroy_stream(stream_);
}

std::size_t bytes_of_a(const Problem& p) { return std::size_t(matrix_a(p).batch_bytes()); }
std::size_t bytes_of_b(const Problem& p) { return std::size_t(matrix_b(p).batch_bytes()); }
std::size_t bytes_of_c(const Problem& p) { return std::size_t(matrix_c(p).batch_bytes()); }
std::size_t bytes_of_d(const Problem& p) { return std::size_t(matrix_d(p).batch_bytes()); }

InputPools::InputPools(Backend& backend, DataType a, DataType b) : backend_(backend), type_a_(a), type_b_(b) {}

void InputPools::grow(DeviceMemory& pool, std::size_t bytes, DataType type, std::uint64_t seed) {
  if (pool.bytes() >= bytes && pool.data()) return;
  pool = DeviceMemory();  // the old one first: both may not fit
  pool = DeviceMemory(backend_, std::max<std::size_t>(bytes, 256));
  if (seed != 0) backend_.fill_random(pool.data(), std::int64_t(pool.bytes() / size_of(type)), type, seed);
}

void InputPools::prepare(const Problem& p, bool rotate) {
  step_a_ = padded(bytes_of_a(p));
  step_b_ = padded(bytes_of_b(p));
  step_c_ = reads_c(p) ? padded(bytes_of_c(p)) : 0;
  step_d_ = padded(bytes_of_d(p));
  const auto room = [&](std::size_t step) { return rotate ? std::max(pool_bytes, step) : step; };
  sets_ = 1;
  if (rotate) {
    std::size_t sets = rotation_bytes / std::max<std::size_t>(step_a_ + step_b_ + step_c_ + step_d_, 1) + 1;
    for (std::size_t step : {step_a_, step_b_, step_c_, step_d_})
      sets = std::min(sets, room(step) / std::max<std::size_t>(step, 1));
    sets_ = int(std::max<std::size_t>(sets, 1));
  }
  grow(a_, room(step_a_), type_a_, 1);
  grow(b_, room(step_b_), type_b_, 2);
  grow(d_, room(step_d_), p.d.type, 0);
  const DataType addend = type_of_c(p);
  if (reads_c(p)) grow(c_, room(step_c_), addend, 3);
  if (p.epilogue.bias != Bias::none) grow(bias_, std::size_t(bias_elements(p)) * size_of(addend), addend, 4);
}

Operands InputPools::operands(int set) const {
  return {.a = a_.data() + std::size_t(set) * step_a_,
          .b = b_.data() + std::size_t(set) * step_b_,
          .c = c_.data() + std::size_t(set) * step_c_,
          .d = d_.data() + std::size_t(set) * step_d_,
          .bias = bias_.data()};
}

std::vector<Timing> time_arms(Backend& backend, Stream stream, const std::vector<Arm>& arms, int sets,
                              const TimingOptions& options) {
  if (backend.device().emulated) return time_on_host(arms, options.rounds);

  Event begin(backend), end(backend);
  std::vector<LaunchGraph> graphs;
  std::vector<int> launches;
  for (const Arm& arm : arms) {
    for (int i = 0; i < 2; ++i) arm(0);
    begin.record(stream);
    for (int i = 0; i < 3; ++i) arm(i % sets);
    end.record(stream);
    const double us = std::max(end.elapsed_us_since(begin) / 3, 1.0);
    const int count =
        int(std::clamp(options.round_ms * 1e3 / us, double(options.min_launches), double(options.max_launches)));
    graphs.emplace_back(stream, [&] {
      for (int i = 0; i < count; ++i) arm(i % sets);
    });
    graphs.back().launch();
    launches.push_back(count);
  }

  std::vector<std::vector<double>> us(arms.size());
  const auto time_one = [&](std::size_t arm) {
    begin.record(stream);
    graphs[arm].launch();
    end.record(stream);
    us[arm].push_back(end.elapsed_us_since(begin) / launches[arm]);
  };
  Rounds order(arms.size());
  // Rounds that do not count, while the card is cool: kernels of 1 ms ran up to 13 % faster in the first one, and those
  // of 15 us lose up to 12 % in steps, after some 20 and 80 ms under load (tools/results/NOTES.md, 24 and 25).
  const auto warm = Clock::now() + std::chrono::duration<double, std::milli>(options.warm_up_ms);
  do {
    order.next(time_one);
  } while (Clock::now() < warm);
  for (std::vector<double>& values : us) values.clear();
  for (int round = 0; round < options.rounds; ++round) order.next(time_one);
  std::vector<Timing> timings;
  for (std::size_t i = 0; i < arms.size(); ++i) timings.push_back(timing_of(us[i], launches[i]));
  return timings;
}

}  // namespace jitgemm::cli
