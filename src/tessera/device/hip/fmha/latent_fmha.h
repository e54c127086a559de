// Latent attention by matrix instructions: heads of up to 576 elements, of which the first 512 at
// most are the values. A workgroup of kWaves waves makes 32 * kWaves / kTeams rows, 32 keys at a
// time. Rows are the queries of one head, or with kSplit of all heads of a key-value head.
//
// Products are transposed as in mfma_fmha.h, and a lane has one row all the time. kTeams waves (2
// or 4) share rows and cut heads: each multiplies its own elements of queries and keys, they add up
// their scores through LDS, in an order that gives all of them the same bits, and each makes the
// same weights and its own columns of the result.
//
// Values come out of the tile of keys. A lane reads neighbouring elements of 8 keys and exchanges
// them in registers, so that element c of all lanes' vectors is the operand of one product: sums
// number c have elements kVector * row + c, and what a lane has at last are vectors of neighbours.
//
// Config is that of mfma_fmha.h, for numbers of 16 bits and without dropout; kTeams as above.
#pragma once

#include "tessera/device/hip/fmha/check_pages.h"
#include "tessera/device/hip/fmha/kept_weights.h"
#include "tessera/device/hip/fmha/key_value_tiles.h"
#include "tessera/device/hip/fmha/latent_sizes.h"
#include "tessera/device/hip/fmha/mfma_parts.h"
#include "tessera/device/hip/fmha/score_bends.h"
#include "tessera/device/hip/fmha/seen_tiles.h"

namespace tessera::device {

template <class C>
class LatentFmha {
  using In = typename C::In;
  using Out = typename C::Out;
  // The waves as far as rows are concerned.
  struct Rows : C {
    static constexpr int kTeams = 1, kWaves = C::kWaves / C::kTeams;
  };
  using Place = TilePlace<Rows>;
  using Op = Mfma<In, In, 32>;
  using Sum = typename Op::Sum;
  using Weights = RowWeights<In, 1>;
  using Bends = ScoreBends<C, 1>;

  static constexpr bool kPaged = C::kPages != FmhaPages::none;
  static constexpr int kThreads = 64 * C::kWaves, kTileRows = 32 * Rows::kWaves;
  static constexpr int kLdsBytes = latent_lds_bytes(C::kWaves, C::kCopies);
  static constexpr int kStageBytes = latent_tile_bytes();
  static constexpr int kColumns = C::kHdimV / C::kTeams;  // of a wave
  static constexpr int kVector = kColumns / 32;           // neighbours of a row
  static_assert(C::kKeys == kLatentMfmaKeys && (kVector == 4 || kVector == 8));
  static_assert(C::kHeadSize == kLatentMfmaHead && C::kHdimV == kLatentMfmaHeadV);
  using Vector = Vec<u32, kVector / 2>;

  using LoadKeys = KeyTiles<C, kThreads>;
  using Ahead = typename If<kPaged, PagedHead<C::kKeys, 2>, RowsInOrder<C::kSplit>>::Type;
  using First = typename LoadKeys::First;
  using Second = typename LoadKeys::Second;
  using Parts = MfmaParts<C, kTileRows, kLdsBytes>;
  // Chunks of the two tiles of keys that a wave multiplies, and steps of 16 elements.
  static constexpr int kLong = 64 / C::kTeams, kShort = 8 / C::kTeams;
  static constexpr int kLongSteps = kLong / 2, kSteps = kLongSteps + kShort / 2;

 public:
  static __device__ __forceinline__ void run(const MfmaFmhaArguments&) {
    __shared__ __attribute__((aligned(1024))) static u8 memory[kLdsBytes];
    const MfmaFmhaArguments& arguments = fresh_arguments<MfmaFmhaArguments>();
    if (kPaged && has_bad_page(arguments.fmha)) return;
    const Place place = place_of(arguments, __builtin_amdgcn_workgroup_id_x());
    if (place.first_row >= place.rows(arguments.fmha)) return;
    LatentFmha block(arguments.fmha, place, (Shared*)memory);
    if (!kPaged || block.seen.begin_key < block.seen.end_key) {
      if constexpr (C::kCopies) {
        block.loop_copied();
      } else {
        block.loop_staged();
      }
    }
    block.store();
  }
  static __device__ __forceinline__ void merge(const MfmaFmhaArguments&) {
    __shared__ __attribute__((aligned(1024))) static u8 memory[Parts::kMergeBytes];
    if (kPaged && has_bad_page(fresh_arguments<MfmaFmhaArguments>().fmha)) return;
    Parts::merge((Shared*)memory);
  }
  static __device__ __forceinline__ void check(const MfmaFmhaArguments&) {
    check_pages<C::kLengths, C::kPages>(fresh_arguments<MfmaFmhaArguments>().fmha);
  }

