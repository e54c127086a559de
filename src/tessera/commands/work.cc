#include "tessera/commands/work.h"

#include <fmt/format.h>

namespace tessera::commands {

std::optional<Error> run_through(const Console& console, const std::vector<Problem>& problems,
                                 const std::function<void(const Problem&)>& each) {
  for (std::size_t done = 0; done < problems.size(); ++done) {
    console.check_stop();
    try {
      each(problems[done]);
    } catch (...) {
      const Error error = current_error();
      if (problems.size() == 1) throw error;
      const Error named(error.code(),
                        fmt::format("'{}', problem {} of {}: {}", to_string(problems[done]),
                                    done + 1, problems.size(), error.what()),
                        error.context());
      if (done == 0) throw named;
      return named;
    }
  }
  return std::nullopt;
}

RunOptions run_options(const RunSettings& settings) {
  return {.launch = {.threads = settings.threads, .device = settings.device},
          .force = settings.force};
}

Workload::Workload(Dispatcher& dispatcher, const Problem& problem, const RunSettings& settings)
    : dispatcher_(dispatcher),
      problem_(problem),
      options_(run_options(settings)),
      kernel_(&dispatcher.kernel_for(problem, options_)),
      place_{&runtime::backend_for(dispatcher.target()), options_.launch},
      owned_(measure::random_operands(problem, settings.seed,
                                      runtime::thread_limit(options_.launch),
                                      dispatcher.target().fp8_encoding)),
      placed_(measure::place_operands(owned_, place_)),
      operands_(placed_.operands),
      packed_(measure::pack_operand(*kernel_->loaded, kernel_->spec, problem, *kernel_->target,
                                    operands_, place_)) {}

void Workload::run() { dispatcher_.run(problem_, operands_, options_); }

Mismatch Workload::verify() {
  return verify([this] { run(); });
}

Mismatch Workload::verify(const std::function<void()>& call) {
  const Problem plain = owned_.family->unpacked(problem_);
  measure::reset_outputs(owned_);
  if (!reference_) {
    const ReferenceLimits limits{.threads = runtime::thread_limit(options_.launch),
                                 .fp8 = owned_.fp8};
    reference_ = owned_.family->reference(plain, owned_.operands, limits);
  }
  measure::send_outputs(owned_, placed_, place_);
  call();
  measure::fetch_outputs(owned_, placed_, place_);
  Mismatch mismatch = owned_.family->compare(plain, owned_.operands, *reference_);
  if (const std::string outside = measure::gaps_intact(owned_); !outside.empty()) {
    mismatch.ok = false;
    mismatch.message = outside;
  }
  return mismatch;
}

RunReport run_and_time(Dispatcher& dispatcher, const Problem& problem,
                       const RunSettings& settings) {
  Workload work(dispatcher, problem, settings);
  RunReport report{
      .problem = problem, .kernel = work.kernel().name, .source = work.kernel().source};
  report.why = dispatcher.explain(problem, run_options(settings)).why;
  if (settings.verify) report.verified = work.verify();
  const runtime::Protocol protocol{
      .rounds = settings.repeat, .warmup = 1, .min_seconds = 0, .seed = settings.seed};
  const runtime::Timing timing =
      runtime::measure({{report.kernel, [&] { work.run(); }}}, protocol, work.place()).front();
  report.seconds = timing.median_seconds;
  report.spread = timing.spread;
  report.gflops = gflops_of(problem, timing.median_seconds);
  return report;
}

void require_verified(const RunReport& report) {
  if (!report.verified || report.verified->ok) return;
  throw Error(ErrorCode::verification_failed,
              fmt::format("{} on '{}': {}", report.kernel, to_string(report.problem),
                          report.verified->message));
}

Json to_json(const Problem& problem, const Target& target, const Decision& decision) {
  Json considered = Json::array();
  for (const Considered& each : decision.considered) {
    considered.push_back({{"kernel", each.name},
                          {"predicted_seconds", each.predicted_seconds},
                          {"refusal", each.refusal}});
  }
  return {{"problem", to_string(problem)},
          {"target", target.name},
          {"kernel", decision.name},
          {"source", to_string(decision.source)},
          {"predicted_seconds", decision.predicted_seconds},
          {"threads", decision.threads},
          {"why", decision.why},
          {"considered", considered}};
}

Json to_json(const Mismatch& mismatch) {
  return {{"ok", mismatch.ok},
          {"checked", mismatch.checked},
          {"bad", mismatch.bad},
          {"worst_ratio", mismatch.worst_ratio},
          {"message", mismatch.message}};
}

Json to_json(const RunReport& report) {
  Json json = {{"problem", to_string(report.problem)},
               {"kernel", report.kernel},
               {"source", to_string(report.source)},
               {"why", report.why},
               {"seconds", report.seconds},
               {"spread", report.spread},
               {"gflops", report.gflops}};
  if (report.verified) json["verified"] = to_json(*report.verified);
  return json;
}

double gflops_of(const Problem& problem, double seconds) {
  return seconds > 0 ? family_of(problem).flops(problem) / seconds * 1e-9 : 0;
}

}  // namespace tessera::commands
