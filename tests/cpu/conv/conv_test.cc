// Convolutions on CPUs against the fp64 reference: fresh random problems over all fields, strides
// of 0, gaps and guard bytes of NaN, operands at the edges of what is mapped, numbers of threads,
// tensors beyond 2^31 elements. To repeat a failure:
// --gtest_filter=... --gtest_random_seed=<the seed printed>.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstring>
#include <filesystem>
#include <limits>

#include "cpu/guarded.h"
#include "cpu/kernel_folder.h"
#include "host/conv/conv_problems.h"
#include "host/families/asked.h"
#include "tessera/families/family.h"
#include "tessera/measure/operands.h"
#include "tessera/registry/registry.h"
#include "tessera/runtime/runtime.h"
#include "tessera/targets/targets.h"

namespace tessera {
namespace {

using testing_support::targets_here;
using testing_support::targets_of_run;

Registry& registry() { return testing_support::registry_in("conv_test"); }

struct Types {
  DType in;
  std::vector<DType> outs;
};
const std::vector<Types>& types_of(ConvDirection direction) {
  using enum DType;
  static const std::vector<Types> forward = {{fp32, {fp32}},
                                             {tf32, {fp32}},
                                             {fp16, {fp16, fp32}},
                                             {bf16, {bf16, fp32}},
                                             {fp8, {fp16, bf16, fp32}},
                                             {bf8, {fp16, fp32}},
                                             {int8, {int32, fp32, int8}}};
  static const std::vector<Types> gradients = {{fp32, {fp32}}, {fp16, {fp16}}, {bf16, {bf16}}};
  return direction == ConvDirection::forward ? forward : gradients;
}

class ConvKernels : public testing::Test {
 protected:
  const Family& family_ = family_of(Op::conv);
  std::uint64_t seed_ = testing_support::seed_of_run();
  conv::RandomConvs random_{seed_};

  void launch(const KernelSpec& spec, const Problem& problem, const Operands& operands,
              int threads) {
    testing_support::launch(registry(), spec, problem, operands, threads);
  }

  // A group's only channel has any stride.
  void free_lone_channels(ConvProblem& p) {
    const ConvProblem full = with_strides(p);
    if (p.c == p.g) p.in_strides = full.in_strides, p.in_strides[2] = random_.integer(0, 99);
    if (p.k == p.g) p.out_strides = full.out_strides, p.out_strides[2] = random_.integer(0, 99);
  }

  void check(const KernelSpec& spec, const Problem& problem, int threads) {
    SCOPED_TRACE(fmt::format("seed {}: {} on '{}', {} threads", seed_, name_of(spec),
                             to_string(problem), threads));
    measure::OwnedOperands owned =
        measure::random_operands(problem, static_cast<std::uint64_t>(random_.integer(0, 1 << 30)));
    testing_support::launch_at_edges(registry(), spec, problem, owned, threads);
    testing_support::expect_verified(problem, owned);
  }

  // One of the kernels that pack the problem, whose strides are packed but for lone channels.
  void check_packab(ConvProblem p, const Target& target) {
    free_lone_channels(p);
    family_.validate(p);
    std::vector<KernelSpec> specs = serving(p, target);
    std::erase_if(specs, [](const KernelSpec& spec) {
      return spec.algorithm.pipeline != Pipeline::packab || spec.algorithm.pointwise;
    });
    ASSERT_FALSE(specs.empty());
    check(specs[pick(specs.size())], p, static_cast<int>(random_.integer(1, 5)));
  }

  std::vector<KernelSpec> depthwise_kernels(const Problem& problem, const Target& target) {
    std::vector<KernelSpec> specs = serving(problem, target);
    std::erase_if(specs, [](const KernelSpec& spec) {
      return spec.algorithm.pipeline != Pipeline::depthwise;
    });
    return specs;
  }

  std::size_t pick(std::size_t count) {
    return static_cast<std::size_t>(random_.integer(0, static_cast<std::int64_t>(count) - 1));
  }

