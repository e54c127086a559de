// The register tile of steps 5 to 8, and packing for it. docs/ladder/05_vectors.md explains it.
#pragma once

#include <cstring>

namespace ladder {

// The widest vectors of the machine that the compiler was told of, and the tile that fills its
// registers: kRows x 2 sums, 2 vectors of B, and the elements of A.
#if defined(__AVX512F__)
constexpr int kLanes = 16, kRows = 12;  // 32 registers
#elif defined(__AVX__)
constexpr int kLanes = 8, kRows = 6;  // 16 registers
#elif defined(__aarch64__)
constexpr int kLanes = 4, kRows = 8;  // 32 registers; kRows must divide what the programs take
#else
constexpr int kLanes = 4, kRows = 6;  // 16 registers
#endif
constexpr int kColumns = 2 * kLanes;

// GCC and Clang compile operators on this type to vector instructions, on any machine.
typedef float Vector __attribute__((vector_size(kLanes * sizeof(float))));

inline Vector load(const float* from) {
  Vector v;
  std::memcpy(&v, from, sizeof v);
  return v;
}
inline void store(float* to, Vector v) { std::memcpy(to, &v, sizeof v); }

// A panel of kRows rows of A: for each p the elements of a column lie side by side. Only
// `rows` of its rows are there; zeros take the place of the others.
inline void pack_a(const float* a, int ld, int rows, int k, float* packed) {
  if (rows < kRows) std::memset(packed, 0, sizeof(float) * kRows * k);
  for (int r = 0; r < rows; ++r) {
    for (int p = 0; p < k; ++p) packed[p * kRows + r] = a[r * ld + p];
  }
}

// A panel of kColumns columns of B, of which `columns` are there.
inline void pack_b(const float* b, int ld, int columns, int k, float* packed) {
  for (int p = 0; p < k; ++p, b += ld, packed += kColumns) {
    if (columns == kColumns) {
      std::memcpy(packed, b, sizeof(float) * kColumns);
    } else {
      for (int c = 0; c < kColumns; ++c) packed[c] = c < columns ? b[c] : 0.0F;
    }
  }
}

// out = (add ? out : 0) + the product of two packed panels. The sums are in registers throughout.
inline void tile(int k, const float* a, const float* b, float* out, int ld, bool add) {
  Vector sums[kRows][2] = {};
  for (int p = 0; p < k; ++p, a += kRows, b += kColumns) {
    const Vector b0 = load(b);
    const Vector b1 = load(b + kLanes);
#pragma GCC unroll 12
    for (int r = 0; r < kRows; ++r) {
      sums[r][0] += a[r] * b0;
      sums[r][1] += a[r] * b1;
    }
  }
#pragma GCC unroll 12
  for (int r = 0; r < kRows; ++r) {
    float* row = out + r * ld;
    store(row, add ? load(row) + sums[r][0] : sums[r][0]);
    store(row + kLanes, add ? load(row + kLanes) + sums[r][1] : sums[r][1]);
  }
}

}  // namespace ladder
