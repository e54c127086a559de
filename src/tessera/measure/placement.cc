// Copying operands between the host and the place where kernels run.
#include <algorithm>
#include <functional>
#include <numeric>

#include "tessera/families/family.h"
#include "tessera/measure/operands.h"
#include "tessera/measure/operands_internal.h"

namespace tessera::measure {
namespace {

// The device address for a host pointer into one of the buffers.
void* moved(const void* pointer, const OwnedOperands& owned, const PlacedOperands& placed) {
  const std::less_equal<> not_after;
  const auto* at = static_cast<const std::byte*>(pointer);
  for (std::size_t i = 0; i < owned.storage.size(); ++i) {
    const auto* begin = static_cast<const std::byte*>(owned.storage[i].data());
    if (at == nullptr || !not_after(begin, at)) continue;
    if (!not_after(at, begin + owned.storage[i].size())) continue;
    return static_cast<std::byte*>(placed.storage[i].data()) + (at - begin);
  }
  return nullptr;
}

// The pointers of an array, translated to device addresses.
void place_array(std::size_t array, const OwnedOperands& owned, const runtime::Place& place,
                 PlacedOperands& placed) {
  const runtime::AlignedBuffer& host = owned.storage[array];
  const auto* const first = static_cast<const void* const*>(host.data());
  std::vector<const void*> pointers(first, first + host.size() / sizeof(void*));
  for (const void*& pointer : pointers) pointer = moved(pointer, owned, placed);
  place.backend->copy_to_device(placed.storage[array].data(), pointers.data(), host.size(),
                                place.options);
}

// The pointers of an array in the place's memory.
std::vector<const void*> pointers_of(const void* array, std::int64_t batch,
                                     const runtime::Place& place) {
  std::vector<const void*> pointers(static_cast<std::size_t>(batch));
  place.backend->copy_to_host(pointers.data(), array, pointers.size() * sizeof(void*),
                              place.options);
  return pointers;
}

// Memory on the host for every batch of a tensor, and an array of pointers to it. Batches without
// bytes have none.
void** array_for(const std::vector<std::size_t>& bytes, HostOperands& host) {
  const std::size_t all = std::accumulate(bytes.begin(), bytes.end(), std::size_t{0});
  auto* next = static_cast<std::byte*>(host.storage.emplace_back(all).data());
  auto** const pointers =
      static_cast<void**>(host.storage.emplace_back(bytes.size() * sizeof(void*)).data());
  for (std::size_t i = 0; i < bytes.size(); next += bytes[i++]) {
    pointers[i] = bytes[i] == 0 ? nullptr : next;
  }
  return pointers;
}

// The i-th tensor.
void* room_for(std::size_t i, HostOperands& host) {
  if (host.tensors[i].in_array) return array_for(host.batch_bytes.at(i), host);
  return host.storage.emplace_back(host.tensors[i].bytes()).data();
}

// Copies the i-th tensor, or each batch of an array, to the host's copy.
void fetch(const HostOperands& host, std::size_t i, const void* from, void* to,
           const runtime::Place& place) {
  const Tensor& tensor = host.tensors[i];
  if (!tensor.in_array) {
    place.backend->copy_to_host(to, from, tensor.bytes(), place.options);
    return;
  }
  const std::vector<const void*> batches = pointers_of(from, tensor.batches, place);
  for (std::size_t batch = 0; batch < batches.size(); ++batch) {
    const std::size_t bytes = host.batch_bytes.at(i)[batch];
    if (bytes == 0) continue;
    place.backend->copy_to_host(static_cast<void* const*>(to)[batch], batches[batch], bytes,
                                place.options);
  }
}

// The numbers that batches are as large as have been copied.
void measure_batches(const Family& family, const Problem& problem, std::size_t i,
                     HostOperands& host) {
  const Tensor& tensor = host.tensors[i];
  std::vector<std::size_t>& bytes = host.batch_bytes.at(i);
  for (std::int64_t batch = 0; batch < tensor.batches; ++batch) {
    bytes.push_back(family.batch_bytes(problem, host.operands, tensor, batch));
  }
}

// Those in arrays, or the others.
void copy_some(const Family& family, const Problem& problem, const Operands& operands,
               const runtime::Place& place, bool in_arrays, HostOperands& host) {
  for (std::size_t i = 0; i < host.tensors.size(); ++i) {
    const Tensor& tensor = host.tensors[i];
    const void* const from = family.pointer(operands, tensor.operand);
    const bool is_left_out = tensor.may_be_null && from == nullptr;
    if (tensor.in_array != in_arrays || tensor.is_empty() || is_left_out) continue;
    if (in_arrays) measure_batches(family, problem, i, host);
    void* const to = room_for(i, host);
    family.set_pointer(host.operands, tensor.operand, to);
    if (tensor.is_read()) fetch(host, i, from, to, place);
  }
}

}  // namespace

runtime::DeviceBuffer pack_operand(const runtime::LoadedKernel& kernel, const KernelSpec& spec,
                                   const Problem& problem, const Target& target, Operands& operands,
                                   const runtime::Place& place) {
  const Family& family = family_of(problem);
  const std::optional<Prepack> wanted = family.prepack(spec, problem, target, operands, nullptr);
  if (!wanted) return {};
  runtime::DeviceBuffer packed(place, wanted->bytes);
  const std::optional<Prepack> prepack =
      family.prepack(spec, problem, target, operands, packed.data());
  kernel.launch(prepack->launch, place.options);
  operands = prepack->operands;
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
  for (const Tensor& tensor : owned.tensors) {
    const void* const pointer = owned.family->pointer(owned.operands, tensor.operand);
    owned.family->set_pointer(placed.operands, tensor.operand, moved(pointer, owned, placed));
  }
  for (const std::size_t array : owned.arrays) place_array(array, owned, place, placed);
  return placed;
}

void send_outputs(const OwnedOperands& owned, PlacedOperands& placed, const runtime::Place& place) {
  if (placed.storage.empty()) return;
  for (const std::size_t i : owned.outputs) {
    const runtime::AlignedBuffer& output = owned.storage[i];
    place.backend->copy_to_device(placed.storage[i].data(), output.data(), output.size(),
                                  place.options);
  }
}

void fetch_outputs(OwnedOperands& owned, const PlacedOperands& placed,
                   const runtime::Place& place) {
  place.backend->synchronize(place.options);
  if (placed.storage.empty()) return;
  for (const std::size_t i : owned.outputs) {
    const runtime::AlignedBuffer& output = owned.storage[i];
    place.backend->copy_to_host(output.data(), placed.storage[i].data(), output.size(),
                                place.options);
  }
}

void fetch_runs(OwnedOperands& owned, const PlacedOperands& placed, const runtime::Place& place,
                std::span<const Reference::Run> runs) {
  place.backend->synchronize(place.options);
  const auto fetch_bytes = [&](std::size_t tensor, std::size_t offset, std::size_t bytes) {
    const auto* const from = static_cast<const std::byte*>(placed.storage.at(tensor).data());
    auto* const to = static_cast<std::byte*>(owned.storage[tensor].data());
    place.backend->copy_to_host(to + offset, from + offset, bytes, place.options);
  };
  for (const std::size_t i : owned.outputs) {
    fetch_bytes(i, 0, kGuardBytes);
    fetch_bytes(i, owned.storage[i].size() - kGuardBytes, kGuardBytes);
  }
  for (const Reference::Run& run : runs) {
    const Tensor& tensor = owned.tensors[run.tensor];
    const void* first = owned.family->pointer(owned.operands, tensor.operand);
    if (tensor.in_array) first = static_cast<const void* const*>(first)[run.batch];
    const auto* const begin = static_cast<const std::byte*>(owned.storage[run.tensor].data());
    const std::int64_t offset = static_cast<const std::byte*>(first) - begin + run.offset;
    fetch_bytes(run.tensor, static_cast<std::size_t>(offset), static_cast<std::size_t>(run.bytes));
  }
}

void reset_placed(PlacedOperands& placed, const OwnedOperands& owned, const runtime::Place& place) {
  for (std::size_t i = 0; i < owned.outputs.size(); ++i) {
    const runtime::DeviceBuffer& output = placed.storage.at(owned.outputs[i]);
    const runtime::AlignedBuffer& original = owned.originals[i];
    if (original.size() == 0) {
      const DType dtype = owned.tensors[owned.outputs[i]].dtype;
      place.backend->fill(output.data(), poison_byte(dtype, owned.fp8), output.size(),
                          place.options);
    } else {
      place.backend->copy_to_device(output.data(), original.data(), original.size(), place.options);
    }
  }
}

HostOperands fetch_inputs(const Family& family, const Problem& problem, const Operands& operands,
                          const runtime::Place& place) {
  if (place.backend->uses_host_memory()) return {family.tensors(problem), operands, {}, {}};
  return copy_inputs(family, problem, operands, place);
}

HostOperands copy_inputs(const Family& family, const Problem& problem, const Operands& operands,
                         const runtime::Place& place) {
  HostOperands host{family.tensors(problem), operands, {}, {}};
  if (writes_nothing(host.tensors)) return host;
  host.batch_bytes.resize(host.tensors.size());
  for (const bool in_arrays : {false, true}) {
    copy_some(family, problem, operands, place, in_arrays, host);
  }
  return host;
}

void fetch_results(const Family& family, const Operands& operands, const runtime::Place& place,
                   HostOperands& host) {
  place.backend->synchronize(place.options);
  if (place.backend->uses_host_memory() || writes_nothing(host.tensors)) return;
  for (std::size_t i = 0; i < host.tensors.size(); ++i) {
    const Tensor& tensor = host.tensors[i];
    if (!tensor.is_written() || tensor.is_empty()) continue;
    void* const to = const_cast<void*>(family.pointer(host.operands, tensor.operand));
    fetch(host, i, family.pointer(operands, tensor.operand), to, place);
  }
}

HostOperands copy_results(const Family& family, const Operands& operands,
                          const runtime::Place& place, const HostOperands& inputs) {
  place.backend->synchronize(place.options);
  HostOperands results{inputs.tensors, inputs.operands, {}, inputs.batch_bytes};
  if (writes_nothing(results.tensors)) return results;
  for (std::size_t i = 0; i < results.tensors.size(); ++i) {
    const Tensor& tensor = results.tensors[i];
    const void* const from = family.pointer(operands, tensor.operand);
    if (!tensor.is_written() || tensor.is_empty() || from == nullptr) continue;
    void* const to = room_for(i, results);
    family.set_pointer(results.operands, tensor.operand, to);
    fetch(results, i, from, to, place);
  }
  return results;
}

}  // namespace tessera::measure