  ConvProblem problem() {
    ConvProblem p = random_.problem();
    p.direction = conv::kDirections[pick(3)];
    if (p.in_strides == kPackedStrides && random_.coin()) {
      p.c = p.g * random_.integer(1, 70);
      p.k = p.g * random_.integer(1, 70);
    }
    const std::vector<Types>& types = types_of(p.direction);
    const Types& row = types[pick(types.size())];
    p.in = p.weight = row.in;
    p.out = p.d = row.outs[pick(row.outs.size())];
    p.acc = default_accumulator(row.in);
    const bool is_exact = p.out == DType::int32;
    if (random_.coin()) p.alpha = is_exact ? 3.0F : 0.75F;
    if (random_.coin()) p.beta = is_exact ? -2.0F : 0.5F;
    if (p.direction == ConvDirection::forward && !is_exact && random_.coin()) {
      constexpr std::string_view kSome[] = {"bias+relu",      "bias+add+gelu", "col_scale+bias",
                                            "multiply+clamp", "multi_d_add2",  "bias+silu"};
      p.epilogue = parse_epilogue(kSome[pick(std::size(kSome))]);
      p.clamp_lo = -0.25F, p.clamp_hi = 0.5F;
    }
    random_.share_places(p);
    return p;
  }

  // Half of the dimensions have a filter, stride and dilation that windows are made for.
  ConvProblem depthwise_problem() {
    ConvProblem p;
    p.direction = conv::kDirections[pick(3)];
    p.layout = random_.coin() ? ConvLayout::nhwgc : ConvLayout::nchw;
    p.ndim = random_.integer(1, 3);
    p.n = random_.integer(1, 2);
    p.g = p.c = random_.integer(1, 110);
    p.k = p.g * (random_.coin() ? 1 : random_.integer(2, 3));
    if (random_.integer(0, 3) == 0) p.in = p.weight = p.out = p.d = DType::bf16;
    for (std::size_t i = 3 - static_cast<std::size_t>(p.ndim); i < 3; ++i) {
      const bool is_usual = random_.coin();
      p.filter[i] = is_usual ? random_.integer(1, 3) * 2 + 1 : random_.integer(1, 8);
      p.stride[i] = random_.integer(1, is_usual ? 2 : 3);
      p.dilation[i] = is_usual ? 1 : random_.integer(1, 2);
      const std::int64_t reach = p.dilation[i] * (p.filter[i] - 1);
      p.pad[i] = random_.integer(0, reach + (random_.integer(0, 3) == 0 ? 4 : 0));
      p.size[i] = p.dilation[i] * (p.filter[i] - 1) + random_.integer(1, p.ndim == 3 ? 4 : 17);
    }
    if (random_.coin()) p.alpha = 0.75F;
    if (random_.coin()) p.beta = 0.5F;
    if (p.direction == ConvDirection::forward && random_.coin()) {
      p.epilogue = parse_epilogue("bias+relu");
    }
    if (p.direction == ConvDirection::forward && p.layout == ConvLayout::nhwgc &&
        random_.integer(0, 2) == 0) {
      constexpr DType kOuts[] = {DType::int32, DType::fp32, DType::int8};
      p.in = p.weight = DType::int8;
      p.acc = DType::int32;
      p.out = p.d = kOuts[pick(3)];
      if (p.out == DType::int32) p.alpha = 3, p.beta = 0, p.epilogue = {};
    }
    random_.share_places(p);
    if (p.layout == ConvLayout::nchw) return p;
    for (ConvStrides* strides : {&p.in_strides, &p.out_strides}) {
      (*strides)[1] = (*strides)[2] = kPacked;  // the kernels have lanes of groups, which adjoin
    }
    return p;
  }
};

TEST_F(ConvKernels, RandomOnesAreCorrectOnRandomProblems) {
  fmt::print("seed {}\n", seed_);
  for (const Target& target : targets_of_run(seed_)) {
    for (int i = 0; i < 8; ++i) {
      const ConvProblem p = problem();
      family_.validate(p);
      const auto specs = serving(p, target);
      check(specs[pick(specs.size())], p, static_cast<int>(random_.integer(1, 5)));
      if (i % 4 == 0) check(family_.general(p, target), p, 2);
    }
  }
}

// Where an image has few channels, taps of a line are one tap, and pixels of a result one row.
TEST_F(ConvKernels, FewChannelsShareWordsAndRows) {
  fmt::print("seed {}\n", seed_);
  for (const Target& target : targets_of_run(seed_)) {
    for (int i = 0; i < 16; ++i) {
      ConvProblem p = problem();
      p.layout = ConvLayout::nhwgc;
      p.g = 1;
      p.c = random_.integer(0, 2) == 0 ? 1 : random_.integer(1, 8);
      p.k = random_.integer(1, 40);
      if (random_.coin()) std::swap(p.c, p.k);
      p.in_strides = p.out_strides = p.weight_strides = kPackedStrides;
      p.size[2] += random_.integer(0, 40);
      check_packab(p, target);
    }
  }
}

// Groups are multiplied from copies, those of few channels together; some need several bands.
TEST_F(ConvKernels, GroupsAreCopied) {
  fmt::print("seed {}\n", seed_);
  for (const Target& target : targets_of_run(seed_)) {
    for (int i = 0; i < 16; ++i) {
      ConvProblem p = problem();
      p.layout = ConvLayout::nhwgc;
      p.g = random_.integer(2, 12);
      p.c = p.g * (random_.integer(0, 3) == 0 ? 1 : random_.integer(1, 20));
      p.k = random_.coin() ? p.c : p.g * random_.integer(1, 20);
      p.in_strides = p.out_strides = p.weight_strides = kPackedStrides;
      if (p.ndim > 1 && random_.integer(0, 3) == 0) {
        p.n = 1;
        p.size[1] += 60;
        p.size[2] += 60;
      }
      check_packab(p, target);
    }
  }
}

// By any of GEMM's kernels that serve the product.
TEST_F(ConvKernels, PointwiseLayersAreProducts) {
  fmt::print("seed {}\n", seed_);
  for (const Target& target : targets_of_run(seed_)) {
    for (int served = 0; served < 4;) {
      ConvProblem p = problem();
      p.filter = p.stride = p.dilation = {1, 1, 1};
      p.pad = {0, 0, 0};
      p.pad_right = {kPacked, kPacked, kPacked};
      p.in_strides = p.out_strides = p.weight_strides = kPackedStrides;
      random_.share_places(p);
      std::vector<KernelSpec> specs = serving(p, target);
      std::erase_if(specs, [](const KernelSpec& spec) { return !spec.algorithm.pointwise; });
      if (specs.empty()) continue;
      check(specs[pick(specs.size())], p, static_cast<int>(random_.integer(1, 3)));
      ++served;
    }
  }
}

// The gradient by w of a batch of no images is beta * C, and no image is read.
TEST_F(ConvKernels, PointwiseGradientsOfNoImages) {
  fmt::print("seed {}\n", seed_);
  const Target target = targets_here().front();
  for (const std::string_view shape : {"g=1 layout=nchw", "g=2 layout=nchw", "g=2 layout=nhwgc"}) {
    for (const int beta : {0, 1}) {
      const Problem problem =
          parse_problem(fmt::format("conv direction=backward_weight n=0 c=24 k=40 h=65 w=65 "
                                    "beta={} {}",
                                    beta, shape));
      std::vector<KernelSpec> specs = serving(problem, target);
      std::erase_if(specs, [](const KernelSpec& spec) { return !spec.algorithm.pointwise; });
      ASSERT_FALSE(specs.empty());
      check(specs.front(), std::get<ConvProblem>(problem), 2);
    }
  }
}

// More channels than a vector and a block of vectors have lanes, filters with and without a window.
TEST_F(ConvKernels, DepthwiseOnesAreCorrectOnDepthwiseProblems) {
  fmt::print("seed {}\n", seed_);
  for (const Target& target : targets_of_run(seed_)) {
    for (int i = 0; i < 12; ++i) {
      const ConvProblem p = depthwise_problem();
      family_.validate(p);
      const auto specs = depthwise_kernels(p, target);
      ASSERT_FALSE(specs.empty());
      check(specs[pick(specs.size())], p, static_cast<int>(random_.integer(1, 5)));
    }
  }
}

// Sizes beyond one block of every kind.
TEST_F(ConvKernels, LargerProblems) {
  fmt::print("seed {}\n", seed_);
  const Target target = targets_here().front();
  for (const ConvDirection direction : conv::kDirections) {
    for (const ConvLayout layout : {ConvLayout::nhwgc, ConvLayout::nchw}) {
      ConvProblem p;
      p.direction = direction;
      p.layout = layout;
      p.n = 2, p.c = 40, p.k = 70;
      p.size = {1, random_.integer(12, 20), random_.integer(12, 20)};
      p.filter = {1, 3, 3};
      p.stride = {1, 1, random_.integer(1, 2)};
      p.pad = {0, 1, 1};
      if (direction == ConvDirection::forward) p.epilogue = parse_epilogue("bias+relu");
      const auto specs = serving(p, target);
      for (int i = 0; i < 3; ++i) check(specs[pick(specs.size())], p, 2);
    }
  }
}

TEST_F(ConvKernels, AnyNumberOfThreadsGivesTheSameBits) {
  fmt::print("seed {}\n", seed_);
  const Target target = targets_here().front();
  for (int i = 0; i < 12; ++i) {
    const ConvProblem p = problem();
    const auto specs = serving(p, target);
    const KernelSpec& spec = specs[pick(specs.size())];
    SCOPED_TRACE(fmt::format("seed {}: {} on '{}'", seed_, name_of(spec), to_string(Problem(p))));
    measure::OwnedOperands owned = measure::random_operands(p, seed_);
    std::vector<std::byte> first;
    for (const int threads : {1, 2, 3, 7}) {
      measure::reset_outputs(owned);
      launch(spec, p, owned.operands, threads);
      const runtime::AlignedBuffer& output = owned.storage.at(owned.outputs.front());
      const auto* bytes = static_cast<const std::byte*>(output.data());
      std::vector<std::byte> now(bytes, bytes + output.size());
      if (first.empty()) first = now;
      EXPECT_EQ(now, first) << threads << " threads";
    }
  }
}

// The depthwise kernels too, in the results and in gradients by x.
TEST_F(ConvKernels, InfiniteFiltersMeetNoPaddingOfDepthwiseOnes) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const Target& target : targets_of_run(seed_)) {
    for (const ConvLayout layout : {ConvLayout::nhwgc, ConvLayout::nchw}) {
      for (const ConvDirection direction : {conv::kDirections[0], conv::kDirections[1]}) {
        ConvProblem p = conv::small_problem(direction, layout);
        p.c = p.k = p.g = 6;
        const std::vector<float> ones(2 * 6 * 7 * 8, 1.0F);
        const std::vector<float> w(6 * 9, kInfinity);
        std::vector<float> result(ones.size());
        ConvOperands o;
        o.in = o.grad_out = ones.data(), o.weight = w.data();
        o.out = o.grad_in = result.data();
        const auto specs = depthwise_kernels(p, target);
        launch(specs[pick(specs.size())], p, o, 2);
        EXPECT_EQ(result, std::vector<float>(result.size(), kInfinity));
      }
    }
  }
}

