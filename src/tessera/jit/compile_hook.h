// What a program hears, and may refuse, before anything is compiled.
#pragma once

#include <functional>
#include <string>

#pragma GCC visibility push(default)
namespace tessera::jit {

// One start of a compiler that is about to happen.
struct Compilation {
  std::string kernel;  // the name of the kernel, or of an object that kernels share
  std::string target;
  std::string why;  // "for '<problem>'" or "a part of <kernel>"; empty: somebody builds by name
};

// True lets the compiler start. False refuses: the kernel is then missing, as with
// allow_compile = false. Threads may call it at the same time. It must not run problems.
using CompileHook = std::function<bool(const Compilation&)>;

// Replaces the hook of the whole process, which is asked beside that of BuildOptions; an empty
// function removes it. Thread-safe.
void set_compile_hook(CompileHook hook);

}  // namespace tessera::jit
#pragma GCC visibility pop
