// Convolutions on a GPU whose images have more than 2^31 elements each, all of them in memory: a
// kernel of each pipeline that serves them, against samples of the fp64 reference. The first and
// the last row of the result are among the samples.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <map>
#include <optional>
#include <thread>

#include "cuda/gpu_test.h"
#include "tessera/base/error.h"

namespace tessera {
namespace {

constexpr std::int64_t kFarElements = std::int64_t{1} << 31;

class GpuLargeConv : public GpuTest {
 protected:
  // A kernel of each pipeline, an essential one where there is one.
  std::vector<KernelSpec> kernels(const Problem& problem) const {
    std::map<Pipeline, KernelSpec> found;
    const auto add = [&](const KernelSpec& spec) {
      if (!family_.is_legal(spec, target_) || !family_.supports(spec, problem, target_)) return;
      const auto [place, is_new] = found.emplace(spec.algorithm.pipeline, spec);
      if (!is_new && !family_.is_essential(place->second, target_) &&
          family_.is_essential(spec, target_)) {
        place->second = spec;
      }
    };
    add(family_.general(problem, target_));
    for (const KernelSpec& spec : family_.candidates(problem, target_)) add(spec);
    std::vector<KernelSpec> specs;
    for (const auto& [pipeline, spec] : found) specs.push_back(spec);
    return specs;
  }

  // Why this machine cannot hold the operands twice; empty where it can.
  static std::string lack_of_memory(const Problem& problem) {
    double bytes = 0;
    for (const Tensor& tensor : family_of(problem).tensors(problem)) {
      bytes += static_cast<double>(tensor.bytes());
    }
    const double free =
        static_cast<double>(sysconf(_SC_AVPHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGESIZE));
    return free > 1.5 * bytes ? ""
                              : fmt::format("the host has {:.1f} GB free, the operands have {:.1f}",
                                            free * 1e-9, bytes * 1e-9);
  }

  void check(const std::string& line) {
    const Problem problem = parse_problem(line);
    for (const Tensor& tensor : family_.tensors(problem)) {
      const bool is_image = tensor.name != "weight" && tensor.name != "grad_weight";
      ASSERT_TRUE(!is_image || tensor.elements() > kFarElements) << tensor.name;
    }
    if (const std::string why = lack_of_memory(problem); !why.empty()) GTEST_SKIP() << why;
    const int threads = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
    measure::OwnedOperands owned = measure::random_operands(problem, seed_, threads);
    std::optional<measure::PlacedOperands> placed;
    try {
      placed = measure::place_operands(owned, place_);
    } catch (const Error& error) {
      if (error.code() == ErrorCode::out_of_memory) GTEST_SKIP() << error.what();
      throw;
    }
    const Reference wanted = family_.reference(problem, owned.operands, {.threads = threads});
    for (const KernelSpec& spec : kernels(problem)) {
      const std::string name = name_of(spec);
      SCOPED_TRACE(fmt::format("{} on '{}', seed {}", name, line, seed_));
      measure::reset_placed(*placed, owned, place_);
      dispatcher_->run(problem, placed->operands, {.force = name});
      measure::fetch_runs(owned, *placed, place_, wanted.runs);
      const Mismatch mismatch = family_.compare(problem, owned.operands, wanted);
      EXPECT_TRUE(mismatch.ok) << mismatch.message;
      fmt::print("{}: {} elements looked at\n", name, mismatch.checked);
    }
  }

  const Family& family_ = family_of(Op::conv);
};

// Many channels: sums of a gradient by w stay short enough for their tolerance to notice errors.
constexpr std::string_view kManyChannels =
    "conv direction={} n=1 c=32768 k=32768 g=512 h=260 w=260 y=3 x=3 pad_h=1 pad_w=1 dtype=bf16";
constexpr std::string_view kDepthwise =
    "conv direction={} n=1 c=32768 k=32768 g=32768 h=260 w=260 y=3 x=3 pad_h=1 pad_w=1 dtype=bf16";
constexpr std::string_view kManyPixels =
    "conv direction={} n=5 c=8 k=8 h=7330 w=7330 y=3 x=3 pad_h=1 pad_w=1 dtype=bf16";

TEST_F(GpuLargeConv, ForwardOfManyChannels) {
  check(fmt::format(fmt::runtime(kManyChannels), "forward"));
}
TEST_F(GpuLargeConv, BackwardDataOfManyChannels) {
  check(fmt::format(fmt::runtime(kManyChannels), "backward_data"));
}
TEST_F(GpuLargeConv, BackwardWeightOfManyChannels) {
  check(fmt::format(fmt::runtime(kManyChannels), "backward_weight"));
}
TEST_F(GpuLargeConv, ForwardOfManyPixels) {
  check(fmt::format(fmt::runtime(kManyPixels), "forward"));
}
TEST_F(GpuLargeConv, BackwardDataOfManyPixels) {
  check(fmt::format(fmt::runtime(kManyPixels), "backward_data"));
}
TEST_F(GpuLargeConv, ForwardOfDepthwise) {
  check(fmt::format(fmt::runtime(kDepthwise), "forward"));
}
TEST_F(GpuLargeConv, BackwardDataOfDepthwise) {
  check(fmt::format(fmt::runtime(kDepthwise), "backward_data"));
}
TEST_F(GpuLargeConv, BackwardWeightOfDepthwise) {
  check(fmt::format(fmt::runtime(kDepthwise), "backward_weight"));
}
TEST_F(GpuLargeConv, ForwardOfIntegers) {
  check(
      "conv direction=forward n=5 c=8 k=8 h=7330 w=7330 y=3 x=3 pad_h=1 pad_w=1 dtype=int8 "
      "out=int8");
}
TEST_F(GpuLargeConv, ForwardOfChannelsFirst) {
  check(
      "conv direction=forward n=5 c=8 k=8 h=7330 w=7330 y=3 x=3 pad_h=1 pad_w=1 dtype=bf16 "
      "layout=nchw");
}

}  // namespace
}  // namespace tessera
