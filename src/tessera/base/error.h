// The one exception type of the library, and the table of its codes.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

#pragma GCC visibility push(default)
namespace tessera {

enum class ErrorCode {
  ok,
  invalid_argument,     // a problem, operand or option breaks a stated rule
  parse_error,          // malformed name, JSON, shape line or file
  not_found,            // no kernel, target, file or command of that name
  unsupported,          // valid, but nothing here can do it
  illegal_spec,         // a kernel spec that its target cannot run
  compile_failed,       // the compiler is missing or refused the source
  load_failed,          // a binary could not be loaded or lacks its symbol
  launch_failed,        // a GPU refused a kernel or an operation, or failed at it
  jit_disabled,         // a kernel is missing and TESSERA_NO_JIT=1 forbids building it
  io_error,             // the file system refused
  cache_refused,        // the cache folder is unsafe to use
  verification_failed,  // a result is outside its tolerance
  crashed,              // a child process died on a signal
  timeout,              // a child process ran past its limit
  out_of_memory,
  internal,
  cancelled,  // the caller asked for the end before it was done
};

// One row per code, in enum order: the spelling used in JSON and the C ABI.
std::string_view to_string(ErrorCode code);

// what() is a whole sentence: what broke, the rule, what was given, what to do. A sentence of more
// than 4000 bytes is cut in the middle.
class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& message, std::string context = {});

  ErrorCode code() const { return code_; }

  // Longer evidence, such as a compiler's output; may be empty.
  const std::string& context() const { return context_; }

 private:
  ErrorCode code_;
  std::string context_;
};

}  // namespace tessera
#pragma GCC visibility pop
