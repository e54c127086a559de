// How the kernels of each pipeline are made: a row for each, in a file that has its whole story;
// tile/way.h says what a way is.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/families/fmha/fmha.h"
#include "tessera/families/tile/fields.h"
#include "tessera/families/tile/objects.h"
#include "tessera/families/tile/way.h"

namespace tessera::fmha {

using Case = tile::SpecCase<FmhaSignature>;
using Rule = tile::Rule<Case>;

struct Types : tile::UsualTypes<Op::fmha, FmhaSignature, FmhaProblem, FmhaOperands> {
  struct Own {
    FmhaKind kind = FmhaKind::forward;  // forward stands for extend, too
    bool is_general = false;   // whether a kernel is the one to take when nothing better is known
    bool packs_heads = false;  // whether a tile has the rows of all query heads that share keys
    bool is_bytes = false;     // whether all products of attention on tensor cores have 8 bits
    bool is_latent = false;    // whether it is the one of latent attention by matrix instructions
    bool is_wmma = false;      // whether the warp tile is that of AMD's WMMA
    // What the entry without a suffix does, as a person says it; and where it does more than that
    // for kernels that append first or compute dbias.
    std::string_view stage;
    std::string_view longer_stage = {};
    // Shared memory of a block, of which kFitsSharedMemory knows the limit.
    std::int64_t (*shared_bytes)(const FmhaSignature&, const Algorithm&) = nullptr;
  };
  static std::span<const tile::Way<Types>* const> ways();
  static std::span<const Rule> common_rules();
  static std::string no_way(const KernelSpec& spec, const Target& target);
  static bool makes(const Own& own, const FmhaSignature& signature);
  static bool takes(const Own& own, const Algorithm& algorithm);
  static std::vector<Algorithm> algorithms_for(const tessera::Problem& problem,
                                               const Target& target);
};
// Kernels that append and then attend are those of attention with more in their text and their
// launch (extend.h), so that attention's functions get such specs and problems, too; estimate()
// gets the attention alone. A way of gradients without algorithms has those of attention's way with
// the same pipeline. The family adds the pointers to what bind() makes.
using Way = tile::Way<Types>;

// flash_cpu.cc, direct_gpu.cc, flash_gpu.cc, flash8_gpu.cc, split_gpu.cc
extern const Way kFlashCpu, kDirectGpu, kFlashGpu, kFlash8Gpu, kSplitGpu;
// mfma.cc
extern const Way kQr, kQrasync;
// latent_hip.cc
extern const Way kLatentQr, kLatentQrasync, kLatentSplitHip;
// wmma.cc
extern const Way kWmmaQr;
// split_hip.cc
extern const Way kSplitHip;
// direct_hip.cc
extern const Way kDirectHip;
// backward_hip.cc
extern const Way kBackwardHip;
// mfma_backward.cc
extern const Way kBackwardQr, kBackwardQrasync;
// append_hip.cc
extern const Way kAppendHip;
// append.cc
extern const Way kAppendCpu, kAppendGpu;
// backward_cpu.cc, backward_direct_gpu.cc, backward_flash_gpu.cc
extern const Way kBackwardCpu, kBackwardDirectGpu, kBackwardFlashGpu;

// The k of the instruction for products of 8 bits.
inline constexpr int kBytesOfProduct = 32;

// ---- what ways share: kernels.cc ----

// Rules of several ways.
bool fits_shared_memory(const Case& c);
std::string shared_memory_sentence(const Case& c);
inline constexpr Rule kFitsSharedMemory = {fits_shared_memory, shared_memory_sentence};

// Way::serves of kernels whose tile has a limit for heads and no other.
Verdict serves_heads(const KernelSpec& spec, const FmhaProblem& problem, const Target& target);

// How many products of such numbers a unit adds up in a second: one a cycle where it has no
// instruction for them.
double product_rate(const Target& target, DType in);
// The same of kernels that multiply numbers without an instruction as fp32.
double rate_or_fp32(const Target& target, DType in);
// Seconds that a CPU's launch takes by so many threads.
double cpu_launch_seconds(const Target& target, double threads);

// ---- their text and their launch: arguments.cc ----

// The configuration's types, which the texts of all that attend begin with.
std::string types_text(const FmhaSignature& signature);
// The type of keys and values.
std::string kv_text(const FmhaSignature& signature);
// The configuration of kernels of `flash` on CPUs and of `direct` on GPUs.
std::string config_text(const KernelSpec& spec);
std::string backward_config_text(const KernelSpec& spec);
// The entries of a CPU's kernel that attends or appends.
std::span<const std::string> cpu_entries(const KernelSpec& spec);
// Adds the step that looks at pages before a checked launch: one block of so many threads.
void add_check_step(const FmhaProblem& problem, int threads, Launch& launch);

// ---- what kernels of attention and of its gradients share ----

// flash_cpu.cc
extern const Rule kFlashCpuRules[4];
std::vector<tile::CpuObject> product_objects(const KernelSpec& spec, const Target& target);
// direct_gpu.cc
extern const Rule kDirectGpuRules[5];

// split_gpu.cc: whether the algorithm is the one of latent attention
bool is_latent(const Algorithm& algorithm);
// latent_hip.cc: the same by AMD's matrix instructions
bool is_latent_mfma(const Algorithm& algorithm);

}  // namespace tessera::fmha
