#include <fmt/format.h>

#include <algorithm>

#include "tessera/families/gemm/amx_internal.h"
#include "tessera/families/gemm/legality_internal.h"
#include "tessera/families/gemm/small_internal.h"
#include "tessera/families/tile/specs.h"

namespace tessera::gemm {
namespace {

constexpr int kMaxTile = 65536;
constexpr int kStreamBlock = 8;  // rows of A (or columns of B) that stream multiplies at once

// ---- rules of every machine ----

bool all_at_least(const Shape3& shape, int least) {
  return shape.m >= least && shape.n >= least && shape.k >= least;
}
bool all_at_most(const Shape3& shape, int most) {
  return shape.m <= most && shape.n <= most && shape.k <= most;
}

std::string not_a_multiple(const Shape3& tile, const Shape3& unit) {
  constexpr std::string_view kRule = "tile_{0} {1} is not a multiple of warp_tile_{0} {2}";
  if (tile.m % unit.m != 0) return fmt::format(fmt::runtime(kRule), 'm', tile.m, unit.m);
  if (tile.n % unit.n != 0) return fmt::format(fmt::runtime(kRule), 'n', tile.n, unit.n);
  return fmt::format(fmt::runtime(kRule), 'k', tile.k, unit.k);
}

bool lists_pipeline(const Case& c) {
  const AlgorithmSpace* space = find_space(c);
  if (space == nullptr) return false;
  const auto& all = space->pipelines;
  return std::find(all.begin(), all.end(), c.algorithm.pipeline) != all.end();
}

constexpr Rule kCommon[] = {
    {[](const Case& c) { return lists_pipeline(c); },
     [](const Case& c) {
       const bool only_ck =
           !c.by_cktile && lists_pipeline({c.signature, c.algorithm, c.target, true});
       return fmt::format("{} has no pipeline {}{}", c.target.name, to_string(c.algorithm.pipeline),
                          only_ck ? kOnlyCktile : "");
     }},
    {[](const Case& c) { return static_cast<bool>(types_fit(c.signature)); },
     [](const Case& c) { return types_fit(c.signature).reason; }},
    {[](const Case& c) { return static_cast<bool>(epilogue_fits(c.signature)); },
     [](const Case& c) { return epilogue_fits(c.signature).reason; }},
    {[](const Case& c) {
       return all_at_least(c.algorithm.tile, 1) && all_at_most(c.algorithm.tile, kMaxTile);
     },
     [](const Case& c) {
       return fmt::format("tile sizes must be between 1 and {}, got {}", kMaxTile,
                          to_string(c.algorithm.tile));
     }},
    {[](const Case& c) { return all_at_least(c.algorithm.warp_tile, 1); },
     [](const Case& c) {
       return fmt::format("warp tile sizes must be at least 1, got {}",
                          to_string(c.algorithm.warp_tile));
     }},
    {[](const Case& c) {
       const Shape3& tile = c.algorithm.tile;
       const Shape3& unit = c.algorithm.warp_tile;
       return tile.m % unit.m == 0 && tile.n % unit.n == 0 && tile.k % unit.k == 0;
     },
     [](const Case& c) { return not_a_multiple(c.algorithm.tile, c.algorithm.warp_tile); }},
};

// ---- rules of CPUs ----

int lanes(const Case& c) { return c.target.vector_bytes / 4; }

std::int64_t accumulators(const Case& c) {
  return std::int64_t{c.algorithm.warp_tile.m} * c.algorithm.warp_tile.n / lanes(c);
}
// The registers for the vectors of B that one row of A multiplies, and for the broadcast element of
// that row.
int operand_registers(const Case& c) { return c.algorithm.warp_tile.n / lanes(c) + 1; }

bool reads_a_in_place(const Case& c) {
  return c.algorithm.pipeline == Pipeline::packb || c.algorithm.pipeline == Pipeline::direct;
}
bool reads_b_in_place(const Case& c) {
  return c.algorithm.pipeline == Pipeline::packa || c.algorithm.pipeline == Pipeline::direct;
}

// An operand can be read in place when its elements are the words that the kernel multiplies.
bool is_word(DType dtype, const Case& c) { return size_of(dtype) * c.algorithm.warp_tile.k == 4; }

std::string no_word(const Case& c, char operand, DType dtype) {
  return fmt::format("{} reads {} in place, which must be words of 4 bytes, got {} x {} bytes ({})",
                     to_string(c.algorithm.pipeline), operand, c.algorithm.warp_tile.k,
                     size_of(dtype), to_string(dtype));
}

constexpr Rule kCpu[] = {
    {[](const Case& c) { return c.target.vector_bytes >= 4; },
     [](const Case& c) {
       return fmt::format("the row of a CPU needs vector_bytes of at least 4, {} has {}",
                          c.target.name, c.target.vector_bytes);
     }},
    kUnusedFieldsRule,
    kThreadsRule,
    {[](const Case& c) {
       return c.algorithm.pipeline != Pipeline::stream ||
              (c.algorithm.warp_tile.m == kStreamBlock && c.algorithm.tile.m == kStreamBlock);
     },
     [](const Case& c) {
       return fmt::format(
           "stream multiplies {0} rows at once: tile_m and warp_tile_m must be {0}, got {1} and "
           "{2}",
           kStreamBlock, c.algorithm.tile.m, c.algorithm.warp_tile.m);
     }},
    {[](const Case& c) {
       const Shape3& w = c.algorithm.wave;
       return c.algorithm.pipeline != Pipeline::stream || w == Shape3{0, 0, 1} || w == Shape3{};
     },
     [](const Case& c) {
       return fmt::format(
           "stream runs on one thread or on all: wave must be 1x1x1 or 0x0x1, got {}",
           to_string(c.algorithm.wave));
     }},
    {[](const Case& c) { return c.algorithm.warp_tile.n % lanes(c) == 0; },
     [](const Case& c) {
       return fmt::format("warp_tile_n {} is not a multiple of the {} lanes of {}",
                          c.algorithm.warp_tile.n, lanes(c), c.target.name);
     }},
    {[](const Case& c) { return !reads_a_in_place(c) || is_word(c.signature.a, c); },
     [](const Case& c) { return no_word(c, 'A', c.signature.a); }},
    {[](const Case& c) {
       return !reads_a_in_place(c) || c.algorithm.warp_tile.k == 1 ||
              a_is_row_major(c.signature.layout);
     },
     [](const Case& c) {
       return fmt::format("{} reads words of A in place, which must be row-major, got layout {}",
                          to_string(c.algorithm.pipeline), to_string(c.signature.layout));
     }},
    {[](const Case& c) {
       return !reads_b_in_place(c) || (c.algorithm.warp_tile.k == 1 && is_word(c.signature.b, c));
     },
     [](const Case& c) { return no_word(c, 'B', c.signature.b); }},
    {[](const Case& c) { return !reads_b_in_place(c) || b_is_row_major(c.signature.layout); },
     [](const Case& c) {
       return fmt::format("{} reads B in place, which must be row-major, got layout {}",
                          to_string(c.algorithm.pipeline), to_string(c.signature.layout));
     }},
    {[](const Case& c) {
       const Pipeline p = c.algorithm.pipeline;
       return !c.signature.preshuffled_b || p == Pipeline::packab || p == Pipeline::packb;
     },
     [](const Case& c) {
       return fmt::format("a preshuffled B needs packab or packb, got {}",
                          to_string(c.algorithm.pipeline));
     }},
    {[](const Case& c) {
       return find_word_instruction(c.signature, c.algorithm.warp_tile.k, c.target) != nullptr;
     },
     [](const Case& c) {
       return fmt::format("{} has no instruction for {} x {} with {} product{} per lane",
                          c.target.name, to_string(c.signature.a), to_string(c.signature.b),
                          c.algorithm.warp_tile.k, c.algorithm.warp_tile.k == 1 ? "" : "s");
     }},
    {[](const Case& c) {
       return accumulators(c) + operand_registers(c) <= c.target.vector_registers;
     },
     [](const Case& c) {
       return fmt::format(
           "needs {} vector registers ({} x {} / {} accumulators and {} more), {} "
           "has {}",
           accumulators(c) + operand_registers(c), c.algorithm.warp_tile.m, c.algorithm.warp_tile.n,
           lanes(c), operand_registers(c), c.target.name, c.target.vector_registers);
     }},
    kPackedBytesRule,
};

const Rule* broken_rule(const Case& c) {
  if (const Rule* rule = tile::first_broken(kCommon, c)) return rule;
  const Pipeline pipeline = c.algorithm.pipeline;
  if (c.by_cktile) return tile::first_broken(cktile_rules(), c);
  if (pipeline == Pipeline::small) return tile::first_broken(small_rules(), c);
  if (pipeline == Pipeline::amx) return tile::first_broken(amx_rules(), c);
  if (!is_gpu(c.target)) return tile::first_broken(cpu_rules(), c);
  const bool on_hip = c.target.backend == "hip";
  return tile::first_broken(on_hip ? hip_rules(pipeline) : cuda_rules(pipeline), c);
}

Verdict judge(const KernelSpec& spec, const Target& target, bool by_cktile) {
  if (std::string why = tile::foreign_reason(Op::gemm, spec, target); !why.empty()) return {why};
  const Case c{std::get<GemmSignature>(spec.signature), spec.algorithm, target, by_cktile};
  const Rule* rule = broken_rule(c);
  return {rule == nullptr ? std::string() : rule->sentence(c)};
}

// ---- which problems a kernel serves ----

template <class Value>
std::string mismatch(std::string_view field, const Value& kernel, const Value& problem) {
  return fmt::format("the kernel has {}={}, the problem {}={}", field, to_string(kernel), field,
                     to_string(problem));
}

std::string signature_mismatch(const GemmSignature& kernel, const GemmSignature& problem) {
  if (kernel.a != problem.a) return mismatch("a", kernel.a, problem.a);
  if (kernel.b != problem.b) return mismatch("b", kernel.b, problem.b);
  if (kernel.acc != problem.acc) return mismatch("acc", kernel.acc, problem.acc);
  if (kernel.out != problem.out) return mismatch("out", kernel.out, problem.out);
  if (kernel.layout != problem.layout) return mismatch("layout", kernel.layout, problem.layout);
  if (kernel.epilogue != problem.epilogue) {
    return mismatch("epilogue", kernel.epilogue, problem.epilogue);
  }
  // Without D tensors, the type of D does not matter.
  if (kernel.epilogue.num_d > 0 && kernel.d != problem.d) return mismatch("d", kernel.d, problem.d);
  if (kernel.preshuffled_b != problem.preshuffled_b) {
    return fmt::format("the kernel has preshuffle={}, the problem preshuffle={}",
                       kernel.preshuffled_b ? 1 : 0, problem.preshuffled_b ? 1 : 0);
  }
  return "";
}

// The most rows of A that stream supports; stream_gemm.h has room for no more. On machines with few
// registers, blocked kernels are faster from 9 rows on. With more than 8 columns blocked kernels
// are always faster; they read a wide A in place.
int most_stream_rows(const Target& target) {
  return target.vector_registers >= 32 ? 2 * kStreamBlock : kStreamBlock;
}

}  // namespace

std::span<const Rule> cpu_rules() { return kCpu; }

bool is_legal_quick(const Case& c) { return broken_rule(c) == nullptr; }

Verdict is_legal(const KernelSpec& spec, const Target& target) {
  return judge(spec, target, false);
}

Verdict is_legal_for_cktile(const KernelSpec& spec, const Target& target) {
  return judge(spec, target, true);
}

// Not deterministic are sums over K whose order depends on the number of threads or on timing. On
// GPUs the waves along K are fixed by the kernel. On CPUs there are at most as many as the caller's
// threads.
Verdict is_deterministic(const KernelSpec& spec, const Target& target) {
  if (spec.algorithm.split_k == SplitK::atomic) {
    return {"deterministic kernels must add their parts of K in a fixed order, got split_k atomic"};
  }
  if (target.backend == "cpu" && spec.algorithm.wave.k != 1) {
    return {
        fmt::format("deterministic kernels must have wave_k = 1, since the order of the sum "
                    "follows the number of threads, got wave_k = {}",
                    spec.algorithm.wave.k)};
  }
  return {};
}

Verdict supports(const KernelSpec& spec, const Problem& problem, const Target& target) {
  const auto* kernel = std::get_if<GemmSignature>(&spec.signature);
  const auto* p = std::get_if<GemmProblem>(&problem);
  if (kernel == nullptr || p == nullptr) {
    return {fmt::format("the kernel is for {}, the problem for {}", to_string(op_of(spec)),
                        to_string(op_of(problem)))};
  }
  const auto wanted = std::get<GemmSignature>(signature_of(problem));
  if (std::string reason = signature_mismatch(*kernel, wanted); !reason.empty()) return {reason};
  if (target.backend == "hip") return hip_supports(spec, *p);
  if (is_gpu(target)) return cuda_supports(spec, *p);
  if (spec.algorithm.pipeline == Pipeline::small) return small_supports(spec, *p, target);
  const int most_rows = most_stream_rows(target);
  const bool is_narrow = p->m <= p->n ? p->m <= most_rows : p->n <= kStreamBlock;
  if (spec.algorithm.pipeline == Pipeline::stream && !is_narrow) {
    return {fmt::format("stream serves m <= {} or n <= {}, the smaller of both, got m={} n={}",
                        most_rows, kStreamBlock, p->m, p->n)};
  }
  return {};
}

}  // namespace tessera::gemm
