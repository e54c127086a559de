// Kernels for lists on a GPU, whose groups have sizes and pointers of their own: random groups of
// any type, layout and alignment against the fp64 reference; empty ones; many; sizes that do not
// fit; NaN behind a group's sizes; graphs that are replayed with other sizes; and comparisons.
#include <cstring>
#include <deque>
#include <vector>

#include "cuda/gemm/grouped_gpu_test.h"
#include "grouped_lists.h"

namespace tessera {
namespace {

class GpuGroupedLists : public GroupedGpuTest {
 protected:
  GpuGroupedLists() { groupings_ = {"lists"}; }

  static std::int32_t* sizes_of(const measure::OwnedOperands& owned, std::size_t which) {
    return const_cast<std::int32_t*>(std::get<GemmOperands>(owned.operands).group_sizes.at(which));
  }

  void run_and_expect_right(const GemmProblem& p, measure::OwnedOperands& owned,
                            const std::string& kernel) {
    measure::reset_outputs(owned);
    const std::vector<std::byte> before = grouped::bytes_of_out(owned);
    run_at(Edge::last, kernel, p, owned);
    expect_right(p, owned, before);
  }

  // The sizes that kernels compute with, which the reference takes.
  static void clamp_sizes(const GemmProblem& p, const measure::OwnedOperands& owned) {
    const std::int64_t most[] = {p.m, p.n, p.k};
    for (std::size_t which = 0; which < 3; ++which) {
      std::int32_t* const sizes = sizes_of(owned, which);
      for (std::int64_t i = 0; i < p.groups; ++i) {
        sizes[i] = static_cast<std::int32_t>(device::clamped(sizes[i], 0, most[which]));
      }
    }
  }

