// Forward, and the gradients of the data and of the weights.
#include "convolution.h"

using namespace ck_tile::dispatcher;

DECL_GROUPED_CONV_KERNEL_SET(all, .add("fp32", "nhwgc", "forward", 128, 128)
                                      .add("fp32", "nhwgc", "bwd_data", 128, 128)
                                      .add("fp32", "nhwgc", "bwd_weight", 128, 128));

int main() {
  GroupedConvRegistry registry("all");
  REGISTER_GENERATED_KERNELS(registry, "gfx942");
  GroupedConvDispatcher dispatcher(&registry);
  bool right = true;
  for (const GroupedConvOp op :
       {GroupedConvOp::Forward, GroupedConvOp::BackwardData, GroupedConvOp::BackwardWeight}) {
    right = show(dispatcher, three_by_three(op)) && right;
  }
  return right ? 0 : 1;
}
