// Which arguments a kernel takes and what it has, as its configuration says: groups, scales of
// blocks, rows by index.
#pragma once

#include "tessera/device/hip/gemm/grouped_arguments.h"
#include "tessera/device/hip/gemm/outputs_arguments.h"
#include "tessera/device/hip/gemm/scaled_arguments.h"
#include "tessera/device/hip/types.h"

namespace tessera::device {

template <class C>
constexpr Grouping grouping_of() {
  if constexpr (requires { C::kGrouping; }) return C::kGrouping;
  return Grouping::none;
}
template <class C>
constexpr bool has_groups() {
  return grouping_of<C>() != Grouping::none;
}
template <class C>
constexpr bool is_scaled() {
  return requires { C::kScaleA; };
}
template <class C>
constexpr bool gathers_rows() {
  if constexpr (requires { C::kIndexing; }) return C::kIndexing == Indexing::gathered;
  return false;
}

// What the product alone takes.
template <class C>
using BaseArguments = typename If<has_groups<C>(), HipGroupedArguments, HipGemmArguments>::Type;
template <class C>
using ScaledProduct = HipScaled<BaseArguments<C>>;
template <class C>
using ProductArguments = typename If<is_scaled<C>(), ScaledProduct<C>, BaseArguments<C>>::Type;

}  // namespace tessera::device
