// The tiles of Intel AMX: eight registers of 16 rows by 64 bytes, and products of two of them.
#pragma once

#include "tessera/device/cpu/tile_sizes.h"
#include "tessera/device/cpu/vector.h"

namespace tessera::device {

inline constexpr int kTiles = 8;

// The layout that LDTILECFG reads: palette 1 has tiles of up to 16 rows by 64 bytes.
struct alignas(64) TileShapes {
  u8 palette = 1;
  u8 start_row = 0;
  u8 reserved[14] = {};
  u16 row_bytes[16] = {};
  u8 rows[16] = {};
};
constexpr TileShapes whole_tiles() {
  TileShapes shapes{};
  for (int i = 0; i < kTiles; ++i) {
    shapes.row_bytes[i] = kTileWords * 4;
    shapes.rows[i] = kTileRows;
  }
  return shapes;
}
inline constexpr TileShapes kWholeTiles = whole_tiles();

// The instructions as text, so that a kernel needs no flag for them and any assembler that knows
// them will do. Compilers never use these registers by themselves.
struct Tiles {
  // Every thread configures its tiles before their first use and releases them after the last one;
  // until then the system saves them whenever it switches threads.
  static void configure() { asm volatile("ldtilecfg %0" ::"m"(kWholeTiles)); }
  static void release() { asm volatile("tilerelease"); }

  template <int kTile>
  static void zero() {
    asm volatile("tilezero %%tmm%c0" ::"i"(kTile));
  }
  template <int kTile>
  static void load_rows(const void* from, i64 stride) {
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(from), "r"(stride), "i"(kTile) : "memory");
  }
  template <int kTile>
  static void store_rows(void* to, i64 stride) {
    asm volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(to), "r"(stride), "i"(kTile) : "memory");
  }
  template <int kSum, int kA, int kB>
  static void add_int8() {
    asm volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(kSum), "i"(kA), "i"(kB));
  }
  template <int kSum, int kA, int kB>
  static void add_bf16() {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(kSum), "i"(kA), "i"(kB));
  }
};

}  // namespace tessera::device
