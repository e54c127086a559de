// What tests ask of any family.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "tessera/base/error.h"
#include "tessera/families/family.h"
#include "tessera/targets/targets.h"

namespace tessera {

// The legal candidates that serve the problem.
inline std::vector<KernelSpec> serving(const Problem& problem, const Target& target) {
  const Family& family = family_of(problem);
  std::vector<KernelSpec> specs;
  for (KernelSpec& spec : family.candidates(problem, target)) {
    if (!family.is_legal(spec, target) || !family.supports(spec, problem, target)) continue;
    specs.push_back(std::move(spec));
  }
  return specs;
}

// What the Error says that `run` throws; nothing where it throws none.
template <class Run>
std::string error_of(const Run& run, ErrorCode code) {
  try {
    run();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code);
    return error.what();
  }
  return "";
}

inline std::string refusal(const Problem& problem) {
  return error_of([&] { family_of(problem).validate(problem); }, ErrorCode::invalid_argument);
}

// A kernel of another operation, and `name`, a kernel of avx2, on another target.
inline void expect_strangers_refused(const Family& family, const std::string& name) {
  const std::string op(to_string(Op(family.op)));
  const KernelSpec gemm = parse_name("gemm_fp32_rrr_packb_240x480x256_1x1x1_12x32x1_avx512");
  const Target target = load_target("avx512");
  EXPECT_EQ(family.is_legal(gemm, target).reason,
            "a " + op + " kernel needs a " + op + " signature, got gemm");
  EXPECT_EQ(family.is_legal(parse_name(name), target).reason,
            "the kernel is for avx2, the target is avx512");
}

}  // namespace tessera
