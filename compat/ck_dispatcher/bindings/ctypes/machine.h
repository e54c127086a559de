// The machines that kernels are for, and Tessera's dispatchers for them.
#pragma once

#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <tessera/tessera.hpp>

#include "ck_tile/dispatcher/dispatcher_error.hpp"

namespace ck_compat {

// One target, shared by all kernels for it.
struct Machine {
  std::unique_ptr<tessera::Dispatcher> dispatcher;
  tessera::DispatcherOptions options;  // the dispatcher's
  std::string name;                    // the row's
  std::string why;                     // how it came to be chosen
  std::string refusal;                 // empty where its kernels run here; else a sentence

  // The one that chooses among kernels alone whose bits do not depend on the order of additions.
  tessera::Dispatcher& deterministic() {
    std::call_once(made_, [this] {
      tessera::DispatcherOptions strict = options;
      strict.deterministic = true;
      deterministic_ = std::make_unique<tessera::Dispatcher>(strict);
    });
    return *deterministic_;
  }
  tessera::Dispatcher& dispatcher_for(bool is_deterministic) {
    return is_deterministic ? deterministic() : *dispatcher;
  }

 private:
  std::once_flag made_;
  std::unique_ptr<tessera::Dispatcher> deterministic_;
};

// What `work` returns; Tessera's errors become DispatcherErrors.
template <class Work>
auto in_sentences(const Work& work) {
  try {
    return work();
  } catch (const tessera::Error& error) {
    throw ck_tile::dispatcher::DispatcherError(error.what());
  }
}

namespace detail {

// Why kernels of a target cannot run here; empty where they can.
inline std::string refusal_of(const tessera::Target& target) {
  const tessera::runtime::Backend* backend = tessera::runtime::find_backend(target);
  return backend != nullptr ? backend->unavailable_reason(target)
                            : "target '" + target.name + "' cannot run here: this build has no '" +
                                  target.backend + "' backend";
}

inline std::string gpu_here() {
  for (const std::string& name : tessera::target_names()) {
    const tessera::Target target = tessera::load_target(name);
    if (target.backend != "cpu" && refusal_of(target).empty()) return name;
  }
  return {};
}

inline std::shared_ptr<Machine> make_machine(const std::string& arch) {
  auto made = std::make_shared<Machine>();
  tessera::DispatcherOptions& options = made->options;
  options.target = arch;
  made->why = "as asked";
  const char* wanted = std::getenv("TESSERA_TARGET");
  if (arch.empty() && wanted != nullptr && *wanted != '\0') {
    made->why = "as TESSERA_TARGET says";
  } else if (arch.empty()) {
    options.target = gpu_here();
    made->why = options.target.empty()
                    ? "this machine's CPU, because no GPU was found that runs kernels"
                    : "this machine's GPU";
  }
  made->dispatcher = std::make_unique<tessera::Dispatcher>(options);
  made->name = made->dispatcher->target().name;
  made->refusal = refusal_of(made->dispatcher->target());
  return made;
}

}  // namespace detail

// `arch`: a target's name, as "gfx942" or "gfx942:sramecc+"; "", "native" and "*" mean this
// machine's GPU, or else its CPU. Throws DispatcherError for an unknown one.
inline std::shared_ptr<Machine> machine_for(const std::string& arch = {}) {
  static std::mutex mutex;
  static std::map<std::string, std::shared_ptr<Machine>> machines;
  std::string name = arch.substr(0, arch.find(':'));
  if (name == "native" || name == "*") name.clear();
  const std::lock_guard lock(mutex);
  std::shared_ptr<Machine>& machine = machines[name];
  if (machine == nullptr) {
    machine = in_sentences([&] { return detail::make_machine(name); });
  }
  return machine;
}

// How a run is timed: runs before the clock is read, and readings.
struct Timing {
  int cold = 5, repeat = 10;
};

// The shipped kernels of a name, or none where the target has no such set.
inline std::vector<tessera::KernelSpec> shipped(const Machine& machine, const std::string& set) {
  try {
    return tessera::KernelSetBuilder(set, machine.dispatcher->target())
        .preselected(set)
        .build()
        .specs;
  } catch (const tessera::Error& error) {
    if (error.code() == tessera::ErrorCode::not_found ||
        error.code() == tessera::ErrorCode::unsupported) {
      return {};
    }
    throw ck_tile::dispatcher::DispatcherError(error.what());
  }
}

}  // namespace ck_compat
