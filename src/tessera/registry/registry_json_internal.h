// The parts that the JSON of kernel sets and the JSON of registries share.
#pragma once

#include <nlohmann/json.hpp>
#include <vector>

#include "tessera/registry/registry.h"
#include "tessera/spec/json_internal.h"

namespace tessera {

// Reads a kernel set from an object whose keys have been checked.
KernelSet read_kernel_set(const nlohmann::json& value, const JsonPlace& place);

nlohmann::ordered_json kernel_set_json(const KernelSet& set);

}  // namespace tessera
