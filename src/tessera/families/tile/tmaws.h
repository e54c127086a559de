// The sizes of tmaws and cpasync kernels (src/tessera/device/cuda/) on the host and rules about
// them, for every operation that multiplies matrices with these kernels.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "tessera/device/cuda/tile_sizes.h"
#include "tessera/families/tile/rules.h"
#include "tessera/spec/kernel_spec.h"

namespace tessera::tile {

// Addresses and strides that TMA reads are multiples of this many bytes.
inline constexpr std::int64_t kTmaBytes = 16;
inline constexpr int kTmawsLineBytes = device::kLineBytes;

// What a kernel multiplies and writes, independent of the operation: rows of A by columns of B.
struct Product {
  DType a, b, out, d;
  bool a_k_contiguous, b_k_contiguous;
  bool packed_b;
  const Epilogue& epilogue;
};

// The part of an operand that a tmaws kernel keeps in shared memory for one stage. See
// src/tessera/device/cuda/tma_tile.h.
struct TmawsOperand {
  DType dtype = DType::bf16;
  bool k_contiguous = true;
  bool transposed = false;  // repacking transposes the operand
  int rows = 0;             // rows of a tile
  int parts = 1;            // blocks of a cluster that fetch the tile together
  std::int64_t bytes = 0;
};
TmawsOperand tmaws_a(const Product& product, const Algorithm& algorithm);
TmawsOperand tmaws_b(const Product& product, const Algorithm& algorithm);

// What one consumer's thread holds, and how many consumers share a tile.
int tmaws_accumulators(const Algorithm& algorithm);
int tmaws_consumers(const Algorithm& algorithm);
inline constexpr int kTmawsAccumulators = 208;  // the most of a thread, without spills
inline constexpr int kWgmmaColumns = 256;       // the most of an instruction

// Rules of tmaws kernels of every operation.
extern const AlgorithmRule kTmawsConsumers, kTmawsSchedulers, kTmawsPingpong, kTmawsColumnsOf3;

// ---- cpasync kernels of every operation ----

// The tile of one operand in shared memory, which the threads of a block copy by cp.async.
struct CopiedTile {
  std::string_view name;
  bool k_contiguous;
  int rows, warp_rows;  // of the tile, and those that a warp multiplies
  int size;             // bytes of an element
  int tile_k, threads;
};
std::array<CopiedTile, 2> copied_tiles(const Product& product, const Algorithm& algorithm,
                                       const Target& target);

// A rule about both tiles, and its row in a table. Kernels of fp32 multiply by fma and copy in
// another way.
struct CopiedTileRule {
  bool (*holds)(const CopiedTile&);
  std::string (*sentence)(const CopiedTile&);
};
std::optional<CopiedTile> first_misfit(const CopiedTileRule& rule, const Product& product,
                                       const Algorithm& algorithm, const Target& target);
template <class Case, auto kProductOf, const CopiedTileRule& kRule>
inline constexpr Rule<Case> kRowOfTiles = {
    [](const Case& c) {
      return !first_misfit(kRule, kProductOf(c.signature), c.algorithm, c.target);
    },
    [](const Case& c) {
      return kRule.sentence(*first_misfit(kRule, kProductOf(c.signature), c.algorithm, c.target));
    }};
extern const CopiedTileRule kCopiedLines, kCopiedBytes, kCopiedRows;
extern const AlgorithmRule kDividesOverWarps;

int block_threads(const Algorithm& algorithm, const Target& target);
std::string too_many_threads(const Algorithm& algorithm, const Target& target);
template <class Case>
inline constexpr Rule<Case> kBlockThreads = {
    [](const Case& c) {
      return block_threads(c.algorithm, c.target) <= c.target.max_threads_per_block;
    },
    [](const Case& c) { return too_many_threads(c.algorithm, c.target); }};

// How a tmaws kernel stores: the columns that one block of a split stores, the columns that it
// writes at a time, and the blocks of 64 rows that one consumer has (0 when tile_m is not a
// multiple).
struct TmawsStore {
  int columns = 0;
  int chunk = 0;
  int row_blocks = 0;
};
TmawsStore tmaws_store(const Algorithm& algorithm);

// The D tensors of an epilogue: as d_roles() in src/tessera/device/cuda/epilogue.h.
inline constexpr int kTmawsMatrices = 2;
struct TmawsDRoles {
  int biases = 0;
  int matrices = 0;
  std::array<int, kTmawsMatrices> matrix{};
  bool others = false;  // scales, a second bias, a third matrix
};
TmawsDRoles tmaws_d_roles(const Epilogue& epilogue);

// How many columns (with swap_ab: rows) the copy engine writes at a time.
int tmaws_out_chunk(const Product& product, const Algorithm& algorithm);

// Whether some problems need the entry <name>_prepare to run before this kernel.
bool tmaws_prepares(const Algorithm& algorithm);

// tmaws_slice_groups() is how many groups of 128 threads add up the slices of K of one tile.
// tmaws_slice_bytes() is the size of one group's sums in bytes.
int tmaws_slice_groups(const Algorithm& algorithm);
std::int64_t tmaws_slice_bytes(const Algorithm& algorithm);

// Whether the copy engine can read rows at these distances, in elements. With one batch,
// batch_stride is 0.
bool tmaws_reads(DType dtype, std::int64_t ld, std::int64_t batch_stride);

// Whether the copy engine may write this output; else the kernel's threads do. With `has_room` the
// answer ignores swap_ab; tmaws_has_room() says whether an algorithm leaves registers for a bias or
// a function.
bool tmaws_copies_out(const Product& product, const Algorithm& algorithm);
bool tmaws_copies_out(const Product& product, bool has_room);
bool tmaws_has_room(const Algorithm& algorithm);

// Bytes of shared memory. `stage` counts both operands for one stage; `all` counts all stages and
// whatever else the pipeline keeps there.
struct SharedMemory {
  std::int64_t stage = 0;
  std::int64_t all = 0;
  int chunk = 0;  // tmaws: columns written at a time when there are no D tensors
};
SharedMemory shared_memory(const Product& product, const Algorithm& algorithm);
// The same for tmaws when the copy engine brings `matrices` D tensors to the store areas.
SharedMemory shared_memory(const Product& product, const Algorithm& algorithm, int matrices);

}  // namespace tessera::tile
