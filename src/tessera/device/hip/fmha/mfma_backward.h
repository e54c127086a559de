// The gradients of attention by matrix instructions. A wave has 32 tokens of its own, one of which
// each lane has all the time, and meets tiles of kTileN tokens: queries meet keys and give dq, keys
// meet the queries of all heads that read them and give dk and dv. Scores are made in both, so that
// each gradient has one wave that adds it up, in one order.
//
// All products are made transposed, as in mfma_fmha.h. Where queries are the own tokens:
//   scores^T   = keys x queries^T      a lane has 16 of 32 keys of its query, lane ^ 32 the others
//   dweights^T = values x dout^T
//   dq^T       = keys^T x dscores^T    dscores are the operand as the products left them
// and where keys are:
//   scores     = queries x keys^T      a lane has 16 of 32 queries of its key
//   dweights   = dout x values^T
//   dv^T       = dout^T x weights
//   dk^T       = queries^T x dscores
// What is met lies in LDS as rows for the first two products and as columns for the others.
//
// Launch: workgroups of 64 * kWaveM threads. `prepare` comes first and `dbias` last; both are those
// of direct_backward.h, with tiles of kMfmaPlainRows queries. `run` gives dk and dv, `dq` dq, a
// tile of 32 * kWaveM tokens a workgroup.
//
// Config has what direct_backward.h asks for, kCopies (whether tiles are copied to LDS, gfx950, or
// go by registers) and kXcds. Tokens lie in multiples of 16 bytes, elements of a token together;
// heads have multiples of 8 elements. The host sees to it that a tile of tokens spans less than
// 2^31 bytes.
#pragma once

#include "tessera/device/hip/fmha/direct_backward.h"
#include "tessera/device/hip/fmha/finished_rows.h"
#include "tessera/device/hip/fmha/gradient_scores.h"
#include "tessera/device/hip/fmha/gradient_sizes.h"
#include "tessera/device/hip/fmha/tile_products.h"
#include "tessera/device/hip/fmha/value_tile.h"

namespace tessera::device {

// What is met, on its way to LDS.
template <class C, int kElements>
struct MetTile {
  static constexpr int kThreads = 64 * C::kWaveM, kChunks = kElements / 8;
  using Rows = LdsTile<C::kTileN, kChunks, 1>;
  using LoadRows = TokenLoader<Rows, C::kTileN, kChunks, kThreads, C::kCopies>;
#if defined(__gfx950__)
  using LoadColumns = typename If<C::kCopies, CopiedValues<C::kTileN, kElements, kThreads, false>,
                                  TransposedValues<C::kTileN, kElements, kThreads>>::Type;
#else
  using LoadColumns = TransposedValues<C::kTileN, kElements, kThreads>;
#endif
};

template <class C, bool kOfKeys>
class MfmaGradients {
  using In = typename C::In;
  using Products = TileProducts<In>;
  using Sum = typename Products::Sum;
  using Place = GradientPlace<C, kOfKeys>;
  using Scores = GradientScores<C, kOfKeys>;
  static constexpr MfmaBackwardShape kShape = {C::kWaveM, C::kTileN, C::kTileK, C::kHdimV,
                                               C::kCopies};
  static constexpr int kThreads = mfma_backward_threads(kShape);
  static constexpr int kTileRows = mfma_backward_rows(kShape);
  static constexpr int kMet = C::kTileN, kBlocks = kMet / 32, kPairs = kMet / 16;
  static constexpr int kSteps = C::kTileK / 16, kStepsV = C::kHdimV / 16;
  static constexpr int kHeadBlocks = C::kTileK / 32, kHeadBlocksV = C::kHdimV / 32;
  // Second operands, 16 tokens of a tile a chunk.
  struct Operands {
    Chunk weights[kPairs], gradients[kPairs];
  };

  using Met = MetTile<C, C::kTileK>;   // keys, or queries
  using MetV = MetTile<C, C::kHdimV>;  // values, or dout
  static constexpr int kValues = Met::Rows::kBytes;
  static constexpr int kColumns = kValues + MetV::Rows::kBytes;
  static constexpr int kColumnsV = kColumns + Met::LoadColumns::kBytes;
  static constexpr int kStageBytes = kColumnsV + (kOfKeys ? MetV::LoadColumns::kBytes : 0);
  static constexpr int kLdsBytes = mfma_backward_lds_bytes(kShape, kOfKeys);
  using Finished = FinishedRows<In, C::kTileK>;
  using FinishedV = FinishedRows<In, C::kHdimV>;
  static_assert((C::kCopies ? 2 : 1) * kStageBytes <= kLdsBytes &&
                C::kWaveM * Finished::kBytes <= kLdsBytes &&
                (!kOfKeys || C::kWaveM * FinishedV::kBytes <= kLdsBytes));

