#include "kernels.hpp"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <numeric>
#include <stdexcept>
#include <thread>

#include "times.hpp"

namespace ab {
namespace {

constexpr std::size_t mebibyte = std::size_t(1) << 20;
constexpr std::size_t rotation_bytes = 200 * mebibyte;  // over three times the L2 of an H200
constexpr std::size_t workspace_bytes = 64 * mebibyte;
constexpr double round_us = 600;

std::size_t size_of(const std::string& type) {
  static const std::map<std::string, std::size_t> sizes{{"f16", 2}, {"bf16", 2}, {"e4m3", 1}, {"e5m2", 1},
                                                        {"s8", 1},  {"tf32", 4}, {"f32", 4},  {"s32", 4}};
  const auto found = sizes.find(type);
  if (found == sizes.end()) throw std::runtime_error("--type and --d: " + type + " is none that this times");
  return found->second;
}

/// Numbers of either sign from 1/16 to 1, by their bits.
std::vector<std::byte> random_numbers(const std::string& type, std::size_t bytes) {
  struct Format {
    int exponent_of_half, fraction_bits;
  };
  static const std::map<std::string, Format> formats{{"f16", {14, 10}}, {"bf16", {126, 7}},  {"e4m3", {6, 3}},
                                                     {"e5m2", {14, 2}}, {"tf32", {126, 23}}, {"f32", {126, 23}}};
  std::vector<std::byte> numbers(bytes);
  std::mt19937_64 random(1);
  const std::size_t size = size_of(type);
  for (std::size_t i = 0; i + size <= bytes; i += size) {
    std::uint64_t bits = random();
    if (const auto found = formats.find(type); found != formats.end()) {
      const auto [exponent, fraction_bits] = found->second;
      const std::uint64_t sign = bits >> 63, fraction = bits & ((std::uint64_t(1) << fraction_bits) - 1);
      bits = sign << (8 * size - 1) | std::uint64_t(exponent - int(bits >> 60 & 3)) << fraction_bits | fraction;
    }
    std::memcpy(numbers.data() + i, &bits, size);
  }
  return numbers;
}

void parallel(std::size_t count, const std::function<void(std::size_t)>& body) {
  std::atomic<std::size_t> next = 0;
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < std::max(1u, std::thread::hardware_concurrency()); ++i)
    threads.emplace_back([&] {
      for (std::size_t item; (item = next++) < count;) body(item);
    });
  for (std::thread& thread : threads) thread.join();
}

std::size_t padded(long long elements, std::size_t size) { return (std::size_t(elements) * size + 255) / 256 * 256; }

}  // namespace

AbProblem Kernels::problem_of(const Shape& shape) const {
  return {shape.m,
          shape.n,
          shape.k,
          options_.type.c_str(),
          options_.type_d.c_str(),
          layout_name(options_.layout[0]),
          layout_name(options_.layout[1]),
          options_.accumulation.c_str()};
}

void Kernels::compile(std::vector<Shape>& shapes) {
  std::mutex mutex;
  parallel(2 * shapes.size(), [&](std::size_t i) {
    Shape& shape = shapes[i / 2];
    try {
      sides_.device->make_current();
      const AbProblem problem = problem_of(shape);
      const std::string config = sides_.before.choose(problem);
      if (i % 2 == 0) {
        shape.config = config;
        shape.old_call = sides_.before.prepare(problem, config);
      } else {
        shape.new_call = sides_.after.prepare(problem, config);
      }
    } catch (const std::exception& error) {
      const std::lock_guard lock(mutex);
      shape.failure = std::string(i % 2 ? "new: " : "old: ") + error.what();
    }
  });
}

void Kernels::allocate(const std::vector<Shape>& shapes) {
  const std::size_t size = size_of(options_.type), size_d = size_of(options_.type_d);
  std::size_t a = 0, b = 0, d = 0;
  for (const Shape& shape : shapes) {
    a = std::max(a, padded(shape.m * shape.k, size));
    b = std::max(b, padded(shape.k * shape.n, size));
    d = std::max(d, padded(shape.m * shape.n, size_d));
  }
  const auto make = [&](Pool& pool, std::size_t largest, bool fill) {
    pool.bytes = std::max(largest, options_.emulator ? 0 : rotation_bytes);
    pool.memory = sides_.device->allocate(pool.bytes);
    if (!fill) return;
    const std::vector<std::byte> numbers = random_numbers(options_.type, std::min(pool.bytes, 32 * mebibyte + 8));
    for (std::size_t at = 0; at < pool.bytes; at += numbers.size())
      sides_.device->copy_to_device(pool.memory + at, numbers.data(), std::min(numbers.size(), pool.bytes - at));
  };
  make(a_, a, true);
  make(b_, b, true);
  make(d_, d, false);
  make(other_d_, d, false);
  workspace_ = sides_.device->allocate(workspace_bytes);
}

