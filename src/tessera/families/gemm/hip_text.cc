// The text of kernels for AMD GPUs.
#include <fmt/format.h>

#include <utility>

#include "tessera/device/hip/gemm/grouped_arguments.h"
#include "tessera/device/hip/gemm/outputs_arguments.h"
#include "tessera/families/gemm/extras.h"
#include "tessera/families/gemm/groups.h"
#include "tessera/families/gemm/hip.h"
#include "tessera/families/gemm/outputs.h"
#include "tessera/families/tile/mfma.h"

namespace tessera::gemm {
namespace {

std::string hip_shapes(const Algorithm& a) {
  const tile::MfmaTiles tiles = tile::mfma_tiles(a);
  return fmt::format(
      "  static constexpr int kTileM = {}, kTileN = {}, kTileK = {};\n"
      "  static constexpr int kWaveM = {}, kWaveN = {};\n"
      "  static constexpr int kWarpTileM = {}, kWarpTileN = {}, kWarpTileK = {};\n"
      "  static constexpr int kBuffers = {}, kPrefetch = {};\n"
      "  static constexpr bool kDirectToLds = {};\n",
      a.tile.m, a.tile.n, a.tile.k, a.wave.m, a.wave.n, a.warp_tile.m, a.warp_tile.n, a.warp_tile.k,
      tiles.buffers, tiles.prefetch, yes_no(a.pipeline == Pipeline::async));
}

std::string hip_flags(const GemmSignature& s, const Algorithm& a, const Target& target) {
  return fmt::format(
             "  static constexpr int kSlices = {};\n"
             "  static constexpr bool kAtomicSplit = {}, kPersistent = {};\n"
             "  static constexpr bool kAKContiguous = {}, kBKContiguous = {}, kPreshuffled = {};\n"
             "  static constexpr int kXcds = {};\n",
             a.slices, yes_no(a.split_k == SplitK::atomic), yes_no(a.persistent),
             yes_no(a_is_row_major(s.layout)), yes_no(!b_is_row_major(s.layout)),
             yes_no(s.preshuffled_b), target.xcds) +
         (a.streamk ? "  static constexpr bool kStreamK = true;\n" : "");
}

std::string scale_fields_on_hip(const GemmSignature& s) {
  if (!has_scales(s)) return {};
  const auto fields = [](char operand, GemmScale scale) {
    const ScaleBlock block = scale == GemmScale::none ? ScaleBlock{1, 0} : block_of(scale);
    return fmt::format("  static constexpr int kScaleRows{0} = {1}, kScale{0} = {2};\n", operand,
                       block.rows, block.k);
  };
  return fields('A', s.scale_a) + fields('B', s.scale_b) +
         fmt::format("  static constexpr bool kScaleBytes = {};\n",
                     yes_no(s.scale_type == GemmScaleType::e8m0));
}

std::string grouping_text(const GemmSignature& s) {
  if (!has_groups(s)) return {};
  return fmt::format("  static constexpr Grouping kGrouping = Grouping::{};\n",
                     to_string(s.grouping));
}

std::string hip_config(const KernelSpec& spec, const Target& target) {
  const auto& s = std::get<GemmSignature>(spec.signature);
  return "struct Config {\n" + gpu_types_text(s) + hip_shapes(spec.algorithm) +
         hip_flags(s, spec.algorithm, target) + grouping_text(s) + scale_fields_on_hip(s) +
         (has_outputs(s) ? outputs_text(s) : "") + tile::epilogue_fields(s.epilogue) + "};\n";
}

// The entry that packs a preshuffled B. Its second parameter is the packed B's address.
std::string hip_pack_text(const std::string& name) {
  return fmt::format(
      "__attribute__((global, amdgpu_flat_work_group_size(HipPackedB<Config>::kThreads,\n"
      "                                                   HipPackedB<Config>::kThreads)))\n"
      "void {}_pack(HipGemmArguments arguments, void* packed) {{\n"
      "  HipPackedB<Config>::pack(arguments, packed);\n"
      "}}\n",
      name);
}

// The template of src/tessera/device/hip/gemm/ that a kernel comes from.
HipTemplate template_of(const KernelSpec& spec) {
  const auto& s = std::get<GemmSignature>(spec.signature);
  const bool is_general = spec.algorithm.pipeline == Pipeline::direct;
  const bool by_mx = has_scales(s) && multiplies_by_mx(spec.algorithm);
  if (has_outputs(s)) {
    return {"outputs_gemm.h", is_general      ? "GeneralSums"
                              : by_mx         ? "MxMfmaSums"
                              : has_scales(s) ? "ScaledMfmaSums"
                                              : "MfmaSums"};
  }
  if (has_scales(s) && is_general) return {"scaled_gemm.h", "ScaledGemm"};
  if (has_scales(s)) return {"mfma_scaled_gemm.h", by_mx ? "MxGemm" : "MfmaScaledGemm"};
  if (has_groups(s)) {
    return {"grouped_gemm.h", is_general ? "GroupedGeneralGemm" : "GroupedMfmaGemm"};
  }
  if (is_general) return {"general_gemm.h", "GeneralGemm"};
  return {"mfma_gemm.h", "MfmaGemm"};
}

std::string arguments_name(const GemmSignature& s) {
  std::string name = has_groups(s) ? "HipGroupedArguments" : "HipGemmArguments";
  if (has_scales(s)) name = fmt::format("HipScaled<{}>", name);
  return has_outputs(s) ? fmt::format("HipOutputs<{}>", name) : name;
}

// Entries besides the kernel, which take the same argument.
struct MoreEntry {
  std::string_view suffix, kernel;
  int threads;
};
std::vector<MoreEntry> more_entries(const GemmSignature& s) {
  std::vector<MoreEntry> all;
  if (has_groups(s)) all.push_back({"_check", "GroupCheck", device::kHipCheckThreads});
  if (!has_outputs(s)) return all;
  all.push_back({"_gather", "OutputsGather<Config>", device::kHipOutputThreads});
  all.push_back({"_finish", "OutputsFinish<Config>", device::kHipOutputThreads});
  return all;
}
std::string entry_text(const std::string& name, const MoreEntry& entry, const GemmSignature& s) {
  return fmt::format(
      "__attribute__((global, amdgpu_flat_work_group_size({0}, {0})))\n"
      "void {1}{2}(\n"
      "    {3} arguments) {{\n"
      "  {4}::run(arguments);\n"
      "}}\n",
      entry.threads, name, entry.suffix, arguments_name(s), entry.kernel);
}

}  // namespace

std::uint8_t hip_entry(const GemmSignature& s, std::string_view suffix) {
  std::uint8_t place = 1;
  for (const MoreEntry& entry : more_entries(s)) {
    if (entry.suffix == suffix) break;
    ++place;
  }
  return place;
}

Source emit_hip(const KernelSpec& spec, const Target& target) {
  const auto& s = std::get<GemmSignature>(spec.signature);
  std::string more = s.preshuffled_b ? hip_pack_text(name_of(spec)) : "";
  for (const MoreEntry& entry : more_entries(s)) more += entry_text(name_of(spec), entry, s);
  Source source = hip_source(spec, template_of(spec), hip_config(spec, target), more);
  for (const MoreEntry& entry : more_entries(s)) source.entries.emplace_back(entry.suffix);
  return source;
}

Source hip_source(const KernelSpec& spec, const HipTemplate& from, const std::string& config,
                  const std::string& more_kernels) {
  std::string text = banner(spec, "hip");
  text += fmt::format(
      "#include \"tessera/device/hip/gemm/{4}\"\n\n"
      "using namespace tessera::device;\n"
      "\n"
      "{0}"
      "\n"
      "using Kernel = {1}<Config>;\n"
      "\n"
      "extern \"C\" {{\n"
      "__attribute__((device, used)) extern const int {2}_abi =\n"
      "    {3};\n"
      "__attribute__((global, amdgpu_flat_work_group_size(Kernel::kThreads, Kernel::kThreads),\n"
      "               amdgpu_waves_per_eu(Kernel::kMinWaves, Kernel::kMaxWaves)))\n"
      "void {2}(\n"
      "    {5} arguments) {{\n"
      "  Kernel::run(arguments);\n"
      "}}\n",
      config, from.name, name_of(spec), kAbi, from.header,
      arguments_name(std::get<GemmSignature>(spec.signature)));
  return gpu_source(spec, std::move(text) + more_kernels + "}\n", ".hip");
}

}  // namespace tessera::gemm
