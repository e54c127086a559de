// Which GEMM kernels a declaration stands for, and how they come into a registry. One whose
// pipeline the target has stands for the target's kernels that it narrows to. Any other one says
// what to compute: it is one kernel, for which Tessera chooses at each problem.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "ck_tile/dispatcher/kernel_decl.hpp"
#include "ck_tile/dispatcher/register_declared.hpp"
#include "ck_tile/dispatcher/registry.hpp"

namespace ck_tile::dispatcher {

namespace detail {

// The usual type of a product; kernels of one named type write it.
inline std::string output_word(const decl::Signature& s) {
  if (s.dtype_c_ != s.dtype_a_) return s.dtype_c_;
  if (s.dtype_a_ == "int8") return "int32";
  return s.dtype_a_ == "fp8" || s.dtype_a_ == "bf8" ? "fp16" : s.dtype_a_;
}

// The fields, with the usual sizes where there are wildcards.
inline KernelKey key_of(const KernelDecl& decl) {
  const decl::Signature& s = decl.signature;
  decl::Algorithm a = decl.algorithm;
  a.auto_fill();
  KernelKey key;
  key.signature.dtype_a = string_to_dtype(s.dtype_a_);
  key.signature.dtype_b = string_to_dtype(s.dtype_b_);
  key.signature.dtype_c = string_to_dtype(output_word(s));
  key.signature.dtype_acc = s.dtype_a_ == "int8" ? DataType::INT32 : string_to_dtype(s.dtype_acc_);
  key.signature.layout_a = string_to_layout(s.layout_a_);
  key.signature.layout_b = string_to_layout(s.layout_b_);
  key.signature.layout_c = string_to_layout(s.layout_c_);
  key.signature.elementwise_op = s.elementwise_op_;
  key.signature.num_d_tensors = static_cast<std::uint8_t>(s.num_d_tensors_);
  const auto set = [](auto& shape, int m, int n, int k) {
    using Size = std::decay_t<decltype(shape.m)>;
    shape.m = static_cast<Size>(m), shape.n = static_cast<Size>(n), shape.k = static_cast<Size>(k);
  };
  set(key.algorithm.tile_shape, or_usual(a.tile_m_, 128), or_usual(a.tile_n_, 128),
      or_usual(a.tile_k_, 32));
  set(key.algorithm.wave_shape, a.wave_m_, a.wave_n_, a.wave_k_);
  set(key.algorithm.warp_tile_shape, a.warp_m_, a.warp_n_, a.warp_k_);
  key.algorithm.pipeline = string_to_pipeline(or_usual(a.pipeline_, "compv4"));
  key.algorithm.scheduler = string_to_scheduler(or_usual(a.scheduler_, "intrawave"));
  key.algorithm.epilogue = string_to_epilogue(a.epilogue_);
  key.algorithm.block_size = static_cast<std::uint16_t>(a.block_size_);
  key.algorithm.double_buffer = key.algorithm.pipeline == Pipeline::CompV4;
  key.algorithm.preshuffle = a.preshuffle_;
  key.algorithm.pad_m = a.pad_m_ != 0, key.algorithm.pad_n = a.pad_n_ != 0;
  key.algorithm.pad_k = a.pad_k_ != 0;
  key.gfx_arch = decl.arch;
  return key;
}

// What the declaration itself names, wildcards and all.
inline backends::GemmPattern pattern_of(const KernelDecl& decl, const KernelKey& key) {
  const decl::Algorithm& a = decl.algorithm;
  backends::GemmPattern made = backends::pattern_of(key);
  const bool is_all = a.tile_m_ < 0;  // DECL_KERNEL_ALL
  made.pipeline = is_all ? "*" : a.pipeline_;
  made.scheduler = is_all || a.scheduler_ == "*" ? "auto" : a.scheduler_;
  made.tile = shape_pattern(a.tile_m_, a.tile_n_, a.tile_k_);
  made.wave = is_all ? "*" : shape_pattern(a.wave_m_, a.wave_n_, a.wave_k_);
  const bool any_warp = is_all || a.warp_m_ < 0;
  made.warp = any_warp ? "*" : shape_pattern(a.warp_m_, a.warp_n_, a.warp_k_);
  return made;
}

}  // namespace detail

namespace decl {

// Found by the type of its argument, so that every registry has it.
inline std::vector<KernelInstancePtr> kernels_of(const KernelDecl& wanted) {
  const KernelKey key = dispatcher::detail::key_of(wanted);
  const backends::MachinePtr machine = backends::machine_that_runs(wanted.arch);
  std::vector<KernelInstancePtr> all;
  for (const std::string& name :
       backends::matching_kernels(*machine, dispatcher::detail::pattern_of(wanted, key))) {
    all.push_back(backends::named_gemm_kernel(name));
  }
  if (!all.empty()) return all;
  dispatcher::detail::tell("pipeline " + wanted.algorithm.pipeline_ +
                           " with such a tile is none of " + machine->name() +
                           "'s; its own kernels for what is declared are taken");
  return {
      std::make_shared<backends::TesseraGemm>(key, "gemm_" + key.encode_identifier(), machine, "")};
}

}  // namespace decl

// These register declarations for a target, whatever target they name, and return how many kernels
// are new.
inline std::size_t register_set_for(const KernelSet& set, Registry& registry,
                                    const std::string& arch) {
  KernelSet for_arch;
  for (KernelDecl one : set.declarations()) {
    if (!arch.empty()) one.arch = arch;
    for_arch.add(one);
  }
  return registry.register_set(for_arch);
}
inline std::size_t register_declared(Registry& registry, const std::string& arch = {}) {
  std::size_t count = 0;
  for (const std::string& name : KernelSetRegistry::instance().names()) {
    count += register_set_for(KernelSetRegistry::instance().get(name), registry, arch);
  }
  KernelSet alone;
  for (const KernelDecl& one : KernelDeclRegistry::instance().all()) alone.add(one);
  return count + register_set_for(alone, registry, arch);
}
inline std::size_t register_declared_set(const std::string& set, Registry& registry,
                                         const std::string& arch = {}) {
  if (!KernelSetRegistry::instance().has(set)) {
    throw DispatcherError("there is no kernel set '" + set + "'");
  }
  return register_set_for(KernelSetRegistry::instance().get(set), registry, arch);
}

namespace generated {
inline std::vector<std::string> get_kernel_set_names() {
  return KernelSetRegistry::instance().names();
}
}  // namespace generated

}  // namespace ck_tile::dispatcher
