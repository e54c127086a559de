// Weights and the gradients of scores, of 32 tokens that a wave has and a tile of tokens that they
// meet. A lane has one token of its own, and of the tile those of which Mfma leaves it sums.
//
// The first product becomes weights, and the second one, of dout and values, becomes the gradient
// of the first one.
#pragma once

#include "tessera/device/hip/fmha/gradient_place.h"
#include "tessera/device/hip/fmha/kept_weights.h"
#include "tessera/device/hip/fmha/score_bends.h"

namespace tessera::device {

// gfx90a multiplies subnormal numbers of fp16 as zeros. Weights are 2^14 times as large there and
// gradients 2^10 times, as long as all of a wave are small enough.
#if defined(__gfx90a__)
template <class In>
inline constexpr bool kSubnormalsVanish = kSame<In, fp16>;
#else
template <class In>
inline constexpr bool kSubnormalsVanish = false;
#endif
inline constexpr float kRaisedPower = 14, kRaisedWeight = 0x1p14F, kRaisedGradient = 0x1p10F;
inline constexpr float kLargestRaised = 0x1p15F;

template <class C, bool kOfKeys>
class GradientScores {
 public:
  using In = typename C::In;
  using Bias = typename C::Bias;
  using Sum = Vec<float, 16>;
  using Place = GradientPlace<C, kOfKeys>;
  static constexpr int kBlocks = C::kTileN / 32, kQuads = kBlocks * 4;
  static constexpr bool kReads = C::kBias == FmhaBias::elementwise;
  static constexpr bool kAlibi = C::kBias == FmhaBias::alibi;
  static constexpr bool kBends = C::kSoftCap || kReads || kAlibi;
  static constexpr bool kRaises = kSubnormalsVanish<In>;
  static constexpr bool kRaisesWeights = kRaises && kOfKeys;

  // What is known of a tile's queries where they are met, and biases: of all quads of the tile, or
  // of two at a time where there would be too many registers.
  static constexpr int kStagedQuads = kOfKeys && kReads ? 2 : kQuads;
  struct Staged {
    Float4 lse[kOfKeys ? kStagedQuads : 1], delta[kOfKeys ? kStagedQuads : 1];
    Float4 log_sum[kOfKeys && kReads ? kStagedQuads : 1];
    u32 biases[kReads ? kStagedQuads * 4 : 1];
    float slope;
  };

  __device__ __forceinline__ void begin(const Place& place, int own_token, int lane_group) {
    const FmhaArguments& g = Place::forward();
    own = own_token < place.own_tokens() ? own_token : place.own_tokens() - 1;
    group = lane_group;
    const int offset = static_cast<int>(place.sequence.keys - place.sequence.queries);
    distance = own + (kOfKeys ? -offset : offset) - 4 * group;
    factor = of_lane(g.scale * kLog2OfE);
    scale = of_lane(g.scale);
    if constexpr (C::kSoftCap) {
      cap = of_lane(g.soft_cap);
      inverse_cap = of_lane(reciprocal(g.soft_cap));
    }
    if constexpr (C::kDropout) kept_scale = of_lane(dropout_scale(g));
    begin_queries(place);
    if constexpr (kReads) begin_biases(place);
    if constexpr (kAlibi) {
      slopes = uniform(bits<u64>(g.slopes + place.batch * g.slope_stride + place.head));
      if constexpr (!kOfKeys) own_slope = slope_of(0);
    }
  }

  // Asks for what weigh() needs of a tile from quad `quad` on.
  __device__ __forceinline__ void fetch(Staged& to, const Turn& turn, int quad) const {
    const int first = turn.met + quad * 8 + 4 * group;
    if constexpr (kOfKeys) fetch_queries(to, first, turn.head);
    if constexpr (kReads) fetch_biases(to, first, turn.head);
    if constexpr (kAlibi) to.slope = kOfKeys ? slope_of(turn.head) : own_slope;
  }

  // The weights and gradients of block `b` of the tile.
  template <class Drawn>
  __device__ __forceinline__ void weigh(Staged& of, const Turn& turn, int b, Drawn& drawn,
                                        Sum& scores, Sum& dweights) const {
    drawn.draw(b);
    const float from = static_cast<float>(distance - turn.met - b * 32);
#pragma unroll
    for (int s = 0; s < 16; ++s) {
      const int quad = b * 4 + s / 4, number = quad % kStagedQuads * 4 + s % 4;
      if (s % 4 == 0 && quad > 0 && quad % kStagedQuads == 0) fetch(of, turn, quad);
      float slope = 1;
      const float weight = exp2_fast(
          power_of(scores[s], of, from - static_cast<float>(s / 4 * 8 + s % 4), number, slope));
      float dweight = dweights[s];
      if constexpr (C::kDropout) dweight = drawn.kept(dweight * kept_scale, s);
      float gradient = weight * (dweight - delta_of(of, number));
      if constexpr (C::kSoftCap) gradient *= slope;
      if constexpr (kRaises) gradient *= raised;
      dweights[s] = gradient;
      scores[s] = drawn.kept(weight, s);
    }
  }

