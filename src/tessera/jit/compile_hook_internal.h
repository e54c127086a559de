// Asking the hooks, and saying what a compilation is for.
#pragma once

#include <string>

#include "tessera/jit/compile_hook.h"
#include "tessera/spec/problem.h"

namespace tessera::jit {

// While it lives, compilations by this thread are for the problem, which must live as long.
class ForProblem {
 public:
  explicit ForProblem(const Problem& problem);
  ~ForProblem();
  ForProblem(const ForProblem&) = delete;
  ForProblem& operator=(const ForProblem&) = delete;

 private:
  const Problem* outer_;
};

// Why this thread compiles, as Compilation::why says it, where it is for a problem.
std::string why_this_thread_compiles();

// Logs a note, then asks `own` and the hook of the process. Throws Error{jit_disabled} where one
// refuses.
void announce(const Compilation& compilation, const CompileHook& own);

}  // namespace tessera::jit
