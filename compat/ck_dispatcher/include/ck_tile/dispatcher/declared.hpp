// What declarations of all operations share: wildcards, sets and their names, and whether a
// pipeline is the target's.
#pragma once

#include <cstddef>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "ck_tile/dispatcher/kernel_key.hpp"

namespace ck_tile::dispatcher::decl {

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
  dispatcher::detail::tell("pipeline " + pipeline + " is not one of " + machine.name +
                           "'s; its own kernels for what is declared are taken");
}

}  // namespace detail
}  // namespace ck_tile::dispatcher::decl

#define CK_TILE_JOIN_(a, b) a##b
#define CK_TILE_JOIN(a, b) CK_TILE_JOIN_(a, b)
#define CK_TILE_DECLARE_SET(set, name, ...)                              \
  [[maybe_unused]] static const bool CK_TILE_JOIN(declared_, __LINE__) = \
      ::ck_tile::dispatcher::decl::NamedSets<set>::instance().add(name, set() __VA_ARGS__)