  // Takes what is not seen away; `met` is the block's first token. Bits of a word stand for tokens:
  // comparisons would take more scalar registers than there are.
  static __device__ __forceinline__ void hide(const MetRange& seen, int met, int group, Sum& scores,
                                              Sum& dweights) {
    const int from = met + 4 * group;
    u32 tokens = first_tokens(seen.end - from) & ~first_tokens(seen.begin - from);
    if constexpr (C::kMasked && !kOfKeys) {
      tokens |= first_tokens((seen.sink < seen.end ? seen.sink : seen.end) - from);
    }
#pragma unroll
    for (int s = 0; s < 16; ++s) {
      const int at = s / 4 * 8 + s % 4;
      scores[s] = where_set(scores[s], tokens, at);
      dweights[s] = where_set(dweights[s], tokens, at);
    }
  }

  // Weights, or gradients, that are too large to be raised are put down, and so are `sums` of
  // earlier ones.
  template <int kCount>
  __device__ __forceinline__ void lower_weights(Sum (&weights)[kBlocks], Sum (&sums)[kCount]) {
    if (are_weights_lowered || are_small(weights)) return;
    are_weights_lowered = true;
    weight_power = 0;
    raised *= kRaisedWeight;
    multiply(weights, 1 / kRaisedWeight);
    multiply(sums, 1 / kRaisedWeight);
  }
  template <int kCount>
  __device__ __forceinline__ void lower_gradients(Sum (&gradients)[kBlocks], Sum (&sums)[kCount]) {
    if (are_gradients_lowered || are_small(gradients)) return;
    are_gradients_lowered = true;
    raised *= 1 / kRaisedGradient;
    multiply(gradients, 1 / kRaisedGradient);
    multiply(sums, 1 / kRaisedGradient);
  }
  // What sums of gradients and of weights are multiplied with in the end.
  __device__ __forceinline__ float gradient_factor() const {
    return kRaises && !are_gradients_lowered ? scale * (1 / kRaisedGradient) : scale;
  }
  __device__ __forceinline__ float weight_factor() const {
    const float back = kRaisesWeights && !are_weights_lowered ? 1 / kRaisedWeight : 1.0F;
    return C::kDropout ? kept_scale * back : back;
  }

  // A block as second operands, 16 tokens a chunk.
  static __device__ __forceinline__ void round(const Sum& from, Chunk* to) {
#pragma unroll
    for (int s = 0; s < 16; s += 2) {
      to[s / 8][s % 8 / 2] = round_pair<In>(from[s], from[s + 1]);
    }
  }

 private:
  // A number in a vector register: the loop has no scalar ones for it.
  static __device__ __forceinline__ float of_lane(float x) {
    return bits<float>(not_ahead(bits<int>(x)));
  }

