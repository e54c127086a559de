// Attention kernels that programs make of functions, and the backend of this folder: Tessera's.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <variant>

#include "ck_tile/dispatcher/backends/fmha_rules.hpp"
#include "ck_tile/dispatcher/backends/tessera_fmha.hpp"
#include "ck_tile/dispatcher/fmha_kernel_instance.hpp"

namespace ck_tile::dispatcher::backends {

class GeneratedFmhaKernelInstance : public FmhaKernelInstance {
 public:
  using SupportsFn = std::function<bool(const FmhaProblem&)>;
  using LaunchFn = std::function<void(const FmhaInvocation&, const ck_tile::stream_config&)>;
  using RunFn = std::function<float(const FmhaInvocation&, const ck_tile::stream_config&)>;

  // Without `supports` it takes no problem; without `run` launches are timed.
  GeneratedFmhaKernelInstance(FmhaKernelKey key, std::string name, SupportsFn supports,
                              LaunchFn launch, RunFn run = {})
      : key_(std::move(key)),
        name_(std::move(name)),
        supports_(std::move(supports)),
        launch_(std::move(launch)),
        run_(std::move(run)) {}

  const FmhaKernelKey& get_key() const override { return key_; }
  std::string get_name() const override { return name_; }
  bool supports(const FmhaProblem& problem) const override {
    return supports_ && supports_(problem);
  }
  void launch(const FmhaInvocation& call, const ck_tile::stream_config& config) const override {
    if (!launch_) throw DispatcherError(name_ + " has no function that launches it");
    launch_(call, config);
  }
  float run(const FmhaInvocation& call, const ck_tile::stream_config& config) const override {
    return run_ ? run_(call, config) : FmhaKernelInstance::run(call, config);
  }

 private:
  FmhaKernelKey key_;
  std::string name_;
  SupportsFn supports_;
  LaunchFn launch_;
  RunFn run_;
};

// By the key's fields, and by `extra` where there is one.
inline GeneratedFmhaKernelInstance::SupportsFn make_default_supports_fn(
    const FmhaKernelKey& key, GeneratedFmhaKernelInstance::SupportsFn extra = {}) {
  return [key, extra = std::move(extra)](const FmhaProblem& p) {
    return fmha_signature_matches(key, p) && fmha_algorithm_supports(key, p) &&
           (!extra || extra(p));
  };
}

// A kernel of `launch(config, args)`, for calls with these arguments.
template <class Args, class Launch>
FmhaKernelInstancePtr make_oneshot_fmha_kernel(const FmhaKernelKey& key, std::string name,
                                               Launch launch,
                                               GeneratedFmhaKernelInstance::SupportsFn extra = {}) {
  const auto work = [launch](const FmhaInvocation& call, const ck_tile::stream_config& config) {
    launch(config, std::get<Args>(call.args));
  };
  return std::make_shared<GeneratedFmhaKernelInstance>(
      key, std::move(name), make_default_supports_fn(key, std::move(extra)), work);
}

// The same of a function that returns milliseconds.
template <class Args, class Timed>
FmhaKernelInstancePtr make_timed_fmha_kernel(const FmhaKernelKey& key, std::string name,
                                             Timed timed,
                                             GeneratedFmhaKernelInstance::SupportsFn extra = {}) {
  const auto run = [timed](const FmhaInvocation& call, const ck_tile::stream_config& config) {
    return timed(config, std::get<Args>(call.args));
  };
  const auto launch = [run](const FmhaInvocation& call, ck_tile::stream_config config) {
    config.time_kernel_ = false;
    run(call, config);
  };
  return std::make_shared<GeneratedFmhaKernelInstance>(
      key, std::move(name), make_default_supports_fn(key, std::move(extra)), launch, run);
}

}  // namespace ck_tile::dispatcher::backends
