// Functions of NVIDIA's driver that only tests need, taken from the driver itself.
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <type_traits>

namespace tessera {

template <class Function>
Function driver_function(const char* name) {
  static void* const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  return library == nullptr ? nullptr : reinterpret_cast<Function>(dlsym(library, name));
}

// Calls the driver's function of that name with these argument types; it must succeed.
template <class... Types>
void call(const char* name, std::type_identity_t<Types>... arguments) {
  EXPECT_EQ(driver_function<int (*)(Types...)>(name)(arguments...), 0) << name;
}

// The context of device 0, current here.
class CurrentContext {
 public:
  CurrentContext() {
    call<unsigned>("cuInit", 0U);
    call<void**, int>("cuDevicePrimaryCtxRetain", &context_, 0);
    call<void*>("cuCtxPushCurrent_v2", context_);
  }
  ~CurrentContext() {
    call<void**>("cuCtxPopCurrent_v2", &context_);
    call<int>("cuDevicePrimaryCtxRelease_v2", 0);
  }
  CurrentContext(const CurrentContext&) = delete;
  CurrentContext& operator=(const CurrentContext&) = delete;

 private:
  void* context_ = nullptr;
};

}  // namespace tessera
