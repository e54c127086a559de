// Attention as instances of CK Tile's templates, by the names that its dispatcher's generator gives
// them.
#include "tessera/families/tile/cktile.h"

#include <fmt/format.h>

#include <algorithm>

#include "tessera/base/error.h"
#include "tessera/base/sha1.h"
#include "tessera/families/fmha/fmha.h"
#include "tessera/families/tile/algorithm_space.h"
#include "tessera/families/tile/sets.h"

namespace tessera::fmha {
namespace {

// ---- which kernels ----

// CK Tile cuts a block of rows x keys further. Its tables have one such cut for each tile, which
// our tile (rows x keys x head of q and k) names.
struct CkTile {
  Shape3 tile;
  int k0;      // elements of a head that are multiplied at a time
  int k1;      // keys that weights are multiplied for at a time
  int hdim_v;  // elements of a head of v
  int head;    // elements of a head of q and k with what is added to it
};
constexpr CkTile kCkTiles[] = {
    {{64, 64, 32}, 16, 32, 32, 32},     {{128, 64, 32}, 16, 32, 32, 32},
    {{16, 32, 64}, 64, 32, 64, 64},     {{32, 32, 64}, 64, 32, 64, 64},
    {{64, 64, 64}, 32, 32, 64, 64},     {{128, 64, 64}, 32, 32, 64, 64},
    {{128, 128, 96}, 32, 32, 128, 96},  {{16, 32, 128}, 64, 32, 128, 128},
    {{32, 32, 128}, 128, 32, 128, 128}, {{64, 64, 128}, 32, 32, 128, 128},
    {{128, 64, 128}, 32, 16, 128, 128}, {{128, 128, 128}, 32, 32, 128, 128},
    {{64, 64, 192}, 32, 32, 128, 256},  {{128, 128, 192}, 32, 32, 128, 192},
    {{64, 64, 256}, 32, 32, 256, 256},  {{128, 128, 256}, 32, 32, 256, 256},
};
const CkTile* find_ck_tile(const Shape3& tile) {
  for (const CkTile& row : kCkTiles) {
    if (row.tile == tile) return &row;
  }
  return nullptr;
}

using CkCase = tile::SpecCase<FmhaSignature>;
using tile::lists;

// The word of the first field of the signature that these instances have at its default only.
std::string_view ck_extra(const FmhaSignature& s) {
  if (s.pages != FmhaPages::none) return "pages";
  if (has_own_kv(s)) return "kv";
  if (s.qscale != FmhaQscale::none) return "qscale";
  if (s.random) return "random";
  if (s.rotary != FmhaRotary::none || s.rotate_q) return "rotary";
  return s.dbias ? "dbias" : "";
}

constexpr tile::Rule<CkCase> kCkRules[] = {
    {[](const CkCase& c) {
       return lists(tile::cktile_space(Op::fmha, c.target).pipelines, c.algorithm.pipeline);
     },
     [](const CkCase& c) {
       return fmt::format("CK Tile has no attention with pipeline {} for {}",
                          to_string(c.algorithm.pipeline), c.target.name);
     }},
    {[](const CkCase& c) { return c.signature.kind == FmhaKind::forward; },
     [](const CkCase& c) {
       return fmt::format("instances of attention are written for kind=forward, got {}",
                          to_string(c.signature.kind));
     }},
    {[](const CkCase& c) {
       const FmhaSignature& s = c.signature;
       return s.in == s.out && s.in == s.dtype_bias &&
              tile::cktile_space(Op::fmha, c.target).warp_tiles.contains(s.in);
     },
     [](const CkCase& c) {
       const FmhaSignature& s = c.signature;
       return fmt::format(
           "CK Tile's instances of attention have one type, fp16 or bf16, got in {}, out {} and "
           "dtype_bias {}",
           to_string(s.in), to_string(s.out), to_string(s.dtype_bias));
     }},
    {[](const CkCase& c) { return c.signature.lengths != FmhaLengths::padded; },
     [](const CkCase&) {
       return std::string(
           "CK Tile has sequences of equal lengths (batch) and packed ones (group), got padded");
     }},
    {[](const CkCase& c) { return ck_extra(c.signature).empty(); },
     [](const CkCase& c) {
       return fmt::format("instances of attention are written without {}", ck_extra(c.signature));
     }},
    {[](const CkCase& c) { return !c.signature.soft_cap || c.signature.bias == FmhaBias::none; },
     [](const CkCase& c) {
       return fmt::format("CK Tile has no soft cap beside a bias, got bias {}",
                          to_string(c.signature.bias));
     }},
    {[](const CkCase& c) {
       Algorithm plain;
       plain.pipeline = c.algorithm.pipeline, plain.tile = c.algorithm.tile;
       plain.wave = c.algorithm.wave, plain.warp_tile = c.algorithm.warp_tile;
       return plain == c.algorithm;
     },
     [](const CkCase&) { return std::string("CK Tile's instances of attention have no options"); }},
    {[](const CkCase& c) {
       const AlgorithmSpace& space = tile::cktile_space(Op::fmha, c.target);
       return find_ck_tile(c.algorithm.tile) != nullptr && lists(space.tiles, c.algorithm.tile);
     },
     [](const CkCase& c) {
       return fmt::format("CK Tile's tables for {} have no tile {}", c.target.name,
                          to_string(c.algorithm.tile));
     }},
    {[](const CkCase& c) {
       const AlgorithmSpace& space = tile::cktile_space(Op::fmha, c.target);
       const Algorithm& a = c.algorithm;
       return lists(space.waves, a.wave) &&
              lists(space.warp_tiles.at(c.signature.in), a.warp_tile) &&
              a.wave.m * a.warp_tile.m == a.tile.m;
     },
     [](const CkCase& c) {
       const Algorithm& a = c.algorithm;
       return fmt::format(
           "waves and warp tile must be listed for {} and have {} rows together, got {} and {}",
           c.target.name, a.tile.m, to_string(a.wave), to_string(a.warp_tile));
     }},
    {[](const CkCase& c) {
       const Shape3& t = c.algorithm.tile;
       return c.algorithm.pipeline != Pipeline::qrasync ||
              (t.m == 128 && t != Shape3{128, 64, 128});
     },
     [](const CkCase& c) {
       return fmt::format(
           "qrasync has tiles of 128 rows, for heads of 128 elements 128x128x128, "
           "got {}",
           to_string(c.algorithm.tile));
     }},
};

Verdict has_instance(const KernelSpec& spec, const Target& target) {
  return tile::has_instance(Op::fmha, spec, target, signature_reason, kCkRules);
}

std::vector<Signature> ck_signatures(const Target& target) {
  std::vector<Signature> all;
  for (const auto& [dtype, warp_tiles] : tile::cktile_space(Op::fmha, target).warp_tiles) {
    for (const FmhaLengths lengths : {FmhaLengths::equal, FmhaLengths::packed}) {
      for (const FmhaBias bias : {FmhaBias::none, FmhaBias::elementwise, FmhaBias::alibi}) {
        for (const int flags : {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}) {
          FmhaSignature s = {.in = dtype, .out = dtype, .dtype_bias = dtype};
          s.lengths = lengths;
          s.bias = bias;
          s.masked = (flags & 1) != 0;
          s.lse = (flags & 2) != 0;
          s.dropout = (flags & 4) != 0;
          s.soft_cap = (flags & 8) != 0;
          all.emplace_back(s);
        }
      }
    }
  }
  return all;
}

std::vector<Algorithm> ck_algorithms(const Target& target, const Signature& signature) {
  return tile::cktile_algorithms(Op::fmha, target, std::get<FmhaSignature>(signature).in);
}

// forward_fp16_essential: what networks use, with and without a mask and lse.
std::vector<KernelSpec> ck_preselected(std::string_view set, const Target& target) {
  std::vector<std::string> known;
  std::vector<KernelSpec> specs;
  for (const auto& [dtype, warp_tiles] : tile::cktile_space(Op::fmha, target).warp_tiles) {
    known.push_back(fmt::format("forward_{}_essential", to_string(dtype)));
    if (known.back() != set) continue;
    for (const bool masked : {false, true}) {
      for (const bool lse : {false, true}) {
        FmhaSignature s = {.in = dtype, .out = dtype, .dtype_bias = dtype};
        s.masked = masked, s.lse = lse;
        for (const Algorithm& a : ck_algorithms(target, s)) specs.push_back({s, a, target.name});
      }
    }
  }
  if (specs.empty()) throw Error(ErrorCode::not_found, tile::no_set(Op::fmha, set, target, known));
  std::erase_if(specs, [&](const KernelSpec& spec) { return !has_instance(spec, target); });
  tile::sort_by_name(specs);
  return specs;
}

Verdict ck_supports(const KernelSpec& spec, const Problem& problem) {
  const FmhaProblem p = with_strides(fmha_of(problem));
  const CkTile& tile = *find_ck_tile(spec.algorithm.tile);
  if (p.v_in_k) return {"CK Tile's instances have values of their own, got v_in_k=1"};
  if (p.hdim % 8 != 0 || p.hdim_v % 8 != 0) {
    return {fmt::format("CK Tile's heads have multiples of 8 elements, got hdim={} and hdim_v={}",
                        p.hdim, p.hdim_v)};
  }
  if (p.hdim <= tile.tile.k && p.hdim_v <= tile.hdim_v) return {};
  return {fmt::format("tile {} is for heads of {} and {} elements, got hdim={} and hdim_v={}",
                      to_string(tile.tile), tile.tile.k, tile.hdim_v, p.hdim, p.hdim_v)};
}

// ---- names ----

std::string_view ck_mode(const FmhaSignature& s) {
  return s.lengths == FmhaLengths::equal ? "batch" : "group";
}
std::string_view ck_mask(const FmhaSignature& s) { return s.masked ? "generic" : "no"; }
std::string_view ck_bias(const FmhaSignature& s) {
  constexpr std::string_view kWords[] = {"no", "bias", "alibi"};
  return kWords[static_cast<std::size_t>(s.bias)];
}

std::string_view ck_pipeline(const Algorithm& a) {
  return a.pipeline == Pipeline::qrasync ? "qr_async" : "qr";
}

std::string ck_tile_numbers(const CkTile& t) {
  return fmt::format("{}, {}, {}, {}, {}, {}", t.tile.m, t.tile.n, t.k0, t.hdim_v, t.k1, t.head);
}

// What the dispatcher's generator hashes, to the byte: the words of a kernel, and all fields of its
// signature and algorithm, as Python's json writes them with sorted keys.
std::string hashed_text(const KernelSpec& spec) {
  const auto& s = std::get<FmhaSignature>(spec.signature);
  const Algorithm& a = spec.algorithm;
  const CkTile& tile = *find_ck_tile(a.tile);
  const std::string algorithm = fmt::format(
      "{{\"block_per_cu\": -1, \"constraint_tag\": \"\", \"hdim_q_alignment\": {0}, "
      "\"hdim_v_alignment\": {1}, \"max_seq_len_q\": 0, \"max_splits_log2\": 0, "
      "\"num_wave_groups\": 1, \"padding\": [true, true, true, true], \"pipeline\": \"{2}\", "
      "\"selection_rank\": 0, \"tile\": [{3}], \"use_trload\": false, \"warp\": [{4}, {4}, 16, 16, "
      "16], \"wave\": [{5}, {5}, 1, 1, 1]}}",
      tile.tile.k, tile.hdim_v, ck_pipeline(a), ck_tile_numbers(tile),
      tile::cktile_numbers(a.warp_tile), tile::cktile_numbers(a.wave));
  const std::string signature = fmt::format(
      "{{\"bias\": \"{0}\", \"data_type\": \"{1}\", \"dbias\": false, \"deterministic\": false, "
      "\"dropout\": {2}, \"family\": \"fwd\", \"fp8_static_quant\": false, \"hdim_q\": {3}, "
      "\"hdim_v\": {4}, \"kv_lookup_table\": \"sglang\", \"kv_memory_layout\": \"vectorized\", "
      "\"logits\": {5}, \"lse\": {6}, \"mask\": \"{7}\", \"mode\": \"{8}\", \"page_size\": 1, "
      "\"paged_kv\": false, \"qscale\": \"no\", \"rope\": \"none\", \"sink\": false, "
      "\"skip_min_seqlen_q\": false, \"store_randval\": false, \"vlayout\": \"r\"}}",
      ck_bias(s), to_string(s.in), s.dropout, tile.tile.k, tile.hdim_v, s.soft_cap, s.lse,
      ck_mask(s), ck_mode(s));
  return fmt::format(
      "{{\"alg\": {0}, \"bias\": \"{1}\", \"dtype\": \"{2}\", \"family\": \"fwd\", \"kv_lookup\": "
      "\"sglang\", \"kv_memory\": \"vectorized\", \"mask\": \"{3}\", \"mode\": \"{4}\", "
      "\"qscale\": \"no\", \"rope\": \"none\", \"sig\": {5}, \"vlayout\": \"r\"}}",
      algorithm, ck_bias(s), to_string(s.in), ck_mask(s), ck_mode(s), signature);
}

std::string ck_name(const KernelSpec& spec) {
  constexpr std::size_t kDigits = 12;
  const auto& s = std::get<FmhaSignature>(spec.signature);
  const CkTile& tile = *find_ck_tile(spec.algorithm.tile);
  return fmt::format("fmha_fwd_{}_{}_h{}x{}_{}_{}", to_string(s.in), ck_mode(s), tile.tile.k,
                     tile.hdim_v, ck_pipeline(spec.algorithm),
                     sha1_hex(hashed_text(spec)).substr(0, kDigits));
}

// ---- text ----

// Headers of 2026 say by an enumerator how numbers of 8 bits are scaled, headers of 2025 by a bool.
constexpr std::string_view kCkBody = R"(
#if __has_include("ck_tile/ops/fmha/block/block_attention_quant_scale_enum.hpp")
constexpr auto kQuantScale = ck_tile::BlockAttentionQuantScaleEnum::NO_SCALE;
#else
constexpr bool kQuantScale = false;
#endif

struct @Name@_Launcher {
  using DataType = @Type@;
  using Shape = ck_tile::TileFmhaShape<ck_tile::sequence<@Tile@>, ck_tile::sequence<@Wave@>,
                                       ck_tile::sequence<@WarpTile@>, ck_tile::sequence<@Wave@>,
                                       ck_tile::sequence<@WarpTile@>, true>;
  using Traits = ck_tile::TileFmhaTraits<true, true, true, true, @SoftCap@,
                                         ck_tile::BlockAttentionBiasEnum::@Bias@, false, @Lse@,
                                         @Dropout@, kQuantScale, -1, false>;
  using Variant = ck_tile::ComposedAttention<@SoftCap@ * ck_tile::LOGITS_SOFT_CAP,
                                             CK_TILE_FMHA_FWD_FAST_EXP2>;
  using Mask = ck_tile::GenericAttentionMask<@Masks@>;
  using Problem =
      ck_tile::BlockFmhaPipelineProblem<DataType, DataType, DataType, float, float, DataType,
                                        unsigned char, float, DataType, float, DataType, Shape,
                                        @Group@, Variant, Mask, false, Traits>;
  using Pipeline = ck_tile::@Pipeline@<Problem>;
  using Epilogue =
      ck_tile::Default2DEpilogue<ck_tile::Default2DEpilogueProblem<float, DataType, true, true>>;
  using Kernel = ck_tile::FmhaFwdKernel<Pipeline, Epilogue>;

