// What declarations of all operations share: wildcards, sets and their names, and whether a
// pipeline is the target's.
#pragma once

#include <cstddef>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "tessera_ck/kernel_key.hpp"

namespace tessera_ck::decl {

inline constexpr const char* ANY = "*";
inline constexpr int ANY_INT = -1;

template <class Signature, class Algorithm>
struct BaseDeclaration {
  Signature signature;
  Algorithm algorithm;
  std::string arch;  // empty or "*": this machine
};

// Declarations in the order in which they were added.
template <class Derived, class Signature, class Algorithm>
class BaseKernelSet {
 public:
  using Declared = BaseDeclaration<Signature, Algorithm>;

  Derived& add(const Signature& signature, const Algorithm& algorithm,
               const std::string& arch = {}) {
    declarations_.push_back({signature, algorithm, arch});
    return static_cast<Derived&>(*this);
  }
  const std::vector<Declared>& declarations() const { return declarations_; }
  std::size_t size() const { return declarations_.size(); }

 protected:
  std::vector<Declared> declarations_;
};

// How a kernel of GEMM or of convolutions computes: one tile, one grid of waves, one warp tile.
template <class Derived>
struct BaseAlgorithm {
  Shape tile_, wave_{2, 2, 1}, warp_{32, 32, 16};
  std::string pipeline_, scheduler_ = "intrawave";

  Derived& tile(int m, int n = ANY_INT, int k = ANY_INT) { return tile_ = {m, n, k}, self(); }
  Derived& wave(int m, int n = ANY_INT, int k = ANY_INT) { return wave_ = {m, n, k}, self(); }
  Derived& warp(int m, int n = ANY_INT, int k = ANY_INT) { return warp_ = {m, n, k}, self(); }
  Derived& pipeline(const std::string& word) { return pipeline_ = word, self(); }
  Derived& scheduler(const std::string& word) { return scheduler_ = word, self(); }
  Derived& epilogue(const std::string& word) {
    return hint("epilogue", word != "cshuffle" && word != ANY);
  }

 protected:
  BaseAlgorithm(const Shape& tile, const std::string& pipeline)
      : tile_(tile), pipeline_(pipeline) {}
  Derived& hint(const char* name, bool is_asked, const char* why = tessera_ck::detail::kOwn) {
    return tessera_ck::detail::changes_nothing(name, is_asked, why), self();
  }

 private:
  Derived& self() { return static_cast<Derived&>(*this); }
};

// The sets that macros declared, before main() or whenever they run.
template <class Set>
class NamedSets {
 public:
  static NamedSets& instance() {
    static NamedSets all;
    return all;
  }
  bool add(const std::string& name, const Set& set) {
    const std::lock_guard lock(mutex_);
    return sets_.insert_or_assign(name, set).second;
  }
  bool has(const std::string& name) const {
    const std::lock_guard lock(mutex_);
    return sets_.count(name) != 0;
  }
  Set get(const std::string& name) const {
    const std::lock_guard lock(mutex_);
    const auto found = sets_.find(name);
    if (found == sets_.end()) throw DispatcherError("there is no kernel set '" + name + "'");
    return found->second;
  }
  std::vector<std::string> names() const {
    std::vector<std::string> all;
    const std::lock_guard lock(mutex_);
    for (const auto& [name, set] : sets_) all.push_back(name);
    return all;
  }
  std::size_t size() const { return names().size(); }

 private:
  mutable std::mutex mutex_;
  std::map<std::string, Set> sets_;
};

namespace detail {

inline std::string pattern(const Shape& shape) {
  const auto number = [](int value) { return value == ANY_INT ? "*" : std::to_string(value); };
  return number(shape.m) + "x" + number(shape.n) + "x" + number(shape.k);
}

// Narrows a set by an algorithm. A declaration that names no scheduler has the usual word of AMD's
// kernels, which narrows where `usual_counts`.
template <class Algorithm>
void narrow_how(const Algorithm& a, const tessera::Target& target, bool usual_counts,
                tessera::KernelSetBuilder& builder) {
  builder.pipeline(a.pipeline_).tile(pattern(a.tile_)).wave(pattern(a.wave_));
  builder.warp_tile(pattern(a.warp_));
  const bool is_named = a.scheduler_ != "intrawave" && a.scheduler_ != "auto";
  const bool is_gpu = tessera::is_gpu(target);
  tessera_ck::detail::changes_nothing("scheduler", is_named && !is_gpu,
                                      tessera_ck::detail::kNoScheduler);
  const bool counts = usual_counts ? a.scheduler_ != "auto" : is_named;
  if (counts && is_gpu) builder.where("scheduler", a.scheduler_);
}

inline bool has_pipeline(const Machine& machine, tessera::Op op, const std::string& word) {
  if (word == ANY) return true;
  const auto& spaces = machine.dispatcher->target().spaces;
  const auto space = spaces.find(op);
  if (space == spaces.end()) return false;
  for (const tessera::Pipeline pipeline : space->second.pipelines) {
    if (tessera::to_string(pipeline) == word) return true;
  }
  return false;
}

// Says that a declaration's pipeline is not one of the target's.
inline void tell_other_kernels(const Machine& machine, const std::string& pipeline) {
  tessera_ck::detail::tell("pipeline " + pipeline + " is not one of " + machine.name +
                           "'s; its own kernels for what is declared are taken");
}

}  // namespace detail
}  // namespace tessera_ck::decl

#define CK_TILE_JOIN_(a, b) a##b
#define CK_TILE_JOIN(a, b) CK_TILE_JOIN_(a, b)
#define CK_TILE_DECLARE_SET(set, name, ...)                              \
  [[maybe_unused]] static const bool CK_TILE_JOIN(declared_, __LINE__) = \
      ::tessera_ck::decl::NamedSets<set>::instance().add(name, set() __VA_ARGS__)
