// How the kernels of each pipeline are made: a row and a file for each.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/families/gemm/gemm_internal.h"

namespace tessera::gemm {

// What a way's own algorithms depend on. A null problem asks for those of all problems.
struct OwnQuery {
  const GemmSignature& signature;
  const Target& target;
  const GemmProblem* problem;
};

// A problem has its strides wherever a function of a way gets one.
struct Way {
  std::string_view backend;
  Pipeline pipeline;
  // What the target can run, besides the rules of every kernel.
  std::span<const Rule> rules;
  // Whether a kernel serves a problem of its signature; null: any.
  Verdict (*serves)(const KernelSpec&, const GemmProblem&, const Target&) = nullptr;
  // Adds the algorithms that have one of the shapes which the target's row lists; null: none has.
  void (*add_variants)(const Target&, const Algorithm& shape, std::vector<Algorithm>&) = nullptr;
  // The algorithms that every signature has besides.
  std::span<const Algorithm> fixed = {};
  // Adds the algorithms that depend on more.
  void (*add_own)(const OwnQuery&, std::vector<Algorithm>&) = nullptr;
  // The algorithm that serves every problem of a signature, if there is one.
  std::optional<Algorithm> (*first)(const GemmSignature&, const Target&) = nullptr;
  // Whether the algorithm is the one to take for the problem when nothing better is known.
  bool (*is_general)(const Algorithm&, const GemmProblem&) = nullptr;
  Source (*emit)(const KernelSpec&, const Target&) = nullptr;
  Launch (*bind)(const KernelSpec&, const GemmProblem&, const device::GemmArguments&) = nullptr;
  Estimate (*estimate)(const KernelSpec&, const GemmProblem&, const Target&, int threads) = nullptr;
  // Where kernels take a preshuffled B: the bytes of a packed batch, and the launch that packs.
  std::int64_t (*packed_bytes)(const KernelSpec&, const GemmProblem&) = nullptr;
  Launch (*pack)(const GemmProblem&, const void* b, void* packed, std::int64_t bytes) = nullptr;
  bool is_described = true;  // whether features tell all that matters for its time
};

std::span<const Way* const> ways();
// Null where the backend has no such kernels.
const Way* find_way(std::string_view backend, Pipeline pipeline);
// The row of a legal kernel. A launch is bound without the target's row, so that the algorithm must
// tell on which machine it runs.
const Way* find_way(const Algorithm& algorithm);

// packed.cc
extern const Way kPackab, kPacka, kPackb, kDirectCpu, kStreamCpu;
// small.cc, amx.cc
extern const Way kSmallWay, kAmxWay;
// tmaws.cc, cpasync.cc, stream_gpu.cc
extern const Way kTmawsWay, kCpasyncWay, kStreamGpu;
// mfma.cc
extern const Way kCompv3, kCompv4, kMem, kAsync, kDirectHip;

// Whether a kernel of the pipeline stream is one of GPUs, with several warps. On CPUs it has one
// thread or all of them.
bool streams_on_gpu(const Algorithm& algorithm);

// ---- what ways share: arguments.cc ----

// The comment at the head of every emitted file. `folder` is the folder of src/tessera/device/ that
// holds the template.
std::string banner(const KernelSpec& spec, std::string_view folder);

std::string_view yes_no(bool value);

// The entries of a kernel's binary: the kernel itself first, then, for some kernels, _pack and
// _prepare at the places below.
std::vector<std::string> entries_of(const KernelSpec& spec);
inline constexpr std::uint8_t kPackEntry = 1;
std::uint8_t prepare_entry(const KernelSpec& spec);

// The arguments that kernels of every backend take. The problem's strides must be filled in.
device::GemmArguments gemm_arguments(const GemmProblem& problem, const GemmOperands& operands);

// A stride that is never multiplied by a nonzero index cannot misalign a read.
void drop_unused_strides(device::GemmArguments& g);

// Adds the pointers of the operands that the kernel accesses, so that a GPU can check them.
void list_pointers(const GemmProblem& problem, const device::GemmArguments& arguments,
                   Launch& launch);

// ---- the text of kernels for CUDA targets: cuda_text.cc ----

// The template of src/tessera/device/cuda/gemm/ that a kernel comes from.
struct CudaTemplate {
  std::string_view header, name;
};
// The part of a configuration that kernels on tiles have.
std::string cuda_tile_text(const KernelSpec& spec, bool transpose_a, bool transpose_b);
// `shapes` is the configuration's part of the kernel's shapes, `before` stands before the
// configuration, `more_kernels` behind the kernel.
Source cuda_source(const KernelSpec& spec, const CudaTemplate& from, const std::string& shapes,
                   const std::string& before, const std::string& more_kernels);

}  // namespace tessera::gemm
