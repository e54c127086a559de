// What a backend needs to run a kernel once: an argument block, the steps, and the memory that they
// share.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <type_traits>

#include "tessera/base/inline_vector.h"
#include "tessera/spec/dtype.h"

namespace tessera {

// A window on device memory that a GPU kernel moves by its copy engine (TMA). The backend has the
// driver encode it into 128 bytes of the argument block just before a launch.
struct TensorMap {
  // A window on an image whose pixels are unrolled to rows, as a convolution reads it.
  struct Im2col {
    std::uint32_t pixels;    // how many pixels one copy moves; 0: the window is tiled
    std::uint32_t channels;  // how many channels of each pixel one copy moves
    std::array<std::int32_t, 3> low, high;  // corners of the box of pixels, innermost first
    bool operator==(const Im2col&) const = default;
  };

  std::size_t offset;  // into the argument block, a multiple of 64
  const void* base;    // device memory, 16-byte aligned; null with in_workspace
  DType dtype;
  int rank;  // 1 to 5, with im2col 3 to 5; the first `rank` entries of each list count
  std::array<std::uint64_t, 5> sizes;    // in elements, the innermost (contiguous) dimension first
  std::array<std::uint64_t, 4> strides;  // in bytes, multiples of 16, from sizes[1] on
  std::array<std::uint32_t, 5> box;      // a tiled window: how many elements one copy moves
  std::array<std::uint32_t, 5> steps;    // distance between copied elements, in elements; 0 means 1
  int swizzle_bytes;                     // 0, 32, 64 or 128
  Im2col im2col;
  bool in_workspace;             // the window begins in the workspace instead of at `base`
  std::size_t workspace_offset;  // bytes from the workspace's address to the window
  bool operator==(const TensorMap&) const = default;
};

// The parameters of a kernel, as bytes in the layout that the kernel expects. Copying the block
// copies only the bytes that were set. Unset bytes are never cleared.
class ArgumentBlock {
 public:
  static constexpr std::size_t kMostBytes = 4096;  // the most that CUDA takes

  ArgumentBlock() {}
  ArgumentBlock(const ArgumentBlock& other) { *this = other; }
  ArgumentBlock& operator=(const ArgumentBlock& other) {
    size_ = other.size_;
    second_ = other.second_;
    std::memmove(bytes_.data(), other.bytes_.data(), size_);
    return *this;
  }
  bool operator==(const ArgumentBlock& other) const {
    return size_ == other.size_ && second_ == other.second_ &&
           std::memcmp(bytes_.data(), other.bytes_.data(), size_) == 0;
  }

  // All parameters, as another block's data() and second() gave them.
  void assign(std::span<const std::byte> parameters, std::size_t second) {
    std::copy(parameters.begin(), parameters.end(), bytes_.begin());
    size_ = parameters.size();
    second_ = second;
  }
  // The first parameter: a plain struct. Its padding counts when blocks are compared, so that a
  // struct with padding begins as `T t{}` and is filled in behind that.
  template <class T>
  void set(const T& parameter) {
    static_assert(sizeof(T) + sizeof(void*) <= kMostBytes);
    std::memcpy(bytes_.data(), &parameter, sizeof(T));
    size_ = sizeof(T);
    second_ = 0;
  }
  // The first parameter, all zero, to be filled in where it lies.
  template <class T>
  T& make() {
    static_assert(sizeof(T) + sizeof(void*) <= kMostBytes && std::is_trivially_copyable_v<T>);
    static_assert(alignof(T) <= 64);
    size_ = sizeof(T);
    second_ = 0;
    return *std::construct_at(reinterpret_cast<T*>(bytes_.data()));
  }
  // Adds a second parameter: the pointer that some entries of GPU kernels take besides the struct.
  void add(const void* parameter) {
    second_ = (size_ + sizeof(parameter) - 1) / sizeof(parameter) * sizeof(parameter);
    std::memcpy(bytes_.data() + second_, &parameter, sizeof(parameter));
    size_ = second_ + sizeof(parameter);
  }

  const std::byte* data() const { return bytes_.data(); }
  std::byte* data() { return bytes_.data(); }
  std::size_t size() const { return size_; }
  // offset of the second parameter in bytes; 0: there is none
  std::size_t second() const { return second_; }

 private:
  alignas(64) std::array<std::byte, kMostBytes> bytes_;
  std::size_t size_ = 0;
  std::size_t second_ = 0;
};

// A word of the argument block that gets the address of a place in the workspace.
struct WorkspacePlace {
  std::size_t offset;            // into the argument block
  std::size_t workspace_offset;  // bytes from the workspace's address
  bool operator==(const WorkspacePlace&) const = default;
};

// One run of one entry of the binary. A CPU's steps have no geometry.
struct Step {
  // How much of its grid a step needs.
  enum class Extent : std::uint8_t {
    exact,     // the whole grid
    resident,  // grid[0] is cut to the blocks that the device runs at once, in whole clusters; each
               // block then takes further tiles itself
    any,       // any number of blocks is right; grid[0] is cut to a few blocks for each unit
  };

  std::uint8_t entry = 0;  // index into Source::entries
  Extent extent = Extent::exact;
  std::array<unsigned, 3> grid = {1, 1, 1};
  std::array<unsigned, 3> block = {1, 1, 1};
  std::array<unsigned, 3> cluster = {1, 1, 1};
  std::size_t shared_memory_bytes = 0;
  std::size_t copied_bytes = 0;  // size of the copies of operands that the step makes
  bool operator==(const Step&) const = default;
};

struct Launch {
  // Device memory that the steps share. The first kCounterBytes (device/cuda/abi.h) hold counters
  // only. They are zero when a launch starts, and a kernel that counts there sets them to zero
  // again. The data follow. The backend sets the first clear_bytes of the data to zero at each
  // launch; the rest starts with any content.
  struct Workspace {
    std::size_t bytes = 0;
    std::size_t counter_bytes = 0;  // bytes that the kernel counts in, at most kCounterBytes
    std::size_t clear_bytes = 0;
    std::size_t address_offset = 0;  // where the address goes in the argument block
    bool operator==(const Workspace&) const = default;
  };

  ArgumentBlock arguments;      // the same for every step
  InlineVector<Step, 4> steps;  // run in this order; empty: there is nothing to compute
  // HIP: where the number of blocks of the step with Extent::resident goes in the argument block,
  // as an int; 0: nowhere.
  std::size_t blocks_offset = 0;
  Workspace workspace;  // GPU only; the entries of a CPU's kernel compute the size themselves
  InlineVector<TensorMap, 20> tensor_maps;
  InlineVector<WorkspacePlace, 10> workspace_places;  // GPU; besides Workspace::address_offset
  InlineVector<const void*, 24> pointers;  // GPU: all that the kernel accesses, to be checked
  std::int64_t parts = 1;  // into which the kernel cuts the longest sums, at most; it merges them
  int max_threads = 0;     // CPU: the most threads that the kernel can use; 0: no limit
  bool operator==(const Launch&) const = default;
};

}  // namespace tessera
