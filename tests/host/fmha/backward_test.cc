// The gradients of attention without running a kernel: which problems are valid, their tensors,
// counts and kernels, and the reference against plain loops and differences of a loss.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "host/families/asked.h"
#include "host/fmha/plain_backward.h"
#include "host/spec/expect_error.h"
#include "tessera/device/cpu/fmha/backward_work.h"
#include "tessera/families/fmha/fmha.h"
#include "tessera/targets/targets.h"

namespace tessera::fmha {
namespace {

constexpr const char* kBackwardSizes = "batch=2 heads=4 seqlen_q=6 seqlen_k=9 hdim=8 ";

Problem backward_of(const std::string& fields) {
  return parse_problem(fmt::format("fmha kind=backward {}{}", kBackwardSizes, fields));
}

// ---- which problems are valid ----

struct RefusedBackward {
  const char *fields, *sentence;
};
constexpr RefusedBackward kRefusedBackwards[] = {
    {"lse=1", "fmha: lse must be 0 with kind=backward, got 1"},
    {"p_drop=0.5 random=1", "fmha: random must be 0 with kind=backward, got 1"},
    {"num_splits=2", "fmha: num_splits must be 0 or 1 with kind=backward, got 2"},
    {"pages=table page_size=4", "fmha: pages must be none with kind=backward, got table"},
    {"dtype=fp8 out=fp8", "fmha: in must be fp32, fp16 or bf16, got fp8"},
    {"dtype=fp16 kv=bf8", "fmha: kv must be same with kind=backward, got bf8"},
    {"dtype=bf16 out=fp32", "fmha: out must be bf16 like in with kind=backward, got fp32"},
    {"rotary=half", "fmha: rotary must be none with kind=backward, got half"},
    {"rotate_q=1", "fmha: rotate_q must be 0 with kind=backward, got 1"},
    {"rotary_dim=4", "fmha: rotary_dim must be 0 with kind=backward, got 4"},
    {"k_new_stride_s=4", "fmha: k_new_stride_s must be left out with kind=backward, got 4"},
    {"dbias=1", "fmha: dbias must be 0 with bias=none, got 1"},
    {"dk_stride_s=7",
     "fmha: strides must not fold dk onto itself: 7 is less than the 8 elements that smaller "
     "strides span"},
    {"dout_stride_s=-1", "fmha: strides of dout must be at least 0, got -1"},
    {"lengths=packed dq_stride_b=7",
     "fmha: dq_stride_b must be left out or 0 with lengths=packed, where all sequences are one run "
     "of tokens, got 7"},
};

TEST(FmhaBackwardValidate, SaysWhichFieldIsWrong) {
  for (const RefusedBackward& row : kRefusedBackwards) {
    EXPECT_EQ(refusal(backward_of(row.fields)), row.sentence) << row.fields;
  }
}

TEST(FmhaBackwardValidate, OtherKindsHaveNoneOfItsFields) {
  for (const char* kind : {"forward", "append"}) {
    const auto of = [&](const char* fields) {
      return refusal(parse_problem(fmt::format("fmha kind={} {}{}", kind, kBackwardSizes, fields)));
    };
    EXPECT_EQ(of("dbias=1"), fmt::format("fmha: dbias must be 0 with kind={}, got 1", kind));
    EXPECT_EQ(of("dlse=1"), fmt::format("fmha: dlse must be 0 with kind={}, got 1", kind));
    EXPECT_EQ(of("dq_stride_d=2"),
              fmt::format("fmha: dq_stride_d must be left out with kind={}, got 2", kind));
  }
}

TEST(FmhaBackwardValidate, AcceptsWhatIsAllowed) {
  for (const char* fields :
       {"", "dtype=bf16", "lengths=padded skip_q=2", "lengths=packed tokens_q=0",
        "mask=bottom_right window_left=3 sink=1", "soft_cap=3 bias=alibi", "p_drop=0.25",
        "bias=elementwise dbias=1 bias_stride_b=0", "bias=elementwise", "dout_stride_b=0",
        "bias=alibi dbias=1 dlse=1", "dtype=fp16,fp32 bias=elementwise dbias=1"}) {
    EXPECT_EQ(refusal(backward_of(fields)), "") << fields;
  }
  const std::uint64_t seed = std::random_device{}();
  RandomFmhas random(seed);
  for (int i = 0; i < 500; ++i) {
    const FmhaProblem p = random_backward(random, 300, 300);
    EXPECT_EQ(refusal(p), "") << "seed " << seed << ": " << to_string(Problem(p));
    EXPECT_EQ(parse_problem(to_string(Problem(p))), Problem(p)) << seed;
  }
}

// ---- tensors and counts ----

TEST(FmhaBackwardTensors, ReadWhatAttentionGaveAndWriteGradients) {
  std::map<std::string_view, Tensor> all;
  for (const Tensor& tensor : tensors(backward_of("heads_kv=2 hdim_v=16 dtype=bf16"))) {
    all[tensor.name] = tensor;
  }
  for (const char* name : {"q", "k", "v", "out", "lse", "dout"}) {
    EXPECT_EQ(all.at(name).access, Access::read) << name;
  }
  for (const char* name : {"dq", "dk", "dv"}) {
    EXPECT_EQ(all.at(name).access, Access::write) << name;
    EXPECT_EQ(all.at(name).dtype, DType::bf16) << name;
  }
  EXPECT_EQ(sizes(all.at("dq")), (Sizes{8, 6, 4, 2}));
  EXPECT_EQ(sizes(all.at("dk")), (Sizes{8, 9, 2, 2}));
  EXPECT_EQ(sizes(all.at("dv")), (Sizes{16, 9, 2, 2}));
  EXPECT_EQ(sizes(all.at("dout")), (Sizes{16, 6, 4, 2}));
  EXPECT_EQ(all.size(), 9U);
}

TEST(FmhaBackwardTensors, DbiasHasOneIndexWhereTheBiasIsShared) {
  const auto dbias_of = [](const char* strides) {
    const Tensors all = tensors(backward_of(fmt::format("bias=elementwise dbias=1 {}", strides)));
    return all[all.size() - 1];
  };
  EXPECT_EQ(sizes(dbias_of("")), (Sizes{9, 6, 4, 2}));
  EXPECT_EQ(sizes(dbias_of("bias_stride_b=0")), (Sizes{9, 6, 4, 1}));
  constexpr const char* kOfKeys = "bias_stride_b=9 bias_stride_h=0 bias_stride_q=0";
  EXPECT_EQ(sizes(dbias_of(kOfKeys)), (Sizes{9, 1, 1, 2}));
  EXPECT_EQ(strides(dbias_of(kOfKeys)), (Sizes{1, 9, 9, 9}));
  EXPECT_EQ(sizes(dbias_of("bias_stride_b=24 bias_stride_h=6 bias_stride_q=1 bias_stride_k=0")),
            (Sizes{1, 6, 4, 2}));
}

TEST(FmhaBackwardTensors, DbiasOfAlibiHasTheSlopesOfTheSequences) {
  for (const auto& [stride, sequences] : {std::pair{0, 1}, {4, 2}}) {
    const Tensors all =
        tensors(backward_of(fmt::format("bias=alibi dbias=1 dtype=bf16 slope_stride={}", stride)));
    const Tensor& dbias = all[all.size() - 1];
    EXPECT_EQ(sizes(dbias), (Sizes{1, 1, 4, sequences}));
    EXPECT_EQ(dbias.dtype, DType::fp32);
  }
}

TEST(FmhaBackwardTensors, DlseLiesAsLseDoes) {
  std::map<std::string_view, Tensor> all;
  for (const Tensor& tensor : tensors(backward_of("lengths=packed dlse=1"))) {
    all[tensor.name] = tensor;
  }
  EXPECT_EQ(all.at("dlse").access, Access::read);
  EXPECT_EQ(sizes(all.at("dlse")), sizes(all.at("lse")));
  EXPECT_EQ(strides(all.at("dlse")), strides(all.at("lse")));
}

TEST(FmhaBackwardTensors, CountFiveProducts) {
  EXPECT_EQ(family().flops(backward_of("hdim_v=16")), 2.0 * 2 * 4 * 6 * 9 * (3 * 8 + 2 * 16));
}

// ---- kernels ----

TEST(FmhaBackwardKernels, ThoseOfAGpuAreGeneralOrFlash) {
  const Target gpu = load_target("sm90a");
  const Problem p = backward_of("dtype=bf16");
  int general = 0, flash = 0;
  for (const KernelSpec& spec : family().candidates(p, gpu)) {
    if (!family().is_legal(spec, gpu)) continue;
    general += spec.algorithm.pipeline == Pipeline::direct;
    flash += spec.algorithm.pipeline == Pipeline::tmaws;
  }
  EXPECT_EQ(general, 4);
  EXPECT_EQ(flash, 48);  // 6 tiles, 4 numbers of slices, sums of dq in any order or in one
  const KernelSpec parts =
      parse_name("fmha_backward_bf16_splitkv_16x16x128_1x4x1_1x1x1_slices132_s3_sm90a");
  EXPECT_EQ(family().is_legal(parts, gpu).reason,
            "the pipeline must be tmaws or direct with kind=backward on sm90a, got splitkv");
  for (const char* cpu : {"generic", "avx2", "avx512"}) {
    const Target target = load_target(cpu);
    const KernelSpec spec = family().general(p, target);
    EXPECT_EQ(parse_name(name_of(spec)), spec);
    EXPECT_TRUE(name_of(spec).starts_with("fmha_backward_bf16_flash_")) << name_of(spec);
  }
}

// What is prepared, keys, queries and, where it is asked for, the bias have a step each, and a grid
// that covers them.
TEST(FmhaBackwardBind, GradientsOfAGpuAreSteps) {
  struct Row {
    const char* fields;
    std::vector<std::array<unsigned, 3>> grids;
  };
  const Row rows[] = {
      {"seqlen_q=33 seqlen_k=65 heads=6 heads_kv=2 batch=3 hdim=8",
       {{3, 6, 3}, {3, 2, 3}, {3, 6, 3}}},
      {"seqlen_q=0 seqlen_k=65 heads=6 heads_kv=2 batch=3 hdim=8", {{3, 2, 3}}},
      {"seqlen_q=33 seqlen_k=65 heads=6 batch=3 hdim=8 bias=elementwise dbias=1",
       {{3, 6, 3}, {3, 6, 3}, {3, 6, 3}, {9, 6, 3}}},
      {"seqlen_q=33 seqlen_k=65 heads=6 batch=3 hdim=8 bias=elementwise dbias=1 bias_stride_q=0",
       {{3, 6, 3}, {3, 6, 3}, {3, 6, 3}, {3, 1, 1}}},
  };
  const Target gpu = load_target("sm90a");
  for (const Row& row : rows) {
    const Problem p = parse_problem(std::string("fmha kind=backward ") + row.fields);
    family().validate(p);
    const Launch launch = family().bind(family().general(p, gpu), p, gpu, FmhaOperands{});
    std::vector<std::array<unsigned, 3>> grids;
    for (const Step& step : launch.steps) grids.push_back(step.grid);
    EXPECT_EQ(grids, row.grids) << row.fields;
  }
}

TEST(FmhaBackwardKernels, AreListedWhereAWishAsksForThem) {
  const Target target = load_target("avx2");
  const auto count = [&](std::vector<Wish> wishes) {
    int found = 0;
    for (const KernelSpec& spec : family().enumerate(target, wishes)) found += goes_back(spec);
    return found;
  };
  EXPECT_EQ(count({}), 0);
  EXPECT_EQ(count({{"kind", "forward"}}), 0);
  EXPECT_GT(count({{"kind", "backward"}}), 100);
  EXPECT_GT(count({{"dbias", "true"}}), 10);
}

// Parts follow from the problem, give threads work, and have bounded sums.
TEST(FmhaBackwardKernels, PartsAreEnoughAndNotTooMany) {
  using device::backward_parts;
  EXPECT_EQ(backward_parts(1, 100, 64), 100);
  EXPECT_EQ(backward_parts(12, 6, 64), 6);
  EXPECT_EQ(backward_parts(12, 100, 64), 10);
  EXPECT_EQ(backward_parts(65, 100, 64), 1);
  EXPECT_EQ(backward_parts(0, 100, 64), 1);
  EXPECT_EQ(backward_parts(4, 0, 64), 1);
  EXPECT_EQ(backward_parts(4, 100, device::kBackwardFloats / 8), 2);
  EXPECT_EQ(backward_parts(4, 100, device::kBackwardFloats), 1);
}

// ---- the reference ----

double plain_dout(const PlainCase& c, const PlainRow& row, std::int64_t column) {
  const FmhaStrides& s = c.p.dout_strides;
  return c.load("dout", row.place(s, row.h, row.first_query + row.i) + column * s[3]);
}

double plain_dlse(const PlainCase& c, const PlainRow& row) {
  return c.p.dlse ? c.load("dlse", row.lse_place()) : 0;
}

// Computes the gradients of `c` plainly and stores them.
void store_plain(const PlainCase& forward, PlainCase& c) {
  PlainBackward plain(forward, c.problem);
  plain.compute([&](const PlainRow& row, std::int64_t d) { return plain_dout(c, row, d); },
                [&](const PlainRow& row) { return plain_dlse(c, row); });
  for (std::size_t t = 0; t < c.list.size(); ++t) {
    if (!c.list[t].is_written()) continue;
    const std::vector<long double>& values = plain.of(c.list[t].name);
    for (std::size_t i = 0; i < values.size(); ++i) {
      c.store(t, static_cast<std::int64_t>(i), static_cast<double>(values[i]));
    }
  }
}

TEST(FmhaBackwardReference, AgreesWithPlainLoops) {
  const std::uint64_t seed = std::random_device{}();
  RandomFmhas random(seed);
  for (int i = 0; i < 120; ++i) {
    const FmhaProblem p = random_backward(random, 24, 24);
    SCOPED_TRACE(fmt::format("seed {}: {}", seed, to_string(Problem(p))));
    family().validate(p);
    PlainCase forward(forward_of(p)), c(p);
    fill_both(random, forward, c);
    store_plain(forward, c);
    const Mismatch mismatch = c.verify();
    EXPECT_TRUE(mismatch.ok) << mismatch.message;
  }
}

// Kernels that are wrong in one place of the definition.
struct WrongGradient {
  const char* name;
  void (*make)(FmhaProblem&);
};
constexpr WrongGradient kWrongGradients[] = {
    {"window_left", [](FmhaProblem& p) { --p.window_left; }},
    {"no soft cap", [](FmhaProblem& p) { p.soft_cap = 0; }},
    {"scale", [](FmhaProblem& p) { p.scale *= 1.1F; }},
    {"no bias", [](FmhaProblem& p) { p.bias = FmhaBias::none; }},
    {"no dropout", [](FmhaProblem& p) { p.p_drop = 0; }},
    {"head of keys", [](FmhaProblem& p) { p.heads_kv = 1; }},
};

TEST(FmhaBackwardReference, NoticesWhatIsWrongInOnePlace) {
  const std::uint64_t seed = std::random_device{}();
  RandomFmhas random(seed);
  for (const DType in : kTypes) {
    for (const WrongGradient& wrong : kWrongGradients) {
      FmhaProblem p = fmha_problem(in, 2, 4, 2, 20, 30, 16);
      p.kind = FmhaKind::backward;
      p.mask = FmhaMask::bottom_right;
      p.window_left = 12, p.window_right = 3, p.sink = 2;
      p.bias = FmhaBias::elementwise, p.bias_strides[0] = 0, p.dbias = true;
      p.soft_cap = 2;
      p.p_drop = 0.3F;
      SCOPED_TRACE(fmt::format("seed {}: {} in {}", seed, wrong.name, to_string(in)));
      PlainCase forward(forward_of(p)), c(p);
      fill_both(random, forward, c);
      wrong.make(forward.p);
      forward.compute();
      store_plain(forward, c);
      EXPECT_GT(c.verify().bad, 20);
    }
  }
}

// A loss's differences, in long double, where one element of an input moves.
TEST(FmhaBackwardReference, AgreesWithDifferences) {
  const std::uint64_t seed = std::random_device{}();
  RandomFmhas random(seed);
  for (int i = 0; i < 30; ++i) {
    FmhaProblem p = random_backward(random, 10, 8);
    p.in = p.out = p.dtype_bias = DType::fp32;
    p.skip_q = 0;
    for (FmhaStrides* s : {&p.q_strides, &p.k_strides, &p.v_strides}) *s = kPackedTokens;
    SCOPED_TRACE(fmt::format("seed {}: {}", seed, to_string(Problem(p))));
    PlainCase forward(forward_of(p)), c(p);
    fill_both(random, forward, c);
    const auto dout = [&](const PlainRow& row, std::int64_t d) { return plain_dout(c, row, d); };
    PlainBackward plain(forward, p);
    plain.compute(dout, [&](const PlainRow& row) { return plain_dlse(c, row); });
    const auto loss = [&] {
      forward.compute();
      long double sum = 0;
      for_each_row(forward, [&](const PlainRow& row) {
        for (std::int64_t d = 0; d < forward.p.hdim_v; ++d) {
          sum += static_cast<long double>(dout(row, d)) * forward.load("out", row.out_place(d));
        }
        const double lse = forward.load("lse", row.lse_place());
        if (std::isfinite(lse)) sum += static_cast<long double>(plain_dlse(c, row)) * lse;
      });
      return static_cast<double>(sum);
    };
    for (const auto& [name, gradient] : {std::pair{"q", "dq"}, {"k", "dk"}, {"v", "dv"}}) {
      const std::size_t tensor = forward.index_of(name);
      if (forward.list[tensor].is_empty()) continue;
      const FmhaStrides& from = *name == 'q'   ? p.dq_strides
                                : *name == 'k' ? p.dk_strides
                                               : p.dv_strides;
      if (from != kPackedTokens && from[3] != kPacked) continue;  // whose places differ
      const std::int64_t at = random.integer(0, forward.list[tensor].elements() - 1);
      const double expected = static_cast<double>(plain.of(gradient)[static_cast<std::size_t>(at)]);
      const double x = forward.load(tensor, at), step = 1.0 / 64;
      forward.store(tensor, at, x + step);
      const double above = forward.load(tensor, at), more = loss();
      forward.store(tensor, at, x - step);
      const double below = forward.load(tensor, at), less = loss();
      forward.store(tensor, at, x);
      if (std::isnan(expected)) {  // of no sequence
        EXPECT_EQ(more, less) << name << " " << at;
        continue;
      }
      EXPECT_NEAR((more - less) / (above - below), expected, 0.01 * (std::abs(expected) + 1))
          << name << " " << at;
    }
    forward.compute();
  }
}

}  // namespace
}  // namespace tessera::fmha
