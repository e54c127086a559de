// Times convolutions of growing numbers of channels, and checks each against a plain loop.
#include "convolution.h"

using namespace ck_tile::dispatcher;

DECL_GROUPED_CONV_KERNEL_SET(measured, .add("fp32", "nhwgc", "forward", 128, 128));

int main() {
  GroupedConvRegistry registry("measured");
  REGISTER_GENERATED_KERNELS(registry, "gfx942");
  GroupedConvDispatcher dispatcher(&registry);
  bool right = true;
  for (const int channels : {8, 16, 32}) {
    const GroupedConvProblem problem = three_by_three(GroupedConvOp::Forward, channels, 1);
    Convolution one(problem);
    const double milliseconds = double(one.run(dispatcher));
    const bool is_right = one.is_right();
    std::printf("%2d channels: %.4f ms, %.4f TFLOPS, %s\n", channels, milliseconds,
                grouped_conv_utils::calculate_conv_tflops(problem, milliseconds),
                is_right ? "right" : "WRONG");
    right = right && is_right;
  }
  return right ? 0 : 1;
}
