// Kernels of attention by matrix instructions of AMD's GPUs on the emulator: how many matrix
// instructions their code has and runs.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "hip/fmha/mfma_problems.h"
#include "tessera/device/fmha_parts.h"
#include "tessera/device/hip/fmha/latent_sizes.h"
#include "tessera/families/fmha/arguments.h"
#include "tessera/families/fmha/fmha.h"
#include "tessera/families/fmha/mfma.h"

namespace tessera {

class EmulatedMfma : public MfmaProblems {
 protected:
  static bool is_mfma(const KernelSpec& spec) {
    const Pipeline pipeline = spec.algorithm.pipeline;
    return signature(spec).kind != FmhaKind::backward &&
           (pipeline == Pipeline::qr || pipeline == Pipeline::qrasync ||
            pipeline == Pipeline::splitkv);
  }

  // MFMAs of the keys of a tile that a wave has, in the code and when it runs.
  std::uint64_t mfmas_of_tile(const KernelSpec& spec) const {
    const Algorithm& a = spec.algorithm;
    if (fmha::is_latent_mfma(a)) {  // a wave has a share of the elements
      const int depth = mfma_depth(spec);
      return static_cast<std::uint64_t>(a.tile.k / a.wave.n / depth +
                                        fmha::most_hdim_v(a.tile.k) / a.wave.n / 32 * 32 / depth);
    }
    const device::MfmaFmhaShape shape = fmha::mfma_shape(signature(spec), a);
    const bool has_bytes = shape.kv_bytes == 1;
    const DType in = signature(spec).in;
    const int depth = depth_of(in), depth_v = has_bytes ? depth_of(weights_of(shape)) : depth;
    const int blocks = a.tile.m / (32 * a.wave.m), keys = a.tile.n / a.wave.n;
    const int head_v = fmha::most_hdim_v(a.tile.k);
    return static_cast<std::uint64_t>(blocks * (keys / 32) * (a.tile.k / depth) +
                                      blocks * (head_v / 32) * (keys / depth_v));
  }
  static DType weights_of(const device::MfmaFmhaShape& shape) {
    return shape.weight_bytes == 1 ? DType::fp8 : DType::fp16;
  }

  // How many query heads have their rows in a tile.
  static std::int64_t heads_of_tile(const Algorithm& a, const FmhaProblem& p) {
    return a.pipeline == Pipeline::splitkv ? p.heads / p.heads_kv : 1;
  }

  // Tiles that the waves of a workgroup multiply. Waves of a block with a mask leave out tiles of
  // which they see nothing, and those of keys in parts all such tiles.
  template <bool kMasked>
  static std::int64_t tiles_of(const Algorithm& a, std::int64_t heads,
                               const device::FmhaArguments& g, const device::FmhaSequence& s,
                               std::int64_t first) {
    const std::int64_t last = s.queries * heads - 1;
    const auto query = [&](std::int64_t row) { return std::min(row, last) / heads; };
    const auto seen = [&](std::int64_t row) { return device::keys_of<kMasked>(g, s, query(row)); };
    const device::SplitBlocks blocks =
        device::split_blocks<kMasked>(g, s, query(first), query(first + a.tile.m - 1), a.tile.n);
    // Waves of latent attention that share rows have the same keys.
    const bool shares_keys = fmha::is_latent_mfma(a);
    const std::int64_t rows = a.tile.m / a.wave.m, teams = shares_keys ? 1 : a.wave.n;
    const std::int64_t keys = a.tile.n / teams;
    const bool split = a.pipeline == Pipeline::splitkv;
    std::int64_t count = 0;
    for (std::int64_t row = first; row < first + a.tile.m; row += rows) {
      if (split && row > last) continue;
      const std::int64_t begin = seen(row).begin, end = seen(row + rows - 1).end;
      for (int n = 0; n < blocks.count; ++n) {
        for (std::int64_t key = std::int64_t{blocks.block(n)} * a.tile.n, left = teams; left > 0;
             key += keys, --left) {
          const bool in_sink = kMasked && key < g.sink;
          const bool sees = key < end && (in_sink || key + keys > begin);
          count += (!kMasked && !split) || sees ? 1 : 0;
        }
      }
    }
    return shares_keys ? count * a.wave.n : count;
  }
  template <device::FmhaPages kPages>
  std::int64_t tiles_of(const KernelSpec& spec, const FmhaProblem& p,
                        const device::FmhaArguments& g) const {
    const Algorithm& a = spec.algorithm;
    const std::int64_t heads = heads_of_tile(a, p);
    std::int64_t tiles = 0;
    for (std::int64_t b = 0; b < p.batch; ++b) {
      const auto s = fmha::sequence_in<kPages>(p.lengths, g, b);
      for (std::int64_t first = 0; first < s.queries * heads; first += a.tile.m) {
        tiles += (signature(spec).masked ? tiles_of<true>(a, heads, g, s, first)
                                         : tiles_of<false>(a, heads, g, s, first)) *
                 p.heads / heads;
      }
    }
    return tiles;
  }
  std::uint64_t expected_mfmas(const KernelSpec& spec, const FmhaProblem& p,
                               const FmhaOperands& o) const {
    const device::FmhaArguments g = fmha::arguments_of(p, o);
    using enum device::FmhaPages;
    const std::int64_t tiles = p.pages == FmhaPages::none    ? tiles_of<none>(spec, p, g)
                               : p.pages == FmhaPages::table ? tiles_of<table>(spec, p, g)
                                                             : tiles_of<list>(spec, p, g);
    return static_cast<std::uint64_t>(tiles) * mfmas_of_tile(spec);
  }

