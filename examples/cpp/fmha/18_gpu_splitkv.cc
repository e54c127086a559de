// A single query against many keys, which are cut into parts: how many, what the plan says, and
// that the merged results agree. TESSERA_TARGET=sm90a runs it on a GPU.
#include <tessera/tools.hpp>

#include <cmath>
#include <cstdio>

namespace {

constexpr std::int64_t kSplitKeys = 1024;

}  // namespace

int main() {
  tessera::Dispatcher dispatcher;
  const bool on_gpu = tessera::is_gpu(dispatcher.target());
  const tessera::runtime::Place place{&tessera::runtime::backend_for(dispatcher.target()), {}};
  tessera::FmhaProblemBuilder builder;
  builder.api_family("fwd_splitkv").data_type(on_gpu ? "bf16" : "fp32").nheads(4, 2);
  builder.dims(64, 64, 1, 1, kSplitKeys * (on_gpu ? 16 : 1));

  double whole = 0;
  for (const std::int64_t parts : {1, 2, 4, 8}) {
    const tessera::FmhaProblem problem = builder.num_splits(parts).build();
    auto owned = tessera::measure::random_operands(problem, 42);  // the same for each
    auto placed = tessera::measure::place_operands(owned, place);
    dispatcher.run(problem, placed.operands, {.verify = true});
    tessera::measure::fetch_outputs(owned, placed, place);
    const auto& operands = std::get<tessera::FmhaOperands>(owned.operands);
    const double first = tessera::load_element(problem.out, operands.out, 0);
    if (parts == 1) whole = first;

    const tessera::ExecutionPlan plan = dispatcher.plan(problem);
    const tessera::Stage& last = plan.stages.back();
    std::printf("%lld parts: %zu stage(s), the last one is '%s' in %lld parts; out[0] = %.5f\n",
                static_cast<long long>(parts), plan.stages.size(), last.name.c_str(),
                static_cast<long long>(last.parts), first);
    if (last.parts != parts || !(std::abs(first - whole) < 4e-3)) return 1;
  }
  return 0;
}
