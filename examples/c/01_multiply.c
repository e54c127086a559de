/* Multiplies two matrices: a problem, a plan, and launches that choose nothing any more. */
#include <stdio.h>
#include <stdlib.h>
#include <tessera/tessera.h>

enum { kRows = 128, kColumns = 96, kDepth = 64 };

static int fail(const char* what) {
  fprintf(stderr, "%s: %s\n", what, tsr_error());
  return 1;
}

/* out[m][n] = sum over k of a[m][k] * b[n][k], counted in double. */
static double worst_difference(const float* a, const float* b, const float* out) {
  double worst = 0;
  for (int m = 0; m < kRows; ++m) {
    for (int n = 0; n < kColumns; ++n) {
      double sum = 0;
      for (int k = 0; k < kDepth; ++k) sum += (double)a[m * kDepth + k] * b[n * kDepth + k];
      const double difference = out[m * kColumns + n] - sum;
      if (difference > worst || -difference > worst) {
        worst = difference < 0 ? -difference : difference;
      }
    }
  }
  return worst;
}

static void fill(float* values, int count) {
  for (int i = 0; i < count; ++i) values[i] = (float)(rand() % 2001 - 1000) / 1000.0F;
}

int main(void) {
  static float a[kRows * kDepth], b[kColumns * kDepth], out[kRows * kColumns];
  tsr_dispatcher_t* dispatcher = NULL;
  tsr_problem_t* problem = NULL;
  tsr_plan_t* plan = NULL;
  char* json = NULL;

  if (tsr_abi() != TSR_ABI) {
    fprintf(stderr, "the library has ABI %d, the program was compiled for %d\n", tsr_abi(),
            TSR_ABI);
    return 1;
  }
  fill(a, kRows * kDepth);
  fill(b, kColumns * kDepth);

  if (tsr_dispatcher_create(NULL, &dispatcher) != TSR_OK) return fail("dispatcher");
  if (tsr_problem_parse("gemm m=128 n=96 k=64", &problem) != TSR_OK) return fail("problem");
  if (tsr_plan(dispatcher, problem, NULL, &plan) != TSR_OK) return fail("plan");
  if (tsr_plan_json(plan, &json) != TSR_OK) return fail("plan");
  printf("%s\n", json);
  tsr_free(json);

  const tsr_operand_t operands[] = {{"a", a}, {"b", b}, {"out", out}};
  if (tsr_launch_named(plan, operands, 3, NULL) != TSR_OK) return fail("launch");
  const double worst = worst_difference(a, b, out);
  printf("worst difference from the sums in double: %.2e\n", worst);

  tsr_plan_destroy(plan);
  tsr_problem_destroy(problem);
  tsr_dispatcher_destroy(dispatcher);
  return worst < 1e-4 ? 0 : 1;
}
