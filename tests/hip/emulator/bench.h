// One wave of one workgroup on which tests run lines of a disassembly.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <string>

#include "cdna_emulator/lanes.h"
#include "cdna_emulator/program.h"

namespace tessera::cdna_emulator {

struct Bench {
  Program program;
  Memory memory;
  Workgroup group;
  Wave* wave = nullptr;
};

inline std::unique_ptr<Bench> make_bench(std::string_view target, std::size_t lds_bytes = 0) {
  auto b = std::make_unique<Bench>();
  b->program.instructions.resize(1);
  b->group.program = &b->program;
  b->group.target = find_target(target);
  b->group.memory = &b->memory;
  b->group.lds.assign(lds_bytes, 0);
  b->group.touches.assign((lds_bytes + 3) / 4, {});
  b->group.executed.assign(1, 0);
  for (int n = 0; n < 2; ++n) {
    b->group.waves.push_back(std::make_unique<Wave>());
    Wave& w = *b->group.waves.back();
    for (auto& lanes : w.v) lanes.fill(0);
    w.s.fill(0);
    w.awaited.fill(0);
    w.awaited_scalar.fill(0);
    w.masked = 0;
    w.lane_mask.fill(0);
    w.group = &b->group;
    w.id = n;
    w.set_pair(kExec, ~u64{0});
  }
  b->group.num_waves = 2;
  b->wave = b->group.waves[0].get();
  return b;
}

// Runs a line as the loop of a workgroup does, on the bench's first wave or another.
inline void run_line(Bench& b, const std::string& text, Wave* wave = nullptr) {
  Wave& w = wave == nullptr ? *b.wave : *wave;
  // Loads under way point to their instruction.
  static std::vector<std::unique_ptr<Instruction>> kept;
  kept.push_back(std::make_unique<Instruction>(decode(text, 0)));
  if (w.num_awaited != 0) check_awaited(w, *kept.back());
  kept.back()->run(w, *kept.back());
}

// The sentence of the finding that a line throws; empty if it throws none.
inline std::string finding_of(Bench& b, const std::string& text, Wave* wave = nullptr) {
  try {
    run_line(b, text, wave);
  } catch (const Finding& finding) {
    return finding.text;
  }
  return "";
}

// Random numbers whose seed is printed.
inline std::mt19937 fresh_random() {
  const unsigned seed = std::random_device()();
  ::testing::Test::RecordProperty("seed", static_cast<int>(seed));
  std::printf("seed %u\n", seed);
  return std::mt19937(seed);
}

}  // namespace tessera::cdna_emulator
