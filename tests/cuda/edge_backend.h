// A backend whose operands lie at an edge of memory that is mapped for them alone: behind the edge
// no address is mapped, so that a kernel that reads or writes there fails. Guard bytes beside an
// operand show writes only.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "cuda/driver_calls.h"
#include "tessera/measure/operands.h"
#include "tessera/measure/operands_internal.h"
#include "tessera/runtime/runtime.h"

namespace tessera {

// Where an operand lies in its memory.
enum class Edge { first, last };

// The driver's structs: memory of device 0 that no other process shares, to be read and written.
struct MemoryLocation {
  int type = 1, device = 0;
};
struct MemoryKind {
  int type = 1, handles = 0;
  MemoryLocation location;
  void* win32 = nullptr;
  unsigned char flags[8] = {};
};
struct MemoryAccess {
  MemoryLocation location;
  int flags = 3;
};
static_assert(sizeof(MemoryKind) == 32 && sizeof(MemoryAccess) == 12);

// Mapped pages of device 0 between pages that are reserved and not mapped.
class LonePages {
 public:
  explicit LonePages(std::size_t bytes) {
    const CurrentContext context;
    call<std::size_t*, const MemoryKind*, int>("cuMemGetAllocationGranularity", &page_, &kKind, 0);
    mapped_ = (std::max<std::size_t>(bytes, 1) + page_ - 1) / page_ * page_;
    call<std::uint64_t*, std::size_t, std::size_t, std::uint64_t, std::uint64_t>(
        "cuMemAddressReserve", &reserved_, mapped_ + 2 * page_, 0, 0, 0);
    call<std::uint64_t*, std::size_t, const MemoryKind*, std::uint64_t>("cuMemCreate", &handle_,
                                                                        mapped_, &kKind, 0);
    call<std::uint64_t, std::size_t, std::size_t, std::uint64_t, std::uint64_t>(
        "cuMemMap", first(), mapped_, 0, handle_, 0);
    call<std::uint64_t, std::size_t, const MemoryAccess*, std::size_t>("cuMemSetAccess", first(),
                                                                       mapped_, &kReadAndWrite, 1);
  }
  ~LonePages() {
    const CurrentContext context;
    call<std::uint64_t, std::size_t>("cuMemUnmap", first(), mapped_);
    call<std::uint64_t>("cuMemRelease", handle_);
    call<std::uint64_t, std::size_t>("cuMemAddressFree", reserved_, mapped_ + 2 * page_);
  }
  LonePages(const LonePages&) = delete;
  LonePages& operator=(const LonePages&) = delete;

  std::uint64_t first() const { return reserved_ + page_; }
  std::uint64_t end() const { return first() + mapped_; }

 private:
  static constexpr MemoryKind kKind{};
  static constexpr MemoryAccess kReadAndWrite{};

  std::size_t page_ = 0, mapped_ = 0;
  std::uint64_t reserved_ = 0, handle_ = 0;
};

// All else is the real backend's.
class EdgeBackend final : public runtime::Backend {
 public:
  explicit EdgeBackend(const runtime::Backend& real) : real_(real) {}

  // place_operands() makes the next allocations, for these operands.
  void expect(const measure::OwnedOperands& owned, Edge edge) {
    edge_ = edge;
    plans_.clear();
    for (std::size_t i = 0; i < owned.storage.size(); ++i) {
      const bool is_array =
          std::find(owned.arrays.begin(), owned.arrays.end(), i) != owned.arrays.end();
      plans_.push_back(is_array ? Plan{} : Plan{measure::kGuardBytes, alignment_of(owned, i)});
    }
  }

  std::string name() const override { return real_.name(); }
  std::string unavailable_reason(const Target& target) const override {
    return real_.unavailable_reason(target);
  }
  std::shared_ptr<const runtime::LoadedKernel> load(const jit::Artifact& artifact,
                                                    const Target& target) const override {
    return real_.load(artifact, target);
  }
  void synchronize(const runtime::LaunchOptions& options) const override {
    real_.synchronize(options);
  }
  bool uses_host_memory() const override { return real_.uses_host_memory(); }

