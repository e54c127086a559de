// What tests of kernels for groups on a GPU share: random problems of every kind of groups, checks
// against the fp64 reference and of what belongs to no group, and graphs that are replayed with
// other sizes.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <string>
#include <vector>

#include "cuda/driver_calls.h"
#include "cuda/gpu_test.h"
#include "grouped.h"
#include "tessera/families/gemm/gemm.h"

namespace tessera {

class GroupedGpuTest : public GpuTest {
 protected:
  std::int64_t draw(std::int64_t low, std::int64_t high) {
    return grouped::draw(random_, low, high);
  }

  // The kernels of names in which {} stands for the grouping; every one with each grouping.
  std::vector<KernelSpec> kernels(const std::vector<const char*>& patterns) {
    std::vector<KernelSpec> specs;
    for (const char* pattern : patterns) {
      for (const char* grouping : groupings_) {
        specs.push_back(
            parse_name(fmt::format("gemm_{}_sm90a", fmt::format(fmt::runtime(pattern), grouping))));
        const Verdict legal = family_of(Op::gemm).is_legal(specs.back(), target_);
        const bool is_laid = legal.reason.find("where groups do not begin") == std::string::npos;
        if (!is_laid) specs.pop_back();  // the copy engine does not read such layouts
        EXPECT_EQ(is_laid ? legal.reason : "", "") << pattern << grouping;
      }
    }
    return specs;
  }

  // Sizes around whole tiles, in whole units.
  GemmProblem problem(const KernelSpec& spec, std::int64_t unit) {
    const Shape3& tile = spec.algorithm.tile;
    const auto size = [&](std::int64_t most) { return unit * draw(1, std::max(most / unit, 2L)); };
    const auto& signature = std::get<GemmSignature>(spec.signature);
    const bool has_matrices = gemm::group_matrices(signature.grouping).out;
    const std::int64_t most_rows = has_matrices ? 200 : draw(0, 2) == 0 ? 900 : 300;
    GemmProblem p = gemm::problem_of(signature, size(most_rows),
                                     size(std::max(tile.m, tile.n) + 100), size(tile.k * 3 + 60));
    p.groups = draw(0, 4) == 0 ? draw(1, has_matrices ? 30 : 300) : draw(1, 9);
    p.scale_quads = p.scale_type == GemmScaleType::e8m0 && draw(0, 1) == 1;
    p.clamp_lo = -0.5F, p.clamp_hi = 1.5F;
    if (p.out == DType::int8) p.alpha = 0x1p-9F;
    return p;
  }

  // What a kind of groups may have of its own: numbers of 64 bits, or distances of rows.
  void flip_width(GemmProblem& p) {
    (gemm::is_list(p) ? p.group_strides : p.group_int64) = draw(0, 1) == 0;
  }

  // Strides that are longer than the sizes, and C.
  void loosen(GemmProblem& p, std::int64_t unit) {
    p = with_strides(p);
    for (std::int64_t* ld : {&p.ld_a, &p.ld_b, &p.ld_c, &p.ld_out}) *ld += unit * draw(0, 5);
    const std::int64_t rows = std::max({p.m, p.n, p.k});
    const std::int64_t more = unit * draw(0, 3);
    p.batch_stride_a = rows * p.ld_a + more, p.batch_stride_b = rows * p.ld_b + more;
    p.batch_stride_c = rows * p.ld_c + more, p.batch_stride_out = rows * p.ld_out + more;
    for (std::size_t i = 0; i < p.epilogue.num_d; ++i) {
      if (!d_uses(p.epilogue)[i].is_vector()) p.ld_d[i] += unit * draw(0, 5);
      p.batch_stride_d[i] = draw(0, 3) == 0 ? 0 : rows * p.ld_d[i];
    }
    p.beta = p.out == DType::int32 ? 2.0F : -0.5F;
    if (gemm::is_list(p)) {
      p.batch_stride_a = p.batch_stride_b = p.batch_stride_c = p.batch_stride_out = kPacked;
      p.batch_stride_d.fill(kPacked);
    }
    if (p.scale_a != GemmScale::none) {
      loosen_scales(p, scale_blocks(p.scale_a, p.m, p.k), p.stride_scale_a_m, p.stride_scale_a_k,
                    p.batch_stride_scale_a);
    }
    if (p.scale_b != GemmScale::none) {
      loosen_scales(p, scale_blocks(p.scale_b, p.n, p.k), p.stride_scale_b_n, p.stride_scale_b_k,
                    p.batch_stride_scale_b);
    }
  }

