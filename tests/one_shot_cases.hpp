#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "core/type_rules.hpp"
#include "gemm_cases.hpp"
#include "overlapped_cases.hpp"
#include "parallel/one_shot.hpp"
#include "random.hpp"
#include "ranks.hpp"

// Sums of the ranks of a node on emulated devices, added up by OneShot itself.
namespace jitgemm::test {

/// Calls of all ranks, each of one of these problems, in an order that the seed draws, and no rank waits for another
/// between calls.
struct OneShotCase {
  std::vector<Problem> problems;
  int ranks = 2;
  std::uint64_t seed = 0;  ///< of the emulator, too
  int calls = 6;
  bool fractions = false;  ///< instead of whole numbers
  bool delays = false;     ///< one rank is late, now and then
  int ends_after = -1;     ///< of the last rank: calls after which it makes no more
  double timeout_seconds = 60;
  unsigned count_from = 0;
};

/// One rank's operands of a problem, and what has to come of them.
class OneShotOperands {
 public:
  OneShotOperands(const OneShotCase& its_case, const Problem& its_problem, int its_rank, Backend& backend)
      : of_(its_case),
        ranked_(rank_problem(its_problem, Exchange::all_reduce_d, its_case.ranks)),
        p_(ranked_.asked),
        rank_(its_rank),
        sums_(backend, p_.m, p_.n, p_.n, type_of_c(p_)),
        c_(backend, p_.m, p_.n, p_.c.ld, type_of_c(p_)),
        bias_(backend, 1, std::max(p_.m, p_.n), std::max(p_.m, p_.n), type_of_c(p_)),
        scale_(backend, 1, 1, 1, f32),
        d_(backend, p_.m, p_.n, p_.d.ld, p_.d.type) {
    sums_.set([&](auto i, auto j) { return sum_of(rank_, i, j); });
    c_.set([&](auto i, auto j) { return addend(1, i, j); });
    bias_.set([&](auto, auto j) { return addend(2, 0, j); });
    scale_.set([](auto, auto) { return 0.5; });
  }

  const RankProblem& ranked() const { return ranked_; }
  const void* sums() const { return sums_.memory; }
  Operands operands() const {
    Operands operands{.d = d_.memory};
    if (reads_c(p_)) operands.c = c_.memory;
    if (p_.epilogue.bias != Bias::none) operands.bias = bias_.memory;
    if (is_fp8(p_.d.type)) operands.scale_d = static_cast<const float*>(scale_.memory);
    return operands;
  }
  void poison() { d_.backend.fill(d_.memory, 0xff, d_.host.size()); }
  /// D's bytes and those between its rows.
  const std::vector<char>& fetched() {
    d_.fetch();
    return d_.host;
  }
  /// Empty, or the first element of D, which is fetched, that is wrong.
  std::string violation() const {
    for (std::int64_t i = 0; i < p_.m; ++i)
      for (std::int64_t j = 0; j < p_.n; ++j)
        if (const double right = expected(i, j), is = d_.get(i, j);
            !(std::abs(is - right) <= tolerance() * std::max(1.0, std::abs(right))))
          return "rank " + std::to_string(rank_) + ": D[" + std::to_string(i) + ", " + std::to_string(j) + "] of " +
                 to_string(p_) + " is " + std::to_string(is) + ", not " + std::to_string(right);
    return {};
  }

 private:
  double drawn(std::uint64_t what, std::int64_t i, std::int64_t j, bool fraction) const {
    std::uint64_t seed = what;
    for (const std::uint64_t part : {std::uint64_t(i), std::uint64_t(j), std::uint64_t(p_.m), std::uint64_t(p_.n)})
      seed = Random(seed * 1000003 + part).next();
    return fraction ? double(seed % 2047) / 1024 - 1 : double(seed % 7) - 3;
  }
  double sum_of(int rank, std::int64_t i, std::int64_t j) const {
    return drawn(std::uint64_t(10 + rank), i, j, of_.fractions);
  }
  double addend(std::uint64_t what, std::int64_t i, std::int64_t j) const { return drawn(what, i, j, false); }
  double expected(std::int64_t i, std::int64_t j) const {
    double sum = 0;
    for (int rank = 0; rank < of_.ranks; ++rank) sum += sum_of(rank, i, j);
    double x = p_.alpha * sum;
    if (reads_c(p_)) x += p_.beta * addend(1, i, j);
    if (p_.epilogue.bias != Bias::none) x += addend(2, 0, p_.epilogue.bias == Bias::along_m ? i : j);
    if (p_.epilogue.activation == Activation::relu) x = std::max(x, 0.0);
    if (p_.epilogue.activation == Activation::leaky_relu && x < 0) x *= p_.epilogue.slope;
    if (p_.epilogue.activation == Activation::silu) x /= 1 + std::exp(-x);
    if (p_.epilogue.activation == Activation::gelu_erf) x *= (1 + std::erf(x / std::sqrt(2.0))) / 2;
    if (p_.epilogue.activation == Activation::gelu_tanh)
      x *= (1 + std::tanh(std::sqrt(2 / 3.14159265358979) * (x + 0.044715 * x * x * x))) / 2;
    return is_fp8(p_.d.type) ? x / 2 : x;
  }
  double tolerance() const {
    if (is_fp8(p_.d.type)) return 0.13;
    if (of_.fractions || p_.epilogue.activation >= Activation::gelu_erf) return size_of(p_.d.type) == 2 ? 0.02 : 1e-5;
    return 0;
  }

