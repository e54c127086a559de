// Handles and texts of the C ABI that a test gives back by itself.
#pragma once

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "tessera/tessera.h"

namespace tessera::testing_support {

template <class T, void (*kDestroy)(T*)>
struct Handle {
  T* it = nullptr;
  Handle() = default;
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  ~Handle() { kDestroy(it); }
  T** operator&() { return &it; }
  operator T*() const { return it; }
};

using CProblem = Handle<tsr_problem_t, tsr_problem_destroy>;
using CKernelSet = Handle<tsr_kernel_set_t, tsr_kernel_set_destroy>;
using CRegistry = Handle<tsr_registry_t, tsr_registry_destroy>;
using CDispatcher = Handle<tsr_dispatcher_t, tsr_dispatcher_destroy>;
using CPlan = Handle<tsr_plan_t, tsr_plan_destroy>;
using CModel = Handle<tsr_model_t, tsr_model_destroy>;
using CText = Handle<char, tsr_free>;

inline nlohmann::json parsed(const CText& text) { return nlohmann::json::parse(text.it); }

// Success, or the library's sentence.
inline testing::AssertionResult ok(tsr_status_t status) {
  if (status == TSR_OK) return testing::AssertionSuccess();
  return testing::AssertionFailure() << tsr_status_name(status) << ": " << tsr_error();
}

// The status with its sentence: "not_found: ...".
inline std::string failure(tsr_status_t status) {
  return std::string(tsr_status_name(status)) + ": " + (status == TSR_OK ? "" : tsr_error());
}

}  // namespace tessera::testing_support
