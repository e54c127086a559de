// Kernel sets, declared step by step or read.
#include "tessera/c_api/handles_internal.h"

namespace tessera::c_api {
namespace {

KernelSetBuilder& builder_of(tsr_kernel_set_t* handle) {
  tsr_kernel_set_t& set = object_of(handle, "kernel set");
  if (set.builder) return *set.builder;
  refuse(
      fmt::format("kernel set '{}' was read from JSON; declare kernels in one that "
                  "tsr_kernel_set_create() made",
                  set.set.name));
}

}  // namespace

KernelSet kernel_set_of(const tsr_kernel_set_t* handle) {
  const tsr_kernel_set_t& set = object_of(handle, "kernel set");
  return set.builder ? set.builder->build() : set.set;
}

#pragma GCC visibility push(default)
extern "C" {

tsr_status_t tsr_kernel_set_create(const char* name, const char* target, tsr_kernel_set_t** set) {
  return guarded([&] {
    result_of(set, "kernel set");
    const Target row = target == nullptr ? host_target() : load_target(target);
    auto made = std::make_unique<tsr_kernel_set_t>();
    made->builder.emplace(std::string(text_of(name, "kernel set's name")), row);
    hand_out(*set, made.release());
  });
}

tsr_status_t tsr_kernel_set_from_json(const char* json, tsr_kernel_set_t** set) {
  return guarded([&] {
    result_of(set, "kernel set");
    auto made = std::make_unique<tsr_kernel_set_t>();
    made->set = kernel_set_from_json(text_of(json, "kernel set's JSON"));
    hand_out(*set, made.release());
  });
}

tsr_status_t tsr_kernel_set_op(tsr_kernel_set_t* set, const char* op) {
  return guarded([&] { builder_of(set).op(parse_op(text_of(op, "operation"))); });
}

tsr_status_t tsr_kernel_set_where(tsr_kernel_set_t* set, const char* field, const char* pattern) {
  return guarded(
      [&] { builder_of(set).where(text_of(field, "field's name"), text_of(pattern, "pattern")); });
}

tsr_status_t tsr_kernel_set_add(tsr_kernel_set_t* set, const char* kernel) {
  return guarded([&] { builder_of(set).add(text_of(kernel, "kernel's name")); });
}

tsr_status_t tsr_kernel_set_preselected(tsr_kernel_set_t* set, const char* name) {
  return guarded([&] { builder_of(set).preselected(text_of(name, "preselected set's name")); });
}

tsr_status_t tsr_kernel_set_receipt(tsr_kernel_set_t* set, const char* receipt) {
  return guarded([&] { builder_of(set).receipt(text_of(receipt, "receipt's name")); });
}

tsr_status_t tsr_kernel_set_for_problem(tsr_kernel_set_t* set, const tsr_problem_t* problem,
                                        int best) {
  return guarded([&] {
    check_least("best", best, 1);
    builder_of(set).for_problem(problem_of(problem), best);
  });
}

tsr_status_t tsr_kernel_set_json(const tsr_kernel_set_t* set, char** json) {
  return guarded([&] {
    result_of(json, "JSON");
    *json = copy_of(to_json(kernel_set_of(set)));
  });
}

void tsr_kernel_set_destroy(tsr_kernel_set_t* set) { destroy(set); }

}  // extern "C"
#pragma GCC visibility pop

}  // namespace tessera::c_api
