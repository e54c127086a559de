// The preparing step of tmaws kernels: what is copied where, and that the main loop then sees the
// same products. The index functions are the kernel's own.
#include <gtest/gtest.h>

#include <map>

#include "host/conv/conv_problems.h"
#include "host/conv/plain_conv.h"
#include "tessera/families/conv/tmaws_internal.h"
#include "tessera/families/draw.h"
#include "tessera/targets/targets.h"

namespace tessera::conv {
namespace {

constexpr std::int64_t kFirst = 65536;  // the copies begin there in the workspace
const void* const kAligned = reinterpret_cast<const void*>(std::uintptr_t{4096});
const void* const kOdd = reinterpret_cast<const void*>(std::uintptr_t{4098});

ConvProblem problem_of(const std::string& text) {
  return with_strides(std::get<ConvProblem>(parse_problem("conv dtype=bf16 direction=" + text)));
}

struct RepackRow {
  const char* problem;
  std::int64_t together, groups, channels;  // of the problem that the main loop sees
  std::int64_t x, w, y;                     // bytes that are copied
};

constexpr RepackRow kRepackRows[] = {
    // Nothing has to be copied.
    {"forward n=2 c=64 k=64 h=8 w=8 y=3 x=3", 1, 1, 64, 0, 0, 0},
    {"forward n=2 c=128 k=128 g=2 h=8 w=8 y=3 x=3", 1, 2, 128, 0, 0, 0},
    // Channels are rounded up to a multiple of 8.
    {"forward n=2 c=20 k=35 h=8 w=8 y=3 x=3", 1, 1, 20, 2 * 64 * 24 * 2, 35 * 9 * 24 * 2, 0},
    {"backward_data n=2 c=36 k=5 h=8 w=8 y=3 x=3", 1, 1, 36, 0, 5 * 9 * 40 * 2, 2 * 36 * 8 * 2},
    {"backward_weight n=2 c=20 k=8 h=8 w=8 y=3 x=3", 1, 1, 20, 2 * 64 * 24 * 2, 0, 0},
    // Groups lie together, 64 channels at least; their images stay where they are.
    {"forward n=2 c=128 k=128 g=32 h=8 w=8 y=3 x=3", 16, 2, 128, 0, 128 * 9 * 64 * 2, 0},
    {"backward_data n=2 c=128 k=256 g=32 h=8 w=8 y=3 x=3", 16, 2, 128, 0, 256 * 9 * 64 * 2, 0},
    {"backward_weight n=2 c=128 k=128 g=32 h=8 w=8 y=3 x=3", 16, 2, 128, 0, 0, 0},
    {"forward n=2 c=40 k=40 g=5 h=8 w=8", 5, 1, 40, 0, 40 * 40 * 2, 0},
    // Groups of many channels stay by themselves where they begin at multiples of 16 bytes.
    // Gradients by x then need zeros behind their filters.
    {"forward n=2 c=224 k=336 g=2 h=8 w=8 y=3 x=3", 1, 2, 224, 0, 0, 0},
    {"forward n=2 c=384 k=88 g=8 h=8 w=8 y=3 x=3", 1, 8, 384, 0, 0, 0},
    {"forward n=2 c=360 k=88 g=8 h=8 w=8 y=3 x=3", 8, 1, 360, 0, 88 * 9 * 360 * 2, 0},
    {"backward_data n=2 c=224 k=336 g=2 h=8 w=8 y=3 x=3", 1, 2, 224, 0, 2 * 192 * 9 * 112 * 2, 0},
    {"backward_data n=2 c=144 k=256 g=2 h=8 w=8 y=3 x=3", 1, 2, 144, 0, 0, 0},
    {"backward_weight n=2 c=224 k=336 g=2 h=8 w=8 y=3 x=3", 1, 2, 224, 0, 0, 0},
    {"backward_weight n=2 c=200 k=320 g=8 h=8 w=8 y=3 x=3", 8, 1, 200, 0, 0, 0},
    // Pointwise layers that read few channels see runs of pixels as one.
    {"forward n=2 c=16 k=40 h=8 w=12", 4, 1, 64, 0, 160 * 64 * 2, 0},
    {"forward n=2 c=24 k=40 h=8 w=12 epilogue=bias", 2, 1, 48, 0, 80 * 48 * 2, 0},
    {"backward_data n=2 c=40 k=8 h=8 w=8", 8, 1, 320, 0, 64 * 320 * 2, 0},
    {"backward_weight n=2 c=16 k=40 h=8 w=12", 1, 1, 16, 0, 0, 0},
    // A cell of a stem has 2 x 4 pixels of 4 channels, which two results of a line share. A filter
    // of 7 x 7 has 4 lines of 3 cells.
    {"forward n=2 c=3 k=64 h=32 w=32 y=7 x=7 stride_h=2 stride_w=2 pad_h=3 pad_w=3", 0, 1, 96,
     2 * 19 * 10 * 32 * 2, 128 * 4 * 96 * 2, 0},
    // A vector is added to each result by itself.
    {"forward n=2 c=3 k=64 h=32 w=32 y=7 x=7 stride_h=2 stride_w=2 pad_h=3 pad_w=3 epilogue=bias",
     0, 1, 64, 2 * 19 * 19 * 16 * 2, 64 * 4 * 64 * 2, 0},
    {"backward_weight n=2 c=1 k=64 h=32 w=32 y=3 x=3 pad_h=1 pad_w=1", 0, 1, 24,
     2 * 34 * 34 * 8 * 2, 0, 0},
    // A cell of results has 4 x 4 pixels of 3 channels and sees 5 x 5 places of y.
    {"backward_data n=2 c=3 k=64 h=32 w=32 y=7 x=7 stride_h=2 stride_w=2 pad_h=3 pad_w=3", 1, 1, 48,
     0, 64 * 25 * 48 * 2, 0},
    {"backward_data n=2 c=3 k=96 h=32 w=32 y=4 x=4 stride_h=4 stride_w=4", 1, 1, 48, 0, 96 * 48 * 2,
     0},
    {"backward_data n=2 c=4 k=20 h=32 w=32 y=3 x=3 pad_h=1 pad_w=1", 1, 1, 64, 0, 20 * 36 * 64 * 2,
     2 * 32 * 32 * 24 * 2},
    {"backward_data n=2 c=3 k=64 h=32 w=32", 1, 1, 3, 0, 64 * 8 * 2, 0},
    // 8 x 8 pixels of y with 1 channel see 10 x 10 pixels of x.
    {"forward n=2 c=64 k=1 h=64 w=64 y=3 x=3 pad_h=1 pad_w=1", 1, 1, 64, 0, 64 * 100 * 64 * 2, 0},
    {"forward n=2 c=128 k=32 h=64 w=64 y=3 x=3 pad_h=1 pad_w=1", 1, 1, 128, 0, 64 * 12 * 128 * 2,
     0},
    {"forward n=2 c=64 k=32 h=64 w=64 y=3 x=3 pad_h=1 pad_w=1", 1, 1, 64, 0, 0, 0},
    // Channels first: whatever is read.
    {"forward n=2 c=64 k=64 h=8 w=8 y=3 x=3 layout=nchw", 1, 1, 64, 2 * 64 * 64 * 2,
     64 * 9 * 64 * 2, 0},
};

TEST(ConvRepack, CopiesWhatTheCopyEngineCannotRead) {
  for (const RepackRow& row : kRepackRows) {
    const ConvProblem p = problem_of(row.problem);
    const Repacked r =
        repack(p, {.in = kAligned, .weight = kAligned, .grad_out = kAligned}, kFirst);
    EXPECT_EQ(r.together, row.together) << row.problem;
    EXPECT_EQ(r.problem.g, row.groups) << row.problem;
    EXPECT_EQ(r.problem.c, row.channels) << row.problem;
    EXPECT_EQ(r.x.bytes, row.x) << row.problem;
    EXPECT_EQ(r.w.bytes, row.w) << row.problem;
    EXPECT_EQ(r.y.bytes, row.y) << row.problem;
    const bool forward = p.direction == ConvDirection::forward;
    if (r.run > 1 || (forward && (r.has_result_cells || r.in_line > 1))) continue;
    EXPECT_EQ(out_size(r.problem), out_size(p)) << row.problem;
  }
}

TEST(ConvRepack, CopiesOddAddresses) {
  const ConvProblem p = problem_of("forward n=2 c=64 k=64 h=8 w=8 y=3 x=3");
  const Repacked x = repack(p, {.in = kOdd, .weight = kAligned}, kFirst);
  EXPECT_EQ(x.x.at, kFirst);
  EXPECT_EQ(x.x.bytes, 2 * 64 * 64 * 2);
  EXPECT_EQ(x.w.data, kAligned);
  EXPECT_EQ(repack(p, {.in = kAligned, .weight = kOdd}, kFirst).w.bytes, 64 * 9 * 64 * 2);
  // A null operand stands for any address.
  EXPECT_EQ(repack(p, {}, kFirst).copied_bytes(), 2 * 64 * 64 * 2 + 64 * 9 * 64 * 2);
}

TEST(ConvRepack, UnservedProblemsSayWhy) {
  constexpr std::pair<const char*, const char*> kUnserved[] = {
      {"forward n=2 c=128 k=128 g=32 h=9 w=9 out_stride_g=8 out_stride_w=256",
       "repack multiplies 16 groups together and needs results whose channels adjoin, got "
       "out_stride_g 8 for 4 channels of out_stride_k 1"},
      {"forward n=1 c=4 k=4 g=4 h=4 w=4 out_stride_k=2",
       "repack multiplies 4 groups together and needs results whose channels adjoin, got "
       "out_stride_g 2 for 1 channels of out_stride_k 2"},
      {"forward n=2 c=20 k=64 h=90000 w=90000",
       "repack copies at most 8589934592 bytes, got 648000010240"},
      {"forward n=0 c=20 k=64 h=9 w=9", "tmaws needs n >= 1, got 0"},
      {"backward_weight n=2 c=20 k=64 h=9 w=9",
       "slices need a step of 64 each, got 64 slices of 3 steps"},
  };
  const Target target = load_target("sm90a");
  for (const auto& [text, why] : kUnserved) {
    const ConvProblem p = problem_of(text);
    const bool weight = p.direction == ConvDirection::backward_weight;
    KernelSpec spec = parse_name(
        weight ? "conv_backwardweight_bf16_nhwgc_2d_tmaws_64x64x64_1x1x1_64x64x16_cooperative_"
                 "splitordered1_slices64_s9_repack_sm90a"
               : "conv_forward_bf16_nhwgc_2d_tmaws_128x64x64_2x1x1_64x64x16_pingpong_s8_repack_"
                 "sm90a");
    EXPECT_EQ(family().supports(spec, p, target).reason, why) << text;
  }
}

// In three dimensions a tap lies at most 31 places from the first one, and the box of all pixels
// begins and ends within 16 places of the image's borders; in two dimensions 255 and 128.
TEST(ConvRepack, CellsStayWithinTheReachOfTheCopyEngine) {
  const Target target = load_target("sm90a");
  constexpr std::pair<const char*, std::int64_t> kProblems[] = {
      {"forward n=1 c=64 k=8 ndim=3 d=64 h=1 w=1 z=31 pad_d=15", 32},
      {"forward n=1 c=64 k=8 ndim=3 d=64 h=1 w=1 z=17", 17},
      {"backward_data n=1 c=4 k=64 ndim=3 d=64 h=1 w=1 z=17 pad_d=8 pad_right_d=16", 23},
      {"backward_data n=1 c=8 k=64 ndim=3 d=64 h=1 w=1 z=17 pad_d=16 pad_right_d=16", 23},
  };
  for (const auto& [text, taps] : kProblems) {
    const ConvProblem p = problem_of(text);
    KernelSpec spec = parse_name(
        "conv_forward_bf16_nhwgc_3d_tmaws_128x64x64_2x1x1_64x64x16_pingpong_s8_repack_sm90a");
    spec.signature = signature_of(Problem(p));
    EXPECT_EQ(family().supports(spec, p, target).reason, "") << text;
    EXPECT_EQ(repack(p, {}, 0).problem.filter[0], taps) << text;
  }
}

TEST(ConvRepack, LaunchHasTheStepsAroundTheMainLoop) {
  const KernelSpec spec = parse_name(
      "conv_backwardweight_bf16_nhwgc_2d_tmaws_64x64x64_1x1x1_64x64x16_cooperative_splitordered1_"
      "slices4_s9_repack_sm90a");
  const ConvProblem p =
      problem_of("backward_weight n=8 c=128 k=128 g=32 h=16 w=16 y=3 x=3 pad_h=1 pad_w=1");
  // Two groups of 64 x 9 x 64 sums in 4 slices, then x and y, which may lie anywhere.
  const std::size_t sums =
      std::size_t{device::kCounterBytes} + std::size_t{4} * 2 * 64 * 9 * 64 * 4;
  const std::size_t image = std::size_t{8} * 16 * 16 * 128 * 2;
  const Launch any = conv::family().bind(spec, p, load_target(spec.target), ConvOperands{});
  EXPECT_EQ(any.workspace.bytes, sums + 2 * image);
  ASSERT_EQ(any.steps.size(), 3U);
  EXPECT_EQ(any.steps[0].entry, 1);
  EXPECT_EQ(any.steps[1].entry, 0);
  EXPECT_EQ(any.steps[2].entry, 2);
  ConvOperands operands;
  operands.in = operands.grad_out = kAligned;
  const Launch aligned = conv::family().bind(spec, p, load_target(spec.target), operands);
  EXPECT_EQ(aligned.workspace.bytes, sums);
  ASSERT_EQ(aligned.steps.size(), 2U);
  EXPECT_EQ(aligned.steps[0].entry, 0);
}

// The copy engine has a window of x for each class of pixels that it stores.
TEST(ConvRepack, StoresPiecesOfChannelsByThreads) {
  const KernelSpec spec = parse_name(
      "conv_backwarddata_bf16_nhwgc_2d_tmaws_64x64x64_1x1x1_64x64x16_cooperative_s9_repack_sm90a");
  ConvProblem p = problem_of("backward_data n=1 c=8 k=96 h=1 w=1");
  EXPECT_TRUE(copies_pixels(p, kAligned));
  EXPECT_FALSE(copies_pixels(p, kOdd));
  const std::size_t maps =
      conv::family().bind(spec, p, load_target(spec.target), ConvOperands{}).tensor_maps.size();

  p = problem_of("backward_data n=1 c=4 k=96 h=1 w=1");
  EXPECT_FALSE(copies_pixels(p, kAligned)) << "the last 8 of 16 bytes are not x's";
  EXPECT_EQ(
      conv::family().bind(spec, p, load_target(spec.target), ConvOperands{}).tensor_maps.size(),
      maps - 1);

  p = problem_of("backward_data n=2 c=20 k=96 h=4 w=4");
  for (const std::size_t i : {0U, 3U, 4U, 5U}) p.in_strides[i] = p.in_strides[i] / 20 * 24;
  EXPECT_FALSE(copies_pixels(p, kAligned)) << "the last 8 of 48 bytes are a gap";
}

// ---- the same products ----

struct Products {
  std::int64_t count = 0;
  std::uint64_t sum = 0;  // of hashes, so that their order does not matter
  void add(std::int64_t x, std::int64_t w, std::int64_t y) {
    ++count;
    std::uint64_t hash = mix(static_cast<std::uint64_t>(x));
    hash = mix(hash ^ static_cast<std::uint64_t>(w));
    sum += mix(hash ^ static_cast<std::uint64_t>(y));
  }
  friend bool operator==(const Products&, const Products&) = default;
};

// Where the elements of the main loop's problem come from; -1: they are zeros.
class Sources {
 public:
  explicit Sources(const ConvProblem& p) : given_(p), repacked_(repack(p, {}, kFirst)) {
    add_repack(p, {}, repacked_, g_);
    if (p.direction == ConvDirection::backward_weight) find_filters();
  }
  std::int64_t x(std::int64_t at) const {
    if (given_.direction != ConvDirection::backward_data) return image(0, at);
    if (repacked_.has_result_cells) return result_of_cell(at);
    if (repacked_.run > 1) return at;
    return result(at, repacked_.problem.in_strides, given_.in_strides);
  }
  std::int64_t y(std::int64_t at) const {
    if (given_.direction != ConvDirection::forward) {
      return image(given_.direction == ConvDirection::backward_data ? 0 : 1, at);
    }
    if (repacked_.has_result_cells) return result_of_cell(at);
    if (repacked_.in_line > 1 || repacked_.run > 1) return at;
    return result(at, repacked_.problem.out_strides, given_.out_strides);
  }
  std::int64_t w(std::int64_t at) const {
    if (given_.direction == ConvDirection::backward_weight) {
      const auto found = filters_.find(at);
      return found == filters_.end() ? -1 : found->second;
    }
    const bool forward = given_.direction == ConvDirection::forward;
    const device::FilterShape shape = device::moves_filters(g_)
                                          ? device::result_filter_shape(g_, forward)
                                          : device::filter_shape(g_.filter, g_.images[0]);
    const std::int64_t line = (shape.channels + 7) / 8 * 8;
    const auto tap = static_cast<int>(at / line % shape.taps);
    const auto row = static_cast<int>(row_of_copy(at / line / shape.taps));
    const auto channel = static_cast<int>(at % line);
    if (!device::moves_filters(g_)) {
      return device::filter_source(g_.filter, g_.images[0], row, tap, channel);
    }
    EXPECT_LT(row, shape.rows);
    return device::result_filter_source(g_, forward, forward ? row : channel, tap,
                                        forward ? channel : row);
  }
  const ConvProblem& problem() const { return repacked_.problem; }
  const Spatial& apart() const { return repacked_.apart; }

