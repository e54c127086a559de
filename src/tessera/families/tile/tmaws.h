// The sizes of tmaws and cpasync kernels (src/tessera/device/cuda/) as the host needs them, for any
// operation that multiplies matrices by them.
#pragma once

#include <array>
#include <cstdint>

#include "tessera/device/cuda/tile_sizes.h"
#include "tessera/spec/kernel_spec.h"

namespace tessera::tile {

// What addresses and strides that TMA reads are multiples of, in bytes.
inline constexpr std::int64_t kTmaBytes = 16;
inline constexpr int kTmawsLineBytes = device::kLineBytes;

// What a kernel multiplies and writes, whatever the operation is: rows of A by columns of B.
struct Product {
  DType a, b, out, d;
  bool a_k_contiguous, b_k_contiguous;
  bool packed_b;
  const Epilogue& epilogue;
};

// What a tmaws kernel keeps of an operand in shared memory for one stage. See
// src/tessera/device/cuda/tma_tile.h.
struct TmawsOperand {
  DType dtype = DType::bf16;
  bool k_contiguous = true;
  bool transposed = false;  // by repacking
  int rows = 0;             // of a tile
  int parts = 1;            // blocks of a cluster that fetch it together
  std::int64_t bytes = 0;
};
TmawsOperand tmaws_a(const Product& product, const Algorithm& algorithm);
TmawsOperand tmaws_b(const Product& product, const Algorithm& algorithm);

// The columns that a block of a split stores, those of them that go out at a time, and the blocks
// of 64 rows of a consumer (0: tile_m does not divide).
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

// The columns that the copy engine writes at a time, or with swap_ab the rows.
int tmaws_out_chunk(const Product& product, const Algorithm& algorithm);

// Whether a kernel runs before this one (<name>_prepare) for some problems.
bool tmaws_prepares(const Algorithm& algorithm);

// Groups of 128 threads of a tile that add up slices of K, and the bytes of a group's sums.
int tmaws_slice_groups(const Algorithm& algorithm);
std::int64_t tmaws_slice_bytes(const Algorithm& algorithm);

// Whether the copy engine can read rows at these distances. Of one batch the stride is 0.
bool tmaws_reads(DType dtype, std::int64_t ld, std::int64_t batch_stride);

// Whether the copy engine may write this output; else the kernel's threads do. In short: what only
// the product says, without swap_ab, for algorithms that leave a bias or a function registers.
bool tmaws_copies_out(const Product& product, const Algorithm& algorithm);
bool tmaws_copies_out(const Product& product, bool has_room);
bool tmaws_has_room(const Algorithm& algorithm);

// Bytes of shared memory: of both operands for one stage, and of all stages with what else the
// pipeline keeps there. Of CK Tile's pipelines the stages are all that is known.
struct SharedMemory {
  std::int64_t stage = 0;
  std::int64_t all = 0;
  int chunk = 0;  // tmaws: columns that go out at a time without D tensors
};
SharedMemory shared_memory(const Product& product, const Algorithm& algorithm);
// The same where `matrices` D tensors come to the store areas of tmaws by the copy engine.
SharedMemory shared_memory(const Product& product, const Algorithm& algorithm, int matrices);

}  // namespace tessera::tile
