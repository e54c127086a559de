#include "facts.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tables.h"

namespace tessera::cdna_emulator {

namespace {

// The instructions of a kernel: from its entry on as many bytes as its symbol has.
std::pair<std::size_t, std::size_t> range_of(const Program& program, const Kernel& kernel) {
  u64 end = ~u64{0};
  for (const Symbol& s : program.object.symbols) {
    if (s.name == kernel.name) end = s.address + s.bytes;
  }
  std::size_t first = 0, last = 0;
  for (const Instruction& i : program.instructions) {
    if (i.address < kernel.entry) ++first;
    if (i.address < end) ++last;
  }
  return {first, std::max(first, last)};
}

// The loops of these instructions, by their first one: where a branch back ends the last turn.
std::map<std::size_t, std::size_t> ends_of_loops(const Program& program, std::size_t first,
                                                 std::size_t last) {
  std::map<std::size_t, std::size_t> ends;
  for (std::size_t n = first; n < last; ++n) {
    const i32 target = program.instructions[n].target;
    if (target < 0 || static_cast<std::size_t>(target) > n) continue;
    ends[static_cast<std::size_t>(target)] = n + 1;
  }
  return ends;
}

Loop loop_of(const Program& program, std::size_t begin, std::size_t end) {
  Loop loop;
  for (std::size_t n = begin; n < end; ++n) {
    const Instruction& i = program.instructions[n];
    count(loop.kinds, i.name, 1);
    if (i.vm_left >= 0) loop.vm_left.push_back(i.vm_left);
  }
  return loop;
}

// Inner loops come later than those that hold them.
std::vector<Loop> loops_of(const Program& program, std::size_t first, std::size_t last) {
  std::vector<Loop> loops;
  std::size_t inner_begin = last;
  const auto ends = ends_of_loops(program, first, last);
  for (auto at = ends.rbegin(); at != ends.rend(); ++at) {
    const auto [begin, end] = *at;
    if (inner_begin < end) continue;
    Loop loop = loop_of(program, begin, end);
    if (loop.kinds.mfma == 0) continue;
    inner_begin = begin;
    loops.insert(loops.begin(), std::move(loop));
  }
  return loops;
}

nlohmann::ordered_json to_json(const Kinds& k) {
  return {{"mfma", k.mfma},     {"vector", k.vector}, {"exp", k.exp},
          {"scalar", k.scalar}, {"lds", k.lds},       {"memory", k.memory}};
}
nlohmann::ordered_json to_json(const std::vector<Loop>& loops) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const Loop& loop : loops) {
    rows.push_back(to_json(loop.kinds));
    rows.back()["vm_left"] = loop.vm_left;
  }
  return rows;
}

bool is_covered(const Instruction& i) {
  static const Instruction unknown = decode("unknown", 0);
  return i.run != unknown.run;
}

}  // namespace

void count(Kinds& k, std::string_view name, u64 times) {
  const auto begins = [&](std::string_view with) { return name.starts_with(with); };
  u64& kind = begins("v_mfma") || begins("v_wmma") ? k.mfma
              : begins("v_exp_")                   ? k.exp
              : begins("v_")                       ? k.vector
              : begins("ds_")                      ? k.lds
              : begins("buffer_") || begins("global_") || begins("flat_") || begins("scratch_")
                  ? k.memory
                  : k.scalar;
  kind += times;
}

Facts facts_of(const Program& program, const Kernel& k) {
  Facts f{.name = k.name, .target = std::string(program.object.target->name)};
  f.vgprs = k.vgprs;
  f.agprs = k.agprs;
  f.sgprs = k.sgprs;
  f.vgpr_spills = k.vgpr_spills;
  f.sgpr_spills = k.sgpr_spills;
  f.lds_bytes = k.lds_bytes;
  f.scratch_bytes = k.scratch_bytes;
  f.argument_bytes = k.argument_bytes;
  f.max_threads = k.max_threads;
  for (const Symbol& s : program.object.symbols) {
    if (s.name == k.name) f.code_bytes = s.bytes;
  }
  const auto [first, last] = range_of(program, k);
  f.instructions = last - first;
  for (std::size_t n = first; n < last; ++n) {
    const Instruction& i = program.instructions[n];
    if (i.mfma != nullptr) ++f.mfmas[i.name];
    if (!is_covered(i)) ++f.uncovered;
  }
  f.loops = loops_of(program, first, last);
  return f;
}

std::string listing_of(const Program& program, const Kernel& k) {
  const auto [first, last] = range_of(program, k);
  std::string text;
  for (std::size_t n = first; n < last; ++n) text += "    " + program.instructions[n].text + "\n";
  return text;
}

std::string to_text(const Facts& f) {
  std::string text = f.name + " for " + f.target + "\n";
  text += "    " + std::to_string(f.instructions) + " instructions in " +
          std::to_string(f.code_bytes) + " bytes, " + std::to_string(f.uncovered) +
          " of them unknown to the emulator\n";
  for (const auto& [name, count] : f.mfmas) {
    text += "    " + std::to_string(count) + " " + name + "\n";
  }
  text += "    " + std::to_string(f.vgprs) + " vector registers, " + std::to_string(f.agprs) +
          " of them accumulators; " + std::to_string(f.sgprs) + " scalar registers\n";
  text += "    " + std::to_string(f.vgpr_spills) + " vector and " + std::to_string(f.sgpr_spills) +
          " scalar registers spilled; " + std::to_string(f.scratch_bytes) +
          " bytes of scratch memory a thread\n";
  text += "    " + std::to_string(f.lds_bytes) + " bytes of LDS, " +
          std::to_string(f.argument_bytes) + " bytes of arguments, at most " +
          std::to_string(f.max_threads) + " threads a workgroup\n";
  return text;
}

std::string to_json(const Facts& f, const std::string& listing) {
  nlohmann::ordered_json json = {{"kernel", f.name},
                                 {"target", f.target},
                                 {"vgprs", f.vgprs},
                                 {"agprs", f.agprs},
                                 {"sgprs", f.sgprs},
                                 {"vgpr_spills", f.vgpr_spills},
                                 {"sgpr_spills", f.sgpr_spills},
                                 {"lds_bytes", f.lds_bytes},
                                 {"scratch_bytes", f.scratch_bytes},
                                 {"argument_bytes", f.argument_bytes},
                                 {"max_threads", f.max_threads},
                                 {"code_bytes", f.code_bytes},
                                 {"instructions", f.instructions},
                                 {"uncovered", f.uncovered},
                                 {"mfmas", f.mfmas},
                                 {"loops", to_json(f.loops)}};
  if (!listing.empty()) json["listing"] = listing;
  return json.dump();
}

std::string to_json(const Statistics& s, u64 findings) {
  std::map<std::string, u64> mfmas;
  Kinds kinds;
  for (const auto& [name, times] : s.executed) {
    count(kinds, name, times);
    if (find_mfma_row(name) != nullptr) mfmas[name] = times;
  }
  const nlohmann::ordered_json json = {
      {"launches", s.launches},         {"workgroups", s.workgroups},
      {"instructions", s.instructions}, {"lds_accesses", s.lds_accesses},
      {"lds_cycles", s.lds_cycles},     {"lds_ideal_cycles", s.lds_ideal_cycles},
      {"findings", findings},           {"mfmas", mfmas},
      {"kinds", to_json(kinds)}};
  return json.dump();
}

}  // namespace tessera::cdna_emulator