 private:
  // Groups may have more rows in the copy than the main loop's problem has channels of y.
  std::int64_t row_of_copy(std::int64_t row) const {
    const ConvProblem& q = repacked_.problem;
    if (given_.direction != ConvDirection::backward_data) return row;
    const std::int64_t channels = q.k / q.g;
    return row / channels * repacked_.filter_rows + row % channels;
  }
  std::int64_t image(std::size_t index, std::int64_t at) const {
    const device::ImageCopy& image = g_.images[index];
    const auto within = static_cast<int>(at % 8);
    const device::CellPlace place = device::cell_place(image, static_cast<int>(at / 8));
    device::CellQuarter quarter = device::cell_quarter(image, place, within / 4 * 4);
    for (int i = 0; i < within % 4; ++i) device::go_on(image, quarter);
    return device::source_of(image, quarter);
  }
  // Results lie where they were given: only the groups' strides differ.
  static std::int64_t result(std::int64_t at, const ConvStrides& seen, const ConvStrides& given) {
    for (const std::size_t i : {0U, 2U, 3U, 4U, 5U}) EXPECT_EQ(seen[i], given[i]);
    return at;
  }
  std::int64_t result_of_cell(std::int64_t at) const {
    const ConvProblem& q = repacked_.problem;
    const device::ImageCopy& x = g_.images[1];
    const bool forward = given_.direction == ConvDirection::forward;
    const Spatial size = forward ? out_size(q) : q.size;
    const std::int64_t columns = forward ? q.k : q.c;
    const device::CellColumn column = device::cell_column(x, static_cast<int>(at % columns));
    std::int64_t rest = at / columns;
    std::int64_t offset = column.channel * x.channel;
    for (std::size_t dim = 3; dim-- > 0;) {
      const std::int64_t pixel = rest % size[dim] * x.step[dim] + column.at[dim];
      if (pixel >= x.size[dim]) return -1;
      offset += pixel * x.pixel[dim];
      rest /= size[dim];
    }
    return offset + rest * x.image;
  }
  void find_filters() {
    const ConvProblem &p = given_, &seen = repacked_.problem;
    const device::FilterShape shape = device::filter_shape(g_.filter, g_.images[0]);
    const std::int64_t count = p.k * (p.c / p.g) * p.filter[0] * p.filter[1] * p.filter[2];
    for (std::int64_t i = 0; i < count; ++i) {
      const device::FilterElement at = device::filter_element(g_.filter, i);
      const device::FilterPlace to = device::filter_place(g_.filter, g_.images[0], at);
      const std::int64_t row = to.group * (seen.k / seen.g) + to.row;
      filters_[(row * shape.taps + to.tap) * shape.channels + to.channel] =
          device::filter_offset(g_.filter, at);
    }
    EXPECT_EQ(std::int64_t(filters_.size()), count) << "two elements have one place";
  }

