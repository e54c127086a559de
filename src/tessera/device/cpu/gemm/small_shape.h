// The description of a kernel for short calls for its driver.
#pragma once

#include "tessera/device/cpu/gemm/operands.h"
#include "tessera/device/cpu/small_block.h"
#include "tessera/device/cpu/small_dots.h"
#include "tessera/device/cpu/small_rows.h"
#include "tessera/device/cpu/small_sizes.h"

namespace tessera::device {

// The sizes of a kernel, and the functions that depend on them, on the operands or on the output.
// Kernels of one kind share one driver, whatever their operands.
struct SmallShape {
  int element, per_word;  // bytes of an element of A and B, elements of a word
  bool k_contiguous;      // of B
  bool one_thread;
  ElementSizes sizes;
  bool sums_are_output;  // when alpha is 1 and beta is 0
  bool narrows;          // whether sums then become the output as bf16
  Finish<GemmArguments> finish;
  // What the sums of each row of A start from, where the Math is biased.
  void (*row_sums)(const u8* a, i64 row, i64 rows, i64 bytes, int* sums);

  // Register blocks: of the most vectors of a panel. The first function reads B as it lies. With
  // panel_rows > 0 it keeps the words of a panel for as many rows, which the second one reads.
  int vectors;
  i64 panel_rows;
  struct Blocks {
    int rows;
    SmallMultiply multiply;
    int words;  // of k that a step takes
    int kept_rows;
    SmallMultiply multiply_kept;
    int kept_words;
  };
  Blocks blocks[kSmallVectors];  // of 1, 2, ... vectors

  // Dot products of so many rows and columns. Kernels of 3 rows have products of 2 rows too.
  int rows, columns;
  SmallMultiplyDots dots, dots_of_two;

  // Rows of B in order.
  SmallAddRows strip, axpy;
};

}  // namespace tessera::device
