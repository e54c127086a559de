// The gradient of the data, checked against a plain loop.
#include "convolution.h"

using namespace ck_tile::dispatcher;

DECL_GROUPED_CONV_KERNEL_SET(gradient, .add("fp32", "nhwgc", "bwd_data", 128, 128));

int main() {
  GroupedConvRegistry registry("gradient");
  REGISTER_GENERATED_KERNELS(registry, "gfx942");
  GroupedConvDispatcher dispatcher(&registry);
  return show(dispatcher, three_by_three(GroupedConvOp::BackwardData)) ? 0 : 1;
}