  // Scales of rows side by side or of k side by side, and a matrix of them for each group or one
  // for all.
  void loosen_scales(const GemmProblem& p, const ScaleBlock& count, std::int64_t& along_rows,
                     std::int64_t& along_k, std::int64_t& groups) {
    const std::int64_t width = p.scale_quads ? 4 : 1;
    const std::int64_t steps = (count.k + width - 1) / width;
    if (draw(0, 1) == 0) {
      along_k = width * draw(1, 2), along_rows = along_k * (steps + draw(0, 3));
    } else {
      along_rows = width, along_k = width * (count.rows + draw(0, 3));
    }
    groups = draw(0, 3) == 0 ? 0 : along_rows * (count.rows + 1) + along_k * (steps + 1);
  }

  void expect_right(const GemmProblem& p, const measure::OwnedOperands& owned,
                    const std::vector<std::byte>& before) {
    EXPECT_EQ(grouped::gaps_intact(p, owned), "");
    expect_correct(p, owned);
    EXPECT_EQ(grouped::touched(p, owned, before), 0U) << "elements of no group changed";
  }

  // Twice, at both edges of memory, with equal bits.
  void check(const std::string& kernel, const GemmProblem& p, bool fresh_numbers = true) {
    const std::uint64_t seed = random_();
    const Problem problem = p;
    const std::string words = fmt::format("{} on '{}', seed {}", kernel, to_string(problem), seed);
    SCOPED_TRACE(words);
    say(words);
    family_of(Op::gemm).validate(problem);
    measure::OwnedOperands owned = measure::random_operands(problem, seed);
    if (fresh_numbers) grouped::fill_numbers(p, owned.operands, random_);
    measure::reset_outputs(owned);
    const std::vector<std::byte> before = grouped::bytes_of_out(owned);
    const std::vector<std::byte> first = run_at(Edge::first, kernel, problem, owned);
    expect_right(p, owned, before);
    const std::vector<std::byte> last = run_at(Edge::last, kernel, problem, owned);
    EXPECT_EQ(last, first) << "a repeat gave other bits";
    EXPECT_EQ(grouped::gaps_intact(p, owned), "");
  }

  // Lists have an array for each size, and for distances of rows.
  static std::vector<const std::int32_t*> numbers_of(const GemmProblem& p,
                                                     const Operands& operands) {
    const auto& o = std::get<GemmOperands>(operands);
    if (!gemm::is_list(p)) return {gemm::numbers_of(p, o)};
    std::vector<const std::int32_t*> all(o.group_sizes.begin(), o.group_sizes.end());
    std::copy_if(o.group_lds.begin(), o.group_lds.end(), std::back_inserter(all),
                 [](const std::int32_t* lds) { return lds != nullptr; });
    return all;
  }
  void send_numbers(const GemmProblem& p, const measure::OwnedOperands& owned,
                    const measure::PlacedOperands& placed) {
    const std::vector<const std::int32_t*> from = numbers_of(p, owned.operands);
    const std::vector<const std::int32_t*> to = numbers_of(p, placed.operands);
    const std::int64_t bytes = (p.group_int64 ? 8 : 4) * gemm::numbers_count(p);
    for (std::size_t i = 0; i < from.size(); ++i) {
      place_.backend->copy_to_device(const_cast<std::int32_t*>(to[i]), from[i],
                                     static_cast<std::size_t>(bytes), place_.options);
    }
  }

