// Rows of other programs' files: flat ones, and the CK Tile Dispatcher's.
#include "tessera/measure/import_other_tools.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <random>

#include "broken_text.h"
#include "tessera/families/family.h"
#include "tessera/measure/sweep_exchange.h"
#include "tessera/targets/targets.h"

namespace tessera::measure {
namespace {

using testing_support::message_of;
using testing_support::with;

const ForeignRun kMi300 = {.device = "MI300X", .target = "gfx942", .op = "gemm"};

TEST(ForeignRows, TakesTimesAndRates) {
  const SweepData data =
      from_foreign(
          R"([{"M": 64, "N": 32, "K": 16, "kernel_name": "a", "latency_ms": 0.5, "more": null},
          {"m": 64, "n": 32, "k": 16, "batch": 2, "dtype": "BF16", "layout": "rrr",
           "kernel": "b", "tflops": 0.001}])",
          {.device = "GPU", .target = "gfx942", .op = "gemm"}, "f")
          .data;
  ASSERT_EQ(data.rows.size(), 2U);
  EXPECT_EQ(data.problems, (std::vector<std::string>{"gemm m=64 n=32 k=16",
                                                     "gemm m=64 n=32 k=16 batch=2 dtype=bf16 "
                                                     "layout=rrr"}));
  EXPECT_DOUBLE_EQ(data.rows[0].seconds, 0.5e-3);
  EXPECT_DOUBLE_EQ(data.rows[1].seconds, 2.0 * 64 * 32 * 16 * 2 / 1e9);
  EXPECT_EQ(data.runs[0].device, "GPU");
}

TEST(ForeignRows, WordsOfTheRunStandForThoseOfRows) {
  const std::string row = R"([{"m": 64, "n": 32, "k": 16, "kernel": "a", "latency_ms": 0.5}])";
  EXPECT_EQ(from_foreign(row, {.op = "GEMM", .fields = {{"dtype", "FP16"}, {"layout", "CRR"}}}, "f")
                .data.problems.at(0),
            "gemm m=64 n=32 k=16 dtype=fp16 layout=crr");
  EXPECT_EQ(message_of([&] { from_foreign(row, {}, "f"); }), "'f': object 0 has no 'op'");
  EXPECT_EQ(message_of([&] { from_foreign(row, {.op = "fmha"}, "f"); }),
            "'f': object 0 cannot be read: problem: fmha needs heads, as in 'fmha batch=2 heads=16 "
            "seqlen_q=512 seqlen_k=512 hdim=128 dtype=bf16'");
}

TEST(ForeignRows, HostileTextGetsASentence) {
  const auto words = [](const std::string& text) {
    return message_of([&] { from_foreign(text, {.op = "gemm"}, "f"); });
  };
  EXPECT_EQ(words("[{]").rfind("'f': line 1, column 3: ", 0), 0U);
  EXPECT_EQ(words("{}"),
            "'f': an array of objects is wanted, one for each measurement, or an object with "
            "'results', as the dispatcher's benchmarks write it");
  EXPECT_EQ(words("[3]"), "'f': object 0 is no object");
  EXPECT_EQ(words(R"([{"m": 1, "n": 2, "kernel": "x"}])"), "'f': object 0 has no 'k'");
  EXPECT_EQ(words(R"([{"m": 1, "n": 2, "k": -3, "kernel": "x"}])"),
            "'f': object 0 'k' must be a whole number from 1 to 2^40, got -3");
  EXPECT_EQ(words(R"([{"m": 1, "n": 2, "k": 99999999999999999999, "kernel": "x"}])"),
            "'f': object 0 'k' must be a whole number from 1 to 2^40, got 1e+20");
  EXPECT_EQ(words(R"([{"m": 1, "n": 2, "k": 3, "tflops": 1}])"), "'f': object 0 has no 'kernel'");
  EXPECT_EQ(words(R"([{"m": 1, "n": 2, "k": 3, "kernel": "x"}])"),
            "'f': object 0 has neither 'latency_ms' nor 'tflops'");
  EXPECT_EQ(words(R"([{"m": 1, "n": 2, "k": 3, "kernel": "x", "tflops": "fast"}])"),
            "'f': object 0 'tflops' must be a number above 0");
  EXPECT_EQ(words(R"([{"m": 1, "n": 2, "k": 3, "dtype": "fp64", "kernel": "x"}])")
                .rfind("'f': object 0 cannot be read: ", 0),
            0U);
  EXPECT_NE(words(std::string(100000, '[')), "no error");
}

