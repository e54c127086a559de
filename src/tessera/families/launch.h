// What a backend needs to run a kernel once: an argument block, the steps, and the memory that they
// share.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "tessera/base/inline_vector.h"
#include "tessera/spec/dtype.h"

namespace tessera {

// A window on device memory that a GPU kernel moves by its copy engine (TMA). The backend has the
// driver encode it into 128 bytes of the argument block just before a launch.
struct TensorMap {
  // A window on an image whose pixels are unrolled to rows, as a convolution reads it.
  struct Im2col {
    std::uint32_t pixels;                   // that one copy moves; 0: the window is tiled
    std::uint32_t channels;                 // of each pixel
    std::array<std::int32_t, 3> low, high;  // corners of the pixels' box, innermost first
    bool operator==(const Im2col&) const = default;
  };

  std::size_t offset;  // into the argument block, a multiple of 64
  const void* base;    // device memory, 16-byte aligned; null with in_workspace
  DType dtype;
  int rank;                              // 1 to 5, with im2col 3 to 5: so many entries of each list
  std::array<std::uint64_t, 5> sizes;    // elements: innermost (contiguous) first
  std::array<std::uint64_t, 4> strides;  // bytes of every size but the innermost, 16 x n
  std::array<std::uint32_t, 5> box;      // elements that one copy moves, if tiled
  std::array<std::uint32_t, 5> steps;    // elements from one that is copied to the next; 0 means 1
  int swizzle_bytes;                     // 0, 32, 64 or 128
  Im2col im2col;
  bool in_workspace;             // base is the workspace's address ...
  std::size_t workspace_offset;  // ... and so many bytes
};

// The parameters of a kernel as it takes them. Only what was set is copied, and nothing is cleared.
class ArgumentBlock {
 public:
  static constexpr std::size_t kMostBytes = 4096;  // that CUDA takes

  ArgumentBlock() {}
  ArgumentBlock(const ArgumentBlock& other) { *this = other; }
  ArgumentBlock& operator=(const ArgumentBlock& other) {
    size_ = other.size_;
    second_ = other.second_;
    std::memmove(bytes_.data(), other.bytes_.data(), size_);
    return *this;
  }

  // The first parameter: a plain struct.
  template <class T>
  void set(const T& parameter) {
    static_assert(sizeof(T) + sizeof(void*) <= kMostBytes);
    std::memcpy(bytes_.data(), &parameter, sizeof(T));
    size_ = sizeof(T);
    second_ = 0;
  }
  // A second one, for a GPU's entry that takes a pointer besides the struct.
  void add(const void* parameter) {
    second_ = (size_ + sizeof(parameter) - 1) / sizeof(parameter) * sizeof(parameter);
    std::memcpy(bytes_.data() + second_, &parameter, sizeof(parameter));
    size_ = second_ + sizeof(parameter);
  }

  const std::byte* data() const { return bytes_.data(); }
  std::byte* data() { return bytes_.data(); }
  std::size_t size() const { return size_; }
  std::size_t second() const { return second_; }  // where it begins; 0: there is none

 private:
  alignas(64) std::array<std::byte, kMostBytes> bytes_;
  std::size_t size_ = 0;
  std::size_t second_ = 0;
};

// One run of one entry of the binary. A CPU's steps have no geometry.
struct Step {
  // How much of its grid it needs.
  enum class Extent : std::uint8_t {
    exact,     // all of it
    resident,  // grid[0] is cut to what the device runs at once, in whole clusters: blocks take
               // further tiles themselves
    any,       // any number of blocks does: grid[0] is cut to a few for each unit
  };

  std::uint8_t entry = 0;  // index into Source::entries
  Extent extent = Extent::exact;
  std::array<unsigned, 3> grid = {1, 1, 1};
  std::array<unsigned, 3> block = {1, 1, 1};
  std::array<unsigned, 3> cluster = {1, 1, 1};
  std::size_t shared_memory_bytes = 0;
};

struct Launch {
  // Device memory that the steps share. Its first kCounterBytes (device/cuda/abi.h) are for
  // counters and nothing else: they are zero when a launch starts, and who counts there leaves
  // zeros behind. The data that follow start with any content, but for the first clear_bytes, which
  // the backend sets to zero at each launch.
  struct Workspace {
    std::size_t bytes = 0;
    std::size_t counter_bytes = 0;  // that the kernel counts in: 0, or at most kCounterBytes
    std::size_t clear_bytes = 0;
    std::size_t address_offset = 0;  // into the argument block: where its address goes
  };

  ArgumentBlock arguments;      // of every step
  InlineVector<Step, 4> steps;  // one after the other; none: there is nothing to compute
  Workspace workspace;          // GPU; a CPU's entries say for themselves how much they need
  InlineVector<TensorMap, 12> tensor_maps;
  InlineVector<const void*, 24> pointers;  // GPU: what the kernel reads and writes, to be checked
  int max_threads = 0;                     // CPU: the team needs no more; 0: as many as there are
};

}  // namespace tessera
