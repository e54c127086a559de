// The child's side of the conversation. Everything here runs kernels that nobody has run before.
#include <nlohmann/json.hpp>

#include <algorithm>

#include "tessera/base/error.h"
#include "tessera/base/timer.h"
#include "tessera/families/family.h"
#include "tessera/jit/build.h"
#include "tessera/measure/child.h"
#include "tessera/measure/operands.h"
#include "tessera/measure/worker_json_internal.h"
#include "tessera/runtime/benchmark.h"
#include "tessera/runtime/runtime.h"

namespace tessera::measure {
namespace {

using nlohmann::json;

// A kernel with its arguments, ready to be called.
struct Bound {
  std::shared_ptr<const runtime::LoadedKernel> kernel;
  runtime::DeviceBuffer packed;
  Launch launch;
  runtime::Place place;
  void enqueue() const { kernel->launch(launch, place.options); }
  void call() const {
    enqueue();
    place.backend->synchronize(place.options);
  }
};

runtime::Place place_of(const WorkerRequest& request) {
  runtime::Place place{&runtime::backend_for(request.target), {}};
  place.options.threads = request.threads;
  place.options.device = request.device;
  return place;
}

Bound bind(const WorkerRequest& request, const WorkerKernel& kernel, const Problem& problem,
           Operands operands) {
  const KernelSpec spec = parse_name(kernel.name);
  const Source source = family_of(spec).emit(spec, request.target);
  Bound bound;
  bound.place = place_of(request);
  bound.kernel = bound.place.backend->load(jit::artifact_of(source, kernel.binary), request.target);
  bound.packed = pack_operand(*bound.kernel, spec, problem, request.target, operands, bound.place);
  bound.launch = family_of(problem).bind(spec, problem, request.target, operands);
  return bound;
}

double seconds_of(const Bound& bound) {
  const Timer timer;
  bound.call();
  return timer.seconds();
}

// Runs the kernel on poisoned outputs and compares with the reference.
WorkerReading check(const WorkerRequest& request, const WorkerKernel& kernel,
                    const Problem& problem, const Reference& reference, OwnedOperands& owned,
                    PlacedOperands& placed) {
  const Bound bound = bind(request, kernel, problem, placed.operands);
  reset_outputs(owned);
  send_outputs(owned, placed, bound.place);
  bound.enqueue();
  fetch_outputs(owned, placed, bound.place);
  const std::string stray = gaps_intact(owned);
  if (!stray.empty()) return {Outcome::wrong, 0, 0, stray};
  const Mismatch mismatch =
      owned.family->compare(owned.family->unpacked(problem), owned.operands, reference);
  if (!mismatch.ok) return {Outcome::wrong, 0, 0, mismatch.message};
  const double seconds = std::min(seconds_of(bound), seconds_of(bound));
  return {Outcome::ok, seconds, 0, {}};
}

std::vector<WorkerReading> measure(const WorkerRequest& request, const Problem& problem,
                                   const Operands& operands) {
  std::vector<Bound> bound;
  for (const WorkerKernel& kernel : request.kernels) {
    bound.push_back(bind(request, kernel, problem, operands));
  }
  std::vector<runtime::Candidate> candidates;
  for (std::size_t i = 0; i < bound.size(); ++i) {
    candidates.push_back({request.kernels[i].name, [&bound, i] { bound[i].enqueue(); }});
  }
  runtime::Protocol protocol;
  protocol.budget_seconds = request.budget_seconds;
  protocol.seed = request.seed;
  std::vector<WorkerReading> readings;
  for (const runtime::Timing& timing : runtime::measure(candidates, protocol, place_of(request))) {
    readings.push_back({Outcome::ok, timing.median_seconds, timing.spread, {}});
  }
  return readings;
}

std::vector<WorkerReading> answer(const WorkerRequest& request) {
  check_device(request.target, request.device, request.device_name);
  const Problem problem = parse_problem(request.problem);
  const Fp8Encoding fp8 = request.target.fp8_encoding;
  OwnedOperands owned = random_operands(problem, request.seed, 1, fp8);
  PlacedOperands placed = place_operands(owned, place_of(request));
  if (request.measure) return measure(request, problem, placed.operands);
  const Reference reference =
      owned.family->reference(owned.family->unpacked(problem), owned.operands, {.fp8 = fp8});
  std::vector<WorkerReading> readings;
  for (const WorkerKernel& kernel : request.kernels) {
    readings.push_back(check(request, kernel, problem, reference, owned, placed));
  }
  return readings;
}

}  // namespace

// The parent has limited the number of threads already. This process must not limit it again.
std::string serve_worker(const WorkerRequest& request) {
  runtime::set_default_threads(request.threads);
  json rows = json::array();
  for (const WorkerReading& reading : answer(request)) {
    rows.push_back({{"outcome", to_string(reading.outcome)},
                    {"seconds", reading.seconds},
                    {"spread", reading.spread},
                    {"note", reading.note}});
  }
  return line_of({{"readings", rows}});
}

}  // namespace tessera::measure
