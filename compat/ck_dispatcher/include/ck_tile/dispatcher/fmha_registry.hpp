// The attention kernels that a dispatcher chooses from.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ck_tile/dispatcher/base_registry.hpp"
#include "ck_tile/dispatcher/fmha_kernel_decl.hpp"
#include "ck_tile/dispatcher/json_text.hpp"

namespace ck_tile::dispatcher {

struct FmhaKernelKey {
  std::string kernel;  // Tessera's name, which has all fields
  std::string gfx_arch;
  friend bool operator==(const FmhaKernelKey&, const FmhaKernelKey&) = default;
};

struct FmhaKernelKeyHash {
  std::size_t operator()(const FmhaKernelKey& key) const {
    return std::hash<std::string>()(key.kernel);
  }
};

class FmhaKernelInstance {
 public:
  FmhaKernelInstance(const tessera::KernelSpec& spec, std::shared_ptr<Machine> machine)
      : key_{tessera::name_of(spec), spec.target}, spec_(spec), machine_(std::move(machine)) {}

  const FmhaKernelKey& get_key() const { return key_; }
  const std::string& get_name() const { return key_.kernel; }
  const tessera::KernelSpec& spec() const { return spec_; }
  const Machine& machine() const { return *machine_; }
  bool supports(const FmhaProblem& problem) const {
    return is_able(*machine_, get_name(), problem.asked, problem.deterministic);
  }
  double predicted_seconds(const FmhaProblem& problem) const {
    return dispatcher::predicted_seconds(*machine_, get_name(), problem.asked);
  }
  float run(const FmhaInvocation& call, void* stream, bool measures, const Timing& timing) const {
    return run_forced(*machine_, get_name(), call.problem.asked, call.args, stream, measures,
                      timing);
  }

