// The parts that the documents of kernel sets and of registries share.
#pragma once

#include <nlohmann/json.hpp>
#include <vector>

#include "tessera/registry/registry.h"
#include "tessera/spec/json_internal.h"

namespace tessera {

// The set in an object whose keys have been checked.
KernelSet read_kernel_set(const nlohmann::json& value, const JsonPlace& place);

nlohmann::ordered_json kernel_set_json(const KernelSet& set);

}  // namespace tessera
