// The commands of the command line, in process: options and results are JSON.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

namespace tessera::commands {

// What a running command calls. Both may be empty, and both may throw, which ends the command.
struct CommandCallbacks {
  // How far the activity `label` is. Called by one thread at a time, which may be another one than
  // the caller's.
  std::function<void(std::string_view label, std::size_t done, std::size_t total,
                     std::string_view what)>
      progress;
  // True: the command shall end soon. Several threads may ask at once.
  std::function<bool()> stop;
};

struct CommandResult {
  int status = 0;    // 1: it ended, and the JSON says what is wrong, such as kernels that mismatch
  std::string json;  // the object that `tessera COMMAND --json` prints
};

// Runs the command `name`. The options are a JSON object. Its keys are the command's long options
// without the dashes before them, and its positional words by the names that `tessera COMMAND
// --help` shows; '_' may stand for '-'. A flag is true or false. Every other value is a text, a
// number, or a list of these; each element of a list is taken as it is, with its commas. A problem
// is the text {"problem": "gemm m=128 n=3072 k=768"}. An empty text stands for no options.
//
// Any number of threads may run commands at once. Commands never write to stdout or stderr. Throws
// Error{not_found} for an unknown command, Error{parse_error} for malformed JSON,
// Error{invalid_argument} for unknown options and wrong values, Error{cancelled} when `stop` ended
// the command, and what the command itself throws. A sweep and a tuning that are stopped return
// with "stopped": true and keep what is complete.
CommandResult run_command(std::string_view name, std::string_view options_json,
                          const CommandCallbacks& callbacks = {});

}  // namespace tessera::commands