 public:
  static __device__ __forceinline__ void run() {
    __shared__ __attribute__((aligned(1024))) static u8 memory[kLdsBytes];
    const Place place = Place::of_workgroup(__builtin_amdgcn_workgroup_id_x(), kTileRows);
    if (place.first_row >= place.own_tokens()) return;
    MfmaGradients block(place, (Shared*)memory);
    block.loop();
    block.store();
  }

 private:
  __device__ __forceinline__ MfmaGradients(const Place& place, Shared* lds)
      : memory(lds),
        thread(fresh_thread<kThreads>()),
        lane(thread % 64),
        wave(__builtin_amdgcn_readfirstlane(thread / 64)),
        workgroup(not_ahead(static_cast<int>(__builtin_amdgcn_workgroup_id_x()))),
        first_own(place.first_row + wave * kMfmaOwnTokens),
        met(place.met_rows()),
        met_values(place.met_values()),
        rows(met.rows, thread),
        columns(met.rows, thread),
        rows_v(met_values.rows, thread),
        columns_v(met_values.rows, thread) {
    load_own(place.own_rows(), own);
    load_own(place.own_values(), own_values);
    find_met(place);
    scores_of.begin(place, first_own + lane % 32, lane / 32);
    begin_dropout(place);
#pragma unroll
    for (int d = 0; d < kHeadBlocks; ++d) sums[d] = Sum(0.0F);
#pragma unroll
    for (int d = 0; d < kHeadBlocksV; ++d) sums_v[d] = Sum(0.0F);
  }

  // A lane has the chunks of its token that the chunks of what is met meet.
  template <int kCount>
  __device__ __forceinline__ void load_own(const HeadRows& from, Chunk (&to)[kCount]) const {
    const Chunk buffer = from.template from<kMfmaOwnTokens>(first_own);
    const int group = lane / 32, first = lane % 32 * from.pitch + group * 16;
#pragma unroll
    for (int step = 0; step < kCount; ++step) {
      const bool exists = step * 32 + group * 16 < from.bytes;
      to[step] = raw_buffer_load_16(buffer, exists ? first + step * 32 : kNowhere, 0, 0);
    }
  }

  // Which tokens the own ones meet, and which tiles the workgroup and the wave need.
  __device__ __forceinline__ void find_met(const Place& place) {
    const int last = place.first_row + kTileRows - 1;
    seen = place.met_by(first_own + lane % 32);
    some = place.met_by_some(first_own, first_own + kMfmaOwnTokens - 1);
    all = place.met_by_all(first_own, first_own + kMfmaOwnTokens - 1);
    walked = place.met_by_some(place.first_row, last);
    walked.begin = walked.begin / kMet * kMet;
    heads = kOfKeys ? uniform(Place::heads_of_keys()) : 1;
  }
  __device__ __forceinline__ void begin_dropout(const Place& place) {
    if constexpr (C::kDropout) {
      const FmhaArguments& g = Place::forward();
      const DropoutKey key = dropout_key(g);
      // The loop has no scalar registers for all this.
      dropout = {same_in_all(key.low), same_in_all(key.high),
                 static_cast<u32>(not_ahead(static_cast<int>(key.offset)))};
      kept = not_ahead(g.kept);
      dropped_head = not_ahead(static_cast<int>(dropout_row(g, place.batch, place.head, 0).head));
    }
  }

  // ---- which tiles there are ----

  // A turn behind the last one has no tokens, wherever its head would be.
  __device__ __forceinline__ Turn first_turn() const {
    const int met_first = C::kMasked && !kOfKeys && walked.sink > 0 ? 0 : walked.begin;
    return {met_first, walked.begin < walked.end || walked.sink > 0 ? 0 : heads};
  }
  __device__ __forceinline__ bool is_left(const Turn& turn) const { return turn.head < heads; }
  __device__ __forceinline__ Turn after(const Turn& turn) const {
    int next = turn.met + kMet, head = turn.head;
    if constexpr (C::kMasked && !kOfKeys) {
      if (next >= walked.sink && next < walked.begin) next = walked.begin;
    }
    if (next >= walked.end) next = walked.begin, ++head;
    return {next, head};
  }
  __device__ __forceinline__ bool is_active(const Turn& turn) const {
    if constexpr (!C::kMasked) return true;
    const bool in_window = turn.met < some.end && turn.met + kMet > some.begin;
    return in_window || (!kOfKeys && turn.met < some.sink);
  }
  // The buffer of a turn; an empty one behind the last turn.
  __device__ __forceinline__ Chunk buffer_of(const HeadsRows& from, const Turn& turn) const {
    // The compiler would keep what each tile's address follows from in scalar registers.
    const Turn fresh = {uniform_here(uniform(turn.met)), uniform_here(uniform(turn.head))};
    Chunk buffer = from.template from<kMet>(fresh);
    buffer[2] = is_left(fresh) ? buffer[2] : 0;
    return buffer;
  }

