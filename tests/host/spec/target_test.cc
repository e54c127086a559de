#include "tessera/spec/target.h"

#include "host/spec/expect_error.h"
#include "tessera/spec/compile_flags_internal.h"

namespace tessera {
namespace {

// What a person writes for a machine of their own.
const std::string kRow = R"({
  "name": "mine",
  "backend": "cpu",
  "features": ["avx2"],
  "units": 4,
  "vector_bytes": 32,
  "vector_registers": 16,
  "clock_ghz": 3.5,
  "memory_gb_per_s": 40,
  "caches": [
    {"name": "l1", "bytes": 32768, "bytes_per_cycle": 64},
    {"name": "l2", "bytes": 1048576, "shared": true}
  ],
  "instructions": [
    {"name": "slow", "a": "fp32", "b": "fp32", "acc": "fp32", "shape": "1x8x1", "per_cycle": 1},
    {"name": "fma", "a": "fp32", "b": "fp32", "acc": "fp32", "shape": "1x8x1", "per_cycle": 2},
    {"name": "vnni", "a": "int8", "b": "int8", "acc": "int32", "shape": "1x8x4", "per_cycle": 1}
  ],
  "pipeline_limits": {"packb": {"max_stages": 2}},
  "spaces": {
    "gemm": {
      "pipelines": ["packb", "direct"],
      "tiles": ["120x240x256"],
      "waves": ["0x0x1"],
      "warp_tiles": {"fp32": ["6x16x1"]}
    }
  },
  "sources": {"caches.l1": "lscpu", "*": "measured on the machine"}
})";