  void send_other_numbers(const GemmProblem& p, measure::OwnedOperands& owned,
                          const measure::PlacedOperands& placed) {
    grouped::fill_numbers(p, owned.operands, random_);
    send_numbers(p, owned, placed);
  }

  // A launch writes this report and nothing else.
  void expect_report(const GemmProblem& p, measure::OwnedOperands& owned, const std::string& kernel,
                     const device::BadGroup& bad) {
    measure::reset_outputs(owned);
    const std::vector<std::byte> before = grouped::bytes_of_out(owned);
    run_at(Edge::last, kernel, p, owned);
    EXPECT_EQ(grouped::bytes_of_out(owned), before);
    EXPECT_EQ(measure::gaps_intact(owned), "");
    const std::int32_t* const report = std::get<GemmOperands>(owned.operands).bad_group;
    const std::int64_t wanted[] = {1, bad.place, bad.number, bad.bound};
    for (int i = 0; i < 4; ++i) EXPECT_EQ(report[i], wanted[i]) << i;
  }

  void check_all(const std::vector<const char*>& patterns, std::int64_t unit, int problems) {
    const std::vector<KernelSpec> specs = kernels(patterns);
    ASSERT_NO_FATAL_FAILURE(build(specs));
    for (const KernelSpec& spec : specs) {
      for (int i = 0; i < problems; ++i) {
        GemmProblem p = problem(spec, unit);
        if (i % 2 == 1) loosen(p, unit);
        // Where rows lie at whole units, their numbers may be any.
        if (i % 4 == 3) p.m -= draw(0, unit - 1), p.n -= draw(0, unit - 1);
        p.check_groups = draw(0, 3) == 0, flip_width(p);
        if (family_of(Op::gemm).supports(spec, p, target_)) check(name_of(spec), p, i > 0);
        if (HasFailure()) return;
      }
    }
  }

  // Captures a launch and replays it with other sizes of groups.
  void replay(const std::vector<KernelSpec>& specs) {
    ASSERT_NO_FATAL_FAILURE(build(specs));
    for (const KernelSpec& spec : specs) {
      SCOPED_TRACE(name_of(spec));
      GemmProblem p = gemm::problem_of(std::get<GemmSignature>(spec.signature), 416, 272, 416);
      p.groups = 7, p.check_groups = draw(0, 1) == 1, flip_width(p);
      measure::OwnedOperands owned = measure::random_operands(Problem(p), random_());
      measure::PlacedOperands placed = measure::place_operands(owned, place_);
      RunOptions options{.force = name_of(spec)};
      dispatcher_->run(Problem(p), placed.operands, options);
      const CurrentContext context;
      call<void**, unsigned>("cuStreamCreate", &options.launch.stream, 1);
      dispatcher_->run(Problem(p), placed.operands, options);
      void* const stream = options.launch.stream;
      void* graph = nullptr;
      void* runnable = nullptr;
      call<void*, int>("cuStreamBeginCapture_v2", stream, 0);
      dispatcher_->run(Problem(p), placed.operands, options);
      call<void*, void**>("cuStreamEndCapture", stream, &graph);
      call<void**, void*, unsigned long long>("cuGraphInstantiateWithFlags", &runnable, graph, 0);
      for (int replay = 0; replay < 4; ++replay) {
        send_other_numbers(p, owned, placed);
        measure::reset_outputs(owned);
        const std::vector<std::byte> before = grouped::bytes_of_out(owned);
        measure::send_outputs(owned, placed, place_);
        call<void*, void*>("cuGraphLaunch", runnable, stream);
        call<void*>("cuStreamSynchronize", stream);
        measure::fetch_outputs(owned, placed, place_);
        expect_right(p, owned, before);
      }
      call<void*>("cuGraphExecDestroy", runnable);
      call<void*>("cuGraphDestroy", graph);
      call<void*>("cuStreamDestroy_v2", stream);
    }
  }

  std::vector<const char*> groupings_ = {"contiguous", "indexed", "masked", "alongk"};
};

}  // namespace tessera
