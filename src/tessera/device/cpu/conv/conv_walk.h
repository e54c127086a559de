// Where the taps of a filter meet an image: which source element belongs to a result's place.
#pragma once

#include "tessera/device/conv.h"
#include "tessera/device/cpu/grid.h"

namespace tessera::device {

// The line `base + i * step` in a source of `size` elements: the numbers i in [0, count) for which
// it lies inside.
inline Range inside(i64 base, i64 step, i64 size, i64 count) {
  const i64 begin = base < 0 ? blocks_of(-base, step) : 0;
  const i64 end = base < size ? blocks_of(size - base, step) : 0;
  return {smaller(begin, count), smaller(end, count)};
}

// The source places of a run of results along one dimension, for one tap.
struct Meeting {
  i64 base, step;
  Range range;  // of the results that meet the source
  bool is_empty() const { return range.begin >= range.end; }
};

// Results first + i * step for i in [0, count) of y; the source is x.
inline Meeting meet_forward(const ConvArguments& g, int dim, i64 tap, i64 first, i64 count) {
  const i64 base = first * g.stride[dim] - g.pad[dim] + tap * g.dilation[dim];
  return {base, g.stride[dim], inside(base, g.stride[dim], g.size[dim], count)};
}

// Results first + i * stride of x; the source is y. Other residues meet other taps.
inline Meeting meet_backward(const ConvArguments& g, int dim, i64 tap, i64 first, i64 count) {
  const i64 place = first + g.pad[dim] - tap * g.dilation[dim];
  if (place % g.stride[dim] != 0) return {0, 1, {0, 0}};
  const i64 base = place / g.stride[dim];
  return {base, 1, inside(base, 1, g.out_size[dim], count)};
}

// Digits of a number whose least one is the last.
template <int N>
inline void digits_of(i64 number, const i64 (&sizes)[N], i64 (&digits)[N]) {
  for (int i = N - 1; i >= 0; --i) {
    digits[i] = number % sizes[i];
    number /= sizes[i];
  }
}
template <int N>
inline i64 product_of(const i64 (&sizes)[N]) {
  i64 product = 1;
  for (const i64 size : sizes) product *= size;
  return product;
}

}  // namespace tessera::device
