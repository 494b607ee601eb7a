// Candidates, and what a measurement finds.
#include "c/handles.hpp"
#include "c/text.hpp"
#include "c/values.hpp"

struct jitgemm_candidates {
  std::shared_ptr<jitgemm::Context> context;
  jitgemm::Problem problem;
  std::vector<jitgemm::Plan> plans;
};

struct jitgemm_tune_report {
  std::shared_ptr<jitgemm::Context> context;
  jitgemm::Problem problem;
  jitgemm::TuneReport report;
};

using namespace jitgemm::c;

jitgemm_status jitgemm_candidates_create(jitgemm_context* context, const jitgemm_problem* problem,
                                         jitgemm_candidates** candidates) {
  return guarded([&] {
    const auto& in = given(context, "context").context;
    const jitgemm::Problem asked = problem_of(problem);
    given(candidates, "candidates");
    put_handle(candidates,
               std::unique_ptr<jitgemm_candidates>(new jitgemm_candidates{in, asked, in->candidates(asked)}));
  });
}

void jitgemm_candidates_destroy(jitgemm_candidates* candidates) { delete candidates; }

jitgemm_status jitgemm_candidates_count(const jitgemm_candidates* candidates, std::size_t* count) {
  return guarded([&] { given(count, "count") = given(candidates, "candidates").plans.size(); });
}

jitgemm_status jitgemm_candidates_plan(const jitgemm_candidates* candidates, std::size_t index, jitgemm_plan** plan) {
  return guarded([&] {
    const auto& [context, problem, plans] = given(candidates, "candidates");
    given(plan, "plan");
    check_index(index, plans.size(), "candidates");
    put_handle(plan, std::make_unique<jitgemm_plan>(context, problem, plans[index].config, plans[index]));
  });
}

jitgemm_status jitgemm_tune(jitgemm_context* context, const jitgemm_problem* problem, jitgemm_tune_progress progress,
                            void* user, jitgemm_tune_report** report) {
  return guarded([&] {
    const auto& in = given(context, "context").context;
    const jitgemm::Problem asked = problem_of(problem);
    std::function<void(int, int)> told;
    if (progress) {
      told = [progress, user](int done, int total) {
        run_callback("progress", [&] { return progress(user, done, total); });
      };
    }
    auto made = std::make_unique<jitgemm_tune_report>();
    made->context = in;
    made->problem = asked;
    made->report = in->tune(asked, told);
    if (report) put_handle(report, std::move(made));
  });
}

void jitgemm_tune_report_destroy(jitgemm_tune_report* report) { delete report; }

jitgemm_status jitgemm_tune_report_seconds(const jitgemm_tune_report* report, double* seconds) {
  return guarded([&] { given(seconds, "seconds") = given(report, "report").report.seconds; });
}

jitgemm_status jitgemm_tune_report_plan(const jitgemm_tune_report* report, jitgemm_plan** plan) {
  return guarded([&] {
    const auto& [context, problem, found] = given(report, "report");
    given(plan, "plan");
    put_handle(plan, std::make_unique<jitgemm_plan>(context, problem, std::nullopt, found.plan));
  });
}

jitgemm_status jitgemm_tune_report_count(const jitgemm_tune_report* report, std::size_t* count) {
  return guarded([&] { given(count, "count") = given(report, "report").report.candidates.size(); });
}

jitgemm_status jitgemm_tune_report_candidate(const jitgemm_tune_report* report, std::size_t index,
                                             jitgemm_config* config, jitgemm_tuned_candidate* candidate) {
  return guarded([&] {
    const Out<jitgemm_config> config_out(config);
    const Out<jitgemm_tuned_candidate> candidate_out(candidate);
    const auto& all = given(report, "report").report.candidates;
    check_index(index, all.size(), "candidates");
    config_out.put(to_c(all[index].config));
    candidate_out.put(to_c(all[index]));
  });
}

jitgemm_status jitgemm_tune_report_skipped(const jitgemm_tune_report* report, std::size_t index, char* buffer,
                                           std::size_t capacity, std::size_t* needed) {
  return guarded([&] {
    const TextOut out(buffer, capacity, needed);
    const auto& all = given(report, "report").report.candidates;
    check_index(index, all.size(), "candidates");
    out.put_text(all[index].skipped);
  });
}
