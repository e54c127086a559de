#include "live.h"

#include <cstring>
#include <new>
#include <stdexcept>

namespace ck_compat {
namespace {

thread_local std::string error_text;
thread_local std::string kept_text;

Outcome outcome_of(const tessera::Error& error) {
  switch (error.code()) {
    case tessera::ErrorCode::invalid_argument:
    case tessera::ErrorCode::parse_error:
      return Outcome::invalid;
    case tessera::ErrorCode::unsupported:
    case tessera::ErrorCode::not_found:
    case tessera::ErrorCode::illegal_spec:
    case tessera::ErrorCode::jit_disabled:
      return Outcome::no_kernel;
    default:
      return Outcome::failed;
  }
}

}  // namespace

void set_error(const std::string& sentence) { error_text = sentence; }
const char* last_error() { return error_text.c_str(); }

const char* keep(std::string text) {
  kept_text = std::move(text);
  return kept_text.c_str();
}

Outcome guarded(const std::function<void()>& work) {
  const auto failed = [](const char* sentence) {
    set_error(sentence);
    return Outcome::failed;
  };
  constexpr const char* kNoMemory =
      "there is not enough memory for a problem of these sizes; give smaller ones";
  try {
    work();
    return Outcome::done;
  } catch (const tessera::Error& error) {
    set_error(error.what());
    return outcome_of(error);
  } catch (const std::bad_alloc&) {
    return failed(kNoMemory);
  } catch (const std::length_error&) {
    return failed(kNoMemory);
  } catch (const std::exception& error) {
    return failed(error.what());
  }
}

Live::Live(const std::string& arch, const std::vector<std::string>& sets, int cold, int repeat)
    : machine(machine_for(arch)), timing_{cold, repeat} {
  for (const std::string& set : sets) {
    for (auto& spec : shipped(*machine, set)) kernels.push_back(spec);
  }
}

tessera::Dispatcher& Live::dispatcher(bool is_deterministic) const {
  tessera::Dispatcher& chosen = machine->dispatcher_for(is_deterministic);
  chosen.set_timing(timing_.cold, timing_.repeat);
  return chosen;
}

bool Live::is_refused() const {
  if (!machine->refusal.empty()) set_error(machine->refusal);
  return !machine->refusal.empty();
}

// A CPU's kernel is chosen for the threads that a run would have.
std::optional<std::string> Live::chosen(std::string key,
                                        const std::function<tessera::Problem()>& problem) const {
  key += key_of(tessera::runtime::thread_limit({}));
  {
    const std::lock_guard lock(mutex_);
    if (const auto known = chosen_.find(key); known != chosen_.end()) return known->second;
  }
  std::optional<std::string> name;
  guarded([&] { name = machine->dispatcher->explain(problem()).name; });
  const std::lock_guard lock(mutex_);
  return name ? chosen_.emplace(key, *name).first->second : name;
}

int Library::renew(const Make& make) {
  const Outcome outcome = guarded([&] {
    std::shared_ptr<const Live> made = make();
    const std::lock_guard lock(mutex_);
    live_ = std::move(made);
  });
  return outcome == Outcome::done ? 0 : -1;
}

int Library::ensure(const Make& make) { return get() != nullptr ? 0 : renew(make); }

void Library::end() {
  const std::lock_guard lock(mutex_);
  live_ = nullptr;
}

std::shared_ptr<const Live> Library::get() const {
  const std::lock_guard lock(mutex_);
  return live_;
}

std::shared_ptr<const Live> Library::required() const {
  std::shared_ptr<const Live> live = get();
  if (live == nullptr) set_error(std::string(first_) + "() was not called");
  return live;
}

int Library::kernel_count() const {
  const auto live = get();
  return live == nullptr ? 0 : static_cast<int>(live->kernels.size());
}

int Library::copy_name_at(int index, char* buffer, int size) const {
  const auto live = get();
  const int count = live == nullptr ? 0 : static_cast<int>(live->kernels.size());
  if (index >= 0 && index < count) {
    return copy_name(tessera::name_of(live->kernels[static_cast<std::size_t>(index)]), buffer,
                     size);
  }
  set_error(live == nullptr ? "the library is not initialised, so that it has no kernels"
                            : "the number of a kernel must be from 0 to " +
                                  std::to_string(count - 1) + ", got " + std::to_string(index));
  return -1;
}

const char* Library::target() const {
  const auto live = get();
  if (live == nullptr) return "not initialised";
  return keep("target " + live->machine->name + " (" + live->machine->why + ")");
}

int copy_name(const std::string& name, char* buffer, int size) {
  if (buffer == nullptr || size <= static_cast<int>(name.size())) {
    set_error("a buffer of " + std::to_string(size) + " bytes has no room for '" + name +
              "', which needs " + std::to_string(name.size() + 1));
    return -1;
  }
  std::memcpy(buffer, name.c_str(), name.size() + 1);
  return 0;
}

Staging::Staging(const Live& live)
    : place_{&tessera::runtime::backend_for(live.machine->dispatcher->target()), {}},
      in_place_(place_.backend->uses_host_memory()) {}

const void* Staging::read(const void* host, std::size_t bytes) {
  if (in_place_ || host == nullptr) return host;
  buffers_.emplace_back(place_, bytes);
  place_.backend->copy_to_device(buffers_.back().data(), host, bytes, place_.options);
  return buffers_.back().data();
}

void* Staging::write(void* host, std::size_t bytes) {
  if (in_place_ || host == nullptr) return host;
  buffers_.emplace_back(place_, bytes);
  written_.push_back({host, buffers_.back().data(), bytes});
  return buffers_.back().data();
}

void Staging::copy_back() {
  if (in_place_) return;
  place_.backend->synchronize(place_.options);
  for (const Written& one : written_) {
    place_.backend->copy_to_host(one.host, one.device, one.bytes, place_.options);
  }
}

}  // namespace ck_compat
