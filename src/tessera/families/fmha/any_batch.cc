// What the bits of a sequence follow besides its own operands, and which problems stand for any
// batch. Kernels go through the keys of a tile of rows from the sequence's first one on, so that
// nothing of other sequences matters but into how many parts the keys are cut: each sequence's own
// number must say that. A mask hides the same keys of a row whether the sequence ends behind it or
// goes on, so that chunks of whole tiles have the bits of the whole.
#include <array>

#include "tessera/families/fmha/fmha.h"

namespace tessera::fmha {
namespace {

// Batches whose longest sequence has at most so many queries are decoding; they have kernels of
// their own, and keys in parts. Longer ones fill a machine without parts.
constexpr std::int64_t kMostDecoded = 16;

struct Batch {
  std::int64_t batch, seqlen_q, seqlen_k;
};
struct Batches {
  std::array<Batch, 3> usual;
  std::array<Batch, 2> unusual;
};
constexpr Batches kDecoding = {{{{16, 1, 4096}, {1, 1, 4096}, {64, 1, 2048}}},
                               {{{1, 16, 17}, {64, 16, 32768}}}};
constexpr Batches kPrefill = {{{{4, 1024, 4096}, {1, 2048, 2048}, {16, 512, 512}}},
                              {{{1, 17, 17}, {3, 1003, 2011}}}};

bool is_decoding(const FmhaProblem& p) { return !goes_back(p) && p.seqlen_q <= kMostDecoded; }

// The problem with cuts that follow each sequence alone.
FmhaProblem with_own_cuts(FmhaProblem p) {
  if (appends(p) || p.num_splits != 0) return p;
  p.num_splits = is_decoding(p) ? kSplitsOfEach : 1;
  return p;
}

// Counts that follow from the sizes of a batch do so with others, too.
FmhaProblem with_batch(FmhaProblem p, const Batch& batch) {
  p.batch = batch.batch, p.seqlen_q = batch.seqlen_q, p.seqlen_k = batch.seqlen_k;
  p.tokens_q = p.tokens_k = p.rotary_positions = kPacked;
  if (!is_paged(p)) return p;
  p.num_pages = p.max_pages = p.table_stride = p.page_entries = kPacked;
  return p;
}

}  // namespace

// Gradients whose sums follow a counter in device memory are not deterministic. All else cuts keys
// as the problem says, or not at all.
Verdict is_batch_invariant(const KernelSpec&, const Target&) { return {}; }

// No kernel is known to add up as another one does. How a kernel appends does not matter.
std::string order_of_sums(const KernelSpec& spec, const Problem&, const Target&) {
  return name_of(spec);
}

AnyBatch any_batch(const Problem& problem) {
  const FmhaProblem own = with_own_cuts(fmha_of(problem));
  const Batches& batches = is_decoding(own) ? kDecoding : kPrefill;
  AnyBatch any{own, {}, {}};
  for (const Batch& batch : batches.usual) any.usual.emplace_back(with_batch(own, batch));
  for (const Batch& batch : batches.unusual) any.unusual.emplace_back(with_batch(own, batch));
  return any;
}

}  // namespace tessera::fmha