 private:
  FmhaKernelKey key_;
  tessera::KernelSpec spec_;
  std::shared_ptr<Machine> machine_;
};

using FmhaKernelInstancePtr = std::shared_ptr<FmhaKernelInstance>;

namespace detail {

// The numbers of the receipts, and Tessera's names.
struct FmhaReceipt {
  int number;
  const char* name;
};
inline constexpr std::array kFmhaReceipts = {
    FmhaReceipt{0, "ck_default"},        FmhaReceipt{1, "ck_extended"},
    FmhaReceipt{2, "flash_fwd"},         FmhaReceipt{3, "flash_bwd"},
    FmhaReceipt{4, "pytorch"},           FmhaReceipt{100, "aiter_batch"},
    FmhaReceipt{200, "aiter_group"},     FmhaReceipt{300, "aiter_bwd_batch"},
    FmhaReceipt{400, "aiter_bwd_group"}, FmhaReceipt{600, "aiter_cpp"},
    FmhaReceipt{800, "fp32_all"},        FmhaReceipt{801, "fp32_min"},
    FmhaReceipt{888, "fp8_test"}};

}  // namespace detail

class FmhaRegistry
    : public BaseRegistry<FmhaRegistry, FmhaKernelKey, FmhaKernelInstance, FmhaKernelKeyHash> {
 public:
  using Base = BaseRegistry<FmhaRegistry, FmhaKernelKey, FmhaKernelInstance, FmhaKernelKeyHash>;
  using Base::register_kernel;

  explicit FmhaRegistry(const std::string& name = "default") { set_name(name); }
  ~FmhaRegistry() { export_at_end(); }

  bool register_kernel(FmhaKernelInstancePtr instance, Priority priority = Priority::Normal) {
    const FmhaKernelKey key = instance->get_key();
    return register_kernel(key, std::move(instance), priority);
  }
  // Returns how many kernels are new.
  std::size_t register_set(const FmhaKernelSet& set, Priority priority = Priority::Normal) {
    std::size_t count = 0;
    for (const FmhaDeclaration& wanted : set.declarations()) {
      const std::shared_ptr<Machine> machine = machine_for(wanted.arch);
      for (const tessera::KernelSpec& spec : kernels_of(wanted)) {
        count +=
            register_kernel(std::make_shared<FmhaKernelInstance>(spec, machine), priority) ? 1 : 0;
      }
    }
    return count;
  }
  FmhaKernelInstancePtr lookup(const std::string& identifier) const {
    for (const FmhaKernelInstancePtr& one : get_all()) {
      if (one->get_name() == identifier) return one;
    }
    return nullptr;
  }
  FmhaKernelInstancePtr lookup(const FmhaKernelKey& key) const { return find_key(key); }
  std::vector<FmhaKernelInstancePtr> get_all() const { return by_priority(); }
  std::vector<FmhaKernelInstancePtr> filter(
      const std::function<bool(const FmhaKernelInstance&)>& keep) const {
    std::vector<FmhaKernelInstancePtr> kept;
    for (const FmhaKernelInstancePtr& one : by_priority()) {
      if (keep(*one)) kept.push_back(one);
    }
    return kept;
  }
  // These two keep what fits, and return how many kernels were removed.
  std::size_t filter_by_arch(const std::string& arch) {
    const std::string name = machine_for(arch)->name;
    return keep_if([&](const FmhaKernelInstance& one) { return one.spec().target == name; });
  }
  // Throws DispatcherError for an unknown number.
  std::size_t filter_by_receipt(int number) {
    const tessera::Registry kept = by_receipt(std::to_string(number));
    return keep_if([&](const FmhaKernelInstance& one) { return kept.contains(one.get_name()); });
  }
  // The numbers of the receipts that have a kernel here.
  std::vector<int> available_receipts() const {
    std::vector<int> numbers;
    for (const std::string& name : all_in_tessera().receipts()) {
      for (const detail::FmhaReceipt& each : detail::kFmhaReceipts) {
        if (name == each.name) numbers.push_back(each.number);
      }
    }
    return numbers;
  }
  std::string export_json(bool include_statistics = true) const {
    detail::Counts counts;
    std::string rows;
    for (const FmhaKernelInstancePtr& one : get_all()) {
      const auto& s = std::get<tessera::FmhaSignature>(one->spec().signature);
      counts["by_datatype"][std::string(tessera::to_string(s.in))]++;
      counts["by_family"][std::string(tessera::to_string(s.kind))]++;
      counts["by_pipeline"][std::string(tessera::to_string(one->spec().algorithm.pipeline))]++;
      rows += std::string(rows.empty() ? "" : ",") +
              "\n    {\"identifier\": " + detail::json_quoted(one->get_name()) +
              ", \"name\": " + detail::json_quoted(one->get_name()) +
              ", \"algorithm\": " + detail::algorithm_json(one->spec()) +
              ", \"gfx_arch\": " + detail::json_quoted(one->spec().target) + "}";
    }
    return detail::registry_json(get_name(), size(), include_statistics, counts, rows);
  }
  // Whether it was written.
  bool export_json_to_file(const std::string& path, bool include_statistics = true) const {
    try {
      write_file(path, export_json(include_statistics));
    } catch (const DispatcherError&) {
      return false;
    }
    return true;
  }
  static FmhaRegistry& instance() {
    static FmhaRegistry registry("instance");
    return registry;
  }

 private:
  tessera::Registry all_in_tessera() const {
    tessera::Registry all("all");
    for (const FmhaKernelInstancePtr& one : get_all()) all.declare(one->spec());
    return all;
  }
  tessera::Registry by_receipt(const std::string& receipt) const {
    try {
      return all_in_tessera().filtered_by_receipt(receipt);
    } catch (const tessera::Error& error) {
      throw DispatcherError(error.what());
    }
  }
};

inline std::shared_ptr<FmhaRegistry> make_fmha_registry(const std::string& name) {
  return std::make_shared<FmhaRegistry>(name);
}

}  // namespace ck_tile::dispatcher