  const OneShotCase& of_;
  const RankProblem ranked_;
  const NormalProblem& p_;
  int rank_;
  DeviceMatrix sums_, c_, bias_, scale_, d_;
};

/// What one rank does.
class OneShotRank {
 public:
  OneShotRank(const OneShotCase& its_case, int rank, Ranks& ranks)
      : of_(its_case),
        rank_(rank),
        context_(GemmDevice::emulator(of_.seed == 0 ? 0 : of_.seed + std::uint64_t(rank))),
        backend_(ContextInternals::backend(context_)),
        one_shot_(context_, rank, of_.ranks, ranks.all_gather(rank), of_.timeout_seconds),
        delays_(of_.seed * 100 + std::uint64_t(rank)),
        first_(of_.problems.size()) {
    one_shot_.count_from(of_.count_from);
    for (int i = 0; i < 2; ++i) streams_.push_back(backend_.create_stream());
    for (const Problem& problem : of_.problems) {
      operands_.push_back(std::make_unique<OneShotOperands>(of_, problem, rank, backend_));
      prepared_.push_back(one_shot_.prepare(operands_.back()->ranked()));
      one_shot_.stage(prepared_.back());
    }
  }

  void run() {
    Random random(of_.seed);
    for (int call = 0; call < of_.calls && !(rank_ == of_.ranks - 1 && call == of_.ends_after); ++call) {
      const int which = call < int(of_.problems.size()) ? call : random.between(0, int(of_.problems.size()) - 1);
      const int late = random.between(0, of_.ranks - 1);
      if (of_.delays && rank_ == late)
        std::this_thread::sleep_for(std::chrono::microseconds(delays_.log_between(1, 4000)));
      run_call(std::size_t(which));
    }
  }
  /// Of all problems, D's bytes.
  const std::vector<std::vector<char>>& first() const { return first_; }
  OneShot& one_shot() { return one_shot_; }

 private:
  void run_call(std::size_t which) {
    OneShotOperands& operands = *operands_[which];
    const Stream stream = delays_.pick(streams_);
    operands.poison();
    one_shot_.enqueue(prepared_[which], operands.ranked().finish, operands.operands(), operands.sums(), stream);
    backend_.synchronize(stream);
    if (const auto report = one_shot_.report(); report.state != device::Patience::well)
      throw std::runtime_error("rank " + std::to_string(rank_) + " waited in vain for rank " +
                               std::to_string(report.rank) + " in call " + std::to_string(report.epoch));
    const std::vector<char>& d = operands.fetched();
    if (!first_[which].empty() && first_[which] != d)
      throw std::runtime_error("rank " + std::to_string(rank_) + ": other bits than at first of " +
                               to_string(operands.ranked().asked));
    if (!first_[which].empty()) return;
    if (const std::string wrong = operands.violation(); !wrong.empty()) throw std::runtime_error(wrong);
    first_[which] = d;
  }

  const OneShotCase& of_;
  int rank_;
  Context context_;
  Backend& backend_;
  OneShot one_shot_;
  Random delays_;
  std::vector<Stream> streams_;
  std::vector<std::unique_ptr<OneShotOperands>> operands_;
  std::vector<OneShot::Prepared> prepared_;
  std::vector<std::vector<char>> first_;
};

/// What all ranks got of each problem: the same bits. Throws what is wrong.
inline std::vector<std::vector<char>> run(const OneShotCase& of) {
  Ranks ranks(of.ranks);
  std::vector<std::vector<std::vector<char>>> first(std::size_t(of.ranks));
  ranks.run([&](int rank) {
    OneShotRank its(of, rank, ranks);
    ranks.run_until_all_end(rank, its);
    first[std::size_t(rank)] = its.first();
  });
  for (const auto& its : first)
    if (its != first[0]) throw std::runtime_error("the ranks have other bits");
  return first[0];
}

}  // namespace jitgemm::test
