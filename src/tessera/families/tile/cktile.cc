#include "tessera/families/tile/cktile.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "tessera/base/error.h"
#include "tessera/families/tile/algorithm_space.h"

namespace tessera::tile {
namespace {

constexpr CktilePipeline kPipelines[] = {
    {Pipeline::compv3, "compv3", "GemmPipelineAgBgCrCompV3", "BaseGemmPipelineAgBgCrCompV3",
     "CompV3"},
    {Pipeline::compv4, "compv4", "GemmPipelineAgBgCrCompV4", "BaseGemmPipelineAgBgCrCompV4",
     "CompV4", 1, true},
    {Pipeline::compv5, "compv5", "GemmPipelineAgBgCrCompV5", "BaseGemmPipelineAgBgCrCompV5",
     "CompV5", 2},
    {Pipeline::mem, "mem", "GemmPipelineAgBgCrMem", "BaseGemmPipelineAgBgCrMem", "Mem"},
};

void fill_in(std::string_view text, const Places& places, std::string& filled) {
  for (std::size_t at = text.find('@'); at != std::string_view::npos; at = text.find('@')) {
    const std::size_t end = text.find('@', at + 1);
    const std::string_view word = text.substr(at + 1, end - at - 1);
    const auto place = std::find_if(places.begin(), places.end(),
                                    [&](const auto& entry) { return entry.first == word; });
    if (place == places.end()) {
      throw Error(ErrorCode::internal, fmt::format("no value for the place '{}'", word));
    }
    filled.append(text.substr(0, at)).append(place->second);
    text.remove_prefix(end + 1);
  }
  filled.append(text);
}

}  // namespace

// CK Tile's own class of a problem takes these two among its arguments in 2025 and not at all in
// 2026. A class that inherits from it and has both serves either.
const std::string_view kCktileProblem = R"(
  template <bool kHotLoop, ck_tile::TailNumber kTail>
  struct Problem
      : ck_tile::UniversalGemmPipelineProblem<ADataType, BDataType, AccDataType, Shape, Traits,
                                              ck_tile::GemmPipelineScheduler::@Scheduler@> {
    static constexpr bool HasHotLoop = kHotLoop;
    static constexpr ck_tile::TailNumber TailNum = kTail;
@ProblemFields@  };
  template <class P>
  using Pipeline = ck_tile::@Pipeline@<P>;
  using BasePipeline = ck_tile::@BasePipeline@<Problem<true, ck_tile::TailNumber::Full>>;
)";

const std::string_view kCktileShapes =
    R"(  static constexpr ck_tile::index_t TileM = @TileM@, TileN = @TileN@, TileK = @TileK@;
  static constexpr ck_tile::index_t WarpPerBlock_M = @WaveM@, WarpPerBlock_N = @WaveN@,
                                    WarpPerBlock_K = @WaveK@;
  static constexpr ck_tile::index_t WarpTileM = @WarpTileM@, WarpTileN = @WarpTileN@,
                                    WarpTileK = @WarpTileK@;
  static constexpr ck_tile::index_t BlockSize = @BlockSize@, NumWaveGroups = @WaveGroups@;
  static constexpr bool DoubleSmemBuffer = @DoubleBuffer@;
  using Shape =
      ck_tile::TileGemmShape<ck_tile::sequence<TileM, TileN, TileK>,
                             ck_tile::sequence<WarpPerBlock_M, WarpPerBlock_N, WarpPerBlock_K>,
                             ck_tile::sequence<WarpTileM, WarpTileN, WarpTileK>>;
)";

const AlgorithmSpace& cktile_space(Op op, const Target& target) {
  const auto found = target.cktile_spaces.find(op);
  if (found != target.cktile_spaces.end()) return found->second;
  throw Error(ErrorCode::unsupported,
              fmt::format("{0}: the row of target {1} has no cktile_spaces.{0}: CK Tile has no {0} "
                          "there",
                          to_string(op), target.name));
}

std::vector<Algorithm> cktile_algorithms(Op op, const Target& target, DType operand) {
  const AlgorithmSpace& space = cktile_space(op, target);
  std::vector<Algorithm> all;
  for_each_shape(space, space.tiles, warp_tiles_for(space, operand), [&](const Algorithm& shape) {
    for (const Scheduler scheduler : space.schedulers) {
      all.push_back(shape);
      all.back().scheduler = scheduler;
    }
  });
  return all;
}

const CktilePipeline* find_cktile_pipeline(Pipeline pipeline) {
  for (const CktilePipeline& row : kPipelines) {
    if (row.pipeline == pipeline) return &row;
  }
  return nullptr;
}

