// Operands on their way between the host and the place where kernels run.
#include <algorithm>
#include <functional>

#include "tessera/families/family.h"
#include "tessera/measure/operands.h"
#include "tessera/measure/planes_internal.h"

namespace tessera::measure {
namespace {

// Where a host pointer into one of the buffers lies on the device.
const void* moved(const void* pointer, const OwnedOperands& owned, const PlacedOperands& placed) {
  const std::less_equal<> not_after;
  const auto* at = static_cast<const std::byte*>(pointer);
  for (std::size_t i = 0; i < owned.storage.size(); ++i) {
    const auto* begin = static_cast<const std::byte*>(owned.storage[i].data());
    if (at == nullptr || !not_after(begin, at)) continue;
    if (!not_after(at, begin + owned.storage[i].size())) continue;
    return static_cast<const std::byte*>(placed.storage[i].data()) + (at - begin);
  }
  return nullptr;
}

// An array's pointers, as they are on the device.
void place_array(std::size_t array, const OwnedOperands& owned, const runtime::Place& place,
                 PlacedOperands& placed) {
  const runtime::AlignedBuffer& host = owned.storage[array];
  const auto* const first = static_cast<const void* const*>(host.data());
  std::vector<const void*> pointers(first, first + host.size() / sizeof(void*));
  for (const void*& pointer : pointers) pointer = moved(pointer, owned, placed);
  place.backend->copy_to_device(placed.storage[array].data(), pointers.data(), host.size(),
                                place.options);
}

// A copy on the host of an operand's memory.
const void* fetch(const Plane& plane, const void* operand, const runtime::Place& place,
                  SavedOperands& saved) {
  if (operand == nullptr) return nullptr;
  saved.storage.emplace_back(plane.bytes());
  void* const to = saved.storage.back().data();
  place.backend->copy_to_host(to, operand, plane.bytes(), place.options);
  return to;
}

// The pointers of an array that is where the kernel is.
std::vector<const void*> pointers_of(const void* array, std::int64_t batch,
                                     const runtime::Place& place) {
  std::vector<const void*> pointers(static_cast<std::size_t>(batch));
  place.backend->copy_to_host(pointers.data(), array, pointers.size() * sizeof(void*),
                              place.options);
  return pointers;
}

std::size_t bytes_of_batch(Plane plane) {
  plane.batch = 1;
  return plane.bytes();
}

// Memory on the host for every batch of an operand, and an array of pointers to it.
void** array_for(const Plane& plane, SavedOperands& saved) {
  const auto count = static_cast<std::size_t>(plane.batch);
  const std::size_t bytes = bytes_of_batch(plane);
  saved.storage.emplace_back(std::max<std::size_t>(count * bytes, 1));
  auto* const matrices = static_cast<std::byte*>(saved.storage.back().data());
  saved.storage.emplace_back(std::max<std::size_t>(count, 1) * sizeof(void*));
  auto** const pointers = static_cast<void**>(saved.storage.back().data());
  for (std::size_t i = 0; i < count; ++i) pointers[i] = matrices + i * bytes;
  return pointers;
}

// A copy on the host of the matrices that an array names.
const void* fetch_array(const Plane& plane, const void* array, const runtime::Place& place,
                        SavedOperands& saved) {
  const std::vector<const void*> from = pointers_of(array, plane.batch, place);
  void* const* const to = array_for(plane, saved);
  const std::size_t bytes = bytes_of_batch(plane);
  for (std::size_t i = 0; i < from.size(); ++i) {
    place.backend->copy_to_host(to[i], from[i], bytes, place.options);
  }
  return to;
}

// Which batches share memory with which is not asked: what may be written over is copied.
SavedOperands save_arrays(const GemmProblem& p, const Operands& operands,
                          const runtime::Place& place) {
  SavedOperands saved{.operands = operands, .storage = {}};
  if (plane_out(p).empty()) return saved;
  auto& gemm = std::get<GemmOperands>(saved.operands);
  if (!place.backend->uses_host_memory()) {
    if (p.k > 0) gemm.a = fetch_array(plane_a(p), gemm.a, place, saved);
    if (p.k > 0) gemm.b = fetch_array(plane_b(p), gemm.b, place, saved);
    gemm.out = array_for(plane_out(p), saved);
  }
  if (p.beta != 0) gemm.c = fetch_array(plane_c(p), gemm.c, place, saved);
  for (std::size_t i = 0; i < p.epilogue.num_d; ++i) {
    gemm.d[i] = fetch_array(plane_d(p, i), gemm.d[i], place, saved);
  }
  return saved;
}

bool overlaps(const void* a, std::size_t a_bytes, const void* b, std::size_t b_bytes) {
  const std::less<> before;
  const auto* first = static_cast<const std::byte*>(a);
  const auto* second = static_cast<const std::byte*>(b);
  if (a_bytes == 0 || b_bytes == 0) return false;
  return before(first, second + b_bytes) && before(second, first + a_bytes);
}

}  // namespace

runtime::DeviceBuffer pack_b(const runtime::LoadedKernel& kernel, const KernelSpec& spec,
                             const Problem& problem, Operands& operands,
                             const runtime::Place& place) {
  if (!gemm_of(problem).preshuffled_b) return {};
  auto& gemm = std::get<GemmOperands>(operands);
  GemmOperands only_b;
  only_b.b = gemm.b;
  const Launch launch = family_of(problem).bind(spec, problem, only_b);
  runtime::DeviceBuffer packed(place, kernel.packed_bytes(launch));
  kernel.pack(launch, packed.data(), place.options);
  gemm.b = packed.data();
  return packed;
}

PlacedOperands place_operands(const OwnedOperands& owned, const runtime::Place& place) {
  PlacedOperands placed{.operands = owned.operands, .storage = {}};
  if (place.backend->uses_host_memory()) return placed;
  for (const runtime::AlignedBuffer& buffer : owned.storage) {
    placed.storage.emplace_back(place, buffer.size());
    place.backend->copy_to_device(placed.storage.back().data(), buffer.data(), buffer.size(),
                                  place.options);
  }
  auto& gemm = std::get<GemmOperands>(placed.operands);
  for (const void** operand : {&gemm.a, &gemm.b, &gemm.c}) {
    *operand = moved(*operand, owned, placed);
  }
  for (const void*& d : gemm.d) d = moved(d, owned, placed);
  for (const std::size_t array : owned.arrays) place_array(array, owned, place, placed);
  gemm.out = const_cast<void*>(moved(gemm.out, owned, placed));
  return placed;
}

void send_output(const OwnedOperands& owned, PlacedOperands& placed, const runtime::Place& place) {
  if (placed.storage.empty()) return;
  const runtime::AlignedBuffer& output = owned.storage.at(owned.output);
  place.backend->copy_to_device(placed.storage[owned.output].data(), output.data(), output.size(),
                                place.options);
}

void fetch_output(OwnedOperands& owned, const PlacedOperands& placed, const runtime::Place& place) {
  place.backend->synchronize(place.options);
  if (placed.storage.empty()) return;
  const runtime::AlignedBuffer& output = owned.storage.at(owned.output);
  place.backend->copy_to_host(output.data(), placed.storage[owned.output].data(), output.size(),
                              place.options);
}

void fetch_runs(OwnedOperands& owned, const PlacedOperands& placed, const runtime::Place& place,
                std::span<const Reference::Run> runs) {
  place.backend->synchronize(place.options);
  const runtime::AlignedBuffer& output = owned.storage.at(owned.output);
  const auto* const from = static_cast<const std::byte*>(placed.storage.at(owned.output).data());
  auto* const to = static_cast<std::byte*>(output.data());
  const auto fetch_bytes = [&](std::size_t offset, std::size_t bytes) {
    place.backend->copy_to_host(to + offset, from + offset, bytes, place.options);
  };
  fetch_bytes(0, kGuardBytes);
  fetch_bytes(output.size() - kGuardBytes, kGuardBytes);
  void* const out = std::get<GemmOperands>(owned.operands).out;
  for (const Reference::Run& run : runs) {
    const void* const matrix =
        owned.arrays.empty() ? out : static_cast<void* const*>(out)[run.batch];
    const auto first = static_cast<std::size_t>(static_cast<const std::byte*>(matrix) - to);
    fetch_bytes(first + static_cast<std::size_t>(run.offset), static_cast<std::size_t>(run.bytes));
  }
}

void poison_placed(const Problem& problem, PlacedOperands& placed, const OwnedOperands& owned,
                   const runtime::Place& place) {
  const runtime::DeviceBuffer& output = placed.storage.at(owned.output);
  const auto byte = static_cast<unsigned char>(poison_byte(plane_out(gemm_of(problem)).dtype));
  place.backend->fill(output.data(), byte, output.size(), place.options);
}

bool has_gaps(const Problem& problem) {
  return plane_out(with_strides(gemm_of(problem))).has_gaps();
}

SavedOperands save_inputs(const Problem& problem, const Operands& operands,
                          const runtime::Place& place) {
  const GemmProblem p = with_strides(gemm_of(problem));
  if (p.pointer_arrays) return save_arrays(p, operands, place);
  SavedOperands saved{.operands = operands, .storage = {}};
  auto& gemm = std::get<GemmOperands>(saved.operands);
  const void* const out = gemm.out;
  const bool on_host = place.backend->uses_host_memory();
  const auto save = [&](const Plane& plane, const void*& operand) {
    if (on_host && !overlaps(operand, plane.bytes(), out, plane_out(p).bytes())) return;
    operand = fetch(plane, operand, place, saved);
  };
  if (!on_host) {
    save(plane_a(p), gemm.a);
    save(plane_b(p), gemm.b);
    saved.storage.emplace_back(plane_out(p).bytes());
    gemm.out = saved.storage.back().data();
  }
  if (p.beta != 0) save(plane_c(p), gemm.c);
  for (std::size_t i = 0; i < p.epilogue.num_d; ++i) save(plane_d(p, i), gemm.d[i]);
  return saved;
}

void fetch_result(const Problem& problem, const Operands& operands, const runtime::Place& place,
                  SavedOperands& saved) {
  place.backend->synchronize(place.options);
  if (place.backend->uses_host_memory()) return;
  const GemmProblem p = with_strides(gemm_of(problem));
  const void* const from = std::get<GemmOperands>(operands).out;
  void* const to = std::get<GemmOperands>(saved.operands).out;
  if (!p.pointer_arrays) {
    place.backend->copy_to_host(to, from, plane_out(p).bytes(), place.options);
    return;
  }
  if (plane_out(p).empty()) return;
  const std::vector<const void*> batches = pointers_of(from, p.batch, place);
  const std::size_t bytes = bytes_of_batch(plane_out(p));
  for (std::size_t i = 0; i < batches.size(); ++i) {
    place.backend->copy_to_host(static_cast<void* const*>(to)[i], batches[i], bytes, place.options);
  }
}

}  // namespace tessera::measure
