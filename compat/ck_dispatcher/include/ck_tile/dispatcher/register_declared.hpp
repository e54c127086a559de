// The macros that register what a program declares, as the original's generated code does:
// registry is a Registry, a GroupedConvRegistry or an FmhaRegistry, arch a target's name.
#pragma once

#define REGISTER_GENERATED_KERNELS(registry, arch) \
  ::ck_tile::dispatcher::register_declared(registry, arch)
// set: the name of a set, as a text.
#define REGISTER_KERNEL_SET(set, registry, arch) \
  ::ck_tile::dispatcher::register_declared_set(set, registry, arch)
