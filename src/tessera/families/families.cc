#include <array>

#include "tessera/base/error.h"
#include "tessera/families/family.h"
#include "tessera/families/gemm/gemm.h"

namespace tessera {

const Family& family_of(Op op) {
  for (const Family* family : all_families()) {
    if (family->op == op) return *family;
  }
  refuse_operation(op);
}

const Family& family_of(const Problem& problem) { return family_of(op_of(problem)); }
const Family& family_of(const KernelSpec& spec) { return family_of(op_of(spec)); }

std::span<const Family* const> all_families() {
  static const std::array<const Family*, 1> kAll = {&gemm::family()};
  return kAll;
}

}  // namespace tessera
