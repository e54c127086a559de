// The enumerations that attention's arguments have in every program of CK Tile's. A program that
// includes CK Tile's own headers for them says so by CK_TILE_FMHA_FWD_TYPES_FROM_EXAMPLE or
// CK_TILE_FMHA_BWD_TYPES_FROM_EXAMPLE.
#pragma once

#if !defined(CK_TILE_FMHA_FWD_TYPES_FROM_EXAMPLE) && !defined(CK_TILE_FMHA_BWD_TYPES_FROM_EXAMPLE)
enum class mask_enum { no_mask = 0, mask_top_left = 1, mask_bottom_right = 2, window_generic = 3 };
enum class bias_enum { no_bias = 0, elementwise_bias = 1, alibi = 2 };
#endif

#ifndef CK_TILE_FMHA_FWD_TYPES_FROM_EXAMPLE
enum class quant_scale_enum { no_scale = 0, pertensor = 1, blockscale = 2, kv_blockscale = 3 };
enum class rope_enum { none = 0, interleaved = 1, half_rotated = 2 };
#endif

#ifndef CK_TILE_HOST_DEVICE  // CK Tile's core has its own
namespace ck_tile {

enum class BlockAttentionKVCacheMemoryLayoutEnum { VECTORIZED_LAYOUT = 0, LINEAR_LAYOUT = 1 };
enum class BlockAttentionKVCacheLookupTableEnum {
  VLLM_BLOCK_TABLE_2D = 0,
  SGLANG_PAGE_TABLE_1D = 1
};

// Where and how a kernel is launched.
struct stream_config {
  void* stream_id_ = nullptr;
  bool time_kernel_ = false;
  int log_level_ = 0;
  int cold_niters_ = 3, nrepeat_ = 10;
  bool is_gpu_timer_ = true;
  bool flush_cache_ = false;
  int rotating_count_ = 1;
};

}  // namespace ck_tile
#endif
