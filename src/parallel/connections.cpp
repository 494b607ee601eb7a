#include "parallel/connections.hpp"

#include <optional>

#include "jitgemm/error.hpp"

namespace jitgemm {
namespace {

void check_report(Communicator& communicator, const device::Patience::Report& report) {
  if (report.state != device::Patience::lost) return;
  communicator.fail(
      Error(ErrorCode::peer_lost, "rank " + std::to_string(communicator.rank()) + " has waited in vain for rank " +
                                      std::to_string(report.rank) + " in call " + std::to_string(report.epoch) +
                                      ", whose results count for nothing; end all ranks and begin again"));
}

}  // namespace

AllGatherBytes Connections::all_gather() {
  return [this](const void* own, void* all, std::size_t bytes) { communicator_.all_gather_bytes(own, all, bytes); };
}

bool Connections::make(ParallelMethod chosen, const RankProblem& problem, const std::string& digest) {
  const std::optional<Error> failure = failure_of([&] {
    if (chosen == ParallelMethod::overlapped && !overlapped_) make_overlapped(digest);
    if (chosen == ParallelMethod::one_shot && !one_shot_) make_one_shot(problem, digest);
  });
  if (!failure) return true;
  if (failure->code() != ErrorCode::no_device) throw *failure;
  why_none_ = failure->what();
  return false;
}

void Connections::connect(const std::string& digest, FunctionRef<void()> work) {
  const std::optional<Error> failure = failure_of(work);
  if (!failure) return;
  agree(communicator_, digest, failure->code() == ErrorCode::no_device ? std::nullopt : failure);
  throw *failure;
}

void Connections::make_overlapped(const std::string& digest) {
  std::unique_ptr<Overlapped> made;
  agree(communicator_, digest, failure_of([&] {
          made = std::make_unique<Overlapped>(context_, communicator_.rank(), communicator_.ranks(), all_gather(),
                                              communicator_.timeout_seconds());
        }));
  connect(digest, [&] { made->connect(); });
  overlapped_ = std::move(made);
  used_overlapped_ = overlapped_.get();
}

void Connections::make_one_shot(const RankProblem& problem, const std::string& digest) {
  std::unique_ptr<OneShot> made;
  agree(communicator_, digest, failure_of([&] {
          made = std::make_unique<OneShot>(context_, communicator_.rank(), communicator_.ranks(), all_gather(),
                                           communicator_.timeout_seconds());
        }));
  connect(digest, [&] { made->grow(OneShot::memory_bytes(problem)); });
  one_shot_ = std::move(made);
  used_one_shot_ = one_shot_.get();
}

void Connections::drop_unused_memory() {
  if (overlapped_) overlapped_->drop_unused_memory();
}

void Connections::check() const {
  if (const Overlapped* const its = used_overlapped_) check_report(communicator_, its->report());
  if (const OneShot* const its = used_one_shot_) check_report(communicator_, its->report());
}

void Connections::abort() noexcept {
  if (Overlapped* const its = used_overlapped_) its->abort();
  if (OneShot* const its = used_one_shot_) its->abort();
}

}  // namespace jitgemm
