#include <array>

#include "tessera/base/error.h"
#include "tessera/families/family.h"
#include "tessera/families/gemm/gemm.h"

namespace tessera {
namespace {

[[noreturn]] void refuse(Op op, std::string_view what) {
  throw Error(ErrorCode::unsupported, std::string(to_string(op)) +
                                          ": this build has no kernels for " + std::string(what) +
                                          " yet; gemm is the only family");
}

}  // namespace

const Family& family_of(Op op) {
  switch (op) {
    case Op::gemm:
      return gemm::family();
    case Op::conv:
      refuse(op, "convolution");
    case Op::fmha:
      refuse(op, "attention");
  }
  to_string(op);  // refuses a number that no operation has
  throw Error(ErrorCode::internal, "an operation without a family");
}

const Family& family_of(const Problem& problem) { return family_of(op_of(problem)); }
const Family& family_of(const KernelSpec& spec) { return family_of(op_of(spec)); }

std::span<const Family* const> all_families() {
  static const std::array<const Family*, 1> kAll = {&gemm::family()};
  return kAll;
}

}  // namespace tessera
