// The caller's call-backs as functions that throw Error{cancelled} where they ask for the end.
#pragma once

#include <cstddef>
#include <string_view>

#include "tessera/c_api/guard_internal.h"

namespace tessera::c_api {

class Callbacks {
 public:
  explicit Callbacks(const tsr_callbacks_t* given)
      : callbacks_(options_of(given, "tsr_callbacks_t")) {}

  // Both throw Error{cancelled} where the call-back asks for the end.
  void progress(std::string_view label, std::size_t done, std::size_t total,
                std::string_view what) const;
  void check_stop() const;
  bool wants_stop() const {
    return callbacks_.stop != nullptr && callbacks_.stop(callbacks_.user) != 0;
  }

 private:
  tsr_callbacks_t callbacks_;
};

}  // namespace tessera::c_api
