// A child process with which the parent exchanges lines.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/spawn.h"

namespace tessera {

enum class LineResult { line, timeout, closed };

// The child's standard input and output are one socket; its standard error is dropped. It leads its
// own process group, which is killed when this object is destroyed.
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
  // Kills the child if it still runs, and returns the signal that ended it, 0 for none.
  int end();

 private:
  Child child_;
  int socket_ = -1;
  int signal_ = 0;
  std::string pending_;
};

}  // namespace tessera
