// What the estimate chooses for convolutions of few channels in each group.
#include <gtest/gtest.h>

#include <array>
#include <string>
#include <string_view>

#include "tessera/select/select.h"
#include "tessera/targets/targets.h"

namespace tessera {
namespace {

TEST(GroupedChoices, LayersOfRegNetAreServedInPlace) {
  const Target target = load_target("sm90a");
  for (const char* direction : {"forward", "backward_data"}) {
    for (const auto& [groups, channels, size, stride] : {std::array{13, 8, 28, 1},
                                                         {20, 16, 28, 2},
                                                         {9, 16, 56, 2},
                                                         {49, 16, 14, 2},
                                                         {11, 112, 14, 1}}) {
      // Forward, tmaws takes such groups by themselves, and as long as grouped kernels.
      if (channels == 112 && direction == std::string_view("forward")) continue;
      const std::string line =
          std::string(direction) + " n=16 c=" + std::to_string(groups * channels) +
          " k=" + std::to_string(groups * channels) + " g=" + std::to_string(groups) +
          " h=" + std::to_string(size) + " w=" + std::to_string(size) +
          " stride_h=" + std::to_string(stride) + " stride_w=" + std::to_string(stride) +
          " y=3 x=3 pad_h=1 pad_w=1";
      const Decision decision =
          choose(parse_problem("conv dtype=bf16 direction=" + line), target, {});
      EXPECT_EQ(parse_name(decision.name).algorithm.pipeline, Pipeline::grouped)
          << line << ": " << decision.name;
    }
  }
}

}  // namespace
}  // namespace tessera
