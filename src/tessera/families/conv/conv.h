// The family of grouped convolutions: forward, backward data, backward weight. See README.md.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/families/family.h"
#include "tessera/families/tile/way.h"

namespace tessera::device {
struct ConvArguments;
}  // namespace tessera::device

namespace tessera::conv {

extern const Family kFamily;
inline const Family& family() { return kFamily; }

// See Family::abi. What it counts: device/conv.h, the entries.
inline constexpr int kAbi = 1;

// problem.cc: the table, and what it says of problems
const ConvProblem& conv_of(const Problem& problem);
Tensors tensors(const Problem& problem);
const void* pointer(const Operands& operands, std::size_t operand);
void set_pointer(Operands& operands, std::size_t operand, void* data);
double flops(const Problem& problem);
double bytes(const Problem& problem);
// Why no kernel has such a signature; empty where kernels do.
std::string signature_reason(const ConvSignature& signature);

// The product that a direction computes for each group: rows x columns sums of `depth` products.
// forward: rows are the pixels of y, columns its channels, depth is filter x channels of x.
// backward_data: the pixels of x, its channels, filter x channels of y. backward_weight: the
// channels of y, filter x channels of x, the pixels of y.
struct View {
  std::int64_t rows, columns, depth;
};
View view_of(const ConvProblem& problem);
bool is_depthwise(const ConvProblem& problem);  // one channel of x in each group
// A filter of one element, no padding, strides of 1: a plain product of matrices.
bool is_pointwise(const ConvProblem& problem);

// fold.cc
// The problem with its strides, and with fewer and wider pixels where they are the same elements.
// Kernels, estimates and features see problems so.
ConvProblem folded(const ConvProblem& problem);

// validate.cc
void validate(const Problem& problem);

// ---- the ways; tile/way.h says what a way is ----

using Case = tile::SpecCase<ConvSignature>;

struct Types : tile::UsualTypes<Op::conv, ConvSignature, ConvProblem, ConvOperands> {
  static constexpr bool kHasPointwise = true;
  static ConvProblem for_ways(const ConvProblem& problem) { return folded(problem); }
  struct Own {
    // A way whose shapes follow from a problem's channels: the kernels that serve the problem, in
    // place of those of Way::algorithms.
    std::vector<Algorithm> (*for_problem)(const ConvProblem&, const Target&) = nullptr;
  };
  static std::span<const tile::Way<Types>* const> ways();
  static std::span<const tile::Rule<Case>> common_rules();
  static std::string no_way(const KernelSpec& spec, const Target& target);
  static std::vector<tessera::Signature> signatures();
  static std::vector<Algorithm> algorithms_for(const tessera::Problem& problem,
                                               const Target& target);
};
// Way::bind gets problems that are not empty, and leaves the pointers to bind().
using Way = tile::Way<Types>;

// Way::algorithms of a CPU's pipeline: each tile, wave and warp tile of the target's space.
std::vector<Algorithm> blocked_algorithms(const Target& target, Pipeline pipeline);

// direct.cc: the kernels that run any valid problem
extern const Way kDirectCpu, kDirectCuda;
Algorithm direct_algorithm(const Target& target);

// direct_hip.cc: the same for AMD GPUs
extern const Way kDirectHip;
Algorithm hip_direct_algorithm(const Target& target);

// packed.cc: implicit products of packed panels
extern const Way kPackedCpu;

// depthwise_cpu.cc: one channel of x in each group
extern const Way kDepthwiseCpu;

// tmaws.cc: implicit products by TMA and wgmma
extern const Way kTmaws;

// cpasync.cc: implicit products by threads that gather, and mma
extern const Way kCpasync;

// depthwise.cc: one channel of x in each group
extern const Way kDepthwiseCuda;

// depthwise_hip.cc: the same on the ordinary lanes of AMD GPUs
extern const Way kDepthwiseHip;

// grouped.cc: few channels in each group, read as they lie
extern const Way kGroupedCuda;

// mfma.cc: implicit products by AMD's matrix instructions
extern const Way kMfmaCompv3, kMfmaCompv4, kMfmaMem, kMfmaAsync;

// pointwise.cc: GEMM's kernels, for layers that are products of matrices
extern const Way kPointwiseCpu, kPointwiseCuda, kPointwiseHip;
// Whether features describe the kernel: a pointwise one if GEMM's features describe its own.
bool is_described(const KernelSpec& spec);

// The kernel of GEMM that a pointwise kernel is.
KernelSpec product_kernel(const KernelSpec& spec);

// kernels.cc
std::string source_name(const KernelSpec& spec);
Verdict is_deterministic(const KernelSpec& spec, const Target& target);
std::span<const DerivedField> derived();
KernelSpec general(const Problem& problem, const Target& target);
Launch bind(const KernelSpec& spec, const Problem& problem, const Target& target,
            const Operands& operands);
Estimate estimate(const KernelSpec& spec, const Problem& problem, const Target& target,
                  int threads);

// any_batch.cc
Verdict is_batch_invariant(const KernelSpec& spec, const Target& target);
std::string order_of_sums(const KernelSpec& spec, const Problem& problem, const Target& target);
AnyBatch any_batch(const Problem& problem);

// cktile.cc
std::span<const InstanceSource> instances();

// features.cc: what learned models see
std::span<const Feature> features();
Verdict features_fit(const Problem& problem);
void extract(const Problem& problem, const Target& target, int threads,
             std::span<const KernelSpec> specs, std::span<double> columns,
             std::span<const FeatureUse> wanted = {});

// arguments.cc
// The arguments that kernels of every backend take; the problem has its strides.
device::ConvArguments arguments_of(const ConvProblem& problem, const ConvOperands& operands);
// The launch of a CPU's kernel whose threads share its tiles.
Launch bind_on_cpu(const KernelSpec& spec, const ConvProblem& problem, const Target& target,
                   const ConvOperands& operands);
// The fields of a kernel's Config that every pipeline has, a line each: types, direction, layout,
// tile, epilogue.
// `tf32` is the storage type of that dtype.
std::string config_text(const KernelSpec& spec, std::string_view tf32);

// facts.cc: what learning and reports ask for
std::string model_key(const Signature& signature);
Facts facts(const Problem& problem);
const Instruction* roof(const Problem& problem, const Target& target);
Problem plain(const Problem& problem);
Problem twin(const Problem& problem, const Target& target);
Problem retyped(const Problem& problem, const TypeWords& words);
Problem from_words(const ProblemWords& words);
std::vector<Problem> samples(const KernelSpec& spec, const Target& target);

// problem_sets.cc: lists to learn from
std::span<const std::string_view> problem_sets();
std::vector<Problem> draw(std::string_view set, ProblemSide side, const Target& target,
                          const TypeWords& words);

// reference.cc
Mismatch verify(const Problem& problem, const Operands& operands);
Reference reference(const Problem& problem, const Operands& operands,
                    const ReferenceLimits& limits);
Mismatch compare(const Problem& problem, const Operands& operands, const Reference& reference);

}  // namespace tessera::conv
