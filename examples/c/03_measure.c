/* Verifies and times a plan on random operands, then lists kernels with a command's JSON. */
#include <stdio.h>
#include <tessera/tessera.h>

static int fail(const char* what) {
  fprintf(stderr, "%s: %s\n", what, tsr_error());
  return 1;
}

int main(void) {
  tsr_dispatcher_t* dispatcher = NULL;
  tsr_problem_t* problem = NULL;
  tsr_plan_t* plan = NULL;
  char* json = NULL;

  if (tsr_dispatcher_create(NULL, &dispatcher) != TSR_OK) return fail("dispatcher");
  if (tsr_problem_parse("norm kind=softmax rows=256 columns=1000", &problem) != TSR_OK) {
    return fail("problem");
  }
  if (tsr_plan(dispatcher, problem, NULL, &plan) != TSR_OK) return fail("plan");
  if (tsr_verify(plan, 1) != TSR_OK) return fail("verify");

  tsr_bench_options_t options = TSR_INIT(tsr_bench_options_t);
  options.rounds = 5;
  if (tsr_bench(plan, NULL, 0, &options, NULL, &json) != TSR_OK) return fail("bench");
  printf("%s\n", json);
  tsr_free(json);

  if (tsr_command("list", "{\"op\": \"norm\", \"sets\": true}", NULL, NULL, &json) != TSR_OK) {
    return fail("list");
  }
  printf("%s\n", json);
  tsr_free(json);

  /* A mistake gets a sentence. */
  tsr_problem_t* wrong = NULL;
  const tsr_status_t status = tsr_problem_parse("norm kind=softmux rows=1 columns=1", &wrong);
  printf("%s: %s\n", tsr_status_name(status), tsr_error());

  tsr_plan_destroy(plan);
  tsr_problem_destroy(problem);
  tsr_dispatcher_destroy(dispatcher);
  return status == TSR_PARSE_ERROR && wrong == NULL ? 0 : 1;
}