void Kernels::time(Shape& shape, int rounds) {
  try {
    if (shape.failure.empty()) try_to_time(shape, rounds);
  } catch (const std::exception& error) {
    shape.failure = error.what();
  }
}

void Kernels::try_to_time(Shape& shape, int rounds) {
  if (std::max(sides_.before.workspace_size(shape.old_call), sides_.after.workspace_size(shape.new_call)) >
      workspace_bytes)
    throw std::runtime_error("needs more than 64 MiB of workspace");
  const int sets = rotate(shape);
  const auto operands = [&](int set) {
    return AbOperands{a_.at(set), b_.at(set), d_.at(set), workspace_, workspace_bytes};
  };
  shape.same_bits = same_bits(shape);

  const std::function<void(int)> arms[] = {
      [&](int set) { sides_.before.gemm(shape.old_call, operands(set), stream_); },
      [&](int set) { sides_.before.gemm(shape.old_call, operands(set), stream_); },
      [&](int set) { sides_.after.gemm(shape.new_call, operands(set), stream_); },
  };
  const auto graph_of = [&](const std::function<void(int)>& arm, int launches) {
    return sides_.device->capture(stream_, [&arm, launches, sets] {
      for (int i = 0; i < launches; ++i) arm(i % sets);
    });
  };
  const auto trial = graph_of(arms[0], 4);
  trial->replay_us();
  const int launches =
      options_.emulator ? 1 : int(std::clamp(4 * round_us / std::max(trial->replay_us(), 1.0), 4.0, 300.0));
  std::vector<std::unique_ptr<Device::Graph>> graphs;
  for (const auto& arm : arms) graphs.push_back(graph_of(arm, launches));

  std::vector<std::vector<double>> us(graphs.size());
  std::vector<std::size_t> order(graphs.size());
  std::iota(order.begin(), order.end(), std::size_t(0));
  const int warm_up = options_.emulator ? 0 : std::max(3, rounds / 5);
  for (int round = -warm_up; round < rounds; ++round) {
    std::shuffle(order.begin(), order.end(), random_);
    for (const std::size_t arm : order) {
      const double time = graphs[arm]->replay_us() / launches;
      if (round >= 0) us[arm].push_back(time);
    }
  }
  shape.old_us = median(us[0]);
  shape.again_us = median(us[1]);
  shape.new_us = median(us[2]);
}

int Kernels::rotate(const Shape& shape) {
  const std::size_t size = size_of(options_.type);
  a_.step = padded(shape.m * shape.k, size);
  b_.step = padded(shape.k * shape.n, size);
  d_.step = padded(shape.m * shape.n, size_of(options_.type_d));
  std::size_t sets = rotation_bytes / (a_.step + b_.step + d_.step) + 1;
  for (const Pool* pool : {&a_, &b_, &d_}) sets = std::min(sets, pool->bytes / pool->step);
  return int(std::max<std::size_t>(sets, 1));
}

bool Kernels::same_bits(const Shape& shape) {
  const std::size_t bytes = std::size_t(shape.m * shape.n) * size_of(options_.type_d);
  std::string nan(bytes, '\xff'), old_bits(bytes, '\0'), new_bits(bytes, '\0');
  AbOperands operands{a_.at(0), b_.at(0), d_.at(0), workspace_, workspace_bytes};
  sides_.device->copy_to_device(operands.d, nan.data(), bytes);
  sides_.before.gemm(shape.old_call, operands, stream_);
  sides_.device->synchronize(stream_);
  sides_.device->copy_to_host(old_bits.data(), operands.d, bytes);
  operands.d = other_d_.memory;
  sides_.device->copy_to_device(operands.d, nan.data(), bytes);
  sides_.after.gemm(shape.new_call, operands, stream_);
  sides_.device->synchronize(stream_);
  sides_.device->copy_to_host(new_bits.data(), operands.d, bytes);
  return old_bits == new_bits;
}

}  // namespace ab