  void expect_counted(const KernelSpec& spec, const EmulatedKernel& kernel) const {
    const emulator::Facts facts = kernel.facts(name_of(spec));
    const device::MfmaFmhaShape shape = fmha::mfma_shape(signature(spec), spec.algorithm);
    if (shape.kv_bytes == 2) {
      EXPECT_EQ(mfmas_in(facts), mfmas_of_tile(spec));
    } else {
      EXPECT_EQ(all_mfmas_in(facts), mfmas_of_tile(spec));
    }
    if (fmha::is_latent_mfma(spec.algorithm)) {
      EXPECT_LE(facts.vgprs, 512U);
      EXPECT_EQ(facts.lds_bytes, static_cast<unsigned>(device::latent_lds_bytes(
                                     shape.waves, fmha::copies_mfma_tiles(spec.algorithm))));
      return;
    }
    EXPECT_EQ(facts.lds_bytes, static_cast<unsigned>(device::mfma_fmha_lds_bytes(shape)));
    EXPECT_LE(facts.vgprs, 512U / static_cast<unsigned>(device::mfma_fmha_waves(shape)));
  }

  // Products of scores and of values may have an instruction each.
  static std::uint64_t all_mfmas_in(const emulator::Facts& facts) {
    EXPECT_LE(facts.mfmas.size(), 2U);
    std::uint64_t all = 0;
    for (const auto& [name, count] : facts.mfmas) all += count;
    return all;
  }

  void check_one(const KernelSpec& spec, const Source& source, EmulatedKernel& kernel) {
    const FmhaProblem p = with_strides(problem_for(spec));
    std::uint64_t expected = 0;
    check(spec, source, kernel, p, [&](const Operands& operands) {
      expected = expected_mfmas(spec, p, std::get<FmhaOperands>(operands));
    });
    EXPECT_EQ(executed_mfmas_, expected) << to_string(Problem(p));
  }

  // Every kernel is counted, and compared with the reference on random problems.
  void check_kernels(const std::vector<KernelSpec>& specs, int problems) {
    for_each_built(specs,
                   [&](const KernelSpec& spec, const Source& source, EmulatedKernel& kernel) {
                     expect_counted(spec, kernel);
                     for (int n = 0; n < problems; ++n) check_one(spec, source, kernel);
                     expect_few_lds_cycles(kernel);
                   });
  }

  // The kernels with these names, which lack the target, that are legal there.
  template <class Names>
  std::vector<KernelSpec> named(const Names& names) const {
    std::vector<KernelSpec> specs;
    for (const char* words : names) {
      const KernelSpec spec = parse_name(fmt::format("fmha_{}_{}", words, target_.name));
      if (family_.is_legal(spec, target_)) specs.push_back(spec);
    }
    return specs;
  }
};

}  // namespace tessera
