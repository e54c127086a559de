#include "tessera/c_api/callbacks_internal.h"

#include "tessera/base/interruption.h"

namespace tessera::c_api {

void Callbacks::progress(std::string_view label, std::size_t done, std::size_t total,
                         std::string_view what) const {
  if (callbacks_.progress == nullptr) return;
  const std::string name(label);
  const std::string step(what);
  if (callbacks_.progress(callbacks_.user, name.c_str(), done, total, step.c_str()) == 0) return;
  throw Error(ErrorCode::cancelled,
              fmt::format("{}: the call-back ended it after {} of {}", name, done, total));
}

void Callbacks::check_stop() const {
  if (wants_stop()) throw Error(ErrorCode::cancelled, "the call-back ended it");
}

#pragma GCC visibility push(default)
extern "C" {

tsr_status_t tsr_set_stop(int (*stop)(void* user), void* user) {
  return guarded([&] { set_interruption({.stop = stop, .user = user}); });
}

}  // extern "C"
#pragma GCC visibility pop

}  // namespace tessera::c_api
