// A function that chooses by words of names, and the registry as JSON.
#include "convolution.h"

using namespace ck_tile::dispatcher;

DECL_GROUPED_CONV_KERNEL_SET(
    two, .add("fp32", "nhwgc", "forward", 64, 64).add("fp32", "nhwgc", "forward", 128, 128));

int main() {
  GroupedConvRegistry registry("two");
  REGISTER_GENERATED_KERNELS(registry, "gfx942");
  GroupedConvDispatcher dispatcher(&registry);
  dispatcher.set_heuristic([](const GroupedConvProblem& p) {
    return std::vector<std::string>{p.C < 64 ? "1x64x64" : "1x128x128"};
  });
  dispatcher.set_strategy(GroupedConvDispatcher::SelectionStrategy::Heuristic);
  std::printf("%s\n", registry.export_json(true).c_str());
  const GroupedConvProblem problem = three_by_three(GroupedConvOp::Forward);
  std::printf("chosen: %s\n", dispatcher.select(problem)->name().c_str());
  return show(dispatcher, problem) ? 0 : 1;
}
