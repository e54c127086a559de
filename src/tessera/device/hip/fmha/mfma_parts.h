// Attention with keys in parts: where the sums of a part go, and how parts are added up. The waves
// of a workgroup that share rows add up their sums first, in LDS. A second launch adds up the parts
// in their order, so that equal operands give equal bits.
//
// The workspace has for each part, behind the counters: vectors of 4 sums, as the lanes of a wave
// have them, then the power of 2 that a row's weights refer to, and their sum.
#pragma once

#include "tessera/device/hip/fmha/fmha_sizes.h"
#include "tessera/device/hip/fmha/result_quad.h"
#include "tessera/device/hip/fmha/score_bends.h"
#include "tessera/device/hip/fmha/tile_place.h"

namespace tessera::device {

// A row of a part.
struct PartOfRow {
  float power, sum;
};

template <class C, int kTileRows, int kLdsBytes>
struct MfmaParts {
  using Sum = Vec<float, 16>;
  using Pair = Vec<float, 2>;
  using Out = typename C::Out;
  static constexpr int kVectors = C::kHdimV / 8;           // that a lane has
  static constexpr int kRowWaves = C::kWaves / C::kTeams;  // which have different rows
  static constexpr int kVectorBytes = kLanes * 16;
  // Vectors of each wave that fit into LDS at a time.
  static constexpr int kFit = kLdsBytes / (C::kWaves * kVectorBytes);
  static constexpr int kRound = kFit >= kVectors ? kVectors : kFit >= 16 ? 16 : kFit >= 8 ? 8 : 4;
  static_assert(!C::kSplit || (kRound <= kFit && kRound % C::kTeams == 0));
  static constexpr int kMergeBytes = C::kWaves * (kVectorBytes + kLanes * 4);

  // ---- the workspace ----

  static __device__ __forceinline__ i64 part_floats(const FmhaArguments& g) {
    return mfma_part_floats(kTileRows, g.hdim_v);
  }
  static __device__ __forceinline__ u64 part_address(const MfmaFmhaArguments& a, u32 part) {
    const i64 floats = static_cast<i64>(part) * part_floats(a.fmha);
    return bits<u64>(a.workspace) + kMfmaCounters + static_cast<u64>(floats * 4);
  }
  static __device__ __forceinline__ u64 vector_place(const FmhaArguments& g, int row_wave,
                                                     int vector) {
    const int vectors = static_cast<int>(g.hdim_v) / 8;
    return static_cast<u64>((row_wave * vectors + vector) * kVectorBytes);
  }
  static __device__ __forceinline__ u64 head_place(const FmhaArguments& g, int row) {
    return static_cast<u64>(i64{kTileRows} * g.hdim_v * 4 + row * 8);
  }

  // ---- a part ----

  // What the waves of a row have, and the power that their sums are to refer to.
  struct Shares {
    float power = -__builtin_inff(), sum = 0, own = 0;
  };
  static __device__ __forceinline__ Shares exchange(Shared* memory, const PartOfRow& row, int wave,
                                                    int lane) {
    Shared* const heads = memory + (wave / C::kTeams * C::kTeams * 32 + lane % 32) * 8;
    if (lane < 32) store_shared(heads + wave % C::kTeams * 32 * 8, Pair{row.power, row.sum});
    barrier();
    Pair all[C::kTeams];
    Shares shares;
#pragma unroll
    for (int i = 0; i < C::kTeams; ++i) {
      all[i] = load_shared<Pair>(heads + i * 32 * 8);
      if (all[i][1] != 0) shares.power = larger(shares.power, all[i][0]);
    }
    barrier();
#pragma unroll
    for (int i = 0; i < C::kTeams; ++i) {
      if (all[i][1] != 0) shares.sum += all[i][1] * exp2_fast(all[i][0] - shares.power);
    }
    shares.own = row.sum == 0 ? 0.0F : exp2_fast(row.power - shares.power);
    return shares;
  }