 private:
  static __device__ __forceinline__ Place place_of(const MfmaFmhaArguments& arguments, u32 index) {
    if constexpr (C::kSplit) index /= static_cast<u32>(arguments.parts);
    return Place::of_workgroup(arguments, index, kTileRows);
  }
  __device__ __forceinline__ Place own_place() const {
    const auto index = static_cast<u32>(__builtin_amdgcn_readfirstlane(workgroup));
    return place_of(fresh_arguments<MfmaFmhaArguments>(), index);
  }

  __device__ __forceinline__ LatentFmha(const FmhaArguments& g, const Place& place, Shared* lds)
      : memory(lds),
        sums_of_scores(lds + (C::kCopies ? 2 : 1) * kStageBytes),
        lane(fresh_thread<kThreads>() % 64),
        group(lane / 32),
        wave(__builtin_amdgcn_readfirstlane(fresh_thread<kThreads>() / 64)),
        team(wave % C::kTeams),
        row(place.first_row + wave / C::kTeams * 32 + lane % 32),
        workgroup(not_ahead(static_cast<int>(__builtin_amdgcn_workgroup_id_x()))),
        keys(place.keys(g), fresh_thread<kThreads>()) {
    const float scaled = g.scale * kLog2OfE, size = __builtin_fabsf(scaled);
    scale = size < 1e-30F ? 1e-30F : size;
    factor = Bends::kAny ? 1.0F : scale;
    slack = kWeightSlack<In> * reciprocal(factor);
    load_queries(fresh_arguments<MfmaFmhaArguments>().fmha, place, scaled < 0 ? 0x80008000U : 0U);
    const int first_row = __builtin_amdgcn_readfirstlane(row);
    seen.find(fresh_arguments<MfmaFmhaArguments>(), place, first_row, lane);
    begin_bends(fresh_arguments<MfmaFmhaArguments>().fmha, place);
#pragma unroll
    for (int c = 0; c < kVector; ++c) sums[c] = Sum(0.0F);
    if constexpr (Bends::kReads) state.reference = kNothingWithBias;
  }

  // A lane has the chunks of its query that the wave's chunks of keys meet. Rows behind the last
  // one have its query. A negative scale turns queries.
  __device__ __forceinline__ void load_queries(const FmhaArguments& g, const Place& place,
                                               u32 sign) {
    const int bytes = static_cast<int>(g.hdim) * 2;
    const i64 from = place.row_offset(g, g.q_stride, place.up_to_last(g, row));
    const u64 address = bits<u64>(g.q) + static_cast<u64>(from * 2);
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      const int chunk = step < kLongSteps ? team * kLong + step * 2
                                          : 64 + team * kShort + (step - kLongSteps) * 2;
      const int at = (chunk + group) * 16;
      Chunk own = 0;
      if (at < bytes) own = *(Global<Chunk>)(address + static_cast<u64>(at));
      queries[step] = own ^ sign;
    }
  }
  __device__ __forceinline__ void begin_bends(const FmhaArguments& g, const Place& place) {
    const int own = C::kSplit ? place.up_to_last(g, row) : row;
    bends.begin(g, place.sequence, place.batch, place.head_of(g, own), place.query_of(g, own),
                group, scale);
  }

  // ---- the loop ----

  __device__ __forceinline__ Ahead ahead_of() const {
    if constexpr (kPaged) {
      return Ahead(fresh_arguments<MfmaFmhaArguments>().fmha, own_place().sequence,
                   seen.end_of_reads, lane);
    } else {
      return Ahead(seen.end_key);
    }
  }

