#include "tune/compile_ahead.hpp"

#include <algorithm>
#include <exception>
#include <memory>
#include <utility>

namespace jitgemm {

CompileAhead::CompileAhead(Backend& backend, std::size_t count, std::function<CallKernels(std::size_t)> get)
    : backend_(backend), get_(std::move(get)), promises_(count) {
  for (auto& promise : promises_) futures_.push_back(promise.get_future());
  const std::size_t threads = std::clamp<std::size_t>(std::thread::hardware_concurrency(), 2, 8);
  for (std::size_t i = 0; i < std::min(threads, count); ++i) threads_.emplace_back([this] { work(); });
}

void CompileAhead::work() {
  std::unique_ptr<Backend::RelaxedCapture> relaxed;
  for (std::size_t i; !stop_ && (i = next_++) < promises_.size();) {
    try {
      if (!relaxed) relaxed = backend_.relax_capture();
      promises_[i].set_value(get_(i));
    } catch (...) {
      promises_[i].set_exception(std::current_exception());
    }
  }
}

}  // namespace jitgemm
