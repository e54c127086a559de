/* A contraction: the scores of attention, whose heads lie within the tokens. */
#include <stdio.h>
#include <stdlib.h>
#include <tessera/tessera.h>

enum { kBatch = 2, kHeads = 3, kQueries = 10, kKeys = 12, kDepth = 16 };

static int fail(const char* what) {
  fprintf(stderr, "%s: %s\n", what, tsr_error());
  return 1;
}

static void fill(float* values, int count) {
  for (int i = 0; i < count; ++i) values[i] = (float)(rand() % 2001 - 1000) / 1000.0F;
}

int main(void) {
  static float q[kBatch][kQueries][kHeads][kDepth], k[kBatch][kKeys][kHeads][kDepth];
  static float out[kBatch][kHeads][kQueries][kKeys];
  tsr_dispatcher_t* dispatcher = NULL;
  tsr_problem_t* problem = NULL;
  tsr_plan_t* plan = NULL;
  fill(&q[0][0][0][0], kBatch * kQueries * kHeads * kDepth);
  fill(&k[0][0][0][0], kBatch * kKeys * kHeads * kDepth);

  if (tsr_dispatcher_create(NULL, &dispatcher) != TSR_OK) return fail("dispatcher");
  if (tsr_problem_parse("einsum bqhd,bkhd->bhqk sizes=b:2,q:10,h:3,d:16,k:12", &problem) !=
      TSR_OK) {
    return fail("problem");
  }
  if (tsr_plan(dispatcher, problem, NULL, &plan) != TSR_OK) return fail("plan");
  const tsr_operand_t operands[] = {{"a", q}, {"b", k}, {"out", out}};
  if (tsr_launch_named(plan, operands, sizeof operands / sizeof operands[0], NULL) != TSR_OK) {
    return fail("launch");
  }

  double most = 0;
  for (int b = 0; b < kBatch; ++b) {
    for (int h = 0; h < kHeads; ++h) {
      for (int i = 0; i < kQueries; ++i) {
        for (int j = 0; j < kKeys; ++j) {
          double sum = 0;
          for (int d = 0; d < kDepth; ++d) sum += (double)q[b][i][h][d] * k[b][j][h][d];
          const double difference = out[b][h][i][j] - sum;
          if (difference > most) most = difference;
          if (-difference > most) most = -difference;
        }
      }
    }
  }
  printf("worst difference from the sums in double: %.2e\n", most);
  tsr_plan_destroy(plan);
  tsr_problem_destroy(problem);
  tsr_dispatcher_destroy(dispatcher);
  return most < 1e-4 ? 0 : 1;
}
