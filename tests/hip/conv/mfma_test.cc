// Convolutions by MFMA for AMD GPUs: every kernel that ships is compiled here, counted, and run
// instruction by instruction on the emulator on random problems, against the fp64 reference. The
// matrix instructions that it executes are as many as the problem needs.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <span>

#include "hip/emulated_test.h"
#include "tessera/families/conv/conv.h"
#include "tessera/families/tile/mfma.h"

namespace tessera {
namespace {

constexpr std::size_t kOthers = 5;  // legal kernels that don't ship, of each run
constexpr int kMfmaProblems = 3;    // of each kernel
constexpr double kMostProducts = 3e6;

class MfmaConv : public EmulatedTest {
 protected:
  MfmaConv() : EmulatedTest(Op::conv) {}

  // ---- problems ----

  // Channels of which a step of the depth, or of backward_weight a tile of columns, has one tap.
  void draw_whole_taps(ConvProblem& p, const Algorithm& a) {
    if (p.direction == ConvDirection::backward_weight) {
      p.c = a.tile.n;
    } else {
      (p.direction == ConvDirection::forward ? p.c : p.k) = a.tile.k * between(1, 2);
    }
  }
  void draw_sizes(ConvProblem& p, const Algorithm& a) {
    p.n = between(1, 3), p.g = one_in(3) ? between(2, 3) : 1;
    const int unit = 16 / size_of(p.in);  // a chunk of channels
    p.c = unit * between(1, one_in(3) ? 3 : 128 / unit);
    p.k = unit * between(1, one_in(3) ? 3 : 144 / unit);
    if (p.direction == ConvDirection::forward && one_in(4)) p.k = between(1, 70);
    if (one_in(4)) p.c = a.tile.k, p.k = a.tile.n;
    if (one_in(3)) draw_whole_taps(p, a);
    p.c *= p.g, p.k *= p.g;
    for (std::size_t i = 3 - static_cast<std::size_t>(p.ndim); i < 3; ++i) {
      p.size[i] = between(1, p.ndim == 3 ? 7 : 14), p.filter[i] = one_in(3) ? between(1, 7) : 3;
      p.stride[i] = one_in(2) ? 1 : between(1, p.ndim == 3 ? 2 : 3),
      p.dilation[i] = one_in(3) ? between(1, 3) : 1;
      p.pad[i] = between(0, 2), p.pad_right[i] = one_in(4) ? between(-1, 3) : p.pad[i];
    }
    if (a.slices > 1) p.n += a.slices * a.tile.k / 90, p.size[2] = 90;
    if (a.slices > 1) p.stride = {1, 1, 1}, p.pad_right[2] = p.pad[2] = 3;
  }
  bool is_wanted(const KernelSpec& spec, const ConvProblem& p) const {
    const Spatial out = out_size(p);
    if (*std::min_element(out.begin(), out.end()) < 1) return false;
    if (family_.flops(p) / 2 > kMostProducts) return false;
    return spec.algorithm.slices == 1 ||
           p.n * out[0] * out[1] * out[2] >
               std::int64_t{spec.algorithm.slices} * spec.algorithm.tile.k;
  }
  // Tokens apart, images that are one, and filters whose lines lie anywhere.
  void add_gaps(ConvProblem& p) {
    const ConvProblem packed = with_strides(p);
    const int word = std::max(1, 4 / size_of(p.in));  // elements of a dword
    const auto widen = [&](ConvStrides& s, const Spatial& size, std::int64_t pixel, bool is_read) {
      s[5] = pixel;
      s[4] = size[2] * s[5] + (is_read ? word * between(0, 2) : 0);
      s[3] = size[1] * s[4] + (is_read ? word * between(0, 2) : 0);
      s[0] = is_read && one_in(3) ? 0 : size[0] * s[3];
    };
    const bool data = p.direction == ConvDirection::backward_data;
    const bool forward = p.direction == ConvDirection::forward;
    p.in_strides = packed.in_strides, p.out_strides = packed.out_strides;
    p.weight_strides = packed.weight_strides;
    widen(p.in_strides, p.size, p.c + word * between(0, 9), !data);
    widen(p.out_strides, out_size(p), p.k + word * between(0, 9), data);
    ConvStrides& w = p.weight_strides;
    if (data) w[4] += word * between(0, 3), w[3] = w[4] * p.filter[1], w[1] = w[3] * p.filter[0];
    w[1] += (data ? word : 1) * between(0, 5), w[0] = w[1] * (p.k / p.g);
    if (forward && one_in(4)) w[0] = 0;
  }
  ConvProblem problem_for(const KernelSpec& spec) {
    const auto& s = std::get<ConvSignature>(spec.signature);
    ConvProblem p;
    do {
      p = {};
      p.direction = s.direction, p.layout = s.layout, p.ndim = s.ndim;
      p.in = s.in, p.weight = s.weight, p.acc = s.acc, p.out = s.out, p.d = s.d;
      p.epilogue = s.epilogue;
      draw_sizes(p, spec.algorithm);
    } while (!is_wanted(spec, p));
    if (one_in(2)) add_gaps(p);
    const bool is_exact = p.out == DType::int32;
    if (one_in(3)) p.alpha = is_exact ? static_cast<float>(between(-3, 3)) : 0.75F;
    if (one_in(3)) p.beta = is_exact ? static_cast<float>(between(1, 3)) : -1.5F;
    return p;
  }

