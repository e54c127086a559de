// The family's table, and what it says of problems.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "tessera/base/error.h"
#include "tessera/device/route.h"
#include "tessera/families/route/route.h"
#include "tessera/families/rule_counts.h"
#include "tessera/families/tile/defaults.h"
#include "tessera/families/tile/features.h"
#include "tessera/spec/fields_internal.h"

namespace tessera::route {
namespace {

template <class... Args>
[[noreturn]] void refuse(fmt::format_string<Args...> sentence, Args&&... args) {
  throw Error(ErrorCode::invalid_argument,
              "route: " + fmt::format(sentence, std::forward<Args>(args)...));
}

const RouteProblem& route_of(const Problem& problem) { return std::get<RouteProblem>(problem); }

// ---- operands ----

// The pointers of RouteOperands in their order.
enum Operand : std::size_t { kLogits, kBias, kIds, kWeights, kGroupEnds, kRowIndex, kSlots };
constexpr std::array<std::string_view, 7> kNames = {"logits",     "bias",      "ids",  "weights",
                                                    "group_ends", "row_index", "slots"};

Tensor& add(Operand operand, DType dtype, std::int64_t size, Tensors& all) {
  Tensor& tensor = all.add();
  tensor.name = kNames[operand];
  tensor.operand = operand;
  tensor.access = operand >= kIds ? Access::write : Access::read;
  tensor.dtype = dtype;
  tensor.rank = 1;
  tensor.sizes[0] = size, tensor.strides[0] = 1;
  return tensor;
}

void add_rows(Operand operand, DType dtype, const RouteProblem& p, std::int64_t columns,
              std::int64_t ld, Tensors& all) {
  Tensor& tensor = add(operand, dtype, columns, all);
  tensor.rank = 2;
  tensor.sizes[1] = p.tokens, tensor.strides[1] = ld;
}

void set_pointer(Operands& operands, std::size_t operand, void* data) {
  auto& o = std::get<RouteOperands>(operands);
  const std::array<void**, 5> outputs = {&o.ids, &o.weights, &o.group_ends, &o.row_index, &o.slots};
  if (operand == kLogits) o.logits = data;
  if (operand == kBias) o.bias = data;
  if (operand >= kIds) *outputs[operand - kIds] = data;
}

// ---- validity ----

void validate_groups(const RouteProblem& p) {
  if (p.num_groups < 1 || p.experts % p.num_groups != 0) {
    refuse("num_groups must divide the number of experts, {}, got {}", p.experts, p.num_groups);
  }
  if (p.top_groups < 1 || p.top_groups > p.num_groups) {
    refuse("top_groups must be between 1 and num_groups, {}, got {}", p.num_groups, p.top_groups);
  }
  const std::int64_t allowed = p.experts / p.num_groups * p.top_groups;
  if (p.top_k > allowed) {
    refuse("top_k must be at most {}, the experts of {} group{}, got {}", allowed, p.top_groups,
           p.top_groups == 1 ? "" : "s", p.top_k);
  }
}

// Where experts are given nothing says how they were chosen.
void validate_given(const RouteProblem& p) {
  RouteProblem plain = {.scoring = p.scoring, .in = p.in, .order = p.order};
  plain.tokens = p.tokens, plain.experts = p.experts, plain.top_k = p.top_k;
  if (p == plain) return;
  refuse(
      "num_groups, top_groups, ld_logits, scaling_factor and renormalize must be left out with "
      "scoring=given, got '{}'",
      to_string(Problem(p)));
}

void validate(const Problem& problem) {
  const RouteProblem& p = route_of(problem);
  check_numbers("route", p);
  const std::string reason = signature_reason(std::get<RouteSignature>(signature_of(problem)));
  if (!reason.empty()) refuse("{}", reason);
  if (p.tokens < 0) refuse("tokens must be at least 0, got {}", p.tokens);
  if (p.experts < 1 || p.experts > device::kMostExperts) {
    refuse("experts must be between 1 and {}, got {}", device::kMostExperts, p.experts);
  }
  if (!chooses(p) && p.top_k < 1) refuse("top_k must be at least 1, got {}", p.top_k);
  if (chooses(p) && (p.top_k < 1 || p.top_k > p.experts)) {
    refuse("top_k must be between 1 and the number of experts, {}, got {}", p.experts, p.top_k);
  }
  constexpr std::int64_t kMostSlots = std::numeric_limits<std::int32_t>::max();
  if (p.tokens > kMostSlots / p.top_k) {
    refuse("tokens times top_k must be at most {}, got {} times {}", kMostSlots, p.tokens, p.top_k);
  }
  if (!chooses(p)) return validate_given(p);
  validate_groups(p);
  if (!std::isfinite(p.scaling_factor)) {
    refuse("scaling_factor must be finite, got {}", p.scaling_factor);
  }
  const std::int64_t ld = with_strides(p).ld_logits;
  if (ld < p.experts) refuse("ld_logits must be at least {} (experts), got {}", p.experts, ld);
  for (const Tensor& tensor : tensors(problem)) {
    if (!tensor.is_too_long()) continue;
    refuse("the last byte of {} must be below 2^63, got {} rows {} apart", tensor.name, p.tokens,
           ld);
  }
}

// ---- what learning and reports ask for ----

// An exponential and two sums of each logit, and a comparison for each that is chosen.
double flops(const Problem& problem) {
  const RouteProblem& p = route_of(problem);
  const double logits = double(p.tokens) * double(p.experts);
  return chooses(p) ? 4 * logits : double(p.tokens) * double(p.top_k);
}

std::string model_key(const Signature& signature) {
  return std::string(to_string(std::get<RouteSignature>(signature).in));
}

tessera::Facts facts(const Problem& problem) {
  const RouteProblem& p = route_of(problem);
  const auto bits = [](std::int64_t size) { return static_cast<std::uint64_t>(size); };
  return {.dtype = p.in,
          .types = {{"dtype", std::string(to_string(p.in))},
                    {"scoring", std::string(to_string(p.scoring))}},
          .sizes = {{"experts", p.experts < 64     ? "few"
                                : p.experts <= 256 ? "usual"
                                                   : "many"}},
          .axes = {Axis{"tokens", p.tokens}, Axis{"experts", p.experts}},
          .shape_hash = mix(mix(mix(bits(p.tokens)) ^ bits(p.experts)) ^ bits(p.top_k)),
          .bandwidth_bound = true};
}

const Instruction* roof(const Problem&, const Target& target) {
  return find_instruction(target, DType::fp32, DType::fp32, DType::fp32);
}

Problem retyped(const Problem& problem, const TypeWords& words) {
  RouteProblem p = route_of(problem);
  if (!words.dtype.empty()) p.in = parse_dtype(words.dtype);
  return p;
}

Problem from_words(const ProblemWords& words) {
  return tile::from_words(
      Op::route, words,
      std::array<std::string_view, 5>{"tokens", "experts", "top_k", "scoring", "dtype"});
}

constexpr std::array<std::string_view, 1> kSets = {"layers"};
std::span<const std::string_view> problem_sets() { return kSets; }

// Layers from 8 experts on, one token and many, as published models have them.
std::vector<Problem> draw(std::string_view set, ProblemSide side, const Target&,
                          const TypeWords& words) {
  if (set != kSets[0]) refuse_problem_set(set, kSets);
  const RouteProblem types = route_of(retyped(RouteProblem{}, words));
  return tile::draw_problems(side == ProblemSide::unseen ? 60 : 180, side,
                             [&](std::uint64_t i) -> std::optional<Problem> {
                               Draw numbers(1, i);
                               RouteProblem p = types;
                               p.scoring = static_cast<RouteScoring>(numbers.below(2));
                               p.experts = std::int64_t{8} << numbers.below(8);
                               p.top_k = 1 + numbers.below(std::min<std::int64_t>(8, p.experts));
                               p.bias = p.scoring == RouteScoring::sigmoid;
                               p.order = numbers.below(2) == 0;
                               if (p.bias && p.experts >= 64 && numbers.below(2) == 0) {
                                 p.num_groups = 8, p.top_groups = 4;
                               }
                               p.tokens = numbers.log_uniform(0, 15);
                               return p;
                             });
}

// One token, more than blocks have warps, odd numbers, as many experts as the kernel holds, and
// nothing at all.
std::vector<Problem> samples(const KernelSpec& spec, const Target&) {
  const auto& s = std::get<RouteSignature>(spec.signature);
  const std::int64_t held = spec.algorithm.tile.n;
  RouteProblem p = {.scoring = s.scoring, .in = s.in, .bias = s.bias, .order = s.order};
  const std::array<std::int64_t, 3> sizes[] = {
      {5, held, 8}, {1, 8, 2}, {333, 60, 4}, {700, std::min<std::int64_t>(held, 100), 1},
      {2, 48, 48},  {0, 16, 3}};
  std::vector<Problem> problems;
  for (const auto& [tokens, experts, top_k] : sizes) {
    p.tokens = tokens, p.experts = experts, p.top_k = top_k;
    problems.emplace_back(p);
  }
  if (!chooses(s)) return problems;
  p.tokens = 37, p.experts = 64, p.top_k = 6, p.num_groups = 8, p.top_groups = 3;
  p.renormalize = false, p.scaling_factor = 2.5F;
  problems.emplace_back(p);
  return problems;
}

AnyBatch any_batch(const Problem& problem) {
  RouteProblem p = route_of(problem);
  if (p.ld_logits == p.experts) p.ld_logits = kPacked;
  AnyBatch any{problem, {}, {}};
  for (const std::int64_t tokens : {64, 1, 4096}) p.tokens = tokens, any.usual.emplace_back(p);
  for (const std::int64_t tokens : {3, 1 << 17}) p.tokens = tokens, any.unusual.emplace_back(p);
  return any;
}

// Lanes add up the exponentials of every so many experts, and then their sums.
std::string order_of_sums(const KernelSpec&, const Problem&, const Target&) {
  return "sums of lanes";
}

}  // namespace

std::string signature_reason(const RouteSignature& s) {
  if (s.in != DType::fp32 && s.in != DType::fp16 && s.in != DType::bf16) {
    return fmt::format("in must be fp32, fp16 or bf16, got {}", to_string(s.in));
  }
  if (chooses(s)) return {};
  if (s.in != DType::fp32) {
    return fmt::format("in must be fp32 with scoring=given, which has no logits, got {}",
                       to_string(s.in));
  }
  if (s.bias) return "bias must be 0 with scoring=given, which has no scores, got 1";
  if (!s.order) return "order must be 1 with scoring=given, which computes nothing else, got 0";
  return {};
}

Tensors tensors(const Problem& problem) {
  const RouteProblem p = with_strides(route_of(problem));
  Tensors all;
  if (chooses(p)) add_rows(kLogits, p.in, p, p.experts, p.ld_logits, all);
  if (p.bias) add(kBias, DType::fp32, p.experts, all);
  add_rows(kIds, DType::int32, p, p.top_k, p.top_k, all);
  if (chooses(p)) {
    add_rows(kWeights, DType::fp32, p, p.top_k, p.top_k, all);
  } else {
    Tensor& ids = all.back();
    ids.access = Access::read;
    ids.fill = Fill::indices;
    ids.most = p.experts - 1;
  }
  if (!p.order) return all;
  add(kGroupEnds, DType::int32, p.experts, all);
  for (const Operand operand : {kRowIndex, kSlots}) {
    add(operand, DType::int32, p.tokens * p.top_k, all);
  }
  return all;
}

const void* pointer(const Operands& operands, std::size_t operand) {
  const auto& o = std::get<RouteOperands>(operands);
  return std::array<const void*, 7>{o.logits,     o.bias,      o.ids,  o.weights,
                                    o.group_ends, o.row_index, o.slots}
      .at(operand);
}

double bytes(const Problem& problem) {
  double sum = 0;
  for (const Tensor& tensor : tensors(problem)) {
    sum += double(tensor.sizes[0]) * double(tensor.rows()) * size_of(tensor.dtype);
  }
  return sum;
}

constinit const Family kFamily = {
    .op = Op::route,
    .abi = kAbi,
    .verb = "route",
    .validate = validate,
    .tensors = tensors,
    .pointer = pointer,
    .set_pointer = set_pointer,
    .is_legal = tile::is_legal<Types>,
    .is_deterministic = tile::always,    // the order is that of slots
    .is_batch_invariant = tile::always,  // a token has one thread or warp
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
    .estimate = tile::estimate<Types>,
    .features = tile::usual_features,
    .features_fit = tile::features_fit,
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

}  // namespace tessera::route
