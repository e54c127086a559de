// Tessera's attention kernels as FmhaKernelInstances: one exact kernel of the target, or what to
// compute, for which Tessera chooses one at each problem.
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>

#include "ck_tile/dispatcher/backends/fmha_call.hpp"
#include "ck_tile/dispatcher/backends/fmha_rules.hpp"
#include "ck_tile/dispatcher/backends/tessera_sets.hpp"
#include "ck_tile/dispatcher/fmha_kernel_instance.hpp"

namespace ck_tile::dispatcher::backends {

// Whether Tessera has nothing left to do in a stage: another one did it all.
inline bool is_idle_stage(FmhaKernelFamily family) {
  return family == FmhaKernelFamily::FwdSplitKvCombine || family == FmhaKernelFamily::BwdDotDoO ||
         family == FmhaKernelFamily::BwdConvertDq;
}

class TesseraFmha : public FmhaKernelInstance {
 public:
  // pinned: Tessera's name of the kernel; empty: one is chosen for each problem. A key without head
  // sizes takes what the kernel computes.
  TesseraFmha(FmhaKernelKey key, std::string name, MachinePtr machine, std::string pinned)
      : key_(std::move(key)),
        name_(std::move(name)),
        machine_(std::move(machine)),
        pinned_(std::move(pinned)) {}

  const FmhaKernelKey& get_key() const override { return key_; }
  std::string get_name() const override { return name_; }
  bool supports(const FmhaProblem& problem) const override {
    const FmhaKernelKey::Signature& s = key_.signature;
    const bool is_any = s.hdim_q == 0;
    if (is_any
            ? s.family != problem.requested_family || s.data_type != problem.data_type
            : !fmha_signature_matches(key_, problem) || !fmha_algorithm_supports(key_, problem)) {
      return false;
    }
    const bool is_for_python =
        s.family == FmhaKernelFamily::FwdAppendKv || s.family == FmhaKernelFamily::BatchPrefill;
    return is_idle_stage(s.family) || is_for_python ||
           machine(problem).can(fmha_head(problem).line, pinned_);
  }
  void launch(const FmhaInvocation& call, const ck_tile::stream_config& config) const override {
    ck_tile::stream_config once = config;
    once.time_kernel_ = false;
    run(call, once);
  }
  float run(const FmhaInvocation& call, const ck_tile::stream_config& config) const override {
    if (is_idle_stage(key_.signature.family)) return 0;
    const FmhaProblem problem = FmhaProblem::from_invocation(call, key_.gfx_arch);
    const FmhaCall made = fmha_call_of(call, problem, memory_kind(*machine_));
    const Machine& runs = machine(problem);
    if (config.time_kernel_) {
      return runs.time(made.line, pinned_, made.operands, config.stream_id_,
                       {config.cold_niters_, config.nrepeat_});
    }
    runs.run(made.line, pinned_, made.operands, config.stream_id_);
    // What the call holds must not go before the kernel has read it.
    if (!made.own.empty()) runs.synchronize(made.line, pinned_, config.stream_id_);
    return 0;
  }

 private:
  const Machine& machine(const FmhaProblem& problem) const {
    if (!problem.is_deterministic) return *machine_;
    return *machine_for(machine_->name(), true);
  }

  FmhaKernelKey key_;
  std::string name_;
  MachinePtr machine_;
  std::string pinned_;
};

// One of Tessera's kernels, by its name; for its own target, where no other one is named.
inline FmhaKernelInstancePtr named_fmha_kernel(const std::string& kernel,
                                               const std::string& arch = {}) {
  const std::string shown = command("show", "{\"kernel\": \"" + kernel + "\"}");
  const std::string in = field(shown, "in"), out = field(shown, "out");
  FmhaKernelKey key;
  key.signature.family = field(shown, "kind") == "backward" ? FmhaKernelFamily::BwdDqDkDv
                         : field(shown, "kind") == "append" ? FmhaKernelFamily::FwdAppendKv
                                                            : FmhaKernelFamily::Fwd;
  key.signature.data_type = in == out ? in : in + out;
  key.algorithm.pipeline = field(shown, "pipeline");
  int rows = 0;
  std::sscanf(field(shown, "tile").c_str(), "%d", &rows);
  key.algorithm.tile_shape.m0 = static_cast<std::uint16_t>(rows);
  key.gfx_arch = field(shown, "target"), key.kernel = kernel;
  const MachinePtr machine = machine_for(arch.empty() ? key.gfx_arch : arch);
  return std::make_shared<TesseraFmha>(key, kernel, machine, kernel);
}

}  // namespace ck_tile::dispatcher::backends
