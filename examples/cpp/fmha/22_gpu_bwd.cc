// Gradients by the setters of the problem builder: what each launch does, and every result
// verified, with each feature that has a gradient. TESSERA_TARGET=sm90a runs them on a GPU.
#include <tessera/tools.hpp>

#include <cstdio>

namespace {

using GradientBuilder = tessera::FmhaProblemBuilder;
struct GradientCase {
  const char* what;
  void (*set)(GradientBuilder&);
};
constexpr GradientCase kGradientCases[] = {
    {"no feature", [](GradientBuilder&) {}},
    {"causal", [](GradientBuilder& b) { b.mask_type("causal"); }},
    {"a window and sinks",
     [](GradientBuilder& b) { b.mask_type("bottom_right").window(8, 0).sink(true).sink_size(2); }},
    {"groups of heads", [](GradientBuilder& b) { b.nheads(4, 1); }},
    {"ALiBi", [](GradientBuilder& b) { b.bias_type("alibi"); }},
    {"a bias and its gradient",
     [](GradientBuilder& b) { b.bias_type("elementwise").bwd_flags(true, false, false); }},
    {"dropout", [](GradientBuilder& b) { b.dropout(true, 0.25F); }},
    {"a soft cap", [](GradientBuilder& b) { b.logits_soft_cap(true, 4); }},
    {"unequal heads", [](GradientBuilder& b) { b.dims(24, 40, 3, 28, 35); }},
    {"sequences of any length", [](GradientBuilder& b) {
       b.dims(40, 40, 3, 84, 105).group_mode(true).max_seqlen(28, 35).skip_min_seqlen_q(true, 6);
     }}};

}  // namespace

int main() {
  tessera::Dispatcher dispatcher;
  dispatcher.set_timing(1, 3);
  const tessera::runtime::Place place{&tessera::runtime::backend_for(dispatcher.target()), {}};
  for (const auto& [what, set] : kGradientCases) {
    GradientBuilder builder;  // lse: attention has to store it, and gradients read it
    builder.api_family("bwd").lse(true).data_type("fp32").dims(40, 40, 3, 28, 35).nheads(4, 4);
    set(builder);
    const tessera::FmhaProblem problem = builder.build();
    const auto owned = tessera::measure::random_operands(problem, 42);
    const auto placed = tessera::measure::place_operands(owned, place);
    dispatcher.run(problem, placed.operands, {.verify = true});  // throws unless it is right
    const double seconds = dispatcher.time(problem, placed.operands).median_seconds;
    std::printf("%-24s %8.1f us ", what, seconds * 1e6);
    for (const tessera::Stage& stage : dispatcher.plan(problem).stages) {
      std::printf(" [%s]", stage.name.c_str());
    }
    std::printf("\n");
    if (!(seconds > 0)) return 1;
  }
  return 0;
}