// The general kernels leave out taps beyond the image's borders: 0 * infinity would be NaN.
TEST_F(ConvKernels, InfiniteFiltersMeetNoPadding) {
  for (const Target& target : targets_of_run(seed_)) {
    for (const ConvLayout layout : {ConvLayout::nhwgc, ConvLayout::nchw}) {
      ConvProblem p = conv::small_problem(ConvDirection::forward, layout);
      const std::vector<float> x(2 * 6 * 7 * 8, 1.0F);
      const std::vector<float> w(9 * 2 * 9, std::numeric_limits<float>::infinity());
      std::vector<float> y(2 * 9 * 7 * 8);
      ConvOperands o;
      o.in = x.data(), o.weight = w.data(), o.out = y.data();
      launch(family_.general(p, target), p, o, 2);
      EXPECT_EQ(y, std::vector<float>(y.size(), std::numeric_limits<float>::infinity()));
    }
  }
}

// Memory of which only the pages that are touched exist.
class Sparse {
 public:
  explicit Sparse(std::size_t bytes) : bytes_(bytes) {
    data_ = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (data_ == MAP_FAILED) throw std::bad_alloc();
  }
  ~Sparse() { munmap(data_, bytes_); }
  Sparse(const Sparse&) = delete;
  Sparse& operator=(const Sparse&) = delete;
  float* data() const { return static_cast<float*>(data_); }

