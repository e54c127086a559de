// The kernels that a key or a declaration stands for, among those of a target.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ck_tile/dispatcher/backends/tessera_gemm.hpp"
#include "ck_tile/dispatcher/backends/tessera_sets.hpp"

namespace ck_tile::dispatcher::backends {

// Which kernels of a target are meant; "*" is any.
struct GemmPattern {
  std::string a, b, out, layout, epilogue, pipeline, scheduler, tile, wave, warp;
  bool preshuffle = false;
};

// The target's kernels that a pattern stands for; none where it has no such pipeline.
inline std::vector<std::string> matching_kernels(const Machine& machine, const GemmPattern& p) {
  if (!has_pipeline(machine, "gemm", p.pipeline)) return {};
  const KernelSetHandle set = kernel_set(machine);
  check(tsr_kernel_set_op(set.get(), "gemm"));
  const auto where = [&](const char* name, const std::string& pattern) {
    if (pattern != "*") check(tsr_kernel_set_where(set.get(), name, pattern.c_str()));
  };
  where("a", p.a), where("b", p.b), where("out", p.out), where("layout", p.layout);
  where("epilogue", p.epilogue), where("preshuffle", p.preshuffle ? "true" : "false");
  where("pipeline", p.pipeline), where("tile", p.tile), where("wave", p.wave);
  where("warp_tile", p.warp);
  if (machine.backend() != "cpu" && p.scheduler != "auto") where("scheduler", p.scheduler);
  return names_of(set);
}

// What a key names, as a pattern.
inline GemmPattern pattern_of(const KernelKey& key) {
  const KernelKey::Signature& s = key.signature;
  GemmPattern made;
  made.a = to_string(s.dtype_a), made.b = to_string(s.dtype_b), made.out = to_string(s.dtype_c);
  made.layout = to_string(s.layout_a) + to_string(s.layout_b) + to_string(s.layout_c);
  made.epilogue = epilogue_text(s.elementwise_op, s.num_d_tensors);
  made.pipeline = to_string(key.algorithm.pipeline);
  made.scheduler = to_string(key.algorithm.scheduler);
  made.tile = detail::shape_text(key.algorithm.tile_shape);
  made.wave = detail::shape_text(key.algorithm.wave_shape);
  made.warp = detail::shape_text(key.algorithm.warp_tile_shape);
  made.preshuffle = key.algorithm.preshuffle;
  return made;
}

// The kernel of a key: exactly it where the machine's target has it; else what it computes, which
// Tessera chooses kernels for.
inline KernelInstancePtr gemm_kernel_of(const KernelKey& key, const std::string& name) {
  const MachinePtr machine = machine_that_runs(key.gfx_arch);
  const std::vector<std::string> found = matching_kernels(*machine, pattern_of(key));
  if (found.empty()) {
    detail::changes_nothing("preshuffle", key.algorithm.preshuffle,
                            "B is read as it lies where the target lacks the declared kernel");
  }
  return std::make_shared<TesseraGemm>(key, name, machine, found.empty() ? "" : found.front());
}

}  // namespace ck_tile::dispatcher::backends
