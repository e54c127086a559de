#include <gtest/gtest.h>

#include "tessera/families/gemm/gemm.h"
#include "tessera/targets/targets.h"

namespace tessera::gemm {
namespace {

struct IllegalName {
  const char* name;
  const char* reason;  // empty: legal
};
void PrintTo(const IllegalName& row, std::ostream* out) { *out << row.name; }

class GemmLegality : public testing::TestWithParam<IllegalName> {};

TEST_P(GemmLegality, GivesTheReasonWithBothNumbers) {
  const KernelSpec spec = parse_name(GetParam().name);
  EXPECT_EQ(family().is_legal(spec, load_target(spec.target)).reason, GetParam().reason);
}

const IllegalName kVerdicts[] = {
    {"gemm_fp32_rcr_packab_240x480x256_0x0x1_12x32x1_avx512", ""},
    {"gemm_fp32_rcr_packab_240x480x256_0x0x1_12x48x1_avx512",
     "needs 40 vector registers (12 x 48 / 16 accumulators and 4 more), avx512 has 32"},
    {"gemm_fp32_rcr_packab_240x480x256_0x0x1_6x16x1_generic",
     "needs 29 vector registers (6 x 16 / 4 accumulators and 5 more), generic has 16"},
    {"gemm_fp32_rcr_packab_100x480x256_0x0x1_12x32x1_avx512",
     "tile_m 100 is not a multiple of warp_tile_m 12"},
    {"gemm_fp32_rcr_packab_240x470x256_0x0x1_12x32x1_avx512",
     "tile_n 470 is not a multiple of warp_tile_n 32"},
    {"gemm_bf16_rcr_packab_240x480x255_0x0x1_12x32x2_avx512",
     "tile_k 255 is not a multiple of warp_tile_k 2"},
    {"gemm_fp32_rcr_packab_240x480x256_0x0x1_12x24x1_avx512",
     "warp_tile_n 24 is not a multiple of the 16 lanes of avx512"},
    {"gemm_fp32_rcr_packab_0x480x256_0x0x1_12x32x1_avx512",
     "tile sizes must be between 1 and 65536, got 0x480x256"},
    {"gemm_fp32_rcr_packab_12x65536x65536_0x0x1_12x32x1_avx512",
     "tile 12x65536x65536 needs 17183014912 bytes for packed blocks, at most 1073741824 are "
     "allowed"},
    {"gemm_fp32_rcr_packab_240x480x256_0x0x2000_12x32x1_avx512",
     "wave sizes must be between 0 and 1024, got 0x0x2000"},
    {"gemm_bf16_rcr_packb_240x480x256_0x0x1_12x32x1_avx512",
     "packb reads A in place, which must be words of 4 bytes, got 1 x 2 bytes (bf16)"},
    {"gemm_bf16_crr_packb_240x480x256_0x0x1_12x32x2_avx512",
     "packb reads words of A in place, which must be row-major, got layout crr"},
    {"gemm_bf16_rcr_packb_240x480x256_0x0x1_12x32x2_avx512", ""},
    {"gemm_int8_rrr_packb_240x480x256_0x0x1_12x32x4_avx512", ""},
    {"gemm_fp32_rcr_packb_240x480x256_0x0x1_12x32x1_avx512", ""},
    {"gemm_tf32_rcr_packb_240x480x256_0x0x1_12x32x1_avx512", ""},
    {"gemm_bf16_rrr_packa_240x480x256_0x0x1_12x32x1_avx512",
     "packa reads B in place, which must be words of 4 bytes, got 1 x 2 bytes (bf16)"},
    {"gemm_fp32_rcr_packa_240x480x256_0x0x1_12x32x1_avx512",
     "packa reads B in place, which must be row-major, got layout rcr"},
    {"gemm_fp32_ccr_direct_240x480x256_0x0x1_12x32x1_avx512",
     "direct reads B in place, which must be row-major, got layout ccr"},
    {"gemm_fp32_crr_direct_240x480x256_0x0x1_12x32x1_avx512", ""},
    {"gemm_fp32_rrr_direct_240x480x256_0x0x1_12x32x1_presh_avx512",
     "a preshuffled B needs packab or packb, got direct"},
    {"gemm_fp32_rrr_packb_240x480x256_0x0x1_12x32x1_presh_avx512", ""},
    {"gemm_bf16_rcr_packab_240x480x256_0x0x1_12x32x4_avx512",
     "avx512 has no instruction for bf16 x bf16 with 4 products per lane"},
    {"gemm_bf16_rcr_packab_240x480x256_0x0x1_6x16x2_avx2",
     "avx2 has no instruction for bf16 x bf16 with 2 products per lane"},
    {"gemm_fp16_rcr_packab_240x480x256_0x0x1_12x32x2_avx512",
     "avx512 has no instruction for fp16 x fp16 with 2 products per lane"},
    {"gemm_fp8_bf8_rcr_packab_240x480x256_0x0x1_12x32x2_avx512", ""},
    {"gemm_int8_rcr_packab_240x480x256_0x0x1_12x32x4_outint8_gelu_avx512", ""},
    {"gemm_int8_rcr_packab_240x480x256_0x0x1_12x32x4_gelu_avx512",
     "out=int32 is exact and takes no epilogue, got gelu; use out=fp32"},
    {"gemm_fp16_rcr_packab_240x480x256_0x0x1_12x32x1_outbf16_avx512",
     "out must be fp16 or fp32 for fp16 operands, got bf16"},
    {"gemm_fp32_rcr_stream_8x768x512_0x0x1_8x48x1_avx512", ""},
    {"gemm_fp32_rcr_stream_24x768x512_0x0x1_8x48x1_avx512",
     "stream multiplies 8 rows at once: tile_m and warp_tile_m must be 8, got 24 and 8"},
    {"gemm_fp32_rcr_stream_8x768x512_1x1x0_8x48x1_avx512",
     "stream runs on one thread or on all: wave must be 1x1x1 or 0x0x1, got 1x1x0"},
    {"gemm_fp32_rcr_small_4x6x16_0x0x1_4x6x16_avx512", ""},
    {"gemm_bf16_rrr_small_3072x32x2_1x1x1_12x32x2_bias_gelu_avx512", ""},
    {"gemm_tf32_rrr_small_2x128x1_0x0x1_2x128x1_avx512", ""},
    {"gemm_bf16_rcr_small_4x6x16_0x0x1_4x6x16_avx512",
     "small has these tiles and warp tiles for bf16 rcr: 12x16x2_12x16x2, 1x16x32_1x16x32, "
     "2x12x32_2x12x32, 3072x32x2_12x32x2, 3x8x32_3x8x32, 4x6x32_4x6x32, 6x32x2_6x32x2, got "
     "4x6x16_4x6x16"},
    {"gemm_int8_rcr_small_6x32x4_2x1x1_6x32x4_avx512",
     "small runs on one thread or on all: wave must be 1x1x1 or 0x0x1, got 2x1x1"},
    {"gemm_int8_crr_small_6x64x4_0x0x1_6x64x4_avx512",
     "small reads words of A in place, which must be row-major, got layout crr"},
    {"gemm_fp16_rcr_small_6x32x2_0x0x1_6x32x2_avx512",
     "small multiplies words as they lie in memory: fp32, tf32, bf16 or int8, got fp16 x fp16"},
    {"gemm_fp32_rcr_small_6x32x1_0x0x1_6x32x1_presh_avx512",
     "small takes B as it is, got a preshuffled one"},
    {"gemm_fp32_rcr_small_6x8x1_0x0x1_6x8x1_avx2", ""},
    {"gemm_fp32_rrr_small_2x48x1_1x1x1_2x48x1_bias_relu_avx2", ""},
    {"gemm_fp32_rcr_small_6x32x1_0x0x1_6x32x1_avx2",
     "small has these tiles and warp tiles for fp32 rcr: 1x8x8_1x8x8, 2x4x8_2x4x8, "
     "3072x16x1_6x16x1, 3x4x8_3x4x8, 4x3x8_4x3x8, 6x8x1_6x8x1, got 6x32x1_6x32x1"},
    {"gemm_bf16_rcr_small_6x8x2_0x0x1_6x8x2_avx2",
     "avx2 has no instruction for bf16 x bf16 with 2 products per lane"},
    {"gemm_int8_rcr_small_6x8x4_0x0x1_6x8x4_avx2",
     "avx2 has no instruction for int8 x int8 with 4 products per lane"},
    {"gemm_fp32_rcr_small_6x8x1_0x0x1_6x8x1_generic", "generic has no pipeline small"},
    {"gemm_int8_crr_amx_96x960x512_1x1x0_32x32x64_presh_avx512", ""},
    {"gemm_bf16_rrr_amx_32x32x32_2x3x1_32x32x32_bias_gelu_avx512", ""},
    {"gemm_fp16_rcr_amx_96x960x512_0x0x1_32x32x32_avx512",
     "amx multiplies int8 or bf16, both operands of one type, got fp16 x fp16"},
    {"gemm_bf16_rcr_amx_96x960x512_0x0x1_32x32x64_avx512",
     "amx multiplies tiles of bf16: the warp tile must be 32x32x32, got 32x32x64"},
    {"gemm_int8_rcr_amx_96x960x512_0x0x1_16x32x64_avx512",
     "amx multiplies tiles of int8: the warp tile must be 32x32x64, got 16x32x64"},
    {"gemm_int8_rcr_amx_96x960x96_0x0x1_32x32x64_avx512",
     "tile_k 96 is not a multiple of warp_tile_k 64"},
    {"gemm_int8_rcr_amx_96x960x512_0x0x2000_32x32x64_avx512",
     "wave sizes must be between 0 and 1024, got 0x0x2000"},
    {"gemm_int8_rcr_amx_65536x65536x64000_0x0x1_32x32x64_avx512",
     "tile 65536x65536x64000 needs 8388608000 bytes for packed blocks, at most 1073741824 are "
     "allowed"},
    {"gemm_int8_rcr_packab_96x960x512_0x0x1_8x16x64_avx512",
     "avx512 has no instruction for int8 x int8 with 64 products per lane"},
    {"gemm_int8_rcr_amx_96x960x512_0x0x1_32x32x64_avx2", "avx2 has no pipeline amx"},
    {"gemm_fp32_rcr_packab_240x480x256_0x0x1_12x32x1_s4_avx512",
     "stages must be 1 with packab, got 4"},
    {"gemm_fp32_rcr_packab_240x480x256_0x0x1_12x32x1_c2x1_avx512",
     "cluster_m must be 1 with packab, got 2"},
    {"gemm_fp32_rcr_packab_240x480x256_0x0x1_12x32x1_splitatomic2_avx512",
     "split_k must be none with packab, got atomic"},
    {"gemm_fp32_rcr_direct_240x480x256_0x0x1_12x32x1_repack_avx512",
     "repack must be false with direct, got true"},
    {"gemm_fp32_rcr_tmaws_240x480x256_0x0x1_12x32x1_avx512", "avx512 has no pipeline tmaws"},
    // Hopper
    {"gemm_bf16_rcr_tmaws_128x256x64_2x1x1_64x256x16_cooperative_s4_c2x1_sm90a", ""},
    {"gemm_bf16_rcr_tmaws_128x256x64_2x1x1_64x256x16_cooperative_s5_sm90a",
     "needs 262232 bytes of shared memory (5 stages of 49152 and the rest), sm90a has 232448"},
    {"gemm_bf16_rcr_tmaws_128x256x64_2x1x1_64x256x16_pingpong_s4_sm90a",
     "needs 256 accumulators a thread (2 x 64 rows by 256 columns over 128 threads), at most 208 "
     "fit"},
    {"gemm_bf16_rcr_tmaws_192x256x64_3x1x1_64x256x16_cooperative_s3_sm90a",
     "3 consumers leave registers for tile_n <= 192, got 256"},
    {"gemm_bf16_rcr_tmaws_128x256x64_2x1x1_64x128x16_cooperative_s4_sm90a",
     "the warp tile is one wgmma: 64x256x16 for bf16 with tile_n 256, got 64x128x16"},
    {"gemm_fp8_rrr_tmaws_128x256x64_2x1x1_64x256x32_cooperative_s4_sm90a",
     "wgmma takes fp8 operands with k contiguous only (rcr, or repack), got rrr"},
    {"gemm_bf16_rcr_tmaws_128x256x64_2x1x1_64x256x16_s4_sm90a",
     "tmaws is scheduled cooperative or pingpong, got standard"},
    {"gemm_bf16_rcr_tmaws_64x128x64_2x1x1_64x128x16_cooperative_s4_sm90a",
     "tile_m 64 is not a multiple of the 128 rows of 2 consumers"},
    {"gemm_fp32_rcr_tmaws_128x256x64_2x1x1_64x256x8_cooperative_s4_sm90a",
     "sm90a has no wgmma for fp32 x fp32"},
    // AMD CDNA
    {"gemm_fp16_rcr_compv3_256x256x32_2x2x1_32x32x16_intrawave_gfx942", ""},
    {"gemm_fp16_rcr_compv4_256x128x32_2x2x1_32x32x16_intrawave_gfx90a", ""},
    {"gemm_fp16_rcr_async_256x256x64_2x4x1_16x16x32_intrawave_s2_gfx950", ""},
    {"gemm_fp8_rcr_direct_64x64x16_2x2x1_4x4x1_gfx942", ""},
    {"gemm_fp8_rcr_compv4_128x128x64_2x2x1_32x32x32_intrawave_gfx90a",
     "gfx90a has no mfma for fp8 x fp8"},
    {"gemm_fp8_rcr_direct_64x64x16_2x2x1_4x4x1_gfx90a", "gfx90a has no mfma for fp8 x fp8"},
    {"gemm_fp8_rcr_compv3_64x64x128_2x2x1_16x16x64_scalea1x128_scaleb128x128_intrawave_gfx942", ""},
    {"gemm_fp8_rcr_mem_64x64x128_2x2x1_16x16x64_scalea1x128_scaleb128x128_intrawave_gfx942",
     "block scales go with compv3, compv4 and direct on AMD GPUs, got mem"},
    {"gemm_fp8_rcr_compv3_64x64x128_2x2x1_16x16x64_scalea1x128_intrawave_splitordered1_streamk_"
     "gfx942",
     "streamk must be false with block scales on AMD GPUs, got true"},
    {"gemm_fp8_rcr_compv3_64x64x128_2x2x1_16x16x64_scalea1x32_intrawave_gfx942",
     "a tile must have whole blocks of 32 along k, and a block whole warp tiles, got tile_k 128 "
     "and "
     "warp_tile_k 64"},
    {"gemm_fp8_rcr_compv3_64x64x128_2x2x1_16x16x64_groupsalongk_scalea1x128_intrawave_gfx942",
     "groups along k begin anywhere in a block of scales, which mfma does not follow: grouping "
     "must "
     "not be along_k with block scales, got along_k; use a direct kernel"},
    {"gemm_fp8_rcr_compv3_128x128x128_2x2x1_32x32x32_scalea1x128_scaleb1x128_intrawave_gfx942",
     "with scale_b=1x128, layout=rcr and tile_k=128 a lane has at most 16 sums, got 64 (128x128 "
     "over "
     "256 lanes)"},
    {"gemm_fp8_rcr_compv3_64x64x128_2x2x1_16x16x128_scalea1x32_scaleb1x32_bye8m0_intrawave_gfx950",
     ""},
    {"gemm_fp8_rcr_compv3_64x64x128_2x2x1_16x16x128_scalea1x32_scaleb1x32_bye8m0_intrawave_gfx942",
     "warp tiles of 32 bytes of k in a lane need scale_a=1x32 scale_b=1x32 scale_type=e8m0 and an "
     "instruction mfma_scale, got 1x32, 1x32 and e8m0 on gfx942"},
    {"gemm_fp8_rcr_compv4_128x128x128_2x4x1_16x16x32_scalea1x128_intrawave_gfx1201",
     "sums of blocks are scaled beside mfma, and gfx1201 has none; use a direct kernel"},
    {"gemm_fp16_rcr_compv4_128x128x32_2x4x1_16x16x16_intrawave_gfx1100", ""},
    {"gemm_fp16_rcr_compv4_128x128x32_2x4x1_32x32x8_intrawave_gfx1100",
     "warp tiles of fp16 are 16x16x16, got 32x32x8"},
    {"gemm_fp8_rcr_compv4_64x64x64_2x2x1_16x16x32_intrawave_gfx1100",
     "gfx1100 has no wmma for fp8 x fp8"},
    {"gemm_fp8_rcr_compv4_64x64x64_2x2x1_16x16x32_intrawave_gfx1201", ""},
    {"gemm_fp32_rcr_compv4_64x64x32_2x2x1_16x16x16_intrawave_gfx1201",
     "gfx1201 has no wmma for fp32 x fp32"},
    {"gemm_fp32_rcr_direct_64x64x16_2x4x1_4x4x1_gfx1201", ""},
    {"gemm_fp32_rcr_direct_64x64x16_2x2x1_4x4x1_gfx1201",
     "direct has tile 64x64x16, wave 2x4x1 and warp tile 4x4x1 only, got 64x64x16, 2x2x1 and "
     "4x4x1"},
    {"gemm_int8_rcr_async_64x64x64_2x2x1_16x16x32_intrawave_gfx1201",
     "gfx1201 has no pipeline async"},
    {"gemm_tf32_rcr_compv4_128x128x16_2x2x1_32x32x8_intrawave_gfx950",
     "gfx950 has no mfma for tf32 x tf32"},
    {"gemm_tf32_rcr_compv4_128x128x16_2x2x1_32x32x8_intrawave_gfx942", ""},
    {"gemm_fp8_bf8_rcr_compv4_128x128x64_2x2x1_32x32x32_intrawave_gfx942", ""},
    {"gemm_fp16_rcr_async_128x128x64_2x2x1_32x32x16_intrawave_s2_gfx942",
     "gfx942 has no pipeline async"},
    {"gemm_fp16_rcr_compv5_128x128x64_2x2x1_32x32x16_intrawave_gfx942",
     "gfx942 has no pipeline compv5; CK Tile has it (--source cktile)"},
    {"gemm_fp16_rcr_async_128x128x64_2x2x1_32x32x16_intrawave_s4_gfx950",
     "async takes 2 to 3 stages, got 4"},
    {"gemm_fp16_rcr_compv3_128x128x32_2x2x1_32x32x16_intrawave_s2_gfx942",
     "compv3 takes 1 to 1 stages, got 2"},
    {"gemm_fp16_rcr_mem_128x128x32_2x2x1_32x32x16_interwave_gfx942",
     "kernels for AMD GPUs are scheduled intrawave, got interwave; CK Tile has it (--source "
     "cktile)"},
    {"gemm_fp16_rcr_mem_128x128x32_2x2x1_32x32x16_gfx942",
     "kernels for AMD GPUs are scheduled intrawave, got standard"},
    {"gemm_fp16_rcr_compv3_256x256x32_2x2x1_32x32x16_intrawave_storecshuffle_gfx942",
     "kernels for AMD GPUs have the standard store, got cshuffle; CK Tile has it (--source "
     "cktile)"},
    {"gemm_fp16_rcr_compv3_256x256x32_2x2x1_32x32x16_intrawave_storetma_gfx942",
     "kernels for AMD GPUs have the standard store, got tma"},
    {"gemm_fp16_rcr_compv3_128x128x32_2x2x1_32x32x16_intrawave_splitatomic4_gfx942",
     "kernels for AMD GPUs cut K into slices: splits must be 1, got 4; CK Tile has it (--source "
     "cktile)"},
    {"gemm_fp16_rcr_mem_64x64x64_2x2x1_32x32x16_intrawave_splitatomic1_slices65_gfx942",
     "K is cut into 1 to 64 slices, got 65"},
    {"gemm_fp16_rcr_mem_64x64x64_2x2x1_32x32x16_intrawave_splitatomic1_gfx942",
     "split_k must be none for slices=1 on AMD GPUs, got atomic"},
    {"gemm_fp16_rcr_mem_64x64x64_2x2x1_32x32x16_intrawave_splitordered1_slices4_gfx942", ""},
    {"gemm_fp16_rcr_compv3_256x256x32_2x2x1_32x32x16_intrawave_c2x1_gfx942",
     "cluster_m must be 1 with compv3, got 2"},
    {"gemm_fp16_rcr_compv3_256x256x32_1x1x1_32x32x16_intrawave_gfx942",
     "a block has 4 or 8 waves, at most 4 along m and along n and one along k, got 1x1x1"},
    {"gemm_fp16_rcr_compv3_256x256x32_4x4x1_32x32x16_intrawave_gfx942",
     "a block has 4 or 8 waves, at most 4 along m and along n and one along k, got 4x4x1"},
    {"gemm_fp16_rcr_compv3_128x128x32_2x2x1_32x32x8_intrawave_gfx942",
     "warp tiles of fp16 are 32x32x16 and 16x16x32, got 32x32x8; CK Tile has it (--source cktile)"},
    {"gemm_fp16_rcr_compv3_128x128x32_2x2x1_4x64x16_intrawave_gfx942",
     "warp tiles of fp16 are 32x32x16 and 16x16x32, got 4x64x16; CK Tile has it (--source cktile)"},
    {"gemm_fp16_rcr_compv3_128x128x32_2x2x1_8x8x32_intrawave_gfx942",
     "warp tiles of fp16 are 32x32x16 and 16x16x32, got 8x8x32"},
    {"gemm_fp16_rcr_compv3_64x64x32_4x1x1_32x32x16_intrawave_gfx942",
     "tile 64x64 does not divide over 4x1 waves of 32x32"},
    {"gemm_fp16_rcr_compv3_512x128x32_2x2x1_32x32x16_intrawave_gfx942",
     "tiles are at most 256x256 and 512 bytes of k, got 512x128x32 of fp16"},
    {"gemm_fp16_rcr_compv3_128x128x512_2x2x1_32x32x16_intrawave_gfx942",
     "tiles are at most 256x256 and 512 bytes of k, got 128x128x512 of fp16"},
    {"gemm_fp16_rcr_compv3_128x128x48_2x2x1_32x32x16_intrawave_gfx942",
     "a row of a tile must be 16 bytes times a power of two, got 48 x 2 bytes (fp16)"},
    {"gemm_fp16_rrr_async_128x128x64_2x2x1_32x32x16_intrawave_s2_gfx950", ""},
    {"gemm_int8_crr_async_64x128x128_2x2x1_32x32x32_intrawave_s3_gfx950", ""},
    {"gemm_fp32_ccr_async_128x128x32_2x2x1_32x32x8_intrawave_s2_gfx950",
     "reads from LDS transpose elements of 16 and 8 bits for async and ccr, got fp32"},
    {"gemm_fp32_ccr_compv4_128x128x32_2x2x1_32x32x8_intrawave_gfx950", ""},
    {"gemm_fp8_ccr_async_32x128x256_1x4x1_32x32x32_intrawave_s2_gfx950",
     "async and ccr need 64 bytes of rows in a line of a tile, or that times a power of two, got "
     "32 "
     "(tile 32x128x256 of fp8)"},
    {"gemm_fp16_rrr_async_32x96x128_2x2x1_16x16x32_intrawave_s2_gfx950",
     "async and rrr need 64 bytes of rows in a line of a tile, or that times a power of two, got "
     "192 (tile 32x96x128 of fp16)"},
    {"gemm_fp16_crr_async_32x128x128_2x2x1_16x16x32_intrawave_s2_gfx950", ""},
    {"gemm_fp16_rrr_async_128x128x64_2x2x1_32x32x16_presh_intrawave_s2_gfx950", ""},
    {"gemm_fp16_rcr_compv4_256x128x32_2x2x1_32x32x16_intrawave_splitordered1_streamk_gfx942", ""},
    {"gemm_fp16_rcr_compv4_256x128x32_2x2x1_32x32x16_intrawave_splitatomic1_streamk_gfx942",
     "streamk cuts K where blocks run out of tiles, adds in order and takes several tiles: it "
     "needs "
     "split_k=ordered slices=1 persistent=false, got split_k=atomic slices=1 persistent=false"},
    {"gemm_fp16_rcr_compv4_256x128x32_2x2x1_32x32x16_intrawave_streamk_gfx942",
     "streamk cuts K where blocks run out of tiles, adds in order and takes several tiles: it "
     "needs "
     "split_k=ordered slices=1 persistent=false, got split_k=none slices=1 persistent=false"},
    {"gemm_fp16_rcr_async_16x128x64_1x4x1_16x16x32_intrawave_s2_gfx950",
     "256 lanes copy whole rounds of 16 bytes, which 16 rows of 8 such chunks are not"},
    {"gemm_fp16_rcr_compv3_256x256x32_2x2x1_32x32x16_intrawave_splitordered1_streamk_gfx942",
     "streamk adds up parts of at most 128 sums a lane, got 256 (256x256 over 256 lanes)"},
    {"gemm_fp16_rcr_mem_256x256x32_2x4x1_32x32x16_intrawave_gfx942",
     "mem has two tiles in registers beside at most 64 sums a lane, got 128 (256x256 over 512 "
     "lanes)"},
    {"gemm_fp16_rcr_mem_256x128x32_2x4x1_32x32x16_intrawave_gfx942", ""},
    {"gemm_fp16_rcr_compv4_256x256x64_2x2x1_32x32x16_intrawave_gfx942",
     "needs 131072 bytes of LDS for 2 tiles of K, gfx942 has 65536"},
    {"gemm_fp16_rcr_direct_128x64x16_2x2x1_4x4x1_gfx942",
     "direct has tile 64x64x16, wave 2x2x1 and warp tile 4x4x1 only, got 128x64x16, 2x2x1 and "
     "4x4x1"},
    {"gemm_fp16_rcr_direct_64x64x16_2x2x1_4x4x1_intrawave_gfx942",
     "scheduler must be standard with direct, got intrawave"},
    {"gemm_fp16_rcr_direct_64x64x16_2x2x1_4x4x1_presh_gfx942",
     "direct takes B as it is, got a preshuffled one"},
};

INSTANTIATE_TEST_SUITE_P(Table, GemmLegality, testing::ValuesIn(kVerdicts),
                         [](const auto& row) { return std::string(row.param.name); });

// The same specs as kernels that are made from CK Tile's headers.
class GemmCktileLegality : public testing::TestWithParam<IllegalName> {};

TEST_P(GemmCktileLegality, GivesTheReasonWithBothNumbers) {
  const KernelSpec spec = parse_name(GetParam().name);
  EXPECT_EQ(is_legal_for_cktile(spec, load_target(spec.target)).reason, GetParam().reason);
}

const IllegalName kCktileNames[] = {
    {"gemm_fp16_rcr_compv3_256x256x32_2x2x1_32x32x8_intrawave_gfx942", ""},
    {"gemm_fp16_rcr_compv4_256x256x64_2x2x1_32x32x8_intrawave_gfx942",
     "needs 65536 bytes of LDS, compv4 allows 32768 of gfx942's 65536"},
    {"gemm_fp16_rcr_compv3_256x256x32_1x1x1_32x32x8_intrawave_gfx942",
     "needs 1024 accumulators a lane (256x256 over 1 waves of 64), half of gfx942's 512 registers "
     "are for them"},
    {"gemm_fp16_rcr_compv3_256x256x32_4x4x1_32x32x8_intrawave_gfx942",
     "gfx942 does not list wave 4x4x1"},
    {"gemm_fp16_rcr_compv3_128x128x32_2x2x1_32x32x4_intrawave_gfx942",
     "gfx942 does not list warp tile 32x32x4 for fp16"},
    {"gemm_fp16_rcr_compv3_128x128x32_2x2x1_32x32x8_interwave_gfx942",
     "interwave needs the mem pipeline, got compv3"},
    {"gemm_fp16_rcr_compv3_256x256x32_2x2x1_32x32x8_intrawave_c2x1_gfx942",
     "cluster_m must be 1 with compv3, got 2"},
    {"gemm_fp16_rcr_compv3_256x256x32_2x2x1_32x32x8_intrawave_storetma_gfx942",
     "CK Tile stores standard or cshuffle, got tma"},
    {"gemm_fp16_rcr_compv3_256x256x32_2x2x1_32x32x8_intrawave_splitordered2_gfx942",
     "split_k must be atomic for splits=2 with CK Tile, got ordered"},
    {"gemm_fp16_rcr_compv3_256x256x32_2x2x1_32x32x8_intrawave_splitatomic1_gfx942",
     "split_k must be none for splits=1 with CK Tile, got atomic"},
    {"gemm_fp16_rcr_compv3_64x64x32_4x1x1_32x32x8_intrawave_gfx942",
     "tile 64x64x32 does not divide over waves 4x1x1 of warp tile 32x32x8"},
    {"gemm_fp16_rcr_compv5_128x128x64_2x2x1_32x32x8_intrawave_gfx942", ""},
    {"gemm_fp16_rcr_compv3_128x128x64_2x2x1_4x64x16_intrawave_gfx942", ""},
    {"gemm_fp8_rcr_compv3_128x128x64_2x2x1_32x32x16_intrawave_gfx90a", ""},
    {"gemm_fp16_rcr_async_128x128x64_2x2x1_32x32x16_intrawave_s2_gfx950",
     "gfx950 has no pipeline async"},
    {"gemm_fp16_rcr_compv3_128x128x64_2x2x1_32x32x8_intrawave_splitatomic1_slices4_gfx942",
     "CK Tile cuts K into splits: slices must be 1, got 4"},
    {"gemm_fp32_rcr_packab_240x480x256_0x0x1_12x32x1_avx512", "avx512 has no pipeline packab"},
};

INSTANTIATE_TEST_SUITE_P(Table, GemmCktileLegality, testing::ValuesIn(kCktileNames),
                         [](const auto& row) { return std::string(row.param.name); });

TEST(GemmLegality, OtherTarget) {
  const KernelSpec spec = parse_name("gemm_fp32_rcr_packab_240x480x256_0x0x1_12x32x1_avx512");
  EXPECT_EQ(family().is_legal(spec, load_target("avx2")).reason,
            "the kernel is for avx512, the target is avx2");
}

TEST(GemmLegality, FewerStagesThanThePipelineTakes) {
  KernelSpec spec =
      parse_name("gemm_bf16_rcr_tmaws_128x256x64_2x1x1_64x256x16_cooperative_s4_sm90a");
  spec.algorithm.stages = 1;
  EXPECT_EQ(family().is_legal(spec, load_target("sm90a")).reason,
            "tmaws takes 2 to 20 stages, got 1");
}

// ---- which problems a kernel serves ----

std::string refusal(const char* name, const GemmProblem& problem) {
  const KernelSpec spec = parse_name(name);
  return supports(spec, problem, load_target(spec.target)).reason;
}

constexpr const char* kBlocked = "gemm_bf16_rcr_packab_240x480x256_0x0x1_12x32x2_avx512";
constexpr const char* kStream = "gemm_bf16_rcr_stream_8x768x512_0x0x1_8x48x2_avx512";
constexpr const char* kTmaws =
    "gemm_bf16_rcr_tmaws_128x256x64_2x1x1_64x256x16_cooperative_s4_sm90a";

TEST(GemmSupports, TheSameSignature) {
  GemmProblem p = gemm_problem(DType::bf16, GemmLayout::rcr, 77, 136, 99);
  EXPECT_EQ(refusal(kBlocked, p), "");
  p.layout = GemmLayout::rrr;
  EXPECT_EQ(refusal(kBlocked, p), "the kernel has layout=rcr, the problem layout=rrr");
  p = gemm_problem(DType::fp16, GemmLayout::rcr, 77, 136, 99);
  EXPECT_EQ(refusal(kBlocked, p), "the kernel has a=bf16, the problem a=fp16");
  p = gemm_problem(DType::bf16, GemmLayout::rcr, 77, 136, 99);
  p.out = DType::fp32;
  EXPECT_EQ(refusal(kBlocked, p), "the kernel has out=bf16, the problem out=fp32");
  p.out = DType::bf16;
  p.epilogue = parse_epilogue("bias+gelu");
  EXPECT_EQ(refusal(kBlocked, p), "the kernel has epilogue=none, the problem epilogue=bias+gelu");
  p.epilogue = {};
  p.preshuffled_b = true;
  EXPECT_EQ(refusal(kBlocked, p), "the kernel has preshuffle=0, the problem preshuffle=1");
}

TEST(GemmSupports, TypeOfDMattersOnlyWhereThereIsOne) {
  GemmProblem p = gemm_problem(DType::bf16, GemmLayout::rcr, 77, 136, 99);
  p.d = DType::fp32;
  EXPECT_EQ(refusal(kBlocked, p), "");
  p.epilogue = parse_epilogue("bias");
  EXPECT_EQ(refusal("gemm_bf16_rcr_packab_240x480x256_0x0x1_12x32x2_bias_avx512", p),
            "the kernel has d=bf16, the problem d=fp32");
}

TEST(GemmSupports, TfAndFp32AreNotTheSame) {
  const auto name = "gemm_tf32_rcr_packab_240x480x256_0x0x1_12x32x1_avx512";
  EXPECT_EQ(refusal(name, gemm_problem(DType::fp32, GemmLayout::rcr, 1, 1, 1)),
            "the kernel has a=tf32, the problem a=fp32");
}

TEST(GemmSupports, StreamTakesFewRowsOrColumns) {
  EXPECT_EQ(refusal(kStream, gemm_problem(DType::bf16, GemmLayout::rcr, 16, 3072, 768)), "");
  EXPECT_EQ(refusal(kStream, gemm_problem(DType::bf16, GemmLayout::rcr, 3072, 8, 768)), "");
  EXPECT_EQ(refusal(kStream, gemm_problem(DType::bf16, GemmLayout::rcr, 17, 3072, 768)),
            "stream serves m <= 16 or n <= 8, the smaller of both, got m=17 n=3072");
  EXPECT_EQ(refusal(kStream, gemm_problem(DType::bf16, GemmLayout::rcr, 3072, 9, 768)),
            "stream serves m <= 16 or n <= 8, the smaller of both, got m=3072 n=9");
}

// host_target() leaves the instructions out on a machine whose processor lacks them.
TEST(GemmLegality, TilesNeedTheirInstruction) {
  Target target = load_target("avx512");
  std::erase_if(target.instructions, [](const Instruction& i) { return i.name == "tdpbssd"; });
  const auto refused = [&](const char* name) {
    return family().is_legal(parse_name(name), target).reason;
  };
  EXPECT_EQ(refused("gemm_int8_rcr_amx_96x960x512_0x0x1_32x32x64_avx512"),
            "avx512 has no tdpbssd for int8 x int8; a processor with amxtile and amxint8 has it");
  EXPECT_EQ(refused("gemm_bf16_rcr_amx_96x960x512_0x0x1_32x32x32_avx512"), "");
  for (const KernelSpec& spec : enumerate(target, {})) {
    const auto& s = std::get<GemmSignature>(spec.signature);
    EXPECT_TRUE(spec.algorithm.pipeline != Pipeline::amx || s.a == DType::bf16) << name_of(spec);
  }
}

TEST(GemmSupports, TilesTakeEveryProblem) {
  const char* name = "gemm_int8_rcr_amx_96x960x512_0x0x1_32x32x64_avx512";
  for (const std::int64_t size : {0, 1, 31, 33, 100000}) {
    EXPECT_EQ(refusal(name, gemm_problem(DType::int8, GemmLayout::rcr, size, size + 1, size)), "");
  }
}

TEST(GemmSupports, SmallTakesGroupsOfRowsWholeVectorsAndShortCalls) {
  const auto name = [](const char* shape) {
    return std::string("gemm_bf16_rcr_small_") + shape + "_0x0x1_" + shape + "_avx512";
  };
  const auto refused = [&](const char* shape, std::int64_t m, std::int64_t n, std::int64_t k) {
    return refusal(name(shape).c_str(), gemm_problem(DType::bf16, GemmLayout::rcr, m, n, k));
  };
  EXPECT_EQ(refused("6x32x2", 1, 16, 8), "");
  EXPECT_EQ(refused("6x32x2", 100, 16, 8), "");
  EXPECT_EQ(refused("6x32x2", 0, 1, 1), "");
  EXPECT_EQ(refused("6x32x2", 5, 15, 64), "small serves n >= 16, got n=15");
  EXPECT_EQ(refused("6x32x2", 5, 16, 7),
            "small reads at least 16 bytes of each row of A, got k=7, which are 14");
  EXPECT_EQ(refused("4x6x32", 8, 16, 8), "");
  EXPECT_EQ(refused("4x6x32", 9, 16, 8), "small serves multiples of its 4 rows, got m=9");
  EXPECT_EQ(refused("3x8x32", 1, 16, 8), "small serves m >= 2 with 3 rows, got m=1");
  EXPECT_EQ(refusal("gemm_fp32_rrr_small_2x128x1_0x0x1_2x128x1_avx512",
                    gemm_problem(DType::fp32, GemmLayout::rrr, 4, 16, 8)),
            "small serves m=2 with rows of B in order, got m=4");
  EXPECT_EQ(refusal("gemm_fp32_rrr_small_6x64x1_0x0x1_6x64x1_avx512",
                    gemm_problem(DType::fp32, GemmLayout::rrr, 2, 16, 8)),
            "small serves m >= 3 with blocks of rows of fp32, got m=2");
  EXPECT_EQ(refusal("gemm_fp32_rcr_small_3x4x8_0x0x1_3x4x8_avx2",
                    gemm_problem(DType::fp32, GemmLayout::rcr, 2, 8, 4)),
            "");
  EXPECT_EQ(refusal("gemm_fp32_rcr_small_3x4x8_0x0x1_3x4x8_avx2",
                    gemm_problem(DType::fp32, GemmLayout::rcr, 2, 7, 4)),
            "small serves n >= 8, got n=7");
  EXPECT_EQ(refused("6x32x2", 512, 512, 128), "");
  EXPECT_EQ(refused("6x32x2", 512, 512, 129),
            "small serves at most 16777216 products of words, got m=512 n=512 and 65 words of k");
  EXPECT_EQ(refused("6x32x2", 5, 16, 8192), "");
  EXPECT_EQ(refused("6x32x2", 5, 16, 8193),
            "small serves at most 4096 words of k, got k=8193, which are 4097");
  EXPECT_EQ(refused("6x32x2", 1, 1024, 8192), "");
  EXPECT_EQ(refused("6x32x2", 1, 1025, 8192),
            "small serves at most 4194304 words of B, got n=1025 by 4096 words of k");
  EXPECT_EQ(refused("6x32x2", 1024, 512, 8), "");
  EXPECT_EQ(refused("6x32x2", 1024, 513, 8),
            "small serves at most 524288 elements of output, got m=1024 n=513");
  EXPECT_EQ(refused("6x32x2", std::int64_t{1} << 40, std::int64_t{1} << 40, 8),
            "small serves at most 524288 elements of output, got m=1099511627776 n=1099511627776");
}

TEST(GemmSupports, TmaNeedsAlignedRows) {
  EXPECT_EQ(refusal(kTmaws, gemm_problem(DType::bf16, GemmLayout::rcr, 100, 104, 96)), "");
  EXPECT_EQ(refusal(kTmaws, gemm_problem(DType::bf16, GemmLayout::rcr, 100, 100, 100)),
            "k must be a multiple of 8 for bf16 operands with tmaws, got k=100");
  GemmProblem padded = gemm_problem(DType::bf16, GemmLayout::rcr, 100, 100, 100);
  padded.ld_a = 104;
  padded.ld_b = 100;
  EXPECT_EQ(refusal(kTmaws, padded),
            "k must be a multiple of 8 for bf16 operands with tmaws, got k=100");
  padded.ld_b = 102;
  EXPECT_EQ(refusal(kTmaws, padded),
            "ld_b must be a multiple of 8 for bf16 operands with tmaws, got ld_b=102");
  padded.ld_b = 104;
  EXPECT_EQ(refusal(kTmaws, padded), "");
}

}  // namespace
}  // namespace tessera::gemm
