// Gradients by x whose filters do not overlap along the width: which of them kernels see with fewer
// and wider pixels.
#include <gtest/gtest.h>

#include "tessera/families/conv/conv.h"

namespace tessera::conv {
namespace {

const std::string kPatches =
    "conv direction=backward_data n=2 c=3 k=8 h=32 w=48 y=16 x=16 stride_h=16 stride_w=16";

std::string folded_line(const std::string& line) {
  return to_string(folded(conv_of(parse_problem(line))));
}
// Without strides, as folding gives them.
std::string full_line(const std::string& line) {
  return to_string(with_strides(conv_of(parse_problem(line))));
}

TEST(ConvFold, PatchesBecomeWiderPixels) {
  EXPECT_EQ(folded_line(kPatches),
            full_line("conv direction=backward_data n=2 c=48 k=8 h=32 w=3 y=16 x=1 stride_h=16"));
}

TEST(ConvFold, PatchesOfALineBecomeAProduct) {
  const ConvProblem p = folded(conv_of(
      parse_problem("conv direction=backward_data n=2 c=5 k=8 ndim=1 w=12 x=4 stride_w=4")));
  EXPECT_TRUE(is_pointwise(p)) << to_string(Problem(p));
}

TEST(ConvFold, LinesWithGapsStayApart) {
  const std::string gaps = " in_stride_h=200 in_stride_n=6400";
  EXPECT_EQ(
      folded_line(kPatches + gaps),
      full_line("conv direction=backward_data n=2 c=48 k=8 h=32 w=3 y=16 x=1 stride_h=16" + gaps));
}

TEST(ConvFold, OthersStayAsTheyAre) {
  for (const char* words :
       {"direction=forward c=3 w=48 x=16 stride_w=16",
        "direction=backward_weight c=3 w=48 x=16 stride_w=16",
        "direction=backward_data c=3 w=48 x=16 stride_w=8",
        "direction=backward_data c=3 w=48 x=8 stride_w=16",
        "direction=backward_data c=3 w=49 x=16 stride_w=16",
        "direction=backward_data c=3 w=48 x=16 stride_w=16 pad_w=16",
        "direction=backward_data c=4 g=2 w=48 x=16 stride_w=16",
        "direction=backward_data c=3 w=48 x=16 stride_w=16 layout=nchw",
        "direction=backward_data c=3 w=48 x=16 stride_w=16 in_stride_w=4",
        "direction=backward_data c=3 w=48 x=16 stride_w=16 weight_stride_x=4"}) {
    const std::string line = std::string("conv n=2 k=8 h=4 ") + words;
    EXPECT_EQ(folded_line(line), full_line(line));
  }
}

}  // namespace
}  // namespace tessera::conv
