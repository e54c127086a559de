// The convolution kernels that a dispatcher chooses from.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "tessera_ck/grouped_conv_kernel_decl.hpp"
#include "tessera_ck/kernel_registry.hpp"
#include "tessera_ck/measured.hpp"

namespace tessera_ck {

struct GroupedConvKernelKey {
  std::string dtype_in = "fp16", dtype_wei = "fp16", dtype_out = "fp16", layout = "nhwgc";
  int ndim_spatial = 2;
  GroupedConvOp op = GroupedConvOp::Forward;
  Shape tile{1, 128, 128}, wave{2, 2, 1}, warp{32, 32, 16};
  std::string pipeline = "compv3", scheduler = "intrawave", epilogue = "cshuffle", arch;
  std::string kernel;  // Tessera's name, which has all fields
  friend bool operator==(const GroupedConvKernelKey&, const GroupedConvKernelKey&) = default;
};

using GroupedConvKernelKeyHash = KernelNameHash;

inline GroupedConvKernelKey conv_key_of(const tessera::KernelSpec& spec) {
  const auto& s = std::get<tessera::ConvSignature>(spec.signature);
  const tessera::Algorithm& how = spec.algorithm;
  GroupedConvKernelKey key;
  key.dtype_in = tessera::to_string(s.in), key.dtype_wei = tessera::to_string(s.weight);
  key.dtype_out = tessera::to_string(s.out), key.layout = tessera::to_string(s.layout);
  key.ndim_spatial = static_cast<int>(s.ndim);
  key.op = static_cast<GroupedConvOp>(s.direction);
  key.tile = detail::shape_of(how.tile), key.wave = detail::shape_of(how.wave);
  key.warp = detail::shape_of(how.warp_tile);
  key.pipeline = tessera::to_string(how.pipeline);
  key.scheduler = tessera::to_string(how.scheduler);
  key.epilogue = tessera::to_string(how.store);
  key.arch = spec.target, key.kernel = tessera::name_of(spec);
  return key;
}

class GroupedConvKernelInstance : public BaseKernelInstance<GroupedConvKernelKey> {
 public:
  GroupedConvKernelInstance(const tessera::KernelSpec& spec, std::shared_ptr<Machine> machine)
      : BaseKernelInstance(conv_key_of(spec), spec, std::move(machine)) {}

  const GroupedConvKernelKey& key() const { return get_key(); }
  const std::string& name(bool use_instance_string = false) const {
    detail::changes_nothing("use_instance_string", use_instance_string,
                            "a kernel has one name, which is lossless");
    return get_name();
  }
  bool matches(const GroupedConvProblem& problem) const { return key().op == problem.op; }
  bool is_supported(const GroupedConvProblem& problem) const {
    return problem.is_valid() && key().dtype_in == problem.dtype && matches(problem) &&
           computes(problem.asked());
  }
  bool supports(const GroupedConvProblem& problem) const { return is_supported(problem); }
  double predicted_seconds(const GroupedConvProblem& problem) const {
    return seconds_of(problem.asked());
  }
  // The tensors as detail::conv_operands() takes them.
  float run(const void* in, const void* wei, void* out, const GroupedConvProblem& problem,
            void* stream, bool measures, const Timing& timing) const {
    const tessera::ConvProblem asked = problem.asked();
    return run_forced(machine(), name(), asked,
                      detail::conv_operands(asked.direction, in, wei, out), stream, measures,
                      timing);
  }
};

using GroupedConvKernelInstancePtr = std::shared_ptr<GroupedConvKernelInstance>;

class GroupedConvRegistry
    : public KernelRegistry<GroupedConvRegistry, GroupedConvKernelKey, GroupedConvKernelInstance,
                            GroupedConvKernelKeyHash> {
 public:
  explicit GroupedConvRegistry(const std::string& name = "default") { set_name(name); }
  ~GroupedConvRegistry() { export_at_end(); }

  // The kernel of the highest priority that computes the problem, and of these the first; null
  // where there is none.
  GroupedConvKernelInstancePtr find(const GroupedConvProblem& problem) const {
    return first([&](const GroupedConvKernelInstance& one) { return one.is_supported(problem); });
  }
  // The fastest: by a model where one knows the problem. Without one, the best few by estimate are
  // measured at the first call. Of a registry without kernels it is the best of this machine's.
  GroupedConvKernelInstancePtr get_solution(const GroupedConvProblem& problem,
                                            const std::string& arch = {}) const;

  std::vector<GroupedConvKernelInstancePtr> all_kernels() const { return get_all(); }
  std::string export_json(bool include_statistics = false) const {
    const auto row = [](const GroupedConvKernelInstance& one, detail::Counts& counts) {
      const GroupedConvKernelKey& key = one.key();
      constexpr const char* kVariants[] = {"forward", "bwd_data", "bwd_weight"};
      counts["by_datatype"][key.dtype_in]++;
      counts["by_pipeline"][key.pipeline]++;
      counts["by_arch"][key.arch]++;
      return "\"name\": " + detail::json_quoted(key.kernel) + ", \"signature\": {\"variant\": " +
             detail::json_quoted(kVariants[static_cast<int>(key.op)]) +
             ", \"dtype\": " + detail::json_quoted(key.dtype_in) +
             ", \"ndim_spatial\": " + std::to_string(key.ndim_spatial) +
             ", \"layout\": " + detail::json_quoted(key.layout) +
             "}, \"algorithm\": " + detail::algorithm_json(one.spec()) +
             ", \"arch\": " + detail::json_quoted(key.arch);
    };
    return json_of(include_statistics, row);
  }
  // Throws DispatcherError.
  void export_json_to_file(const std::string& path, bool include_statistics = false) const {
    write_file(path, export_json(include_statistics));
  }

 private:
  mutable std::mutex solutions_mutex_;
  mutable std::map<std::string, std::string> solutions_;  // a problem's line -> the kernel
};

inline GroupedConvKernelInstancePtr GroupedConvRegistry::get_solution(
    const GroupedConvProblem& problem, const std::string& arch) const {
  const std::vector<GroupedConvKernelInstancePtr> able =
      filter([&](const GroupedConvKernelInstance& one) { return one.is_supported(problem); });
  if (able.empty() && !empty()) return nullptr;
  const std::shared_ptr<Machine> machine =
      machine_for(able.empty() ? arch : able.front()->key().arch);
  std::vector<std::string> names;
  for (const GroupedConvKernelInstancePtr& one : able) names.push_back(one->name());
  const std::string line = problem.to_string() + " " + machine->name;
  const std::lock_guard lock(solutions_mutex_);
  std::string& kernel = solutions_[line];
  if (kernel.empty()) kernel = fastest_kernel(*machine, problem.asked(), names);
  for (const GroupedConvKernelInstancePtr& one : able) {
    if (one->name() == kernel) return one;
  }
  if (!able.empty()) return able.front();
  return std::make_shared<GroupedConvKernelInstance>(tessera::parse_name(kernel), machine);
}

}  // namespace tessera_ck
