/* What a C program does with an installed jitgemm, as strict compilers want it. */
#include <jitgemm/jitgemm.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { size = 32 };

static void check(jitgemm_status status) {
  if (status == JITGEMM_STATUS_SUCCESS) return;
  fprintf(stderr, "%s: %s\n%s", jitgemm_status_name(status), jitgemm_last_error_message(), jitgemm_last_error_log());
  exit(1);
}

static void require(int so, const char* what) {
  if (so) return;
  fprintf(stderr, "not so: %s\n", what);
  exit(1);
}

static int stop(void* user, int32_t done, int32_t total) {
  ++*(int*)user;
  return done <= total;
}

int main(void) {
  static uint16_t ones[size * size];
  static float d[size * size];
  jitgemm_options options;
  jitgemm_problem problem;
  jitgemm_operands operands;
  jitgemm_counters counters;
  jitgemm_plan_info info;
  jitgemm_context* context;
  jitgemm_plan* plan;
  char* text;
  size_t needed, i;
  int calls = 0;

  check(jitgemm_options_init(&options));
  options.device = JITGEMM_DEVICE_EMULATOR;
  options.tuning = JITGEMM_TUNING_OFF;
  check(jitgemm_context_create(&options, &context));
  check(jitgemm_problem_init(&problem));
  problem.m = problem.n = problem.k = size;
  problem.d.type = JITGEMM_F32;
  check(jitgemm_plan_create(context, &problem, NULL, &plan));
  jitgemm_context_destroy(context); /* which the plan holds on to */

  for (i = 0; i < size * size; ++i) ones[i] = 0x3c00;
  check(jitgemm_operands_init(&operands));
  operands.a = ones;
  operands.b = ones;
  operands.d = d;
  check(jitgemm_plan_run(plan, &operands, NULL));
  for (i = 0; i < size * size; ++i) require(d[i] == size, "D is right");

  check(jitgemm_plan_info_init(&info));
  check(jitgemm_plan_update(plan));
  check(jitgemm_plan_get_info(plan, &info));
  require(info.registers >= 0 && info.source == JITGEMM_CHOICE_MODEL, "the plan knows its kernel");
  check(jitgemm_plan_source(plan, NULL, 0, &needed));
  text = (char*)malloc(needed);
  require(text != NULL, "there is memory");
  check(jitgemm_plan_source(plan, text, needed, NULL));
  require(strlen(text) + 1 == needed && strstr(text, "__global__"), "the source is one");
  free(text);
  jitgemm_plan_destroy(plan);

  problem.m = -1;
  check(jitgemm_context_create(&options, &context));
  require(jitgemm_plan_create(context, &problem, NULL, &plan) == JITGEMM_STATUS_INVALID_PROBLEM, "-1 rows are refused");
  require(strstr(jitgemm_last_error_problem(), "m=-1") != NULL, "the error names the problem");
  problem.m = size;
  require(jitgemm_tune(context, &problem, stop, &calls, NULL) == JITGEMM_STATUS_INTERRUPTED && calls == 1,
          "a callback ends a measurement");
  check(jitgemm_counters_init(&counters));
  check(jitgemm_get_counters(context, &counters));
  require(counters.tuned == 0, "nothing was measured to the end");
  jitgemm_context_destroy(context);
  require(strcmp(jitgemm_version(), JITGEMM_VERSION) == 0, "header and library are of one version");
  return 0;
}