  // Launches the kernel with what Kernel::MakeKargs() and Kernel::GridSize() returned; returns
  // milliseconds, 0 where the stream does not time it.
  template <class Arguments>
  static float launch(const Arguments& arguments, dim3 grid, const ck_tile::stream_config& stream) {
    return ck_tile::launch_kernel(
        stream, ck_tile::make_kernel<Kernel::kBlockPerCu>(Kernel{}, grid, Kernel::BlockSize(), 0,
                                                          arguments));
  }
};
)";

Instance ck_emit(const KernelSpec& spec, const Target&) {
  const auto& s = std::get<FmhaSignature>(spec.signature);
  const Algorithm& a = spec.algorithm;
  constexpr std::string_view kBiases[] = {"NO_BIAS", "ELEMENTWISE_BIAS", "ALIBI"};
  const auto word = [](bool value) { return std::string(tile::cktile_bool(value)); };
  std::string name = ck_name(spec);
  const tile::Places places = {
      {"Name", name},
      {"Type", std::string(tile::cktile_type(s.in))},
      {"Tile", ck_tile_numbers(*find_ck_tile(a.tile))},
      {"Wave", tile::cktile_numbers(a.wave)},
      {"WarpTile", tile::cktile_numbers(a.warp_tile)},
      {"SoftCap", word(s.soft_cap)},
      {"Bias", std::string(kBiases[static_cast<std::size_t>(s.bias)])},
      {"Lse", word(s.lse)},
      {"Dropout", word(s.dropout)},
      {"Masks", s.masked ? "true, true" : "false"},
      {"Group", word(s.lengths != FmhaLengths::equal)},
      {"Pipeline", a.pipeline == Pipeline::qrasync ? "BlockFmhaPipelineQRKSVSAsync"
                                                   : "BlockFmhaPipelineQRKSVS"}};
  const std::string body = tile::fill_in({kCkBody}, places);
  return tile::cktile_instance(
      std::move(name), spec,
      {"core.hpp", "host.hpp", "ops/epilogue.hpp", "ops/fmha.hpp", "ops/fmha/block/variants.hpp"},
      body, false);
}

// The documents show no file for attention: a function that hands each kernel to the caller.
std::vector<InstanceFile> ck_registration(std::span<const Instance> instances, const Target&) {
  std::string calls;
  for (const Instance& instance : instances) {
    calls +=
        fmt::format("  add(::ns_{0}::KERNEL_NAME, ::ns_{0}::{0}_Launcher{{}});\n", instance.name);
  }
  return {{"dispatcher_wrappers/register_all_fmha_kernels.hpp",
           fmt::format("// Generated by tessera for CK Tile's headers (docs/amd.md). Do not edit.\n"
                       "#pragma once\n"
                       "\n"
                       "#include <cstddef>\n"
                       "\n"
                       "{}"
                       "\n"
                       "// Calls add(name, launcher) for each kernel.\n"
                       "template <class Add>\n"
                       "void register_all_fmha_kernels([[maybe_unused]] Add&& add) {{\n"
                       "{}"
                       "}}\n"
                       "\n"
                       "inline std::size_t get_fmha_kernel_count() {{ return {}; }}\n",
                       tile::cktile_includes(instances), calls, instances.size())}};
}

constexpr InstanceSource kCkSources[] = {{.name = tile::kCktile,
                                          .signatures = ck_signatures,
                                          .algorithms = ck_algorithms,
                                          .preselected = ck_preselected,
                                          .is_legal = has_instance,
                                          .supports = ck_supports,
                                          .emit = ck_emit,
                                          .registration = ck_registration}};

}  // namespace

std::span<const InstanceSource> instances() { return kCkSources; }

}  // namespace tessera::fmha
