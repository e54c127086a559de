#include <fmt/format.h>

#include <array>

#include "tessera/base/error.h"
#include "tessera/base/text.h"
#include "tessera/families/conv/conv.h"
#include "tessera/families/family.h"
#include "tessera/families/fmha/fmha.h"
#include "tessera/families/gemm/gemm.h"
#include "tessera/families/norm/norm.h"
#include "tessera/families/route/route.h"
#include "tessera/families/tile/defaults.h"
#include "tessera/families/tile/sets.h"

namespace tessera {

const Family& family_of(Op op) {
  for (const Family* family : all_families()) {
    if (family->op == op) return *family;
  }
  throw Error(ErrorCode::internal, fmt::format("{} has no family", to_string(op)));
}

const Family& family_of(const Problem& problem) { return family_of(op_of(problem)); }
const Family& family_of(const KernelSpec& spec) { return family_of(op_of(spec)); }

std::span<const Family* const> all_families() {
  static constexpr std::array<const Family*, 5> kAll = {
      &gemm::kFamily, &norm::kFamily, &conv::kFamily, &fmha::kFamily, &route::kFamily};
  return kAll;
}

const Family* find_family(std::string_view text) {
  const std::string_view word = text.substr(0, text.find_first_of("_ "));
  for (const Family* family : all_families()) {
    if (to_string(family->op) == word) return family;
  }
  return nullptr;
}

FoundReceipt find_receipt(std::string_view name) {
  std::vector<std::string> known;
  for (const Family* family : all_families()) {
    for (const Receipt& receipt : family->receipts()) {
      if (receipt.name == name) return {family, &receipt};
      if (!receipt.number.empty() && receipt.number == name) return {family, &receipt};
      known.emplace_back(receipt.name);
    }
  }
  throw Error(ErrorCode::not_found, fmt::format("unknown receipt '{}'{} (known: {})", name,
                                                did_you_mean(name, known), join(known, ", ")));
}

// ---- the same for every family ----

std::vector<KernelSpec> Family::preselected(std::string_view set, const Target& target) const {
  return tile::preselected(op, set, target, is_legal);
}
std::vector<std::string> Family::preselected_names() const { return tile::preselected_names(op); }
bool Family::is_essential(const KernelSpec& spec, const Target& target) const {
  return tile::is_essential(op, spec, target);
}

std::span<const Receipt> Family::receipts() const {
  if (extras == nullptr || extras->receipts == nullptr) return {};
  return extras->receipts();
}

std::vector<Problem> Family::receipt_problems(const Receipt& receipt) const {
  if (extras == nullptr || extras->receipt_problems == nullptr) return {};
  return extras->receipt_problems(receipt);
}

std::optional<TunedLength> Family::tuned_length(const KernelSpec& spec, const Problem& problem,
                                                const Target& target) const {
  if (extras == nullptr || extras->tuned_length == nullptr) return {};
  return extras->tuned_length(spec, problem, target);
}

SettledProblem Family::from_settings(std::span<const Setting> settings) const {
  if (extras != nullptr && extras->from_settings != nullptr) return extras->from_settings(settings);
  throw Error(ErrorCode::unsupported,
              fmt::format("{}: there is no builder; set the problem's fields", to_string(op)));
}

std::string Family::source_name(const KernelSpec& spec) const {
  if (extras == nullptr || extras->source_name == nullptr) return name_of(spec);
  return extras->source_name(spec);
}

std::span<const InstanceSource> Family::instances() const {
  if (extras == nullptr || extras->instances == nullptr) return {};
  return extras->instances();
}

std::string Family::stage(const KernelSpec& spec, const Target& target,
                          std::string_view entry) const {
  if (extras != nullptr && extras->stage != nullptr) return extras->stage(spec, target, entry);
  return tile::stage_of(static_cast<const char*>(verb), entry);
}

std::optional<Prepack> Family::prepack(const KernelSpec& spec, const Problem& problem,
                                       const Target& target, const Operands& operands,
                                       void* packed) const {
  if (extras == nullptr || extras->prepack == nullptr) return {};
  return extras->prepack(spec, problem, target, operands, packed);
}

std::size_t Family::batch_bytes(const Problem& problem, const Operands& operands,
                                const Tensor& tensor, std::int64_t batch) const {
  if (extras == nullptr || extras->batch_bytes == nullptr) return tensor.batch_bytes();
  return extras->batch_bytes(problem, operands, tensor, batch);
}

Problem Family::unpacked(const Problem& problem) const {
  return extras == nullptr || extras->unpacked == nullptr ? problem : extras->unpacked(problem);
}

Problem Family::twin(const Problem& problem, const Target& target) const {
  return extras == nullptr || extras->twin == nullptr ? problem : extras->twin(problem, target);
}

hipdnn::Kernel Family::hipdnn_kernel(const KernelSpec& spec, const Target& target) const {
  hipdnn::Kernel kernel;
  if (extras == nullptr || extras->hipdnn == nullptr) {
    kernel.refusal = fmt::format("no pattern of a graph is written down for {}", to_string(op));
  } else {
    kernel = extras->hipdnn->kernel(spec, target);
  }
  if (!kernel.refusal.empty()) {
    kernel.refusal =
        fmt::format("{}: hipDNN cannot be told of it: {}", name_of(spec), kernel.refusal);
  }
  return kernel;
}

}  // namespace tessera
