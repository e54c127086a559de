// Masks by the setters of the problem builder, verified and timed. TESSERA_TARGET=sm90a runs them
// on a GPU.
#include <tessera/tools.hpp>

#include <cstdio>

namespace {

struct MaskCase {
  const char* what;
  void (*set)(tessera::FmhaProblemBuilder&);
};
using MaskBuilder = tessera::FmhaProblemBuilder;
constexpr MaskCase kMaskCases[] = {
    {"no mask", [](MaskBuilder& b) { b.mask_type("no"); }},
    {"causal", [](MaskBuilder& b) { b.mask_type("causal"); }},
    {"causal, at the end", [](MaskBuilder& b) { b.mask_type("bottom_right"); }},
    {"a window", [](MaskBuilder& b) { b.mask_type("generic").window(16, 8); }},
    {"a window and sinks",
     [](MaskBuilder& b) { b.mask_type("bottom_right").window(16, 0).sink(true).sink_size(4); }}};

}  // namespace

int main() {
  tessera::Dispatcher dispatcher;
  dispatcher.set_timing(1, 3);
  const bool on_gpu = tessera::is_gpu(dispatcher.target());
  const std::int64_t length = on_gpu ? 4096 : 96;
  const tessera::runtime::Place place{&tessera::runtime::backend_for(dispatcher.target()), {}};
  for (const auto& [what, set] : kMaskCases) {
    MaskBuilder builder;
    builder.data_type(on_gpu ? "bf16" : "fp32").dims(64, 64, 2, length, length).nheads(8, 4);
    set(builder);
    const tessera::FmhaProblem problem = builder.build();
    const auto owned = tessera::measure::random_operands(problem, 42);
    const auto placed = tessera::measure::place_operands(owned, place);
    dispatcher.run(problem, placed.operands, {.verify = true});  // throws unless it is right
    const double seconds = dispatcher.time(problem, placed.operands).median_seconds;
    const double flops = tessera::flops_of(problem);
    std::printf("%-20s %8.1f us  %8.4f TFLOP/s\n", what, seconds * 1e6, flops / seconds / 1e12);
    if (!(seconds > 0)) return 1;
  }
  return 0;
}
