// Declares a convolution, registers it and runs it.
#include "convolution.h"

using namespace ck_tile::dispatcher;

DECL_GROUPED_CONV_KERNEL_SET(
    basic, .add(GroupedConvSignature().dtype("fp32").layout("nhwgc").conv_type("forward").dims(2),
                GroupedConvAlgorithm().tile(1, 128, 128).pipeline("compv3"), "gfx942"));

int main() {
  GroupedConvRegistry registry("basic");
  REGISTER_GENERATED_KERNELS(registry, "gfx942");
  GroupedConvDispatcher dispatcher(&registry);
  return show(dispatcher, three_by_three(GroupedConvOp::Forward)) ? 0 : 1;
}
