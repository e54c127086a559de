// The choice where nothing can be compiled: among the kernels that are ready.
#pragma once

#include <string>
#include <string_view>

#include "tessera/base/error.h"
#include "tessera/dispatch/dispatcher.h"

namespace tessera {

// Whether the kernel of a candidate that was not refused is ready. `failed` is the name of a kernel
// that is known not to load, or empty.
bool can_run(const Considered& candidate, Registry& registry, std::string_view failed);

// The same decision where all other kernels are refused, for the sentence `no_compiler`. It stays
// as it is where no kernel is ready. Otherwise its accepted kernels, best first, are all ready.
Decision among_ready(Decision decision, Registry& registry, const std::string& no_compiler,
                     std::string_view failed);

// Makes one of the decision's accepted kernels the chosen one.
void take(Decision& decision, const Considered& candidate);

// The error where no kernel for the problem is ready; `missing` is about the best one.
Error nothing_ready(const Problem& problem, const Error& missing);

// Whether another kernel may do where a kernel could not be had for this reason.
bool is_missing(const Error& error);

}  // namespace tessera
