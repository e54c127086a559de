// Elements where kernels run: in the host's memory for a CPU, in the device's for a GPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "ck_tile/dispatcher/backends/host_numbers.hpp"
#include "ck_tile/dispatcher/backends/tessera_memory.hpp"

namespace ck_tile::dispatcher {
using ck_tile::half_t;  // for programs that use this namespace alone
}

namespace ck_tile::dispatcher::utils {

template <class T>
class GpuBuffer {
 public:
  GpuBuffer() = default;
  explicit GpuBuffer(std::int64_t count)
      : block_(backends::memory_here(), static_cast<std::size_t>(count) * sizeof(T)) {}

  T* get() { return static_cast<T*>(block_.data()); }
  const T* get() const { return static_cast<const T*>(block_.data()); }
  std::int64_t size_bytes() const { return static_cast<std::int64_t>(block_.bytes()); }
  std::int64_t count() const { return size_bytes() / static_cast<std::int64_t>(sizeof(T)); }

  void copy_from_host(const T* host) { block_.from_host(host); }
  void copy_to_host(T* host) const { block_.to_host(host); }
  void zero() { block_.from_host(std::vector<char>(block_.bytes()).data()); }

 private:
  backends::Block block_;
};

}  // namespace ck_tile::dispatcher::utils
