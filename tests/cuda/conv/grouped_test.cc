// Grouped convolutions on a GPU against the fp64 reference: random numbers of groups and channels,
// sizes, filters, strides, padding and dilation in each direction, operands at the edges of memory
// of their own, poisoned results, and infinities that must stay where they belong.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <random>

#include "cuda/gpu_test.h"
#include "host/conv/conv_problems.h"
#include "tessera/base/processors.h"

namespace tessera {
namespace {

class GpuGroupedConv : public GpuTest {
 protected:
  std::int64_t draw(std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random_);
  }

  // Each third problem is a layer of a network: 3 x 3, strides of 1 or 2, equal channels.
  ConvProblem any_problem(ConvDirection direction) {
    constexpr std::int64_t kMost[] = {0, 120, 30, 9};
    ConvProblem p;
    p.direction = direction;
    p.in = p.weight = p.out = p.d = draw(0, 2) == 0 ? DType::fp16 : DType::bf16;
    p.acc = DType::fp32;
    const bool is_usual = draw(0, 2) == 0;
    p.ndim = is_usual || draw(0, 1) == 0 ? 2 : draw(1, 3);
    p.n = draw(1, 5), p.g = draw(2, 20);
    const std::int64_t unit = draw(0, 1) == 0 ? 8 : 1;
    const std::int64_t c = unit * draw(1, unit == 8 ? 15 : 64);
    const std::int64_t k = is_usual || draw(0, 1) == 0 ? c : unit * draw(1, unit == 8 ? 15 : 64);
    p.c = p.g * c, p.k = p.g * k;
    p.size = {1, 1, 1};
    for (auto dim = static_cast<std::size_t>(3 - p.ndim); dim < 3; ++dim) {
      do {
        p.size[dim] = draw(1, kMost[p.ndim]);
        p.filter[dim] = is_usual ? 3 : draw(1, p.ndim == 3 ? 3 : 5);
        p.stride[dim] = draw(1, is_usual ? 2 : 3);
        p.dilation[dim] = is_usual ? 1 : draw(1, 2);
        p.pad[dim] = 1;
        if (!is_usual) convs_.draw_padding(dim, p);
      } while (out_size(p)[dim] < 1);
    }
    if (direction == ConvDirection::forward && draw(0, 1) == 0) {
      p.epilogue = parse_epilogue(draw(0, 1) == 0 ? "bias+relu" : "bias+add+gelu");
    }
    if (draw(0, 2) == 0) p.alpha = 0.75F;
    if (draw(0, 2) == 0) p.beta = 2.0F;
    if (!is_usual) convs_.share_places(p);
    return p;
  }

  // So many of the grouped kernels that serve the problem.
  std::vector<KernelSpec> some_kernels(const Problem& problem, std::size_t most) {
    std::vector<KernelSpec> all;
    for (const KernelSpec& spec : family_.legal_candidates(problem, target_)) {
      if (spec.algorithm.pipeline != Pipeline::grouped) continue;
      if (family_.supports(spec, problem, target_)) all.push_back(spec);
    }
    std::shuffle(all.begin(), all.end(), random_);
    if (all.size() > most) all.resize(most);
    return all;
  }

  void check(const KernelSpec& spec, const Problem& problem) {
    check_twice(
        name_of(spec), problem, [this](const Problem& p, const measure::OwnedOperands& owned) {
          const ReferenceLimits limits = {
              .multiplications = 0x1p23, .seed = random_(), .threads = usable_processors()};
          const Mismatch mismatch =
              family_.compare(p, owned.operands, family_.reference(p, owned.operands, limits));
          EXPECT_TRUE(mismatch.ok) << mismatch.message;
        });
  }

  void check_direction(ConvDirection direction) {
    std::vector<std::pair<KernelSpec, Problem>> cases;
    std::vector<KernelSpec> specs;
    while (cases.size() < 80) {
      const Problem problem = any_problem(direction);
      for (const KernelSpec& spec : some_kernels(problem, 2)) {
        cases.emplace_back(spec, problem);
        specs.push_back(spec);
      }
    }
    ASSERT_NO_FATAL_FAILURE(build(specs));
    for (const auto& [spec, problem] : cases) check(spec, problem);
  }

  const Family& family_ = family_of(Op::conv);
  conv::RandomConvs convs_{random_()};
};

TEST_F(GpuGroupedConv, ForwardIsCorrectOnRandomProblems) {
  check_direction(ConvDirection::forward);
}
TEST_F(GpuGroupedConv, BackwardDataIsCorrectOnRandomProblems) {
  check_direction(ConvDirection::backward_data);
}
TEST_F(GpuGroupedConv, BackwardWeightIsCorrectOnRandomProblems) {
  check_direction(ConvDirection::backward_weight);
}

// Groups that share a product, zeros of the padding and rows that are not stored are multiplied:
// infinities must not make other sums NaN.
TEST_F(GpuGroupedConv, InfinitiesStayInTheirSums) {
  for (const char* direction : {"forward", "backward_data", "backward_weight"}) {
    for (const int channels : {2, 4, 7, 8, 24, 56}) {
      const Problem problem = parse_problem(fmt::format(
          "conv direction={} n=3 c={} k={} g=5 h=9 w=11 y=3 x=3 pad_h=1 pad_w=1 stride_w=2 "
          "dtype=bf16",
          direction, 5 * channels, 5 * channels));
      const std::vector<KernelSpec> specs = some_kernels(problem, 3);
      ASSERT_FALSE(specs.empty());
      ASSERT_NO_FATAL_FAILURE(build(specs));
      measure::OwnedOperands owned = measure::random_operands(problem, random_());
      constexpr std::uint16_t kInfinity = 0x7f80;
      for (const std::size_t operand : {0U, 1U, 2U}) {
        const void* const data = family_.pointer(owned.operands, operand);
        if (data == nullptr) continue;
        static_cast<std::uint16_t*>(const_cast<void*>(data))[draw(0, 80)] = kInfinity;
      }
      for (const KernelSpec& spec : specs) {
        SCOPED_TRACE(name_of(spec) + " on " + to_string(problem));
        measure::PlacedOperands placed = place(owned);
        run(problem, owned, placed, placed.operands, name_of(spec));
        expect_correct(problem, owned);
      }
    }
  }
}

// The sizes of RegNet-Y, whose tiles and parts are whole launches.
TEST_F(GpuGroupedConv, LayersOfRegNetAreCorrect) {
  struct Layer {
    int groups, channels, size, stride;
  };
  for (const Layer& layer : {Layer{6, 8, 112, 2},
                             {13, 8, 28, 1},
                             {20, 16, 28, 2},
                             {5, 24, 28, 1},
                             {9, 48, 28, 2},
                             {8, 56, 28, 1},
                             {11, 112, 14, 1},
                             {11, 112, 28, 2},
                             {32, 4, 56, 1}}) {
    for (const char* direction : {"forward", "backward_data", "backward_weight"}) {
      const Problem problem = parse_problem(fmt::format(
          "conv direction={0} n=4 c={1} k={1} g={2} h={3} w={3} y=3 x=3 stride_h={4} stride_w={4} "
          "pad_h=1 pad_w=1 dtype=bf16",
          direction, layer.groups * layer.channels, layer.groups, layer.size, layer.stride));
      const std::vector<KernelSpec> specs = some_kernels(problem, 3);
      ASSERT_NO_FATAL_FAILURE(build(specs));
      for (const KernelSpec& spec : specs) check(spec, problem);
    }
  }
}

}  // namespace
}  // namespace tessera