// ---- the dispatcher's benchmark results ----

constexpr std::string_view kTheirs =
    "gemm_universal_fp16_rcr_mem_cshuffle_intrawave_False_False_False_False_128x128x64_2x2x1_"
    "32x32x8";
constexpr std::string_view kOurs =
    "gemm_fp16_rcr_mem_128x128x64_2x2x1_32x32x8_intrawave_storecshuffle_gfx942";

// One kernel on two sizes, the second of which failed.
std::string results() {
  return fmt::format(
      R"({{"metadata": {{"dtype": "fp16", "layout": "rcr", "num_kernels": 1}},
 "problem_sizes": [{{"m": 64, "n": 32, "k": 128}}],
 "results": [{{
  "kernel_config": {{"name": "{}", "pipeline": "mem", "epilogue": "cshuffle",
   "scheduler": "intrawave", "pad_m": false, "pad_n": false, "pad_k": false, "persistent": false,
   "tile_m": 128, "tile_n": 128, "tile_k": 64, "warp_m": 2, "warp_n": 2, "warp_k": 1,
   "warp_tile_m": 32, "warp_tile_n": 32, "warp_tile_k": 8}},
  "benchmarks": [
   {{"kernel_name": "x", "m": 64, "n": 32, "k": 128, "avg_time_ms": 0.5, "tflops": 1.0,
     "is_valid": true, "error": ""}},
   {{"kernel_name": "x", "m": 8, "n": 8, "k": 8, "avg_time_ms": 0.0, "tflops": 0.0,
     "is_valid": false, "error": "Arguments not supported"}}]}}]}})",
      kTheirs);
}

TEST(DataImport, NestedJson) {
  const Imported found = from_foreign(results(), kMi300, "f");
  const SweepData& data = found.data;
  EXPECT_EQ(data.kernels, std::vector<std::string>{std::string(kOurs)});
  EXPECT_EQ(data.problems, (std::vector<std::string>{"gemm m=64 n=32 k=128 dtype=fp16",
                                                     "gemm m=8 n=8 k=8 dtype=fp16"}));
  ASSERT_EQ(data.rows.size(), 2U);
  EXPECT_EQ(data.rows[0].outcome, Outcome::ok);
  EXPECT_DOUBLE_EQ(data.rows[0].seconds, 0.5e-3);
  EXPECT_EQ(data.rows[1].outcome, Outcome::failed);
  EXPECT_EQ(data.rows[1].note, "Arguments not supported");
  EXPECT_EQ(found.notes.failed, 1);
}

TEST(DataImport, PaddingFlagsOfMemKernelsAreMended) {
  EXPECT_EQ(from_foreign(results(), kMi300, "f").notes.mended, 1);
  EXPECT_EQ(from_foreign(results(), kMi300, "f").notes.unpadded, 0);
  std::string other = results();
  for (int i = 0; i < 2; ++i)
    other = with(other, i == 0 ? "_mem_" : "\"mem\"", i == 0 ? "_compv3_" : "\"compv3\"");
  EXPECT_EQ(from_foreign(other, kMi300, "f").notes.mended, 0);
  EXPECT_EQ(from_foreign(other, kMi300, "f").notes.unpadded, 1);
  std::string padded = results();
  for (const char* flag : {"pad_m", "pad_n", "pad_k"}) {
    padded = with(padded, fmt::format("\"{}\": false", flag), fmt::format("\"{}\": true", flag));
  }
  EXPECT_EQ(from_foreign(padded, kMi300, "f").notes.mended, 0);
}

