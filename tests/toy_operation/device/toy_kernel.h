// What the toy operation's kernels for CPUs share: columns of a row, and what a kernel exports.
#pragma once

#include "tessera/device/cpu/grid.h"
#include "toy_operation/device/toy.h"

namespace tessera::device {

inline void scale_columns(const ToyArguments& g, i64 row, Range columns) {
  const float* const in = g.in + g.ld_in * row;
  float* const out = g.out + g.ld_out * row;
  for (i64 c = columns.begin; c < columns.end; c += kLanes) {
    const int lanes = static_cast<int>(smaller(kLanes, columns.end - c));
    store_first(out + c, load_first<f32v>(in + c, lanes) * load_first<f32v>(g.scale + c, lanes),
                lanes);
  }
}

inline i64 no_workspace(const void*, int) { return 0; }

// The table of a kernel with one entry. Work::run(arguments, thread) is a thread's share.
template <class Work>
constexpr CpuKernel one_entry(int abi_version) {
  return {abi_version, {{no_workspace, [](const void* arguments, const CpuThread* thread) {
                           Work::run(*static_cast<const ToyArguments*>(arguments), *thread);
                         }}}};
}

}  // namespace tessera::device
