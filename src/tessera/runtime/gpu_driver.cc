#include "tessera/runtime/gpu_driver_internal.h"

#include <fmt/format.h>

#include <algorithm>

#include "tessera/base/fork.h"

namespace tessera::runtime::gpu {
namespace {

void note_fork() {
  for (const Vendor* vendor : {&cuda_vendor(), &hip_vendor()}) {
    DriverState& state = vendor->state();
    if (state.begun.load()) state.forked.store(true);
  }
}

bool is_one_of(Result result, std::span<const Result> results) {
  return std::find(results.begin(), results.end(), result) != results.end();
}

}  // namespace

const Driver& driver(const Vendor& vendor) {
  const DriverLibrary& library = vendor.library();
  if (is_usable(vendor)) return library.functions;
  DriverState& state = vendor.state();
  if (state.forked.load()) {
    throw Error(ErrorCode::unsupported,
                fmt::format("this process was forked after its parent had used a GPU, and {} does "
                            "not work in such a child: fork before the first launch, or start the "
                            "child with exec",
                            vendor.driver));
  }
  if (!library.reason.empty()) throw Error(ErrorCode::unsupported, library.reason);

  const std::lock_guard lock(state.mutex);
  at_fork_in_child(note_fork);
  state.begun.store(true);
  if (const Result result = library.functions.init(0); result != kSuccess) {
    state.begun.store(false);
    throw Error(ErrorCode::unsupported, vendor.init_failure(library, result));
  }
  state.initialised.store(true, std::memory_order_release);
  return library.functions;
}

bool is_usable(const Vendor& vendor) noexcept {
  const DriverState& state = vendor.state();
  return state.initialised.load(std::memory_order_acquire) &&
         !state.forked.load(std::memory_order_relaxed);
}

std::string describe(const Vendor& vendor, Result result) {
  return vendor.describe(vendor.library().functions, result);
}

std::string describe(Result result, const char* name, const char* text) {
  if (name == nullptr) return fmt::format("the driver's error {}", result);
  return text == nullptr ? std::string(name) : fmt::format("{} ({})", name, text);
}

bool is_sticky(const Vendor& vendor, Result result) {
  return is_one_of(result, vendor.lost_results);
}

ErrorCode code_of(const Vendor& vendor, Result result) {
  if (result == kOutOfMemory) return ErrorCode::out_of_memory;
  return is_one_of(result, vendor.machine_results) ? ErrorCode::unsupported
                                                   : ErrorCode::launch_failed;
}

void check(const Vendor& vendor, Result result, std::string_view what) {
  if (result == kSuccess) return;
  throw Error(code_of(vendor, result), fmt::format("{}: {}", what, describe(vendor, result)));
}

}  // namespace tessera::runtime::gpu
