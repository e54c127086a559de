// A device whose memory is the host's, so that operands are copied as for any other device.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "tessera/runtime/runtime.h"

namespace tessera::measure {

class CopyingBackend : public runtime::Backend {
 public:
  std::string name() const override { return "copying"; }
  std::string unavailable_reason(const Target&) const override { return ""; }
  std::shared_ptr<const runtime::LoadedKernel> load(const jit::Artifact&,
                                                    const Target&) const override {
    return nullptr;
  }
  void synchronize(const runtime::LaunchOptions&) const override {}
  bool uses_host_memory() const override { return false; }
  void* allocate(std::size_t bytes, const runtime::LaunchOptions& options) const override {
    return host().allocate(bytes, options);
  }
  void release(void* memory, const runtime::LaunchOptions& options) const noexcept override {
    host().release(memory, options);
  }
  void copy_to_device(void* to, const void* from, std::size_t bytes,
                      const runtime::LaunchOptions& options) const override {
    host().copy_to_device(to, from, bytes, options);
  }
  void copy_to_host(void* to, const void* from, std::size_t bytes,
                    const runtime::LaunchOptions& options) const override {
    host().copy_to_host(to, from, bytes, options);
  }
  void fill(void* to, unsigned char value, std::size_t bytes,
            const runtime::LaunchOptions& options) const override {
    host().fill(to, value, bytes, options);
  }
  std::unique_ptr<runtime::Event> make_event(const runtime::LaunchOptions&) const override {
    return nullptr;
  }
  std::size_t cache_bytes(const runtime::LaunchOptions&) const override { return 0; }
  std::string device_name(const runtime::LaunchOptions&) const override { return ""; }

 private:
  static const runtime::Backend& host() { return *runtime::host_place().backend; }
};

inline runtime::Place copying_place() {
  static const CopyingBackend kBackend;
  return {&kBackend, {}};
}

}  // namespace tessera::measure
