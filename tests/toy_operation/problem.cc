// The family's table, what it says of problems, and the right answer.
#include <fmt/format.h>

#include <array>

#include "tessera/base/error.h"
#include "tessera/families/rule_counts.h"
#include "tessera/families/tile/defaults.h"
#include "tessera/families/tile/features.h"
#include "tessera/families/tile/row_reference.h"
#include "tessera/spec/fields_internal.h"
#include "tessera/spec/numeric.h"
#include "toy_operation/toy.h"

namespace tessera::toy {
namespace {

constexpr double kCost = 1;  // of one element, in multiplications

const NormProblem& toy_of(const Problem& problem) { return std::get<NormProblem>(problem); }

// ---- operands ----

enum Operand : std::size_t { kIn, kScale, kOut };

Tensors tensors(const Problem& problem) {
  const NormProblem p = with_strides(toy_of(problem));
  Tensors all;
  for (const Operand operand : {kIn, kScale, kOut}) {
    Tensor& tensor = all.add();
    tensor.name = std::array{"in", "scale", "out"}[operand];
    tensor.operand = operand;
    tensor.access = operand == kOut ? Access::write : Access::read;
    tensor.rank = operand == kScale ? 1 : 2;
    tensor.sizes[0] = p.columns, tensor.sizes[1] = p.rows;
    tensor.strides[0] = 1, tensor.strides[1] = operand == kIn ? p.ld_in : p.ld_out;
    tensor.may_be_output = operand == kIn;
  }
  return all;
}

const void* pointer(const Operands& operands, std::size_t operand) {
  const auto& o = std::get<NormOperands>(operands);
  return std::array<const void*, 3>{o.in, o.scale, o.out}.at(operand);
}

void set_pointer(Operands& operands, std::size_t operand, void* data) {
  auto& o = std::get<NormOperands>(operands);
  if (operand == kOut) {
    o.out = data;
  } else {
    (operand == kIn ? o.in : o.scale) = data;
  }
}

// ---- validity ----

template <class... Args>
[[noreturn]] void refuse(fmt::format_string<Args...> sentence, Args&&... args) {
  throw Error(ErrorCode::invalid_argument,
              "norm: " + fmt::format(sentence, std::forward<Args>(args)...));
}

void validate(const Problem& problem) {
  const NormProblem& p = toy_of(problem);
  check_numbers("norm", p);
  const std::string reason = signature_reason(std::get<NormSignature>(signature_of(problem)));
  if (!reason.empty()) refuse("{}", reason);
  if (p.rows < 0) refuse("rows must be at least 0, got {}", p.rows);
  if (p.columns < 0) refuse("columns must be at least 0, got {}", p.columns);
  for (const Tensor& tensor : tensors(problem)) {
    const std::int64_t ld = tensor.rank > 1 ? tensor.strides[1] : p.columns;
    if (ld < p.columns) {
      refuse("ld_{} must be at least {} (columns), got {}", tensor.name, p.columns, ld);
    }
    if (tensor.is_too_long()) refuse("the last byte of {} must be below 2^63", tensor.name);
  }
}

// ---- the right answer ----

// A kernel rounds the exact product once, so the tolerance is that of the type alone.
Reference reference(const Problem& problem, const Operands& operands,
                    const ReferenceLimits& limits) {
  const NormProblem p = with_strides(toy_of(problem));
  const auto& o = std::get<NormOperands>(operands);
  return tile::row_reference(
      family(), problem, limits, kCost, [&](std::int64_t row, tile::Bounded* const* outputs) {
        for (std::int64_t c = 0; c < p.columns; ++c) {
          outputs[0][c].value =
              load_element(p.in, o.in, row * p.ld_in + c) * load_element(p.weight, o.scale, c);
        }
      });
}

Mismatch compare(const Problem& problem, const Operands& operands, const Reference& reference) {
  return tile::compare_rows(family(), problem, operands, reference);
}

Mismatch verify(const Problem& problem, const Operands& operands) {
  return tile::verify_rows(family(), problem, operands);
}

// ---- what learning and reports ask for ----

std::span<const DerivedField> derived() { return {}; }
double flops(const Problem& p) { return double(toy_of(p).rows) * double(toy_of(p).columns); }
std::string model_key(const Signature&) { return "fp32"; }

Facts facts(const Problem& problem) {
  const NormProblem& p = toy_of(problem);
  const auto rows = static_cast<std::uint64_t>(p.rows);
  return {.types = {{"dtype", "fp32"}},
          .sizes = {{"columns", p.columns < 1024 ? "short" : "long"}},
          .axes = {Axis{"rows", p.rows}, Axis{"columns", p.columns}},
          .shape_hash = mix(mix(rows) ^ static_cast<std::uint64_t>(p.columns)),
          .bandwidth_bound = true};
}

const Instruction* roof(const Problem&, const Target& target) {
  return find_instruction(target, DType::fp32, DType::fp32, DType::fp32);
}

// There is no other type; validate() refuses the word of one.
Problem retyped(const Problem& problem, const TypeWords& words) {
  NormProblem p = toy_of(problem);
  if (!words.dtype.empty()) p.in = p.weight = p.out = parse_dtype(words.dtype);
  return p;
}

Problem from_words(const ProblemWords& words) {
  return tile::from_words(Op::norm, words, std::array<std::string_view, 2>{"rows", "columns"});
}

constexpr std::array<std::string_view, 1> kSets = {"any"};
std::span<const std::string_view> problem_sets() { return kSets; }

std::vector<Problem> draw(std::string_view set, ProblemSide side, const Target&,
                          const TypeWords& words) {
  if (set != kSets[0]) refuse_problem_set(set, kSets);
  const Problem one = retyped(NormProblem{.kind = NormKind::rmsnorm, .scale = true}, words);
  return tile::draw_problems(40, side, [&](std::uint64_t i) -> std::optional<Problem> {
    Draw numbers(1, i);
    NormProblem p = toy_of(one);
    p.rows = numbers.log_uniform(0, 8);
    p.columns = numbers.log_uniform(3, 14);
    return p;
  });
}

// One row, whole and partial tiles, and nothing at all.
std::vector<Problem> samples(const KernelSpec&, const Target&) {
  NormProblem p = {.kind = NormKind::rmsnorm, .scale = true};
  std::vector<Problem> problems;
  for (const auto& [rows, columns] : {std::pair{1, 5000}, {8, 256}, {5, 77}, {0, 8}, {4, 0}}) {
    p.rows = rows, p.columns = columns;
    problems.emplace_back(p);
  }
  return problems;
}

}  // namespace

double bytes(const Problem& problem) {
  const NormProblem& p = toy_of(problem);
  return (2 * double(p.rows) + 1) * double(p.columns) * size_of(p.in);
}

std::string signature_reason(const NormSignature& signature) {
  if (Signature(signature) == Types::signatures()[0]) return {};
  return "kind must be rmsnorm, scale 1, and everything else at its default";
}

constexpr Family kTable = {
    .op = Op::norm,
    .abi = kAbi,
    .verb = "scale",
    .validate = validate,
    .tensors = tensors,
    .pointer = pointer,
    .set_pointer = set_pointer,
    .is_legal = tile::is_legal<Types>,
    .is_deterministic = tile::always,
    .is_batch_invariant = tile::always,
    .order_of_sums = tile::order_by_name,
    .any_batch = tile::no_batch,
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

}  // namespace tessera::toy

// Programs with the toy operation do not link norm's own table.
constinit const tessera::Family tessera::norm::kFamily = toy::kTable;