TEST(DataImport, OfKernelsThatDifferInPaddingTheFasterCounts) {
  const auto row = [](const char* pad, double milliseconds) {
    return fmt::format(R"({{"m": 64, "n": 32, "k": 128, "latency_ms": {}, "kernel":
        "gemm_fp16_rcr_compv3_default_intrawave_{}_True_True_False_64x64x64_2x2x1_16x16x16"}})",
                       milliseconds, pad);
  };
  for (const bool first : {true, false}) {
    const std::string text = first ? "[" + row("True", 0.5) + "," + row("False", 0.25) + "]"
                                   : "[" + row("False", 0.25) + "," + row("True", 0.5) + "]";
    const Imported found = from_foreign(text, kMi300, "f");
    ASSERT_EQ(found.data.rows.size(), 1U);
    EXPECT_DOUBLE_EQ(found.data.rows[0].seconds, 0.25e-3);
    EXPECT_EQ(found.notes.merged, 1);
  }
}

TEST(DataImport, WrongResultsGetTheEntryAndWhatIsKnown) {
  const auto broken = [](const std::string& what, const std::string& instead) {
    return message_of([&] { from_foreign(with(results(), what, instead), kMi300, "f"); });
  };
  EXPECT_EQ(broken("\"results\"", "\"other\""),
            "'f': an array of objects is wanted, one for each measurement, or an object with "
            "'results', as the dispatcher's benchmarks write it");
  EXPECT_EQ(broken("\"metadata\"", "\"data\""), "'f' has no object 'metadata'");
  EXPECT_EQ(broken("\"kernel_config\"", "\"config\""),
            "'f': results[0] has no object "
            "'kernel_config'");
  EXPECT_EQ(broken("\"benchmarks\"", "\"runs\""), "'f': results[0] has no list 'benchmarks'");
  EXPECT_EQ(broken("\"m\": 64, \"n\": 32, \"k\": 128, \"avg", "\"n\": 32, \"k\": 128, \"avg"),
            "'f': results[0].benchmarks[0] has no 'm'");
  EXPECT_EQ(broken("\"mem\"", "\"wavelet\""),
            fmt::format("'f': results[0].benchmarks[0] has pipeline=wavelet, and its kernel's name "
                        "mem: 'gemm_universal_fp16_rcr_mem_cshuffle_intrawave_false_false_false_"
                        "false_128x128x64_2x2x1_32x32x8'"));
  EXPECT_EQ(message_of([&] {
              from_foreign(with(with(results(), "_mem_", "_"), "\"mem\"", "\"wavelet\""), kMi300,
                           "f");
            }),
            "'f': results[0].benchmarks[0] 'pipeline' must be one of compv3, compv4, compv5, mem, "
            "preshufflev1, preshufflev2, got 'wavelet'");
  EXPECT_EQ(broken("\"warp_m\": 2", "\"warp_m\": 8"),
            "'f': results[0].benchmarks[0] has warp_m=8, and its kernel's name 2: "
            "'gemm_universal_fp16_rcr_mem_cshuffle_intrawave_false_false_false_false_128x128x64_"
            "2x2x1_32x32x8'");
  EXPECT_EQ(broken("0.5", "\"soon\""),
            "'f': results[0].benchmarks[0] 'latency_ms' must be a number above 0");
}

// ---- logs ----

