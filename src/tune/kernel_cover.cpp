#include "tune/kernel_cover.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <unordered_map>

#include "core/kernel_config_hash.hpp"
#include "jit/source_generator.hpp"
#include "kernels/launch_shape.hpp"
#include "plan/candidates.hpp"
#include "plan/constraints.hpp"
#include "plan/planner.hpp"

namespace jitgemm {
namespace {

constexpr double infinite = std::numeric_limits<double>::infinity();
constexpr double cost_without_kernel = 1e6;  // outweighs all else: what has no kernel is served first
constexpr double weight_of_square = 2;       // a regret of 1.2 costs as much as three of 1.08
constexpr double worth_a_look = 2;           // a kernel that is worse wherever it is a candidate is none

/// What a kernel does for a problem. Not many bytes, for there are millions.
struct Entry {
  float predicted_us = std::numeric_limits<float>::infinity();  // least of its refits
  float chosen_log_regret = 0;                                  // of the refit with that prediction
  float best_log_regret = std::numeric_limits<float>::infinity();
};

/// What a set of kernels does for a problem.
struct Served {
  float predicted_us = std::numeric_limits<float>::infinity();
  float chosen = std::numeric_limits<float>::infinity(), best = std::numeric_limits<float>::infinity();

  void add(const Entry& entry) {
    best = std::min(best, entry.best_log_regret);
    if (entry.predicted_us < predicted_us) {
      predicted_us = entry.predicted_us;
      chosen = entry.chosen_log_regret;
    }
  }
  double cost() const {
    if (best == std::numeric_limits<float>::infinity()) return cost_without_kernel;
    const auto of = [](double x) { return x + weight_of_square * x * x; };
    return (of(best) + of(chosen)) / 2;
  }
};

/// The tile for elements of another size: the same bytes of k.
KernelConfig scaled(KernelConfig config, std::size_t from, std::size_t to) {
  config.block_k = config.block_k * int(from) / int(to);
  return config;
}

class Table {
 public:
  Table(const std::vector<CoveredProblem>& problems, const KernelCoverOptions& options)
      : problems_(problems), any_types_(options.any_types), measured_only_(options.measured_only) {
    // A problem's kind: all that the source of any kernel depends on.
    for (const CoveredProblem& p : problems) kinds_.push_back(kernel_identity(p.problem, KernelConfig{}, p.device));
    for (std::size_t i = 0; i < problems.size(); ++i) add_kernels(i);
    entries_.resize(kernels_.size() * problems.size());
    for (std::size_t i = 0; i < problems.size(); ++i) fill_in(i);
    std::map<std::size_t, std::size_t> sizes;
    for (const CoveredProblem& p : problems) ++sizes[p.corpus];
    for (const CoveredProblem& p : problems) weights_.push_back(1 / (double(sizes.size()) * double(sizes[p.corpus])));
  }

  const std::vector<CoverKernel>& kernels() const { return kernels_; }
  std::size_t needed() const { return best_.size(); }
  std::size_t problem_count() const { return problems_.size(); }
  const Entry& at(std::size_t kernel, std::size_t problem) const {
    return entries_[kernel * problems_.size() + problem];
  }

  double cost(const std::vector<Served>& served) const {
    double sum = 0;
    for (std::size_t i = 0; i < served.size(); ++i) sum += weights_[i] * served[i].cost();
    return sum;
  }
  double cost_with(const std::vector<Served>& served, std::size_t kernel) const {
    double sum = 0;
    for (std::size_t i = 0; i < served.size(); ++i) {
      Served with = served[i];
      with.add(at(kernel, i));
      sum += weights_[i] * with.cost();
    }
    return sum;
  }
  std::vector<Served> serve(const std::vector<std::size_t>& set) const {
    std::vector<Served> served(problems_.size());
    for (const std::size_t kernel : set) add(served, kernel);
    return served;
  }
  void add(std::vector<Served>& served, std::size_t kernel) const {
    for (std::size_t i = 0; i < served.size(); ++i) served[i].add(at(kernel, i));
  }

 private:
  /// The same for what has one source or, with any_types, for one tile in bytes of k.
  std::string identity(std::size_t place, const KernelConfig& config) {
    const CoveredProblem& p = problems_[place];
    if (any_types_) return to_string(scaled(compiled_part(config), size_of(p.problem.a.type), 2));
    KernelConfig own = compiled_part(config);
    own.pack_a = config.pack_a, own.pack_b = config.pack_b;
    std::string& known = identities_[kinds_[place]][own];
    if (known.empty()) known = kernel_identity(p.problem, config, p.device);
    return known;
  }

