// A kernel for an AMD GPU on the emulator: its code object, and its launches on operands in this
// process's memory. Every access outside of an operand, race and use before a wait is a finding.
#pragma once

#include <cstring>
#include <string>
#include <vector>

#include "cdna_emulator/facts.h"
#include "cdna_emulator/launch.h"
#include "tessera/device/hip/gemm/gemm_arguments.h"
#include "tessera/families/family.h"
#include "tessera/measure/operands.h"

namespace tessera {

namespace emulator = cdna_emulator;

// Memory that belongs to a launch besides operands.
struct LaunchMemory {
  std::vector<std::byte> workspace;
  std::size_t counter_bytes = 0;
};

inline void add_operands(const measure::OwnedOperands& owned, emulator::Memory& memory) {
  for (std::size_t i = 0; i < owned.tensors.size(); ++i) {
    const Tensor& tensor = owned.tensors[i];
    const void* start = owned.family->pointer(owned.operands, tensor.operand);
    if (start == nullptr || tensor.is_empty()) continue;
    auto begin = reinterpret_cast<std::uintptr_t>(start);
    if (tensor.in_array) {
      memory.add(begin, static_cast<std::size_t>(tensor.batches) * sizeof(void*), false);
      const auto* const pointers = static_cast<const std::uintptr_t*>(start);
      begin = *std::min_element(pointers, pointers + tensor.batches);
    }
    memory.add(begin, tensor.bytes(), tensor.is_written());
  }
}

// The workspace as a backend gives it: counters and what is to be cleared are zero, the rest is
// not.
inline LaunchMemory make_workspace(Launch& launch) {
  const Launch::Workspace& wanted = launch.workspace;
  LaunchMemory memory;
  if (wanted.bytes == 0) return memory;
  memory.counter_bytes = device::kHipCounterBytes;
  memory.workspace.assign(wanted.bytes, std::byte{0xff});
  std::fill_n(memory.workspace.begin(), memory.counter_bytes + wanted.clear_bytes, std::byte{0});
  void* const address = memory.workspace.data();
  std::memcpy(launch.arguments.data() + wanted.address_offset, &address, sizeof address);
  for (const WorkspacePlace& place : launch.workspace_places) {
    void* const at = memory.workspace.data() + place.workspace_offset;
    std::memcpy(launch.arguments.data() + place.offset, &at, sizeof at);
  }
  return memory;
}

// The code object of a kernel, with what its runs counted.
class EmulatedKernel {
 public:
  explicit EmulatedKernel(const std::string& file)
      : program_(emulator::read_program(bytes_of(file))) {}
  // With the text of its disassembly.
  EmulatedKernel(const std::string& file, const std::string& disassembly)
      : program_(emulator::make_program(emulator::read_code_object(bytes_of(file)), disassembly)) {}

  static std::span<const emulator::u8> bytes_of(const std::string& file) {
    return {reinterpret_cast<const emulator::u8*>(file.data()), file.size()};
  }

  emulator::Facts facts(const std::string& name) const {
    return emulator::facts_of(program_, *emulator::find_kernel(program_.object, name));
  }

  // Runs every step of a launch, with `resident` blocks where it is the backend that says how many.
  // The first finding as a sentence, or an empty one.
  std::string run(const std::string& name, const Source& source, Launch launch,
                  emulator::Memory memory, unsigned resident) {
    const LaunchMemory own = make_workspace(launch);
    if (!own.workspace.empty()) {
      memory.add(reinterpret_cast<std::uintptr_t>(own.workspace.data()), own.workspace.size());
    }
    const emulator::Image image = emulator::load_image(program_.object, memory);
    for (Step& step : launch.steps) {
      if (step.extent == Step::Extent::resident) {
        step.grid[0] = std::min(step.grid[0], resident);
        const int blocks = static_cast<int>(step.grid[0]);
        std::memcpy(launch.arguments.data() + launch.blocks_offset, &blocks, sizeof blocks);
      }
      const std::string entry = name + source.entries.at(step.entry);
      const emulator::Outcome outcome = emulator::run(
          program_, image, *emulator::find_kernel(program_.object, entry), memory,
          {.grid = {step.grid[0], step.grid[1], step.grid[2]},
           .block = {step.block[0], step.block[1], step.block[2]},
           .arguments = std::span(reinterpret_cast<const emulator::u8*>(launch.arguments.data()),
                                  launch.arguments.size()),
           .threads = 1});
      statistics.add(outcome.statistics);
      if (outcome.finding.kind != emulator::Finding::Kind::none) return outcome.finding.text;
    }
    for (std::size_t i = 0; i < own.counter_bytes; ++i) {
      if (own.workspace[i] != std::byte{0}) return "a counter is not zero after the launch";
    }
    return {};
  }

  emulator::Statistics statistics;

 private:
  emulator::Program program_;
};

}  // namespace tessera