  // ---- counts ----

  std::uint64_t mfmas_of_tile(const KernelSpec& spec) const {
    const Algorithm& a = spec.algorithm;
    int depth = 0;
    for (const Instruction& i : target_.instructions) {
      const bool fits = i.a == std::get<ConvSignature>(spec.signature).in &&
                        i.shape.m == a.warp_tile.m && a.warp_tile.k % i.shape.k == 0;
      if (fits) depth = std::max(depth, i.shape.k);
    }
    const Shape3& w = a.warp_tile;
    const int blocks = a.tile.m / (a.wave.m * w.m) * (a.tile.n / (a.wave.n * w.n));
    return static_cast<std::uint64_t>(blocks * (a.tile.k / depth));
  }
  static std::int64_t up(std::int64_t count, std::int64_t size) {
    return (count + size - 1) / size;
  }
  static int turns_of(const Algorithm& a) { return a.pipeline == Pipeline::mem ? 2 : 1; }

  // All waves of all tiles multiply every step of their slice, in whole turns.
  std::uint64_t executed(const KernelSpec& spec, std::int64_t rows, std::int64_t columns,
                         std::int64_t depth) const {
    const Algorithm& a = spec.algorithm;
    const std::int64_t steps = up(depth, a.tile.k);
    std::int64_t turns = 0;
    for (std::int64_t i = 0; i < a.slices; ++i) {
      turns += up(steps * (i + 1) / a.slices - steps * i / a.slices, turns_of(a));
    }
    return static_cast<std::uint64_t>(up(rows, a.tile.m) * up(columns, a.tile.n) * turns *
                                      turns_of(a) * tile::all_waves(a)) *
           mfmas_of_tile(spec);
  }
  // The taps that meet y from places at `at` of x, places of y of any size.
  static std::int64_t taps_along(const ConvProblem& p, std::size_t i, std::int64_t at) {
    std::int64_t count = 0;
    for (std::int64_t tap = 0; tap < p.filter[i]; ++tap) {
      count += (at + p.pad[i] - tap * p.dilation[i]) % p.stride[i] == 0 ? 1 : 0;
    }
    return count;
  }
  std::uint64_t expected_mfmas(const KernelSpec& spec, const ConvProblem& p) const {
    const conv::View view = conv::view_of(p);
    const auto groups = static_cast<std::uint64_t>(p.g);
    if (p.direction != ConvDirection::backward_data) {
      return groups * executed(spec, view.rows, view.columns, view.depth);
    }
    std::uint64_t all = 0;
    std::int64_t at[3] = {};
    do {
      std::int64_t rows = p.n, depth = p.k / p.g;
      for (std::size_t i = 0; i < 3; ++i) {
        rows *= up(p.size[i] - at[i], p.stride[i]), depth *= taps_along(p, i, at[i]);
      }
      all += groups * executed(spec, rows, view.columns, depth);
    } while (advance(p, at));
    return all;
  }
  static bool advance(const ConvProblem& p, std::int64_t (&at)[3]) {
    for (std::size_t i = 0; i < 3; ++i) {
      if (++at[i] < std::min(p.stride[i], p.size[i])) return true;
      at[i] = 0;
    }
    return false;
  }

