// Timing and verifying plans.
#include "tessera/c_api/handles_internal.h"
#include "tessera/commands/work.h"
#include "tessera/runtime/benchmark.h"

namespace tessera::c_api {
namespace {

runtime::Protocol protocol_of(const tsr_bench_options_t& given) {
  check_least("rounds", given.rounds, 0);
  check_least("warmup", given.warmup, 0);
  check_least("min_seconds", given.min_seconds, 0);
  check_seconds("min_seconds", given.min_seconds);
  runtime::Protocol protocol;
  if (given.rounds > 0) protocol.rounds = given.rounds;
  if (given.warmup > 0) protocol.warmup = given.warmup;
  if (given.min_seconds > 0) protocol.min_seconds = given.min_seconds;
  protocol.flush_caches = given.flush_caches != 0;
  protocol.seed = given.seed;
  return protocol;
}

Json to_json(const runtime::Timing& timing, const Problem& problem) {
  const Family& family = family_of(problem);
  const double seconds = timing.median_seconds;
  return {{"median_seconds", seconds},
          {"min_seconds", timing.min_seconds},
          {"spread", timing.spread},
          {"seconds", timing.seconds},
          {"gflops", seconds > 0 ? family.flops(problem) / seconds * 1e-9 : 0},
          {"gb_per_second", seconds > 0 ? family.bytes(problem) / seconds * 1e-9 : 0}};
}

// Random operands for the plan's kernel.
commands::Workload workload_of(const tsr_plan_t& plan, std::uint64_t seed) {
  return {*plan.dispatcher, plan.problem,
          commands::RunSettings{.threads = plan.run.launch.threads,
                                .device = plan.run.launch.device,
                                .seed = seed,
                                .force = plan.kernel.name}};
}

void require_ok(const tsr_plan_t& plan, const Mismatch& mismatch) {
  if (mismatch.ok) return;
  throw Error(
      ErrorCode::verification_failed,
      fmt::format("{} on '{}': {}", plan.kernel.name, to_string(plan.problem), mismatch.message));
}

// Passes on the sentence of a launch that failed.
void require_launched(tsr_status_t status) {
  if (status == TSR_OK) return;
  throw Error(static_cast<ErrorCode>(status), tsr_error(), tsr_error_details());
}

runtime::Timing time_operands(const tsr_plan_t& plan, const void* const* operands,
                              std::size_t count, const runtime::Protocol& protocol,
                              const tsr_launch_options_t* launch) {
  const auto call = [&] { require_launched(tsr_launch(&plan, operands, count, launch)); };
  call();  // shows a wrong operand before anything is timed
  runtime::Place place{&runtime::backend_for(plan.dispatcher->target()), plan.run.launch};
  if (launch != nullptr) place.options.stream = launch->stream;
  return runtime::measure({{plan.kernel.name, call}}, protocol, place).front();
}

runtime::Timing time_random(const tsr_plan_t& plan, const runtime::Protocol& protocol) {
  commands::Workload work = workload_of(plan, protocol.seed);
  require_ok(plan, work.verify());
  return runtime::measure({{plan.kernel.name, [&] { work.run(); }}}, protocol, work.place())
      .front();
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

tsr_status_t tsr_bench(const tsr_plan_t* plan, const void* const* operands, size_t count,
                       const tsr_bench_options_t* options, const tsr_launch_options_t* launch,
                       char** json) {
  return guarded([&] {
    result_of(json, "JSON");
    const tsr_plan_t& p = object_of(plan, "plan");
    const runtime::Protocol protocol = protocol_of(options_of(options, "tsr_bench_options_t"));
    const runtime::Timing timing = operands == nullptr
                                       ? time_random(p, protocol)
                                       : time_operands(p, operands, count, protocol, launch);
    *json = json_copy(to_json(timing, p.problem));
  });
}

tsr_status_t tsr_verify(const tsr_plan_t* plan, uint64_t seed) {
  return guarded([&] {
    const tsr_plan_t& p = object_of(plan, "plan");
    require_ok(p, workload_of(p, seed).verify());
  });
}

}  // extern "C"
#pragma GCC visibility pop

}  // namespace tessera::c_api