std::string log_text() {
  return fmt::format(
      "started at noon\n"
      "Shape 1: M=8 N=16 K=32 dtype=fp16 layout=rcr\n"
      "running {{3}} kernels\n"
      "{{\n \"name\": \"{}\",\n \"problem\": {{\"m\": 8, \"n\": 16, \"k\": 32, \"split_k\": 1,\n"
      "  \"dtype_a\": \"fp16\", \"dtype_b\": \"fp16\", \"dtype_c\": \"fp16\",\n"
      "  \"layout_a\": \"RowMajor\", \"layout_b\": \"ColumnMajor\", \"layout_c\": \"RowMajor\"}},\n"
      " \"perf_result\": {{\"latency(ms)\": 0.25, \"tflops(TFlops)\": 1, \"bandwidth(GB/s)\": 2}}\n"
      "}}\n"
      "Shape 2: M=64 N=16 K=32 dtype=fp16 layout=rcr\n"
      "{{\"name\": \"{}\", \"problem\": {{}}, \"perf_result\": {{\"latency(ms)\": 0.0}}}}\n",
      kTheirs, kTheirs);
}

TEST(DataImport, Logs) {
  const Imported found = from_foreign(log_text(), kMi300, "f");
  EXPECT_EQ(found.data.kernels, std::vector<std::string>{std::string(kOurs)});
  EXPECT_EQ(found.data.problems, (std::vector<std::string>{"gemm m=64 n=16 k=32 dtype=fp16",
                                                           "gemm m=8 n=16 k=32 dtype=fp16"}));
  ASSERT_EQ(found.data.rows.size(), 2U);
  EXPECT_EQ(found.data.rows[0].outcome, Outcome::failed);
  EXPECT_DOUBLE_EQ(found.data.rows[1].seconds, 0.25e-3);
}

TEST(DataImport, WrongLogsGetTheLine) {
  const auto broken = [](const std::string& what, const std::string& instead) {
    return message_of([&] { from_foreign(with(log_text(), what, instead), kMi300, "f"); });
  };
  EXPECT_EQ(broken("Shape 1:", "Form 1:"),
            "'f': line 4 begins a block before any line 'Shape N: M= N= K= dtype= layout='");
  EXPECT_EQ(broken("\"latency(ms)\": 0.0}}", "\"latency(ms)\": 0.0"),
            "'f': line 12 begins a block of JSON without an end");
  EXPECT_EQ(broken("\"problem\": {}", "\"problem\": 3"), "'f': line 12 has no object 'problem'");
  EXPECT_EQ(broken("\"perf_result\": {\"l", "\"perf\": {\"l"),
            "'f': line 4 has no object 'perf_result'");
  EXPECT_EQ(
      broken("128x128x64_2x2x1_32x32x8", "128x128x64_2x2x1_32x32x8_fast"),
      "'f': line 4 has a kernel whose name's part 'fast' is not known or comes twice: "
      "'gemm_universal_fp16_rcr_mem_cshuffle_intrawave_false_false_false_false_128x128x64_"
      "2x2x1_32x32x8_fast' (known: universal, rcr, rrr, crr, ccr, preshuffle, compv3, compv4, "
      "compv5, mem, preshufflev1, preshufflev2, intrawave, interwave, default, types, True, "
      "False, shapes such as 128x128x32)");
}

TEST(DataImport, CutOffTextNeverCrashes) {
  for (const std::string& whole : {results(), log_text()}) {
    std::size_t refused = 0;
    for (std::size_t length = 0; length < whole.size(); ++length) {
      const std::string text = whole.substr(0, length);
      refused += message_of([&] { from_foreign(text, kMi300, "f"); }) != "no error" ? 1 : 0;
    }
    EXPECT_GT(refused, whole.size() / 2);
  }
}

// ---- CSV ----

constexpr std::string_view kConvolutions =
    "kernel,problem_idx,N,C,K,G,Hi,Wi,Y,X,stride_h,stride_w,pad_h,pad_w,latency_ms,tflops,"
    "non_zero\n"
    "grouped_conv_bwd_data_bf16_nhwgc_2d_compv3_cshuffle_intrawave_128x128x64_2x2x1_32x32x16,0,8,"
    "64,128,2,28,28,3,3,1,1,1,1,0.5,1,100\n";

