#include "tessera/targets/targets.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "tessera/base/embedded.h"
#include "tessera/base/error.h"
#include "tessera/base/files.h"

namespace tessera {
namespace {

std::string message_of(const std::function<void()>& work, ErrorCode code) {
  try {
    work();
  } catch (const Error& error) {
    EXPECT_EQ(to_string(error.code()), to_string(code)) << error.what();
    return error.what();
  }
  return "no error";
}

// A folder that is gone at the end of the test.
struct TemporaryFolder {
  fs::path path = make_unique_folder(fs::temp_directory_path(), "tessera-targets-");
  ~TemporaryFolder() { remove_tree(path); }
};

std::vector<Target> all_rows() {
  std::vector<Target> rows;
  for (const std::string& name : target_names()) rows.push_back(load_target(name));
  return rows;
}

TEST(Targets, ShipsTheseRows) {
  const std::vector<std::string> expected = {"avx512",  "avx2",   "generic", "sm90a", "gfx1100",
                                             "gfx1201", "gfx90a", "gfx942",  "gfx950"};
  EXPECT_EQ(target_names(), expected);
  for (const Target& row : all_rows()) EXPECT_FALSE(row.description.empty()) << row.name;
}

TEST(Targets, NameIsTheFileName) {
  for (const EmbeddedFile& file : target_rows()) {
    EXPECT_EQ(target_from_json(file.content).name + ".json", file.path);
  }
}

TEST(Targets, JsonRoundTrips) {
  for (const Target& row : all_rows()) {
    EXPECT_EQ(target_from_json(to_json(row)), row) << row.name;
  }
}

// Field, cache level or instruction -> the key its source stands under.
std::vector<std::string> stated_numbers(const Target& row) {
  std::vector<std::string> keys = {"units", "clock_ghz", "memory_gb_per_s", "launch_us", "caches"};
  const auto add_if = [&keys](bool stated, const char* key) {
    if (stated) keys.emplace_back(key);
  };
  add_if(!row.pipeline_limits.empty(), "pipeline_limits");
  add_if(row.warp_size != 1, "warp_size");
  add_if(row.vector_bytes != 0, "vector_bytes");
  add_if(row.vector_registers != 0, "vector_registers");
  add_if(row.registers_per_thread != 0, "registers_per_thread");
  add_if(row.registers_per_unit != 0, "registers_per_unit");
  add_if(row.max_threads_per_block != 1, "max_threads_per_block");
  add_if(row.shared_memory_bytes != 0, "shared_memory_bytes");
  add_if(row.shared_bytes_per_cycle != 0, "shared_bytes_per_cycle");
  add_if(row.xcds != 1, "xcds");
  add_if(row.fp8_encoding != Fp8Encoding::ocp, "fp8_encoding");
  for (const Instruction& i : row.instructions) keys.push_back("instructions." + i.name);
  for (const auto& [op, space] : row.spaces) {
    keys.push_back(fmt::format("spaces.{}", to_string(op)));
  }
  for (const auto& [op, space] : row.cktile_spaces) {
    keys.push_back(fmt::format("cktile_spaces.{}", to_string(op)));
  }
  return keys;
}

TEST(Targets, EveryNumberHasASourceAndEverySourceANumber) {
  for (const Target& row : all_rows()) {
    std::set<std::string> stated;
    for (const std::string& key : stated_numbers(row)) stated.insert(key);
    std::set<std::string> sourced;
    for (const auto& [key, source] : row.sources) {
      EXPECT_GE(source.size(), 10U) << row.name << ": " << key;
      sourced.insert(key);
    }
    EXPECT_EQ(stated, sourced) << row.name;
  }
}

TEST(Targets, NumbersAreStated) {
  for (const Target& row : all_rows()) {
    SCOPED_TRACE(row.name);
    EXPECT_GT(row.units, 0);
    EXPECT_GT(row.clock_ghz, 0);
    EXPECT_GT(row.memory_gb_per_s, 0);
    EXPECT_FALSE(row.caches.empty());
    EXPECT_FALSE(row.instructions.empty());
    for (const Instruction& i : row.instructions) EXPECT_GT(i.per_cycle, 0) << i.name;
    EXPECT_TRUE(std::is_sorted(row.caches.begin(), row.caches.end(),
                               [](const CacheLevel& a, const CacheLevel& b) {
                                 return a.bytes < b.bytes && a.name < b.name;
                               }) ||
                row.backend == "hip");  // the vector L1 of one CU beside a smaller L2 slice
    ASSERT_TRUE(row.spaces.contains(Op::gemm) || row.cktile_spaces.contains(Op::fmha));
    if (!row.spaces.contains(Op::gemm)) continue;
    for (const Pipeline pipeline : row.spaces.at(Op::gemm).pipelines) {
      EXPECT_EQ(row.pipeline_limits.count(pipeline), 1U) << to_string(pipeline);
    }
  }
}

TEST(Targets, ListsHoldNoValueTwice) {
  for (const Target& row : all_rows()) {
    for (const auto& [op, space] : row.spaces) {
      SCOPED_TRACE(row.name);
      EXPECT_EQ(std::set<Shape3>(space.tiles.begin(), space.tiles.end()).size(),
                space.tiles.size());
      EXPECT_EQ(std::set<Shape3>(space.waves.begin(), space.waves.end()).size(),
                space.waves.size());
      for (const auto& [dtype, shapes] : space.warp_tiles) {
        EXPECT_EQ(std::set<Shape3>(shapes.begin(), shapes.end()).size(), shapes.size())
            << to_string(dtype);
      }
    }
  }
}

// The product of tiles whose sums are half as high and half as wide as the block; null if none is.
const Instruction* tile_product(const Target& row, const Shape3& block) {
  for (const Instruction& i : row.instructions) {
    const bool is_it = 2 * i.shape.m == block.m && 2 * i.shape.n == block.n;
    if (i.shape.m > 1 && is_it && i.shape.k == block.k) return &i;
  }
  return nullptr;
}

// Register blocks fit the register file, and each one divides some tile. Blocks of tiles have
// registers of their own.
TEST(Targets, CpuRegisterBlocksFit) {
  for (const Target& row : all_rows()) {
    if (row.backend != "cpu") continue;
    const int lanes = row.vector_bytes / 4;
    const AlgorithmSpace& space = row.spaces.at(Op::gemm);
    for (const auto& [dtype, shapes] : space.warp_tiles) {
      for (const Shape3& block : shapes) {
        SCOPED_TRACE(fmt::format("{} {} {}", row.name, to_string(dtype), to_string(block)));
        EXPECT_EQ(block.n % lanes, 0);
        if (tile_product(row, block) == nullptr) {
          EXPECT_LE(block.m * (block.n / lanes) + block.n / lanes + 1, row.vector_registers);
        }
        EXPECT_TRUE(std::any_of(space.tiles.begin(), space.tiles.end(), [&](const Shape3& tile) {
          return tile.m % block.m == 0 && tile.n % block.n == 0 && tile.k % block.k == 0;
        }));
      }
    }
  }
}

// The packed blocks of A and B stay in the caches: no tile spills to memory.
TEST(Targets, CpuTilesFitTheLastLevel) {
  for (const Target& row : all_rows()) {
    if (row.backend != "cpu") continue;
    ASSERT_FALSE(row.caches.empty()) << row.name;
    for (const Shape3& tile : row.spaces.at(Op::gemm).tiles) {
      EXPECT_LE((std::int64_t{tile.m} + tile.n) * tile.k * 4, row.caches.back().bytes * 3 / 4)
          << row.name << ' ' << to_string(tile);
    }
  }
}

// Every dtype of the space has an instruction that multiplies it, itself or widened to fp32.
TEST(Targets, CpuInstructionsServeEveryDtype) {
  for (const Target& row : all_rows()) {
    if (row.backend != "cpu") continue;
    EXPECT_NE(find_instruction(row, DType::fp32, DType::fp32, DType::fp32), nullptr) << row.name;
    EXPECT_NE(find_instruction(row, DType::int8, DType::int8, DType::int32), nullptr) << row.name;
    for (const Instruction& i : row.instructions) {
      EXPECT_EQ(i.shape.n, row.vector_bytes / 4) << row.name << ' ' << i.name;
      if (i.shape.m == 1) continue;
      EXPECT_EQ(i.shape.m, 16);  // a tile of Intel AMX has 16 rows of 64 bytes
      EXPECT_EQ(i.shape.k * size_of(i.a), 64) << row.name << ' ' << i.name;
      EXPECT_NE(find_instruction(row, i.a, i.b, i.acc), &i) << "most kernels have no tiles";
    }
  }
}

// What kernels and estimates of AMD's GPUs take from the row besides.
TEST(Targets, AmdsRowsSayWhatTheirKernelsNeed) {
  for (const Target& row : all_rows()) {
    const bool on_hip = row.backend == "hip";
    SCOPED_TRACE(row.name);
    EXPECT_EQ(row.unmeasured, on_hip);
    EXPECT_EQ(row.shared_bytes_per_cycle > 0, on_hip && row.spaces.contains(Op::gemm));
    EXPECT_EQ(row.xcds, row.name == "gfx942" || row.name == "gfx950" ? 8 : 1);
    EXPECT_EQ(row.fp8_encoding == Fp8Encoding::fnuz, row.name == "gfx942");
    EXPECT_EQ(row.units % row.xcds, 0);
    EXPECT_EQ(row.cktile_spaces.count(Op::fmha), on_hip ? 1U : 0U);
    EXPECT_EQ(row.cktile_spaces.count(Op::gemm), on_hip && row.warp_size == 64 ? 1U : 0U);
    if (!row.cktile_spaces.contains(Op::gemm)) continue;
    const auto& pipelines = row.spaces.at(Op::gemm).pipelines;
    EXPECT_EQ(std::count(pipelines.begin(), pipelines.end(), Pipeline::async),
              row.name == "gfx950" ? 1 : 0);
    EXPECT_EQ(find_instruction(row, DType::tf32, DType::tf32, DType::fp32) != nullptr,
              row.name == "gfx942");
    EXPECT_EQ(find_instruction(row, DType::fp8, DType::fp8, DType::fp32) != nullptr,
              row.name != "gfx90a");
  }
}

// Dense peaks that the vendors state, within 3%.
TEST(Targets, GpuPeaksFollowFromTheRow) {
  struct Case {
    const char* target;
    DType dtype;
    double tflops;
  };
  for (const Case& c : {Case{"sm90a", DType::bf16, 989}, Case{"sm90a", DType::fp8, 1979},
                        Case{"gfx90a", DType::fp16, 181}, Case{"gfx90a", DType::fp32, 45.3},
                        Case{"gfx942", DType::bf16, 1307}, Case{"gfx942", DType::fp8, 2615},
                        Case{"gfx942", DType::fp32, 163.4}, Case{"gfx950", DType::fp16, 2517},
                        Case{"gfx950", DType::fp8, 5033}, Case{"gfx1100", DType::fp16, 122.8},
                        Case{"gfx1201", DType::bf16, 195}, Case{"gfx1201", DType::fp8, 389}}) {
    const Target row = load_target(c.target);
    const Instruction* i = find_instruction(row, c.dtype, c.dtype, DType::fp32);
    ASSERT_NE(i, nullptr) << c.target;
    const double flops =
        2.0 * i->shape.m * i->shape.n * i->shape.k * i->per_cycle * row.units * row.clock_ghz * 1e9;
    EXPECT_NEAR(flops / 1e12 / c.tflops, 1.0, 0.03) << c.target << ' ' << to_string(c.dtype);
  }
}

TEST(Targets, UnknownNameIsAnswered) {
  constexpr const char* kKnown =
      "(known: avx512, avx2, generic, sm90a, gfx1100, gfx1201, gfx90a, gfx942, gfx950; a row of "
      "your own is a file that ends in .json)";
  EXPECT_EQ(message_of([] { load_target("avx51"); }, ErrorCode::not_found),
            fmt::format("unknown target 'avx51', did you mean 'avx512'? {}", kKnown));
  EXPECT_EQ(message_of([] { load_target("m68k"); }, ErrorCode::not_found),
            fmt::format("unknown target 'm68k' {}", kKnown));
}

TEST(Targets, LoadsARowFromAFile) {
  const TemporaryFolder folder;
  Target mine = load_target("avx2");
  mine.name = "laptop";
  mine.units = 4;
  const fs::path file = folder.path / "laptop.json";
  write_file(file, to_json(mine));
  EXPECT_EQ(load_target(file.string()), mine);
}

TEST(Targets, MalformedFileIsRefusedWithItsPlace) {
  const TemporaryFolder folder;
  const std::string file = (folder.path / "bad.json").string();
  write_file(file, "{\n  \"name\": \"bad\",\n  \"units\": }\n");
  EXPECT_EQ(message_of([&] { load_target(file); }, ErrorCode::parse_error)
                .rfind(file + ": target row: line 3, column 12: ", 0),
            0U);

  std::string row = to_json(load_target("avx512"));
  const std::string good = "\"bytes\": 1048576";
  row.replace(row.find(good), good.size(), "\"bytes\": -4");
  write_file(file, row);
  EXPECT_EQ(message_of([&] { load_target(file); }, ErrorCode::parse_error),
            file + ": target row: caches[1].bytes must be a positive integer, got -4");
}

TEST(Targets, MissingFileIsAnIoError) {
  const std::string text =
      message_of([] { load_target("/nowhere/at-all.json"); }, ErrorCode::io_error);
  EXPECT_NE(text.find("/nowhere/at-all.json"), std::string::npos) << text;
}

}  // namespace
}  // namespace tessera
