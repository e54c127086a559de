// Plans: the way from a bound kernel to its launch.
#include "tessera/c_api/plan_internal.h"
#include "tessera/dispatch/call_plan_internal.h"
#include "tessera/dispatch/recorder_internal.h"

namespace tessera::c_api {
namespace {

void set_operand(const tsr_plan_t& plan, Operands& operands, std::size_t index, const void* data) {
  plan.kernel.family->set_pointer(operands, plan.tensors[index].operand, const_cast<void*>(data));
}

}  // namespace

Operands operands_of(const tsr_plan_t& plan, const void* const* given, std::size_t count) {
  if (count != plan.tensors.size()) {
    refuse(fmt::format("'{}' has {} operands, got {}", to_string(plan.problem), plan.tensors.size(),
                       count));
  }
  if (given == nullptr && count > 0) refuse("the list of operands must not be NULL");
  Operands operands = no_operands(plan.problem);
  for (std::size_t i = 0; i < count; ++i) set_operand(plan, operands, i, given[i]);
  return operands;
}

namespace {

std::size_t index_of(const tsr_plan_t& plan, std::string_view name) {
  std::string known;
  for (std::size_t i = 0; i < plan.tensors.size(); ++i) {
    if (plan.tensors[i].name == name) return i;
    known += fmt::format("{}{}", i == 0 ? "" : ", ", plan.tensors[i].name);
  }
  throw Error(ErrorCode::not_found, fmt::format("'{}' has no operand '{}'; it has {}",
                                                to_string(plan.problem), name, known));
}

}  // namespace

Operands operands_of(const tsr_plan_t& plan, const tsr_operand_t* given, std::size_t count) {
  if (given == nullptr && count > 0) refuse("the list of operands must not be NULL");
  Operands operands = no_operands(plan.problem);
  std::array<bool, kMaxTensors> is_given{};
  for (std::size_t i = 0; i < count; ++i) {
    const std::string_view name = text_of(given[i].name, "operand's name");
    const std::size_t index = index_of(plan, name);
    if (is_given[index]) refuse(fmt::format("operand {} is given twice", name));
    is_given[index] = true;
    set_operand(plan, operands, index, given[i].data);
  }
  return operands;
}

// Values that may take an operand's place in C++ have none in C.
const Tensor* missing_of(const tsr_plan_t& plan, const Operands& operands) {
  if (writes_nothing(plan.tensors)) return nullptr;
  for (const Tensor& tensor : plan.tensors) {
    if (tensor.may_be_null && plan.kernel.family->pointer(operands, tensor.operand) == nullptr) {
      return &tensor;
    }
  }
  return nullptr;
}

namespace {

void require_all(const tsr_plan_t& plan, const Operands& operands) {
  const Tensor* const tensor = missing_of(plan, operands);
  if (tensor == nullptr) return;
  refuse(fmt::format("'{}' needs its operand {}, of {} bytes; it must not be null",
                     to_string(plan.problem), tensor->name, tensor->bytes()));
}

// The options of a launch, beside the threads and the device that the plan was made for.
runtime::LaunchOptions launch_options_of(const tsr_plan_t& plan,
                                         const tsr_launch_options_t& given) {
  runtime::LaunchOptions options = plan.run.launch;
  options.stream = given.stream;
  options.workspace = given.workspace;
  options.workspace_bytes = given.workspace_bytes;
  return options;
}

// The options with which the dispatcher finds the plan's kernel again.
RunOptions forced(const tsr_plan_t& plan, const tsr_launch_options_t* given) {
  RunOptions run = plan.run;
  run.launch = launch_options_of(plan, options_of(given, "tsr_launch_options_t"));
  run.force = plan.kernel.name;
  return run;
}

}  // namespace

void launch(const tsr_plan_t& plan, const Operands& operands, const tsr_launch_options_t* given) {
  const tsr_launch_options_t options = options_of(given, "tsr_launch_options_t");
  require_all(plan, operands);
  if (options.verify != 0) {
    RunOptions run = forced(plan, given);
    run.verify = true;
    return plan.dispatcher->run(plan.problem, operands, run);
  }
  const ReadyKernel& kernel = plan.kernel;
  if (recordings != 0) plan.dispatcher->count_call(kernel, plan.problem, plan.run);
  const CallerMemory workspace = {.data = options.workspace, .bytes = options.workspace_bytes};
  if (plan.dispatcher->samples()) {
    return plan.dispatcher->launch_sampled(
        kernel, plan.problem, operands, checked_launch(kernel, plan.problem, operands, workspace),
        launch_options_of(plan, options));
  }
  kernel.loaded->launch(checked_launch(kernel, plan.problem, operands, workspace),
                        launch_options_of(plan, options));
}

namespace {

std::unique_ptr<tsr_plan_t> make_plan(const tsr_dispatcher_t& dispatcher, const Problem& problem,
                                      const tsr_choose_options_t* options) {
  const RunOptions run = run_options_of(dispatcher, options);
  const ReadyKernel& kernel = dispatcher.dispatcher->kernel_for(problem, run);
  auto made = std::make_unique<tsr_plan_t>();
  made->dispatcher = dispatcher.dispatcher;
  made->tensors = kernel.family->tensors(problem);
  made->problem = problem;
  made->kernel = kernel;
  made->run = run;
  return made;
}

Json stages_json(const tsr_plan_t& plan) {
  Json rows = Json::array();
  for (const Stage& stage : stages_of(plan.kernel.spec, plan.problem, plan.dispatcher->target())) {
    rows.push_back({{"name", stage.name}, {"entry", stage.entry}, {"parts", stage.parts}});
  }
  return rows;
}

Json to_json(const tsr_plan_t& plan) {
  return {{"problem", to_string(plan.problem)},
          {"target", plan.dispatcher->target().name},
          {"kernel", plan.kernel.name},
          {"source", to_string(plan.kernel.source)},
          {"predicted_seconds", plan.kernel.predicted_seconds},
          {"stages", stages_json(plan)}};
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

tsr_status_t tsr_plan(tsr_dispatcher_t* dispatcher, const tsr_problem_t* problem,
                      const tsr_choose_options_t* options, tsr_plan_t** plan) {
  return guarded([&] {
    result_of(plan, "plan");
    const tsr_dispatcher_t& maker = object_of(dispatcher, "dispatcher");
    auto made = make_plan(maker, problem_for(maker, problem), options);
    hand_out(*plan, made.release());
  });
}

tsr_status_t tsr_plan_json(const tsr_plan_t* plan, char** json) {
  return guarded([&] {
    result_of(json, "JSON");
    *json = json_copy(to_json(object_of(plan, "plan")));
  });
}

tsr_status_t tsr_operand_count(const tsr_plan_t* plan, size_t* count) {
  return guarded([&] { result_of(count, "count") = object_of(plan, "plan").tensors.size(); });
}

tsr_status_t tsr_operand_index(const tsr_plan_t* plan, const char* name, size_t* index) {
  return guarded([&] {
    result_of(index, "index") = index_of(object_of(plan, "plan"), text_of(name, "operand's name"));
  });
}

tsr_status_t tsr_workspace_bytes(const tsr_plan_t* plan, size_t* bytes) {
  return guarded([&] {
    const tsr_plan_t& p = object_of(plan, "plan");
    const Launch launch = launch_of(p.kernel, p.problem, no_operands(p.problem));
    result_of(bytes, "size") = p.kernel.loaded->workspace_bytes(launch, p.run.launch);
  });
}

tsr_status_t tsr_launch(const tsr_plan_t* plan, const void* const* operands, size_t count,
                        const tsr_launch_options_t* options) {
  return guarded([&] {
    const tsr_plan_t& p = object_of(plan, "plan");
    launch(p, operands_of(p, operands, count), options);
  });
}

tsr_status_t tsr_launch_named(const tsr_plan_t* plan, const tsr_operand_t* operands, size_t count,
                              const tsr_launch_options_t* options) {
  return guarded([&] {
    const tsr_plan_t& p = object_of(plan, "plan");
    launch(p, operands_of(p, operands, count), options);
  });
}

tsr_status_t tsr_synchronize(const tsr_plan_t* plan, const tsr_launch_options_t* options) {
  return guarded([&] {
    const tsr_plan_t& p = object_of(plan, "plan");
    runtime::backend_for(p.dispatcher->target())
        .synchronize(launch_options_of(p, options_of(options, "tsr_launch_options_t")));
  });
}

tsr_status_t tsr_packed_bytes(const tsr_plan_t* plan, size_t* bytes) {
  return guarded([&] {
    const tsr_plan_t& p = object_of(plan, "plan");
    result_of(bytes, "size") = p.dispatcher->packed_bytes(p.problem, forced(p, nullptr));
  });
}

tsr_status_t tsr_pack(const tsr_plan_t* plan, const void* const* operands, size_t count,
                      void* packed, const tsr_launch_options_t* options) {
  return guarded([&] {
    const tsr_plan_t& p = object_of(plan, "plan");
    p.dispatcher->pack(p.problem, operands_of(p, operands, count), packed, forced(p, options));
  });
}

void tsr_plan_destroy(tsr_plan_t* plan) { destroy(plan); }

}  // extern "C"
#pragma GCC visibility pop

}  // namespace tessera::c_api
