// The GEMM kernels that a dispatcher chooses from.
#pragma once

#include <memory>
#include <string>

#include "tessera_ck/kernel_decl.hpp"
#include "tessera_ck/kernel_instance.hpp"
#include "tessera_ck/kernel_registry.hpp"

namespace tessera_ck {

class Registry : public KernelRegistry<Registry, KernelKey, KernelInstance, KernelKeyHash> {
 public:
  Registry() = default;
  explicit Registry(const std::string& name) { set_name(name); }
  ~Registry() { export_at_end(); }

  std::string export_json(bool include_statistics = true) const {
    return json_of(include_statistics, [](const KernelInstance& one, detail::Counts& counts) {
      const KernelKey& key = one.get_key();
      counts["by_datatype"][detail::word(key.signature.dtype_a)]++;
      counts["by_pipeline"][detail::word(key.algorithm.pipeline)]++;
      counts["by_scheduler"][detail::word(key.algorithm.scheduler)]++;
      counts["by_gfx_arch"][key.gfx_arch]++;
      return detail::kernel_json(one.spec(), key.encode_identifier());
    });
  }
  void export_json_to_file(const std::string& path, bool include_statistics = true) const {
    write_file(path, export_json(include_statistics));
  }
};

inline std::shared_ptr<Registry> make_registry(const std::string& name) {
  return std::make_shared<Registry>(name);
}

// The kernels that come with Tessera for fp16 and rcr, as the original's generated function
// registers what was generated.
inline std::size_t register_all_tile_gemm_kernels(const std::string& gfx_arch = {},
                                                  Priority priority = Priority::Normal,
                                                  Registry& registry = Registry::instance()) {
  const std::shared_ptr<Machine> machine = machine_for(gfx_arch);
  return registry.register_specs(shipped(*machine, "fp16_rcr_essential"), machine, priority);
}

inline std::size_t get_tile_gemm_kernel_count(const std::string& gfx_arch = {}) {
  return shipped(*machine_for(gfx_arch), "fp16_rcr_essential").size();
}

}  // namespace tessera_ck
