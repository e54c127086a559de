// Memory that ends where a page ends that nobody may touch: reading or writing past it is a crash.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>
#include <new>

namespace tessera {

class Guarded {
 public:
  // A copy of `bytes` bytes.
  Guarded(const void* from, std::size_t bytes) {
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    const std::size_t body = (bytes + page - 1) / page * page;
    mapped_ = body + page;
    base_ = mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base_ == MAP_FAILED) throw std::bad_alloc();
    mprotect(static_cast<std::byte*>(base_) + body, page, PROT_NONE);
    data_ = static_cast<std::byte*>(base_) + body - bytes;
    std::memcpy(data_, from, bytes);
  }
  ~Guarded() { munmap(base_, mapped_); }
  Guarded(const Guarded&) = delete;
  Guarded& operator=(const Guarded&) = delete;

  void* data() const { return data_; }

 private:
  void* base_ = nullptr;
  std::size_t mapped_ = 0;
  std::byte* data_ = nullptr;
};

}  // namespace tessera
