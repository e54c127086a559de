// Runs a command in process and reads its JSON.
#pragma once

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "tessera/commands/commands.h"

namespace tessera::commands {

using Json = nlohmann::ordered_json;

inline Json run_json(std::string_view name, const std::string& options, int status = 0,
                     const CommandCallbacks& callbacks = {}) {
  const CommandResult result = run_command(name, options, callbacks);
  EXPECT_EQ(result.status, status) << name << " " << options << "\n" << result.json;
  EXPECT_EQ(result.json.find('\n'), std::string::npos);
  return Json::parse(result.json);
}

}  // namespace tessera::commands
