// JSON that worker processes and their parents share.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tessera/measure/child.h"

namespace tessera::measure {

// A path may contain any bytes, but a JSON text is UTF-8.
inline void to_json(nlohmann::json& out, const WorkerKernel& kernel) {
  out = {kernel.name, std::vector<unsigned char>(kernel.binary.begin(), kernel.binary.end())};
}
inline void from_json(const nlohmann::json& in, WorkerKernel& kernel) {
  const auto bytes = in.at(1).get<std::vector<unsigned char>>();
  kernel = {in.at(0).get<std::string>(), std::string(bytes.begin(), bytes.end())};
}

// The value in one line. Notes may contain a path; bytes that are not UTF-8 are replaced.
inline std::string line_of(const nlohmann::json& value) {
  return value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace tessera::measure
