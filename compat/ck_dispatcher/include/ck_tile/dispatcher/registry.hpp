// The GEMM kernels that a dispatcher chooses from.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ck_tile/dispatcher/base_registry.hpp"
#include "ck_tile/dispatcher/json_text.hpp"
#include "ck_tile/dispatcher/kernel_decl.hpp"
#include "ck_tile/dispatcher/kernel_instance.hpp"

namespace ck_tile::dispatcher {

class Registry : public BaseRegistry<Registry, KernelKey, KernelInstance, KernelKeyHash> {
 public:
  using Base = BaseRegistry<Registry, KernelKey, KernelInstance, KernelKeyHash>;
  using Base::register_kernel;

  Registry() = default;
  explicit Registry(const std::string& name) { set_name(name); }
  ~Registry() { export_at_end(); }

  bool register_kernel(KernelInstancePtr instance, Priority priority = Priority::Normal) {
    const KernelKey key = instance->get_key();
    return register_kernel(key, std::move(instance), priority);
  }
  // The kernels of a declared set. Returns how many are new.
  std::size_t register_set(const decl::KernelSet& set, Priority priority = Priority::Normal) {
    std::size_t count = 0;
    for (const decl::Declaration& wanted : set.declarations()) {
      const std::shared_ptr<Machine> machine = machine_for(wanted.arch);
      for (const tessera::KernelSpec& spec : decl::kernels_of(wanted)) {
        count += register_kernel(std::make_shared<KernelInstance>(spec, machine), priority) ? 1 : 0;
      }
    }
    return count;
  }

  // By Tessera's name; null where it is not here.
  KernelInstancePtr lookup(const std::string& identifier) const {
    for (const KernelInstancePtr& instance : get_all()) {
      if (instance->get_name() == identifier) return instance;
    }
    return nullptr;
  }
  KernelInstancePtr lookup(const KernelKey& key) const { return find_key(key); }
  // By falling priority.
  std::vector<KernelInstancePtr> get_all() const { return by_priority(); }
  std::vector<KernelInstancePtr> filter(
      const std::function<bool(const KernelInstance&)>& keep) const {
    std::vector<KernelInstancePtr> kept;
    for (const KernelInstancePtr& instance : get_all()) {
      if (keep(*instance)) kept.push_back(instance);
    }
    return kept;
  }
  // Keeps the kernels of one target, and returns how many were removed.
  std::size_t filter_by_arch(const std::string& arch) {
    const std::string name = machine_for(arch)->name;
    return keep_if([&](const KernelInstance& one) { return one.spec().target == name; });
  }

  std::string export_json(bool include_statistics = true) const;
  void export_json_to_file(const std::string& path, bool include_statistics = true) const {
    write_file(path, export_json(include_statistics));
  }

  static Registry& instance() {
    static Registry registry("instance");
    return registry;
  }
};

inline std::shared_ptr<Registry> make_registry(const std::string& name) {
  return std::make_shared<Registry>(name);
}

inline std::string Registry::export_json(bool include_statistics) const {
  detail::Counts counts;
  std::string rows;
  for (const KernelInstancePtr& instance : get_all()) {
    const KernelKey& key = instance->get_key();
    counts["by_datatype"][detail::word(key.signature.dtype_a)]++;
    counts["by_pipeline"][detail::word(key.algorithm.pipeline)]++;
    counts["by_scheduler"][detail::word(key.algorithm.scheduler)]++;
    counts["by_gfx_arch"][key.gfx_arch]++;
    rows += std::string(rows.empty() ? "" : ",") +
            "\n    {\"identifier\": " + detail::json_quoted(key.encode_identifier()) +
            ", \"name\": " + detail::json_quoted(instance->get_name()) +
            ", \"algorithm\": " + detail::algorithm_json(instance->spec()) +
            ", \"gfx_arch\": " + detail::json_quoted(key.gfx_arch) + "}";
  }
  return detail::registry_json(get_name(), size(), include_statistics, counts, rows);
}

// The kernels that come with Tessera for fp16 and rcr, as the original's generated function
// registers what was generated.
inline std::size_t register_all_tile_gemm_kernels(const std::string& gfx_arch = {},
                                                  Priority priority = Priority::Normal,
                                                  Registry& registry = Registry::instance()) {
  const std::shared_ptr<Machine> machine = machine_for(gfx_arch);
  std::size_t count = 0;
  for (const tessera::KernelSpec& spec : shipped(*machine, "fp16_rcr_essential")) {
    count += registry.register_kernel(std::make_shared<KernelInstance>(spec, machine), priority);
  }
  return count;
}

inline std::size_t get_tile_gemm_kernel_count(const std::string& gfx_arch = {}) {
  return shipped(*machine_for(gfx_arch), "fp16_rcr_essential").size();
}

}  // namespace ck_tile::dispatcher
