// What the dispatchers throw.
#pragma once

#include <stdexcept>
#include <string>

namespace tessera_ck {

class DispatcherError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// No kernel of the registry computes the problem.
class NoKernelFound : public DispatcherError {
 public:
  using DispatcherError::DispatcherError;
};

// A kernel that was asked for by name cannot compute the problem.
class UnsupportedProblem : public DispatcherError {
 public:
  using DispatcherError::DispatcherError;
};

}  // namespace tessera_ck
