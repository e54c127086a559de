// One call of attention: a family, traits and arguments.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <variant>

#include "ck_tile/dispatcher/fmha_types.hpp"
#include "ck_tile/dispatcher/words.hpp"

namespace ck_tile::dispatcher {

enum class FmhaApiFamily : std::uint8_t {
  Fwd,
  FwdPagedKv,
  FwdSplitKv,
  FwdAppendKv,
  BatchPrefill,
  Bwd
};
enum class FmhaKernelFamily : std::uint8_t {
  Fwd,
  FwdPagedKv,
  FwdSplitKv,
  FwdSplitKvCombine,
  FwdAppendKv,
  BatchPrefill,
  BwdDotDoO,
  BwdDqDkDv,
  BwdConvertDq
};

namespace detail {
inline constexpr const char* kApiFamilies[] = {"fwd",          "fwd_pagedkv",   "fwd_splitkv",
                                               "fwd_appendkv", "batch_prefill", "bwd"};
inline constexpr const char* kKernelFamilies[] = {
    "fwd",           "fwd_pagedkv",  "fwd_splitkv",  "fwd_splitkv_combine", "fwd_appendkv",
    "batch_prefill", "bwd_dot_do_o", "bwd_dq_dk_dv", "bwd_convert_dq"};
}  // namespace detail

inline std::string to_string(FmhaApiFamily family) {
  return detail::word_of(detail::kApiFamilies, family);
}
inline std::string to_string(FmhaKernelFamily family) {
  return detail::word_of(detail::kKernelFamilies, family);
}

using FmhaTraitsVariant =
    std::variant<fmha_fwd_traits, fmha_fwd_pagedkv_traits, fmha_fwd_splitkv_traits,
                 fmha_fwd_appendkv_traits, fmha_batch_prefill_traits, fmha_bwd_traits>;
using FmhaArgsVariant =
    std::variant<fmha_fwd_args, fmha_fwd_pagedkv_args, fmha_fwd_splitkv_args,
                 fmha_fwd_appendkv_args, fmha_batch_prefill_args, fmha_bwd_args>;

struct FmhaInvocation {
  FmhaApiFamily api_family = FmhaApiFamily::Fwd;
  FmhaTraitsVariant traits;
  FmhaArgsVariant args;

#define CK_TILE_MAKE(family, name)                                                   \
  static FmhaInvocation make(fmha_##name##_traits traits, fmha_##name##_args args) { \
    return {FmhaApiFamily::family, FmhaTraitsVariant(std::move(traits)),             \
            FmhaArgsVariant(std::move(args))};                                       \
  }
  CK_TILE_MAKE(Fwd, fwd)
  CK_TILE_MAKE(FwdPagedKv, fwd_pagedkv)
  CK_TILE_MAKE(FwdSplitKv, fwd_splitkv)
  CK_TILE_MAKE(FwdAppendKv, fwd_appendkv)
  CK_TILE_MAKE(BatchPrefill, batch_prefill)
  CK_TILE_MAKE(Bwd, bwd)
#undef CK_TILE_MAKE
};

}  // namespace ck_tile::dispatcher
