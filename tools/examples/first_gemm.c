#include <jitgemm/jitgemm.h>
#include <stdio.h>
#include <stdlib.h>

static void check(jitgemm_status status) {
  if (status == JITGEMM_STATUS_SUCCESS) return;
  fprintf(stderr, "%s\n", jitgemm_last_error_message());
  exit(1);
}

static uint16_t a[64 * 128], b[128 * 96];
static float d[64 * 96];

int main(void) {
  jitgemm_options options;
  check(jitgemm_options_init(&options));
  options.device = JITGEMM_DEVICE_EMULATOR;  // takes host pointers; the default is this thread's CUDA device
  jitgemm_context* context;
  check(jitgemm_context_create(&options, &context));

  jitgemm_problem problem;
  check(jitgemm_problem_init(&problem));
  check(jitgemm_problem_parse("64x96x128 a=f16 d=f32 activation=relu", &problem));  // or field by field
  jitgemm_plan* plan;
  check(jitgemm_plan_create(context, &problem, NULL, &plan));

  for (int i = 0; i < 64 * 128; ++i) a[i] = 0x3c00;  // 1.0 in f16
  for (int i = 0; i < 128 * 96; ++i) b[i] = 0x3c00;
  jitgemm_operands operands;
  check(jitgemm_operands_init(&operands));
  operands.a = a, operands.b = b, operands.d = d;
  check(jitgemm_plan_run(plan, &operands, NULL));  // chosen and compiled on first use

  static char text[4096];
  check(jitgemm_plan_explain(plan, text, sizeof text, NULL));  // which configuration, and why
  printf("%s\nd[0] = %g\n", text, d[0]);
  jitgemm_plan_destroy(plan), jitgemm_context_destroy(context);
  return d[0] == 128 ? 0 : 1;
}
