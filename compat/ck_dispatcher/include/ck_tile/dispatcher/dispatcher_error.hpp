// What the dispatchers throw.
#pragma once

#include <stdexcept>

namespace ck_tile::dispatcher {

struct DispatcherError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// No kernel of the registry computes the problem.
struct NoKernelFound : DispatcherError {
  using DispatcherError::DispatcherError;
};

// A kernel that was asked for by name cannot compute the problem.
struct UnsupportedProblem : DispatcherError {
  using DispatcherError::DispatcherError;
};

}  // namespace ck_tile::dispatcher
