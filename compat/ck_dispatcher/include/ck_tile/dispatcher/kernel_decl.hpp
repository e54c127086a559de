// Declared sets of GEMM kernels, with wildcards:
//
//   DECL_KERNEL_SET(mine,
//     .add(Signature().dtype("fp16").layout("rcr"),
//          Algorithm().tile(128, 128, 32).wave(2, 2, 1).warp(32, 32, 16).pipeline("compv4")));
//
// Nothing is compiled here: declared_kernels.hpp says which kernels a declaration stands for.
#pragma once

#include <cstddef>
#include <iostream>
#include <string>
#include <vector>

#include "ck_tile/dispatcher/declared_sets.hpp"

namespace ck_tile::dispatcher {
namespace decl {

inline constexpr const char* ANY = "*";
inline constexpr int ANY_INT = -1;

class Signature {
 public:
  std::string dtype_a_ = "fp16", dtype_b_ = "fp16", dtype_c_ = "fp16", dtype_acc_ = "fp32";
  std::string layout_a_ = "row", layout_b_ = "col", layout_c_ = "row";
  std::string elementwise_op_ = "PassThrough";
  int num_d_tensors_ = 0;
  bool structured_sparsity_ = false;

  Signature& dtype(const std::string& a, const std::string& b, const std::string& c,
                   const std::string& acc = "fp32") {
    dtype_a_ = a, dtype_b_ = b, dtype_c_ = c, dtype_acc_ = acc;
    return *this;
  }
  Signature& dtype(const std::string& all) { return dtype(all, all, all); }
  Signature& layout(const std::string& a, const std::string& b, const std::string& c) {
    layout_a_ = a, layout_b_ = b, layout_c_ = c;
    return *this;
  }
  // Three letters, such as "rcr"; a shorter word changes nothing.
  Signature& layout(const std::string& letters) {
    if (letters.size() < 3) return *this;
    const auto word = [&](std::size_t i) { return letters[i] == 'r' ? "row" : "col"; };
    return layout(word(0), word(1), word(2));
  }
  Signature& elementwise(const std::string& operation, int num_d = 0) {
    elementwise_op_ = operation, num_d_tensors_ = num_d;
    return *this;
  }
  std::string layout_str() const {
    std::string letters;
    for (const std::string* word : {&layout_a_, &layout_b_, &layout_c_}) {
      letters += *word == "col" ? 'c' : 'r';
    }
    return letters;
  }
};

class Algorithm {
 public:
  int tile_m_ = 128, tile_n_ = 128, tile_k_ = 32;
  int wave_m_ = ANY_INT, wave_n_ = ANY_INT, wave_k_ = 1;
  int warp_m_ = ANY_INT, warp_n_ = ANY_INT, warp_k_ = 16;
  std::string pipeline_ = "compv4", scheduler_ = "intrawave", epilogue_ = "cshuffle";
  int block_size_ = 256;
  int pad_m_ = 1, pad_n_ = 1, pad_k_ = 1;
  bool preshuffle_ = false;

  Algorithm& tile(int m, int n, int k) { return tile_m_ = m, tile_n_ = n, tile_k_ = k, *this; }
  Algorithm& wave(int m, int n, int k = 1) { return wave_m_ = m, wave_n_ = n, wave_k_ = k, *this; }
  Algorithm& warp(int m, int n, int k = 16) { return warp_m_ = m, warp_n_ = n, warp_k_ = k, *this; }
  Algorithm& pipeline(const std::string& word) { return pipeline_ = word, *this; }
  Algorithm& scheduler(const std::string& word) { return scheduler_ = word, *this; }
  Algorithm& epilogue(const std::string& word) { return epilogue_ = word, *this; }
  Algorithm& pad(bool m, bool n, bool k) { return pad_m_ = m, pad_n_ = n, pad_k_ = k, *this; }
  Algorithm& preshuffle(bool value) { return preshuffle_ = value, *this; }

  bool needs_expansion() const {
    return wave_m_ == ANY_INT || warp_m_ == ANY_INT || pipeline_ == ANY || pad_m_ == ANY_INT;
  }
  // Puts the usual sizes where there are wildcards.
  void auto_fill() {
    wave(detail::or_usual(wave_m_, 2), detail::or_usual(wave_n_, 2), detail::or_usual(wave_k_, 1));
    warp(detail::or_usual(warp_m_, 32), detail::or_usual(warp_n_, 32),
         detail::or_usual(warp_k_, 16));
  }
};

struct KernelDecl {
  Signature signature;
  Algorithm algorithm;
  std::string arch = "gfx942";

