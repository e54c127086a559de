// AlignedBuffer, and the workspace that each calling thread keeps between launches.
#include "tessera/base/per_thread.h"
#include "tessera/runtime/memory_internal.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <cstdlib>
#include <utility>

#include "tessera/base/error.h"

namespace tessera::runtime {
namespace {

constexpr std::size_t kCacheLine = 64;
constexpr std::size_t kHugePage = std::size_t{2} << 20;
constexpr std::size_t kHugeFrom = std::size_t{4} << 20;

// A workspace above this size is released after kPatience launches in a row that need less than a
// quarter of it.
constexpr std::size_t kKeepAlways = std::size_t{32} << 20;
constexpr int kPatience = 64;

std::size_t round_up(std::size_t value, std::size_t unit) {
  return (value + unit - 1) / unit * unit;
}

[[noreturn]] void throw_out_of_memory(std::size_t bytes) {
  throw Error(ErrorCode::out_of_memory,
              fmt::format("out of memory: cannot allocate a buffer of {} bytes", bytes));
}

struct Workspace {
  AlignedBuffer buffer{0};
  int small_requests = 0;  // small requests in a row while the buffer is large
};

bool is_oversized(std::size_t held, std::size_t wanted) {
  return held > kKeepAlways && wanted < held / 4;
}

}  // namespace

// Big buffers start on a huge page and ask for huge pages: a packed panel that spans thousands of
// small pages spends more time in the TLB than in the caches.
void* allocate_aligned(std::size_t bytes) {
  if (bytes == 0) return nullptr;
  const bool huge = bytes >= kHugeFrom;
  const std::size_t alignment = huge ? kHugePage : kCacheLine;
  if (bytes > SIZE_MAX / 2) throw_out_of_memory(bytes);
  const std::size_t rounded = round_up(bytes, alignment);
  void* data = std::aligned_alloc(alignment, rounded);
  if (data == nullptr) throw_out_of_memory(bytes);
  // Advice only: without huge pages the buffer works the same, a little slower.
  if (huge) static_cast<void>(madvise(data, rounded, MADV_HUGEPAGE));
  return data;
}

AlignedBuffer::AlignedBuffer(std::size_t bytes) : data_(allocate_aligned(bytes)), bytes_(bytes) {}

AlignedBuffer::~AlignedBuffer() { std::free(data_); }

AlignedBuffer::AlignedBuffer(AlignedBuffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

AlignedBuffer& AlignedBuffer::operator=(AlignedBuffer&& other) noexcept {
  if (this != &other) {
    std::free(data_);
    data_ = std::exchange(other.data_, nullptr);
    bytes_ = std::exchange(other.bytes_, 0);
  }
  return *this;
}

DeviceBuffer::DeviceBuffer(const Place& place, std::size_t bytes)
    : place_(place), data_(place.backend->allocate(bytes, place.options)), bytes_(bytes) {}

DeviceBuffer::~DeviceBuffer() {
  if (data_ != nullptr) place_.backend->release(data_, place_.options);
}

DeviceBuffer::DeviceBuffer(DeviceBuffer&& other) noexcept { *this = std::move(other); }

DeviceBuffer& DeviceBuffer::operator=(DeviceBuffer&& other) noexcept {
  std::swap(place_, other.place_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

void* thread_workspace(std::size_t bytes) {
  Workspace& workspace = per_thread<Workspace>();
  const std::size_t held = workspace.buffer.size();
  workspace.small_requests = is_oversized(held, bytes) ? workspace.small_requests + 1 : 0;
  if (bytes <= held && workspace.small_requests < kPatience) return workspace.buffer.data();

  // The old buffer is released first, so that the two never exist at once.
  workspace.small_requests = 0;
  workspace.buffer = AlignedBuffer(0);
  workspace.buffer = AlignedBuffer(bytes);
  return workspace.buffer.data();
}

std::size_t thread_workspace_bytes() { return per_thread<Workspace>().buffer.size(); }

}  // namespace tessera::runtime