 private:
  std::size_t bytes_;
  void* data_;
};

// Two images more than 2^31 elements apart give the bits that neighbouring images give.
TEST_F(ConvKernels, TensorsBeyondTwoToThe31Elements) {
  constexpr std::int64_t kFar = (std::int64_t{1} << 31) + 4096;
  constexpr std::size_t kBytes = (static_cast<std::size_t>(kFar) + (1 << 20)) * 4;
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  const Target target = targets_here().front();
  for (const ConvDirection direction : conv::kDirections) {
    for (const ConvLayout layout : {ConvLayout::nhwgc, ConvLayout::nchw}) {
      ConvProblem p = conv::small_problem(direction, layout);
      ConvProblem far = p;
      far.in_strides[0] = far.out_strides[0] = kFar;
      const std::int64_t of_x = 6 * 7 * 8, of_y = 9 * 7 * 8, of_w = 9 * 2 * 9;
      std::vector<float> x(2 * of_x), y(2 * of_y), w(of_w), result(2 * of_y + of_w);
      for (auto* tensor : {&x, &y, &w}) {
        for (float& value : *tensor) value = static_cast<float>(random_.real());
      }
      const Sparse far_x(kBytes), far_y(kBytes);
      for (const std::int64_t n : {0, 1}) {
        std::copy_n(x.data() + n * of_x, of_x, far_x.data() + n * kFar);
        std::copy_n(y.data() + n * of_y, of_y, far_y.data() + n * kFar);
      }
      ConvOperands near_o, far_o;
      near_o.in = x.data(), near_o.weight = w.data(), near_o.grad_out = y.data();
      far_o.in = far_x.data(), far_o.weight = w.data(), far_o.grad_out = far_y.data();
      near_o.out = near_o.grad_in = near_o.grad_weight = result.data();
      std::vector<float> far_result(of_w);
      far_o.out = far_y.data(), far_o.grad_in = far_x.data();
      far_o.grad_weight = far_result.data();
      for (const KernelSpec& spec : serving(p, target)) {
        SCOPED_TRACE(name_of(spec));
        const bool is_forward = direction == ConvDirection::forward;
        const std::int64_t image = is_forward ? of_y : of_x;
        float* const at = is_forward ? far_y.data() : far_x.data();
        // Another kernel's results must not pass for this one's.
        std::fill(result.begin(), result.end(), kNan);
        std::fill(far_result.begin(), far_result.end(), -kNan);
        for (const std::int64_t n : {0, 1}) {
          const bool is_result = direction != ConvDirection::backward_weight;
          if (is_result) std::fill_n(at + n * kFar, image, -kNan);
        }
        launch(spec, p, near_o, 2);
        launch(spec, far, far_o, 2);
        if (direction == ConvDirection::backward_weight) {
          EXPECT_EQ(std::memcmp(result.data(), far_result.data(), far_result.size() * 4), 0);
          continue;
        }
        for (const std::int64_t n : {0, 1}) {
          const auto bytes = static_cast<std::size_t>(image) * 4;
          EXPECT_EQ(std::memcmp(result.data() + n * image, at + n * kFar, bytes), 0);
        }
      }
    }
  }
}

// A stride of a dimension of one place is of no consequence.
TEST_F(ConvKernels, LineOfOnePixelWithAnyStride) {
  for (const Target& target : targets_of_run(seed_)) {
    ConvProblem p = conv::line(9, 3);
    p.direction = ConvDirection::backward_data;
    p.layout = ConvLayout::nchw;
    p.dilation[2] = 4;
    p.out_strides = {1, 1, 1, 30, 30, 30};
    for (const KernelSpec& spec : serving(p, target)) check(spec, p, 1);
  }
}

// No images: the gradient of the filters is beta * C.
TEST_F(ConvKernels, NoImages) {
  for (const Target& target : targets_of_run(seed_)) {
    ConvProblem p = conv::small_problem(ConvDirection::backward_weight, ConvLayout::nhwgc);
    p.n = 0;
    p.beta = 0.5F;
    for (const KernelSpec& spec : serving(p, target)) check(spec, p, 2);
  }
}

}  // namespace
}  // namespace tessera