  // Whether no lane of the wave has a number that is too large to be raised.
  static __device__ __forceinline__ bool are_small(const Sum (&numbers)[kBlocks]) {
    float most = 0;
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) {
#pragma unroll
      for (int s = 0; s < 16; ++s) most = __builtin_fmaxf(most, __builtin_fabsf(numbers[b][s]));
    }
    return __builtin_amdgcn_ballot_w64(!(most <= kLargestRaised)) == 0;
  }
  template <int kCount>
  static __device__ __forceinline__ void multiply(Sum (&numbers)[kCount], float by) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) numbers[i] *= by;
  }
  // Bits of so many tokens from the first one of 32 on.
  static __device__ __forceinline__ u32 first_tokens(int count) {
    const int in_word = count < 0 ? 0 : count < 32 ? count : 32;
    return static_cast<u32>((u64{1} << in_word) - 1);
  }

  // ---- queries ----

  __device__ __forceinline__ void begin_queries(const Place& place) {
    const MfmaBackwardArguments& all = Place::arguments();
    const FmhaArguments& g = all.general.backward.forward;
    char* const floats = static_cast<char*>(all.general.workspace) + kHipBackwardCounters;
    const QueryRows rows = rows_in(reinterpret_cast<float*>(floats), g, C::kLengths);
    const i64 first =
        row_of_query(g, C::kLengths, place.batch, place.head, place.sequence.first_query);
    if constexpr (kOfKeys) {
      lse_address = uniform(bits<u64>(rows.lse + first));
      query_bytes = static_cast<int>((place.sequence.queries + 3) / 4 * 16);
    } else {
      own_lse = usable(load_element(rows.lse + first + own));
      own_log_sum = kReads ? load_element(rows.log_sum + first + own) : 0.0F;
      own_delta = load_element(rows.delta + first + own);
    }
  }
  // A query whose keys are all hidden by a bias of minus infinity has no weights.
  static __device__ __forceinline__ float usable(float lse) {
    return lse == minus_infinity() ? -lse : lse;
  }
  // Loads of four behind the last query may bring anything; hide() takes it away.
  __device__ __forceinline__ void fetch_queries(Staged& to, int first, int more_heads) const {
    const FmhaArguments& g = Place::forward();
    const u64 head_step = static_cast<u64>(queries_of_head(g, C::kLengths)) * 4;
    const u64 array_step = head_step * static_cast<u64>(g.heads);
    const u64 lse = lse_address + static_cast<u64>(more_heads) * head_step;
    const auto fetch_four = [&](u64 address, Float4(&quads)[kStagedQuads]) {
      const Chunk buffer = make_buffer(address, query_bytes);
#pragma unroll
      for (int i = 0; i < kStagedQuads; ++i) {
        quads[i] = bits<Float4>(raw_buffer_load_16(buffer, first * 4 + i * 32, 0, 0));
      }
    };
    fetch_four(lse, to.lse);
    fetch_four(lse + 2 * array_step, to.delta);
    if constexpr (kReads) fetch_four(lse + array_step, to.log_sum);
  }
  __device__ __forceinline__ float delta_of(const Staged& of, int number) const {
    return kOfKeys ? of.delta[number / 4][number % 4] : own_delta;
  }

  // ---- biases ----

  __device__ __forceinline__ void begin_biases(const Place& place) {
    const FmhaArguments& g = Place::forward();
    const int own_side = kOfKeys ? 3 : 2, met_side = kOfKeys ? 2 : 3;
    const auto* const first = static_cast<const Bias*>(g.bias) + place.batch * g.bias_stride[0] +
                              place.head * g.bias_stride[1];
    bias = bits<u64>(first + own * g.bias_stride[own_side]);
    bias_step = not_ahead(static_cast<int>(g.bias_stride[met_side]));
    last_met =
        not_ahead(static_cast<int>(kOfKeys ? place.sequence.queries : place.sequence.keys) - 1);
  }
  __device__ __forceinline__ void fetch_biases(Staged& to, int first, int more_heads) const {
    auto from = (Global<WordBits<Bias>>)(bias);
    if constexpr (kOfKeys) from += more_heads * Place::forward().bias_stride[1];
#pragma unroll
    for (int i = 0; i < kStagedQuads * 4; ++i) {
      const int at = first + i / 4 * 8 + i % 4;
      to.biases[i] = from[i64{at < last_met ? at : last_met} * bias_step];
    }
  }
  __device__ __forceinline__ float slope_of(int more_heads) const {
    return ((Global<float>)(slopes))[more_heads];
  }

  // ---- scores ----

  // The logarithm of the weight of a product, and the slope of its soft cap.
  __device__ __forceinline__ float power_of(float product, const Staged& of, float apart,
                                            int number, float& slope) const {
    const float lse = kOfKeys ? of.lse[number / 4][number % 4] : own_lse;
    const float more = kRaisesWeights ? weight_power : 0.0F;
    if constexpr (!kBends) return product * factor + (more - lse * kLog2OfE);
    float score = __builtin_fmaf(product, scale, 0.0F);
    if constexpr (C::kSoftCap) {
      const float share = tanh_fast(score * inverse_cap);
      score = share * cap;
      slope = 1.0F - share * share;
    }
    if constexpr (kAlibi) {
      score -= of.slope * __builtin_fabsf(apart);
    }
    if constexpr (!kReads) return (score - lse) * kLog2OfE + more;
    score += float_of_bits<Bias>(of.biases[number]);
    const float log_sum = kOfKeys ? of.log_sum[number / 4][number % 4] : own_log_sum;
    const float less = score - (kOfKeys ? usable(lse) : lse);
    return (less - log_sum) * kLog2OfE + more;
  }

  int own = 0, group = 0, distance = 0;
  float factor = 0, scale = 0;
  float cap = 0, inverse_cap = 0, kept_scale = 1, own_slope = 0;
  float own_lse = 0, own_log_sum = 0, own_delta = 0;
  u64 lse_address = 0;
  int query_bytes = 0;
  u64 slopes = 0, bias = 0;
  int bias_step = 0, last_met = 0;
  float weight_power = kRaisedPower;
  float raised = kRaisesWeights ? kRaisedGradient / kRaisedWeight : kRaisedGradient;
  bool are_weights_lowered = false, are_gradients_lowered = false;
};

}  // namespace tessera::device