  // NaN in the part of a group's matrix that lies outside of its own lines and their lengths.
  struct Part {
    std::int64_t lines, length;
  };
  static void fill_outside(const void* data, std::int64_t bytes, std::int64_t ld, const Part& all,
                           const Part& own) {
    auto* const to = static_cast<std::byte*>(const_cast<void*>(data));
    for (std::int64_t line = 0; line < all.lines; ++line) {
      const std::int64_t from = line < own.lines ? own.length : 0;
      std::memset(to + (line * ld + from) * bytes, 0xff,
                  static_cast<std::size_t>((all.length - from) * bytes));
    }
  }
  static void fill_outside_of_groups(const GemmProblem& p, const GemmOperands& o) {
    const device::GroupArguments x = gemm::group_arguments(p, o);
    const auto part = [](bool by_rows, std::int64_t rows, std::int64_t k) {
      return by_rows ? Part{rows, k} : Part{k, rows};
    };
    const bool a_rows = a_is_row_major(p.layout), b_columns = !b_is_row_major(p.layout);
    for (std::int64_t i = 0; i < p.groups; ++i) {
      const device::GemmArguments g = device::product_of_list(x, i);
      fill_outside(g.a, size_of(p.a), p.ld_a, part(a_rows, p.m, p.k), part(a_rows, g.m, g.k));
      fill_outside(g.b, size_of(p.b), p.ld_b, part(b_columns, p.n, p.k), part(b_columns, g.n, g.k));
    }
  }
};

constexpr const char* kListKernels[] = {
    "fp32_rcr_cpasync_64x64x32_2x2x1_8x4x1_groups{}_s3",
    "fp32_crr_cpasync_128x128x32_2x4x1_8x8x1_groups{}_bias_gelu_s3",
    "tf32_rrr_cpasync_64x64x32_2x2x1_16x8x8_groups{}_s3",
    "fp16_ccr_cpasync_64x64x64_2x2x1_16x8x16_groups{}_multidadd2_s3",
    "bf16_rcr_cpasync_128x128x64_2x4x1_16x8x16_groups{}_s3",
    "bf16_crr_cpasync_64x64x64_2x2x1_16x8x16_outfp32_groups{}_s3",
    "bf16_rrr_cpasync_32x128x64_2x4x1_16x8x16_groups{}_add_relu_s3",
    "bf16_rcr_cpasync_64x64x64_2x2x1_16x8x16_groups{}_rowscale_colscale_bias_clamp_s3",
    "fp8_rcr_cpasync_64x64x128_2x2x1_16x8x16_groups{}_s3",
    "fp8_bf8_rrr_cpasync_64x64x128_2x2x1_16x8x16_outbf16_groups{}_s3",
    "bf8_crr_cpasync_64x64x64_2x2x1_16x8x16_groups{}_s3",
    "int8_rcr_cpasync_64x64x128_2x2x1_16x8x32_groups{}_s3",
    "int8_crr_cpasync_64x64x128_2x2x1_16x8x32_outint8_groups{}_s3"};

TEST_F(GpuGroupedLists, OfAnyTypeAndLayoutAreCorrect) {
  check_all({std::begin(kListKernels), std::end(kListKernels)}, 1, 8);
}

TEST_F(GpuGroupedLists, OfWholeUnitsAreCorrect) {
  check_all({std::begin(kListKernels), std::end(kListKernels)}, 16, 4);
}

// What a dispatcher chooses.
TEST_F(GpuGroupedLists, ChosenKernelsAreCorrect) {
  for (const char* line :
       {"gemm m=300 n=277 k=131 dtype=bf16 groups=1 grouping=lists",
        "gemm m=500 n=384 k=1024 dtype=bf16 groups=8 grouping=lists epilogue=bias",
        "gemm m=70 n=66 k=30 dtype=bf16 groups=4096 grouping=lists",
        "gemm m=9 n=7 k=35 groups=20000 grouping=lists check_groups=1",
        "gemm m=100 n=200 k=65 dtype=fp16 groups=6 grouping=lists beta=1 group_strides=1",
        "gemm m=100 n=200 k=0 dtype=bf16 groups=6 grouping=lists epilogue=bias"}) {
    const Problem problem = parse_problem(line);
    const ReadyKernel& ready = dispatcher_->kernel_for(problem);
    check(name_of(ready.spec), std::get<GemmProblem>(problem));
    if (HasFailure()) return;
  }
}

// Blocks pass many groups without a tile between those that have some.
TEST_F(GpuGroupedLists, GroupsBetweenEmptyOnesAreFound) {
  const KernelSpec spec = kernels({"bf16_rcr_cpasync_64x64x64_2x2x1_16x8x16_groups{}_s3"}).front();
  ASSERT_NO_FATAL_FAILURE(build({spec}));
  for (const std::int64_t last : {255, 256, 257, 1499}) {
    GemmProblem p = gemm::problem_of(std::get<GemmSignature>(spec.signature), 150, 133, 40);
    p.groups = 1500;
    measure::OwnedOperands owned = measure::random_operands(Problem(p), random_());
    for (std::size_t which = 0; which < 3; ++which) {
      std::fill_n(sizes_of(owned, which), p.groups, which == 1 ? 133 : 0);
    }
    for (const std::int64_t group : {std::int64_t{0}, last - 1, last}) {
      sizes_of(owned, 0)[group] = 150, sizes_of(owned, 2)[group] = 40;
    }
    SCOPED_TRACE(last);
    run_and_expect_right(p, owned, name_of(spec));
  }
}

TEST_F(GpuGroupedLists, SizesThatDoNotFitAreReported) {
  const KernelSpec spec = kernels({"bf16_rcr_cpasync_64x64x64_2x2x1_16x8x16_groups{}_s3"}).front();
  ASSERT_NO_FATAL_FAILURE(build({spec}));
  GemmProblem p = gemm::problem_of(std::get<GemmSignature>(spec.signature), 24, 16, 40);
  p.groups = 2500, p.check_groups = true;
  for (int count = 1; count <= 3; ++count) {
    measure::OwnedOperands owned = measure::random_operands(Problem(p), random_());
    grouped::fill_numbers(p, owned.operands, random_);
    for (int i = 0; i < count; ++i) {
      sizes_of(owned, static_cast<std::size_t>(draw(0, 2)))[draw(0, p.groups - 1)] =
          draw(0, 1) == 0 ? 41 : -1;
    }
    const device::BadGroup bad = device::first_bad_group(
        gemm::group_arguments(with_strides(p), std::get<GemmOperands>(owned.operands)));
    ASSERT_TRUE(bad.found);
    expect_report(p, owned, name_of(spec), bad);
  }
}

// Without a check they count as the least or the greatest size.
TEST_F(GpuGroupedLists, SizesThatDoNotFitAreClamped) {
  const std::vector<KernelSpec> specs =
      kernels({"fp32_crr_cpasync_64x64x32_2x2x1_8x4x1_groups{}_s3",
               "bf16_rcr_cpasync_64x64x64_2x2x1_16x8x16_groups{}_s3"});
  ASSERT_NO_FATAL_FAILURE(build(specs));
  for (const KernelSpec& spec : specs) {
    SCOPED_TRACE(name_of(spec));
    GemmProblem p =
        gemm::problem_of(std::get<GemmSignature>(spec.signature), draw(1, 150), draw(1, 150), 70);
    p.groups = 40;
    measure::OwnedOperands owned = measure::random_operands(Problem(p), random_());
    for (std::size_t which = 0; which < 3; ++which) {
      for (std::int64_t i = 0; i < p.groups; ++i) {
        sizes_of(owned, which)[i] = static_cast<std::int32_t>(
            draw(0, 2) == 0 ? static_cast<std::int64_t>(random_()) : draw(-5, 200));
      }
    }
    measure::reset_outputs(owned);
    const std::vector<std::byte> before = grouped::bytes_of_out(owned);
    run_at(Edge::last, name_of(spec), p, owned);
    clamp_sizes(p, owned);
    expect_right(p, owned, before);
  }
}

TEST_F(GpuGroupedLists, IsCapturedAndReplayedWithOtherSizes) {
  replay(kernels({"bf16_rcr_cpasync_64x64x64_2x2x1_16x8x16_groups{}_s3",
                  "fp32_crr_cpasync_128x128x32_2x4x1_8x8x1_groups{}_bias_gelu_s3"}));
}

// A group's products end with its own sizes, whatever lies behind them.
TEST_F(GpuGroupedLists, NanOutsideOfAGroupStaysThere) {
  const std::vector<KernelSpec> specs =
      kernels({"fp32_rcr_cpasync_64x64x32_2x2x1_8x4x1_groups{}_s3",
               "tf32_crr_cpasync_64x64x32_2x2x1_16x8x8_groups{}_s3",
               "bf16_crr_cpasync_64x64x64_2x2x1_16x8x16_groups{}_s3",
               "fp16_rcr_cpasync_64x64x64_2x2x1_16x8x16_groups{}_s3",
               "fp8_rrr_cpasync_64x64x64_2x2x1_16x8x16_groups{}_s3"});
  ASSERT_NO_FATAL_FAILURE(build(specs));
  for (const KernelSpec& spec : specs) {
    SCOPED_TRACE(name_of(spec));
    GemmProblem p = with_strides(gemm::problem_of(std::get<GemmSignature>(spec.signature),
                                                  draw(60, 160), draw(60, 160), draw(30, 200)));
    p.groups = 9;
    p.batch_stride_a = p.batch_stride_b = p.batch_stride_c = p.batch_stride_out = kPacked;
    p.batch_stride_d.fill(kPacked);
    measure::OwnedOperands owned = measure::random_operands(Problem(p), random_());
    grouped::fill_numbers(p, owned.operands, random_);
    fill_outside_of_groups(with_strides(p), std::get<GemmOperands>(owned.operands));
    run_and_expect_right(p, owned, name_of(spec));
  }
}

// Copies of the matrices on the device, each as large as its group's sizes say, in memory of its
// own behind whose end no address is mapped.
class ListsAtDeviceEdges {
 public:
  ListsAtDeviceEdges(const GemmProblem& p, const measure::OwnedOperands& owned,
                     const Operands& placed, const runtime::Place& place)
      : operands_(placed) {
    const device::GroupArguments x =
        gemm::group_arguments(p, std::get<GemmOperands>(owned.operands));
    for (const Tensor& tensor : owned.tensors) {
      if (!tensor.in_array || tensor.is_empty()) continue;
      const void* const from = owned.family->pointer(owned.operands, tensor.operand);
      std::vector<std::uint64_t> pointers;
      for (std::int64_t group = 0; group < p.groups; ++group) {
        const std::size_t bytes =
            grouped::bytes_of_list(p, tensor, device::product_of_list(x, group));
        pointers.push_back(pages_.emplace_back(bytes).end() - bytes);
        if (bytes == 0) continue;
        place.backend->copy_to_device(reinterpret_cast<void*>(pointers.back()),
                                      device::listed(from, group), bytes, place.options);
      }
      const std::size_t bytes = pointers.size() * sizeof(pointers[0]);
      runtime::DeviceBuffer& array = arrays_.emplace_back(place, bytes);
      place.backend->copy_to_device(array.data(), pointers.data(), bytes, place.options);
      owned.family->set_pointer(operands_, tensor.operand, array.data());
    }
  }

