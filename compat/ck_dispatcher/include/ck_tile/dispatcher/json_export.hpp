// The JSON of a registry by free functions.
#pragma once

#include <string>

#include "ck_tile/dispatcher/registry.hpp"

namespace ck_tile::dispatcher {

inline std::string export_registry_json(const Registry& registry, bool include_statistics = true) {
  return registry.export_json(include_statistics);
}
inline bool export_registry_json_to_file(const Registry& registry, const std::string& path,
                                         bool include_statistics = true) {
  return registry.export_json_to_file(path, include_statistics);
}

}  // namespace ck_tile::dispatcher
