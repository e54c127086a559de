#include "tessera/dispatch/call_plan_internal.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "tessera/base/error.h"

namespace tessera {

PointerRules::PointerRules(const Family& family, const Problem& problem)
    : op_(family.op), pointer_(family.pointer) {
  const Tensors tensors = family.tensors(problem);
  if (writes_nothing(tensors)) return;
  for (const bool is_output : {true, false}) {
    for (const Tensor& tensor : tensors) {
      if (tensor.is_written() != is_output || tensor.is_empty()) continue;
      const int alignment = tensor.alignment != 0 ? tensor.alignment : size_of(tensor.dtype);
      const auto bytes = tensor.in_array ? alignof(void*) : static_cast<std::size_t>(alignment);
      const std::uintptr_t low_bits = std::has_single_bit(bytes) ? bytes - 1 : ~std::uintptr_t{0};
      rules_.push_back({tensor.operand, tensor.in_array ? 0 : tensor.bytes(), low_bits});
    }
    if (is_output) outputs_ = rules_.size();
  }
}

bool PointerRules::are_usual(const Operands& operands, Addresses& at) const {
  if (operands.index() != static_cast<std::size_t>(op_)) return false;
  at.bits = 0;
  for (std::size_t i = 0; i < rules_.size(); ++i) {
    const Rule& rule = rules_[i];
    const auto begin = reinterpret_cast<std::uintptr_t>(pointer_(operands, rule.operand));
    if (begin == 0 || (begin & rule.low_bits) != 0) return false;
    at.of[i] = begin;
    at.bits |= begin;
    for (std::size_t o = 0; o < std::min(i, outputs_); ++o) {
      if (begin < at.of[o] + rules_[o].bytes && at.of[o] < begin + rule.bytes) return false;
    }
  }
  return true;
}

namespace {

// Made-up addresses differ by more than any arguments of kernels do. When they move, each moves
// another odd multiple of kAlikeBytes. The distance between two addresses moves an even multiple,
// so that it is not taken for an address.
constexpr std::array<std::uintptr_t, kMaxTensors> kDistances = [] {
  std::array<std::uintptr_t, kMaxTensors> distances{kAlikeBytes};
  for (std::size_t i = 1; i < distances.size(); ++i) distances[i] = 3 * distances[i - 1];
  return distances;
}();
std::uintptr_t made_up(std::size_t rule, bool moved) {
  return (std::uintptr_t{rule + 1} << 40U) + (moved ? kDistances[rule] : 0);
}

// An operand without a rule is null: no kernel accesses it.
Launch bind_made_up(const ReadyKernel& kernel, const Problem& problem, const PointerRules& rules,
                    bool moved) {
  Operands operands = no_operands(problem);
  for (std::size_t i = 0; i < rules.size(); ++i) {
    kernel.family->set_pointer(operands, rules.operand(i),
                               reinterpret_cast<void*>(made_up(i, moved)));
  }
  return launch_of(kernel, problem, operands);
}

// The words that may hold addresses are those of the arguments, then the tensor maps, then the
// pointers.
std::size_t count_words(const Launch& launch) {
  return launch.arguments.size() / sizeof(void*) + launch.tensor_maps.size() +
         launch.pointers.size();
}
void* word_at(Launch& launch, std::size_t word) {
  const std::size_t arguments = launch.arguments.size() / sizeof(void*);
  if (word < arguments) return launch.arguments.data() + word * sizeof(void*);
  const std::size_t map = word - arguments;
  if (map < launch.tensor_maps.size()) return &launch.tensor_maps[map].base;
  return &launch.pointers[map - launch.tensor_maps.size()];
}
std::uintptr_t value_at(Launch& launch, std::size_t word) {
  std::uintptr_t value = 0;
  std::memcpy(&value, word_at(launch, word), sizeof(value));
  return value;
}

}  // namespace

LaunchPlan::LaunchPlan(const Launch& launch)
    : arguments_(launch.arguments.data(), launch.arguments.data() + launch.arguments.size()),
      second_(launch.arguments.second()),
      steps_(launch.steps.begin(), launch.steps.end()),
      tensor_maps_(launch.tensor_maps.begin(), launch.tensor_maps.end()),
      workspace_places_(launch.workspace_places.begin(), launch.workspace_places.end()),
      pointers_(launch.pointers.begin(), launch.pointers.end()),
      workspace_(launch.workspace),
      blocks_offset_(launch.blocks_offset),
      parts_(launch.parts),
      max_threads_(launch.max_threads) {}

std::optional<LaunchPlan> LaunchPlan::of(const ReadyKernel& kernel, const Problem& problem,
                                         const PointerRules& rules) {
  try {
    Launch first = bind_made_up(kernel, problem, rules, false);
    Launch moved = bind_made_up(kernel, problem, rules, true);
    const std::size_t words = count_words(first);
    if (count_words(moved) != words) return std::nullopt;
    LaunchPlan plan(first);
    for (std::size_t i = 0; i < words; ++i) {
      const std::uintptr_t value = value_at(first, i);
      const std::uintptr_t distance = value_at(moved, i) - value;
      if (distance == 0) continue;
      const auto* const found = std::find(kDistances.begin(), kDistances.end(), distance);
      const auto rule = static_cast<std::size_t>(found - kDistances.begin());
      if (rule >= rules.size()) return std::nullopt;
      plan.places_.push_back({i, rule, value - made_up(rule, false)});
    }
    Addresses at;
    for (std::size_t i = 0; i < rules.size(); ++i) at.of[i] = made_up(i, true);
    if (plan.launch_at(at) != moved) return std::nullopt;
    return plan;
  } catch (const Error&) {
    return std::nullopt;  // each call is refused by the same sentence
  }
}

bool LaunchPlan::serves(const Addresses& at) const { return at.bits % kAlikeBytes == 0; }

Launch LaunchPlan::launch_at(const Addresses& at) const {
  Launch launch;
  launch.arguments.assign(arguments_, second_);
  for (const Step& step : steps_) launch.steps.push(step);
  for (const TensorMap& map : tensor_maps_) launch.tensor_maps.push(map);
  for (const WorkspacePlace& place : workspace_places_) launch.workspace_places.push(place);
  for (const void* pointer : pointers_) launch.pointers.push(pointer);
  launch.workspace = workspace_;
  launch.blocks_offset = blocks_offset_;
  launch.parts = parts_;
  launch.max_threads = max_threads_;
  for (const Place& place : places_) {
    const std::uintptr_t address = at.of[place.rule] + place.behind;
    std::memcpy(word_at(launch, place.word), &address, sizeof(address));
  }
  return launch;
}

ValueCheck value_check_of(const ReadyKernel& kernel, const Problem& problem) {
  const Extras* const extras = kernel.family->extras;
  const bool asks = extras != nullptr && extras->value_check != nullptr;
  return asks && kernel.target->backend == "cpu" ? extras->value_check(problem) : nullptr;
}

Launch checked_launch(const ReadyKernel& kernel, const Problem& problem, const Operands& operands,
                      const CallerMemory& workspace) {
  const CallPlan& plan = *kernel.plan;
  Addresses at;
  const bool usual = plan.pointers.are_usual(operands, at);
  if (!usual || workspace.bytes > 0 || plan.value_check != nullptr) {
    validate_operands(*kernel.family, problem, operands, workspace);
    if (plan.value_check != nullptr) plan.value_check(problem, operands);
  }
  if (usual && plan.launch && plan.launch->serves(at)) return plan.launch->launch_at(at);
  return launch_of(kernel, problem, operands);
}

}  // namespace tessera