  // The guard bytes around an operand lie where nothing is mapped, at least on one side.
  void* allocate(std::size_t bytes, const runtime::LaunchOptions& options) const override {
    if (plans_.empty()) return real_.allocate(bytes, options);
    const Plan plan = plans_.front();
    plans_.pop_front();
    const std::size_t size = bytes - 2 * plan.guard;
    auto pages = std::make_unique<LonePages>(size);
    const std::uint64_t last = (pages->end() - size) / plan.alignment * plan.alignment;
    const std::uint64_t begin = (edge_ == Edge::first ? pages->first() : last) - plan.guard;
    areas_[begin] = {bytes, std::move(pages)};
    return reinterpret_cast<void*>(begin);
  }
  void release(void* memory, const runtime::LaunchOptions& options) const noexcept override {
    if (areas_.erase(reinterpret_cast<std::uint64_t>(memory)) == 0) real_.release(memory, options);
  }

  void copy_to_device(void* to, const void* from, std::size_t bytes,
                      const runtime::LaunchOptions& options) const override {
    const Part part = mapped_part(to, bytes);
    real_.copy_to_device(moved(to, part), moved(from, part), part.bytes, options);
  }
  void copy_to_host(void* to, const void* from, std::size_t bytes,
                    const runtime::LaunchOptions& options) const override {
    const Part part = mapped_part(from, bytes);
    real_.copy_to_host(moved(to, part), moved(from, part), part.bytes, options);
  }
  void fill(void* to, unsigned char value, std::size_t bytes,
            const runtime::LaunchOptions& options) const override {
    const Part part = mapped_part(to, bytes);
    real_.fill(moved(to, part), value, part.bytes, options);
  }
  std::unique_ptr<runtime::Event> make_event(const runtime::LaunchOptions& options) const override {
    return real_.make_event(options);
  }
  std::size_t cache_bytes(const runtime::LaunchOptions& options) const override {
    return real_.cache_bytes(options);
  }
  std::string device_name(const runtime::LaunchOptions& options) const override {
    return real_.device_name(options);
  }

 private:
  // The copy engine and 16 bytes at a time need no more.
  static constexpr std::size_t kAlignment = 16;
  struct Plan {
    std::size_t guard = 0, alignment = kAlignment;
  };
  struct Area {
    std::size_t bytes = 0;
    std::unique_ptr<LonePages> pages;
  };
  // The mapped part of some bytes.
  struct Part {
    std::size_t skipped, bytes;
  };

  static std::size_t alignment_of(const measure::OwnedOperands& owned, std::size_t index) {
    const auto wanted = static_cast<std::size_t>(owned.tensors[index].alignment);
    return std::max(kAlignment, wanted);
  }
  static void* moved(const void* pointer, const Part& part) {
    return static_cast<std::byte*>(const_cast<void*>(pointer)) + part.skipped;
  }
  Part mapped_part(const void* pointer, std::size_t bytes) const {
    const auto begin = reinterpret_cast<std::uint64_t>(pointer);
    auto after = areas_.upper_bound(begin);
    if (after == areas_.begin()) return {0, bytes};
    const auto& [start, area] = *--after;
    if (begin >= start + area.bytes) return {0, bytes};
    const std::uint64_t first = std::clamp(begin, area.pages->first(), area.pages->end());
    const std::uint64_t end = std::clamp(begin + bytes, first, area.pages->end());
    return {first - begin, end - first};
  }

  const runtime::Backend& real_;
  Edge edge_ = Edge::first;
  mutable std::deque<Plan> plans_;  // of the next allocations
  mutable std::map<std::uint64_t, Area> areas_;
};

}  // namespace tessera