  // ---- the loop ----

  __device__ __forceinline__ void loop() {
    if constexpr (C::kCopies) {
      loop_copied();
    } else {
      loop_staged();
    }
    barrier();
  }

  // The next tile is on its way to the other buffer.
  __device__ __forceinline__ void loop_copied() {
    Shared* now = memory;
    Turn turn = first_turn();
    if (is_left(turn)) copy(now, turn);
#pragma unroll 1
    while (is_left(turn)) {
      Shared* const next = now == memory ? memory + kStageBytes : memory;
      const Turn following = after(turn);
      wait_for_loads<0>();
      barrier_between_copies();
      const bool active = is_active(turn);
      typename Scores::Staged of;
      if (active) scores_of.fetch(of, turn, 0);
      if (is_left(following)) copy(next, following);
      if (active) {
        Sum scores[kBlocks], dweights[kBlocks];
        Operands operands;
        multiply(now, scores, dweights);
        weigh(of, turn, scores, dweights, operands);
        add(now, operands);
      }
      now = next;
      turn = following;
    }
  }
  __device__ __forceinline__ void copy(Shared* to, const Turn& turn) const {
    const Chunk buffer = buffer_of(met, turn), buffer_v = buffer_of(met_values, turn);
    rows.copy(to, buffer, wave);
    rows_v.copy(to + kValues, buffer_v, wave);
    columns.copy(to + kColumns, buffer, wave);
    if constexpr (kOfKeys) columns_v.copy(to + kColumnsV, buffer_v, wave);
  }

  // One buffer of rows and one of columns. Between the barriers of a turn the columns of this tile
  // and the rows of the next one are put there.
  __device__ __forceinline__ void loop_staged() {
    Turn turn = first_turn(), next = after(turn);
    typename Met::LoadRows::Staged staged;
    typename MetV::LoadRows::Staged staged_v;
    typename Met::LoadColumns::Staged staged_columns;
    typename MetV::LoadColumns::Staged staged_columns_v;
    const auto fetch_rows = [&](const Turn& of) {
      rows.fetch(staged, buffer_of(met, of));
      rows_v.fetch(staged_v, buffer_of(met_values, of));
    };
    const auto fetch_columns = [&](const Turn& of) {
      columns.fetch(staged_columns, buffer_of(met, of));
      if constexpr (kOfKeys) columns_v.fetch(staged_columns_v, buffer_of(met_values, of));
    };
    const auto put_rows = [&] {
      rows.put(memory, staged);
      rows_v.put(memory + kValues, staged_v);
    };
    fetch_columns(turn);
    fetch_rows(turn);
    put_rows();
    fetch_rows(next);
    barrier();
#pragma unroll 1
    while (is_left(turn)) {
      const bool active = is_active(turn);
      const Turn third = after(next);
      Sum scores[kBlocks], dweights[kBlocks];
      Operands operands;
      typename Scores::Staged of;
      // Biases of an element each take the registers that products leave.
      if (active && !Scores::kReads) scores_of.fetch(of, turn, 0);
      if (active) multiply(memory, scores, dweights);
      if (active && Scores::kReads) scores_of.fetch(of, turn, 0);
      barrier();  // rows of this tile and columns of the last one have been read
      columns.put(memory + kColumns, staged_columns);
      if constexpr (kOfKeys) columns_v.put(memory + kColumnsV, staged_columns_v);
      put_rows();
      fetch_columns(next);
      fetch_rows(third);
      if (active) weigh(of, turn, scores, dweights, operands);
      barrier_between_copies();
      if (active) add(memory, operands);
      turn = next;
      next = third;
    }
  }

  __device__ __forceinline__ void multiply(const Shared* tile, Sum (&scores)[kBlocks],
                                           Sum (&dweights)[kBlocks]) const {
    Products::template multiply_rows<typename Met::Rows>(tile, lane, own, scores);
    Products::template multiply_rows<typename MetV::Rows>(tile + kValues, lane, own_values,
                                                          dweights);
  }

