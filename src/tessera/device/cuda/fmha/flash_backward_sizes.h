// What a flash kernel of attention's gradients keeps in shared memory and in its workspace, for
// host and device.
#pragma once

#include "tessera/device/cuda/fmha/flash_sizes.h"

namespace tessera::device {

inline constexpr int kFlashOwnKeys = 128;        // of a block, 64 for each consumer
inline constexpr int kFlashWideKeys = 64;        // of a block of long heads, of both consumers
inline constexpr int kFlashOwnConsumers = 2;     // warpgroups that multiply
inline constexpr int kFlashWarps = 8;            // of both consumers
inline constexpr int kFlashGradientBuffers = 2;  // of gradients of scores, or of weights and these
inline constexpr int kFlashPlainThreads = 256;   // of a block that prepares or converts
// Sums of dq come in parts of 64 queries by 64 elements.
inline constexpr int kFlashPartFloats = 64 * 64;

struct FlashBackwardShape {
  int keys;          // of a block
  int queries;       // that meet the keys of a block at a time
  int hdim, hdim_v;  // the longest heads of q and k, and of v: whole slabs of 64 elements
  int stages;        // of the rings of queries and of gradients of outputs
};

// What is known of a block of queries: what is subtracted from scores in powers of 2, delta, and by
// what weights are to be multiplied, of each query; and for each lane of four whether that is to be
// done.
constexpr int flash_stats_floats(int queries) { return 3 * queries + 8; }

// Parts of the sums of dq of a block of queries.
constexpr int flash_dq_parts(int queries, int hdim) {
  return queries / kWgmmaRows * (hdim / kFlashSlab);
}

// Where the parts begin; keys begin at 0.
struct FlashBackwardSizes {
  int key_bytes, value_bytes;   // of a block
  int query_bytes, dout_bytes;  // of a stage
  int gradient_bytes;           // of a buffer
  int stats_bytes;              // of a stage
  int out_bytes;                // of a warp that stores dk and dv
  int values, queries, douts, gradients, out, stats, place, barriers;
  int bytes;
};

constexpr FlashBackwardSizes flash_backward_sizes(const FlashBackwardShape& s) {
  FlashBackwardSizes z{};
  z.key_bytes = s.keys * s.hdim * 2;
  z.value_bytes = s.keys * s.hdim_v * 2;
  z.query_bytes = s.queries * s.hdim * 2;
  z.dout_bytes = s.queries * s.hdim_v * 2;
  z.gradient_bytes = s.queries * s.keys * 2;
  z.stats_bytes = flash_stats_floats(s.queries) * 4;
  z.out_bytes = kFlashStoredRows * 2 * (s.keys == kFlashWideKeys ? kFlashSlab : s.hdim);
  z.values = z.key_bytes;
  z.queries = z.values + z.value_bytes;
  z.douts = z.queries + s.stages * z.query_bytes;
  z.gradients = z.douts + s.stages * z.dout_bytes;
  z.out = z.gradients + kFlashGradientBuffers * z.gradient_bytes;
  z.stats = z.out + kFlashWarps * z.out_bytes;
  z.place = z.stats + s.stages * z.stats_bytes;
  z.barriers = z.place + kFlashPlaceBytes;
  // Full and empty: of keys, of values, of each stage of both rings; and full gradients of scores.
  z.bytes = z.barriers + (4 + 4 * s.stages + kFlashGradientBuffers) * 8;
  return z;
}

// The shared memory that a launch must give each block, which does not overflow.
constexpr long long flash_backward_bytes(const FlashBackwardShape& s) {
  const FlashBackwardSizes one = flash_backward_sizes({s.keys, s.queries, s.hdim, s.hdim_v, 0});
  return one.bytes + static_cast<long long>(s.stages) *
                         (one.query_bytes + one.dout_bytes + one.stats_bytes + 4 * 8);
}

}  // namespace tessera::device
