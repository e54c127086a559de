// Scales of blocks: where the scale of an element lies, and what it is. See GemmScale in
// src/tessera/spec/gemm_problem.h.
#pragma once

#include "tessera/device/gemm/groups.h"

namespace tessera::device {

// The scales of an operand, from the element on that its matrix begins with. Strides count scales.
struct ScaleView {
  const void* data;
  i64 stride_rows, stride_k;  // from one block to the next; quads: along k from four to four
  i64 batch_stride;
  i64 first_row, first_k;   // of the matrix, counted as blocks are
  int block_rows, block_k;  // block_k is 0 where the operand has no scales
  int is_byte;              // e8m0 instead of fp32
  int quads;
};

// Scales of A and of B. Each launch of kernels with scales gets them besides its groups, which are
// of Grouping::none in a launch without groups.
struct ScaledArguments {
  GroupArguments groups;
  ScaleView a, b;
};

inline bool has_scales(const ScaleView& v) { return v.block_k != 0; }

// 2^(byte - 127); 255 is NaN. 2^-127 is a subnormal float.
inline float power_of(unsigned char byte) {
  const unsigned bits = byte == 0     ? 0x00400000U
                        : byte == 255 ? 0x7fc00000U
                                      : static_cast<unsigned>(byte) << 23;
  float value = 0;
  __builtin_memcpy(&value, &bits, sizeof(value));
  return value;
}

// How far the scales at k lie from those at the first block, and a scale by its place.
inline i64 scale_offset(const ScaleView& v, i64 k) {
  const i64 block = (v.first_k + k) / v.block_k;
  return v.quads != 0 ? block / 4 * v.stride_k + block % 4 : block * v.stride_k;
}
inline float scale_number(const ScaleView& v, i64 at) {
  if (v.is_byte != 0) return power_of(static_cast<const unsigned char*>(v.data)[at]);
  return static_cast<const float*>(v.data)[at];
}

// The scale of a row (of B: a column) at k, both counted from the matrix's first element.
inline float scale_at(const ScaleView& v, i64 row, i64 k) {
  const i64 block = (v.first_row + row) / v.block_rows;
  return scale_number(v, block * v.stride_rows + scale_offset(v, k));
}

// The first k behind `k` that has another scale.
inline i64 end_of_block(const ScaleView& v, i64 k) {
  return ((v.first_k + k) / v.block_k + 1) * v.block_k - v.first_k;
}

// The scales of a batch's matrix, or of a group's.
inline ScaleView scales_of(ScaleView v, i64 matrix) {
  if (has_scales(v)) v.data = moved(v.data, matrix * v.batch_stride * (v.is_byte != 0 ? 1 : 4));
  return v;
}

// The scales of a part of a group. Blocks are counted from the beginning of the operand, not of the
// part.
inline ScaleView a_scales_of(const ScaledArguments& x, const GroupPart& part) {
  ScaleView v = scales_of(x.a, part.group);
  (x.groups.grouping == Grouping::along_k ? v.first_k : v.first_row) += part.begin;
  return v;
}
inline ScaleView b_scales_of(const ScaledArguments& x, const GroupPart& part) {
  ScaleView v = scales_of(x.b, part.group);
  if (x.groups.grouping == Grouping::along_k) v.first_k += part.begin;
  return v;
}

}  // namespace tessera::device
