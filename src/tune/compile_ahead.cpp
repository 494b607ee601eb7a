#include "tune/compile_ahead.hpp"

#include <algorithm>
#include <exception>
#include <memory>
#include <new>
#include <system_error>
#include <utility>

namespace jitgemm {

CompileAhead::CompileAhead(Backend& backend, std::size_t count, std::function<CallKernels(std::size_t)> get)
    : backend_(backend), get_(std::move(get)), promises_(count) {
  for (auto& promise : promises_) futures_.push_back(promise.get_future());
  const std::size_t threads = std::clamp<std::size_t>(std::thread::hardware_concurrency(), 2, 8);
  try {
    while (threads_.size() < std::min(threads, count)) threads_.emplace_back([this] { work(); });
  } catch (const std::system_error&) {  // as many as the system gives
  } catch (const std::bad_alloc&) {     // or as there is memory for
  }
  if (!threads_.empty()) return;
  for (std::size_t i = 0; i < count; ++i) futures_[i] = std::async(std::launch::deferred, get_, i);
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
