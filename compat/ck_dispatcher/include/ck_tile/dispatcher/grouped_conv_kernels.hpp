// The convolution kernels that a dispatcher chooses from, and which ones a declaration stands for.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "ck_tile/dispatcher/backends/tessera_conv.hpp"
#include "ck_tile/dispatcher/backends/tessera_fastest.hpp"
#include "ck_tile/dispatcher/base_registry.hpp"
#include "ck_tile/dispatcher/dispatcher_error.hpp"
#include "ck_tile/dispatcher/grouped_conv_kernel_decl.hpp"
#include "ck_tile/dispatcher/register_declared.hpp"
#include "ck_tile/dispatcher/registry_json.hpp"

namespace ck_tile::dispatcher {

namespace detail {

inline GroupedConvOp op_of(const std::string& word) {
  if (word == "forward" || word == "fwd") return GroupedConvOp::Forward;
  if (word == "bwd_data" || word == "bwdd" || word == "backward_data") {
    return GroupedConvOp::BackwardData;
  }
  if (word == "bwd_weight" || word == "bwdw" || word == "backward_weight") {
    return GroupedConvOp::BackwardWeight;
  }
  throw DispatcherError("conv_type is forward, bwd_data or bwd_weight, got '" + word + "'");
}

// The fields, with the usual sizes where there are wildcards.
inline GroupedConvKernelKey key_of(const GroupedConvKernelDecl& decl) {
  const GroupedConvSignature& s = decl.signature;
  GroupedConvAlgorithm a = decl.algorithm;
  a.auto_fill();
  GroupedConvKernelKey key;
  key.dtype_in = s.dtype_in_, key.dtype_wei = s.dtype_wei_, key.dtype_out = s.dtype_out_;
  key.layout = s.layout_, key.ndim_spatial = s.num_dims_, key.op = op_of(s.conv_op_);
  key.tile_m = a.tile_m_, key.tile_n = a.tile_n_, key.tile_k = a.tile_k_;
  key.wave_m = a.wave_m_, key.wave_n = a.wave_n_, key.wave_k = a.wave_k_;
  key.warp_m = a.warp_m_, key.warp_n = a.warp_n_, key.warp_k = a.warp_k_;
  key.pipeline = a.pipeline_, key.scheduler = a.scheduler_, key.epilogue = a.epilogue_;
  key.vector_size_a = a.vector_a_, key.vector_size_b = a.vector_b_;
  key.vector_size_c = a.vector_c_, key.block_per_cu = a.block_per_cu_;
  key.num_wave_groups = a.num_wave_groups_, key.num_groups_to_merge = a.num_groups_to_merge_;
  key.specialization = s.specialization_, key.arch = decl.arch;
  return key;
}

inline std::string conv_row(const GroupedConvKernelInstance& one, Counts& counts) {
  const GroupedConvKernelKey& key = one.key();
  counts["by_datatype"][key.dtype_in + "_" + key.dtype_wei + "_" + key.dtype_out]++;
  counts["by_pipeline"][key.pipeline]++;
  counts["by_arch"][key.arch]++;
  const auto text = [](int m, int n, int k) { return shape_pattern(m, n, k); };
  JsonObject signature, algorithm, made;
  signature.text("dtype_in", key.dtype_in).text("dtype_wei", key.dtype_wei);
  signature.text("dtype_out", key.dtype_out).text("layout", key.layout);
  signature.number("ndim_spatial", key.ndim_spatial).text("op", op_word(key.op));
  algorithm.number("tile_m", key.tile_m).number("tile_n", key.tile_n).number("tile_k", key.tile_k);
  algorithm.text("wave", text(key.wave_m, key.wave_n, key.wave_k));
  algorithm.text("warp", text(key.warp_m, key.warp_n, key.warp_k));
  algorithm.text("pipeline", key.pipeline).text("scheduler", key.scheduler);
  algorithm.text("epilogue", key.epilogue).number("block_per_cu", key.block_per_cu);
  algorithm.raw("vector_sizes", "[" + std::to_string(key.vector_size_a) + "," +
                                    std::to_string(key.vector_size_b) + "," +
                                    std::to_string(key.vector_size_c) + "]");
  algorithm.number("num_wave_groups", key.num_wave_groups);
  algorithm.number("num_groups_to_merge", key.num_groups_to_merge);
  made.text("name", one.name()).raw("signature", signature.str());
  return made.raw("algorithm", algorithm.str()).text("arch", key.arch).str();
}

}  // namespace detail

namespace grouped_conv_decl {

// One kernel, or those of the target's that a declaration with its pipeline narrows to.
inline std::vector<GroupedConvKernelInstancePtr> kernels_of(const GroupedConvKernelDecl& wanted) {
  const GroupedConvKernelKey key = dispatcher::detail::key_of(wanted);
  const backends::MachinePtr machine = backends::machine_that_runs(wanted.arch);
  const GroupedConvAlgorithm& a = wanted.algorithm;
  const bool any_warp = a.needs_warp_expansion();
  const backends::ConvPattern pattern{
      a.pipeline_, a.scheduler_ == "*" ? "auto" : a.scheduler_,
      a.pipeline_ == "*" ? "*" : detail::shape_pattern(a.tile_m_, a.tile_n_, a.tile_k_),
      detail::shape_pattern(a.wave_m_, a.wave_n_, a.wave_k_),
      any_warp ? "*" : detail::shape_pattern(a.warp_m_, a.warp_n_, a.warp_k_)};
  std::vector<GroupedConvKernelInstancePtr> all;
  for (const std::string& name : backends::matching_conv_kernels(*machine, key, pattern)) {
    all.push_back(backends::named_conv_kernel(name));
  }
  if (!all.empty()) return all;
  dispatcher::detail::tell("pipeline " + a.pipeline_ + " with such a tile is none of " +
                           machine->name() + "'s for convolutions; its own kernels are taken");
  GroupedConvKernelDecl named = wanted;
  named.algorithm.auto_fill();
  return {backends::tessera_conv(key, named.name(), machine, "")};
}

}  // namespace grouped_conv_decl

class GroupedConvRegistry
    : public BaseRegistry<GroupedConvRegistry, GroupedConvKernelKey, GroupedConvKernelInstance,
                          GroupedConvKernelKeyHash> {
  using Base = BaseRegistry<GroupedConvRegistry, GroupedConvKernelKey, GroupedConvKernelInstance,
                            GroupedConvKernelKeyHash>;

 public:
  using Base::register_kernel;
  using Kernels = std::vector<const GroupedConvKernelInstance*>;

  GroupedConvRegistry() = default;
  explicit GroupedConvRegistry(const std::string& name) { set_name(name); }
  ~GroupedConvRegistry() override { export_at_end(); }
  static GroupedConvRegistry& instance() {
    static GroupedConvRegistry registry;
    return registry;
  }

  // False for null, and where a kernel of the key has no lower priority.
  bool register_kernel(GroupedConvKernelInstancePtr instance,
                       Priority priority = Priority::Normal) {
    if (instance == nullptr) return false;
    const GroupedConvKernelKey key = instance->key();
    return register_kernel(key, std::move(instance), priority);
  }
  // Whether a kernel came in, or replaced one of the same key.
  bool register_set(const GroupedConvKernelSet& set, Priority priority = Priority::Normal) {
    bool any = false;
    for (const GroupedConvKernelDecl& wanted : set.declarations()) {
      for (const GroupedConvKernelInstancePtr& one : kernels_of(wanted)) {
        any = insert(one->key(), one, priority, true) || any;
      }
    }
    if (any) export_each();
    return any;
  }

  // The kernel of the highest priority that computes the problem, and of these the first; null
  // where there is none. What is returned is the registry's.
  const GroupedConvKernelInstance* find(const GroupedConvProblem& problem) const {
    for (const GroupedConvKernelInstancePtr& one : by_priority()) {
      if (one->matches(problem) && one->is_supported(problem)) return one.get();
    }
    return nullptr;
  }
  // The fastest: by a model where one knows the problem. Without one, the best few by estimate are
  // measured at the first call. Of a registry without kernels it is the best of this machine's.
  GroupedConvKernelInstancePtr get_solution(const GroupedConvProblem& problem,
                                            const std::string& arch = {}) const;
  Kernels all_kernels() const {
    return filter([](const GroupedConvKernelInstance&) { return true; });
  }
  Kernels filter(const std::function<bool(const GroupedConvKernelInstance&)>& keep) const {
    Kernels kept;
    for (const GroupedConvKernelInstancePtr& one : by_priority()) {
      if (keep(*one)) kept.push_back(one.get());
    }
    return kept;
  }
  // Keeps the kernels of one target, and returns how many were removed.
  std::size_t filter_by_arch(const std::string& arch) {
    return keep_if([&](const GroupedConvKernelInstance& one) { return one.key().arch == arch; });
  }

  std::string export_json(bool include_statistics = false) const {
    detail::Counts counts;
    std::vector<std::string> rows;
    for (const GroupedConvKernelInstancePtr& one : by_priority()) {
      rows.push_back(detail::conv_row(*one, counts));
    }
    return detail::registry_json(get_name(), include_statistics, counts, rows);
  }
  // Throws DispatcherError.
  void export_json_to_file(const std::string& path, bool include_statistics = false) const {
    if (!detail::write_text(path, export_json(include_statistics))) {
      throw DispatcherError("cannot write " + path);
    }
  }

 private:
  mutable std::mutex solutions_mutex_;
  mutable std::map<std::string, std::string> solutions_;  // a problem's line -> the kernel
};

inline GroupedConvKernelInstancePtr GroupedConvRegistry::get_solution(
    const GroupedConvProblem& problem, const std::string& arch) const {
  std::vector<GroupedConvKernelInstancePtr> able;
  for (const GroupedConvKernelInstancePtr& one : by_priority()) {
    if (one->matches(problem) && one->is_supported(problem)) able.push_back(one);
  }
  if (able.empty() && !empty()) return nullptr;
  GroupedConvKernelKey key;
  key.dtype_in = key.dtype_wei = key.dtype_out = "fp16", key.layout = "nhwgc", key.arch = arch;
  if (!able.empty()) key = able.front()->key();
  const backends::MachinePtr machine = backends::machine_that_runs(key.arch);
  std::vector<std::string> names;
  for (const GroupedConvKernelInstancePtr& one : able) {
    if (one->key().kernel.empty()) return one;  // Tessera chooses for it
    names.push_back(one->key().kernel);
  }
  const std::string line = backends::conv_line(key, problem);
  const std::lock_guard<std::mutex> lock(solutions_mutex_);
  std::string& kernel = solutions_[line + " " + machine->name()];
  if (kernel.empty()) kernel = backends::fastest_kernel(*machine, line, names);
  for (const GroupedConvKernelInstancePtr& one : able) {
    if (one->key().kernel == kernel) return one;
  }
  return able.empty() ? backends::named_conv_kernel(kernel) : able.front();
}

// These register declarations for a target, whatever target they name, and return how many kernels
// the registry has more than before.
inline std::size_t register_set_for(const GroupedConvKernelSet& set, GroupedConvRegistry& registry,
                                    const std::string& arch) {
  const std::size_t before = registry.size();
  GroupedConvKernelSet for_arch;
  for (GroupedConvKernelDecl one : set.declarations()) {
    if (!arch.empty()) one.arch = arch;
    for_arch.add(one);
  }
  registry.register_set(for_arch);
  return registry.size() - before;
}
inline std::size_t register_declared(GroupedConvRegistry& registry, const std::string& arch = {}) {
  std::size_t count = 0;
  for (const std::string& name : GroupedConvKernelSetRegistry::instance().names()) {
    count += register_set_for(GroupedConvKernelSetRegistry::instance().get(name), registry, arch);
  }
  return count;
}
inline std::size_t register_declared_set(const std::string& set, GroupedConvRegistry& registry,
                                         const std::string& arch = {}) {
  if (!GroupedConvKernelSetRegistry::instance().has(set)) {
    throw DispatcherError("there is no kernel set '" + set + "'");
  }
  return register_set_for(GroupedConvKernelSetRegistry::instance().get(set), registry, arch);
}

}  // namespace ck_tile::dispatcher
