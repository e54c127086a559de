/* Calls of the C ABI on an emulated AMD GPU: GEMM, convolutions in all directions, attention with
 * its gradients and normalisations, on random operands, and what is refused. The environment names
 * the emulated library and its target; the seed is the argument, or the time. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tessera/tessera.h>
#include <time.h>

#define LINES (sizeof kLines / sizeof *kLines)

/* Each line holds two sizes that are drawn. */
static const char* const kLines[] = {
    "gemm m=%d n=%d k=72",
    "conv direction=forward n=1 c=16 k=24 h=%d w=%d y=3 x=3 pad_h=1 pad_w=1",
    "conv direction=backward_data n=1 c=16 k=24 h=%d w=%d y=3 x=3 pad_h=1 pad_w=1",
    "conv direction=backward_weight n=1 c=16 k=24 h=%d w=%d y=3 x=3 pad_h=1 pad_w=1",
    "fmha heads=4 heads_kv=2 seqlen_q=%d seqlen_k=%d hdim=64",
    "fmha kind=backward heads=2 seqlen_q=%d seqlen_k=%d hdim=64",
    "norm kind=rmsnorm scale=1 rows=%d columns=%d",
};
static const char* const kTypes[] = {"fp16", "bf16"};

static int (*device_allocate)(void**, size_t);
static int failures;

static void fail(const char* what, const char* text) {
  printf("%s: %s\n", what, text);
  ++failures;
}

/* A plan for a problem on a target; NULL: this machine. */
static tsr_plan_t* plan_of(tsr_dispatcher_t* dispatcher, const char* line) {
  tsr_problem_t* problem = NULL;
  tsr_plan_t* plan = NULL;
  if (tsr_problem_parse(line, &problem) != TSR_OK) fail(line, tsr_error());
  if (problem != NULL && tsr_plan(dispatcher, problem, NULL, &plan) != TSR_OK) {
    fail(line, tsr_error());
  }
  tsr_problem_destroy(problem);
  return plan;
}

static tsr_dispatcher_t* dispatcher_of(const char* target) {
  tsr_dispatcher_options_t options = {0};
  tsr_dispatcher_t* dispatcher = NULL;
  options.struct_size = sizeof options;
  options.target = target;
  if (tsr_dispatcher_create(&options, &dispatcher) != TSR_OK) fail("dispatcher", tsr_error());
  return dispatcher;
}

/* Every line in one of the types, on random operands of the library's, against the fp64
 * reference. */
static void verify_lines(tsr_dispatcher_t* gpu, unsigned seed) {
  for (size_t n = 0; n < LINES; ++n) {
    const char* const type = kTypes[(n + seed / 3) % 2];
    char line[256], whole[300];
    snprintf(line, sizeof line, kLines[n], 2 + rand() % 9, 2 + rand() % 60);
    snprintf(whole, sizeof whole, "%s dtype=%s", line, type);
    tsr_plan_t* const plan = plan_of(gpu, whole);
    if (plan == NULL) continue;
    if (tsr_verify(plan, (uint64_t)rand()) != TSR_OK) fail(whole, tsr_error());
    tsr_plan_destroy(plan);
  }
}

/* ---- a product of fp16 on the GPU and on the CPU ---- */
enum { kM = 33, kN = 21, kK = 40 };

/* A whole number from -4 to 4 as a half. Sums of 40 products of them are exact in a half, too. */
static uint16_t small_half(void) {
  static const uint16_t kPositive[] = {0, 0x3c00, 0x4000, 0x4200, 0x4400};
  const int sign = rand() % 2;
  return (uint16_t)(kPositive[rand() % 5] | (sign << 15));
}

static tsr_status_t multiply(const tsr_plan_t* plan, const void* a, const void* b, void* out) {
  const tsr_operand_t operands[] = {{"a", a}, {"b", b}, {"out", out}};
  const tsr_status_t status = tsr_launch_named(plan, operands, 3, NULL);
  return status != TSR_OK ? status : tsr_synchronize(plan, NULL);
}

static void expect_text(const char* what, tsr_status_t status, const char* part) {
  if (status != TSR_INVALID_ARGUMENT) fail(what, "it was not refused as an argument");
  if (strstr(tsr_error(), part) == NULL) fail(what, tsr_error());
}

static void compare_with_cpu(tsr_dispatcher_t* gpu, tsr_dispatcher_t* cpu) {
  char line[100];
  snprintf(line, sizeof line, "gemm m=%d n=%d k=%d dtype=fp16", kM, kN, kK);
  static uint16_t a[kM * kK], b[kK * kN], out[kM * kN];
  void *there_a = NULL, *there_b = NULL, *there_out = NULL;
  tsr_plan_t* const on_gpu = plan_of(gpu, line);
  tsr_plan_t* const on_cpu = plan_of(cpu, line);
  if (on_gpu == NULL || on_cpu == NULL) return;
  for (int i = 0; i < kM * kK; ++i) a[i] = small_half();
  for (int i = 0; i < kK * kN; ++i) b[i] = small_half();
  memset(out, 0xff, sizeof out);
  device_allocate(&there_a, sizeof a);
  device_allocate(&there_b, sizeof b);
  device_allocate(&there_out, sizeof out);
  memcpy(there_a, a, sizeof a); /* an emulated GPU's memory lies in the process */
  memcpy(there_b, b, sizeof b);
  memset(there_out, 0xff, sizeof out);
  if (multiply(on_cpu, a, b, out) != TSR_OK) fail("CPU", tsr_error());
  if (multiply(on_gpu, there_a, there_b, there_out) != TSR_OK) fail("GPU", tsr_error());
  for (int i = 0; i < kM * kN; ++i) {
    const uint16_t got = ((const uint16_t*)there_out)[i];
    /* Zeros of both signs are equal. */
    if (got != out[i] && ((got | out[i]) & 0x7fff) != 0) fail(line, "GPU and CPU differ");
  }
  expect_text("memory of the host", multiply(on_gpu, a, there_b, there_out),
              " is not memory of a GPU; copy the operand to ");
  expect_text("an odd address", multiply(on_gpu, there_a, (char*)there_b + 1, there_out),
              "b must be aligned to 2 bytes for fp16, got an address 1 past a multiple of that");
  tsr_plan_destroy(on_gpu);
  tsr_plan_destroy(on_cpu);
}

int main(int count, char** words) {
  const unsigned seed = count > 1 ? (unsigned)atoi(words[1]) : (unsigned)time(NULL);
  static const char* const kTargets[] = {"gfx90a", "gfx942", "gfx950"};
  const char* const target = kTargets[seed % 3];
  printf("seed %u, %s\n", seed, target);
  srand(seed);
  setenv("TESSERA_EMULATED_TARGET", target, 1);
  void* const library = dlopen(getenv("TESSERA_HIP"), RTLD_NOW | RTLD_GLOBAL);
  if (library == NULL) {
    printf("TESSERA_HIP names no library: %s\n", dlerror());
    return 1;
  }
  *(void**)&device_allocate = dlsym(library, "hipMalloc");
  tsr_dispatcher_t* const gpu = dispatcher_of(target);
  tsr_dispatcher_t* const cpu = dispatcher_of(NULL);
  if (gpu == NULL || cpu == NULL) return 1;
  verify_lines(gpu, seed);
  compare_with_cpu(gpu, cpu);
  tsr_dispatcher_destroy(gpu);
  tsr_dispatcher_destroy(cpu);
  return failures == 0 ? 0 : 1;
}
