#pragma once

#include <functional>
#include <vector>

#include "backend/backend.hpp"
#include "jitgemm/jitgemm.hpp"

namespace jitgemm::cli {

/// Device memory, freed with it.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  DeviceMemory(Backend& backend, std::size_t bytes);
  ~DeviceMemory();
  DeviceMemory(DeviceMemory&& other) noexcept;
  DeviceMemory& operator=(DeviceMemory&& other) noexcept;

  std::byte* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }

 private:
  Backend* backend_ = nullptr;
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

/// A stream of one's own; on the emulator, which has none, the default stream.
class OwnStream {
 public:
  explicit OwnStream(Backend& backend);
  ~OwnStream();
  OwnStream(const OwnStream&) = delete;
  OwnStream& operator=(const OwnStream&) = delete;

  Stream get() const { return stream_; }

 private:
  Backend& backend_;
  Stream stream_ = nullptr;
};

std::size_t bytes_of_a(const Problem& normalised);
std::size_t bytes_of_b(const Problem& normalised);
std::size_t bytes_of_c(const Problem& normalised);
std::size_t bytes_of_d(const Problem& normalised);

/// Random A, B, C and bias, about N(0,1), and room for D, for one normalised problem after another. A problem gets
/// several sets that lie side by side: enough for the sets in turn to exceed the L2, as far as the pools go.
class InputPools {
 public:
  static constexpr std::size_t rotation_bytes = std::size_t(200) << 20;  ///< over three times the L2 of an H200
  static constexpr std::size_t pool_bytes = std::size_t(768) << 20;      ///< of each of A, B, C and D

  InputPools(Backend& backend, DataType a, DataType b);
  InputPools(Backend& backend, DataType both) : InputPools(backend, both, both) {}

  /// Makes the pools large enough, and counts the sets. `rotate` false: one set.
  void prepare(const Problem& normalised, bool rotate);
  int sets() const { return sets_; }
  /// The operands of one set, without workspace.
  Operands operands(int set) const;

 private:
  void grow(DeviceMemory& pool, std::size_t bytes, DataType type, std::uint64_t seed);

  Backend& backend_;
  DataType type_a_, type_b_;
  DeviceMemory a_, b_, c_, d_, bias_;
  std::size_t step_a_ = 0, step_b_ = 0, step_c_ = 0, step_d_ = 0;
  int sets_ = 1;
};

/// One of the things that are timed against each other: enqueues one launch with this set of inputs.
using Arm = std::function<void(int set)>;

struct Timing {
  double median_us = 0;
  double spread = 0;  ///< (p80 - p20) / median of the rounds
  double p20_us = 0, p80_us = 0;
  int launches = 0;  ///< of one round
};

struct TimingOptions {
  int rounds = 5;
  double round_ms = 2.5;  ///< of one arm
  int min_launches = 4;   ///< of one round
  int max_launches = 1000;
  double warm_up_ms = 0;  ///< before the first round that counts; at least one does not
};

/// Times arms in turn: each round replays one graph an arm, of as many launches as fill round_ms, in an order
/// drawn anew for each. On the emulator: one launch a round by the wall clock.
std::vector<Timing> time_arms(Backend& backend, Stream stream, const std::vector<Arm>& arms, int sets,
                              const TimingOptions& options = {});

double median(std::vector<double> values);
/// The value below which this part of the values lies, of those that there are.
double quantile(std::vector<double> values, double part);

}  // namespace jitgemm::cli
