/* Tessera's C ABI: choose, build, run, measure and tune tile kernels from C (C99) and from whatever
 * calls C. libtessera.so exports these functions.
 *
 *   #include <tessera/tessera.h>
 *
 *   tsr_dispatcher_t *dispatcher;
 *   tsr_problem_t *problem;
 *   tsr_plan_t *plan;
 *   tsr_dispatcher_create(NULL, &dispatcher);                           // for this machine
 *   tsr_problem_parse("gemm m=128 n=3072 k=768 dtype=bf16", &problem);
 *   tsr_plan(dispatcher, problem, NULL, &plan);                         // choose, build, load
 *   tsr_operand_t operands[] = {{"a", a}, {"b", b}, {"out", out}};
 *   if (tsr_launch_named(plan, operands, 3, NULL) != TSR_OK) puts(tsr_error());
 *
 * Rules that hold for every function:
 * - The result is a status. Where it is not TSR_OK, tsr_error() is a sentence that says what broke,
 *   and no output argument was written.
 * - A handle is made by a function whose last argument is its address, and is given back to its
 *   _destroy function, which takes NULL too. Handles may be destroyed in any order: what a handle
 *   needs of others, it keeps. Handles may be used by several threads at once, except for a problem
 *   or a kernel set whose fields are being set.
 * - A handle must not be destroyed while a call that was given it runs, in whatever thread, and
 *   must not be used afterwards. The library counts no calls: a caller whose threads share a handle
 *   waits for their calls first, or counts them. (The Python package does, see docs/python.md.)
 * - A text that a function returns through a char** is released by tsr_free().
 * - A struct of options begins with struct_size, which TSR_INIT sets. All other fields may be zero,
 *   which means the default. NULL instead of the struct means all defaults. A struct of a later
 *   release may be longer; its first fields stay as they are.
 * - Words and keys are the command line's: see docs/vocabulary.md.
 */
#ifndef TESSERA_TESSERA_H
#define TESSERA_TESSERA_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
template <class Options>
inline Options tsr_init() {
  Options options = {};
  options.struct_size = sizeof(Options);
  return options;
}