  // Keys of the next tile are on their way to the other buffer.
  __device__ __forceinline__ void loop_copied() {
    Ahead ahead = ahead_of();
    ahead.ask(seen.begin_key);
    Shared* now = memory;
    const auto copy = [&](Shared* to, int key) {
      keys.copy(to, ahead.keys(key), wave);
      ahead.ask(seen.after(key));
    };
    copy(now, seen.begin_key);
#pragma unroll 1
    for (int key = seen.begin_key; key < seen.end_key; key = seen.after(key)) {
      Shared* const next = now == memory ? memory + kStageBytes : memory;
      wait_for_loads<0>();
      barrier_between_copies();
      const bool active = seen.has(key);
      if (active) bends.fetch(biases, key);
      if (seen.after(key) < seen.end_key) copy(next, seen.after(key));
      Sum scores[1];
      if (active) multiply_keys(now, scores[0]);
      barrier_between_copies();
      if (active) attend(now, key, scores);
      now = next;
    }
  }

  // Keys of the next tile are in registers while this one is multiplied.
  __device__ __forceinline__ void loop_staged() {
    Ahead ahead = ahead_of();
    typename LoadKeys::Staged staged;
    const auto fetch = [&](int key) {
      ahead.ask(key);
      keys.fetch(staged, ahead.keys(key));
    };
    fetch(seen.begin_key);
    keys.put(memory, staged);
    ahead.ask(seen.after(seen.begin_key));
    barrier();
#pragma unroll 1
    for (int key = seen.begin_key; key < seen.end_key; key = seen.after(key)) {
      const bool active = seen.has(key);
      const int next = seen.after(key);
      if (active) bends.fetch(biases, key);
      keys.fetch(staged, ahead.keys(next));
      ahead.ask(seen.after(next));
      Sum scores[1];
      if (active) multiply_keys(memory, scores[0]);
      barrier();
      if (active) attend(memory, key, scores);
      barrier();  // the tile has been read
      keys.put(memory, staged);
      barrier();
    }
  }

  // ---- scores ----

