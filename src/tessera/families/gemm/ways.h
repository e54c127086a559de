// How the kernels of each pipeline are made: a row and a file for each; tile/way.h says what a way
// is.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/families/gemm/gemm_internal.h"
#include "tessera/families/tile/way.h"

namespace tessera::gemm {

// What a way's own algorithms depend on. A null problem asks for those of all problems.
struct OwnQuery {
  const GemmSignature& signature;
  const Target& target;
  const GemmProblem* problem;
};

// The arguments that kernels of every backend take. The problem's strides must be filled in.
device::GemmArguments gemm_arguments(const GemmProblem& problem, const GemmOperands& operands);

// The limits of the problems that a kernel for AMD GPUs serves, besides its signature.
struct Served {
  static constexpr std::int64_t kAny = std::numeric_limits<std::int64_t>::max();
  std::int64_t most_size = kAny;   // of m, n, k and batch each
  std::int64_t most_tiles = kAny;  // of the output, in all batches and slices
  std::int64_t most_ld_a = kAny, most_ld_b = kAny;
  std::int64_t most_few = kAny;  // of m or n, whichever is less
};

struct Types {
  static constexpr Op kOp = Op::gemm;
  static constexpr bool kHasPointwise = false;
  using Signature = GemmSignature;
  using Problem = GemmProblem;
  using Arguments = device::GemmArguments;
  using Case = gemm::Case;
  struct Own {
    // Adds the algorithms that have one of the shapes which the target's row lists; null: none has.
    void (*add_variants)(const Target&, const Algorithm& shape, std::vector<Algorithm>&) = nullptr;
    // Adds the algorithms that depend on the signature, and maybe on the problem.
    void (*add_own)(const OwnQuery&, std::vector<Algorithm>&) = nullptr;
    // Removes the algorithms that do the same as others for the problem.
    void (*drop_spare)(const GemmProblem&, std::vector<Algorithm>&) = nullptr;
    // The algorithm that serves every problem of a signature, if there is one.
    std::optional<Algorithm> (*first)(const GemmSignature&, const Target&) = nullptr;
    // Whether the algorithm is the one to take for the problem when nothing better is known.
    bool (*is_general)(const Algorithm&, const GemmProblem&) = nullptr;
    // Where kernels take a preshuffled B: the bytes of a packed batch, and the launch that packs.
    std::int64_t (*packed_bytes)(const KernelSpec&, const GemmProblem&) = nullptr;
    Launch (*pack)(const GemmProblem&, const void* b, void* packed, std::int64_t bytes) = nullptr;
    // The launch of a kernel on groups of unequal sizes; null: the way has no such kernels.
    Launch (*bind_groups)(const KernelSpec&, const GemmProblem&, const Target&,
                          const GemmOperands&) = nullptr;
    bool runs_lists = false;  // whether they may have sizes and pointers of their own
    // The launch of a kernel with a gate, rows by index or an output of 8 bits, with groups or
    // without; null: the way has no such kernels.
    Launch (*bind_outputs)(const KernelSpec&, const GemmProblem&, const Target&,
                           const GemmOperands&) = nullptr;
    // The same of a kernel with scales of blocks, without these.
    Launch (*bind_scaled)(const KernelSpec&, const GemmProblem&, const Target&,
                          const GemmOperands&) = nullptr;
    bool scales_outputs = false;  // whether kernels have both
    // What `serves` compares, where there are no other rules; null: hipDNN is not told of kernels.
    Served (*served)(const KernelSpec&) = nullptr;
    // Whether features describe the kernel; null: they describe all.
    bool (*is_described)(const Algorithm&) = nullptr;
    // What estimates and features count. On CPUs: whether kernels pack an operand into panels,
    // whether they stream the longer operand past the other, and how many words along k they
    // multiply at a time. On GPUs: whether the copy engine moves tiles, and whether kernels
    // multiply by an instruction of a warp even where there is a wider one.
    bool packs_a = false, packs_b = false, streams = false;
    int words_of_step = 1;
    bool by_copy_engine = false, by_warp = false;
  };
  static std::span<const tile::Way<Types>* const> ways();
  static std::span<const Rule> common_rules();
  // Of arranged problems: the product that is left.
  static GemmProblem for_ways(const GemmProblem& problem);
  static std::string no_way(const KernelSpec& spec, const Target& target);
  static device::GemmArguments arguments(const GemmProblem& problem, const Operands& operands) {
    return gemm_arguments(problem, std::get<GemmOperands>(operands));
  }
};
using Way = tile::Way<Types>;

// What the kernel's row says, and what a row says that leaves everything out where there is none.
const Types::Own& own_of(const KernelSpec& spec, const Target& target);

// packed.cc
extern const Way kPackab, kPacka, kPackb, kDirectCpu, kStreamCpu;
// small.cc, amx.cc
extern const Way kSmallWay, kAmxWay;
// tmaws.cc, cpasync.cc, stream_gpu.cc
extern const Way kTmawsWay, kCpasyncWay, kStreamGpu;
// mfma.cc, stream_hip.cc
extern const Way kCompv3, kCompv4, kMem, kAsync, kDirectHip, kStreamHip;

// What is the same for all ways of a backend.
struct BackendFacts {
  std::string_view backend, plural;
  // Whether the rows of such targets list tiles for 16-bit operands. Other operands keep the number
  // of bytes along k.
  bool tiles_of_16_bits;
  std::size_t epilogues;  // so many of the listed ones, the first, are enumerated
  tile::ListOrder order;  // of the algorithms of a problem
  bool waves_are_threads;
  bool has_twins;         // whether machines multiply fp16 as fast as bf16, and int8 as fp8
  bool estimates_singly;  // whether features ask for each kernel's estimate, which no lanes count
};
const BackendFacts& backend_facts(const Target& target);

// ---- what ways share: arguments.cc ----

// The comment at the head of every emitted file. `folder` is the folder of src/tessera/device/ that
// holds the template.
std::string banner(const KernelSpec& spec, std::string_view folder);

std::string_view yes_no(bool value);

// Own::is_described of ways whose use of their operands no feature tells.
inline bool no_feature_does(const Algorithm&) { return false; }

// The types of a GPU's kernel in its configuration.
std::string gpu_types_text(const GemmSignature& signature);

// The entries of a kernel's binary: the kernel itself first, then, for some kernels, _pack and
// _prepare at the places below.
std::vector<std::string> entries_of(const KernelSpec& spec, bool prepares = false);
// The source of a GPU's kernel with this text.
Source gpu_source(const KernelSpec& spec, std::string text, std::string extension,
                  bool prepares = false);
inline constexpr std::uint8_t kPackEntry = 1;
std::uint8_t prepare_entry(const KernelSpec& spec);

// A stride that is never multiplied by a nonzero index cannot misalign a read.
void drop_unused_strides(device::GemmArguments& g);

// Adds the pointers of the operands that the kernel accesses, so that a GPU can check them.
void list_pointers(const GemmProblem& problem, const device::GemmArguments& arguments,
                   Launch& launch);

// ---- the text of kernels for CUDA targets: cuda_text.cc ----

// The template of src/tessera/device/cuda/gemm/ that a kernel comes from.
struct CudaTemplate {
  std::string_view header, name;
  bool prepares = false;  // whether some launches run the entry _prepare first
  std::string_view arguments = "CudaGemmArguments";
};
// The part of a configuration that kernels on tiles have.
std::string cuda_tile_text(const KernelSpec& spec, bool transpose_a, bool transpose_b);
// `shapes` is the configuration's part of the kernel's shapes, `before` stands before the
// configuration, `more_kernels` behind the kernel.
Source cuda_source(const KernelSpec& spec, const CudaTemplate& from, const std::string& shapes,
                   const std::string& before, const std::string& more_kernels);

}  // namespace tessera::gemm