std::string with(const std::string& from, const std::string& to) {
  std::string text = kRow;
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

TEST(Target, ReadsARowWrittenByHand) {
  const Target target = target_from_json(kRow);
  EXPECT_EQ(target.name, "mine");
  EXPECT_EQ(target.units, 4);
  EXPECT_EQ(target.warp_size, 1);
  EXPECT_EQ(target.clock_ghz, 3.5);
  ASSERT_EQ(target.caches.size(), 2U);
  EXPECT_EQ(target.caches[1], (CacheLevel{"l2", 1048576, 64, 8, 0, true}));
  EXPECT_EQ(target.pipeline_limits.at(Pipeline::packb).max_stages, 2);
  const AlgorithmSpace& space = target.spaces.at(Op::gemm);
  EXPECT_EQ(space.pipelines, (std::vector{Pipeline::packb, Pipeline::direct}));
  EXPECT_EQ(space.tiles, (std::vector{Shape3{120, 240, 256}}));
  EXPECT_EQ(space.warp_tiles.at(DType::fp32), (std::vector{Shape3{6, 16, 1}}));
  EXPECT_EQ(space.schedulers, std::vector{Scheduler::standard});
  EXPECT_EQ(space.stages, std::vector{1});
}

TEST(Target, KnowsTheFactsOfItsBackend) {
  Target target;
  target.backend = "cpu";
  EXPECT_FALSE(is_gpu(target));
  EXPECT_TRUE(counts_threads(target));
  EXPECT_FALSE(starts_cold(target));
  for (const char* gpu : {"cuda", "hip", "of a later version"}) {
    target.backend = gpu;
    EXPECT_TRUE(is_gpu(target)) << gpu;
    EXPECT_FALSE(counts_threads(target)) << gpu;
    EXPECT_TRUE(starts_cold(target)) << gpu;
  }
}

TEST(Target, JsonRoundTrips) {
  const Target target = target_from_json(kRow);
  EXPECT_EQ(target_from_json(to_json(target)), target);
}

TEST(Target, FindsTheFastestInstruction) {
  const Target target = target_from_json(kRow);
  const Instruction* fma = find_instruction(target, DType::fp32, DType::fp32, DType::fp32);
  ASSERT_NE(fma, nullptr);
  EXPECT_EQ(fma->name, "fma");
  EXPECT_EQ(find_instruction(target, DType::bf16, DType::bf16, DType::fp32), nullptr);
  EXPECT_EQ(find_instruction(target, DType::int8, DType::int8, DType::fp32), nullptr);
}

TEST(Target, RefusesAMalformedRowWithTheFieldsPath) {
  const std::pair<std::string, std::string> rows[] = {
      {with("1048576", "-4"), "caches[1].bytes must be a positive integer, got -4"},
      {with("1048576", "\"1M\""), "caches[1].bytes must be a positive integer, got \"1M\""},
      {with("\"units\": 4", "\"units\": 0"), "units must be a positive integer, got 0"},
      {with("\"units\": 4", "\"cores\": 4"),
       "cores is not a known field: known are name, backend, description, features, "
       "compile_flags, units, warp_size, vector_bytes, vector_registers, registers_per_thread, "
       "registers_per_unit, max_threads_per_block, shared_memory_bytes, shared_bytes_per_cycle, "
       "xcds, fp8_encoding, unmeasured, clock_ghz, memory_gb_per_s, launch_us, caches, "
       "instructions, pipeline_limits, spaces, cktile_spaces, sources"},
      {with("\"units\": 4", "\"unit\": 4"), "unit is not a known field, did you mean 'units'?"},
      {with("\"units\": 4", "\"units\": null"), "units must be a positive integer, got null"},
      {with("\"mine\"", "\"my machine\""),
       "name must be lower-case letters and digits, got \"my machine\""},
      {with("\"mine\"", "\"\""), "name must be lower-case letters and digits, got \"\""},
      {with("\"cpu\"", "\"cpus\""),
       "backend must be one of cpu, cuda, hip, got \"cpus\", did you mean 'cpu'?"},
      {with("\"cpu\"", "\"cuda\""), "warp_size is missing: a cuda target needs it"},
      {with("\"vector_bytes\": 32", "\"vector_bytes\": 0"),
       "vector_bytes must be a positive integer, got 0"},
      {with("\"vector_bytes\": 32,", ""), "vector_bytes is missing: a cpu target needs it"},
      {with("\"clock_ghz\": 3.5,", ""), "clock_ghz is missing"},
      {with("3.5", "0"), "clock_ghz must be a positive number, got 0"},
      {with("3.5", "\"fast\""), "clock_ghz must be a positive number, got \"fast\""},
      {with("\"1x8x1\"", "\"1x8\""),
       "instructions[0].shape must be a shape such as \"128x256x64\", got \"1x8\""},
      {with("\"a\": \"fp32\"", "\"a\": \"f32\""),
       "instructions[0].a must be one of fp32, tf32, fp16, bf16, fp8, bf8, int8, int32, got "
       "\"f32\", did you mean 'fp32'?"},
      {with("\"per_cycle\": 1}", "\"per_cycle\": -1}"),
       "instructions[0].per_cycle must be a positive number, got -1"},
      {with("{\"packb\":", "{\"pakb\":"),
       "pipeline_limits.pakb must be one of packab, packb, packa, direct, stream, tmaws, cpasync, "
       "compv3, compv4, compv5, mem, rows, depthwise, flash, splitkv, async, qr, qrasync, "
       "small, amx, grouped, got \"pakb\", did you mean 'packb'?"},
      {with("\"max_stages\": 2", "\"max_stages\": 2, \"min_stages\": 3"),
       "pipeline_limits.packb.max_stages must be at least min_stages, 3, got 2"},
      {with("\"max_stages\": 2", "\"shared_memory_fraction\": 1.5"),
       "pipeline_limits.packb.shared_memory_fraction must be at most 1, got 1.5"},
      {with("\"6x16x1\"", "\"6x16x\""),
       "spaces.gemm.warp_tiles.fp32[0] must be a shape such as \"128x256x64\", got \"6x16x\""},
      {with("\"waves\": [\"0x0x1\"],", ""), "spaces.gemm.waves is missing"},
      {with("[\"avx2\"]", "\"avx2\""), "features must be a list, got \"avx2\""},
      {with("\"lscpu\", \"*\"", "\"lscpu\", \"vector_bytes\""),
       "units has no source: add \"units\" to sources, saying where it comes from, or \"*\" for "
       "all "
       "that have none"},
      {with("caches.l1", "caches.l3"),
       "sources[\"caches.l3\"] names no number of this row, did you mean 'caches.l1'?"},
      {with("\"lscpu\"", "\"\""),
       "sources[\"caches.l1\"] is empty: say where the number comes from"},
      {with("\"units\": 4", "\"units\": 4, \"units\": 5"),
       "the key \"units\" is given twice in one object"},
      {with("\"units\": 4,", "\"units\": 4"),
       "line 6, column 16: syntax error while parsing object - unexpected string literal; expected "
       "'}'"},
      {"[1, 2]", "the document must be an object, got [1,2]"},
      {with("3.5", "1e999"), "a number is too large for any field"},
  };
  for (const auto& [row, message] : rows) {
    expect_error(ErrorCode::parse_error, "target row: " + message,
                 [text = row] { target_from_json(text); });
  }
}

TEST(Target, RefusesACompileFlagThatIsNotOfTheList) {
  const std::string flags = R"("compile_flags": ["-mavx2", "FLAG"], "units")";
  const auto row = [&](const std::string& flag) {
    std::string text = with("\"units\"", flags);
    return text.replace(text.find("FLAG"), 4, flag);
  };
  EXPECT_EQ(target_from_json(row("-O3")).compile_flags,
            (std::vector<std::string>{"-mavx2", "-O3"}));
  expect_error(ErrorCode::parse_error,
               "target row: compile_flags[1] must be " + compile_flag_damage("cpu", "-wrapper") +
                   ", got \"-wrapper\"",
               [&] { target_from_json(row("-wrapper")); });
}

// Every number of the row needs its source: without "*", each field that has none is named.
TEST(Target, NamesTheEntryWithoutASource) {
  std::string row = kRow;
  const std::string all = "\"*\": \"measured on the machine\"";
  const std::string each =
      R"("units": "x", "vector_bytes": "x", "vector_registers": "x", "clock_ghz": "x",
         "memory_gb_per_s": "x")";
  row.replace(row.find(all), all.size(), each);
  expect_error(ErrorCode::parse_error,
               "target row: caches.l2 has no source: add \"caches.l2\" to sources, saying where it "
               "comes from, or \"*\" for all that have none",
               [&] { target_from_json(row); });
}

}  // namespace
}  // namespace tessera