  static __device__ __forceinline__ void store(Shared* memory, const Sum (&sums)[C::kHdimV / 32],
                                               const PartOfRow& row, float unit,
                                               const TilePlace<C>& place, u32 part, int wave,
                                               int lane) {
    const MfmaFmhaArguments& arguments = fresh_arguments<MfmaFmhaArguments>();
    const FmhaArguments& g = arguments.fmha;
    const Shares shares = exchange(memory, row, wave, lane);
    const float own = shares.own * unit;
    const int row_wave = wave / C::kTeams, team = wave % C::kTeams;
    const int own_row = row_wave * 32 + lane % 32;
    const bool exists = place.first_row + own_row < place.rows(g);
    const u64 to = part_address(arguments, part);
    if (exists && team == 0 && lane < 32) {
      *(Stored<Pair>)(to + head_place(g, own_row)) = Pair{shares.power, shares.sum};
    }
#pragma unroll
    for (int first = 0; first < kVectors; first += kRound) {
      if (first > 0) barrier();
#pragma unroll
      for (int i = 0; i < kRound; ++i) {
        const Sum& all = sums[(first + i) / 4];
        const int s = (first + i) % 4 * 4;
        const Float4 quad = {all[s], all[s + 1], all[s + 2], all[s + 3]};
        const Float4 scaled = quad * own;
        store_shared(memory + (wave * kRound + i) * kVectorBytes + lane * 16,
                     row.sum == 0 ? Float4(0) : scaled);
      }
      barrier();
#pragma unroll
      for (int i = 0; i < kRound; i += C::kTeams) {
        const Float4 total = sum_of_teams(memory, row_wave, i + team, lane);
        if (i + team < kRound && exists && (first + i + team) * 8 < g.hdim_v) {
          *(Stored<Float4>)(to + vector_place(g, row_wave, first + i + team) +
                            static_cast<u64>(lane * 16)) = total;
        }
      }
    }
  }
  static __device__ __forceinline__ Float4 sum_of_teams(const Shared* memory, int row_wave,
                                                        int vector, int lane) {
    Float4 total = 0;
#pragma unroll
    for (int i = 0; i < C::kTeams; ++i) {
      const int wave = row_wave * C::kTeams + i;
      total += load_shared<Float4>(memory + (wave * kRound + vector) * kVectorBytes + lane * 16);
    }
    return total;
  }

  // ---- all parts ----

  // A workgroup makes a vector of 32 rows: its waves have different parts.
  static __device__ __forceinline__ void merge(Shared* memory) {
    const MfmaFmhaArguments& arguments = fresh_arguments<MfmaFmhaArguments>();
    const FmhaArguments& g = arguments.fmha;
    const u32 item = __builtin_amdgcn_workgroup_id_x();
    const int vectors = static_cast<int>(g.hdim_v) / 8;
    const int row_wave = static_cast<int>(__builtin_amdgcn_workgroup_id_y()) / vectors;
    const int vector = static_cast<int>(__builtin_amdgcn_workgroup_id_y()) % vectors;
    const TilePlace<C> place = TilePlace<C>::of_workgroup(arguments, item, kTileRows);
    if (place.first_row + row_wave * 32 >= place.rows(g)) return;
    const int thread = fresh_thread<64 * C::kWaves>(), lane = thread % 64;
    const int wave = __builtin_amdgcn_readfirstlane(thread / 64);
    const int row = place.first_row + row_wave * 32 + lane % 32;
    // Lanes without a row read the last one.
    const int behind = row - place.up_to_last(g, row);
    const u64 first = part_address(arguments, item * static_cast<u32>(arguments.parts));
    const u64 heads = first + head_place(g, row_wave * 32 + lane % 32 - behind);
    const u64 own =
        first + vector_place(g, row_wave, vector) + static_cast<u64>((lane - behind) * 16);
    const u64 step = static_cast<u64>(part_floats(g) * 4);

    float power = -__builtin_inff();
#pragma unroll 4
    for (int part = 0; part < arguments.parts; ++part) {
      const Pair head = *(Global<Pair>)(heads + static_cast<u64>(part) * step);
      if (head[1] != 0) power = larger(power, head[0]);
    }
    Float4 total = 0;
    float sum = 0;
#pragma unroll 4
    for (int part = wave; part < arguments.parts; part += C::kWaves) {
      const Pair head = *(Global<Pair>)(heads + static_cast<u64>(part) * step);
      const Float4 some = *(Global<Float4>)(own + static_cast<u64>(part) * step);
      const float weight = exp2_fast(head[0] - power);
      if (head[1] != 0) sum += head[1] * weight, total += some * weight;
    }
    store_shared(memory + thread * 16, total);
    store_shared(memory + C::kWaves * kVectorBytes + thread * 4, sum);
    barrier();
    if (wave == 0 && behind == 0) finish(memory, place, row, vector, lane, power);
  }
  static __device__ __forceinline__ void finish(const Shared* memory, const TilePlace<C>& place,
                                                int row, int vector, int lane, float power) {
    const FmhaArguments& g = fresh_arguments<MfmaFmhaArguments>().fmha;
    Float4 total = 0;
    float sum = 0;
#pragma unroll
    for (int i = 0; i < C::kWaves; ++i) {
      total += load_shared<Float4>(memory + (i * 64 + lane) * 16);
      sum += load_shared<float>(memory + C::kWaves * kVectorBytes + (i * 64 + lane) * 4);
    }
    const float share = sum == 0 ? 0.0F : reciprocal(sum);
    const int element = vector * 8 + lane / 32 * 4;
    Out* const out = static_cast<Out*>(g.out) + place.row_offset(g, g.out_stride, row) + element;
    *(Stored<Quad<Out>>)bits<u64>(out) = result_quad<C>(g, total * share);
    if (C::kLse && vector == 0 && lane < 32) {
      const float lse = (power + __builtin_amdgcn_logf(sum)) * 0.693147181F;
      g.lse[place.lse_offset(g, row)] = ScoreBends<C, 1>::kReads ? brought_back(lse) : lse;
    }
  }

 private:
  template <class T>
  using Stored = __attribute__((address_space(1))) T*;
};

}  // namespace tessera::device
