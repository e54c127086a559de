// The code of depthwise convolutions that does not depend on a kernel's sizes.
#pragma once

#include "tessera/device/cpu/conv/depthwise_first.h"
#include "tessera/device/cpu/conv/depthwise_first_filters.h"
#include "tessera/device/cpu/conv/depthwise_last.h"

namespace tessera::device {

template <class T>
using DepthwiseDriver = typename Choose<
    T::kChannelsLast,
    typename Choose<T::kWeights, DepthwiseLastFilters<T>, DepthwiseLastImages<T>>::type,
    typename Choose<T::kWeights, DepthwiseFirstFilters<T>, DepthwiseFirstImages<T>>::type>::type;

template <class T>
void depthwise_conv_run(const DepthwiseShape<T>& shape, const void* arguments,
                        const CpuThread& thread) {
  const ConvArguments g = *static_cast<const ConvArguments*>(arguments);
  DepthwiseDriver<T>{{shape, g, thread}}.run();
}
template <class T>
i64 depthwise_conv_workspace_bytes(const DepthwiseShape<T>& shape, const void* arguments,
                                   int threads) {
  const CpuThread none{};
  const DepthwiseDriver<T> driver = {{shape, *static_cast<const ConvArguments*>(arguments), none}};
  return driver.workspace_bytes(threads);
}
}  // namespace tessera::device
