#include "first_calls.hpp"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <unordered_map>
#include <vector>

#include "util/log.hpp"

namespace jitgemm {
namespace {

constexpr double as_good = 1.25;  // predicted times, a kernel's at hand over the chosen one's: better than the fallback

/// Runs jobs on a few threads, which start with the first jobs. Its end drops the jobs that have not begun.
class Workers {
 public:
  ~Workers() {
    // A forked child has none of the threads: it would wait for them, or for a lock that one of them held, for ever.
    if (getpid() != process_) {
      static_cast<void>(pool_.release());
      return;
    }
    {
      const std::lock_guard lock(pool_->mutex);
      pool_->stopping = true;
      pool_->jobs.clear();
    }
    pool_->changed.notify_all();
  }

  /// False: there is no thread to run it, and the system gives none.
  bool post(std::function<void()> job) {
    static const std::size_t most = std::clamp(std::thread::hardware_concurrency() / 2, 1u, 4u);
    Pool& pool = *pool_;
    const std::lock_guard lock(pool.mutex);
    if (pool.idle <= pool.jobs.size() && pool.threads.size() < most) {
      try {
        pool.threads.emplace_back([&pool] { pool.work(); });
      } catch (const std::system_error& error) {
        if (pool.threads.empty()) {
          warn_once("no thread to compile in the background",
                    std::string("no thread can be started to compile in the background (") + error.what() +
                        "): calls wait for their kernels; raise the limit on threads or memory");
          return false;
        }
      }
    }
    pool.jobs.push_back(std::move(job));
    pool.changed.notify_one();
    return true;
  }

 private:
  struct Pool {
    std::mutex mutex;
    std::condition_variable changed;
    std::deque<std::function<void()>> jobs;
    std::size_t idle = 0;
    bool stopping = false;
    std::vector<std::jthread> threads;  // last: joined first

    void work() {
      std::unique_lock lock(mutex);
      for (;;) {
        ++idle;
        changed.wait(lock, [this] { return stopping || !jobs.empty(); });
        --idle;
        if (stopping) return;
        const std::function<void()> job = std::move(jobs.front());
        jobs.pop_front();
        lock.unlock();
        job();
        lock.lock();
      }
    }
  };

  std::unique_ptr<Pool> pool_ = std::make_unique<Pool>();
  pid_t process_ = getpid();
};

enum class State { compiling, compiled, failed };

struct Pending {
  std::atomic<State> state = State::compiling;
  std::optional<FirstCalls::Stopgap> stopgap;
};

/// On a thread where nobody catches.
void say_failed(const KernelConfig& config, const std::exception& error) noexcept try {
  logger().warn("{} could not be compiled in the background, the next call will tell: {}", to_string(config),
                error.what());
} catch (const std::exception&) {  // no memory for the words
}

}  // namespace

struct FirstCalls::Impl {
  Backend& backend;
  KernelStore& store;
  Chooser& chooser;
  KernelsAtHand& at_hand;
  bool has_fallback;
  std::mutex mutex = {};
  std::unordered_map<NormalProblem, std::shared_ptr<Pending>, ProblemHash, ProblemEqual> pending = {};
  Workers workers = {};  // last: it ends first

  std::shared_ptr<Pending> find(const NormalProblem& shape);
  std::shared_ptr<Pending> begin(const NormalProblem& shape, const NormalProblem& problem);
  Ready get(const NormalProblem& problem, const KernelConfig& config) {
    return make_ready(store, problem, config, backend.device());
  }
};

FirstCalls::FirstCalls(Backend& backend, KernelStore& store, Chooser& chooser, KernelsAtHand& at_hand,
                       bool has_fallback)
    : impl_(new Impl{backend, store, chooser, at_hand, has_fallback}) {}
FirstCalls::~FirstCalls() = default;

std::optional<FirstCalls::Stopgap> FirstCalls::stopgap(const ReadyKey& key, const NormalProblem& problem) {
  std::shared_ptr<Pending> pending = impl_->find(key.shape);
  if (!pending) pending = impl_->begin(key.shape, problem);
  if (!pending || pending->state == State::failed) return std::nullopt;  // the caller meets the error itself
  if (pending->state == State::compiling) return pending->stopgap;
  const std::lock_guard lock(impl_->mutex);
  impl_->pending.erase(key.shape);
  return std::nullopt;
}

std::shared_ptr<Pending> FirstCalls::Impl::find(const NormalProblem& shape) {
  const std::lock_guard lock(mutex);
  const auto found = pending.find(shape);
  return found == pending.end() ? nullptr : found->second;
}

/// Null when the chosen kernel is at hand, or nothing can compile it in the background.
std::shared_ptr<Pending> FirstCalls::Impl::begin(const NormalProblem& shape, const NormalProblem& problem) {
  const Choice choice = chooser.choose(problem, false);
  if (at_hand.has(problem, choice.config)) return nullptr;
  auto made = std::make_shared<Pending>();
  // No more workspace than the caller may have made for the choice.
  const std::size_t workspace_bytes = launch_shape(problem, choice.config).workspace_bytes();
  const double most_us = has_fallback ? as_good * choice.predicted_us : HUGE_VAL;
  if (const auto kernel = at_hand.best(chooser.planner(problem), {most_us, workspace_bytes})) {
    made->stopgap.emplace(Stopgap{get(problem, kernel->config)});
  } else if (has_fallback) {
    made->stopgap.emplace();
  }
  {
    const std::lock_guard lock(mutex);
    const auto [place, is_new] = pending.try_emplace(shape, made);
    if (!is_new) return place->second;
  }
  const auto compile = [this, made, problem, config = choice.config] {
    try {
      const auto relaxed = backend.relax_capture();
      get(problem, config);
      made->state = State::compiled;
    } catch (const std::exception& error) {
      made->state = State::failed;
      say_failed(config, error);
    }
  };
  // What nobody compiles must not be waited for, so an entry stays only with its job.
  const auto forget = [&] {
    const std::lock_guard lock(mutex);
    pending.erase(shape);
  };
  try {
    if (workers.post(compile)) return made;
  } catch (...) {
    forget();
    throw;
  }
  forget();
  return nullptr;
}

}  // namespace jitgemm