TEST(DataImport, CsvOfConvolutions) {
  const SweepData data = from_foreign(kConvolutions, kMi300, "f").data;
  EXPECT_EQ(data.kernels,
            std::vector<std::string>{"conv_backwarddata_bf16_nhwgc_2d_compv3_128x128x64_2x2x1_"
                                     "32x32x16_intrawave_storecshuffle_gfx942"});
  EXPECT_EQ(data.problems,
            std::vector<std::string>{"conv direction=backward_data n=8 c=64 k=128 g=2 h=28 w=28 "
                                     "y=3 x=3 pad_h=1 pad_w=1 dtype=bf16"});
  EXPECT_DOUBLE_EQ(data.rows.at(0).seconds, 0.5e-3);
}

// The short names of convolutions do not say waves and warp tiles: the caller does.
TEST(DataImport, ShortNamesOfConvolutionsNeedFields) {
  const std::string text = with(std::string(kConvolutions),
                                "bwd_data_bf16_nhwgc_2d_compv3_cshuffle_intrawave_128x128x64_"
                                "2x2x1_32x32x16",
                                "forward_bf16_2d_128x128x64_compv4_intrawave_dsb");
  EXPECT_EQ(message_of([&] { from_foreign(text, kMi300, "f"); }),
            "'f': row 1 does not say its kernel's 'warp_m', 'warp_n' and 'warp_k', nor does the "
            "kernel's name");
  ForeignRun run = kMi300;
  run.fields = {{"wave", "2x2x1"}, {"warp_tile", "32x32x16"}};
  EXPECT_EQ(from_foreign(text, run, "f").data.kernels,
            std::vector<std::string>{"conv_forward_bf16_nhwgc_2d_compv4_128x128x64_2x2x1_32x32x16_"
                                     "intrawave_storecshuffle_gfx942"});
  run.fields["wave"] = "4x4x1";
  run.fields["warp_tile"] = "32x64x16";
  EXPECT_EQ(message_of([&] { from_foreign(text, run, "f"); }),
            "'f': row 1 has the tile 128x128x64, which does not divide over waves 4x4x1 of warp "
            "tile 32x64x16");
  EXPECT_EQ(message_of([&] { from_foreign(with(text, "compv4", "mem"), kMi300, "f"); }),
            "'f': row 1 does not say its kernel's 'warp_m', 'warp_n' and 'warp_k', nor does the "
            "kernel's name");
  run.fields = {{"wave", "2x2x1"}, {"warp_tile", "32x32x16"}};
  EXPECT_EQ(message_of([&] { from_foreign(with(text, "compv4", "mem"), run, "f"); }),
            "'f': row 1 has a kernel with two buffers (dsb), which compv4 alone has, got mem");
}

// The columns of the dispatcher's training tables.
TEST(DataImport, CsvOfCanonicalColumns) {
  const std::string text =
      "op_type,dtype,layout,arch,kernel_name,m,n,k,split_k,measured_tflops,latency_ms,is_valid,"
      "tile_m,tile_n,tile_k,warp_m,warp_n,warp_k,warp_tile_m,warp_tile_n,warp_tile_k,pipeline,"
      "scheduler,epilogue,pad_m,pad_n,pad_k,persistent\n"
      "gemm_universal,fp8,rcr,gfx942,some_kernel,16,32,64,4,0.5,2,1,64,64,128,1,4,1,16,16,32,"
      "preshufflev2,default,cshuffle,0,0,0,1\n";
  const Imported found = from_foreign(text, kMi300, "f");
  EXPECT_EQ(found.data.kernels,
            std::vector<std::string>{"gemm_fp8_rcr_compv4_64x64x128_1x4x1_16x16x32_presh_"
                                     "storecshuffle_splitatomic4_persistent_gfx942"});
  EXPECT_EQ(found.data.problems,
            std::vector<std::string>{"gemm m=16 n=32 k=64 dtype=fp8 preshuffle=1"});
  EXPECT_EQ(found.notes.unpadded, 1);
  EXPECT_EQ(message_of([&] { from_foreign(with(text, "gfx942", "gfx950"), kMi300, "f"); }),
            "'f': row 1 was measured on gfx950, but the target given is gfx942");
}

