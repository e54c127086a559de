// A child process that one talks to, line by line.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/spawn.h"

namespace tessera {

enum class LineResult { line, timeout, closed };

// The child's standard input and output are one socket; its standard error is dropped. It leads a
// process group of its own, which is killed whole when this object goes.
class PipedProcess {
 public:
  // Throws Error{not_found} when argv[0] cannot be started.
  explicit PipedProcess(const std::vector<std::string>& argv);
  ~PipedProcess();
  PipedProcess(const PipedProcess&) = delete;
  PipedProcess& operator=(const PipedProcess&) = delete;

  // Adds the newline. False when the child no longer listens.
  bool write_line(std::string_view line);
  // Waits for a whole line, and returns it without its newline.
  LineResult read_line(std::string& line, double timeout_seconds);
  // Kills it if need be and returns the signal that ended it, 0 for none.
  int end();

 private:
  Child child_;
  int socket_ = -1;
  int signal_ = 0;
  std::string pending_;
};

}  // namespace tessera
