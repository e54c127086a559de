// Layers of a small ResNet, each timed for every kernel that is declared.
#include "convolution.h"

using namespace ck_tile::dispatcher;

DECL_GROUPED_CONV_KERNEL_SET(
    tiles, .add("fp32", "nhwgc", "forward", 64, 64).add("fp32", "nhwgc", "forward", 128, 128));

int main() {
  GroupedConvRegistry registry("tiles");
  REGISTER_GENERATED_KERNELS(registry, "gfx942");
  GroupedConvDispatcher dispatcher(&registry);
  dispatcher.set_strategy(GroupedConvDispatcher::SelectionStrategy::Heuristic);
  bool ran = true;
  for (const int channels : {64, 128}) {
    Convolution layer(three_by_three(GroupedConvOp::Forward, channels, 1));
    for (const GroupedConvKernelInstance* kernel : registry.all_kernels()) {
      const std::string name = kernel->name();
      dispatcher.set_heuristic(
          [&](const GroupedConvProblem&) { return std::vector<std::string>{name}; });
      const double milliseconds = double(layer.run(dispatcher));
      std::printf("%3d channels, %s: %.4f ms\n", channels, name.c_str(), milliseconds);
      ran = ran && milliseconds > 0;
    }
  }
  return ran ? 0 : 1;
}
