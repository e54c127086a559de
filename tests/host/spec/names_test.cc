#include <set>
#include <unordered_map>

#include "host/spec/expect_error.h"
#include "host/spec/random_specs.h"
#include "tessera/spec/fields_internal.h"
#include "tessera/spec/kernel_spec.h"

namespace tessera {
namespace {

// Names are a public format: these may gain companions, but never change.
TEST(KernelName, IsParsedAndSpelledAlike) {
  const char* names[] = {
      "gemm_fp32_rrr_packb_240x480x256_1x1x1_12x32x1_avx512",
      "gemm_bf16_rcr_tmaws_128x256x64_2x1x1_64x256x16_s4_c2x1_sm90a",
      "gemm_bf16_rcr_packab_240x480x256_0x0x1_12x32x2_presh_avx512",
      "gemm_fp8_bf8_ccr_packab_240x480x256_0x0x1_12x32x1_outfp32_dfp16_avx2",
      "gemm_int8_rcr_packab_240x480x256_1x1x0_12x32x4_accfp32_outint8_bias_avx512",
      "gemm_fp16_crr_stream_8x48x512_0x0x1_8x48x1_presh_bias_gelutanh_multidadd3_generic",
      "gemm_fp16_rcr_mem_8x8x4_2x2x1_4x4x4_passthrough_relu_storecshuffle_splitatomic4_s2_gfx90a",
      "gemm_fp16_rcr_compv3_8x8x4_2x2x1_4x4x4_intrawave_s2_c1x2_persistent_swap_gfx942",
  };
  for (const char* name : names) EXPECT_EQ(name_of(parse_name(name)), name);
}

TEST(KernelName, EveryPartSetsItsField) {
  const KernelSpec spec = parse_name(
      "gemm_fp16_rcr_compv3_256x128x32_2x2x1_32x32x16_outfp32_bias_multidadd2_pingpong_storetma_"
      "splitordered4_slices2_streamk_s3_c1x2_persistent_swap_repack_pointwise_gfx942");
  const KernelSpec expected = {GemmSignature{.a = DType::fp16,
                                             .b = DType::fp16,
                                             .acc = DType::fp32,
                                             .out = DType::fp32,
                                             .d = DType::fp32,
                                             .layout = GemmLayout::rcr,
                                             .epilogue = parse_epilogue("bias+multi_d_add2")},
                               {.pipeline = Pipeline::compv3,
                                .tile = {256, 128, 32},
                                .wave = {2, 2, 1},
                                .warp_tile = {32, 32, 16},
                                .scheduler = Scheduler::pingpong,
                                .store = Store::tma,
                                .split_k = SplitK::ordered,
                                .splits = 4,
                                .slices = 2,
                                .streamk = true,
                                .stages = 3,
                                .cluster_m = 1,
                                .cluster_n = 2,
                                .persistent = true,
                                .swap_ab = true,
                                .repack = true,
                                .pointwise = true},
                               "gfx942"};
  EXPECT_EQ(spec, expected);
  EXPECT_EQ(op_of(spec), Op::gemm);
}

TEST(KernelName, RandomSpecsRoundTripAndAreUnique) {
  const unsigned seed = fresh_seed();
  SCOPED_TRACE(seed);
  RandomSpecs random(seed);
  std::unordered_map<std::string, KernelSpec> seen;
  for (int i = 0; i < 100000; ++i) {
    const KernelSpec spec = random.spec();
    const std::string name = name_of(spec);
    ASSERT_EQ(parse_name(name), spec) << name;
    ASSERT_EQ(name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_"), std::string::npos);
    const auto [other, inserted] = seen.emplace(name, spec);
    ASSERT_TRUE(inserted || other->second == spec) << name;
  }
  EXPECT_GT(seen.size(), 90000U) << "the generator repeats itself";
}

// Two specs that differ in one field have different names, whatever the field.
TEST(KernelName, EveryAlgorithmFieldShows) {
  const KernelSpec base = parse_name("gemm_fp32_rrr_packb_240x480x256_1x1x1_12x32x1_avx512");
  std::vector<KernelSpec> specs(17, base);
  std::get<GemmSignature>(specs[1].signature).preshuffled_b = true;
  specs[2].algorithm.splits = 2;
  specs[3].algorithm.split_k = SplitK::atomic;
  specs[4].algorithm.stages = 0;
  specs[5].algorithm.cluster_m = 0;
  specs[6].algorithm.cluster_n = 2;
  specs[7].algorithm.persistent = true;
  specs[8].algorithm.swap_ab = true;
  specs[9].algorithm.scheduler = Scheduler::interwave;
  specs[10].algorithm.store = Store::direct;
  specs[11].target = "avx2";
  specs[12].algorithm.wave.k = 0;
  std::get<GemmSignature>(specs[13].signature).acc = DType::int32;
  specs[14].algorithm.slices = 4;
  specs[15].algorithm.repack = true;
  specs[16].algorithm.pointwise = true;
  std::unordered_map<std::string, KernelSpec> names;
  for (const KernelSpec& spec : specs) {
    EXPECT_EQ(parse_name(name_of(spec)), spec) << name_of(spec);
    names.emplace(name_of(spec), spec);
  }
  EXPECT_EQ(names.size(), specs.size());
}

TEST(KernelName, RefusesWithTheWordAndItsPlace) {
  const std::string shapes = "240x480x256_1x1x1_12x32x1";
  const std::pair<std::string, std::string> rows[] = {
      {"", "expected an operation (gemm, norm, conv, fmha, route) as word 1, got ''"},
      {"gem_fp32", "expected an operation as word 1, got 'gem', did you mean 'gemm'?"},
      {"gemm",
       "expected a dtype (fp32, tf32, fp16, bf16, fp8, bf8, int8, int32) as word 2, but the name "
       "ends there"},
      {"gemm_half_rrr",
       "expected a dtype (fp32, tf32, fp16, bf16, fp8, bf8, int8, int32) as word 2, got 'half'"},
      {"gemm_f32_rrr", "expected a dtype as word 2, got 'f32', did you mean 'fp32'?"},
      {"gemm_fp32_rxr_packb",
       "expected the dtype of B or a layout as word 3, got 'rxr', did you mean 'rcr'?"},
      {"gemm_fp32_rrr_pckb_" + shapes + "_avx512",
       "expected a pipeline as word 4, got 'pckb', did you mean 'packb'?"},
      {"gemm_fp32_rrr_packb_240x480_1x1x1_12x32x1_avx512",
       "expected a tile such as 240x480x256 as word 5, got '240x480'"},
      {"gemm_fp32_rrr_packb_240x480x256_1x1_12x32x1_avx512",
       "expected a wave such as 2x1x1 as word 6, got '1x1'"},
      {"gemm_fp32_rrr_packb_240x480x99999999999_1x1x1_12x32x1_avx512",
       "expected a tile such as 240x480x256 as word 5, got '240x480x99999999999'"},
      {"gemm_fp32_rrr_packb_240x480x256_1x1x1_12x32_avx512",
       "expected a warp tile such as 12x32x1 as word 7, got '12x32'"},
      {"gemm_fp32_rrr_packb_" + shapes, "expected a target as word 8, but the name ends there"},
      {"gemm_fp32_rrr_packb_" + shapes + "_", "expected a target as word 8, got ''"},
      {"gemm_fp32_rrr_packb_" + shapes + "_AVX512", "expected a target as word 8, got 'AVX512'"},
      {"gemm_fp32_rrr_packb_" + shapes + "_rela_avx512",
       "expected an option or the target as word 8, got 'rela', did you mean 'relu'?"},
      {"gemm_fp32_rrr_packb_" + shapes + "_7_avx512",
       "expected an option or the target as word 8, got '7'"},
      {"gemm_fp32_rrr_packb_" + shapes + "_persistent_s4_avx512",
       "options have one order and defaults are left out, the name is 'gemm_fp32_rrr_packb_" +
           shapes + "_s4_persistent_avx512'"},
      {"gemm_fp32_fp32_rrr_packb_" + shapes + "_s1_outfp32_avx512",
       "options have one order and defaults are left out, the name is 'gemm_fp32_rrr_packb_" +
           shapes + "_avx512'"},
      {"gemm_fp32_rrr_packb_0240x480x256_1x1x1_12x32x1_avx512",
       "options have one order and defaults are left out, the name is 'gemm_fp32_rrr_packb_" +
           shapes + "_avx512'"},
      {"gemm_fp32_rrr_packb_" + shapes + "_multidadd_avx512",
       "options have one order and defaults are left out, the name is 'gemm_fp32_rrr_packb_" +
           shapes + "_multidadd2_avx512'"},
      {"gemm_fp32_rrr_packb_" + shapes + "_multidadd9_avx512",
       "epilogue: at most 4 D tensors, got 9"},
  };
  for (const auto& [name, message] : rows) {
    expect_error(ErrorCode::parse_error, "kernel name '" + name + "': " + message,
                 [text = name] { parse_name(text); });
  }
}

TEST(KernelName, RefusesSpecsThatHaveNone) {
  KernelSpec spec = parse_name("gemm_fp32_rrr_packb_240x480x256_1x1x1_12x32x1_avx512");
  spec.target = "AVX_512";
  expect_error(ErrorCode::invalid_argument,
               "kernel name: target must be lower-case letters and digits, got 'AVX_512'",
               [&] { name_of(spec); });
  spec.target = "avx512";
  spec.algorithm.tile.m = -1;
  expect_error(ErrorCode::invalid_argument, "kernel name: numbers must not be negative, got -1",
               [&] { name_of(spec); });
  spec.algorithm.tile.m = 1;
  std::get<GemmSignature>(spec.signature).epilogue.num_d = 2;
  expect_error(ErrorCode::invalid_argument, "epilogue: its steps take 0 D tensors, but num_d is 2",
               [&] { name_of(spec); });
}

TEST(KernelSpecJson, RandomSpecsRoundTrip) {
  const unsigned seed = fresh_seed();
  SCOPED_TRACE(seed);
  RandomSpecs random(seed);
  for (int i = 0; i < 5000; ++i) {
    const KernelSpec spec = random.spec();
    ASSERT_EQ(kernel_spec_from_json(to_json(spec)), spec) << to_json(spec);
  }
}

TEST(KernelSpecJson, IsThisText) {
  const KernelSpec spec = parse_name("gemm_bf16_rcr_packb_240x480x256_1x1x0_12x32x2_bias_avx512");
  EXPECT_EQ(to_json(spec), R"({
  "name": "gemm_bf16_rcr_packb_240x480x256_1x1x0_12x32x2_bias_avx512",
  "op": "gemm",
  "signature": {
    "a": "bf16",
    "b": "bf16",
    "acc": "fp32",
    "out": "bf16",
    "d": "bf16",
    "layout": "rcr",
    "epilogue": "bias",
    "preshuffle": false,
    "grouping": "none",
    "scale_a": "none",
    "scale_b": "none",
    "scale_type": "fp32",
    "gate": "none",
    "gate_interleaved": false,
    "indexing": "none",
    "quant": "none",
    "arranged": false
  },
  "algorithm": {
    "pipeline": "packb",
    "tile": "240x480x256",
    "wave": "1x1x0",
    "warp_tile": "12x32x2",
    "scheduler": "standard",
    "store": "standard",
    "split_k": "none",
    "splits": 1,
    "slices": 1,
    "streamk": false,
    "stages": 1,
    "cluster_m": 1,
    "cluster_n": 1,
    "persistent": false,
    "swap_ab": false,
    "repack": false,
    "pointwise": false
  },
  "target": "avx512"
})");
}

TEST(KernelSpecJson, ByHandMayLeaveDefaultsOut) {
  const char* text = R"({"op": "gemm", "signature": {"a": "int8", "layout": "rcr"},
      "algorithm": {"pipeline": "packab", "tile": "240x480x256", "wave": "0x0x1",
                    "warp_tile": "12x32x4"}, "target": "avx512"})";
  EXPECT_EQ(name_of(kernel_spec_from_json(text)),
            "gemm_int8_rcr_packab_240x480x256_0x0x1_12x32x4_avx512");
}

