// The GEMM family: D = epilogue(alpha * A x B + beta * C, D0..D3). See README.md beside this file.
#pragma once

#include "tessera/families/family.h"

namespace tessera::gemm {

extern const Family kFamily;
inline const Family& family() { return kFamily; }

// See Family::abi. It counts changes of device/gemm/gemm_arguments.h, of CudaGemmArguments and of
// the entries.
inline constexpr int kAbi = 5;

// problem.cc
void validate(const Problem& problem);
Problem plain(const Problem& problem);
Problem twin(const Problem& problem, const Target& target);
Tensors tensors(const Problem& problem);
const void* pointer(const Operands& operands, std::size_t operand);
void set_pointer(Operands& operands, std::size_t operand, void* data);

// rules.cc
// Family::is_legal for a kernel that is made from CK Tile's headers: `spaces` of the target do not
// matter for it, `cktile_spaces` do. See docs/decisions/cdna.md.
Verdict is_legal_for_cktile(const KernelSpec& spec, const Target& target);

// kernels.cc
Verdict is_deterministic(const KernelSpec& spec, const Target& target);
Verdict supports(const KernelSpec& spec, const Problem& problem, const Target& target);
std::vector<KernelSpec> enumerate(const Target& target, std::span<const Wish> wishes);
std::vector<KernelSpec> combinations(const Target& target, std::span<const Wish> wishes,
                                     std::size_t most);
std::vector<KernelSpec> candidates(const Problem& problem, const Target& target);
std::vector<KernelSpec> legal_candidates(const Problem& problem, const Target& target);
KernelSpec general(const Problem& problem, const Target& target);
std::span<const DerivedField> derived();
std::optional<Prepack> prepack(const KernelSpec& spec, const Problem& problem, const Target& target,
                               const Operands& operands, void* packed);
Problem unpacked(const Problem& problem);

Source emit(const KernelSpec& spec, const Target& target);
Estimate estimate(const KernelSpec& spec, const Problem& problem, const Target& target,
                  int threads);
Launch bind(const KernelSpec& spec, const Problem& problem, const Target& target,
            const Operands& operands);

// any_batch.cc
Verdict is_batch_invariant(const KernelSpec& spec, const Target& target);
std::string order_of_sums(const KernelSpec& spec, const Problem& problem, const Target& target);
AnyBatch any_batch(const Problem& problem);

// estimate.cc
double flops(const Problem& problem);
double bytes(const Problem& problem);

// features.cc
std::span<const Feature> features();
Verdict features_fit(const Problem& problem);
bool is_described(const KernelSpec& spec);
void extract(const Problem& problem, const Target& target, int threads,
             std::span<const KernelSpec> specs, std::span<double> columns,
             std::span<const FeatureUse> wanted = {});

// cktile.cc
std::span<const InstanceSource> instances();

// hipdnn.cc
extern const hipdnn::Export kHipdnn;

// reference.cc
Mismatch verify(const Problem& problem, const Operands& operands);
Reference reference(const Problem& problem, const Operands& operands,
                    const ReferenceLimits& limits);
Mismatch compare(const Problem& problem, const Operands& operands, const Reference& reference);

// facts.cc
std::string model_key(const Signature& signature);
tessera::Facts facts(const Problem& problem);
const Instruction* roof(const Problem& problem, const Target& target);
Problem retyped(const Problem& problem, const TypeWords& words);
Problem from_words(const ProblemWords& words);

// samples.cc
std::vector<Problem> samples(const KernelSpec& spec, const Target& target);
// A problem of these sizes that asks for exactly what a kernel of this signature computes. With a
// gate, whose columns go in pairs, n is rounded up.
GemmProblem problem_of(const GemmSignature& signature, std::int64_t m, std::int64_t n,
                       std::int64_t k);

// problem_sets.cc
std::span<const std::string_view> problem_sets();
std::vector<Problem> draw(std::string_view set, ProblemSide side, const Target& target,
                          const TypeWords& words);

}  // namespace tessera::gemm
