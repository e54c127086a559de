// Sizes of attention's gradients by MFMA that the device and the host both compute. Plain functions
// on numbers.
#pragma once

namespace tessera::device {

struct MfmaBackwardShape {
  int waves;         // of a workgroup, each with 32 tokens of its own
  int met;           // tokens of a tile that they meet
  int head, head_v;  // the longest ones
  bool copies;       // whether tiles are copied to LDS and not moved by registers
  bool reads_bias = false;
  bool dropout = false;
};

inline constexpr int kMfmaOwnTokens = 32;  // of a wave
// Queries and keys of a workgroup of the steps that general kernels do.
inline constexpr int kMfmaPlainRows = 16;

constexpr int mfma_backward_threads(const MfmaBackwardShape& s) { return 64 * s.waves; }
constexpr int mfma_backward_rows(const MfmaBackwardShape& s) { return kMfmaOwnTokens * s.waves; }

// LDS of a workgroup: tiles of both kinds as rows and as columns, which dq needs of keys alone; or
// what the waves stage afterwards.
constexpr int mfma_backward_lds_bytes(const MfmaBackwardShape& s, bool of_keys) {
  const int heads = s.head + s.head_v;
  const int columns = of_keys ? heads : s.head;
  const int tiles = s.met * (heads + columns) * 2 * (s.copies ? 2 : 1);
  const int longest = s.head > s.head_v || !of_keys ? s.head : s.head_v;
  const int staged = mfma_backward_rows(s) * longest * 2;
  return tiles > staged ? tiles : staged;
}

// Registers that a lane needs, roughly: its own token's elements, sums, scores and their gradients,
// the operands made of them, tiles under way, what is known of queries, biases, and the rest.
constexpr int mfma_backward_registers(const MfmaBackwardShape& s, bool of_keys) {
  const int heads = s.head + s.head_v;
  const int own = heads / 4, sums = of_keys ? heads / 2 : s.head / 2;
  const int scores = s.met, operands = of_keys ? s.met / 2 : s.met / 4;
  const int moved = of_keys ? 2 * heads : heads + s.head;
  const int under_way = s.copies ? 0 : s.met * moved * 2 / (4 * mfma_backward_threads(s));
  const int of_queries = of_keys ? s.met : 3;
  const int biases = s.reads_bias ? s.met / 2 + 12 : 0;
  return own + sums + scores + operands + under_way + of_queries + biases + (s.dropout ? 24 : 0) +
         40;
}

// Waves that share a SIMD, for the compiler.
constexpr int mfma_backward_waves(const MfmaBackwardShape& s, bool of_keys) {
  return mfma_backward_registers(s, of_keys) <= 230 ? 2 : 1;
}

}  // namespace tessera::device