  const Operands& operands() const { return operands_; }

 private:
  Operands operands_;
  std::deque<LonePages> pages_;
  std::vector<runtime::DeviceBuffer> arrays_;
};

// What compares a launch reads no more of a group than the kernel does.
TEST_F(GpuGroupedLists, AreVerifiedByTheGroupsSizes) {
  for (const char* line :
       {"gemm m=40 n=30 k=50 groups=7 grouping=lists dtype=bf16",
        "gemm m=140 n=77 k=90 groups=9 grouping=lists dtype=bf16 layout=crr beta=0.5 epilogue=bias "
        "group_strides=1",
        "gemm m=90 n=33 k=121 groups=8 grouping=lists layout=rrr epilogue=add+relu "
        "group_strides=1"}) {
    const Problem problem = parse_problem(line);
    const GemmProblem p = with_strides(std::get<GemmProblem>(problem));
    const std::uint64_t seed = random_();
    SCOPED_TRACE(fmt::format("{}, seed {}", line, seed));
    const measure::OwnedOperands owned = measure::random_operands(problem, seed);
    grouped::fill_numbers(p, owned.operands, random_);
    grouped::fill_group(owned.operands, 1);
    const runtime::Place real{&runtime::backend_for(target_), {}};
    const measure::PlacedOperands placed = measure::place_operands(owned, real);
    const ListsAtDeviceEdges there(p, owned, placed.operands, real);
    EXPECT_NO_THROW(dispatcher_->run(problem, there.operands(), {.verify = true}));
  }
}

}  // namespace
}  // namespace tessera
