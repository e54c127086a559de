// Declared sets of GEMM kernels, with wildcards:
//
//   DECL_KERNEL_SET(mine,
//     .add(Signature().dtype("fp16").layout("rcr"),
//          Algorithm().tile(128, 128, 32).wave(2, 2, 1).warp(32, 32, 16).pipeline("compv4"))
//     .add(Signature().dtype("fp16").layout("rcr"), Algorithm().tile(64, 64, 64).wave(ANY_INT)));
//
// A set's kernels are those that the target has of its declarations. Where a declaration's pipeline
// is not one of the target's, the target's shipped kernels for the types and layout are taken,
// which stderr says once.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tessera_ck/declared.hpp"
#include "tessera_ck/kernel_key.hpp"

namespace tessera_ck::decl {

struct Signature {
  std::string dtype_a_ = "fp16", dtype_b_ = "fp16", dtype_c_ = "fp16", dtype_acc_ = "fp32";
  std::string layout_ = "rcr";
  std::string elementwise_ = "PassThrough";
  int num_d_ = 0;

  Signature& dtype(const std::string& all) {
    dtype_a_ = dtype_b_ = all;
    const tessera::DType type = tessera::parse_dtype(all);
    dtype_c_ = tessera::to_string(tessera::default_output(type));
    dtype_acc_ = tessera::to_string(tessera::default_accumulator(type));
    return *this;
  }
  Signature& dtype(const std::string& a, const std::string& b, const std::string& c,
                   const std::string& acc = "fp32") {
    dtype_a_ = a, dtype_b_ = b, dtype_c_ = c, dtype_acc_ = acc;
    return *this;
  }
  Signature& layout(const std::string& letters) {
    layout_ = letters.substr(0, 3);
    return *this;
  }
  Signature& layout(const std::string& a, const std::string& b, const std::string& c) {
    layout_ = a.substr(0, 1) + b.substr(0, 1) + c.substr(0, 1);
    return *this;
  }
  Signature& elementwise(const std::string& operation, int num_d = 0) {
    elementwise_ = operation, num_d_ = num_d;
    return *this;
  }
};

struct Algorithm : BaseAlgorithm<Algorithm> {
  bool preshuffle_ = false;

  Algorithm() : BaseAlgorithm({128, 128, 32}, "compv4") {}
  Algorithm& pad(bool m, bool n, bool k) {
    return hint("pad", !m || !n || !k, tessera_ck::detail::kAnySize);
  }
  Algorithm& preshuffle(bool value) { return preshuffle_ = value, *this; }
};

using Declaration = BaseDeclaration<Signature, Algorithm>;

class KernelSet : public BaseKernelSet<KernelSet, Signature, Algorithm> {
 public:
  using BaseKernelSet::add;
  KernelSet& add(const std::string& dtype, const std::string& layout, int tile_m, int tile_n,
                 int tile_k, const std::string& arch = {}) {
    return add(Signature().dtype(dtype).layout(layout), Algorithm().tile(tile_m, tile_n, tile_k),
               arch);
  }
  // Every kernel of a type and layout on this machine.
  KernelSet& add_all(const std::string& dtype, const std::string& layout) {
    Algorithm any;
    any.pipeline(ANY).scheduler("auto").tile(ANY_INT).wave(ANY_INT).warp(ANY_INT);
    return add(Signature().dtype(dtype).layout(layout), any);
  }
  KernelSet& merge(const KernelSet& other) {
    declarations_.insert(declarations_.end(), other.declarations_.begin(),
                         other.declarations_.end());
    return *this;
  }
};

namespace detail {

inline std::string chain_of(const Signature& signature) {
  return tessera_ck::detail::epilogue_text(signature.elementwise_, signature.num_d_);
}

// The target's own kernels for a declaration's types and layout: the shipped ones, or the best by
// estimate for three sizes.
inline std::vector<tessera::KernelSpec> own_kernels(const Machine& machine,
                                                    const Declaration& wanted) {
  const Signature& s = wanted.signature;
  const bool is_plain = chain_of(s) == "none" && !wanted.algorithm.preshuffle_;
  if (is_plain && s.dtype_a_ == s.dtype_b_) {
    const auto found = shipped(machine, s.dtype_a_ + "_" + s.layout_ + "_essential");
    if (!found.empty()) return found;
  }
  tessera::KernelSetBuilder builder("declared", machine.dispatcher->target());
  for (const std::int64_t size : {64, 1024, 4096}) {
    tessera::GemmProblem problem = tessera::gemm_problem(
        tessera::parse_dtype(s.dtype_a_), tessera::parse_gemm_layout(s.layout_), size, size, size);
    problem.b = tessera::parse_dtype(s.dtype_b_);
    problem.out = problem.d = tessera::parse_dtype(s.dtype_c_);
    problem.epilogue = tessera::parse_epilogue(chain_of(s));
    problem.preshuffled_b = wanted.algorithm.preshuffle_;
    builder.for_problem(problem);
  }
  return builder.build().specs;
}

inline std::vector<tessera::KernelSpec> matching(const Machine& machine,
                                                 const Declaration& wanted) {
  const Signature& s = wanted.signature;
  const Algorithm& a = wanted.algorithm;
  tessera::KernelSetBuilder builder("declared", machine.dispatcher->target());
  builder.gemm().where("a", s.dtype_a_).where("b", s.dtype_b_).where("out", s.dtype_c_);
  builder.layout(s.layout_).epilogue(chain_of(s));
  builder.where("preshuffle", a.preshuffle_ ? "true" : "false");
  narrow_how(a, machine.dispatcher->target(), true, builder);
  return builder.build().specs;
}

}  // namespace detail

// The kernels that a declaration stands for. Throws DispatcherError with the rule, or where the
// target has none such.
inline std::vector<tessera::KernelSpec> kernels_of(const Declaration& wanted) {
  const std::shared_ptr<Machine> machine = machine_for(wanted.arch);
  return in_sentences([&] {
    const tessera::DType sums = tessera::parse_dtype(wanted.signature.dtype_acc_);
    tessera_ck::detail::changes_nothing(
        "dtype_acc",
        sums != tessera::default_accumulator(tessera::parse_dtype(wanted.signature.dtype_a_)),
        tessera_ck::detail::kSums);
    if (detail::has_pipeline(*machine, tessera::Op::gemm, wanted.algorithm.pipeline_)) {
      return detail::matching(*machine, wanted);
    }
    detail::tell_other_kernels(*machine, wanted.algorithm.pipeline_);
    return detail::own_kernels(*machine, wanted);
  });
}

using KernelSetRegistry = NamedSets<KernelSet>;

}  // namespace tessera_ck::decl

#define DECL_KERNEL_SET(name, ...) \
  CK_TILE_DECLARE_SET(::tessera_ck::decl::KernelSet, #name, __VA_ARGS__)
// One kernel, and all of a type and layout on this machine, in sets named after the line and both.
#define DECL_KERNEL(...)                                                                 \
  CK_TILE_DECLARE_SET(::tessera_ck::decl::KernelSet, "line_" + std::to_string(__LINE__), \
                      .add(__VA_ARGS__))
#define DECL_KERNEL_ALL(dtype, layout)                                          \
  CK_TILE_DECLARE_SET(::tessera_ck::decl::KernelSet, #dtype "_" #layout "_all", \
                      .add_all(#dtype, #layout))
// The set of a name, and an empty one to add to.
#define KERNEL_SET(name) ::tessera_ck::decl::KernelSetRegistry::instance().get(#name)
#define BEGIN_KERNEL_SET() ::tessera_ck::decl::KernelSet()
