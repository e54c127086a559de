// The sizes that host and device must agree on for tmaws kernels (src/device/cuda/tma_gemm.h).
#include <algorithm>

#include "tessera/families/gemm/gemm_internal.h"

namespace tessera::gemm {
namespace {

constexpr int kRows = 64;      // of one wgmma, and of a slab of transposed lines
constexpr int kThreads = 128;  // of a warpgroup
constexpr int kAccumulatorBytes = 4;
constexpr int kWithRoom = 160;  // accumulators beside which bias and functions find registers
constexpr std::int64_t kSharedLimit = 232448;  // of a Hopper block

int chunk_of(int n) {
  for (const int width : {64, 32, 16}) {
    if (n % width == 0) return width;
  }
  return 8;
}

int round_up(int value, int unit) { return (value + unit - 1) / unit * unit; }

TmawsOperand operand(const GemmSignature& s, const Algorithm& a, bool is_b) {
  const bool is_p = is_b == a.swap_ab;
  TmawsOperand o;
  o.dtype = is_b ? s.b : s.a;
  const bool along_k = is_b ? !b_is_row_major(s.layout) : a_is_row_major(s.layout);
  const bool packed = is_b && s.preshuffled_b;
  o.transposed = a.repack && !along_k && !packed && size_of(o.dtype) != 2;
  o.k_contiguous = along_k || packed || o.transposed;
  o.rows = is_p ? a.tile.m : a.tile.n;
  o.parts = is_p ? a.cluster_n : a.cluster_m;
  const int stored = o.k_contiguous ? o.rows : round_up(o.rows, kTmawsLineBytes / size_of(o.dtype));
  o.bytes = std::int64_t{stored} * a.tile.k * size_of(o.dtype);
  return o;
}

}  // namespace

TmawsOperand tmaws_a(const GemmSignature& s, const Algorithm& a) { return operand(s, a, false); }
TmawsOperand tmaws_b(const GemmSignature& s, const Algorithm& a) { return operand(s, a, true); }

TmawsStore tmaws_store(const Algorithm& a) {
  const int owned = kRows * (a.scheduler == Scheduler::pingpong ? 1 : a.wave.m);
  const int owners = std::max(1, std::min(a.splits, a.tile.n / 8));
  TmawsStore store;
  store.columns = a.tile.n / owners;
  store.chunk = chunk_of(store.columns);
  store.row_blocks = a.tile.m % owned == 0 ? a.tile.m / owned : 0;
  return store;
}

bool tmaws_prepares(const Algorithm& a) { return a.repack || a.split_k == SplitK::atomic; }

int tmaws_slice_groups(const Algorithm& a) {
  return std::max(1, std::min(a.splits, a.tile.n / 8)) * a.wave.m;
}

std::int64_t tmaws_slice_bytes(const Algorithm& a) {
  const TmawsStore store = tmaws_store(a);
  return std::int64_t{store.row_blocks} * store.columns / 8 * kThreads * 16;
}

bool tmaws_reads(DType dtype, std::int64_t ld, std::int64_t batch_stride) {
  return (ld | batch_stride) * size_of(dtype) % kTmaBytes == 0;
}

TmawsCopies tmaws_copies(const GemmProblem& problem) {
  // The copy engine reads batches at equal distances, not through pointers.
  if (problem.pointer_arrays) return {true, true};
  const GemmProblem p = with_strides(problem);
  const auto stride = [&p](std::int64_t value) { return p.batch > 1 ? value : 0; };
  const bool fits_a = a_is_row_major(p.layout) || size_of(p.a) == 2;
  const bool fits_b = !b_is_row_major(p.layout) || size_of(p.b) == 2;
  return {!fits_a || !tmaws_reads(p.a, p.ld_a, stride(p.batch_stride_a)),
          !p.preshuffled_b && (!fits_b || !tmaws_reads(p.b, p.ld_b, stride(p.batch_stride_b)))};
}

bool tmaws_has_room(const Algorithm& a) {
  const TmawsStore store = tmaws_store(a);
  return store.row_blocks * store.columns / 2 <= kWithRoom;
}

// As finishes_in_place() in tma_store.h.
bool tmaws_copies_out(const GemmSignature& s, bool has_room) {
  const auto fits = [has_room](EpilogueOp op) {
    using enum EpilogueOp;
    if (op == pass_through || op == relu || op == clamp) return true;
    const bool function =
        op == gelu || op == gelu_tanh || op == silu || op == sigmoid || op == EpilogueOp::tanh;
    return has_room && (op == bias || function);
  };
  return size_of(s.out) == 2 && s.epilogue.num_d <= 1 &&
         std::all_of(s.epilogue.ops.begin(), s.epilogue.ops.end(), fits);
}

bool tmaws_copies_out(const GemmSignature& s, const Algorithm& a) {
  if (a.store == Store::direct) return false;
  if (a.swap_ab) return size_of(s.out) == 2 && num_ops(s.epilogue) == 0;
  return tmaws_copies_out(s, tmaws_has_room(a));
}

std::int64_t tmaws_shared_bytes(const GemmSignature& s, const Algorithm& a) {
  const TmawsStore store = tmaws_store(a);
  const std::int64_t consumers = a.wave.m;
  const std::int64_t vectors = std::int64_t{store.row_blocks} * store.columns / 8;
  const std::int64_t partial = (a.splits - 1) * vectors * consumers * kThreads * 16;
  const std::int64_t barriers = (2 * std::int64_t{a.stages} + 1) * 8;
  const std::int64_t stage = tmaws_a(s, a).bytes + tmaws_b(s, a).bytes;
  const std::int64_t fixed = a.stages * stage + partial + barriers;
  // Each consumer's store area takes a chunk of raw accumulators, or half of one if need be.
  const std::int64_t area = consumers * store.chunk * kRows * kAccumulatorBytes;
  const bool whole = store.chunk == 8 || fixed + area <= kSharedLimit;
  return fixed + (whole ? area : area / 2);
}

}  // namespace tessera::gemm
