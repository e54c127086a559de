// Memory that begins or ends where a page lies that nobody may touch: reading or writing past that
// edge is a crash.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>
#include <deque>
#include <new>
#include <utility>

#include "cpu/kernel_folder.h"
#include "tessera/families/family.h"
#include "tessera/measure/operands.h"

namespace tessera {

enum class Edge { begin, end };

class Guarded {
 public:
  // A copy of `bytes` bytes. One at an end is as close to it as the alignment of its address
  // allows.
  Guarded(const void* from, std::size_t bytes, Edge edge = Edge::end, std::size_t alignment = 1)
      : bytes_(bytes) {
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    const std::size_t body = (bytes + page - 1) / page * page;
    mapped_ = body + 2 * page;
    base_ = mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base_ == MAP_FAILED) throw std::bad_alloc();
    std::byte* const first = static_cast<std::byte*>(base_) + page;
    mprotect(base_, page, PROT_NONE);
    mprotect(first + body, page, PROT_NONE);
    data_ = edge == Edge::begin ? first : first + (body - bytes) / alignment * alignment;
    if (bytes > 0) std::memcpy(data_, from, bytes);
  }
  ~Guarded() { munmap(base_, mapped_); }
  Guarded(const Guarded&) = delete;
  Guarded& operator=(const Guarded&) = delete;

  void* data() const { return data_; }
  std::size_t size() const { return bytes_; }

 private:
  void* base_ = nullptr;
  std::size_t mapped_ = 0, bytes_ = 0;
  std::byte* data_ = nullptr;
};

// Copies of operands, each in memory of its own at such an edge. Arrays of pointers stay where they
// are.
class AtEdges {
 public:
  AtEdges(const measure::OwnedOperands& owned, Edge edge) : operands_(owned.operands) {
    for (const Tensor& tensor : owned.tensors) {
      const void* const from = owned.family->pointer(owned.operands, tensor.operand);
      if (tensor.in_array || from == nullptr) continue;
      const int alignment = tensor.alignment != 0 ? tensor.alignment : size_of(tensor.dtype);
      copies_.emplace_back(&tensor, std::in_place, from, tensor.bytes(), edge,
                           static_cast<std::size_t>(alignment));
      owned.family->set_pointer(operands_, tensor.operand, copies_.back().memory.data());
    }
  }

  const Operands& operands() const { return operands_; }

  // Copies the outputs to where they were.
  void fetch(const measure::OwnedOperands& owned) const {
    for (const Copy& copy : copies_) {
      if (!copy.tensor->is_written()) continue;
      const void* const to = owned.family->pointer(owned.operands, copy.tensor->operand);
      std::memcpy(const_cast<void*>(to), copy.memory.data(), copy.memory.size());
    }
  }

 private:
  struct Copy {
    template <class... Arguments>
    Copy(const Tensor* of, std::in_place_t, Arguments... arguments)
        : tensor(of), memory(arguments...) {}
    const Tensor* tensor;
    Guarded memory;
  };
  Operands operands_;
  std::deque<Copy> copies_;
};

namespace testing_support {

// Launches on copies that begin and on copies that end at such an edge. The outputs of the latter
// come back.
inline void launch_at_edges(Registry& registry, const KernelSpec& spec, const Problem& problem,
                            const measure::OwnedOperands& owned, int threads) {
  const AtEdges begin(owned, Edge::begin), end(owned, Edge::end);
  launch(registry, spec, problem, begin.operands(), threads);
  launch(registry, spec, problem, end.operands(), threads);
  end.fetch(owned);
}

}  // namespace testing_support
}  // namespace tessera
