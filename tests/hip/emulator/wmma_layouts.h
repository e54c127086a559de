// Where elements of the matrices of WMMA lie, as AMD's matrix instruction calculator
// (ROCm/amd_matrix_instruction_calculator, version of 2025) answers for waves of 32 lanes. On
// gfx1100 it names a second lane for each element of A and B, 16 lanes further.
#pragma once

#include <string_view>

namespace tessera::cdna_emulator {

struct WmmaPlace {
  std::string_view target, instruction;
  char matrix;    // A has rows and k, B columns and k, D rows and columns
  int i, j, k;    // row, column, k; 0 where the matrix has none
  int reg, lane;  // the register from the first one on
  int bit;        // the first of the element in its register
};
inline constexpr WmmaPlace kWmmaPlaces[] = {
    {"gfx1100", "v_wmma_f32_16x16x16_f16", 'A', 10, 0, 12, 6, 10, 0},
    {"gfx1100", "v_wmma_f32_16x16x16_f16", 'B', 0, 2, 3, 1, 2, 16},
    {"gfx1100", "v_wmma_f32_16x16x16_f16", 'D', 11, 1, 0, 5, 17, 0},
    {"gfx1100", "v_wmma_f32_16x16x16_f16", 'D', 1, 2, 0, 0, 18, 0},
    {"gfx1100", "v_wmma_f32_16x16x16_bf16", 'A', 13, 0, 7, 3, 13, 16},
    {"gfx1100", "v_wmma_f32_16x16x16_bf16", 'B', 0, 13, 1, 0, 13, 16},
    {"gfx1100", "v_wmma_f32_16x16x16_bf16", 'D', 3, 7, 0, 1, 23, 0},
    {"gfx1100", "v_wmma_f32_16x16x16_bf16", 'D', 12, 1, 0, 6, 1, 0},
    {"gfx1100", "v_wmma_i32_16x16x16_iu8", 'A', 1, 0, 9, 2, 1, 8},
    {"gfx1100", "v_wmma_i32_16x16x16_iu8", 'B', 0, 4, 3, 0, 4, 24},
    {"gfx1100", "v_wmma_i32_16x16x16_iu8", 'D', 9, 5, 0, 4, 21, 0},
    {"gfx1100", "v_wmma_i32_16x16x16_iu8", 'D', 6, 11, 0, 3, 11, 0},
    {"gfx1201", "v_wmma_f32_16x16x16_f16", 'A', 2, 0, 6, 1, 18, 0},
    {"gfx1201", "v_wmma_f32_16x16x16_f16", 'B', 0, 13, 10, 3, 13, 0},
    {"gfx1201", "v_wmma_f32_16x16x16_f16", 'D', 14, 14, 0, 6, 30, 0},
    {"gfx1201", "v_wmma_f32_16x16x16_f16", 'D', 9, 7, 0, 1, 23, 0},
    {"gfx1201", "v_wmma_f32_16x16x16_bf16", 'A', 7, 0, 9, 2, 7, 16},
    {"gfx1201", "v_wmma_f32_16x16x16_bf16", 'B', 0, 10, 14, 3, 26, 0},
    {"gfx1201", "v_wmma_f32_16x16x16_bf16", 'D', 9, 2, 0, 1, 18, 0},
    {"gfx1201", "v_wmma_f32_16x16x16_bf16", 'D', 13, 5, 0, 5, 21, 0},
    {"gfx1201", "v_wmma_i32_16x16x16_iu8", 'A', 4, 0, 13, 1, 20, 8},
    {"gfx1201", "v_wmma_i32_16x16x16_iu8", 'B', 0, 2, 10, 0, 18, 16},
    {"gfx1201", "v_wmma_i32_16x16x16_iu8", 'D', 10, 11, 0, 2, 27, 0},
    {"gfx1201", "v_wmma_i32_16x16x16_iu8", 'D', 14, 2, 0, 6, 18, 0},
    {"gfx1201", "v_wmma_f32_16x16x16_fp8_fp8", 'A', 8, 0, 2, 0, 8, 16},
    {"gfx1201", "v_wmma_f32_16x16x16_fp8_fp8", 'B', 0, 9, 14, 1, 25, 16},
    {"gfx1201", "v_wmma_f32_16x16x16_fp8_fp8", 'D', 9, 12, 0, 1, 28, 0},
    {"gfx1201", "v_wmma_f32_16x16x16_fp8_fp8", 'D', 0, 14, 0, 0, 14, 0},
    {"gfx1201", "v_wmma_f32_16x16x16_fp8_bf8", 'A', 5, 0, 15, 1, 21, 24},
    {"gfx1201", "v_wmma_f32_16x16x16_fp8_bf8", 'B', 0, 6, 9, 0, 22, 8},
    {"gfx1201", "v_wmma_f32_16x16x16_fp8_bf8", 'D', 4, 7, 0, 4, 7, 0},
    {"gfx1201", "v_wmma_f32_16x16x16_fp8_bf8", 'D', 12, 15, 0, 4, 31, 0},
    {"gfx1201", "v_wmma_f32_16x16x16_bf8_fp8", 'A', 5, 0, 12, 1, 21, 0},
    {"gfx1201", "v_wmma_f32_16x16x16_bf8_fp8", 'B', 0, 4, 13, 1, 20, 8},
    {"gfx1201", "v_wmma_f32_16x16x16_bf8_fp8", 'D', 8, 13, 0, 0, 29, 0},
    {"gfx1201", "v_wmma_f32_16x16x16_bf8_fp8", 'D', 12, 7, 0, 4, 23, 0},
    {"gfx1201", "v_wmma_f32_16x16x16_bf8_bf8", 'A', 2, 0, 4, 1, 2, 0},
    {"gfx1201", "v_wmma_f32_16x16x16_bf8_bf8", 'B', 0, 7, 0, 0, 7, 0},
    {"gfx1201", "v_wmma_f32_16x16x16_bf8_bf8", 'D', 15, 5, 0, 7, 21, 0},
    {"gfx1201", "v_wmma_f32_16x16x16_bf8_bf8", 'D', 9, 0, 0, 1, 16, 0},
};

}  // namespace tessera::cdna_emulator
