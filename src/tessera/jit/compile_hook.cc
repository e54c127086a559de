#include "tessera/jit/compile_hook_internal.h"

#include <fmt/format.h>

#include <memory>
#include <mutex>
#include <utility>

#include "tessera/base/error.h"
#include "tessera/base/forever.h"
#include "tessera/base/fork.h"
#include "tessera/base/log.h"

namespace tessera::jit {
namespace {

struct HookState {
  Mutex mutex;
  std::shared_ptr<const CompileHook> hook;  // stays while it runs, even if it is replaced
};

HookState& hook_state() {
  static Forever<HookState> instance;
  return *instance;
}

thread_local const Problem* t_problem = nullptr;

bool may_compile(const Compilation& compilation, const CompileHook& own) {
  if (own && !own(compilation)) return false;
  std::shared_ptr<const CompileHook> hook;
  {
    const std::lock_guard lock(hook_state().mutex);
    hook = hook_state().hook;
  }
  return hook == nullptr || (*hook)(compilation);
}

}  // namespace

void set_compile_hook(CompileHook hook) {
  std::shared_ptr<const CompileHook> other;
  if (hook) other = std::make_shared<const CompileHook>(std::move(hook));
  const std::lock_guard lock(hook_state().mutex);
  hook_state().hook.swap(other);
}

ForProblem::ForProblem(const Problem& problem) : outer_(std::exchange(t_problem, &problem)) {}
ForProblem::~ForProblem() { t_problem = outer_; }

std::string why_this_thread_compiles() {
  return t_problem == nullptr ? "" : fmt::format("for '{}'", to_string(*t_problem));
}

void announce(const Compilation& compilation, const CompileHook& own) {
  const std::string& why = compilation.why;
  log(LogLevel::info,
      fmt::format("compiles {}{}{}", compilation.kernel, why.empty() ? "" : " ", why));
  if (may_compile(compilation, own)) return;
  throw Error(ErrorCode::jit_disabled,
              fmt::format("{}: is neither in a pack nor in the cache, and the program's compile "
                          "hook refused to compile it; let it or ship a pack with 'tessera pack'",
                          compilation.kernel));
}

}  // namespace tessera::jit
