// What a flash kernel of attention keeps in shared memory and in registers, for host and device.
#pragma once

#include "tessera/device/cuda/tile_sizes.h"

namespace tessera::device {

struct FlashShape {
  int consumers;     // warpgroups that multiply, with 64 queries each
  int keys;          // of a block
  int hdim, hdim_v;  // the longest heads, whole slabs of 64 elements
  int stages;        // of the ring of blocks of keys and of values
  bool bends;        // whether a score is more than a product times the scale, or may be dropped
  bool converts;     // whether elements have 8 bits, and v's are converted to 16
  bool has_factors;  // whether blocks of keys have factors
  bool by_threads;   // whether threads store results, which do not have 16 bits
  bool paged;        // whether keys and values lie in pages, which a whole warp fetches
};

// Weights in bf16 are smaller by this power of 2, see flash_rows.h: some vanish that are above the
// least number of fp32.
inline constexpr int kFlashShift = 32;
inline constexpr int kFlashSlab = 64;            // elements of 16 bits of a swizzled line
inline constexpr int kFlashRaws = 2;             // blocks of values that wait for conversion
inline constexpr int kFlashStoredRows = 16;      // rows of the output that a warp stores at a time
inline constexpr int kFlashPlaceBytes = 32;      // what a consumer is told of a tile
inline constexpr int kFlashSmallRegisters = 32;  // of a consumer's thread, besides the arrays
inline constexpr int kFlashBendRegisters = 16;   // more where scores are more than products
inline constexpr int kFlashQueryRegisters = 8;   // more where it has the queries, and where these
inline constexpr int kFlashByteRegisters = 24;   // have 8 bits
inline constexpr int kFlashOtherRegisters = 8;   // more for factors, and for results by threads

// Registers that the machine has, of 64 Ki for all threads: of a consumer's thread, and of one of
// the group that fetches, and that converts where values have 8 bits.
constexpr int flash_registers(int consumers) { return consumers == 3 ? 160 : 240; }
constexpr int flash_registers(const FlashShape& s) {
  if (s.converts) return s.hdim_v == 256 || (s.paged && s.hdim == 192) ? 232 : 224;
  return s.paged && s.consumers == 2 ? 232 : flash_registers(s.consumers);
}
constexpr int flash_fetch_registers(int consumers) { return consumers == 3 ? 32 : 24; }
constexpr int flash_fetch_registers(const FlashShape& s) {
  if (s.converts) return s.hdim_v == 256 || (s.paged && s.hdim == 192) ? 40 : 56;
  return s.paged && s.consumers == 2 ? 40 : flash_fetch_registers(s.consumers);
}

// Whether a block has so many registers. It starts with an equal share for each thread, a multiple
// of 8, and a consumer that asks for more than the others have given back waits for ever: two
// consumers and the group that fetches share 504, not 512.
constexpr bool flash_registers_suffice(int consumers, int of_consumer, int of_fetch) {
  constexpr int kAll = 64 * 1024 / kGroupThreads;
  const int groups = consumers + 1;
  return consumers * of_consumer + of_fetch <= kAll / groups / 8 * 8 * groups;
}

// Registers of a consumer's thread: sums, scores, weights, and the queries if these fit, which
// spares the tensor cores reading them again for each block of keys.
constexpr int flash_registers_used(const FlashShape& s, bool with_queries) {
  return s.hdim_v / 2 + s.keys / 2 + s.keys / 4 + (s.bends ? kFlashBendRegisters : 0) +
         ((s.has_factors ? 1 : 0) + (s.by_threads ? 1 : 0)) * kFlashOtherRegisters +
         (with_queries
              ? s.converts ? s.hdim / 8 + kFlashByteRegisters : s.hdim / 4 + kFlashQueryRegisters
              : 0) +
         kFlashSmallRegisters;
}

// Short heads have room for more buffers.
struct FlashSizes {
  int query_buffers;                        // of a consumer
  int out_slabs;                            // slabs of the output that a consumer stages at a time
  bool queries_in_registers;                // else the tensor cores read them from shared memory
  int query_bytes, stage_bytes, out_bytes;  // of a buffer, of a stage, of a consumer
  int raw_bytes;                            // of a block of values of 8 bits
  // Where the stages, the staging of outputs, the values of 8 bits, the tiles' places, the flags,
  // what is said of values of 8 bits, and the barriers begin; the queries begin at 0.
  int stages, out, raws, places, flags, states, barriers;
  int bytes;
};

constexpr FlashSizes flash_sizes(const FlashShape& s) {
  FlashSizes z{};
  z.query_buffers = s.hdim <= 128 ? 2 : 1;
  z.out_slabs = s.hdim == 128 && s.hdim_v == 128 ? 2 : 1;
  z.queries_in_registers = !s.bends && flash_registers_used(s, true) <= flash_registers(s);
  const int token = rounded_up(s.hdim * (s.converts ? 1 : 2), kLineBytes);  // of a query or a key
  z.query_bytes = kWgmmaRows * token;
  z.stage_bytes = s.keys * (token > s.hdim_v * 2 ? token : s.hdim_v * 2);
  z.out_bytes = z.out_slabs * kWgmmaRows * kLineBytes;
  const int buffers = s.consumers * z.query_buffers;
  z.stages = buffers * z.query_bytes;
  z.out = z.stages + s.stages * z.stage_bytes;
  const int raws = s.converts ? kFlashRaws : 0;
  z.raw_bytes = s.keys * s.hdim_v;
  z.raws = z.out + s.consumers * z.out_bytes;
  z.places = z.raws + raws * z.raw_bytes;
  z.flags = z.places + buffers * kFlashPlaceBytes;
  z.states = z.flags + s.consumers * 8;
  z.barriers = z.states + raws * 8;
  z.bytes = z.barriers + 2 * (s.stages + buffers + raws) * 8;
  return z;
}

// The shared memory that a launch must give each block. It does not overflow for tiles that are too
// large for any machine.
constexpr long long flash_bytes(const FlashShape& s) {
  const FlashSizes one = flash_sizes(
      {s.consumers, s.keys, s.hdim, s.hdim_v, 0, false, s.converts, false, false, false});
  return one.bytes + static_cast<long long>(s.stages) * (one.stage_bytes + 2 * 8);
}

// Threads of a block: the consumers and a warpgroup of which one thread fetches, and three warps
// convert where values have 8 bits.
constexpr int flash_threads(int consumers) { return (consumers + 1) * kGroupThreads; }

}  // namespace tessera::device
