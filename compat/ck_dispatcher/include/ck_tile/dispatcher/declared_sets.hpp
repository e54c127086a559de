// What declarations of all operations share: wildcards, sets and their names.
#pragma once

#include <algorithm>
#include <cstddef>
#include <iostream>
#include <map>
#include <string>
#include <vector>

namespace ck_tile::dispatcher::detail {

// Declarations in the order in which they were added; Decl has name() and algorithm.
template <class Derived, class Decl>
class DeclaredSet {
 public:
  Derived& add(const Decl& decl) {
    decls_.push_back(decl);
    return self();
  }
  Derived& merge(const Derived& other) {
    decls_.insert(decls_.end(), other.decls_.begin(), other.decls_.end());
    return self();
  }
  const std::vector<Decl>& declarations() const { return decls_; }
  std::size_t size() const { return decls_.size(); }
  bool needs_expansion() const {
    return std::any_of(decls_.begin(), decls_.end(),
                       [](const Decl& one) { return one.algorithm.needs_expansion(); });
  }
  void print(std::ostream& out = std::cout) const {
    out << size() << " declared kernels:\n";
    for (const Decl& one : decls_) {
      out << "  " << one.name() << (one.algorithm.needs_expansion() ? " (with wildcards)" : "")
          << "\n";
    }
  }
  Derived& tag(const std::string& word) {
    tag_ = word;
    return self();
  }
  std::string tag() const { return tag_; }

 private:
  Derived& self() { return static_cast<Derived&>(*this); }

  std::vector<Decl> decls_;
  std::string tag_;
};

// The sets that macros declared, before main() or whenever they run. Not for several threads.
template <class Derived, class Set>
class SetRegistry {
 public:
  static Derived& instance() {
    static Derived all;
    return all;
  }
  // A second set of a name replaces the first.
  void add(const std::string& name, const Set& set) {
    if (!has(name)) order_.push_back(name);
    sets_[name] = set;
  }
  void register_set(const std::string& name, const Set& set) { add(name, set); }
  // An empty set where there is none of the name.
  const Set& get(const std::string& name) const {
    static const Set none;
    const auto found = sets_.find(name);
    return found == sets_.end() ? none : found->second;
  }
  bool has(const std::string& name) const { return sets_.count(name) != 0; }
  const std::vector<std::string>& names() const { return order_; }
  std::size_t size() const { return sets_.size(); }
  void clear() { sets_.clear(), order_.clear(); }
  void print(std::ostream& out = std::cout) const {
    out << size() << " kernel sets:\n";
    for (const std::string& name : order_) {
      out << "  " << name << ": " << get(name).size() << " declarations\n";
    }
  }

 private:
  std::map<std::string, Set> sets_;
  std::vector<std::string> order_;
};

// Adds a set when it is made; what the macros make.
template <class Registry>
struct SetRegistrar {
  template <class Set>
  SetRegistrar(const std::string& name, const Set& set) {
    Registry::instance().add(name, set);
  }
};

inline std::string shape_pattern(int m, int n, int k) {
  const auto number = [](int value) { return value < 0 ? "*" : std::to_string(value); };
  return number(m) + "x" + number(n) + "x" + number(k);
}
inline int or_usual(int value, int usual) { return value < 0 ? usual : value; }
inline std::string or_usual(const std::string& word, const char* usual) {
  return word == "*" ? usual : word;
}

}  // namespace ck_tile::dispatcher::detail

#define CK_TILE_JOIN_(a, b) a##b
#define CK_TILE_JOIN(a, b) CK_TILE_JOIN_(a, b)
// A value that is made before main(), under a name of its own.
// GCC's spelling of the attribute is the one that clang takes behind __extension__, too.
#define CK_TILE_DECLARED(type) \
  __extension__ static const type __attribute__((unused)) CK_TILE_JOIN(ck_declared_, __COUNTER__)