TEST(DataImport, OtherTextGetsWhatIsKnown) {
  EXPECT_EQ(message_of([] { from_foreign("a,b\n1,2\n", kMi300, "f"); }),
            "'f': no measurements were found: known are JSON (an array of objects, or the "
            "dispatcher's results), logs with lines 'Shape N: M= N= K= dtype= layout=', and CSV "
            "with the columns kernel and latency_ms or tflops");
}

// ---- names ----

// Kernels that we write for CK Tile are read back from their names.
TEST(DataImport, NamesOfInstancesAreReadBack) {
  const std::uint64_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  const auto drawn = [&](const auto& list) { return list[random() % list.size()]; };
  for (const char* name : {"gfx90a", "gfx942", "gfx950"}) {
    const Target target = load_target(name);
    const ForeignRun run = {.device = "GPU", .target = name};
    for (const Op op : {Op::gemm, Op::conv}) {
      const InstanceSource& source = *find_instance_source(family_of(op), "cktile");
      const std::vector<Signature> signatures = source.signatures(target);
      int compared = 0;
      for (int i = 0; i < 3000 && compared < 100; ++i) {
        const Signature signature = drawn(signatures);
        const KernelSpec spec = {signature, drawn(source.algorithms(target, signature)), name};
        if (!source.is_legal(spec, target)) continue;
        const std::string theirs = source.emit(spec, target).name;
        // The dispatcher's data have no kernels that add or multiply D tensors.
        if (theirs.find("_multid_") != std::string::npos) continue;
        const std::string row = fmt::format(
            R"([{{"kernel": "{}", "latency_ms": 1, "m": 8, "n": 8, "k": 8, "c": 8, "w": 4{}{}}}])",
            theirs, theirs.find("_1d_") == std::string::npos ? R"(, "h": 4)" : "",
            theirs.find("_3d_") == std::string::npos ? "" : R"(, "d": 4)");
        EXPECT_EQ(from_foreign(row, run, "f").data.kernels.at(0), name_of(spec)) << theirs;
        ++compared;
      }
      EXPECT_EQ(compared, 100) << name;
    }
  }
}

TEST(DataImport, OwnNamesMustFitTheirRows) {
  const std::string row =
      R"([{"kernel": "gemm_fp16_rcr_mem_64x64x64_2x2x1_16x16x16_intrawave_gfx942", "m": 8, "n": 8,
           "k": 8, "latency_ms": 1}])";
  EXPECT_EQ(message_of([&] { from_foreign(row, kMi300, "f"); }),
            "'f': object 0 has the kernel gemm_fp16_rcr_mem_64x64x64_2x2x1_16x16x16_intrawave_"
            "gfx942, which does not compute 'gemm m=8 n=8 k=8'");
  ForeignRun run = kMi300;
  run.fields = {{"dtype", "fp16"}};
  EXPECT_EQ(from_foreign(row, run, "f").data.rows.size(), 1U);
  run.target = "gfx950";
  EXPECT_EQ(message_of([&] { from_foreign(row, run, "f"); }),
            "'f': object 0 was measured on gfx942, but the target given is gfx950");
}

TEST(DataImport, OnlyKernelsThatMatch) {
  ForeignRun run = kMi300;
  run.kernels = "*_compv3_*";
  EXPECT_TRUE(from_foreign(results(), run, "f").data.rows.empty());
  run.kernels = "*_mem_*";
  EXPECT_EQ(from_foreign(results(), run, "f").data.rows.size(), 2U);
}

}  // namespace
}  // namespace tessera::measure
