// The list of ways, what those of a backend have in common, and which kernels there are.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <optional>
#include <span>

#include "tessera/base/error.h"
#include "tessera/families/gemm/arranged.h"
#include "tessera/families/gemm/extras.h"
#include "tessera/families/gemm/groups.h"
#include "tessera/families/gemm/outputs.h"
#include "tessera/families/gemm/scaled.h"
#include "tessera/families/gemm/scales.h"
#include "tessera/families/gemm/ways.h"
#include "tessera/families/tile/candidates.h"
#include "tessera/spec/words_internal.h"

namespace tessera::gemm {
namespace {

constexpr DType kOperands[] = {DType::fp32, DType::tf32, DType::fp16, DType::bf16,
                               DType::fp8,  DType::bf8,  DType::int8};
constexpr GemmLayout kLayouts[] = {GemmLayout::rcr, GemmLayout::rrr, GemmLayout::crr,
                                   GemmLayout::ccr};

// The epilogues that enumeration lists. The same algorithms serve any other epilogue too.
constexpr std::string_view kEpilogues[] = {
    "bias",      "bias+gelu", "multi_d_add2", "multi_d_multiply2",
    "bias+relu", "bias+silu", "add+relu",     "multiply",
};

const AlgorithmSpace& space_of(const Target& target) { return tile::space_of(Op::gemm, target); }

// ---- algorithms ----

Shape3 tile_for(const Shape3& tile, const Target& target, DType operand) {
  if (!backend_facts(target).tiles_of_16_bits) return tile;
  return {tile.m, tile.n, tile.k * 2 / size_of(operand)};
}

// The product of the target's value lists, and what is the same for all signatures. Algorithms that
// differ in their shapes only are in name order.
std::vector<Algorithm> algorithms_of(const Target& target, const GemmSignature& signature) {
  const AlgorithmSpace& space = space_of(target);
  std::vector<Shape3> tiles;
  for (const Shape3& tile : space.tiles) tiles.push_back(tile_for(tile, target, signature.a));
  std::vector<Algorithm> all;
  const auto& warp_tiles = warp_tiles_for(space, signature.a);
  tile::for_each_shape(space, tiles, warp_tiles, [&](const Algorithm& shape) {
    const Way* const way = tile::find_way<Types>({signature, shape, target});
    if (way != nullptr && way->own.add_variants != nullptr) {
      way->own.add_variants(target, shape, all);
    }
  });
  for (const Algorithm& a : tile::algorithms_of<Types>(target)) all.push_back(a);
  return all;
}

// Those of which each signature, and maybe each problem, has its own.
void add_own(const OwnQuery& query, std::vector<Algorithm>& all) {
  tile::for_each_way<Types>(query.target, [&](const Way& way) {
    if (way.own.add_own != nullptr) way.own.add_own(query, all);
  });
}

// ---- signatures ----

GemmSignature standard_signature(DType operand, GemmLayout layout) {
  return std::get<GemmSignature>(signature_of(gemm_problem(operand, layout, 0, 0, 0)));
}

GemmSignature with_chain(GemmSignature signature, const Epilogue& chain) {
  const bool fused = num_ops(chain) > 0;
  // int32 takes no epilogue.
  if (fused && signature.out == DType::int32) signature.out = signature.d = DType::fp32;
  signature.epilogue = chain;
  return signature;
}

// The signatures of an operand type and a layout: standard, one for each listed epilogue,
// preshuffled.
std::vector<GemmSignature> signatures_of(DType operand, GemmLayout layout, const Target& target) {
  const GemmSignature standard = standard_signature(operand, layout);
  std::vector<GemmSignature> all = {standard};
  for (const std::string_view text : std::span(kEpilogues).first(backend_facts(target).epilogues)) {
    all.push_back(with_chain(standard, parse_epilogue(text)));
  }
  all.push_back(standard);
  all.back().preshuffled_b = true;
  return all;
}

// Kernels of groups are listed where a wish names the grouping. A packed B has no groups.
void add_groupings(std::vector<GemmSignature>& all) {
  const std::vector<GemmSignature> plain = all;
  for (const GemmGrouping grouping :
       {GemmGrouping::contiguous, GemmGrouping::indexed, GemmGrouping::masked,
        GemmGrouping::along_k, GemmGrouping::lists}) {
    for (GemmSignature signature : plain) {
      signature.grouping = grouping;
      if (!signature.preshuffled_b) all.push_back(signature);
    }
  }
}

// So are kernels with a gate, rows by index or an output of 8 bits; `change` makes each of them of
// a plain signature.
template <class Word, class Change>
void add_with(std::vector<GemmSignature>& all, std::initializer_list<Word> words,
              const Change& change) {
  const std::vector<GemmSignature> plain = all;
  for (const Word word : words) {
    for (GemmSignature signature : plain) {
      if (signature.preshuffled_b) continue;
      change(signature, word);
      all.push_back(signature);
    }
  }
}

void add_arranged(const KernelFilter& wanted, std::vector<GemmSignature>& all) {
  if (!wanted.has("arranged")) return;
  add_with(all, {true}, [](GemmSignature& s, bool arranged) { s.arranged = arranged; });
}

void add_outputs(const KernelFilter& wanted, std::vector<GemmSignature>& all) {
  if (wanted.has("gate") || wanted.has("gate_interleaved")) {
    using enum GemmGate;
    std::vector<GemmSignature> whole = all;
    for (const bool interleaved : {false, true}) {
      std::vector<GemmSignature> gated = whole;
      add_with(gated, {silu_mul, gelu_mul, gelu_tanh_mul}, [&](GemmSignature& s, GemmGate gate) {
        s.gate = gate, s.gate_interleaved = interleaved;
      });
      all.insert(all.end(), gated.begin() + static_cast<std::ptrdiff_t>(whole.size()), gated.end());
    }
  }
  if (wanted.has("indexing")) {
    add_with(all, {GemmIndexing::gathered, GemmIndexing::scattered},
             [](GemmSignature& s, GemmIndexing indexing) { s.indexing = indexing; });
  }
  if (!wanted.has("quant")) return;
  for (const DType out : {DType::fp8, DType::bf8}) {
    std::vector<GemmSignature> plain = all;
    std::erase_if(plain, [](const GemmSignature& s) { return s.quant != NormQuant::none; });
    const auto count = static_cast<std::ptrdiff_t>(plain.size());
    add_with(plain, {NormQuant::tensor, NormQuant::row, NormQuant::block},
             [&](GemmSignature& s, NormQuant quant) {
               if (size_of(s.d) == 1 || s.d == DType::int32) s.d = DType::fp32;
               s.out = out, s.quant = quant;
             });
    all.insert(all.end(), plain.begin() + count, plain.end());
  }
}

// Wishes as enumeration reads them. When a wish names an epilogue, which need not be a listed one,
// `chains` holds every epilogue that the wishes accept; otherwise it is empty.
struct Wanted {
  KernelFilter fields;
  KernelFilter fields_but_variant;
  std::vector<Epilogue> chains;
};

bool is_chain(const Wish& wish) {
  return wish.field == "epilogue" && !wish.pattern.empty() &&
         wish.pattern.find('*') == std::string::npos;
}

Wanted read_wishes(std::span<const Wish> wishes) {
  std::vector<Wish> but_variant(wishes.begin(), wishes.end());
  std::erase_if(but_variant, [](const Wish& wish) { return wish.field == "variant"; });
  Wanted wanted = {KernelFilter(family(), wishes), KernelFilter(family(), but_variant), {}};
  const auto add = [&](const Epilogue& chain) {
    auto& all = wanted.chains;
    if (std::find(all.begin(), all.end(), chain) == all.end()) all.push_back(chain);
  };
  for (const Wish& wish : wishes) {
    if (is_chain(wish)) add(parse_epilogue(wish.pattern));
  }
  if (wanted.chains.empty()) return wanted;
  for (const std::string_view text : kEpilogues) {
    if (wanted.fields.accepts_word("epilogue", text)) add(parse_epilogue(text));
  }
  return wanted;
}

// Whether an epilogue named by a wish is given to kernels of the bare signature. Standard kernels
// take it when the wishes accept "standard" or "multi_d", preshuffled kernels only when a wish
// accepts "preshuffle".
bool takes_chain(const KernelFilter& wanted, const GemmSignature& bare) {
  constexpr std::string_view kField = "variant";
  if (bare.preshuffled_b) return wanted.has(kField) && wanted.accepts_word(kField, "preshuffle");
  return wanted.accepts_word(kField, "standard") || wanted.accepts_word(kField, "multi_d");
}

std::vector<GemmSignature> wanted_signatures(DType operand, GemmLayout layout, const Target& target,
                                             const Wanted& wanted) {
  std::vector<GemmSignature> all = signatures_of(operand, layout, target);
  if (wanted.fields.has("grouping")) add_groupings(all);
  add_outputs(wanted.fields, all);
  add_arranged(wanted.fields, all);
  const KernelFilter& fields = wanted.fields;
  if (fields.has("scale_a") || fields.has("scale_b") || fields.has("scale_type")) list_scales(all);
  if (wanted.chains.empty()) {
    std::erase_if(all, [&](const GemmSignature& s) { return !wanted.fields.accepts(s); });
    return all;
  }
  std::vector<GemmSignature> chained;
  for (const GemmSignature& bare : all) {
    if (num_ops(bare.epilogue) > 0 || !takes_chain(wanted.fields, bare)) continue;
    for (const Epilogue& chain : wanted.chains) {
      const GemmSignature signature = with_chain(bare, chain);
      if (wanted.fields_but_variant.accepts(signature)) chained.push_back(signature);
    }
  }
  return chained;
}

bool same_but_epilogue(GemmSignature a, const GemmSignature& b) {
  a.epilogue = b.epilogue;
  return a == b;
}

std::vector<Algorithm> legal_algorithms(const std::vector<Algorithm>& all,
                                        const GemmSignature& signature, const Target& target) {
  std::vector<Algorithm> legal;
  for (const Algorithm& a : all) {
    if (is_legal_quick({signature, a, target})) legal.push_back(a);
  }
  return legal;
}

// The listed epilogues do not change which algorithms are legal, so each list of algorithms is made
// once for all of them. An epilogue that a wish names may be illegal, so its list is made anew.
void add_specs(std::span<const GemmSignature> signatures, const std::vector<Algorithm>& all,
               const Target& target, const Wanted& wanted, std::vector<KernelSpec>& specs) {
  std::vector<Algorithm> legal;
  const GemmSignature* made_for = nullptr;
  for (const GemmSignature& signature : signatures) {
    const bool same = made_for != nullptr && same_but_epilogue(*made_for, signature);
    if (!same || !wanted.chains.empty()) legal = legal_algorithms(all, signature, target);
    made_for = &signature;
    for (const Algorithm& a : legal) specs.push_back({signature, a, target.name});
  }
}

std::vector<Algorithm> with_own(const std::vector<Algorithm>& all, const GemmSignature& signature,
                                const Target& target, const Wanted& wanted) {
  std::vector<Algorithm> more = all;
  add_own({signature, target, nullptr}, more);
  std::erase_if(more, [&](const Algorithm& a) { return !wanted.fields.accepts(a); });
  return more;
}

// Calls visit(signatures, algorithms) for each pair of operand type and layout, with the signatures
// and algorithms that pass the wishes.
template <class Visit>
void for_each_wanted(const Target& target, const Wanted& wanted, Visit&& visit) {
  const AlgorithmSpace& space = space_of(target);
  for (const DType operand : kOperands) {
    if (!space.warp_tiles.contains(operand)) continue;
    std::vector<Algorithm> all;
    for (const GemmLayout layout : kLayouts) {
      const auto signatures = wanted_signatures(operand, layout, target, wanted);
      if (signatures.empty()) continue;
      if (all.empty()) {
        all = algorithms_of(target, signatures.front());
        std::erase_if(all, [&](const Algorithm& a) { return !wanted.fields.accepts(a); });
      }
      visit(signatures, with_own(all, signatures.front(), target, wanted));
    }
  }
}

// ---- one problem ----

// A legal kernel that supports the problem: a general one if there is one, otherwise the first.
std::optional<KernelSpec> find_general(const GemmSignature& signature, const Problem& problem,
                                       const Target& target) {
  const auto& p = std::get<GemmProblem>(problem);
  std::optional<KernelSpec> any;
  for (const Algorithm& a : algorithms_of(target, signature)) {
    const Way* const way = tile::find_way<Types>({signature, a, target});
    const bool best = way->own.is_general != nullptr && way->own.is_general(a, p);
    if (any && !best) continue;
    KernelSpec spec = {signature, a, target.name};
    if (!is_legal_quick({signature, a, target}) || !supports(spec, problem, target)) continue;
    if (best) return spec;
    any = std::move(spec);
  }
  return any;
}

std::vector<Algorithm> algorithms_for(const Problem& problem, const Target& target) {
  const GemmSignature signature = std::get<GemmSignature>(signature_of(problem));
  const auto& p = std::get<GemmProblem>(problem);
  std::vector<Algorithm> all = algorithms_of(target, signature);
  add_own({signature, target, &p}, all);
  tile::for_each_way<Types>(target, [&](const Way& way) {
    if (way.own.drop_spare != nullptr) way.own.drop_spare(p, all);
  });
  return all;
}

// ---- fields that wishes may name although no struct has them ----

std::string_view dtype_of(const Signature& signature) {
  return to_string(std::get<GemmSignature>(signature).a);
}

std::vector<std::string> variants() { return {"standard", "preshuffle", "multi_d"}; }

std::string_view variant_of(const Signature& signature) {
  const auto& gemm = std::get<GemmSignature>(signature);
  if (gemm.preshuffled_b) return "preshuffle";
  return num_ops(gemm.epilogue) > 0 ? "multi_d" : "standard";
}

constexpr std::array kDerived = {DerivedField{"dtype", known_words<DType>, dtype_of},
                                 DerivedField{"variant", variants, variant_of}};

}  // namespace

std::span<const Way* const> Types::ways() {
  static constexpr std::array kAll = {&kPackab,     &kPacka,     &kPackb,     &kDirectCpu,
                                      &kStreamCpu,  &kSmallWay,  &kAmxWay,    &kTmawsWay,
                                      &kCpasyncWay, &kStreamGpu, &kCompv3,    &kCompv4,
                                      &kMem,        &kAsync,     &kDirectHip, &kStreamHip};
  return kAll;
}

GemmProblem Types::for_ways(const GemmProblem& problem) {
  const GemmProblem p = with_strides(problem);
  return is_arranged(p) ? dense_product(p).problem : p;
}

std::string Types::no_way(const KernelSpec& spec, const Target& target) {
  return tile::no_backend("GEMM kernels", spec, target);
}

const Types::Own& own_of(const KernelSpec& spec, const Target& target) {
  static constexpr Types::Own kNone;
  const Way* const way = tile::find_way<Types>(spec, target);
  return way == nullptr ? kNone : way->own;
}

// The algorithms of CPUs differ in their shapes only. AMD's GPUs have so many types and algorithms
// that few epilogues are listed for them.
const BackendFacts& backend_facts(const Target& target) {
  using enum tile::ListOrder;
  static constexpr BackendFacts kAll[] = {
      {"hip", "AMD GPUs", true, 4, any, false, false, true},
      {"cuda", "CUDA targets", true, 8, any, false, true, false},
      {"cpu", "CPUs", false, 8, by_name, true, false, false}};
  for (const BackendFacts& machine : kAll) {
    if (machine.backend == target.backend) return machine;
  }
  return kAll[0];
}

std::span<const DerivedField> derived() { return kDerived; }

std::vector<KernelSpec> enumerate(const Target& target, std::span<const Wish> wishes) {
  const Wanted wanted = read_wishes(wishes);
  std::vector<KernelSpec> specs;
  for_each_wanted(target, wanted, [&](const auto& signatures, const auto& algorithms) {
    add_specs(signatures, algorithms, target, wanted, specs);
  });
  std::erase_if(specs, [&](const KernelSpec& spec) { return !wanted.fields.accepts_name(spec); });
  tile::sort_by_name(specs);
  return specs;
}

std::vector<KernelSpec> combinations(const Target& target, std::span<const Wish> wishes,
                                     std::size_t most) {
  const Wanted wanted = read_wishes(wishes);
  std::vector<KernelSpec> specs;
  for_each_wanted(target, wanted, [&](const auto& signatures, const auto& algorithms) {
    for (const GemmSignature& signature : signatures) {
      for (const Algorithm& a : algorithms) {
        if (specs.size() == most) return;
        KernelSpec spec = {signature, a, target.name};
        if (wanted.fields.accepts_name(spec)) specs.push_back(std::move(spec));
      }
    }
  });
  return specs;
}

std::vector<KernelSpec> candidates(const Problem& problem, const Target& target) {
  return tile::specs_for(problem, target, algorithms_for(problem, target),
                         backend_facts(target).order);
}

std::vector<KernelSpec> legal_candidates(const Problem& problem, const Target& target) {
  return tile::legal_specs_for(family(), problem, target, algorithms_for(problem, target),
                               backend_facts(target).order);
}

KernelSpec general(const Problem& problem, const Target& target) {
  const GemmSignature signature = std::get<GemmSignature>(signature_of(problem));
  std::optional<KernelSpec> found;
  bool has_first = false;
  tile::for_each_way<Types>(target, [&](const Way& way) {
    if (way.own.first == nullptr) return;
    has_first = true;
    const std::optional<Algorithm> a = way.own.first(signature, target);
    if (a && !found) found = {signature, *a, target.name};
  });
  if (!has_first) found = find_general(signature, problem, target);
  if (found) return *found;
  throw Error(
      ErrorCode::unsupported,
      fmt::format("gemm: {} lists no legal kernel for {} x {} with layout {}{}", target.name,
                  to_string(signature.a), to_string(signature.b), to_string(signature.layout),
                  signature.grouping == GemmGrouping::none
                      ? ""
                      : fmt::format(" and grouping {}", to_string(signature.grouping))));
}

// Not deterministic are sums over K whose order depends on the number of threads or on timing. On
// GPUs the waves along K are fixed by the kernel. On CPUs there are at most as many as the caller's
// threads.
Verdict is_deterministic(const KernelSpec& spec, const Target& target) {
  if (spec.algorithm.split_k == SplitK::atomic) {
    return {"deterministic kernels must add their parts of K in a fixed order, got split_k atomic"};
  }
  if (backend_facts(target).waves_are_threads && spec.algorithm.wave.k != 1) {
    return {
        fmt::format("deterministic kernels must have wave_k = 1, since the order of the sum "
                    "follows the number of threads, got wave_k = {}",
                    spec.algorithm.wave.k)};
  }
  return {};
}

// Without D tensors, the type of D does not matter.
Verdict supports(const KernelSpec& spec, const Problem& problem, const Target& target) {
  const auto* kernel = std::get_if<GemmSignature>(&spec.signature);
  if (kernel == nullptr || op_of(problem) != Op::gemm || kernel->epilogue.num_d > 0) {
    return tile::supports<Types>(spec, problem, target);
  }
  const Signature wanted = signature_of(problem);
  GemmSignature without_d = *kernel;
  without_d.d = std::get<GemmSignature>(wanted).d;
  if (std::string why = tile::signature_mismatch(without_d, wanted); !why.empty()) return {why};
  return tile::serves<Types>(spec, problem, target);
}

// Groups cost about as much as batches of equal sizes. On CPUs a B that few rows multiply comes
// from memory row by row where it is read in place: with 16 groups of 64 rows, N 768 and 1536, K
// 1024 and 2048 in fp32, such kernels took 1.4 to 1.6 times as long as those that pack B.
Estimate estimate(const KernelSpec& spec, const Problem& problem, const Target& target,
                  int threads) {
  constexpr double kBInPlace = 1.4;
  const auto& p = std::get<GemmProblem>(problem);
  if (!has_groups(p)) return tile::estimate<Types>(spec, problem, target, threads);
  Estimate found = tile::estimate<Types>(spec, as_batches(p), target, threads);
  const bool on_cpu = backend_facts(target).waves_are_threads;
  const Types::Own& own = own_of(spec, target);
  const bool reads_b_in_place = !own.packs_b && !own.streams;
  const double longer = !on_cpu            ? partly_filled(spec.algorithm, p)
                        : reads_b_in_place ? kBInPlace
                                           : 1;
  found.seconds += (longer - 1) * found.compute_seconds;
  found.compute_seconds *= longer;
  return found;
}

Source emit(const KernelSpec& spec, const Target& target) {
  return arranged_source(tile::emit<Types>(spec, target), spec, target);
}

Launch bind(const KernelSpec& spec, const Problem& problem, const Target& target,
            const Operands& operands) {
  const auto& p = std::get<GemmProblem>(problem);
  if (is_arranged(p)) {
    return bind_arranged(spec, with_strides(p), target, std::get<GemmOperands>(operands));
  }
  if (!has_groups(p) && !has_outputs(p) && !has_scales(p)) {
    return tile::bind<Types>(spec, problem, target, operands);
  }
  const Types::Own& own = tile::way_of<Types>(spec, target).own;
  const auto& o = std::get<GemmOperands>(operands);
  if (has_outputs(p)) return own.bind_outputs(spec, with_strides(p), target, o);
  if (has_scales(p)) return own.bind_scaled(spec, with_strides(p), target, o);
  return own.bind_groups(spec, with_strides(p), target, o);
}

// B is packed in a kernel's own form, once for many launches.
std::optional<Prepack> prepack(const KernelSpec& spec, const Problem& problem, const Target& target,
                               const Operands& operands, void* packed) {
  const auto& s = std::get<GemmSignature>(spec.signature);
  if (!s.preshuffled_b) return std::nullopt;
  const GemmProblem p = with_strides(std::get<GemmProblem>(problem));
  GemmOperands o = std::get<GemmOperands>(operands);
  const Types::Own& own = tile::way_of<Types>(spec, target).own;
  const std::int64_t bytes = (p.batch_stride_b == 0 ? 1 : p.batch) * own.packed_bytes(spec, p);
  Prepack made{.operand = "b", .from = o.b, .bytes = static_cast<std::size_t>(bytes)};
  if (bytes > 0) made.launch = own.pack(p, o.b, packed, bytes);
  o.b = packed;
  made.operands = o;
  return made;
}

Problem unpacked(const Problem& problem) {
  GemmProblem p = std::get<GemmProblem>(problem);
  p.preshuffled_b = false;
  return p;
}

}  // namespace tessera::gemm
