// Registries, and how kernels are built for them.
#include "tessera/base/text.h"
#include "tessera/c_api/callbacks_internal.h"
#include "tessera/c_api/handles_internal.h"

namespace tessera::c_api {
namespace {

Registry& registry_of(tsr_registry_t* handle) { return *object_of(handle, "registry").registry; }
const Registry& registry_of(const tsr_registry_t* handle) {
  return *object_of(handle, "registry").registry;
}

void hand_out_registry(Registry registry, tsr_registry_t** place) {
  auto made = std::make_unique<tsr_registry_t>();
  made->registry = std::make_shared<Registry>(std::move(registry));
  hand_out(*place, made.release());
}

Json to_json(const std::vector<jit::BuildResult>& results) {
  Json rows = Json::array();
  for (const jit::BuildResult& result : results) {
    rows.push_back({{"kernel", result.name},
                    {"was_cached", result.was_cached},
                    {"seconds", result.seconds},
                    {"error", result.error}});
  }
  return {{"results", rows}};
}

Json list_of(const Registry& registry) {
  Json rows = Json::array();
  for (const KernelSpec& spec : registry.declared()) {
    const std::string name = name_of(spec);
    rows.push_back({{"kernel", name}, {"is_loaded", registry.find(name) != nullptr}});
  }
  return {{"kernels", rows}};
}

}  // namespace

jit::BuildOptions build_options_of(const tsr_build_options_t* given) {
  const tsr_build_options_t options = options_of(given, "tsr_build_options_t");
  check_least("cache_bytes", static_cast<double>(options.cache_bytes), 0);
  check_least("timeout_seconds", options.timeout_seconds, 0);
  check_seconds("timeout_seconds", options.timeout_seconds);
  jit::BuildOptions build;
  build.cache.folder = text_or_empty(options.cache);
  if (options.cache_bytes > 0) build.cache.max_bytes = options.cache_bytes;
  build.compiler = text_or_empty(options.compiler);
  build.nvrtc = text_or_empty(options.nvrtc);
  build.hip_compiler = text_or_empty(options.hip_compiler);
  build.worker = text_or_empty(options.worker);
  for (const char* const* pack = options.packs; pack != nullptr && *pack != nullptr; ++pack) {
    build.packs.emplace_back(*pack);
  }
  build.use_shipped_packs = options.no_shipped_packs == 0;
  build.allow_compile = options.no_compile == 0;
  if (options.timeout_seconds > 0) build.timeout_seconds = options.timeout_seconds;
  return build;
}

#pragma GCC visibility push(default)
extern "C" {

tsr_status_t tsr_registry_create(const char* name, const tsr_build_options_t* build,
                                 tsr_registry_t** registry) {
  return guarded([&] {
    result_of(registry, "registry");
    hand_out_registry(
        Registry(std::string(text_of(name, "registry's name")), build_options_of(build)), registry);
  });
}

tsr_status_t tsr_registry_add_target(tsr_registry_t* registry, const char* file) {
  return guarded(
      [&] { registry_of(registry).add_target(load_target(text_of(file, "target's file"))); });
}

tsr_status_t tsr_registry_declare(tsr_registry_t* registry, const tsr_kernel_set_t* set) {
  return guarded([&] { registry_of(registry).declare(kernel_set_of(set)); });
}

tsr_status_t tsr_registry_build(tsr_registry_t* registry, int jobs,
                                const tsr_callbacks_t* callbacks, char** json) {
  return guarded([&] {
    check_least("jobs", jobs, 0);
    Registry& kernels = registry_of(registry);
    const Callbacks calls(callbacks);
    const auto results = kernels.build(
        jobs, [&](std::size_t done, std::size_t total, const jit::BuildResult& result) {
          calls.check_stop();
          calls.progress("build", done, total, result.name);
        });
    if (json != nullptr) *json = json_copy(to_json(results));
  });
}

tsr_status_t tsr_registry_list(const tsr_registry_t* registry, char** json) {
  return guarded([&] {
    result_of(json, "JSON");
    *json = json_copy(list_of(registry_of(registry)));
  });
}

tsr_status_t tsr_registry_filter(const tsr_registry_t* registry, const char* pattern,
                                 tsr_registry_t** filtered) {
  return guarded([&] {
    result_of(filtered, "registry");
    const std::string wildcard = pattern == nullptr ? "*" : pattern;
    hand_out_registry(registry_of(registry).filtered([&](const KernelSpec& spec) {
      return matches_wildcard(wildcard, name_of(spec));
    }),
                      filtered);
  });
}

tsr_status_t tsr_registry_filter_receipt(const tsr_registry_t* registry, const char* receipt,
                                         tsr_registry_t** filtered) {
  return guarded([&] {
    result_of(filtered, "registry");
    hand_out_registry(registry_of(registry).filtered_by_receipt(text_of(receipt, "receipt's name")),
                      filtered);
  });
}

tsr_status_t tsr_registry_receipts(const tsr_registry_t* registry, char** json) {
  return guarded([&] {
    result_of(json, "JSON");
    *json = json_copy({{"receipts", registry_of(registry).receipts()}});
  });
}

tsr_status_t tsr_registry_merge(tsr_registry_t* registry, const tsr_registry_t* other) {
  return guarded([&] { registry_of(registry).merge(registry_of(other)); });
}

tsr_status_t tsr_registry_export(const tsr_registry_t* registry, char** json) {
  return guarded([&] {
    result_of(json, "JSON");
    *json = copy_of(registry_of(registry).export_json());
  });
}

tsr_status_t tsr_registry_import(tsr_registry_t* registry, const char* json) {
  return guarded([&] { registry_of(registry).import_json(text_of(json, "registry's JSON")); });
}

void tsr_registry_destroy(tsr_registry_t* registry) { destroy(registry); }

}  // extern "C"
#pragma GCC visibility pop

}  // namespace tessera::c_api
