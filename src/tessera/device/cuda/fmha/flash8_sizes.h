// What a flash kernel of attention with products of 8 bits keeps in shared memory and in registers,
// for host and device.
#pragma once

#include "tessera/device/cuda/fmha/flash_sizes.h"

namespace tessera::device {

struct Flash8Shape {
  int consumers;     // warpgroups that multiply, with 64 queries each
  int keys;          // of a block
  int hdim, hdim_v;  // the longest heads
  int stages;        // of the ring of blocks of keys
  int between;       // blocks of keys between two sums in fp32; 0: the tensor cores add up all
  bool has_factors;  // whether blocks of keys have factors
  bool by_threads;   // whether threads store results, which do not have 16 bits
};

inline constexpr int kFlash8Turned = 2;   // blocks of values whose keys are neighbours
inline constexpr int kFlash8Turners = 3;  // warps that turn values

// Registers of a consumer's thread, and of one of the group that fetches and turns.
constexpr int flash8_registers(const Flash8Shape& s) {
  if (s.consumers == 3) return 160;
  return s.hdim_v == 256 ? 232 : 224;
}
constexpr int flash8_fetch_registers(const Flash8Shape& s) {
  if (s.consumers == 3) return 32;
  return s.hdim_v == 256 ? 40 : 56;
}

// Registers of a consumer's thread: sums, scores, weights, and the queries if these fit.
constexpr int flash8_registers_used(const Flash8Shape& s, bool with_queries) {
  return s.hdim_v / 2 + s.keys / 2 + s.keys / 8 +
         ((s.has_factors ? 1 : 0) + (s.by_threads ? 1 : 0)) * kFlashOtherRegisters +
         (with_queries ? s.hdim / 8 + kFlashByteRegisters : 0) + kFlashSmallRegisters;
}

// Bytes of a line of turned values, one element's neighbouring keys: so many that none is empty.
constexpr int flash8_line(int keys) { return keys % kLineBytes == 0 ? kLineBytes : 32; }

struct Flash8Sizes {
  int query_buffers;          // of a consumer
  int raw_stages;             // blocks of values as they were loaded
  int out_slabs;              // slabs of the output that a consumer stages at a time
  int sum_size;               // bytes of a sum in shared memory
  bool queries_in_registers;  // else the tensor cores read them from shared memory
  int query_bytes, key_bytes, raw_bytes, turned_bytes, sum_bytes;
  // Where these begin; the queries begin at 0. Sums share their place with the staging of outputs.
  int keys, raws, turned, sums, places, flags, states, barriers;
  int bytes;
};

constexpr Flash8Sizes flash8_sizes(const Flash8Shape& s) {
  Flash8Sizes z{};
  const bool is_wide = s.hdim_v > 128;
  z.query_buffers = s.hdim <= 128 ? 2 : 1;
  z.raw_stages = is_wide ? 1 : 2;
  z.out_slabs = s.hdim_v >= 128 ? 2 : 1;
  // A second level in bf16 costs half the time of one in fp32, and its roundings are far below what
  // the first level cuts off; sums of 256 columns in fp32 would fill more than half of the memory.
  z.sum_size = s.hdim_v >= 128 ? 2 : 4;
  z.queries_in_registers = s.hdim <= 128 && flash8_registers_used(s, true) <= flash8_registers(s);
  const int line = rounded_up(s.hdim, kLineBytes);  // of a query or a key
  z.query_bytes = kWgmmaRows * line;
  z.key_bytes = s.keys * line;
  z.raw_bytes = s.keys * rounded_up(s.hdim_v, kLineBytes);
  z.turned_bytes = rounded_up(s.keys, flash8_line(s.keys)) * s.hdim_v;
  const int staging = z.out_slabs * kWgmmaRows * kLineBytes;
  const int sums = s.between > 0 ? kWgmmaRows * s.hdim_v * z.sum_size : 0;
  z.sum_bytes = sums > staging ? sums : staging;
  const int buffers = s.consumers * z.query_buffers;
  z.keys = buffers * z.query_bytes;
  z.raws = z.keys + s.stages * z.key_bytes;
  z.turned = z.raws + z.raw_stages * z.raw_bytes;
  z.sums = z.turned + kFlash8Turned * z.turned_bytes;
  z.places = z.sums + s.consumers * z.sum_bytes;
  z.flags = z.places + buffers * kFlashPlaceBytes;
  z.states = z.flags + s.consumers * 8;
  z.barriers = z.states + z.raw_stages * 8;
  z.bytes = z.barriers + 2 * (s.stages + buffers + z.raw_stages + kFlash8Turned) * 8;
  return z;
}

// The shared memory that a launch must give each block. It does not overflow for tiles that are too
// large for any machine.
constexpr long long flash8_bytes(const Flash8Shape& s) {
  Flash8Shape none = s;
  none.stages = 0;
  const Flash8Sizes one = flash8_sizes(none);
  return one.bytes + static_cast<long long>(s.stages) * (one.key_bytes + 2 * 8);
}

}  // namespace tessera::device
