// The rules of stream kernels on GPUs (src/tessera/device/cuda/gemm/stream_gemm.h).
#include <fmt/format.h>

#include <algorithm>

#include "tessera/families/gemm/legality_internal.h"
#include "tessera/families/gemm/stream_gpu_internal.h"

namespace tessera::gemm {
namespace {

constexpr int kMostFewRows = 8;      // rows
constexpr int kMostStreamSums = 16;  // of a warp; a lane finishes at most one output
constexpr int kMostStreamWords = 8;  // that a lane awaits, of all its rows
constexpr int kMostWarpRows = 4;     // powers of 2
constexpr int kFloatBytes = 4;

bool is_streamed(DType type) {
  return type == DType::fp32 || type == DType::fp16 || type == DType::bf16;
}

int word_elements(const Case& c) { return device::stream_word(size_of(c.signature.a)); }
int block_elements(const Case& c) { return device::stream_block(size_of(c.signature.a)); }
int stream_threads(const Case& c) {
  return c.algorithm.wave.n * c.algorithm.wave.k * c.target.warp_size;
}
int stream_words(const Case& c) { return c.algorithm.warp_tile.k / word_elements(c); }

// Of the sums of the warps that share k.
int parts_bytes(const Algorithm& a) {
  return a.wave.k == 1 ? 0 : a.wave.k * a.wave.n * a.warp_tile.m * a.warp_tile.n * kFloatBytes;
}
std::int64_t kept_bytes(const Case& c) {
  const Algorithm& a = c.algorithm;
  return stream_shared(a, a.tile.k, c.signature.a) + parts_bytes(a);
}

constexpr Rule kStreamRules[] = {
    kWaveRule,
    kUnusedFieldsRule,
    kNoPreshuffleRule,
    {[](const Case& c) { return is_streamed(c.signature.a) && c.signature.a == c.signature.b; },
     [](const Case& c) {
       return fmt::format(
           "stream multiplies fp32, fp16 or bf16 on GPUs, both operands of one type, got {} x {}",
           to_string(c.signature.a), to_string(c.signature.b));
     }},
    {[](const Case& c) { return c.signature.layout == GemmLayout::rcr; },
     [](const Case& c) {
       return fmt::format("stream reads A and B along a contiguous k on GPUs (rcr), got {}",
                          to_string(c.signature.layout));
     }},
    {[](const Case& c) {
       const Shape3& w = c.algorithm.wave;
       return w.m == 1 && w.n * w.k > 1;
     },
     [](const Case& c) {
       return fmt::format(
           "stream has one warp along m and several others on GPUs (1x8x1, 1x2x4), got {}",
           to_string(c.algorithm.wave));
     }},
    {[](const Case& c) { return stream_threads(c) <= c.target.max_threads_per_block; },
     [](const Case& c) {
       return fmt::format("needs {} threads a block, {} has {}", stream_threads(c), c.target.name,
                          c.target.max_threads_per_block);
     }},
    {[](const Case& c) { return c.algorithm.tile.m >= 1 && c.algorithm.tile.m <= kMostFewRows; },
     [](const Case& c) {
       return fmt::format("stream keeps 1 to {} rows on GPUs, got tile_m = {}", kMostFewRows,
                          c.algorithm.tile.m);
     }},
    {[](const Case& c) {
       const int rows = c.algorithm.warp_tile.n;
       return (rows == 1 || rows == 2 || rows == kMostWarpRows) &&
              rows * c.algorithm.tile.m <= kMostStreamSums;
     },
     [](const Case& c) {
       return fmt::format(
           "a warp of stream has 1, 2 or {} rows and at most {} sums, got {} rows and {} sums",
           kMostWarpRows, kMostStreamSums, c.algorithm.warp_tile.n,
           c.algorithm.warp_tile.n * c.algorithm.tile.m);
     }},
    {[](const Case& c) {
       const Algorithm& a = c.algorithm;
       return a.warp_tile.m == a.tile.m && a.warp_tile.n * a.wave.n == a.tile.n;
     },
     [](const Case& c) {
       const Algorithm& a = c.algorithm;
       return fmt::format("{} warps of {}x{} need tile {}x{} with stream, got {}x{}", a.wave.n,
                          a.warp_tile.m, a.warp_tile.n, a.warp_tile.m, a.warp_tile.n * a.wave.n,
                          a.tile.m, a.tile.n);
     }},
    {[](const Case& c) {
       const Algorithm& a = c.algorithm;
       return stream_words(c) >= 1 && a.warp_tile.k % word_elements(c) == 0 &&
              a.warp_tile.n * stream_words(c) <= kMostStreamWords;
     },
     [](const Case& c) {
       return fmt::format(
           "a lane of stream reads whole words of {} {} and at most {} words of {} rows, got {} "
           "elements of each",
           word_elements(c), to_string(c.signature.a), kMostStreamWords, c.algorithm.warp_tile.n,
           c.algorithm.warp_tile.k);
     }},
    {[](const Case& c) {
       return c.algorithm.tile.k >= 1 && c.algorithm.tile.k % block_elements(c) == 0;
     },
     [](const Case& c) {
       return fmt::format("tile_k must be a multiple of {} for {} with stream, got {}",
                          block_elements(c), to_string(c.signature.a), c.algorithm.tile.k);
     }},
    {[](const Case& c) { return kept_bytes(c) <= c.target.shared_memory_bytes; },
     [](const Case& c) {
       return fmt::format("needs {} bytes of shared memory for {} of k in {} rows, {} has {}",
                          kept_bytes(c), c.algorithm.tile.k, c.algorithm.tile.m, c.target.name,
                          c.target.shared_memory_bytes);
     }},
};

}  // namespace

std::span<const Rule> stream_rules() { return kStreamRules; }

Verdict stream_supports(const Algorithm& a, const GemmProblem& p) {
  if (std::min(p.m, p.n) <= a.tile.m) return {};
  return {fmt::format("{} serves m <= {} or n <= {}, got m={} n={}", to_string(a.pipeline),
                      a.tile.m, a.tile.m, p.m, p.n)};
}

}  // namespace tessera::gemm
