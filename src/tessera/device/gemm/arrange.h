// Operands of contractions and with several sources: how they are arranged as matrices in the
// workspace before a product, and the result is spread after it.
#pragma once

#include "tessera/device/integers.h"

namespace tessera::device {

inline constexpr int kArrangedRank = 6;     // dimensions of an operand
inline constexpr int kArrangedSources = 4;  // of an operand
inline constexpr int kArrangeJobs = 8;
inline constexpr int kArrangeMore = 6;
// Where ArrangeArguments begin, behind the arguments of the product's kernel.
inline constexpr int kArrangeOffset = 1536;
inline constexpr int kArrangeThreads = 256;  // of a block, on GPUs

// What elements are while their sources are merged.
enum class MergedType : int { fp32, fp16, bf16 };

// An operand and its matrix in the workspace. Sizes and strides begin with the dimension along
// which the matrix is contiguous; sizes behind `rank` are 1. Strides count elements.
struct ArrangeJob {
  void* tensor;
  i64 matrix;  // in bytes from the workspace's address
  i64 elements;
  i64 sizes[kArrangedRank];
  i64 strides[kArrangedRank];  // of the tensor
  i64 dense[kArrangedRank];    // of the matrix
  int rank;
  int bytes;       // of an element
  int sources;     // 1: elements are moved as they are
  int first_more;  // of the sources behind the first, among ArrangeArguments::more
  int multiplies;  // whether sources are multiplied; otherwise they are added
  MergedType type;
  int operand;  // of GemmArguments: a, b, c, d0 to d3, out
  int unused;
};

struct ArrangeMore {
  const void* tensor;
  i64 strides[kArrangedRank];
};

struct ArrangeArguments {
  void* workspace;            // GPUs
  i64 bytes;                  // of all matrices; CPUs
  int gathers;                // jobs before the product
  int spreads;                // jobs behind them, which run after it
  int blocks, spread_blocks;  // HIP: of the steps before and behind the product
  ArrangeJob jobs[kArrangeJobs];
  ArrangeMore more[kArrangeMore];
};

// The argument block of kernels with arranged operands.
struct alignas(64) ArrangeBlock {
  char product[kArrangeOffset];
  ArrangeArguments arrange;
};

// An index along each dimension. Fields and not an array, because a compiler may keep an array in
// memory.
struct ArrangePlace {
  i64 at0, at1, at2, at3, at4, at5;

  constexpr i64 in(const i64 (&strides)[kArrangedRank]) const {
    return at0 * strides[0] + at1 * strides[1] + at2 * strides[2] + at3 * strides[3] +
           at4 * strides[4] + at5 * strides[5];
  }
};
static_assert(kArrangedRank == 6);

// Divides an index by the size of a dimension, and returns the rest. Divisions of 32 bits take a
// fraction of the time.
constexpr i64 arrange_step(const ArrangeJob& job, int dim, i64& index) {
  if (dim >= job.rank) return 0;
  const i64 size = job.sizes[dim];
  const i64 whole =
      job.elements <= 0xffffffffLL
          ? static_cast<i64>(static_cast<unsigned>(index) / static_cast<unsigned>(size))
          : index / size;
  const i64 rest = index - whole * size;
  index = whole;
  return rest;
}

// Where an element lies that has so many before it in the matrix.
constexpr ArrangePlace arrange_place(const ArrangeJob& job, i64 index) {
  ArrangePlace place{};
  place.at0 = arrange_step(job, 0, index);
  place.at1 = arrange_step(job, 1, index);
  place.at2 = arrange_step(job, 2, index);
  place.at3 = arrange_step(job, 3, index);
  place.at4 = arrange_step(job, 4, index);
  place.at5 = arrange_step(job, 5, index);
  return place;
}

constexpr float merge_of(const ArrangeJob& job, float x, float y) {
  return job.multiplies != 0 ? x * y : x + y;
}

}  // namespace tessera::device
