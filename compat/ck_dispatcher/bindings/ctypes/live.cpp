#include "live.h"

#include <cstring>
#include <new>
#include <stdexcept>

#include "ck_tile/dispatcher/json_text.hpp"

namespace ck_compat {
namespace {

thread_local std::string error_text;
thread_local std::string kept_text;

constexpr const char* kNoMemory =
    "there is not enough memory for a problem of these sizes; give smaller ones";

}  // namespace

std::shared_ptr<const Live> Slot::get() const {
  const std::lock_guard lock(mutex_);
  return live_;
}

void Slot::set(std::shared_ptr<const Live> live) {
  const std::lock_guard lock(mutex_);
  live_ = std::move(live);
}

void Slot::ensure(const std::function<std::shared_ptr<const Live>()>& make) {
  const std::lock_guard lock(mutex_);
  if (live_ == nullptr) live_ = make();
}

std::shared_ptr<Live> make_live(const std::string& arch, const std::vector<std::string>& sets,
                                int cold, int repeat) {
  auto live = std::make_shared<Live>();
  live->machine = ck_tile::dispatcher::machine_for(arch);
  live->timing = {cold, repeat};
  for (const std::string& set : sets) {
    const std::vector<tessera::KernelSpec> found =
        ck_tile::dispatcher::shipped(*live->machine, set);
    live->kernels.insert(live->kernels.end(), found.begin(), found.end());
  }
  return live;
}

std::string target_text(const std::shared_ptr<const Live>& live) {
  if (live == nullptr) return "not initialised";
  return "target " + live->machine->name + " (" + live->machine->why + ")";
}

void set_error(const std::string& sentence) { error_text = sentence; }
const char* last_error() { return error_text.c_str(); }

const char* keep(std::string text) {
  kept_text = std::move(text);
  return kept_text.c_str();
}

int copy_name_at(const std::shared_ptr<const Live>& live, int index, char* buffer, int size) {
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

int copy_name(const std::string& name, char* buffer, int size) {
  if (buffer == nullptr || size <= static_cast<int>(name.size())) {
    set_error("a buffer of " + std::to_string(size) + " bytes has no room for '" + name +
              "', which needs " + std::to_string(name.size() + 1));
    return -1;
  }
  std::memcpy(buffer, name.c_str(), name.size() + 1);
  return 0;
}

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

Outcome guarded(const std::function<void()>& work) {
  try {
    work();
    return Outcome::done;
  } catch (const tessera::Error& error) {
    set_error(error.what());
    return outcome_of(error);
  } catch (const std::bad_alloc&) {
    set_error(kNoMemory);
    return Outcome::failed;
  } catch (const std::length_error&) {
    set_error(kNoMemory);
    return Outcome::failed;
  } catch (const std::exception& error) {
    set_error(error.what());
    return Outcome::failed;
  }
}

Staging::Staging(const Live& live)
    : place_{&tessera::runtime::backend_for(live.dispatcher().target()), {}},
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

std::string registry_json(const Live& live) {
  namespace text = ck_tile::dispatcher::detail;
  text::Counts counts;
  std::string rows;
  for (const tessera::KernelSpec& spec : live.kernels) {
    if (const auto* gemm = std::get_if<tessera::GemmSignature>(&spec.signature)) {
      ++counts["by_datatype"][std::string(to_string(gemm->a))];
    }
    ++counts["by_pipeline"][std::string(to_string(spec.algorithm.pipeline))];
    ++counts["by_scheduler"][std::string(to_string(spec.algorithm.scheduler))];
    rows += (rows.empty() ? "\n    {" : ",\n    {") +
            text::kernel_json(spec, tessera::name_of(spec)) + "}";
  }
  return text::registry_json("gemm", live.kernels.size(), true, counts, rows);
}

}  // namespace ck_compat
