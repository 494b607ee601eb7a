#include "parallel/agreement.hpp"

#include <exception>
#include <string_view>
#include <vector>

#include "parallel/sent_text.hpp"

namespace jitgemm {
namespace {

struct Vote {
  SentText<40> digest;
  bool failed = false;
  ErrorCode code = ErrorCode::internal;
  SentText<512> why;
};
static_assert(sizeof(Vote) <= most_exchanged_bytes && std::is_trivially_copyable_v<Vote>);

struct SentChoice {
  SentText<512> config;
  PlanSource source = PlanSource::model;
  SentText<1024> why;
  double measured_us = 0;
  ParallelMethod method = ParallelMethod::unfused;
  SentText<512> why_method;
  double together_us = 0;
  bool to_measure = false;
};
static_assert(sizeof(SentChoice) <= most_exchanged_bytes && std::is_trivially_copyable_v<SentChoice>);

}  // namespace

void agree(Communicator& communicator, const std::string& digest, const std::optional<Error>& failure) {
  Vote mine;
  mine.digest = std::string_view(digest);
  if (failure) {
    mine.failed = true;
    mine.code = failure->code();
    mine.why = std::string_view(failure->what());
  }
  std::vector<Vote> votes(std::size_t(communicator.ranks()));
  communicator.all_gather_bytes(&mine, votes.data(), sizeof mine);
  if (failure) throw *failure;
  for (std::size_t rank = 0; rank < votes.size(); ++rank) {
    const Vote& vote = votes[rank];
    if (!vote.failed) continue;
    throw Error(vote.code, "rank " + std::to_string(rank) + " of " + std::to_string(votes.size()) +
                               " could not go on, and so no rank does: " + vote.why.str());
  }
  std::string others;
  for (std::size_t rank = 1; rank < votes.size(); ++rank)
    if (votes[rank].digest.str() != votes[0].digest.str())
      others += (others.empty() ? "" : ", ") + std::to_string(rank);
  if (!others.empty()) {
    throw Error(
        ErrorCode::invalid_problem,
        "the ranks do not ask for the same: not what rank 0 does is asked for by rank " + others +
            "; call with the same problem, exchange and version of the library on all ranks, in the same order");
  }
}

AgreedChoice choose_on_first(Communicator& communicator, FunctionRef<AgreedChoice()> choose) {
  std::optional<Error> failure;
  std::exception_ptr own;  // of ContextOptions::progress
  SentChoice sent;
  const auto chosen = [&] {
    try {
      return choose();
    } catch (const Error&) {
      throw;
    } catch (...) {
      own = std::current_exception();
      throw;
    }
  };
  if (communicator.rank() == 0) {
    failure = failure_of([&] {
      const AgreedChoice choice = chosen();
      sent.config = std::string_view(to_string(choice.config));
      sent.source = choice.source;
      sent.why = std::string_view(choice.why);
      sent.measured_us = choice.measured_us;
      sent.method = choice.method;
      sent.why_method = std::string_view(choice.why_method);
      sent.together_us = choice.together_us;
      sent.to_measure = choice.to_measure;
    });
  }
  try {
    agree(communicator, "chosen", failure);
  } catch (...) {
    if (own && !communicator.has_failed()) std::rethrow_exception(own);
    throw;
  }
  communicator.broadcast_bytes(&sent, sizeof sent, 0);
  return {.config = parse_kernel_config(sent.config.str()),
          .source = sent.source,
          .why = sent.why.str(),
          .measured_us = sent.measured_us,
          .method = sent.method,
          .why_method = sent.why_method.str(),
          .together_us = sent.together_us,
          .to_measure = sent.to_measure};
}

}  // namespace jitgemm
