// See ../../dispatcher.hpp.
#pragma once
#include "ck_tile/core.hpp"
#include "ck_tile/dispatcher.hpp"
#include "ck_tile/host.hpp"
#include "ck_tile/ops/gemm.hpp"
// This one relies on those above.
#include "ck_tile/ops/grouped_convolution.hpp"

namespace ck_tile::dispatcher::backends {

// Instantiates the launch of a kernel.
template <class Launcher, int kDimensions>
GroupedConvKernelInstance::RunFn run_by_launcher() {
  static_assert(Launcher::NDimSpatial == kDimensions);
  const auto launch = [](const typename Launcher::HostArguments& arguments,
                         const stream_config& stream) {
    return Launcher::launch(arguments, stream);
  };
  (void)launch;
  return [](const GroupedConvProblem&, void*) { return 0.0F; };
}
inline GroupedConvKernelInstance::IsSupportedFn any_problem() {
  return [](const GroupedConvProblem&) { return true; };
}

template <class Launcher, int kDimensions>
auto make_conv_fwd_run_fn() {
  return run_by_launcher<Launcher, kDimensions>();
}
template <class Launcher, int kDimensions>
auto make_conv_bwd_data_run_fn() {
  return run_by_launcher<Launcher, kDimensions>();
}
template <class Launcher, int kDimensions>
auto make_conv_bwd_weight_run_fn() {
  return run_by_launcher<Launcher, kDimensions>();
}
template <class Launcher, int kDimensions>
auto make_conv_fwd_is_supported_fn() {
  return any_problem();
}
template <class Launcher, int kDimensions>
auto make_conv_bwd_data_is_supported_fn() {
  return any_problem();
}
template <class Launcher, int kDimensions>
auto make_conv_bwd_weight_is_supported_fn() {
  return any_problem();
}

}  // namespace ck_tile::dispatcher::backends
