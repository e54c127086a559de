#include "tessera/families/instances.h"

#include <fmt/format.h>

#include <algorithm>

#include "tessera/base/error.h"
#include "tessera/base/text.h"
#include "tessera/families/family.h"

namespace tessera {
namespace {

const InstanceSource* find_in(const Family& family, std::string_view name) {
  const std::span<const InstanceSource> all = family.instances();
  const auto found = std::find_if(
      all.begin(), all.end(), [&](const InstanceSource& source) { return source.name == name; });
  return found == all.end() ? nullptr : &*found;
}

std::vector<std::string> families_with(std::string_view name) {
  std::vector<std::string> words;
  for (const Family* family : all_families()) {
    if (find_in(*family, name) != nullptr) words.emplace_back(to_string(family->op));
  }
  return words;
}

void sort_names(std::vector<KernelSpec>& specs) {
  std::sort(specs.begin(), specs.end(),
            [](const KernelSpec& a, const KernelSpec& b) { return name_of(a) < name_of(b); });
}

}  // namespace

std::vector<std::string_view> instance_sources() {
  std::vector<std::string_view> names = {kNativeSource};
  for (const Family* family : all_families()) {
    for (const InstanceSource& source : family->instances()) {
      if (std::find(names.begin(), names.end(), source.name) == names.end()) {
        names.push_back(source.name);
      }
    }
  }
  return names;
}

const InstanceSource* find_instance_source(const Family& family, std::string_view name) {
  if (name == kNativeSource) return nullptr;
  if (const InstanceSource* source = find_in(family, name)) return source;
  const std::vector<std::string> with = families_with(name);
  if (!with.empty()) {
    throw Error(ErrorCode::unsupported, fmt::format("{}: source {} has instances of {} only",
                                                    to_string(family.op), name, join(with, ", ")));
  }
  const std::vector<std::string_view> views = instance_sources();
  const std::vector<std::string> known(views.begin(), views.end());
  throw Error(ErrorCode::not_found, fmt::format("unknown source '{}'{} (known: {})", name,
                                                did_you_mean(name, known), join(known, ", ")));
}

SourceOfName find_source_of(std::string_view name) {
  for (const Family* family : all_families()) {
    for (const InstanceSource& source : family->instances()) {
      if (source.word.empty() || !name.starts_with(source.word)) continue;
      const std::string_view rest = name.substr(source.word.size());
      if (rest.empty() || rest.front() == '_') return {family, &source};
    }
  }
  return {};
}

std::vector<KernelSpec> enumerate_instances(const InstanceSource& source, const Family& family,
                                            const Target& target, std::span<const Wish> wishes) {
  const KernelFilter wanted(family, wishes);
  std::vector<KernelSpec> specs;
  for (const Signature& signature : source.signatures(target)) {
    if (!wanted.accepts(signature)) continue;
    for (const Algorithm& algorithm : source.algorithms(target, signature)) {
      if (!wanted.accepts(algorithm)) continue;
      KernelSpec spec = {signature, algorithm, target.name};
      if (!wanted.accepts_name(spec) || !source.is_legal(spec, target)) continue;
      specs.push_back(std::move(spec));
    }
  }
  sort_names(specs);
  return specs;
}

std::vector<KernelSpec> instances_for(const InstanceSource& source, const Problem& problem,
                                      const Target& target) {
  const Signature signature = signature_of(problem);
  std::vector<KernelSpec> specs;
  for (const Algorithm& algorithm : source.algorithms(target, signature)) {
    KernelSpec spec = {signature, algorithm, target.name};
    if (!source.is_legal(spec, target) || !source.supports(spec, problem)) continue;
    specs.push_back(std::move(spec));
  }
  sort_names(specs);
  return specs;
}

Instance emit_instance(const InstanceSource& source, const KernelSpec& spec, const Target& target) {
  if (const Verdict verdict = source.is_legal(spec, target); !verdict) {
    throw Error(ErrorCode::illegal_spec, fmt::format("{}: {}", name_of(spec), verdict.reason));
  }
  return source.emit(spec, target);
}

}  // namespace tessera