  void add_kernels(std::size_t place) {
    const CoveredProblem& p = problems_[place];
    const RatedDevice part = part_of(p.device, p.constraints);
    const Planner planner(p.problem, part, p.constraints);
    const auto add = [&](const KernelConfig& config) {
      const std::string name = identity(place, config);
      if (places_.emplace(name, kernels_.size()).second) kernels_.push_back({p.problem, config});
      return name;
    };
    const std::vector<RankedConfig> ranked = planner.ranked();
    RankedConfig best = ranked.empty() ? RankedConfig() : ranked.front();
    double best_us = infinite;
    for (const auto& [config, us] : p.measured) {
      if (!planner.why_not(config).empty()) continue;
      add(config);
      if (us < best_us) best_us = us, best = {config, us};
    }
    if (best_us == infinite && (ranked.empty() || measured_only_)) return;
    best_.insert(add(best.config));
    for (const RankedConfig& one : ranked)
      if (!measured_only_ && one.predicted_us <= worth_a_look * ranked.front().predicted_us) add(one.config);
  }

  void fill_in(std::size_t place) {
    const CoveredProblem& p = problems_[place];
    const RatedDevice part = part_of(p.device, p.constraints);
    const Planner planner(p.problem, part, p.constraints);
    const auto first = planner.ranked(1);
    double best_us = first.empty() ? infinite : first.front().predicted_us, scale = 1, least_scale = 1;
    std::unordered_map<KernelConfig, double, KernelConfigHash> measured;
    for (const auto& [config, us] : p.measured) {
      if (!planner.why_not(config).empty()) continue;
      const auto [known, is_new] = measured.try_emplace(config, us);
      known->second = std::min(known->second, us);
    }
    if (!measured.empty()) {
      double log_scale = 0;
      best_us = infinite;
      for (const auto& [config, us] : measured) {
        const double ratio = us / planner.predict_us(config);
        log_scale += std::log(ratio) / double(measured.size());
        if (us < best_us) best_us = us, least_scale = ratio;
      }
      scale = std::exp(log_scale);
    }
    for (std::size_t i = 0; i < kernels_.size(); ++i) {
      const CoverKernel& kernel = kernels_[i];
      const std::size_t size = size_of(kernel.problem.a.type);
      const KernelConfig own = scaled(kernel.config, size, any_types_ ? size_of(p.problem.a.type) : size);
      Entry& entry = entries_[i * problems_.size() + place];
      const std::vector<KernelConfig> refits = planner.refits(own);
      if (refits.empty()) continue;
      if (!any_types_) {
        const auto found = places_.find(identity(place, refits.front()));
        if (found == places_.end() || found->second != i) continue;
      }
      const auto take = [&](const KernelConfig& config) {
        const double predicted = planner.predict_us(config);
        const auto found = measured.find(config);
        const auto log_regret = [&](double its_scale) {
          const double us = found != measured.end() ? found->second : its_scale * predicted;
          return float(std::log(std::max(1.0, us / best_us)));
        };
        entry.best_log_regret = std::min(entry.best_log_regret, log_regret(least_scale));
        if (float(predicted) < entry.predicted_us) {
          entry.predicted_us = float(predicted);
          entry.chosen_log_regret = log_regret(scale);
        }
      };
      if (!measured_only_)
        for (const KernelConfig& config : refits) take(config);
      for (const auto& [config, us] : measured)
        if (compiled_part(config) == compiled_part(own)) take(config);
    }
  }

