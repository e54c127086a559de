#include "bench_launch.h"

#include <chrono>
#include <functional>
#include <vector>

#include "tessera/commands/options.h"
#include "tessera/tessera.h"
#include "tessera/tools.hpp"

namespace tessera::cli {
namespace {

constexpr int kLaunchBatches = 300;
constexpr int kLaunchesPerBatch = 100;  // fewer than a GPU's queue holds

void require(tsr_status_t status) {
  if (status != TSR_OK) throw Error(static_cast<ErrorCode>(status), tsr_error());
}

// A plan of the C ABI, on operands that lie where its kernel reads them.
class PlannedLaunch {
 public:
  PlannedLaunch(const std::string& target, const Problem& problem, const Operands& operands) {
    tsr_dispatcher_options_t options = TSR_INIT(tsr_dispatcher_options_t);
    options.target = target.c_str();
    options.threads = 1;
    require(tsr_dispatcher_create(&options, &dispatcher_));
    require(tsr_problem_parse(to_string(problem).c_str(), &problem_));
    require(tsr_plan(dispatcher_, problem_, nullptr, &plan_));
    const Family& family = family_of(problem);
    for (const Tensor& tensor : family.tensors(problem)) {
      pointers_.push_back(family.pointer(operands, tensor.operand));
    }
  }
  PlannedLaunch(const PlannedLaunch&) = delete;
  PlannedLaunch& operator=(const PlannedLaunch&) = delete;
  ~PlannedLaunch() {
    tsr_plan_destroy(plan_);
    tsr_problem_destroy(problem_);
    tsr_dispatcher_destroy(dispatcher_);
  }
  void operator()() const {
    require(tsr_launch(plan_, pointers_.data(), pointers_.size(), nullptr));
  }

 private:
  tsr_dispatcher_t* dispatcher_ = nullptr;
  tsr_problem_t* problem_ = nullptr;
  tsr_plan_t* plan_ = nullptr;
  std::vector<const void*> pointers_;
};

double seconds_of_batch(const std::function<void()>& batch, const runtime::Place& place) {
  const auto start = std::chrono::steady_clock::now();
  batch();
  const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - start;
  place.backend->synchronize(place.options);
  return spent.count() / kLaunchesPerBatch;
}

}  // namespace

LaunchCost time_launch(const std::string& target) {
  Dispatcher dispatcher({.target = target});
  const Problem problem = commands::usual_problem("launch");
  const RunOptions options{.launch = {.threads = 1}};
  const ReadyKernel& ready = dispatcher.kernel_for(problem, options);
  const runtime::Place place{&runtime::backend_for(dispatcher.target()), options.launch};
  const measure::OwnedOperands owned = measure::random_operands(problem, 1);
  const measure::PlacedOperands placed = measure::place_operands(owned, place);
  const Launch launch = ready.family->bind(ready.spec, problem, *ready.target, placed.operands);
  const PlannedLaunch planned(target, problem, placed.operands);
  const auto with_plan = [&] {
    for (int i = 0; i < kLaunchesPerBatch; ++i) planned();
  };
  const auto bound = [&] {
    for (int i = 0; i < kLaunchesPerBatch; ++i) ready.loaded->launch(launch, options.launch);
  };
  std::vector<double> plans;
  std::vector<double> kernels;
  for (int batch = 0; batch < kLaunchBatches; ++batch) {
    plans.push_back(seconds_of_batch(with_plan, place));
    kernels.push_back(seconds_of_batch(bound, place));
  }
  return {runtime::quantile(plans, 0.5), runtime::quantile(kernels, 0.5)};
}

}  // namespace tessera::cli