  static bool is_mfma(const KernelSpec& spec) {
    const Algorithm& a = spec.algorithm;
    return tile::is_mfma(a.pipeline) && !a.pointwise && !a.repack;
  }

  void check_one(const KernelSpec& spec, const Source& source, EmulatedKernel& kernel) {
    const ConvProblem p = problem_for(spec);
    family_.validate(p);
    check(spec, source, kernel, p);
    EXPECT_EQ(executed_mfmas_, expected_mfmas(spec, conv::folded(p))) << to_string(Problem(p));
  }

  // Builds the kernels, counts what their code has, and runs so many problems of each.
  void check_all(const std::vector<KernelSpec>& specs, int problems) {
    for_each_built(
        specs, [&](const KernelSpec& spec, const Source& source, EmulatedKernel& kernel) {
          for (const std::string& entry : source.entries) {
            EXPECT_EQ(mfmas_in(kernel.facts(name_of(spec) + entry)),
                      mfmas_of_tile(spec) * static_cast<unsigned>(turns_of(spec.algorithm)));
          }
          for (int n = 0; n < problems; ++n) check_one(spec, source, kernel);
          expect_few_lds_cycles(kernel);
        });
  }
};
INSTANTIATE_TEST_SUITE_P(Targets, MfmaConv, testing::Values("gfx90a", "gfx942", "gfx950"),
                         [](const auto& row) { return row.param; });

TEST_P(MfmaConv, EveryEssentialKernelByMfmaIsLeanAndCorrect) {
  const std::vector<KernelSpec> specs = essential(is_mfma);
  ASSERT_GE(specs.size(), 15U);
  check_all(sampled(specs), kMfmaProblems);
}

// Some of all legal kernels; other ones in each run.
TEST_P(MfmaConv, OtherLegalKernelsAreLeanAndCorrect) {
  std::vector<KernelSpec> specs = family_.enumerate(target_, {});
  std::erase_if(specs, [](const KernelSpec& spec) { return !is_mfma(spec); });
  std::shuffle(specs.begin(), specs.end(), random_);
  const std::size_t others = is_usual_run(target_.name) ? 2 : kOthers;
  ASSERT_GE(specs.size(), others);
  specs.resize(others);
  check_all(specs, 1);
}

// Two problems of one tile of results (backward_weight: of so many) that differ by so many steps of
// the depth, by the second entry or the first, and the most instructions of a wave for a step.
struct StepRow {
  const char *direction, *kernel, *fewer, *more;
  std::uint64_t steps;  // of all waves
  bool is_whole;
  std::uint64_t most;
};
constexpr char kAnyDepth[] = "n=1 c=40 k=128 h=9 w=19 y=2 x=4";
constexpr char kMoreDepth[] = "n=1 c=48 k=128 h=9 w=19 y=2 x=4";
constexpr char kWholeDepth[] = "n=1 c=64 k=128 h=9 w=19 y=2 x=4";
constexpr char kMoreWhole[] = "n=1 c=128 k=128 h=9 w=19 y=2 x=4";
constexpr char kAnyData[] = "n=1 k=40 c=128 h=8 w=16 y=2 x=4";
constexpr char kMoreData[] = "n=1 k=48 c=128 h=8 w=16 y=2 x=4";
constexpr char kWholeData[] = "n=1 k=64 c=128 h=8 w=16 y=2 x=4";
constexpr char kMoreWholeData[] = "n=1 k=128 c=128 h=8 w=16 y=2 x=4";
constexpr char kAnyWeight[] = "n=3 c=64 k=128 h=8 w=8 y=3 x=6 pad_h=1 pad_w=2 pad_right_w=3";
constexpr char kMoreWeight[] = "n=4 c=64 k=128 h=8 w=8 y=3 x=6 pad_h=1 pad_w=2 pad_right_w=3";
constexpr char kWholeWeight[] = "n=3 c=128 k=128 h=8 w=8 y=3 x=3 pad_h=1 pad_w=1";
constexpr char kMoreWholeWeight[] = "n=4 c=128 k=128 h=8 w=8 y=3 x=3 pad_h=1 pad_w=1";
constexpr char kCompv4[] = "compv4_128x128x64_2x2x1_32x32x16_intrawave";
constexpr char kAsync[] = "async_128x128x64_2x2x1_32x32x16_intrawave_s2";
constexpr StepRow kSteps[] = {
    {"forward", kCompv4, kAnyDepth, kMoreDepth, 4, false, 200},
    {"forward", kCompv4, kWholeDepth, kMoreWhole, 32, true, 200},
    {"backward_data", kCompv4, kAnyData, kMoreData, 4, false, 300},
    {"backward_data", kCompv4, kWholeData, kMoreWholeData, 32, true, 250},
    {"backward_weight", kCompv4, kAnyWeight, kMoreWeight, 36, false, 350},
    {"backward_weight", kCompv4, kWholeWeight, kMoreWholeWeight, 36, true, 290},
};
constexpr StepRow kCopiedSteps[] = {
    {"forward", kAsync, kAnyDepth, kMoreDepth, 4, false, 180},
    {"forward", kAsync, kWholeDepth, kMoreWhole, 32, true, 180},
    {"backward_data", kAsync, kAnyData, kMoreData, 4, false, 240},
    {"backward_data", kAsync, kWholeData, kMoreWholeData, 32, true, 240},
    {"backward_weight", kAsync, kAnyWeight, kMoreWeight, 36, false, 300},
};

// The kinds of instructions that a table of counts has.
std::string kind_of(const std::string& name) {
  const auto starts = [&](const char* word) { return name.starts_with(word); };
  if (starts("v_mfma")) return "MFMA";
  if (starts("v_")) return "vector";
  if (starts("ds_read")) return "LDS read";
  if (starts("ds_")) return "LDS write";
  if (starts("buffer_") || starts("global_")) return "memory";
  if (starts("s_waitcnt") || starts("s_barrier") || starts("s_nop")) return "wait";
  return "scalar";
}
std::string counts_of_step(const emulator::Statistics& few, const emulator::Statistics& many,
                           std::uint64_t steps) {
  std::map<std::string, std::uint64_t> kinds;
  for (const auto& [name, count] : many.executed) {
    const auto before = few.executed.find(name);
    kinds[kind_of(name)] += count - (before == few.executed.end() ? 0 : before->second);
  }
  std::string text;
  for (const auto& [kind, count] : kinds) {
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", kind, count / steps);
  }
  return text;
}

// What a wave executes for one more step of the depth. docs/performance/cdna_conv.md has the table.
TEST_P(MfmaConv, AStepNeedsFewInstructions) {
  const bool copies = target_.name == "gfx950";
  for (const StepRow& row : copies ? std::span<const StepRow>(kCopiedSteps) : kSteps) {
    std::string word = row.direction;
    std::erase(word, '_');
    for_each_kernel(
        {fmt::format("conv_{}_fp16_nhwgc_2d_{}", word, row.kernel)},
        [&](const KernelSpec& spec, const Source& source, EmulatedKernel& kernel) {
          emulator::Statistics runs[2];
          for (int i = 0; i < 2; ++i) {
            const Problem problem = parse_problem(fmt::format(
                "conv direction={} dtype=fp16 {}", row.direction, i == 0 ? row.fewer : row.more));
            const Launch launch = family_.bind(spec, problem, target_, ConvOperands{});
            ASSERT_EQ(launch.steps[0].entry, row.is_whole ? 1 : 0);
            kernel.statistics = {};
            check(spec, source, kernel, problem);
            runs[i] = kernel.statistics;
          }
          const std::uint64_t step = (runs[1].instructions - runs[0].instructions) / row.steps;
          const emulator::Facts facts =
              kernel.facts(name_of(spec) + (row.is_whole ? "_whole" : ""));
          fmt::print("{} {}: {} a step: {}; {} VGPRs, {} SGPRs\n", row.direction,
                     row.is_whole ? "whole taps" : "any", step,
                     counts_of_step(runs[0], runs[1], row.steps), facts.vgprs, facts.sgprs);
          EXPECT_LE(step, row.most);
        });
  }
}

}  // namespace
}  // namespace tessera
