// The family of fused attention. See README.md.
#pragma once

#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/families/family.h"

namespace tessera::fmha {

extern const Family kFamily;
inline const Family& family() { return kFamily; }

// See Family::abi. What it counts: device/fmha.h, the entries.
inline constexpr int kAbi = 8;

// The longest heads that kernels exist for.
inline constexpr std::int64_t kMostHdim = 576;
inline constexpr std::int64_t kMostHdimV = 512;

// FmhaProblem::num_splits where each sequence's keys are cut whatever other sequences there are.
inline constexpr std::int64_t kSplitsOfEach = -1;

inline const FmhaProblem& fmha_of(const Problem& problem) { return std::get<FmhaProblem>(problem); }
inline const FmhaSignature& signature_in(const KernelSpec& spec) {
  return std::get<FmhaSignature>(spec.signature);
}

// The kinds besides attention alone: appending to a cache, appending and then attending, gradients.
inline bool appends(const FmhaProblem& p) { return p.kind == FmhaKind::append; }
inline bool appends(const KernelSpec& spec) { return signature_in(spec).kind == FmhaKind::append; }
inline bool extends(const FmhaProblem& p) { return p.kind == FmhaKind::extend; }
inline bool extends(const KernelSpec& spec) { return signature_in(spec).kind == FmhaKind::extend; }
inline bool goes_back(const FmhaProblem& p) { return p.kind == FmhaKind::backward; }
inline bool goes_back(const KernelSpec& spec) {
  return signature_in(spec).kind == FmhaKind::backward;
}
inline bool is_packed(const FmhaProblem& p) { return p.lengths == FmhaLengths::packed; }
inline bool is_paged(const FmhaProblem& p) { return p.pages != FmhaPages::none; }
inline bool is_paged(const KernelSpec& spec) { return signature_in(spec).pages != FmhaPages::none; }

// validate.cc
void validate(const Problem& problem);
// Why no kernel has such a signature; empty where kernels do.
std::string signature_reason(const FmhaSignature& signature);

// problem.cc: the table, and what it says of problems
Tensors tensors(const Problem& problem);
const void* pointer(const Operands& operands, std::size_t operand);
// Where lse lies: strides {batch, head, token}. Packed sequences are one of all tokens.
struct LseLayout {
  std::int64_t tokens, batches;
  std::array<std::int64_t, 3> strides;
};
LseLayout lse_layout(const FmhaProblem& problem);
// How many tokens lie together: packed sequences are one of all tokens, and each page of a cache is
// a short one.
struct TokenCounts {
  std::int64_t sequences, queries;  // of each
  std::int64_t parts, keys;         // sequences or pages, and keys of each
  std::string_view part;            // what a part is
};
TokenCounts token_counts(const FmhaProblem& problem);
// How many factors a head has; 0 where blocks have none.
std::int64_t blocks_of_queries(const FmhaProblem& problem);
std::int64_t blocks_of_keys(const FmhaProblem& problem);
// Whether numbers of the type have 8 bits, which may have factors.
inline bool is_eight_bits(DType dtype) { return dtype == DType::fp8 || dtype == DType::bf8; }
// The type of keys and values, and whether that is another than the queries'.
inline DType kv_type(const FmhaSignature& s) {
  return s.kv == FmhaKv::same ? s.in : s.kv == FmhaKv::fp8 ? DType::fp8 : DType::bf8;
}
// The largest number of a type in the encoding of a target.
inline double max_finite_of(DType dtype, Fp8Encoding fp8) {
  return dtype == DType::fp8 && fp8 == Fp8Encoding::fnuz ? 240 : max_finite(dtype);
}
inline bool has_own_kv(const FmhaProblem& p) { return p.kv != FmhaKv::same; }
inline bool has_own_kv(const FmhaSignature& s) { return s.kv != FmhaKv::same; }
// Whether any query is written. A packed tensor may have room for tokens that no sequence has. The
// problem has its strides.
inline bool has_queries(const FmhaProblem& p) {
  return p.batch > 0 && p.seqlen_q > 0 && p.tokens_q > 0;
}
// Products of a query with a key that are not masked, of all heads, with the longest lengths.
double scores(const FmhaProblem& problem);
double flops(const Problem& problem);
double bytes(const Problem& problem);

// kernels.cc
// The longest v of a kernel whose tile.k is the longest q and k. 192 goes with 128.
inline int most_hdim_v(int most_hdim) {
  return most_hdim == 192 ? 128 : std::min(most_hdim, static_cast<int>(kMostHdimV));
}
Verdict is_deterministic(const KernelSpec& spec, const Target& target);
std::vector<KernelSpec> combinations(const Target& target, std::span<const Wish> wishes,
                                     std::size_t most);
std::span<const DerivedField> derived();
KernelSpec general(const Problem& problem, const Target& target);
std::optional<TunedLength> tuned_length(const KernelSpec& spec, const Problem& problem,
                                        const Target& target);
Launch bind(const KernelSpec& spec, const Problem& problem, const Target& target,
            const Operands& operands);
std::string stage(const KernelSpec& spec, const Target& target, std::string_view entry);
Estimate estimate(const KernelSpec& spec, const Problem& problem, const Target& target,
                  int threads);

// any_batch.cc
Verdict is_batch_invariant(const KernelSpec& spec, const Target& target);
std::string order_of_sums(const KernelSpec& spec, const Problem& problem, const Target& target);
AnyBatch any_batch(const Problem& problem);

// cktile.cc
std::span<const InstanceSource> instances();

// hipdnn.cc
hipdnn::Kernel refuse_hipdnn(const KernelSpec& spec, const Target& target);

// receipts.cc: what frameworks ask for
std::span<const Receipt> receipts();
std::vector<Problem> receipt_problems(const Receipt& receipt);

// settings.cc
SettledProblem from_settings(std::span<const Setting> settings);

// features.cc: what learned models see
std::span<const Feature> features();
Verdict features_fit(const Problem& problem);
void extract(const Problem& problem, const Target& target, int threads,
             std::span<const KernelSpec> specs, std::span<double> columns,
             std::span<const FeatureUse> wanted = {});
Problem plain(const Problem& problem);
Problem twin(const Problem& problem, const Target& target);
bool is_described(const KernelSpec& spec);

// draw.cc: lists to learn from, and problems that exercise a kernel
std::span<const std::string_view> problem_sets();
std::vector<Problem> draw(std::string_view set, ProblemSide side, const Target& target,
                          const TypeWords& words);
std::vector<Problem> samples(const KernelSpec& spec, const Target& target);

// reference.cc
// The tokens [first, first + count) of a packed tensor.
struct TokenRun {
  std::int64_t first, count;
};
// Which run each of `tokens` packed tokens belongs to, the first one where several have it; -1: to
// none.
std::vector<std::int64_t> owners_of(std::int64_t tokens, std::span<const TokenRun> runs);
Mismatch verify(const Problem& problem, const Operands& operands);
Reference reference(const Problem& problem, const Operands& operands,
                    const ReferenceLimits& limits);
Mismatch compare(const Problem& problem, const Operands& operands, const Reference& reference);

}  // namespace tessera::fmha