  // What the wave's elements add to the scores of a tile goes to LDS, too.
  __device__ __forceinline__ void multiply_keys(const Shared* tile, Sum& scores) const {
    const auto read = [&](int step) {
      if (step < kLongSteps) {
        const int at = First::offset(lane % 32, team * kLong + group, 0, step * 2);
        return load_shared<Chunk>(tile + at);
      }
      const int at = Second::offset(lane % 32, team * kShort + group, 0, (step - kLongSteps) * 2);
      return load_shared<Chunk>(tile + First::kBytes + at);
    };
    __builtin_amdgcn_s_setprio(1);
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      const Chunk key = read(step);
#pragma unroll
      for (int part = 0; part < Op::kParts; ++part) {
        scores = Op::step(part, key, queries[step], step + part == 0 ? Sum(0.0F) : scores);
      }
    }
    __builtin_amdgcn_s_setprio(0);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const Float4 quad = {scores[4 * i], scores[4 * i + 1], scores[4 * i + 2], scores[4 * i + 3]};
      store_shared(sums_of_scores + wave * kLatentSumBytes + (i * 64 + lane) * 16, quad);
    }
  }
  // Adds what the others have: the own and the next one's, and the sum of the other two.
  __device__ __forceinline__ void add_scores(Sum& scores) const {
    const auto of = [&](int distance, int i) {
      const Shared* const from = sums_of_scores + (wave ^ distance) * kLatentSumBytes;
      return load_shared<Float4>(from + (i * 64 + lane) * 16);
    };
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      Float4 quad = {scores[4 * i], scores[4 * i + 1], scores[4 * i + 2], scores[4 * i + 3]};
      quad += of(1, i);
      if constexpr (C::kTeams == 4) quad += of(2, i) + of(3, i);
#pragma unroll
      for (int s = 0; s < 4; ++s) scores[4 * i + s] = quad[s];
    }
  }

  __device__ __forceinline__ void attend(const Shared* tile, int key, Sum (&scores)[1]) {
    add_scores(scores[0]);
    if constexpr (Bends::kAny) bends.bend(scores, biases, key, scale);
    if (key < seen.all.begin || key + C::kKeys > seen.all.end) {
      Weights::template mask<C::kMasked>(scores, seen.rows[0], seen.sink, key, group);
    }
    const float reference = Weights::largest(scores, state.reference);
    // Sums stay as they are while no weight is larger than 2^8.
    if (__builtin_amdgcn_ballot_w64(!(reference <= state.reference + slack)) != 0) {
      const float less = exp2_fast((state.reference - reference) * factor);
      state.reference = reference;
      state.sums *= less;
#pragma unroll
      for (int c = 0; c < kVector; ++c) sums[c] *= less;
    }
    Chunk weights[2];
    Weights::weigh(scores, factor, state, AllWeights(), weights);
    multiply_values(tile, weights);
  }

  // ---- values ----

  __device__ __forceinline__ void multiply_values(const Shared* tile, const Chunk (&weights)[2]) {
    const int element = team * kColumns + lane % 32 * kVector;
    const int from = First::place(4 * group, element / 8);
#pragma unroll
    for (int pair = 0; pair < 2; ++pair) {
      Vector of[8];
#pragma unroll
      for (int n = 0; n < 8; ++n) {
        // A key behind the first one of the group; their bits exclude each other.
        const int more = pair * 16 + n / 4 * 8 + n % 4;
        const int at = (from ^ First::exchange(more)) + more * 64;
        of[n] = load_shared<Vector>(tile + at * 16 + element % 8 * 2);
      }
      __builtin_amdgcn_s_setprio(1);
#pragma unroll
      for (int c = 0; c < kVector; ++c) {
        Chunk values;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          values[i] = __builtin_amdgcn_perm(of[2 * i + 1][c / 2], of[2 * i][c / 2],
                                            c % 2 == 0 ? 0x05040100U : 0x07060302U);
        }
#pragma unroll
        for (int part = 0; part < Op::kParts; ++part) {
          sums[c] = Op::step(part, values, weights[pair], sums[c]);
        }
      }
      __builtin_amdgcn_s_setprio(0);
    }
  }

  // ---- store ----

  // Calls to(element, quad) for the neighbours by fours that the lane has.
  template <class To>
  __device__ __forceinline__ void for_each_quad(float share, int elements, const To& to) const {
#pragma unroll
    for (int s = 0; s < 16; ++s) {
      const int first = team * kColumns + (s / 4 * 8 + s % 4 + 4 * group) * kVector;
#pragma unroll
      for (int c = 0; c < kVector; c += 4) {
        const Float4 quad = {sums[c][s], sums[c + 1][s], sums[c + 2][s], sums[c + 3][s]};
        if (first + c < elements) to(first + c, quad * share);
      }
    }
  }

  __device__ __forceinline__ void store() {
    const MfmaFmhaArguments& arguments = fresh_arguments<MfmaFmhaArguments>();
    const FmhaArguments& g = arguments.fmha;
    const Place place = own_place();
    if (row >= place.rows(g)) return;
    const float sum =
        over_halves(state.sums[0] + state.sums[1], [](float a, float b) { return a + b; });
    const float power = state.reference * factor - kWeightShift<In>;
    const int elements = static_cast<int>(g.hdim_v);
    if constexpr (C::kSplit) {
      const auto part = static_cast<u32>(__builtin_amdgcn_readfirstlane(workgroup));
      const u64 to = Parts::part_address(arguments, part);
      const int row_wave = wave / C::kTeams, own = row_wave * 32 + lane % 32;
      if (team == 0 && group == 0) {
        *(Stored<Float2>)(to + Parts::head_place(g, own)) = Float2{power, sum};
      }
      for_each_quad(sum == 0 ? 0.0F : 1.0F, elements, [&](int element, const Float4& quad) {
        const int slot = element / 4 % 2 * 32 + lane % 32;
        *(Stored<Float4>)(to + Parts::vector_place(g, row_wave, element / 8) +
                          static_cast<u64>(slot * 16)) = quad;
      });
    } else {
      Out* const out = static_cast<Out*>(g.out) + place.row_offset(g, g.out_stride, row);
      for_each_quad(sum == 0 ? 0.0F : reciprocal(sum), elements,
                    [&](int element, const Float4& quad) {
                      *(Stored<Quad<Out>>)bits<u64>(out + element) = round_quad<Out>(quad);
                    });
      if (C::kLse && team == 0 && group == 0) {
        const float lse = (power + __builtin_amdgcn_logf(sum)) * 0.693147181F;
        g.lse[place.lse_offset(g, row)] = Bends::kReads ? brought_back(lse) : lse;
      }
    }
  }
  template <class T>
  using Stored = __attribute__((address_space(1))) T*;

  Shared* memory;
  Shared* sums_of_scores;
  int lane, group, wave, team, row, workgroup;
  LoadKeys keys;
  float scale, factor, slack;
  SeenTiles<Rows> seen;
  Bends bends;
  typename Bends::Staged biases;
  RowState state;
  Chunk queries[kSteps];
  Sum sums[kVector];
};

}  // namespace tessera::device