std::string_view cktile_type(DType dtype) {
  constexpr std::array<std::string_view, 8> kTypes = {
      "float",          "ck_tile::tf32_t", "ck_tile::half_t", "ck_tile::bf16_t",
      "ck_tile::fp8_t", "ck_tile::bf8_t",  "ck_tile::int8_t", "ck_tile::int32_t"};
  return kTypes.at(static_cast<std::size_t>(dtype));
}

std::string_view cktile_bool(bool value) { return value ? "true" : "false"; }
std::string_view cktile_word(bool value) { return value ? "True" : "False"; }

std::string_view cktile_scheduler(Scheduler scheduler) {
  return scheduler == Scheduler::interwave ? "Interwave" : "Intrawave";
}

std::string cktile_numbers(const Shape3& shape) {
  return fmt::format("{}, {}, {}", shape.m, shape.n, shape.k);
}

std::string fill_in(std::initializer_list<std::string_view> texts, const Places& places) {
  std::string filled;
  for (const std::string_view text : texts) fill_in(text, places, filled);
  return filled;
}

Places cktile_shapes(const Algorithm& a, int wave_size) {
  const CktilePipeline& pipeline = *find_cktile_pipeline(a.pipeline);
  const int waves = a.wave.m * a.wave.n * a.wave.k;
  return {{"TileM", std::to_string(a.tile.m)},
          {"TileN", std::to_string(a.tile.n)},
          {"TileK", std::to_string(a.tile.k)},
          {"WaveM", std::to_string(a.wave.m)},
          {"WaveN", std::to_string(a.wave.n)},
          {"WaveK", std::to_string(a.wave.k)},
          {"WarpTileM", std::to_string(a.warp_tile.m)},
          {"WarpTileN", std::to_string(a.warp_tile.n)},
          {"WarpTileK", std::to_string(a.warp_tile.k)},
          {"BlockSize", std::to_string(waves * wave_size)},
          {"WaveGroups", std::to_string(pipeline.wave_groups)},
          {"DoubleBuffer", std::string(cktile_bool(pipeline.double_buffer))},
          {"Scheduler", std::string(cktile_scheduler(a.scheduler))},
          {"Pipeline", std::string(pipeline.name)},
          {"BasePipeline", std::string(pipeline.base)}};
}

Instance cktile_instance(std::string name, const KernelSpec& spec,
                         const std::vector<std::string_view>& includes, std::string_view body,
                         bool is_alone_too) {
  std::string text = fmt::format(
      "// {0}\n"
      "// Generated by tessera for CK Tile's headers (docs/amd.md). Do not edit.\n"
      "// Reproduce: tessera generate {1} --source {2} --target {3} --output-dir .\n"
      "#pragma once\n"
      "\n",
      name, name_of(spec), kCktile, spec.target);
  for (const std::string_view include : includes) {
    text += fmt::format("#include \"ck_tile/{}\"\n", include);
  }
  text += fmt::format(
      "\n"
      "namespace ns_{0} {{\n"
      "\n"
      "constexpr const char* KERNEL_NAME = \"{0}\";\n"
      "{1}"
      "\n"
      "}}  // namespace ns_{0}\n",
      name, body);
  if (is_alone_too) {
    text += fmt::format(
        "\n"
        "#ifdef CK_TILE_SINGLE_KERNEL_INCLUDE\n"
        "using namespace ns_{};\n"
        "#endif\n",
        name);
  }
  std::string path = name + ".hpp";
  return {std::move(name), spec, {std::move(path), std::move(text)}};
}

std::string cktile_includes(std::span<const Instance> instances) {
  std::string includes;
  for (const Instance& instance : instances) {
    includes += fmt::format("#include \"../{}\"\n", instance.file.path);
  }
  return includes;
}

const AlgorithmRule kCktileDivision = {
    [](const Algorithm& a) {
      return a.tile.m % (a.wave.m * a.warp_tile.m) == 0 &&
             a.tile.n % (a.wave.n * a.warp_tile.n) == 0 &&
             a.tile.k % (a.wave.k * a.warp_tile.k) == 0;
    },
    [](const Algorithm& a) {
      return fmt::format("tile {} does not divide over waves {} of warp tile {}", to_string(a.tile),
                         to_string(a.wave), to_string(a.warp_tile));
    }};

std::string cktile_lds_sentence(std::int64_t bytes, std::int64_t most, Pipeline pipeline,
                                const Target& target) {
  return fmt::format("needs {} bytes of LDS, {} allows {} of {}'s {}", bytes, to_string(pipeline),
                     most, target.name, target.shared_memory_bytes);
}

}  // namespace tessera::tile
