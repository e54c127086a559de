// Plans over a range of one field.
#include "tessera/dispatch/range_plan.h"

#include "tessera/c_api/plan_internal.h"

struct tsr_range_plan_t {
  std::shared_ptr<tessera::Dispatcher> dispatcher;  // outlives the plan
  std::shared_ptr<const tessera::RangePlan> plan;
  tsr_plan_t first;  // of the range's first value: names and order of the operands
};

namespace tessera::c_api {
namespace {

tsr_plan_t range_plan_at(const std::shared_ptr<Dispatcher>& dispatcher, const RangePlan& plan,
                         const RunOptions& run, std::int64_t value) {
  tsr_plan_t made;
  made.dispatcher = dispatcher;
  made.problem = problem_at(plan.ranged().problem, plan.ranged().range, value);
  made.kernel = plan.kernel_at(value);
  made.tensors = made.kernel.family->tensors(made.problem);
  made.run = run;
  return made;
}
tsr_plan_t range_plan_at(const tsr_range_plan_t& range, std::int64_t value) {
  return range_plan_at(range.dispatcher, *range.plan, range.first.run, value);
}

// A call that is to be verified, or lacks an operand, is one of the value's own plan, whose problem
// is in the sentences.
void launch_range(const tsr_range_plan_t& range, std::int64_t value, const Operands& operands,
                  const tsr_launch_options_t* given) {
  const tsr_launch_options_t options = options_of(given, "tsr_launch_options_t");
  if (options.verify != 0 || missing_of(range.first, operands) != nullptr) {
    return launch(range_plan_at(range, value), operands, given);
  }
  range.plan->launch(value, operands, {options.stream, options.workspace, options.workspace_bytes});
}

std::unique_ptr<tsr_range_plan_t> make_range(const tsr_dispatcher_t& maker, const char* line,
                                             const tsr_choose_options_t* options) {
  const RunOptions run = run_options_of(maker, options);
  const auto [problem, range] = read_ranged_problem(text_of(line, "problem's line"));
  auto made = std::make_unique<tsr_range_plan_t>();
  made->dispatcher = maker.dispatcher;
  made->plan = maker.dispatcher->plan_range(problem, range, run);
  made->first = range_plan_at(made->dispatcher, *made->plan, run, range.first);
  return made;
}

Json parts_json(const RangePlan& plan) {
  Json rows = Json::array();
  for (const PlannedPart& part : plan.parts()) {
    rows.push_back({{"first", part.first},
                    {"last", part.last},
                    {"kernel", part.kernel},
                    {"source", to_string(part.source)},
                    {"predicted_seconds", part.predicted_seconds}});
  }
  return rows;
}

Json to_json(const tsr_range_plan_t& range) {
  const FieldRange& values = range.plan->ranged().range;
  return {{"problem", to_string(range.plan->ranged())},
          {"field", values.field},
          {"first", values.first},
          {"last", values.last},
          {"target", range.dispatcher->target().name},
          {"parts", parts_json(*range.plan)},
          {"workspace_bytes", range.plan->workspace_bytes()}};
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

tsr_status_t tsr_range_plan(tsr_dispatcher_t* dispatcher, const char* line,
                            const tsr_choose_options_t* options, tsr_range_plan_t** plan) {
  return guarded([&] {
    result_of(plan, "plan");
    auto made = make_range(object_of(dispatcher, "dispatcher"), line, options);
    hand_out(*plan, made.release());
  });
}

tsr_status_t tsr_range_plan_json(const tsr_range_plan_t* plan, char** json) {
  return guarded([&] {
    result_of(json, "JSON");
    *json = json_copy(to_json(object_of(plan, "plan")));
  });
}

tsr_status_t tsr_range_plan_at(const tsr_range_plan_t* plan, int64_t value, tsr_plan_t** one) {
  return guarded([&] {
    result_of(one, "plan");
    auto made = std::make_unique<tsr_plan_t>(range_plan_at(object_of(plan, "plan"), value));
    hand_out(*one, made.release());
  });
}

tsr_status_t tsr_range_workspace_bytes(const tsr_range_plan_t* plan, size_t* bytes) {
  return guarded(
      [&] { result_of(bytes, "size") = object_of(plan, "plan").plan->workspace_bytes(); });
}

tsr_status_t tsr_range_launch(const tsr_range_plan_t* plan, int64_t value,
                              const void* const* operands, size_t count,
                              const tsr_launch_options_t* options) {
  return guarded([&] {
    const tsr_range_plan_t& p = object_of(plan, "plan");
    launch_range(p, value, operands_of(p.first, operands, count), options);
  });
}

tsr_status_t tsr_range_launch_named(const tsr_range_plan_t* plan, int64_t value,
                                    const tsr_operand_t* operands, size_t count,
                                    const tsr_launch_options_t* options) {
  return guarded([&] {
    const tsr_range_plan_t& p = object_of(plan, "plan");
    launch_range(p, value, operands_of(p.first, operands, count), options);
  });
}

void tsr_range_plan_destroy(tsr_range_plan_t* plan) { destroy(plan); }

}  // extern "C"
#pragma GCC visibility pop

}  // namespace tessera::c_api
