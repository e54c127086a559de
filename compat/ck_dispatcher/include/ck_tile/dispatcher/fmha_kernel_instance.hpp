// An attention kernel that can be asked and run. Tessera's are backends::TesseraFmha; others derive
// from this class, too, and lie in the same registry.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "ck_tile/dispatcher/fmha_kernel_key.hpp"
#include "ck_tile/dispatcher/fmha_problem.hpp"

namespace ck_tile::dispatcher {

class FmhaKernelInstance {
 public:
  virtual ~FmhaKernelInstance() = default;

  virtual const FmhaKernelKey& get_key() const = 0;
  virtual bool supports(const FmhaProblem& problem) const = 0;
  virtual std::string get_name() const = 0;
  const FmhaKernelKey& key() const { return get_key(); }
  std::string name() const { return get_name(); }
  // What plans and heuristics name it by.
  std::string id() const { return get_key().encode_identifier(); }

  virtual void launch(const FmhaInvocation& call, const ck_tile::stream_config& config) const = 0;
  // Milliseconds of a launch in the mean, by the host's clock; 0 where config wants no time.
  virtual float run(const FmhaInvocation& call, const ck_tile::stream_config& config) const {
    if (!config.time_kernel_) return launch(call, config), 0.0F;
    using Clock = std::chrono::steady_clock;
    for (int i = 0; i < config.cold_niters_; ++i) launch(call, config);
    const Clock::time_point start = Clock::now();
    for (int i = 0; i < config.nrepeat_; ++i) launch(call, config);
    const std::chrono::duration<float, std::milli> time = Clock::now() - start;
    return time.count() / static_cast<float>(config.nrepeat_ > 0 ? config.nrepeat_ : 1);
  }
};

using FmhaKernelInstancePtr = std::shared_ptr<FmhaKernelInstance>;

}  // namespace ck_tile::dispatcher
