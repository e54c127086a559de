// The family of fused attention. See README.md.
#pragma once

#include "tessera/families/family.h"

namespace tessera::fmha {

const Family& family();

// See Family::abi. What it counts: device/fmha.h, the entries.
inline constexpr int kAbi = 6;

// The longest heads that kernels exist for.
inline constexpr std::int64_t kMostHdim = 576;
inline constexpr std::int64_t kMostHdimV = 512;

inline const FmhaProblem& fmha_of(const Problem& problem) { return std::get<FmhaProblem>(problem); }

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
// How many factors a head has; 0 where blocks have none.
std::int64_t blocks_of_queries(const FmhaProblem& problem);
std::int64_t blocks_of_keys(const FmhaProblem& problem);
// Whether numbers of the type have 8 bits, which may have factors.
inline bool is_eight_bits(DType dtype) { return dtype == DType::fp8 || dtype == DType::bf8; }
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
// The longest v of a kernel whose tile.k is the longest q and k.
int most_hdim_v(int most_hdim);
Verdict is_legal(const KernelSpec& spec, const Target& target);
Verdict is_deterministic(const KernelSpec& spec, const Target& target);
Verdict supports(const KernelSpec& spec, const Problem& problem, const Target& target);
std::vector<KernelSpec> enumerate(const Target& target, std::span<const Wish> wishes);
std::vector<KernelSpec> combinations(const Target& target, std::span<const Wish> wishes,
                                     std::size_t most);
std::span<const DerivedField> derived();
std::vector<KernelSpec> candidates(const Problem& problem, const Target& target);
std::vector<KernelSpec> legal_candidates(const Problem& problem, const Target& target);
KernelSpec general(const Problem& problem, const Target& target);

// estimate.cc: into how many parts a CPU's kernel cuts the keys of the longest sequence. The
// problem has its strides.
std::int64_t flash_cpu_parts(const Algorithm& algorithm, const FmhaProblem& problem);

// emit.cc
Source emit(const KernelSpec& spec, const Target& target);
Launch bind(const KernelSpec& spec, const Problem& problem, const Operands& operands);

// cktile.cc
std::span<const InstanceSource> instances();

// receipts.cc: what frameworks ask for
std::span<const Receipt> receipts();
std::vector<Problem> receipt_problems(const Receipt& receipt);
std::optional<TunedLength> tuned_length(const KernelSpec& spec, const Problem& problem);

// stages.cc
// Whether a tile has the rows of all query heads that share a head of keys.
bool packs_heads(const KernelSpec& spec);
std::string stage(const KernelSpec& spec, std::string_view entry);

// settings.cc
Problem from_settings(std::span<const Setting> settings);

// estimate.cc
// How many products of such numbers a unit adds up in a second: one a cycle where it has no
// instruction for them.
double product_rate(const Target& target, DType in);
Estimate estimate(const KernelSpec& spec, const Problem& problem, const Target& target,
                  int threads);

// features.cc: what learned models see
std::span<const Feature> features();
Verdict features_fit(const Problem& problem);
void extract(const Problem& problem, const Target& target, int threads,
             std::span<const KernelSpec> specs, std::span<double> columns,
             std::span<const FeatureUse> wanted = {});
Problem plain(const Problem& problem);
Problem twin(const Problem& problem, const Target& target);

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
