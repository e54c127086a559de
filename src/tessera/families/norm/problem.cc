// The family's table, and what it says of problems.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "tessera/base/error.h"
#include "tessera/device/norm.h"
#include "tessera/families/norm/norm.h"
#include "tessera/families/rule_counts.h"
#include "tessera/families/tile/ceil_div.h"
#include "tessera/families/tile/defaults.h"
#include "tessera/families/tile/features.h"
#include "tessera/spec/fields_internal.h"

namespace tessera::norm {
namespace {

template <class... Args>
[[noreturn]] void refuse(fmt::format_string<Args...> sentence, Args&&... args) {
  throw Error(ErrorCode::invalid_argument,
              "norm: " + fmt::format(sentence, std::forward<Args>(args)...));
}

const NormProblem& norm_of(const Problem& problem) { return std::get<NormProblem>(problem); }

// ---- operands ----

// The pointers of NormOperands in their order.
enum Operand : std::size_t { kIn, kResidual, kScale, kShift, kOut, kSum, kOutScale, kOutScales };
constexpr std::array<std::string_view, 8> kNames = {"in",  "residual", "scale",     "shift",
                                                    "out", "sum",      "out_scale", "out_scales"};

// Rows `ld` apart; a single one where that is 0.
void add(Operand operand, DType dtype, const NormProblem& p, std::int64_t ld, Tensors& all) {
  Tensor& tensor = all.add();
  tensor.name = kNames[operand];
  tensor.operand = operand;
  tensor.access = operand >= kOut ? Access::write : Access::read;
  tensor.dtype = dtype;
  tensor.rank = operand == kScale || operand == kShift ? 1 : 2;
  tensor.sizes[0] = operand == kIn ? columns_of_in(p) : p.columns, tensor.sizes[1] = p.rows;
  tensor.strides[0] = 1, tensor.strides[1] = ld;
  tensor.may_be_output = operand <= kResidual && !is_elementwise(p.kind);
}

void add_scales(const NormProblem& p, Tensors& all) {
  if (p.quant == NormQuant::none) return;
  Tensor& tensor = all.add();
  const bool is_read = p.quant == NormQuant::tensor;
  tensor.operand = is_read ? kOutScale : kOutScales;
  tensor.name = kNames[tensor.operand];
  tensor.access = is_read ? Access::read : Access::write;
  tensor.dtype = DType::fp32;
  tensor.rank = is_read ? 1 : 2;
  const std::int64_t blocks =
      p.quant == NormQuant::block ? tile::ceil_div(p.columns, device::kQuantBlock) : 1;
  tensor.sizes[0] = blocks, tensor.sizes[1] = is_read ? 1 : p.rows;
  tensor.strides[0] = p.scales_by_column ? p.rows : 1;
  tensor.strides[1] = p.scales_by_column ? 1 : blocks;
}

void set_pointer(Operands& operands, std::size_t operand, void* data) {
  auto& o = std::get<NormOperands>(operands);
  const std::array<const void**, 4> inputs = {&o.in, &o.residual, &o.scale, &o.shift};
  if (operand < kOut) *inputs[operand] = data;
  if (operand == kOut) o.out = data;
  if (operand == kSum) o.sum = data;
  if (operand == kOutScale) o.out_scale = data;
  if (operand == kOutScales) o.out_scales = data;
}

// ---- validity ----

constexpr std::int64_t kMostGatedColumns = std::int64_t{1} << 60;

// Kinds with a scale, a shift, a residual and an epsilon.
bool has_statistics(NormKind kind) {
  return kind == NormKind::rmsnorm || kind == NormKind::layernorm;
}

void validate(const Problem& problem) {
  const NormProblem& given = norm_of(problem);
  check_numbers("norm", given);
  const std::string reason = signature_reason(std::get<NormSignature>(signature_of(problem)));
  if (!reason.empty()) refuse("{}", reason);
  if (given.rows < 0) refuse("rows must be at least 0, got {}", given.rows);
  if (given.columns < 0) refuse("columns must be at least 0, got {}", given.columns);
  if (is_gated(given.kind) && given.columns > kMostGatedColumns) {
    refuse("columns must be at most {} with kind={}, got {}", kMostGatedColumns,
           to_string(given.kind), given.columns);
  }
  if (!has_statistics(given.kind) && given.epsilon != NormProblem{}.epsilon) {
    refuse("epsilon must be left out with kind={}, which has none, got {}", to_string(given.kind),
           given.epsilon);
  }
  if (!std::isfinite(given.epsilon) || given.epsilon < 0) {
    refuse("epsilon must be finite and at least 0, got {}", given.epsilon);
  }
  if (given.scales_by_column && given.quant != NormQuant::block) {
    refuse("scales_by_column must be 0 but with quant=block, got 1 with quant={}",
           to_string(given.quant));
  }
  for (const Tensor& tensor : tensors(problem)) {
    if (tensor.operand >= kOutScale) continue;
    const std::int64_t ld = tensor.rank > 1 ? tensor.strides[1] : given.columns;
    if (ld < tensor.sizes[0]) {
      refuse("ld_{} must be at least {} ({}columns), got {}", tensor.name, tensor.sizes[0],
             tensor.sizes[0] == given.columns ? "" : "2 x ", ld);
    }
    if (!tensor.is_too_long()) continue;
    refuse("the last byte of {} must be below 2^63, got {} rows {} apart", tensor.name, given.rows,
           ld);
  }
}

// ---- what learning and reports ask for ----

// A difference, an exponential or a square, two sums and two products of each element.
double flops(const Problem& problem) { return 6 * elements(norm_of(problem)); }

std::string model_key(const Signature& signature) {
  return std::string(to_string(std::get<NormSignature>(signature).in));
}

// The features tell no kind from another.
Verdict features_fit(const Problem& problem) {
  const NormKind kind = norm_of(problem).kind;
  if (!is_elementwise(kind)) return {};
  return {fmt::format("no feature says that kind is {}", to_string(kind))};
}

tessera::Facts facts(const Problem& problem) {
  const NormProblem& p = norm_of(problem);
  const auto bits = [](std::int64_t size) { return static_cast<std::uint64_t>(size); };
  const char* const width = p.columns < 1024 ? "short" : p.columns < 16384 ? "medium" : "long";
  return {
      .dtype = p.in,
      .types = {{"dtype", std::string(to_string(p.in))}, {"kind", std::string(to_string(p.kind))}},
      .sizes = {{"columns", width}},
      .axes = {Axis{"rows", p.rows}, Axis{"columns", p.columns}},
      .shape_hash = mix(mix(bits(p.rows)) ^ bits(p.columns)),
      .bandwidth_bound = true};
}

// All kinds compute in fp32.
const Instruction* roof(const Problem&, const Target& target) {
  return find_instruction(target, DType::fp32, DType::fp32, DType::fp32);
}

Problem retyped(const Problem& problem, const TypeWords& words) {
  NormProblem p = norm_of(problem);
  if (!words.dtype.empty()) p.in = p.weight = p.out = parse_dtype(words.dtype);
  return p;
}

Problem from_words(const ProblemWords& words) {
  return tile::from_words(Op::norm, words,
                          std::array<std::string_view, 4>{"kind", "rows", "columns", "dtype"});
}

constexpr std::array<std::string_view, 2> kSets = {"wide", "gated"};
std::span<const std::string_view> problem_sets() { return kSets; }

// Outputs of feed-forward layers: from one token on, whole and odd widths, pairs and halves.
std::vector<Problem> draw_gated(ProblemSide side, const Target& target, const TypeWords& words) {
  const int octaves = is_gpu(target) ? 27 : 24;  // of elements
  const NormProblem types = norm_of(retyped(NormProblem{.kind = NormKind::silu_mul}, words));
  return tile::draw_problems(side == ProblemSide::unseen ? 100 : 300, side,
                             [&](std::uint64_t i) -> std::optional<Problem> {
                               Draw numbers(2, i);
                               NormProblem p = types;
                               p.kind = static_cast<NormKind>(3 + numbers.below(3));
                               p.interleaved = numbers.below(4) == 0;
                               p.columns = numbers.log_uniform(5, 16);
                               if (p.columns > 64 && numbers.below(4) > 0)
                                 p.columns = p.columns / 64 * 64;
                               p.rows = numbers.log_uniform(0, 16);
                               if (p.rows * p.columns >> octaves != 0) return std::nullopt;
                               return p;
                             });
}

// Widths of networks are mostly multiples of 64; a third is anything.
std::vector<Problem> draw(std::string_view set, ProblemSide side, const Target& target,
                          const TypeWords& words) {
  if (set == kSets[1]) return draw_gated(side, target, words);
  if (set != kSets[0]) refuse_problem_set(set, kSets);
  const int octaves = is_gpu(target) ? 27 : 25;  // of elements
  const NormProblem types = norm_of(retyped(NormProblem{}, words));
  return tile::draw_problems(side == ProblemSide::unseen ? 100 : 300, side,
                             [&](std::uint64_t i) -> std::optional<Problem> {
                               Draw numbers(1, i);
                               NormProblem p = types;
                               p.kind = static_cast<NormKind>(numbers.below(3));
                               p.scale = p.kind != NormKind::softmax;
                               p.shift = p.kind == NormKind::layernorm;
                               p.residual = p.scale && numbers.below(2) == 0;
                               p.columns = numbers.log_uniform(3, 21);
                               if (p.columns > 64 && numbers.below(3) > 0)
                                 p.columns = p.columns / 64 * 64;
                               p.rows = numbers.log_uniform(0, 17);
                               if (p.rows * p.columns >> octaves != 0) return std::nullopt;
                               return p;
                             });
}

// Rows that a block holds and rows that it does not, odd ones, one row, and nothing at all.
std::vector<Problem> samples(const KernelSpec& spec, const Target& target) {
  const auto& s = std::get<NormSignature>(spec.signature);
  const Algorithm& a = spec.algorithm;
  const std::int64_t held = std::int64_t{a.tile.n} * a.cluster_n;
  const bool serves_longer = target.backend != "cuda" || is_cut(s) ||
                             (a.warp_tile.m == 1 && a.cluster_n == 1 && s.quant == NormQuant::none);
  const std::pair<std::int64_t, std::int64_t> sizes[] = {
      {5, held}, {3, 2 * held + 77}, {33, 257}, {7, 1}, {1, 3 * held}, {0, 8}, {4, 0}};
  NormProblem p = {s.kind, s.in, s.weight, s.out};
  p.scale = s.scale, p.shift = s.shift, p.residual = s.residual, p.quant = s.quant;
  p.interleaved = s.interleaved;
  std::vector<Problem> problems;
  for (const auto& [rows, columns] : sizes) {
    p.rows = rows, p.columns = serves_longer ? columns : std::min(columns, held);
    problems.emplace_back(p);
  }
  return problems;
}

}  // namespace

std::string quant_reason(const NormSignature& s) {
  if (s.quant == NormQuant::none) return {};
  if (s.kind == NormKind::softmax) {
    return fmt::format("quant must be none with kind=softmax, got {}", to_string(s.quant));
  }
  if (s.out == DType::fp8 || s.out == DType::bf8) return {};
  return fmt::format("out must be fp8 or bf8 with quant={}, got {}", to_string(s.quant),
                     to_string(s.out));
}

std::string signature_reason(const NormSignature& s) {
  if (std::string reason = quant_reason(s); !reason.empty()) return reason;
  const std::pair<std::string_view, DType> types[] = {
      {"in", s.in}, {"weight", s.weight}, {"out", s.out}};
  for (const auto& [name, dtype] : types) {
    if (dtype == DType::fp32 || dtype == DType::fp16 || dtype == DType::bf16) continue;
    if (name == "out" && s.quant != NormQuant::none) continue;
    return fmt::format("{} must be fp32, fp16 or bf16, got {}", name, to_string(dtype));
  }
  const std::pair<std::string_view, bool> flags[] = {
      {"scale", s.scale}, {"shift", s.shift}, {"residual", s.residual}};
  for (const auto& [name, is_set] : flags) {
    if (!is_set || has_statistics(s.kind)) continue;
    return fmt::format("{0} must be 0 with kind={1}, which has none, got {0}=1", name,
                       to_string(s.kind));
  }
  if (s.interleaved && !is_gated(s.kind)) {
    return fmt::format("interleaved must be 0 with kind={}, which has no gates, got 1",
                       to_string(s.kind));
  }
  if (s.scale || s.shift || s.weight == s.in) return {};
  return fmt::format("weight must be {} like in where scale and shift are 0, got {}",
                     to_string(s.in), to_string(s.weight));
}

Tensors tensors(const Problem& problem) {
  const NormProblem p = with_strides(norm_of(problem));
  Tensors all;
  add(kIn, p.in, p, p.ld_in, all);
  if (p.residual) add(kResidual, p.in, p, p.ld_residual, all);
  if (p.scale) add(kScale, p.weight, p, 0, all);
  if (p.shift) add(kShift, p.weight, p, 0, all);
  add(kOut, p.out, p, p.ld_out, all);
  if (p.residual) add(kSum, p.in, p, p.ld_sum, all);
  add_scales(p, all);
  return all;
}

const void* pointer(const Operands& operands, std::size_t operand) {
  const auto& o = std::get<NormOperands>(operands);
  return std::array<const void*, 8>{o.in,  o.residual, o.scale,     o.shift,
                                    o.out, o.sum,      o.out_scale, o.out_scales}
      .at(operand);
}

double elements(const NormProblem& p) {
  return static_cast<double>(p.rows) * static_cast<double>(p.columns);
}

double bytes(const Problem& problem) {
  double sum = 0;
  for (const Tensor& tensor : tensors(problem)) {
    sum += double(tensor.sizes[0]) * double(tensor.rows()) * size_of(tensor.dtype);
  }
  return sum;
}

constinit const Family kFamily = {
    .op = Op::norm,
    .abi = kAbi,
    .verb = "normalise",
    .validate = validate,
    .tensors = tensors,
    .pointer = pointer,
    .set_pointer = set_pointer,
    .is_legal = tile::is_legal<Types>,
    .is_deterministic = tile::always,    // slices are merged in their order
    .is_batch_invariant = tile::always,  // a row's cuts follow its length
    .order_of_sums = order_of_sums,
    .any_batch = any_batch,
    .supports = tile::supports<Types>,
    .enumerate = tile::enumerate<Types>,
    .combinations = tile::combinations<Types>,
    .derived = derived,
    .candidates = tile::candidates<Types>,
    .legal_candidates = tile::legal_candidates<Types>,
    .general = general,
    .emit = tile::emit<Types>,
    .estimate = estimate,
    .features = tile::usual_features,
    .features_fit = features_fit,
    .is_described = tile::is_described,
    .extract = tile::extract_usual,
    .bind = tile::bind<Types>,
    .verify = verify,
    .reference = reference,
    .compare = compare,
    .plain = tile::same,
    .flops = flops,
    .bytes = bytes,
    .model_key = model_key,
    .facts = facts,
    .roof = roof,
    .retyped = retyped,
    .from_words = from_words,
    .problem_sets = problem_sets,
    .draw = draw,
    .samples = samples,
};

}  // namespace tessera::norm