  KernelDecl() = default;
  KernelDecl(const Signature& s, const Algorithm& a, const std::string& target = "gfx942")
      : signature(s), algorithm(a), arch(target) {}

  // Types, layout and tile; nothing tells further fields apart.
  std::string name() const {
    const Algorithm& a = algorithm;
    const std::string text = signature.dtype_a_ + "_" + signature.layout_str();
    if (a.tile_m_ <= 0) return text;
    return text + "_" + detail::shape_pattern(a.tile_m_, a.tile_n_, a.tile_k_);
  }
  bool has_wildcards() const { return algorithm.needs_expansion() || arch == ANY; }
};

// A declaration by type, layout and tile; ANY_INT for the tile: every kernel of the target.
inline KernelDecl plain_declaration(const std::string& dtype, const std::string& layout, int tile_m,
                                    int tile_n, int tile_k, const std::string& arch) {
  return {Signature().dtype(dtype).layout(layout), Algorithm().tile(tile_m, tile_n, tile_k), arch};
}

class KernelSet : public detail::DeclaredSet<KernelSet, KernelDecl> {
 public:
  using DeclaredSet::add;
  KernelSet& add(const Signature& signature, const Algorithm& algorithm,
                 const std::string& arch = "gfx942") {
    return add(KernelDecl(signature, algorithm, arch));
  }
  KernelSet& add(const std::string& dtype, const std::string& layout, int tile_m, int tile_n,
                 int tile_k, const std::string& arch = "gfx942") {
    return add(plain_declaration(dtype, layout, tile_m, tile_n, tile_k, arch));
  }
};

class KernelSetRegistry : public detail::SetRegistry<KernelSetRegistry, KernelSet> {};
using KernelSetRegistrar = detail::SetRegistrar<KernelSetRegistry>;

// What DECL_KERNEL and its kin declared, one by one.
class Registry {
 public:
  static Registry& instance() {
    static Registry all;
    return all;
  }
  void add(const KernelDecl& decl) { decls_.push_back(decl); }
  std::vector<KernelDecl> all() const { return decls_; }
  std::size_t size() const { return decls_.size(); }
  void print() const {
    std::cout << size() << " declared kernels:\n";
    for (const KernelDecl& one : decls_) {
      std::cout << "  " << one.name() << (one.has_wildcards() ? " (with wildcards)" : "") << "\n";
    }
  }

 private:
  std::vector<KernelDecl> decls_;
};

struct Declarator {
  Declarator(const Signature& signature, const Algorithm& algorithm,
             const std::string& arch = "gfx942") {
    Registry::instance().add({signature, algorithm, arch});
  }
  Declarator(const std::string& dtype, const std::string& layout, int tile_m, int tile_n,
             int tile_k, const std::string& arch = "gfx942") {
    Registry::instance().add(plain_declaration(dtype, layout, tile_m, tile_n, tile_k, arch));
  }
  Declarator(const std::string& dtype, const std::string& layout, const std::string& arch)
      : Declarator(dtype, layout, ANY_INT, ANY_INT, ANY_INT, arch) {}
};

}  // namespace decl

using KernelSignature = decl::Signature;
using KernelAlgorithm = decl::Algorithm;
using KernelDecl = decl::KernelDecl;
using KernelDeclRegistry = decl::Registry;
using KernelSet = decl::KernelSet;
using KernelSetRegistry = decl::KernelSetRegistry;
inline constexpr const char* ANY = decl::ANY;
inline constexpr int ANY_INT = decl::ANY_INT;

}  // namespace ck_tile::dispatcher

#define DECL_KERNEL(signature, algorithm, ...) \
  CK_TILE_DECLARED(::ck_tile::dispatcher::decl::Declarator)(signature, algorithm, ##__VA_ARGS__)
#define DECL_KERNEL_SIMPLE(dtype, layout, tm, tn, tk) \
  CK_TILE_DECLARED(::ck_tile::dispatcher::decl::Declarator)(#dtype, #layout, tm, tn, tk)
#define DECL_KERNEL_ALL(dtype, layout) \
  CK_TILE_DECLARED(::ck_tile::dispatcher::decl::Declarator)(#dtype, #layout, "*")
#define DECL_KERNEL_SET(name, ...)                                  \
  CK_TILE_DECLARED(::ck_tile::dispatcher::decl::KernelSetRegistrar) \
  (#name, ::ck_tile::dispatcher::decl::KernelSet() __VA_ARGS__.tag(#name))
#define KERNEL_SET(name) ::ck_tile::dispatcher::decl::KernelSet name
#define BEGIN_KERNEL_SET() ::ck_tile::dispatcher::decl::KernelSet()
