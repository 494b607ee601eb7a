#include "c/handles.hpp"
#include "c/text.hpp"
#include "c/values.hpp"

namespace jitgemm::c {

const std::vector<KernelText>& Facts::sources(Context& context) {
  const std::lock_guard lock(mutex_);
  if (!sources_) sources_ = context.sources(plan.problem, plan.config);
  return *sources_;
}

const std::vector<KernelText>& Facts::binaries(Context& context) {
  const std::lock_guard lock(mutex_);
  if (!binaries_) binaries_ = context.binaries(plan.problem, plan.config);
  return *binaries_;
}

const std::string& Facts::binary(Context& context) {
  const std::lock_guard lock(mutex_);
  if (!binary_) binary_ = context.binary(plan.problem, plan.config);
  return *binary_;
}

namespace {

template <typename TextOf>
jitgemm_status put_text(const jitgemm_plan* plan, char* buffer, std::size_t capacity, std::size_t* needed,
                        TextOf text_of) {
  return guarded([&] {
    const TextOut out(buffer, capacity, needed);
    const auto facts = given(plan, "plan").facts();
    out.put_text(text_of(*facts, *plan->context));
  });
}

const KernelText& one_of(const std::vector<KernelText>& texts, std::size_t kernel) {
  check_index(kernel, texts.size(), "kernels");
  return texts[kernel];
}

template <typename Value, typename ValueOf>
jitgemm_status put_value(const jitgemm_plan* plan, Value* value, ValueOf value_of) {
  return guarded([&] {
    const auto out = required(value);
    out.put(value_of(given(plan, "plan").facts()->plan));
  });
}

}  // namespace
}  // namespace jitgemm::c

using namespace jitgemm::c;

jitgemm_status jitgemm_plan_create(jitgemm_context* context, const jitgemm_problem* problem,
                                   const jitgemm_config* config, jitgemm_plan** plan) {
  return guarded([&] {
    const auto& in = given(context, "context").context;
    const jitgemm::Problem asked = problem_of(problem);
    const auto pinned = optional_config_of(config);
    given(plan, "plan");
    put_handle(plan,
               std::make_unique<jitgemm_plan>(in, asked, pinned, pinned ? in->plan(asked, *pinned) : in->plan(asked)));
  });
}

void jitgemm_plan_destroy(jitgemm_plan* plan) { delete plan; }

jitgemm_status jitgemm_plan_run(const jitgemm_plan* plan, const jitgemm_operands* operands, jitgemm_stream stream) {
  return guarded([&] {
    given(plan, "plan");
    const jitgemm::Operands memory = operands_of(operands);
    if (plan->pinned)
      plan->context->gemm(plan->problem, memory, stream, *plan->pinned);
    else
      plan->context->gemm(plan->problem, memory, stream);
  });
}

jitgemm_status jitgemm_plan_update(jitgemm_plan* plan) {
  return guarded([&] {
    jitgemm::Context& context = *given(plan, "plan").context;
    plan->put(plan->pinned ? context.plan(plan->problem, *plan->pinned) : context.plan(plan->problem));
  });
}

jitgemm_status jitgemm_plan_compile(jitgemm_plan* plan) {
  return guarded([&] {
    jitgemm::Context& context = *given(plan, "plan").context;
    plan->put(plan->pinned ? context.compile(plan->problem, *plan->pinned) : context.compile(plan->problem));
  });
}

jitgemm_status jitgemm_plan_get_problem(const jitgemm_plan* plan, jitgemm_problem* problem) {
  return put_value(plan, problem, [](const jitgemm::Plan& known) { return to_c(known.problem); });
}
jitgemm_status jitgemm_plan_get_config(const jitgemm_plan* plan, jitgemm_config* config) {
  return put_value(plan, config, [](const jitgemm::Plan& known) { return to_c(known.config); });
}
jitgemm_status jitgemm_plan_get_predicted_time(const jitgemm_plan* plan, jitgemm_predicted_time* time) {
  return put_value(plan, time, [](const jitgemm::Plan& known) { return to_c(known.predicted); });
}
jitgemm_status jitgemm_plan_get_info(const jitgemm_plan* plan, jitgemm_plan_info* info) {
  return put_value(plan, info, info_to_c);
}

