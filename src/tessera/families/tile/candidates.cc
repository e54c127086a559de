#include "tessera/families/tile/candidates.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "tessera/base/error.h"
#include "tessera/base/per_thread.h"
#include "tessera/families/tile/algorithm_space.h"
#include "tessera/spec/fields_internal.h"

namespace tessera::tile {
namespace {

std::string text_of(bool value) { return value ? "1" : "0"; }
std::string text_of(std::int64_t value) { return std::to_string(value); }
template <class Value>
std::string text_of(const Value& value) {
  return std::string(to_string(value));
}

template <class S>
std::string first_difference(const S& kernel, const S& problem) {
  std::string reason;
  const auto look = [&](const auto& row) {
    if (!reason.empty() || kernel.*row.member == problem.*row.member) return;
    reason = fmt::format("the kernel has {0}={1}, the problem {0}={2}", row.key,
                         text_of(kernel.*row.member), text_of(problem.*row.member));
  };
  Fields<S>::kAll([&](const auto&... rows) { (look(rows), ...); });
  return reason;
}

// A list that was asked for, and the legal specs in it.
struct KnownList {
  Target target;
  Signature signature;
  std::vector<Algorithm> algorithms;
  std::vector<KernelSpec> legal;
};

// A list of Hopper's kernels takes 0.4 MB.
constexpr std::size_t kMostLists = 4;

struct KnownLists {
  std::vector<KnownList> all;
  std::size_t oldest = 0;
};

void remember(KnownLists& known, KnownList list) {
  if (known.all.size() < kMostLists) {
    known.all.push_back(std::move(list));
    return;
  }
  known.all[known.oldest] = std::move(list);
  known.oldest = (known.oldest + 1) % kMostLists;
}

}  // namespace

std::string no_backend(std::string_view what, const KernelSpec& spec, const Target& target) {
  return fmt::format("{}: this build emits {} for cpu, cuda and hip targets, {} is a {} target",
                     name_of(spec), what, target.name, target.backend);
}

std::string foreign_reason(Op op, const KernelSpec& spec, const Target& target) {
  if (op_of(spec) != op) {
    return fmt::format("a {0} kernel needs a {0} signature, got {1}", to_string(op),
                       to_string(op_of(spec)));
  }
  if (spec.target == target.name) return {};
  return fmt::format("the kernel is for {}, the target is {}", spec.target, target.name);
}

bool has_pipeline(Op op, const Target& target, Pipeline pipeline) {
  const auto space = target.spaces.find(op);
  if (space == target.spaces.end()) return false;
  const auto& all = space->second.pipelines;
  return std::find(all.begin(), all.end(), pipeline) != all.end();
}

std::string signature_mismatch(const KernelSpec& spec, const Problem& problem) {
  if (op_of(spec) != op_of(problem)) {
    return fmt::format("the kernel is for {}, the problem for {}", to_string(op_of(spec)),
                       to_string(op_of(problem)));
  }
  return signature_mismatch(spec.signature, signature_of(problem));
}

std::string signature_mismatch(const Signature& kernel, const Signature& problem) {
  return std::visit([&]<class S>(const S& s) { return first_difference(s, std::get<S>(problem)); },
                    kernel);
}

std::vector<KernelSpec> product(const Family& family, const Target& target,
                                std::span<const Wish> wishes, std::span<const Signature> signatures,
                                std::span<const Algorithm> algorithms, std::size_t most) {
  const KernelFilter wanted(family, wishes);
  std::vector<KernelSpec> specs;
  for (const Signature& signature : signatures) {
    if (!wanted.accepts(signature)) continue;
    for (const Algorithm& a : algorithms) {
      if (specs.size() == most) return specs;
      if (!wanted.accepts(a)) continue;
      KernelSpec spec = {signature, a, target.name};
      if (wanted.accepts_name(spec)) specs.push_back(std::move(spec));
    }
  }
  return specs;
}

std::vector<KernelSpec> specs_for(const Problem& problem, const Target& target,
                                  std::span<const Algorithm> algorithms, ListOrder order) {
  const Signature signature = signature_of(problem);
  std::vector<KernelSpec> specs;
  specs.reserve(algorithms.size());
  for (const Algorithm& a : algorithms) specs.push_back({signature, a, target.name});
  if (order == ListOrder::any) sort_by_name(specs);
  return specs;
}

std::vector<KernelSpec> legal_specs_for(const Family& family, const Problem& problem,
                                        const Target& target, std::vector<Algorithm> algorithms,
                                        ListOrder order) {
  const Signature signature = signature_of(problem);
  KnownLists& known = per_thread<KnownLists>();
  for (const KnownList& list : known.all) {
    if (list.signature == signature && list.algorithms == algorithms && list.target == target) {
      return list.legal;
    }
  }
  std::vector<KernelSpec> legal;
  for (const Algorithm& a : algorithms) {
    KernelSpec spec = {signature, a, target.name};
    if (family.is_legal(spec, target)) legal.push_back(std::move(spec));
  }
  if (order == ListOrder::any) sort_by_name(legal);
  remember(known, {target, signature, std::move(algorithms), legal});
  return legal;
}

std::vector<KernelSpec> legal_by_name(const Family& family, const Target& target,
                                      std::vector<KernelSpec> specs) {
  std::erase_if(specs, [&](const KernelSpec& spec) { return !family.is_legal(spec, target); });
  sort_by_name(specs);
  return specs;
}

KernelSpec legal_or_refused(const Family& family, KernelSpec spec, const Target& target) {
  const Verdict verdict = family.is_legal(spec, target);
  if (verdict) return spec;
  throw Error(ErrorCode::unsupported, fmt::format("{}: {}", to_string(family.op), verdict.reason));
}

}  // namespace tessera::tile
