/* Convolves images in two groups with bias and ReLU, then adds the gradient of the filters up. */
#include <stdio.h>
#include <stdlib.h>
#include <tessera/tessera.h>

#define SIZES "n=2 c=12 k=8 g=2 h=10 w=10 y=3 x=3 pad_h=1 pad_w=1"

enum {
  kImages = 2,
  kSize = 10, /* of the images and of the output: a 3x3 filter with padding */
  kGroups = 2,
  kInputs = 6, /* channels in one group */
  kOutputs = 4,
  kPixels = kImages * kSize * kSize,
  kTaps = 3 * 3
};

static float x[kPixels * kGroups * kInputs], out[kPixels * kGroups * kOutputs];
static float w[kGroups * kOutputs * kTaps * kInputs], bias[kGroups * kOutputs];
static float grad_w[kGroups * kOutputs * kTaps * kInputs];

static int fail(const char* what) {
  fprintf(stderr, "%s: %s\n", what, tsr_error());
  return 1;
}

static void fill(float* values, int count) {
  for (int i = 0; i < count; ++i) values[i] = (float)(rand() % 2001 - 1000) / 1000.0F;
}

/* One element of the output, counted in double. */
static double expected(int image, int row, int column, int channel) {
  double sum = bias[channel];
  for (int tap = 0; tap < kTaps; ++tap) {
    const int h = row + tap / 3 - 1, v = column + tap % 3 - 1;
    if (h < 0 || h >= kSize || v < 0 || v >= kSize) continue;
    const float* const pixel = &x[((image * kSize + h) * kSize + v) * kGroups * kInputs];
    for (int c = 0; c < kInputs; ++c) {
      sum += (double)pixel[channel / kOutputs * kInputs + c] *
             w[(channel * kTaps + tap) * kInputs + c];
    }
  }
  return sum > 0 ? sum : 0;
}

static double worst_difference(void) {
  double worst = 0;
  for (int i = 0; i < kPixels * kGroups * kOutputs; ++i) {
    const int channel = i % (kGroups * kOutputs), pixel = i / (kGroups * kOutputs);
    const double wanted =
        expected(pixel / kSize / kSize, pixel / kSize % kSize, pixel % kSize, channel);
    const double difference = out[i] > wanted ? out[i] - wanted : wanted - out[i];
    if (difference > worst) worst = difference;
  }
  return worst;
}

static int run(tsr_dispatcher_t* dispatcher, const char* line, const tsr_operand_t* operands,
               size_t count) {
  tsr_problem_t* problem = NULL;
  tsr_plan_t* plan = NULL;
  if (tsr_problem_parse(line, &problem) != TSR_OK) return fail("problem");
  if (tsr_plan(dispatcher, problem, NULL, &plan) != TSR_OK) return fail("plan");
  if (tsr_launch_named(plan, operands, count, NULL) != TSR_OK) return fail("launch");
  printf("%s\n", line);
  tsr_plan_destroy(plan);
  tsr_problem_destroy(problem);
  return 0;
}

int main(void) {
  tsr_dispatcher_t* dispatcher = NULL;
  fill(x, kPixels * kGroups * kInputs);
  fill(w, kGroups * kOutputs * kTaps * kInputs);
  fill(bias, kGroups * kOutputs);
  if (tsr_dispatcher_create(NULL, &dispatcher) != TSR_OK) return fail("dispatcher");

  const tsr_operand_t forward[] = {{"in", x}, {"weight", w}, {"d0", bias}, {"out", out}};
  const tsr_operand_t backward[] = {
      {"in", x}, {"grad_out", out}, {"c", grad_w}, {"grad_weight", grad_w}};
  if (run(dispatcher, "conv direction=forward " SIZES " epilogue=bias+relu", forward, 4) != 0 ||
      run(dispatcher, "conv direction=backward_weight " SIZES " beta=1", backward, 4) != 0) {
    return 1;
  }
  const double worst = worst_difference();
  printf("worst difference from the sums in double: %.2e\n", worst);
  tsr_dispatcher_destroy(dispatcher);
  return worst < 1e-5 ? 0 : 1;
}