jitgemm_status jitgemm_plan_get_runner_up(const jitgemm_plan* plan, std::size_t index, jitgemm_config* config,
                                          double* median_us) {
  return guarded([&] {
    const Out<jitgemm_config> out(config);
    const auto facts = given(plan, "plan").facts();
    const std::vector<jitgemm::MeasuredConfig>& all = facts->plan.runners_up;
    check_index(index, all.size(), "runners-up");
    const auto& [measured, us] = all[index];
    out.put(to_c(measured));
    if (median_us) *median_us = us;
  });
}

jitgemm_status jitgemm_plan_explain(const jitgemm_plan* plan, char* buffer, std::size_t capacity, std::size_t* needed) {
  return put_text(plan, buffer, capacity, needed, [](Facts& facts, auto&) { return facts.plan.explain(); });
}
jitgemm_status jitgemm_plan_json(const jitgemm_plan* plan, char* buffer, std::size_t capacity, std::size_t* needed) {
  return put_text(plan, buffer, capacity, needed, [](Facts& facts, auto&) { return facts.plan.json(); });
}
jitgemm_status jitgemm_plan_why(const jitgemm_plan* plan, char* buffer, std::size_t capacity, std::size_t* needed) {
  return put_text(plan, buffer, capacity, needed, [](Facts& facts, auto&) { return facts.plan.why; });
}
jitgemm_status jitgemm_plan_rates(const jitgemm_plan* plan, char* buffer, std::size_t capacity, std::size_t* needed) {
  return put_text(plan, buffer, capacity, needed, [](Facts& facts, auto&) { return facts.plan.rates; });
}
jitgemm_status jitgemm_plan_device(const jitgemm_plan* plan, char* buffer, std::size_t capacity, std::size_t* needed) {
  return put_text(plan, buffer, capacity, needed, [](Facts& facts, auto&) { return facts.plan.device; });
}

jitgemm_status jitgemm_plan_source(const jitgemm_plan* plan, char* buffer, std::size_t capacity, std::size_t* needed) {
  return put_text(plan, buffer, capacity, needed,
                  [](Facts& facts, auto& context) -> auto& { return facts.sources(context).back().text; });
}
jitgemm_status jitgemm_plan_binary(const jitgemm_plan* plan, void* buffer, std::size_t capacity, std::size_t* needed) {
  return guarded([&] {
    const TextOut out(buffer, capacity, needed);
    const auto facts = given(plan, "plan").facts();
    out.put_bytes(facts->binary(*plan->context));
  });
}

jitgemm_status jitgemm_plan_kernel_count(const jitgemm_plan* plan, std::size_t* count) {
  return guarded([&] {
    given(count, "count");
    const auto facts = given(plan, "plan").facts();
    *count = facts->sources(*plan->context).size();
  });
}
jitgemm_status jitgemm_plan_kernel_name(const jitgemm_plan* plan, std::size_t kernel, char* buffer,
                                        std::size_t capacity, std::size_t* needed) {
  return put_text(plan, buffer, capacity, needed,
                  [&](Facts& facts, auto& context) -> auto& { return one_of(facts.sources(context), kernel).name; });
}
jitgemm_status jitgemm_plan_kernel_entry(const jitgemm_plan* plan, std::size_t kernel, char* buffer,
                                         std::size_t capacity, std::size_t* needed) {
  return put_text(plan, buffer, capacity, needed,
                  [&](Facts& facts, auto& context) -> auto& { return one_of(facts.sources(context), kernel).entry; });
}
jitgemm_status jitgemm_plan_kernel_source(const jitgemm_plan* plan, std::size_t kernel, char* buffer,
                                          std::size_t capacity, std::size_t* needed) {
  return put_text(plan, buffer, capacity, needed,
                  [&](Facts& facts, auto& context) -> auto& { return one_of(facts.sources(context), kernel).text; });
}
jitgemm_status jitgemm_plan_kernel_binary(const jitgemm_plan* plan, std::size_t kernel, void* buffer,
                                          std::size_t capacity, std::size_t* needed) {
  return guarded([&] {
    const TextOut out(buffer, capacity, needed);
    const auto facts = given(plan, "plan").facts();
    check_index(kernel, facts->sources(*plan->context).size(), "kernels");
    out.put_bytes(one_of(facts->binaries(*plan->context), kernel).text);
  });
}
