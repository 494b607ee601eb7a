#include "soak/sharing.hpp"

#include <exception>
#include <mutex>

#include "measure/launch_graph.hpp"

namespace jitgemm::cli {

SharedCapture::SharedCapture(Backend& backend, std::size_t bytes_of_d)
    : backend_(backend), stream_(backend.create_stream()) {
  for (int i = 0; i < calls_of_graph; ++i) d_.emplace_back(backend, bytes_of_d);
  begin_shared_capture(stream_);
}

SharedCapture::~SharedCapture() {
  try {
    LaunchGraph::end_shared_capture(stream_);
  } catch (const Error&) {  // it is not to be replayed
  }
  backend_.destroy_stream(stream_);
}

bool SharedCapture::add(const Enqueue& enqueue, const Visit& before, const Visit& after) {
  bool last = false;
  std::exception_ptr failure;
  {
    const std::shared_lock lock(mutex_, std::try_to_lock);
    if (!lock) return false;
    const auto slot = std::size_t(begun_++);
    if (slot >= calls_of_graph) return false;
    try {
      calls_[slot] = enqueue(stream_, d_[slot].data());
    } catch (...) {  // it takes its place all the same, or the graph would never be full
      failure = std::current_exception();
    }
    last = ++added_ == calls_of_graph;
  }
  if (last) replay(before, after);
  if (failure) std::rethrow_exception(failure);
  return true;
}

void SharedCapture::replay(const Visit& before, const Visit& after) {
  const std::unique_lock lock(mutex_);
  const auto visit_all = [&](const Visit& visit) {
    for (const auto& call : calls_) {
      if (call) visit(*call);
    }
  };
  const auto begin_next = [&] {
    calls_ = {};
    begin_shared_capture(stream_);
    begun_ = added_ = 0;
  };
  try {
    LaunchGraph graph = LaunchGraph::end_shared_capture(stream_);
    visit_all(before);
    graph.launch();
    backend_.synchronize(stream_);
    visit_all(after);
  } catch (...) {
    begin_next();
    throw;
  }
  begin_next();
}

}  // namespace jitgemm::cli
