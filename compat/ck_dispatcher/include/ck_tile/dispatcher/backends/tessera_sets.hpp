// Kernel sets of a target: what the operations' declarations narrow.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "ck_tile/dispatcher/backends/tessera_machine.hpp"

namespace ck_tile::dispatcher::backends {

// Whether a target has kernels of an operation with this pipeline.
inline bool has_pipeline(const Machine& machine, const char* op, const std::string& pipeline) {
  const std::string& row = machine.row();
  const std::size_t space = value_place(row, op, row.find("\"spaces\""));
  if (space == std::string::npos) return false;
  for (const std::string& word : texts_field(row, "pipelines", space)) {
    if (word == pipeline || pipeline == "*") return true;
  }
  return false;
}

using KernelSetHandle = std::shared_ptr<tsr_kernel_set_t>;
inline KernelSetHandle kernel_set(const Machine& machine) {
  return made_by<tsr_kernel_set_t>(tsr_kernel_set_destroy, tsr_kernel_set_create, "declared",
                                   machine.name().c_str());
}

// The names of a set's kernels; none where the rules leave none.
inline std::vector<std::string> names_of(const KernelSetHandle& set) {
  try {
    return texts_field(text_of(tsr_kernel_set_json, set.get()), "kernels");
  } catch (const UnsupportedProblem&) {
    return {};
  }
}

// The shipped kernels of a name, such as "fp16_rcr_essential".
inline std::vector<std::string> shipped_kernels(const Machine& machine, const std::string& name) {
  const KernelSetHandle set = kernel_set(machine);
  const tsr_status_t status = tsr_kernel_set_preselected(set.get(), name.c_str());
  if (status == TSR_NOT_FOUND || status == TSR_UNSUPPORTED) return {};
  check(status);
  return names_of(set);
}

}  // namespace ck_tile::dispatcher::backends
