// Dispatchers: choosing and explaining.
#include <limits>

#include "tessera/c_api/handles_internal.h"
#include "tessera/commands/work.h"
#include "tessera/dispatch/record.h"

namespace tessera::c_api {
namespace {

int verify_every_of(std::int64_t given) {
  check_least("verify_every", static_cast<double>(given), 0);
  constexpr int kMost = std::numeric_limits<int>::max();
  if (given > kMost) refuse(fmt::format("verify_every must be at most {}, got {}", kMost, given));
  return static_cast<int>(given);
}

DispatcherOptions dispatcher_options_of(const tsr_dispatcher_options_t& given) {
  check_least("threads", given.threads, 0);
  check_least("device", given.device, 0);
  check_least("autotune_seconds", given.autotune_seconds, 0);
  check_seconds("autotune_seconds", given.autotune_seconds);
  check_least("autotune_top", given.autotune_top, 0);
  check_least("without_model_top", given.without_model_top, 0);
  DispatcherOptions options;
  options.target = text_or_empty(given.target);
  options.models = text_or_empty(given.models);
  options.tuning_store = text_or_empty(given.tuning_store);
  options.build = build_options_of(given.build);
  options.tuning_worker = options.build.worker;
  options.deterministic = given.deterministic != 0;
  options.batch_invariant = given.batch_invariant != 0;
  if (given.by_length != 0) {
    options.rankers = {make_length_ranker(), make_analytic_ranker(), make_first_legal_ranker()};
  }
  options.autotune = given.autotune != 0;
  if (given.autotune_seconds > 0) options.autotune_seconds = given.autotune_seconds;
  if (given.autotune_top > 0) options.autotune_top = given.autotune_top;
  if (given.measure_without_model != 0) options.without_model = WithoutModel::measure;
  options.without_model_top = given.without_model_top;
  options.record = text_or_empty(given.record);
  options.verify_every = verify_every_of(given.verify_every);
  return options;
}

std::unique_ptr<tsr_dispatcher_t> make_dispatcher(const tsr_dispatcher_options_t& given) {
  auto made = std::make_unique<tsr_dispatcher_t>();
  made->options = dispatcher_options_of(given);
  made->threads = given.threads;
  made->device = given.device;
  if (given.pool == nullptr) {
    made->dispatcher = std::make_shared<Dispatcher>(made->options);
    return made;
  }
  if (given.build != nullptr) {
    refuse(
        "dispatcher: build must be NULL where a pool is given, whose registry says how kernels "
        "are built");
  }
  made->dispatcher =
      std::make_shared<Dispatcher>(made->options, object_of(given.pool, "pool").registry);
  return made;
}

}  // namespace

RunOptions run_options_of(const tsr_dispatcher_t& dispatcher, const tsr_choose_options_t* given) {
  const tsr_choose_options_t options = options_of(given, "tsr_choose_options_t");
  check_least("threads", options.threads, 0);
  RunOptions run;
  run.launch.threads = options.threads > 0 ? options.threads : dispatcher.threads;
  run.launch.device = dispatcher.device;
  run.force = text_or_empty(options.force);
  return run;
}

#pragma GCC visibility push(default)
extern "C" {

tsr_status_t tsr_dispatcher_create(const tsr_dispatcher_options_t* options,
                                   tsr_dispatcher_t** dispatcher) {
  return guarded([&] {
    result_of(dispatcher, "dispatcher");
    auto made = make_dispatcher(options_of(options, "tsr_dispatcher_options_t"));
    hand_out(*dispatcher, made.release());
  });
}

tsr_status_t tsr_dispatcher_target(const tsr_dispatcher_t* dispatcher, char** json) {
  return guarded([&] {
    const Target& target = object_of(dispatcher, "dispatcher").dispatcher->target();
    result_of(json, "JSON");
    *json = copy_of(to_json(target));
  });
}

tsr_status_t tsr_choose(tsr_dispatcher_t* dispatcher, const tsr_problem_t* problem,
                        const tsr_choose_options_t* options, char** json) {
  return guarded([&] {
    result_of(json, "JSON");
    const tsr_dispatcher_t& chooser = object_of(dispatcher, "dispatcher");
    const Problem whole = problem_for(chooser, problem);
    const Decision decision = chooser.dispatcher->explain(whole, run_options_of(chooser, options));
    *json = json_copy(commands::to_json(whole, chooser.dispatcher->target(), decision));
  });
}

tsr_status_t tsr_explain(tsr_dispatcher_t* dispatcher, const tsr_problem_t* problem,
                         const tsr_choose_options_t* options, int everything, char** text) {
  return guarded([&] {
    result_of(text, "text");
    const tsr_dispatcher_t& chooser = object_of(dispatcher, "dispatcher");
    const Problem whole = problem_for(chooser, problem);
    const Decision decision = chooser.dispatcher->explain(whole, run_options_of(chooser, options));
    const Problem computed = computed_of(chooser.options, whole);
    *text = copy_of(explain(computed, chooser.dispatcher->target(), decision,
                            everything != 0 ? ExplainDetail::everything : ExplainDetail::summary));
  });
}

tsr_status_t tsr_record_begin(const char* file) {
  return guarded([&] { begin_record(text_of(file, "file of the record")); });
}

tsr_status_t tsr_record_end(const char* file) {
  return guarded([&] { end_record(text_of(file, "file of the record")); });
}

tsr_status_t tsr_preload(tsr_dispatcher_t* dispatcher, const char* pack, char** json) {
  return guarded([&] {
    const tsr_dispatcher_t& loader = object_of(dispatcher, "dispatcher");
    runtime::LaunchOptions place;
    place.device = loader.device;
    const Preloaded done = loader.dispatcher->preload(text_of(pack, "pack's file"), place);
    if (json == nullptr) return;
    *json = json_copy(
        {{"kernels", done.kernels}, {"seconds", done.seconds}, {"skipped", done.skipped}});
  });
}

tsr_status_t tsr_sampling(const tsr_dispatcher_t* dispatcher, char** json) {
  return guarded([&] {
    result_of(json, "JSON");
    const SamplingReport r = object_of(dispatcher, "dispatcher").dispatcher->sampling();
    *json = json_copy({{"launches", r.launches},
                       {"compared", r.compared},
                       {"wrong", r.wrong},
                       {"busy", r.busy},
                       {"too_large", r.too_large},
                       {"not_comparable", r.not_comparable},
                       {"failed", r.failed}});
  });
}

void tsr_dispatcher_destroy(tsr_dispatcher_t* dispatcher) { destroy(dispatcher); }

}  // extern "C"
#pragma GCC visibility pop

}  // namespace tessera::c_api