TEST(KernelSpecJson, RefusesWithTheFieldsPath) {
  const std::string good = to_json(parse_name("gemm_fp32_rrr_packb_8x8x8_1x1x1_8x8x1_avx512"));
  struct Row {
    const char* from;
    const char* to;
    const char* message;
  };
  const Row rows[] = {
      {"\"stages\": 1", "\"stages\": 0", "algorithm.stages must be a positive integer, got 0"},
      {"\"stages\": 1", "\"stages\": 4294967297",
       "algorithm.stages must be a positive integer of at most 2147483647, got 4294967297"},
      {"\"stages\": 1", "\"stages\": -4294967297",
       "algorithm.stages must be a positive integer of at most 2147483647, got -4294967297"},
      {"\"stages\": 1", "\"stagse\": 1",
       "algorithm.stagse is not a known field, did you mean 'stages'?"},
      {"\"stages\": 1", "\"stages\": 1.5", "algorithm.stages must be a positive integer, got 1.5"},
      {"\"tile\": \"8x8x8\"", "\"tile\": [8, 8, 8]",
       "algorithm.tile must be a shape such as \"128x256x64\", got [8,8,8]"},
      {"\"tile\": \"8x8x8\",", "", "algorithm.tile is missing"},
      {"\"persistent\": false", "\"persistent\": 0",
       "algorithm.persistent must be true or false, got 0"},
      {"\"packb\"", "\"packd\"",
       "algorithm.pipeline must be one of packab, packb, packa, direct, stream, tmaws, cpasync, "
       "compv3, compv4, compv5, mem, rows, depthwise, flash, splitkv, async, qr, qrasync, "
       "small, amx, grouped, got \"packd\", did you mean 'packb'?"},
      {"\"epilogue\": \"none\"", "\"epilogue\": \"relo\"",
       "signature.epilogue: unknown epilogue op 'relo', did you mean 'relu'?"},
      {"\"target\": \"avx512\"", "\"target\": 512", "target must be a string, got 512"},
      {"\"target\": \"avx512\"", "\"target\": \"my avx\"",
       "kernel name: target must be lower-case letters and digits, got 'my avx'"},
      {"8x1_avx512\"", "8x1_avx2\"",
       "name must be gemm_fp32_rrr_packb_8x8x8_1x1x1_8x8x1_avx512, the name of the fields beside "
       "it, got \"gemm_fp32_rrr_packb_8x8x8_1x1x1_8x8x1_avx2\""},
      {"\"op\": \"gemm\",", "", "op is missing"},
  };
  for (const Row& row : rows) {
    std::string text = good;
    const std::size_t at = text.find(row.from);
    ASSERT_NE(at, std::string::npos) << row.from;
    text.replace(at, std::string_view(row.from).size(), row.to);
    expect_error(ErrorCode::parse_error, std::string("kernel spec: ") + row.message,
                 [&] { kernel_spec_from_json(text); });
  }
}