  const std::vector<CoveredProblem>& problems_;
  const bool any_types_, measured_only_;
  std::vector<CoverKernel> kernels_;
  std::unordered_map<std::string, std::size_t> places_;  // identity -> place in kernels_
  std::vector<std::string> kinds_;                       // of the problems
  std::unordered_map<std::string, std::unordered_map<KernelConfig, std::string, KernelConfigHash>> identities_;
  std::vector<Entry> entries_;
  std::vector<double> weights_;
  std::set<std::string> best_;
};

double geomean(const std::vector<double>& logs) {
  double sum = 0;
  for (const double x : logs) sum += x;
  return std::exp(sum / double(logs.size()));
}

double p95(std::vector<double> logs) {
  std::sort(logs.begin(), logs.end());
  return std::exp(logs[std::size_t(std::ceil(0.95 * double(logs.size()))) - 1]);
}

template <typename Counts>
KernelCover::Quality quality_of(const std::vector<Served>& served, const Counts& counts) {
  KernelCover::Quality quality;
  std::vector<double> best, chosen;
  for (std::size_t i = 0; i < served.size(); ++i) {
    if (!counts(i)) continue;
    if (served[i].best == std::numeric_limits<float>::infinity()) {
      ++quality.without_kernel;
      continue;
    }
    best.push_back(double(served[i].best));
    chosen.push_back(double(served[i].chosen));
  }
  if (best.empty()) return quality;
  quality.geomean = geomean(best);
  quality.p95 = p95(best);
  quality.chosen_geomean = geomean(chosen);
  quality.chosen_p95 = p95(chosen);
  return quality;
}

/// The kernel that lowers the cost most; none that lowers it: the number of kernels.
std::size_t best_addition(const Table& table, const std::vector<Served>& served) {
  double least = table.cost(served);
  std::size_t best = table.kernels().size();
  for (std::size_t kernel = 0; kernel < table.kernels().size(); ++kernel) {
    const double cost = table.cost_with(served, kernel);
    if (cost >= least) continue;
    least = cost;
    best = kernel;
  }
  return best;
}

/// Adds kernels up to a size; false if none lowers the cost any more.
bool grow(const Table& table, std::vector<std::size_t>& set, std::size_t size) {
  std::vector<Served> served = table.serve(set);
  while (set.size() < size) {
    const std::size_t kernel = best_addition(table, served);
    if (kernel == table.kernels().size()) return false;
    set.push_back(kernel);
    table.add(served, kernel);
  }
  return true;
}

/// Exchanges those from `first` on, one by one, while that lowers the cost.
void exchange(const Table& table, std::vector<std::size_t>& set, std::size_t first) {
  for (bool better = true; better;) {
    better = false;
    for (std::size_t i = first; i < set.size(); ++i) {
      std::vector<std::size_t> others = set;
      others.erase(others.begin() + std::ptrdiff_t(i));
      const std::vector<Served> served = table.serve(others);
      const std::size_t kernel = best_addition(table, served);
      if (kernel == table.kernels().size() || kernel == set[i]) continue;
      if (table.cost_with(served, kernel) >= table.cost_with(served, set[i])) continue;
      set[i] = kernel;
      better = true;
    }
  }
}

/// Puts those from `first` on into the order in which they help most.
void sort_by_gain(const Table& table, std::vector<std::size_t>& set, std::size_t first) {
  std::vector<Served> served = table.serve({set.begin(), set.begin() + std::ptrdiff_t(first)});
  for (std::size_t i = first; i < set.size(); ++i) {
    const auto next = std::min_element(set.begin() + std::ptrdiff_t(i), set.end(), [&](std::size_t x, std::size_t y) {
      return table.cost_with(served, x) < table.cost_with(served, y);
    });
    std::rotate(set.begin() + std::ptrdiff_t(i), next, next + 1);
    table.add(served, set[i]);
  }
}

}  // namespace

KernelCover cover_kernels(const std::vector<CoveredProblem>& problems, const KernelCoverOptions& options) {
  const Table table(problems, options);
  std::vector<std::size_t> set;
  for (const std::size_t size : options.sizes) {
    const std::size_t first = set.size();
    const bool enough = grow(table, set, size);
    exchange(table, set, first);
    sort_by_gain(table, set, first);
    if (!enough) break;
  }

  KernelCover cover;
  cover.needed = table.needed();
  std::size_t corpora = 0;
  for (const CoveredProblem& p : problems) corpora = std::max(corpora, p.corpus + 1);
  cover.quality_of_corpus.resize(corpora);
  std::vector<Served> served(problems.size());
  for (const std::size_t kernel : set) {
    table.add(served, kernel);
    cover.kernels.push_back(table.kernels()[kernel]);
    cover.quality.push_back(quality_of(served, [](std::size_t) { return true; }));
    for (std::size_t corpus = 0; corpus < corpora; ++corpus)
      cover.quality_of_corpus[corpus].push_back(
          quality_of(served, [&](std::size_t i) { return problems[i].corpus == corpus; }));
  }
  return cover;
}

}  // namespace jitgemm
