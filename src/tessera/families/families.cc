#include <fmt/format.h>

#include <array>

#include "tessera/base/error.h"
#include "tessera/families/conv/conv.h"
#include "tessera/families/family.h"
#include "tessera/families/fmha/fmha.h"
#include "tessera/families/gemm/gemm.h"
#include "tessera/families/norm/norm.h"

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
  static const std::array<const Family*, 4> kAll = {&gemm::family(), &norm::family(),
                                                    &conv::family(), &fmha::family()};
  return kAll;
}

const Family* find_family(std::string_view text) {
  const std::string_view word = text.substr(0, text.find_first_of("_ "));
  for (const Family* family : all_families()) {
    if (to_string(family->op) == word) return family;
  }
  return nullptr;
}

Source emit_legal(const KernelSpec& spec, const Target& target) {
  const Family& family = family_of(spec);
  if (const Verdict verdict = family.is_legal(spec, target); !verdict) {
    throw Error(ErrorCode::illegal_spec, fmt::format("{}: {}", name_of(spec), verdict.reason));
  }
  return family.emit(spec, target);
}

}  // namespace tessera