extern "C" {
#endif

/* The number of this ABI. A library with another number must not be called: compare it with
 * tsr_abi(). */
#define TSR_ABI 1

#define TSR_API __attribute__((visibility("default")))

/* tsr_launch_options_t options = TSR_INIT(tsr_launch_options_t); */
#ifdef __cplusplus
#define TSR_INIT(type) tsr_init<type>()
#else
#define TSR_INIT(type) \
  { .struct_size = sizeof(type) }
#endif

/* ---- Status ---------------------------------------------------------------------------------- */

/* An int, so that a number of another release is no undefined value. */
typedef int tsr_status_t;
enum {
  TSR_OK = 0,
  TSR_INVALID_ARGUMENT = 1,     /* a problem, operand, handle or option breaks a stated rule */
  TSR_PARSE_ERROR = 2,          /* malformed name, JSON, problem line or file */
  TSR_NOT_FOUND = 3,            /* no kernel, target, field, file or command of that name */
  TSR_UNSUPPORTED = 4,          /* valid, but nothing here can do it */
  TSR_ILLEGAL_SPEC = 5,         /* a kernel that its target cannot run */
  TSR_COMPILE_FAILED = 6,       /* the compiler is missing or refused the source */
  TSR_LOAD_FAILED = 7,          /* a binary could not be loaded or lacks its symbol */
  TSR_LAUNCH_FAILED = 8,        /* a GPU refused a kernel or an operation, or failed at it */
  TSR_JIT_DISABLED = 9,         /* a kernel is missing and may not be built */
  TSR_IO_ERROR = 10,            /* the file system refused */
  TSR_CACHE_REFUSED = 11,       /* the cache folder is unsafe to use */
  TSR_VERIFICATION_FAILED = 12, /* a result is outside its tolerance */
  TSR_CRASHED = 13,             /* a child process died on a signal */
  TSR_TIMEOUT = 14,             /* a child process ran past its limit */
  TSR_OUT_OF_MEMORY = 15,
  TSR_INTERNAL = 16,
  TSR_CANCELLED = 17 /* a call-back ended it */
};

/* The release, "0.1.0", and the ABI's number. */
TSR_API const char* tsr_version(void);
TSR_API int tsr_abi(void);

/* "invalid_argument"; "unknown" for a number of no status. */
TSR_API const char* tsr_status_name(tsr_status_t status);

/* The sentence of the calling thread's last failure; "" before the first one. It is valid until the
 * next failure of this thread. */
TSR_API const char* tsr_error(void);
/* Longer evidence of that failure, such as a compiler's output; may be "". */
TSR_API const char* tsr_error_details(void);

/* Releases a text that a function of this header returned. */
TSR_API void tsr_free(char* text);

/* Packages of the Python whose sys.prefix this is may bring NVRTC and LightGBM. The environment
 * names the packages of an activated one: VIRTUAL_ENV, CONDA_PREFIX. */
TSR_API tsr_status_t tsr_add_python_prefix(const char* prefix);

/* Files *.pack of this folder are searched after those that come with the library, by what is made
 * afterwards. Packs are code: see docs/security.md. */
TSR_API tsr_status_t tsr_add_packs(const char* folder);

/* Warnings (level 0) and notes (level 1) of the whole process go to `sink`, one call at a time.
 * NULL turns them off, which is the default. */
typedef void (*tsr_log_sink_t)(void* user, int level, const char* sentence);
TSR_API tsr_status_t tsr_set_log_sink(tsr_log_sink_t sink, void* user);

/* `hook` is called before each start of a compiler, with the name of the kernel, or of an object
 * that kernels share, and what it is for: "for '<problem>'", "a part of <kernel>", or "". A result
 * other than 0 refuses: nothing is compiled, and the best kernel that is ready runs, as with
 * no_compile. Several threads may call it at once; it must not run problems. NULL: none, the
 * default. A note of level 1 with the same words is logged before. */
typedef int (*tsr_compile_hook_t)(void* user, const char* kernel, const char* why);
TSR_API tsr_status_t tsr_set_compile_hook(tsr_compile_hook_t hook, void* user);

/* Both may be NULL. A result other than 0 ends the work soon, with TSR_CANCELLED. A kernel
 * that is being compiled is finished first. */
typedef struct tsr_callbacks_t {
  size_t struct_size;
  void* user;
  int (*progress)(void* user, const char* label, size_t done, size_t total, const char* what);
  int (*stop)(void* user); /* asked several times a second, but not during a compilation */
} tsr_callbacks_t;

/* For the calls of this thread that measure, and take no call-backs of their own: tsr_bench(),
 * tsr_autotune(), and tsr_plan() of a dispatcher that measures. They ask `stop` several times a
 * second, between two launches; a result other than 0 ends them with TSR_CANCELLED. NULL: none. */
TSR_API tsr_status_t tsr_set_stop(int (*stop)(void* user), void* user);

/* ---- Problems -------------------------------------------------------------------------------- */

typedef struct tsr_problem_t tsr_problem_t;

/* From a line, "gemm m=128 n=3072 k=768 dtype=bf16 epilogue=bias+gelu", or from JSON,
 * {"op": "gemm", "m": 128, ...}. */
TSR_API tsr_status_t tsr_problem_parse(const char* line, tsr_problem_t** problem);
TSR_API tsr_status_t tsr_problem_from_json(const char* json, tsr_problem_t** problem);
/* Field by field: an operation, "gemm" or "norm", whose required fields are still missing. The
 * fields are the line's, in any order; setting one again replaces it. */
TSR_API tsr_status_t tsr_problem_create(const char* op, tsr_problem_t** problem);
TSR_API tsr_status_t tsr_problem_set(tsr_problem_t* problem, const char* field, const char* value);
TSR_API tsr_status_t tsr_problem_set_integer(tsr_problem_t* problem, const char* field,
                                             int64_t value);
TSR_API tsr_status_t tsr_problem_set_number(tsr_problem_t* problem, const char* field,
                                            double value);
/* One field's value as text; "packed" for a stride that follows from the sizes, which
 * tsr_problem_describe() writes out. */
TSR_API tsr_status_t tsr_problem_get(const tsr_problem_t* problem, const char* field, char** value);
/* The line and the JSON: lossless. */
TSR_API tsr_status_t tsr_problem_line(const tsr_problem_t* problem, char** line);
TSR_API tsr_status_t tsr_problem_json(const tsr_problem_t* problem, char** json);
/* Fails with the rule that the problem breaks. */
TSR_API tsr_status_t tsr_problem_validate(const tsr_problem_t* problem);
/* {"flops": useful operations, "bytes": least traffic, "operands": [{"name", "access" ("read",
 * "write", "update"), "dtype", "sizes", "strides" (in elements, the innermost dimension first),
 * "batches", "batch_stride", "bytes", "in_array"}, ...]}. The list has the order of tsr_launch().
 */
TSR_API tsr_status_t tsr_problem_describe(const tsr_problem_t* problem, char** json);
/* By the setters of the operation's builder: an object with a key for each setter and its
 * arguments, one or a list: {"dims": [128, 128, 2, 512, 512], "nheads": [32, 8], "lse": true}.
 * docs/attention.md lists the setters of "fmha", the operation that has a builder. Fails with the
 * rule that the problem breaks. The problem also remembers what the setters say of the dispatcher
 * (gfx_arch, deterministic): one that was made otherwise refuses to choose, plan or tune for it. */
TSR_API tsr_status_t tsr_problem_build(const char* op, const char* json, tsr_problem_t** problem);
TSR_API void tsr_problem_destroy(tsr_problem_t* problem);

/* ---- Kernel sets and registries -------------------------------------------------------------- */

typedef struct tsr_kernel_set_t tsr_kernel_set_t;
typedef struct tsr_registry_t tsr_registry_t;

/* A set that is declared step by step. target: a row's name or a JSON file; NULL: this machine. */
TSR_API tsr_status_t tsr_kernel_set_create(const char* name, const char* target,
                                           tsr_kernel_set_t** set);
/* {"name", "kernels": [...]}, and what is written by hand: "target", "groups", "preselected",
 * "receipt", "problems". */
TSR_API tsr_status_t tsr_kernel_set_from_json(const char* json, tsr_kernel_set_t** set);
/* Starts a group: the kernels of an operation. tsr_kernel_set_where narrows it by a field and a
 * pattern ("dtype", "bf16"; "tile", "128x*x*"); several patterns of one field are alternatives. */
TSR_API tsr_status_t tsr_kernel_set_op(tsr_kernel_set_t* set, const char* op);
TSR_API tsr_status_t tsr_kernel_set_where(tsr_kernel_set_t* set, const char* field,
                                          const char* pattern);
/* One kernel by name; a preselected set such as "fp32_rcr_essential"; the `best` fastest kernels
 * for a problem, by estimate. */
TSR_API tsr_status_t tsr_kernel_set_add(tsr_kernel_set_t* set, const char* kernel);
TSR_API tsr_status_t tsr_kernel_set_preselected(tsr_kernel_set_t* set, const char* name);
TSR_API tsr_status_t tsr_kernel_set_for_problem(tsr_kernel_set_t* set, const tsr_problem_t* problem,
                                                int best);
/* What a framework needs, by a receipt's name or number: "flash", "4". */
TSR_API tsr_status_t tsr_kernel_set_receipt(tsr_kernel_set_t* set, const char* receipt);
/* {"name", "kernels": ["gemm_...", ...]}: sorted by name, lossless. */
TSR_API tsr_status_t tsr_kernel_set_json(const tsr_kernel_set_t* set, char** json);
TSR_API void tsr_kernel_set_destroy(tsr_kernel_set_t* set);

/* How kernels are built and where they are kept. */
typedef struct tsr_build_options_t {
  size_t struct_size;
  const char* cache;        /* folder; NULL: TESSERA_CACHE_DIR, or else the user's cache folder */
  int64_t cache_bytes;      /* the least recently used kernels are removed beyond; 0: 1 GiB */
  const char* compiler;     /* NULL: the one that is found */
  const char* nvrtc;        /* NULL: the one that is found */
  const char* worker;       /* the worker program; NULL: the one installed with the library */
  const char* const* packs; /* files that are searched first; ended by NULL, or NULL itself */
  int no_shipped_packs;     /* 1: do not search the packs installed with the library */
  int no_compile;           /* 1: nothing is compiled; dispatchers choose among the kernels that are
                               packed or cached, and a kernel by name that is neither is an error */
  double timeout_seconds;   /* of one compiler run, at most 86400; 0: 120 */
  const char*
      hip_compiler; /* for AMD GPUs, a clang++ or libhiprtc.so; NULL: the one that is found */
} tsr_build_options_t;

/* Live kernels. `build` may be NULL. */
TSR_API tsr_status_t tsr_registry_create(const char* name, const tsr_build_options_t* build,
                                         tsr_registry_t** registry);
/* Adds a target of the user's own, from a JSON file. */
TSR_API tsr_status_t tsr_registry_add_target(tsr_registry_t* registry, const char* file);
/* Declares kernels without building them. */
TSR_API tsr_status_t tsr_registry_declare(tsr_registry_t* registry, const tsr_kernel_set_t* set);
/* Builds and loads all declared kernels, `jobs` at a time (0: one for each core). Returns
 * {"results": [{"kernel", "was_cached", "seconds", "error"}, ...]}: kernels that failed have a
 * sentence in "error", and do not fail the call. `callbacks` may be NULL; progress gets the
 * kernel's name. */
TSR_API tsr_status_t tsr_registry_build(tsr_registry_t* registry, int jobs,
                                        const tsr_callbacks_t* callbacks, char** json);
/* {"kernels": [{"kernel", "is_loaded"}, ...]}, sorted by name. */
TSR_API tsr_status_t tsr_registry_list(const tsr_registry_t* registry, char** json);
/* A copy with the kernels whose names match a wildcard ("*_sm90a"; NULL: any). */
TSR_API tsr_status_t tsr_registry_filter(const tsr_registry_t* registry, const char* pattern,
                                         tsr_registry_t** filtered);
/* A copy with the kernels whose signatures a receipt asks for. */
TSR_API tsr_status_t tsr_registry_filter_receipt(const tsr_registry_t* registry,
                                                 const char* receipt, tsr_registry_t** filtered);
/* {"receipts": ["pytorch", ...]}: those that have a kernel here. */
TSR_API tsr_status_t tsr_registry_receipts(const tsr_registry_t* registry, char** json);
/* Adds what the other registry has declared and loaded. */
TSR_API tsr_status_t tsr_registry_merge(tsr_registry_t* registry, const tsr_registry_t* other);
TSR_API tsr_status_t tsr_registry_export(const tsr_registry_t* registry, char** json);
TSR_API tsr_status_t tsr_registry_import(tsr_registry_t* registry, const char* json);
TSR_API void tsr_registry_destroy(tsr_registry_t* registry);

/* ---- Dispatchers ----------------------------------------------------------------------------- */

typedef struct tsr_dispatcher_t tsr_dispatcher_t;

typedef struct tsr_dispatcher_options_t {
  size_t struct_size;
  const char* target;       /* a row's name or a JSON file; NULL: TESSERA_TARGET or this machine */
  int threads;              /* CPU: the most threads of each launch; 0: OpenMP's own limit */
  int device;               /* the GPU's number */
  const char* models;       /* folder of models, asked before the shipped ones; NULL: TESSERA_MODELS
                               or "models" in the cache folder */
  int deterministic;        /* 1: only kernels whose bits do not depend on threads or order */
  int autotune;             /* 1: measure each new problem's best kernels and remember the winner */
  double autotune_seconds;  /* for a problem, at most 86400; 0: 2 */
  int autotune_top;         /* how many of the predicted best are measured; 0: 5 */
  const char* tuning_store; /* NULL: tuning.sqlite in the cache folder */
  /* The pool: choose among the kernels that this registry declares, and load through it. The
   * dispatcher keeps it. NULL: the target's whole space, and `build` says how. */
  tsr_registry_t* pool;
  const tsr_build_options_t* build; /* NULL: defaults; must be NULL where a pool is given */
  int by_length; /* 1: choose by the lengths that kernels are tuned for, not by predicted times */
  /* 1: where no learned model has an opinion, measure the legal kernels once and keep the winner */
  int measure_without_model;
  int without_model_top; /* how many of the best by the estimate are measured then; 0: all */
  int reserved;          /* 0; what follows has a place of its own behind it */
  /* 1: a row (GEMM, norm), an image (conv) or a sequence (attention) has the same bits whatever
   * else is in the batch */
  int batch_invariant;
  const char* record; /* file in which the problems that are asked are written down, see
                         docs/serving.md; NULL: TESSERA_RECORD, or none */
  /* Compares one launch of so many, drawn at random, with the reference in the background, at most
   * 2147483647; 0: TESSERA_VERIFY_EVERY, or else none. See tsr_sampling(). */
  int64_t verify_every;
} tsr_dispatcher_options_t;

/* How one problem is chosen for. */
typedef struct tsr_choose_options_t {
  size_t struct_size;
  int threads;       /* 0: the dispatcher's */
  const char* force; /* a kernel's name: this kernel or an error that says why not */
} tsr_choose_options_t;

/* Where and how a launch runs. */
typedef struct tsr_launch_options_t {
  size_t struct_size;
  void* stream;           /* GPU: the caller's stream (cudaStream_t); NULL: the default stream */
  void* workspace;        /* tsr_workspace_bytes() bytes where the kernel runs, at a multiple of 256
                             bytes (CPU: 64); NULL: the library's own memory */
  size_t workspace_bytes; /* the size of `workspace` */
  int verify;             /* 1: compare with the fp64 reference, and wait; else
                             TSR_VERIFICATION_FAILED with the element */
} tsr_launch_options_t;

/* `options` may be NULL. */
TSR_API tsr_status_t tsr_dispatcher_create(const tsr_dispatcher_options_t* options,
                                           tsr_dispatcher_t** dispatcher);
/* The target's row as JSON. */
TSR_API tsr_status_t tsr_dispatcher_target(const tsr_dispatcher_t* dispatcher, char** json);
/* The decision; builds nothing: {"problem", "target", "kernel", "source", "predicted_seconds",
 * "threads", "why", "considered": [{"kernel", "predicted_seconds", "refusal"}, ...]}, the accepted
 * kernels first, best first. */
TSR_API tsr_status_t tsr_choose(tsr_dispatcher_t* dispatcher, const tsr_problem_t* problem,
                                const tsr_choose_options_t* options, char** json);
/* The same for people: the chosen kernel, the next five and why they lost, refusals counted by
 * rule; with `everything` all of them by name. */
TSR_API tsr_status_t tsr_explain(tsr_dispatcher_t* dispatcher, const tsr_problem_t* problem,
                                 const tsr_choose_options_t* options, int everything, char** text);
/* Measures the `top` kernels that are predicted to be best (0: the dispatcher's number), each in a
 * child process and against the reference, for about `seconds` (0: the dispatcher's), and remembers
 * them in the tuning store: {"measurements": [{"kernel", "outcome", "seconds", "spread", "note"},
 * ...]}, best first. Dispatchers that are made later choose the winner. */
TSR_API tsr_status_t tsr_autotune(tsr_dispatcher_t* dispatcher, const tsr_problem_t* problem,
                                  double seconds, int top, char** json);
/* Loads the kernels of a pack that are for the dispatcher's target, on a GPU onto its device too,
 * so that later launches of them load nothing: the first one may be captured into a graph, given a
 * workspace. {"kernels": how many, "seconds", "skipped": [the names of kernels that this library
 * makes from another text, each with a warning]}. `json` may be NULL. */
TSR_API tsr_status_t tsr_preload(tsr_dispatcher_t* dispatcher, const char* pack, char** json);
/* What verify_every did so far, when a comparison that is running has ended: {"launches",
 * "compared", "wrong", and why launches that were drawn were not compared: "busy", "too_large",
 * "not_comparable", "failed"}. A kernel that was wrong is set aside for its problem, with a warning
 * that names both: plans that are made later have another kernel. */
TSR_API tsr_status_t tsr_sampling(const tsr_dispatcher_t* dispatcher, char** json);
TSR_API void tsr_dispatcher_destroy(tsr_dispatcher_t* dispatcher);
/* From begin to end, every dispatcher of this process that has no `record` of its own writes the
 * problems that it is asked to this file, in place of TESSERA_RECORD's. The file that was begun
 * last gets them. The end of a file that was not begun is TSR_INVALID_ARGUMENT. */
TSR_API tsr_status_t tsr_record_begin(const char* file);
TSR_API tsr_status_t tsr_record_end(const char* file);

/* ---- Plans ----------------------------------------------------------------------------------- */

/* A kernel that was chosen, built and loaded for one problem. */
typedef struct tsr_plan_t tsr_plan_t;

/* One operand by name. data: where it lies, in the host's memory for CPU targets, in the device's
 * for GPUs; an array of pointers where the problem has pointer_arrays. */
typedef struct tsr_operand_t {
  const char* name;
  const void* data;
} tsr_operand_t;

/* Chooses, builds and loads; later launches do none of that. `options` may be NULL. */
TSR_API tsr_status_t tsr_plan(tsr_dispatcher_t* dispatcher, const tsr_problem_t* problem,
                              const tsr_choose_options_t* options, tsr_plan_t** plan);
/* {"problem", "target", "kernel", "source", "predicted_seconds", "stages": what the steps of a
 * launch do, in their order: [{"name", "entry", "parts"}, ...]}. */
TSR_API tsr_status_t tsr_plan_json(const tsr_plan_t* plan, char** json);
/* How many operands a launch takes, and the position of one of them by name. */
TSR_API tsr_status_t tsr_operand_count(const tsr_plan_t* plan, size_t* count);
TSR_API tsr_status_t tsr_operand_index(const tsr_plan_t* plan, const char* name, size_t* index);
/* The most bytes of workspace that a launch may need; may be 0. */
TSR_API tsr_status_t tsr_workspace_bytes(const tsr_plan_t* plan, size_t* bytes);
/* Runs the plan. `operands` has `count` addresses in the order of tsr_problem_describe(). Checks
 * the addresses: null, misaligned, an output that overlaps another operand. On a CPU it returns
 * when the result is written, on a GPU when the work is enqueued. `options` may be NULL. */
TSR_API tsr_status_t tsr_launch(const tsr_plan_t* plan, const void* const* operands, size_t count,
                                const tsr_launch_options_t* options);
/* The same with operands by name, in any order. */
TSR_API tsr_status_t tsr_launch_named(const tsr_plan_t* plan, const tsr_operand_t* operands,
                                      size_t count, const tsr_launch_options_t* options);
/* Waits until the stream's work is done; returns at once on a CPU. */
TSR_API tsr_status_t tsr_synchronize(const tsr_plan_t* plan, const tsr_launch_options_t* options);
/* For a problem with an operand that is packed ahead (preshuffle=1): the bytes of the packed
 * operand, and the packing, which reads that operand alone. The other addresses may be NULL. */
TSR_API tsr_status_t tsr_packed_bytes(const tsr_plan_t* plan, size_t* bytes);
TSR_API tsr_status_t tsr_pack(const tsr_plan_t* plan, const void* const* operands, size_t count,
                              void* packed, const tsr_launch_options_t* options);

typedef struct tsr_bench_options_t {
  size_t struct_size;
  int rounds;         /* readings; 0: 11 */
  int warmup;         /* calls before the first reading; 0: 2 */
  double min_seconds; /* of a reading, at most 86400; 0: 0.002 */
  int flush_caches;   /* 1: each reading is one call with cold caches */
  uint64_t seed;      /* of random operands */
} tsr_bench_options_t;

/* Times the plan: {"median_seconds", "min_seconds", "spread" (interquartile range over median),
 * "seconds": one for each round, "gflops", "gb_per_second"}. With NULL operands the library makes
 * random ones and compares the result with the reference first. */
TSR_API tsr_status_t tsr_bench(const tsr_plan_t* plan, const void* const* operands, size_t count,
                               const tsr_bench_options_t* options,
                               const tsr_launch_options_t* launch, char** json);
/* Runs the plan once on random operands of a seed and compares with the fp64 reference. */
TSR_API tsr_status_t tsr_verify(const tsr_plan_t* plan, uint64_t seed);
TSR_API void tsr_plan_destroy(tsr_plan_t* plan);

/* ---- Plans over a range ---------------------------------------------------------------------- */

/* Kernels for all values of one field of a problem. */
typedef struct tsr_range_plan_t tsr_range_plan_t;

/* Chooses, builds and loads every kernel that a value needs; later launches do none of that. The
 * line gives one whole number a range: "gemm m=1..8192 n=4096 k=4096 dtype=bf16". Measures nothing;
 * what was measured for a value counts there. A problem with an operand that is packed ahead gets
 * one kernel, so that one packing serves all values. `options` may be NULL. */
TSR_API tsr_status_t tsr_range_plan(tsr_dispatcher_t* dispatcher, const char* line,
                                    const tsr_choose_options_t* options, tsr_range_plan_t** plan);
/* {"problem", "field", "first", "last", "target", "parts": [{"first", "last", "kernel", "source",
 * "predicted_seconds" of the first value}, ...], "workspace_bytes"}. */
TSR_API tsr_status_t tsr_range_plan_json(const tsr_range_plan_t* plan, char** json);
/* The plan of one value, which is given back by tsr_plan_destroy(), before or after the plan over
 * the range. Chooses, builds and loads nothing. */
TSR_API tsr_status_t tsr_range_plan_at(const tsr_range_plan_t* plan, int64_t value,
                                       tsr_plan_t** one);
/* The most bytes of workspace that a launch at any value may need; may be 0. */
TSR_API tsr_status_t tsr_range_workspace_bytes(const tsr_range_plan_t* plan, size_t* bytes);
/* Runs the kernel of a value as tsr_launch() and tsr_launch_named() run a plan's. */
TSR_API tsr_status_t tsr_range_launch(const tsr_range_plan_t* plan, int64_t value,
                                      const void* const* operands, size_t count,
                                      const tsr_launch_options_t* options);
TSR_API tsr_status_t tsr_range_launch_named(const tsr_range_plan_t* plan, int64_t value,
                                            const tsr_operand_t* operands, size_t count,
                                            const tsr_launch_options_t* options);
TSR_API void tsr_range_plan_destroy(tsr_range_plan_t* plan);

/* ---- Models ---------------------------------------------------------------------------------- */

typedef struct tsr_model_t tsr_model_t;

/* A model's folder, or a LightGBM text file (plain or .gz) that lies in one. */
TSR_API tsr_status_t tsr_model_load(const char* path, tsr_model_t** model);
/* The manifest: what the model learned, and from which data. */
TSR_API tsr_status_t tsr_model_json(const tsr_model_t* model, char** json);
/* The predicted seconds of a kernel on a problem, also of one that `data import` named after CK
 * Tile's; 0 by a model that predicts an order alone.
 * threads: 0 means as many as the model's data have. */
TSR_API tsr_status_t tsr_model_predict(const tsr_model_t* model, const tsr_problem_t* problem,
                                       const char* kernel, int threads, double* seconds);
/* The same of `count` kernels, at about the price of one: seconds[i] belongs to kernels[i]. */
TSR_API tsr_status_t tsr_model_predict_all(const tsr_model_t* model, const tsr_problem_t* problem,
                                           const char* const* kernels, size_t count, int threads,
                                           double* seconds);
/* {"kernels": [{"kernel", "predicted"}, ...]}: the `top` best legal kernels (0: all), best first.
 */
TSR_API tsr_status_t tsr_model_rank(const tsr_model_t* model, const tsr_problem_t* problem,
                                    int threads, size_t top, char** json);
TSR_API void tsr_model_destroy(tsr_model_t* model);

/* ---- Commands -------------------------------------------------------------------------------- */

/* What the command line does, in this process: "sweep", "train", "evaluate", "predict", "search",
 * "tune", "data", "report", "generate", "list", "show", "verify", "run", "explain", "cache",
 * "pack", "problems", "targets", "doctor". `options` is a JSON object whose keys are the command's
 * long options and its positional words, {"problems": ["square"], "kernels": ["all-legal"],
 * "store": "s.sqlite", "budget": "60s", "seed": 3}; NULL: none. `json` gets the object that the
 * command prints with --json. Where a command found fault with something (a wrong kernel, a model
 * that must not replace another), *exit_code is 1 and the JSON says what; else 0. `callbacks` and
 * `exit_code` may be NULL. */
TSR_API tsr_status_t tsr_command(const char* name, const char* options,
                                 const tsr_callbacks_t* callbacks, int* exit_code, char** json);
/* {"commands": [{"name", "summary", "example"}, ...]}. */
TSR_API tsr_status_t tsr_commands(char** json);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* TESSERA_TESSERA_H */
