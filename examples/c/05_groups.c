/* Products of unequal sizes in one launch, whose sizes and matrices the kernel reads from arrays.
 */
#include <stdio.h>
#include <stdlib.h>
#include <tessera/tessera.h>

enum { kGroups = 3, kMostRows = 64, kMostColumns = 80, kMostDepth = 50 };

static int fail(const char* what) {
  fprintf(stderr, "%s: %s\n", what, tsr_error());
  return 1;
}

/* The largest difference of out (m x n) from the sums of a[m][k] * b[n][k]. */
static double worst(const float* a, const float* b, const float* out, int m, int n, int k) {
  double most = 0;
  for (int i = 0; i < m; ++i) {
    for (int j = 0; j < n; ++j) {
      double sum = 0;
      for (int p = 0; p < k; ++p) sum += (double)a[i * k + p] * b[j * k + p];
      const double difference = out[i * n + j] - sum;
      if (difference > most) most = difference;
      if (-difference > most) most = -difference;
    }
  }
  return most;
}

static void fill(float* values, int count) {
  for (int i = 0; i < count; ++i) values[i] = (float)(rand() % 2001 - 1000) / 1000.0F;
}

int main(void) {
  static float a[kGroups][kMostRows * kMostDepth], b[kGroups][kMostColumns * kMostDepth];
  static float out[kGroups][kMostRows * kMostColumns];
  const int m[kGroups] = {30, 7, 64}, n[kGroups] = {16, 80, 5}, k[kGroups] = {40, 3, 50};
  const void *a_list[kGroups], *b_list[kGroups];
  void* out_list[kGroups];
  tsr_dispatcher_t* dispatcher = NULL;
  tsr_problem_t* problem = NULL;
  tsr_plan_t* plan = NULL;

  for (int i = 0; i < kGroups; ++i) {
    fill(a[i], m[i] * k[i]);
    fill(b[i], n[i] * k[i]);
    a_list[i] = a[i], b_list[i] = b[i], out_list[i] = out[i];
  }
  if (tsr_dispatcher_create(NULL, &dispatcher) != TSR_OK) return fail("dispatcher");
  /* The greatest sizes; with group_strides rows lie as the sizes of each group say. */
  if (tsr_problem_parse("gemm m=64 n=80 k=50 groups=3 grouping=lists group_strides=1", &problem) !=
      TSR_OK) {
    return fail("problem");
  }
  if (tsr_plan(dispatcher, problem, NULL, &plan) != TSR_OK) return fail("plan");

  const tsr_operand_t operands[] = {{"a", a_list},
                                    {"b", b_list},
                                    {"out", out_list},
                                    {"group_m", (void*)m},
                                    {"group_n", (void*)n},
                                    {"group_k", (void*)k},
                                    {"group_ld_a", (void*)k},
                                    {"group_ld_b", (void*)k},
                                    {"group_ld_out", (void*)n}};
  if (tsr_launch_named(plan, operands, sizeof operands / sizeof operands[0], NULL) != TSR_OK) {
    return fail("launch");
  }
  double most = 0;
  for (int i = 0; i < kGroups; ++i) {
    const double difference = worst(a[i], b[i], out[i], m[i], n[i], k[i]);
    if (difference > most) most = difference;
  }
  printf("worst difference from the sums in double: %.2e\n", most);

  tsr_plan_destroy(plan);
  tsr_problem_destroy(problem);
  tsr_dispatcher_destroy(dispatcher);
  return most < 1e-4 ? 0 : 1;
}
