// The sizes that host and device must agree on for tmaws kernels
// (src/tessera/device/cuda/gemm/tma_gemm.h).
#include <algorithm>

#include "tessera/families/gemm/gemm_internal.h"

namespace tessera::gemm {
namespace {

constexpr int kRows = 64;      // of one wgmma, and of a slab of transposed lines
constexpr int kThreads = 128;  // of a warpgroup
constexpr int kAccumulatorBytes = 4;
constexpr int kWithRoom = 160;   // accumulators beside which bias and functions find registers
constexpr int kMatrixSlots = 4;  // of a store area that D tensors come to, each with a barrier
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

// As area_bytes() in tma_store_rules.h.
std::int64_t area_bytes(std::int64_t least, std::int64_t most, std::int64_t slot) {
  for (int slots = kMatrixSlots; slots > 0; --slots) {
    if (slots * slot <= least) break;
    if (slots * slot <= most) return slots * slot;
  }
  return least;
}

}  // namespace

TmawsOperand tmaws_a(const GemmSignature& s, const Algorithm& a) { return operand(s, a, false); }
TmawsOperand tmaws_b(const GemmSignature& s, const Algorithm& a) { return operand(s, a, true); }

// As out_chunk_of() in tma_store_rules.h.
int tmaws_out_chunk(const GemmSignature& s, const Algorithm& a) {
  const TmawsStore store = tmaws_store(a);
  const int matrices = tmaws_d_roles(s.epilogue).matrices;
  if (matrices == 0) return store.chunk;
  if (store.columns % 64 == 0) return 32;
  return matrices == 1 || store.chunk == 8 ? store.chunk : store.chunk / 2;
}

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

TmawsDRoles tmaws_d_roles(const Epilogue& epilogue) {
  TmawsDRoles roles;
  const auto uses = d_uses(epilogue);
  for (int i = 0; i < epilogue.num_d; ++i) {
    const DUse& use = uses[static_cast<std::size_t>(i)];
    if (!use.is_vector() && roles.matrices < kTmawsMatrices) {
      roles.matrix[static_cast<std::size_t>(roles.matrices++)] = i;
    } else if (use.op == EpilogueOp::bias && roles.biases == 0) {
      ++roles.biases;
    } else {
      roles.others = true;
    }
  }
  return roles;
}

// As finishes_in_place() in tma_store_rules.h.
bool tmaws_copies_out(const GemmSignature& s, bool has_room) {
  const auto fits = [has_room](EpilogueOp op) {
    using enum EpilogueOp;
    return has_room || op == pass_through || op == relu || op == clamp;
  };
  const TmawsDRoles roles = tmaws_d_roles(s.epilogue);
  return size_of(s.out) == 2 && !roles.others && (roles.matrices == 0 || size_of(s.d) == 2) &&
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
  const int matrices = tmaws_copies_out(s, a) ? tmaws_d_roles(s.epilogue).matrices : 0;
  const std::int64_t for_d = matrices > 0 ? consumers * kMatrixSlots : 0;
  const std::int64_t barriers = (2 * std::int64_t{a.stages} + 1 + for_d) * 8;
  const std::int64_t stage = tmaws_a(s, a).bytes + tmaws_b(s, a).bytes;
  const std::int64_t fixed = a.stages * stage + partial + barriers;
  // Each consumer's store area takes a chunk of raw accumulators, or half of one if need be.
  const std::int64_t raw = std::int64_t{store.chunk} * kRows * kAccumulatorBytes;
  const bool whole = store.chunk == 8 || fixed + consumers * raw <= kSharedLimit;
  const std::int64_t least = whole ? raw : raw / 2;
  const std::int64_t most = (kSharedLimit - fixed) / std::max<std::int64_t>(consumers, 1);
  const std::int64_t slot = std::int64_t{matrices} * tmaws_out_chunk(s, a) * kRows * 2;
  return fixed + consumers * (matrices > 0 ? area_bytes(least, most, slot) : least);
}

}  // namespace tessera::gemm
