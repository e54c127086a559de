// The macros that register what a program declares, as the original's generated code does:
// registry is a Registry, a GroupedConvRegistry or an FmhaRegistry, arch a target's name.
#pragma once

#include <string>

#define REGISTER_GENERATED_KERNELS(registry, arch) \
  ::ck_tile::dispatcher::register_declared(registry, arch)
// REGISTER_KERNEL_SET(set, registry, arch): set is a set's name, as a text.
// REGISTER_KERNEL_SET(set, registry): the name as DECL_KERNEL_SET got it, or as a literal; the
// declarations say for which target.
#define REGISTER_KERNEL_SET(set, ...)                                          \
  CK_TILE_FOURTH(set, __VA_ARGS__, CK_TILE_SET_FOR, CK_TILE_SET_AS_DECLARED, ) \
  (#set, set, __VA_ARGS__)
#define CK_TILE_FOURTH(a, b, c, d, ...) d
#define CK_TILE_SET_FOR(word, set, registry, arch) \
  ::ck_tile::dispatcher::register_declared_set(set, registry, arch)
#define CK_TILE_SET_AS_DECLARED(word, set, registry)                                          \
  ::ck_tile::dispatcher::register_declared_set(::ck_tile::dispatcher::detail::unquoted(word), \
                                               registry)

namespace ck_tile::dispatcher::detail {

// A macro's argument as a name: itself, or what a literal holds.
inline std::string unquoted(const std::string& word) {
  const bool is_literal = word.size() > 1 && word.front() == '"' && word.back() == '"';
  return is_literal ? word.substr(1, word.size() - 2) : word;
}

}  // namespace ck_tile::dispatcher::detail