  __device__ __forceinline__ void weigh(typename Scores::Staged& of, const Turn& turn,
                                        Sum (&scores)[kBlocks], Sum (&dweights)[kBlocks],
                                        Operands& operands) {
    const bool at_edge = turn.met < all.begin || turn.met + kMet > all.end;
    auto drawn = drawn_for(turn);
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) {
      scores_of.weigh(of, turn, b, drawn, scores[b], dweights[b]);
      if (at_edge) Scores::hide(seen, turn.met + b * 32, lane / 32, scores[b], dweights[b]);
      if constexpr (!Scores::kRaises) round(b, scores, dweights, operands);
    }
    if constexpr (Scores::kRaises) {
      if constexpr (kOfKeys) scores_of.lower_weights(scores, sums_v);
      scores_of.lower_gradients(dweights, sums);
#pragma unroll
      for (int b = 0; b < kBlocks; ++b) round(b, scores, dweights, operands);
    }
  }
  static __device__ __forceinline__ void round(int block, const Sum (&weights)[kBlocks],
                                               const Sum (&gradients)[kBlocks],
                                               Operands& operands) {
    if constexpr (kOfKeys) Scores::round(weights[block], operands.weights + block * 2);
    Scores::round(gradients[block], operands.gradients + block * 2);
  }
  __device__ __forceinline__ auto drawn_for(const Turn& turn) const {
    if constexpr (!C::kDropout) {
      return AllWeights();
    } else if constexpr (kOfKeys) {
      return KeptQueries(dropout, kept, dropped_head + turn.head, turn.met, first_own, lane);
    } else {
      return KeptWeights(dropout, kept, DropoutRow{first_own + lane % 32, dropped_head}, turn.met,
                         lane);
    }
  }

  __device__ __forceinline__ void add(const Shared* tile, const Operands& operands) {
    if constexpr (kOfKeys) {
      Products::template add_columns<typename MetV::LoadColumns>(tile + kColumnsV, lane,
                                                                 operands.weights, sums_v);
    }
    Products::template add_columns<typename Met::LoadColumns>(tile + kColumns, lane,
                                                              operands.gradients, sums);
  }

  // ---- store ----

  template <class Rounded, int kCount>
  __device__ __forceinline__ void store(const Place& place, void* data,
                                        const i64 (&stride)[kTokenStrides], i64 head, i64 hdim,
                                        float factor, const Sum (&from)[kCount]) const {
    Shared* const staging = memory + wave * Rounded::kBytes;
    const i64 first = kOfKeys ? place.sequence.first_key : place.sequence.first_query;
    In* const to =
        static_cast<In*>(data) + token_offset(stride, place.own_batch(), head, first + first_own);
    Rounded::put(staging, from, factor, lane);
    wave_barrier();
    Rounded::store(staging, to, stride[kToken], place.own_tokens() - first_own,
                   static_cast<int>(hdim) / 8, lane);
  }
  __device__ __forceinline__ void store() const {
    // The loop has no scalar registers for what is known anew here.
    const Place place = Place::of_workgroup(static_cast<u32>(uniform(workgroup)), kTileRows);
    const FmhaBackwardArguments& a = Place::arguments().general.backward;
    const FmhaArguments& g = a.forward;
    if constexpr (!kOfKeys) {
      store<Finished>(place, a.dq, a.dq_stride, place.head, g.hdim, scores_of.gradient_factor(),
                      sums);
    } else {
      const i64 head = place.head_kv(g);
      store<Finished>(place, a.dk, a.dk_stride, head, g.hdim, scores_of.gradient_factor(), sums);
      barrier();  // the other rows are staged elsewhere
      store<FinishedV>(place, a.dv, a.dv_stride, head, g.hdim_v, scores_of.weight_factor(), sums_v);
    }
  }

  Shared* memory;
  int thread, lane, wave;
  int workgroup;
  int first_own;  // of the wave
  HeadsRows met, met_values;
  typename Met::LoadRows rows;
  typename Met::LoadColumns columns;
  typename MetV::LoadRows rows_v;
  typename MetV::LoadColumns columns_v;
  MetRange seen, some, all;  // by the lane's token, by some and by all of the wave
  MetRange walked;           // by some of the workgroup, from a tile on
  int heads;
  Scores scores_of;
  DropoutKey dropout = {};
  int kept = 0, dropped_head = 0;
  Chunk own[kSteps], own_values[kStepsV];
  Sum sums[kHeadBlocks], sums_v[kHeadBlocksV];
};

template <class C>
class MfmaBackward {
  struct Plain : C {
    static constexpr int kTileM = kMfmaPlainRows, kTileN = kHipDirectKeys;
    static constexpr bool kJoinsSums = C::kBias != FmhaBias::elementwise;
  };

 public:
  static __device__ __forceinline__ void prepare(const MfmaBackwardArguments& a) {
    DirectBackward<Plain>::prepare(a.general);
  }
  static __device__ __forceinline__ void run(const MfmaBackwardArguments&) {
    MfmaGradients<C, true>::run();
  }
  static __device__ __forceinline__ void dq(const MfmaBackwardArguments&) {
    MfmaGradients<C, false>::run();
  }
  static __device__ __forceinline__ void dbias(const MfmaBackwardArguments& a) {
    DirectBackward<Plain>::dbias(a.general);
  }
};

}  // namespace tessera::device
