#include "launch.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <deque>
#include <mutex>
#include <thread>

#include "workgroup.h"

namespace tessera::cdna_emulator {

namespace {

// What the threads of a launch share.
struct Shared {
  const Plan* plan = nullptr;
  u64 total = 0;
  std::atomic<u64> next{0};
  std::atomic<u64> stop{~u64{0}};  // the least number of a workgroup with a finding
  std::mutex mutex;
  Outcome outcome;
};

std::array<u32, 3> id_of(const Launch& launch, u64 n) {
  return {static_cast<u32>(n % launch.grid[0]),
          static_cast<u32>(n / launch.grid[0] % launch.grid[1]),
          static_cast<u32>(n / launch.grid[0] / launch.grid[1])};
}

std::string place_of(const Launch& launch, u64 n) {
  const auto id = id_of(launch, n);
  return " (workgroup " + std::to_string(id[0]) + ", " + std::to_string(id[1]) + ", " +
         std::to_string(id[2]) + ")";
}

void keep_finding(Shared& s, u64 n, Finding finding) {
  const std::scoped_lock lock(s.mutex);
  if (n >= s.stop.load()) return;
  s.stop = n;
  if (!finding.text.empty() && finding.text.back() == '.') finding.text.pop_back();
  finding.text += place_of(*s.plan->launch, n) + ".";
  s.outcome.finding = std::move(finding);
}

void finish(Shared& s, Workgroup& g, u64 n) {
  if (g.races != 0) keep_finding(s, n, {Finding::Kind::race, g.first_race});
  const std::scoped_lock lock(s.mutex);
  s.outcome.races += g.races;
}

void add_statistics(Shared& s, const Workgroup& g) {
  const std::scoped_lock lock(s.mutex);
  Statistics& to = s.outcome.statistics;
  to.add(g.statistics);
  for (std::size_t n = 0; n < g.executed.size(); ++n) {
    if (g.executed[n] == 0) continue;
    to.instructions += g.executed[n];
    const Instruction& i = g.program->instructions[n];
    to.executed[i.name] += g.executed[n];
    if (i.vm_left >= 0) to.vm_waits[i.vm_left] += g.executed[n];
  }
}

// Runs a workgroup's next part. True when it has ended, by itself or by a finding.
bool advance(Shared& s, Workgroup& g, u64 n, u64 budget) {
  try {
    if (!run_for(g, budget)) {
      if (g.instructions <= s.plan->launch->most_instructions) return false;
      throw Finding{Finding::Kind::endless, "A workgroup ran " + std::to_string(g.instructions) +
                                                " instructions and did not end; the limit is " +
                                                std::to_string(s.plan->launch->most_instructions) +
                                                "."};
    }
  } catch (Finding& finding) {
    keep_finding(s, n, std::move(finding));
  }
  finish(s, g, n);
  return true;
}

// Workgroups that do not know of each other.
void run_side_by_side(Shared& s) {
  Workgroup g;
  prepare_workgroup(g, *s.plan);
  for (;;) {
    const u64 n = s.next++;
    if (n >= s.total || n > s.stop.load()) break;
    start(g, *s.plan, id_of(*s.plan->launch, n));
    while (!advance(s, g, n, u64{1} << 26)) {
    }
  }
  add_statistics(s, g);
}

// Workgroups that may wait for each other, in turns: one that has not ended after a while makes
// room for the next, and goes on when no other is new. A GPU has so many of them at once, too.
void run_in_turns(Shared& s) {
  constexpr u64 kTurn = 2'000'000;  // instructions
  constexpr std::size_t kMost = 64;
  struct Started {
    u64 number;
    std::unique_ptr<Workgroup> group;
  };
  std::deque<Started> waiting;
  std::vector<std::unique_ptr<Workgroup>> free;
  u64 next = 0;
  while (next < s.total || !waiting.empty()) {
    Started now;
    if (next < s.total && waiting.size() < kMost) {
      now.number = next++;
      if (free.empty()) {
        free.push_back(std::make_unique<Workgroup>());
        prepare_workgroup(*free.back(), *s.plan);
      }
      now.group = std::move(free.back());
      free.pop_back();
      start(*now.group, *s.plan, id_of(*s.plan->launch, now.number));
    } else {
      now = std::move(waiting.front());
      waiting.pop_front();
    }
    const bool ended = advance(s, *now.group, now.number, kTurn);
    if (ended) {
      free.push_back(std::move(now.group));
    } else {
      waiting.push_back(std::move(now));
    }
    if (s.stop.load() != ~u64{0}) break;
  }
  for (const Started& w : waiting) add_statistics(s, *w.group);
  for (const auto& group : free) add_statistics(s, *group);
}

// The caller's arguments and the hidden ones.
std::vector<u8> make_arguments(const Kernel& kernel, const Launch& launch) {
  std::vector<u8> bytes(std::max<std::size_t>(kernel.argument_bytes, launch.arguments.size()));
  std::copy(launch.arguments.begin(), launch.arguments.end(), bytes.begin());
  const auto set = [&](const HiddenArgument& h, u64 value) {
    if (u64{h.offset} + h.bytes > bytes.size()) return;
    std::memcpy(bytes.data() + h.offset, &value, std::min<std::size_t>(h.bytes, sizeof value));
  };
  u64 dimensions = 1;
  for (u64 d = 0; d < 3; ++d) {
    if (launch.grid[d] * launch.block[d] > 1) dimensions = d + 1;
  }
  for (const HiddenArgument& h : kernel.hidden) {
    for (std::size_t d = 0; d < 3; ++d) {
      const std::string axis(1, static_cast<char>('x' + d));
      if (h.kind == "hidden_block_count_" + axis) set(h, launch.grid[d]);
      if (h.kind == "hidden_group_size_" + axis) set(h, launch.block[d]);
    }
    if (h.kind == "hidden_grid_dims") set(h, dimensions);
    if (h.kind == "hidden_dynamic_lds_size") set(h, launch.dynamic_lds_bytes);
  }
  return bytes;
}

// 0 where they are more than 2^32.
u64 product_of(const std::array<u32, 3>& sides) {
  constexpr u64 kMost = u64{1} << 32;
  const u64 plane = u64{sides[0]} * sides[1];
  return plane > kMost || plane * sides[2] > kMost ? 0 : plane * sides[2];
}

Finding check_launch(const Program& program, const Kernel& kernel, const Launch& launch) {
  constexpr std::size_t kMostArguments = 65536;  // bytes
  const u64 threads = product_of(launch.block);
  const u64 groups = product_of(launch.grid);
  if (kernel.argument_bytes > kMostArguments || launch.arguments.size() > kMostArguments) {
    return {Finding::Kind::object, kernel.name + " takes " + std::to_string(kernel.argument_bytes) +
                                       " bytes of arguments and gets " +
                                       std::to_string(launch.arguments.size()) + "; the most are " +
                                       std::to_string(kMostArguments) + "."};
  }
  if (threads == 0 || groups == 0) {
    const auto text = [](const std::array<u32, 3>& sides) {
      return std::to_string(sides[0]) + " x " + std::to_string(sides[1]) + " x " +
             std::to_string(sides[2]);
    };
    return {Finding::Kind::object, "The launch of " + kernel.name + " has " + text(launch.grid) +
                                       " workgroups of " + text(launch.block) +
                                       " threads; there may be 1 to 2^32 of each."};
  }
  if (kernel.max_threads != 0 && threads > kernel.max_threads) {
    return {Finding::Kind::object,
            "The launch of " + kernel.name + " has " + std::to_string(groups) + " workgroups of " +
                std::to_string(threads) + " threads; the kernel takes 1 to " +
                std::to_string(kernel.max_threads) + " threads."};
  }
  const u64 lds = u64{kernel.lds_bytes} + launch.dynamic_lds_bytes;
  if (lds > program.object.target->lds_bytes) {
    return {Finding::Kind::object, "The launch of " + kernel.name + " needs " +
                                       std::to_string(lds) + " bytes of LDS; a workgroup of " +
                                       std::string(program.object.target->name) + " has " +
                                       std::to_string(program.object.target->lds_bytes) + "."};
  }
  if (kernel.scratch_bytes != 0) {
    return {Finding::Kind::uncovered, kernel.name + " keeps " +
                                          std::to_string(kernel.scratch_bytes) +
                                          " bytes a thread in scratch memory, which the emulator "
                                          "does not have."};
  }
  if (find_instruction(program, kernel.entry) < 0) {
    return {Finding::Kind::object, kernel.name + " has no code at its entry."};
  }
  return {};
}

}  // namespace

Image load_image(const CodeObject& object, Memory& memory) {
  constexpr u64 kPage = 4096;
  Image image;
  image.bytes.resize(object.image.size() + kPage);
  image.address = (reinterpret_cast<u64>(image.bytes.data()) + kPage - 1) / kPage * kPage;
  u8* at = reinterpret_cast<u8*>(image.address);
  std::copy(object.image.begin(), object.image.end(), at);
  for (const CodeObject::Relocation& r : object.relocations) {
    const u64 value = image.address + r.value;
    std::memcpy(at + r.place, &value, sizeof value);
  }
  for (const CodeObject::Segment& s : object.segments) {
    if (s.bytes != 0) memory.add(image.address + s.address, s.bytes, s.writable);
  }
  return image;
}

void Statistics::add(const Statistics& other) {
  launches += other.launches;
  workgroups += other.workgroups;
  instructions += other.instructions;
  mfmas += other.mfmas;
  lds_accesses += other.lds_accesses;
  lds_cycles += other.lds_cycles;
  lds_ideal_cycles += other.lds_ideal_cycles;
  for (const auto& [name, count] : other.executed) executed[name] += count;
  for (const auto& [left, count] : other.vm_waits) vm_waits[left] += count;
}

Outcome run(const Program& program, const Image& image, const Kernel& kernel, const Memory& memory,
            const Launch& launch) {
  Shared s;
  s.outcome.statistics.launches = 1;
  s.outcome.finding = check_launch(program, kernel, launch);
  if (s.outcome.finding.kind != Finding::Kind::none) return s.outcome;
  const std::vector<u8> arguments = make_arguments(kernel, launch);
  Memory with_arguments = memory;
  if (!arguments.empty()) {
    with_arguments.add(reinterpret_cast<u64>(arguments.data()), arguments.size(), false);
  }
  const Plan plan{&program, &kernel, &launch, &with_arguments, image.address, arguments};
  s.plan = &plan;
  s.total = u64{launch.grid[0]} * launch.grid[1] * launch.grid[2];
  if (program.has_global_atomics) {
    run_in_turns(s);
    return s.outcome;
  }
  const u64 wanted = launch.threads != 0 ? launch.threads : std::thread::hardware_concurrency();
  const u64 count = std::clamp<u64>(wanted, 1, s.total);
  std::vector<std::thread> threads;
  for (u64 n = 1; n < count; ++n) threads.emplace_back(run_side_by_side, std::ref(s));
  run_side_by_side(s);
  for (std::thread& t : threads) t.join();
  return s.outcome;
}

}  // namespace tessera::cdna_emulator
