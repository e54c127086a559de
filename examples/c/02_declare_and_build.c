/* Declares kernels by wildcards, builds them with a progress line each, and chooses among them. */
#include <stdio.h>
#include <string.h>
#include <tessera/tessera.h>

static int fail(const char* what) {
  fprintf(stderr, "%s: %s\n", what, tsr_error());
  return 1;
}

static int show(void* user, const char* label, size_t done, size_t total, const char* what) {
  (void)user;
  printf("%s %zu of %zu: %s\n", label, done, total, what);
  return 0; /* any other number would end the build */
}

/* Whether no kernel has a sentence in "error". */
static int is_all_built(const char* json) {
  const char* const key = "\"error\":\"";
  int kernels = 0;
  for (const char* at = strstr(json, key); at != NULL; at = strstr(at, key)) {
    at += strlen(key);
    if (*at != '"') return 0;
    ++kernels;
  }
  return kernels > 0;
}

int main(void) {
  tsr_kernel_set_t* set = NULL;
  tsr_registry_t *registry = NULL, *copy = NULL;
  tsr_problem_t* problem = NULL;
  tsr_dispatcher_t* dispatcher = NULL;
  char *json = NULL, *text = NULL;

  /* The field-by-field way to a problem. */
  if (tsr_problem_create("gemm", &problem) != TSR_OK) return fail("problem");
  if (tsr_problem_set_integer(problem, "m", 64) != TSR_OK ||
      tsr_problem_set_integer(problem, "n", 64) != TSR_OK ||
      tsr_problem_set_integer(problem, "k", 64) != TSR_OK ||
      tsr_problem_set(problem, "epilogue", "bias+relu") != TSR_OK) {
    return fail("field");
  }

  if (tsr_kernel_set_create("mine", NULL, &set) != TSR_OK) return fail("set");
  if (tsr_kernel_set_for_problem(set, problem, 3) != TSR_OK) return fail("set");
  if (tsr_registry_create("mine", NULL, &registry) != TSR_OK) return fail("registry");
  if (tsr_registry_declare(registry, set) != TSR_OK) return fail("declare");

  tsr_callbacks_t callbacks = TSR_INIT(tsr_callbacks_t);
  callbacks.progress = show;
  if (tsr_registry_build(registry, 2, &callbacks, &json) != TSR_OK) return fail("build");
  const int all_built = is_all_built(json);
  tsr_free(json);

  /* What a registry declares travels as JSON. */
  if (tsr_registry_export(registry, &json) != TSR_OK) return fail("export");
  if (tsr_registry_create("copy", NULL, &copy) != TSR_OK) return fail("registry");
  if (tsr_registry_import(copy, json) != TSR_OK) return fail("import");
  tsr_free(json);

  tsr_dispatcher_options_t options = TSR_INIT(tsr_dispatcher_options_t);
  options.pool = registry;
  if (tsr_dispatcher_create(&options, &dispatcher) != TSR_OK) return fail("dispatcher");
  if (tsr_explain(dispatcher, problem, NULL, 0, &text) != TSR_OK) return fail("explain");
  printf("%s", text);
  tsr_free(text);

  tsr_dispatcher_destroy(dispatcher);
  tsr_registry_destroy(copy);
  tsr_registry_destroy(registry);
  tsr_kernel_set_destroy(set);
  tsr_problem_destroy(problem);
  return all_built ? 0 : 1;
}