  ConvProblem given_;
  Repacked repacked_;
  device::CudaRepackArguments g_{};
  std::map<std::int64_t, std::int64_t> filters_;
};

// A pointwise layer that reads few channels. Pixels of the result adjoin, or do not.
void make_runs(RandomConvs& random, ConvProblem& p) {
  const bool data = random.coin();
  p.direction = data ? ConvDirection::backward_data : ConvDirection::forward;
  p.layout = ConvLayout::nhwgc;
  p.g = 1, p.c = random.integer(1, 40), p.k = random.integer(1, 40);
  for (std::size_t i = 3 - static_cast<std::size_t>(p.ndim); i < 3; ++i) {
    p.size[i] = random.integer(1, 4) << random.integer(0, 2);
    p.filter[i] = p.stride[i] = p.dilation[i] = 1;
    p.pad[i] = p.pad_right[i] = 0;
  }
  p.in_strides = p.weight_strides = p.out_strides = kPackedStrides;
  if (random.coin()) (data ? p.in_strides : p.out_strides)[5] = (data ? p.c : p.k) + 8;
}

ConvProblem random_repacked(RandomConvs& random) {
  ConvProblem p = random.problem();
  p.in = p.weight = p.out = p.d = DType::bf16;
  p.direction = kDirections[random.integer(0, 2)];
  if (random.integer(0, 2) == 0) {
    p.c = random.integer(1, 4), p.k = random.integer(1, 9), p.g = 1;
    p.in_strides = p.weight_strides = p.out_strides = kPackedStrides;
  } else if (random.coin()) {
    const bool many = random.coin();
    p.g = many ? random.integer(2, 3) : std::int64_t{1} << random.integer(1, 5);
    p.c = p.g * random.integer(1, many ? 80 : 4), p.k = p.g * random.integer(1, many ? 80 : 4);
    p.in_strides = p.weight_strides = p.out_strides = kPackedStrides;
  }
  if (random.integer(0, 3) == 0) make_runs(random, p);
  random.share_places(p);
  return p;
}

TEST(ConvRepack, TheMainLoopSeesTheSameProducts) {
  const std::uint64_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  RandomConvs random(seed);
  int seen = 0;
  while (seen < 40) {
    const ConvProblem p = with_strides(random_repacked(random));
    if (!unrepackable(p).empty()) continue;
    Products given, packed;
    for_each_product(p, [&](const PlainProduct& at) { given.add(at.x, at.w, at.y); });
    if (given.count > 100000) continue;
    const Sources from(p);
    for_each_product(
        from.problem(),
        [&](const PlainProduct& at) {
          const std::int64_t x = from.x(at.x), w = from.w(at.w), y = from.y(at.y);
          if (x >= 0 && w >= 0 && y >= 0) packed.add(x, w, y);
        },
        from.apart());
    EXPECT_EQ(packed, given) << to_string(Problem(p)) << ": " << packed.count << " of "
                             << given.count << " products";
    ++seen;
  }
}

}  // namespace
}  // namespace tessera::conv