TEST(KernelSpec, SignatureOfAProblem) {
  const auto problem = parse_problem(
      "gemm m=1 n=2 k=3 dtype=fp8,bf8 out=bf16 layout=ccr epilogue=bias+relu preshuffle=1");
  const Signature expected = GemmSignature{.a = DType::fp8,
                                           .b = DType::bf8,
                                           .acc = DType::fp32,
                                           .out = DType::bf16,
                                           .d = DType::bf16,
                                           .layout = GemmLayout::ccr,
                                           .epilogue = parse_epilogue("bias+relu"),
                                           .preshuffled_b = true};
  EXPECT_EQ(signature_of(problem), expected);
}

// A field of the problem that is not in the signature is one that changes no kernel's code: the
// arguments of a launch carry it. Two kernels would share a name else.
TEST(KernelSpec, SignatureHoldsEveryFieldThatALaunchDoesNotCarry) {
  const std::set<std::string> carried = {"m",
                                         "n",
                                         "k",
                                         "batch",
                                         "ld_a",
                                         "ld_b",
                                         "ld_c",
                                         "ld_out",
                                         "ld_d0",
                                         "ld_d1",
                                         "ld_d2",
                                         "ld_d3",
                                         "alpha",
                                         "beta",
                                         "batch_stride_a",
                                         "clamp_lo",
                                         "clamp_hi",
                                         "batch_stride_b",
                                         "batch_stride_c",
                                         "batch_stride_out",
                                         "batch_stride_d0",
                                         "batch_stride_d1",
                                         "batch_stride_d2",
                                         "batch_stride_d3",
                                         "pointer_arrays",
                                         "groups",
                                         "check_groups",
                                         "group_strides",
                                         "group_int64",
                                         "scale_quads",
                                         "stride_scale_a_m",
                                         "stride_scale_a_k",
                                         "stride_scale_b_n",
                                         "stride_scale_b_k",
                                         "batch_stride_scale_a",
                                         "batch_stride_scale_b",
                                         "index_room",
                                         "scales_by_column",
                                         "dims",
                                         "merge_a",
                                         "merge_b",
                                         "sources_a",
                                         "sources_b",
                                         "ld_a1",
                                         "ld_a2",
                                         "ld_a3",
                                         "ld_b1",
                                         "ld_b2",
                                         "ld_b3",
                                         "batch_stride_a1",
                                         "batch_stride_a2",
                                         "batch_stride_a3",
                                         "batch_stride_b1",
                                         "batch_stride_b2",
                                         "batch_stride_b3"};
  std::set<std::string> in_signature;
  const GemmSignature signature;
  for_each_field(signature, [&](const std::string& key, const auto&, const auto&, const Rule&) {
    in_signature.insert(key);
  });
  const GemmProblem problem;
  for_each_field(problem, [&](const std::string& key, const auto&, const auto&, const Rule&) {
    EXPECT_NE(in_signature.contains(key), carried.contains(key)) << key;
    in_signature.erase(key);
  });
  EXPECT_EQ(in_signature, std::set<std::string>({"arranged"}));  // follows from dims and merges
}

TEST(KernelSpec, OperationsHaveTheReplacedSystemsWordsToo) {
  EXPECT_EQ(parse_op("gemm_universal"), Op::gemm);
  EXPECT_EQ(parse_op("grouped_conv"), Op::conv);
  EXPECT_EQ(parse_op("attention"), Op::fmha);
  EXPECT_EQ(to_string(parse_problem("grouped_conv direction=bwdd n=1 c=2 k=3 w=4 layout=nwgc")),
            "conv direction=backward_data n=1 c=2 k=3 w=4");
  EXPECT_EQ(to_string(parse_problem("attention heads=2 seqlen_q=3 seqlen_k=4 hdim=5")),
            "fmha heads=2 seqlen_q=3 seqlen_k=4 hdim=5");
  EXPECT_EQ(to_string(parse_problem("gemm_universal m=1 n=2 k=3")), "gemm m=1 n=2 k=3");
  EXPECT_EQ(problem_from_json(R"({"op": "gemm_universal", "m": 1, "n": 2, "k": 3})"),
            parse_problem("gemm m=1 n=2 k=3"));
}

}  // namespace
}  // namespace tessera
