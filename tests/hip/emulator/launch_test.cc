// Grids, workgroups that wait for each other, hidden arguments, and what a launch refuses.
#include <gtest/gtest.h>

#include <cstring>

#include "bench.h"
#include "compile.h"

namespace tessera::cdna_emulator {
namespace {

struct Loaded {
  Program program;
  Memory memory;
  Image image;
};
std::unique_ptr<Loaded> load_text(const std::string& text, const std::string& target = "gfx942") {
  auto l = std::make_unique<Loaded>();
  l->program = read_program(compile_hip(text, target));
  l->image = load_image(l->program.object, l->memory);
  return l;
}
Outcome launch_text(Loaded& l, std::vector<u32>& out, std::array<u32, 3> grid,
                    std::array<u32, 3> block, unsigned threads = 0,
                    u64 most_instructions = u64{1} << 33) {
  l.memory.add(reinterpret_cast<u64>(out.data()), out.size() * 4);
  const u64 address = reinterpret_cast<u64>(out.data());
  Launch launch;
  launch.grid = grid;
  launch.block = block;
  launch.arguments = {reinterpret_cast<const u8*>(&address), sizeof address};
  launch.threads = threads;
  launch.most_instructions = most_instructions;
  const Outcome outcome = run(l.program, l.image, l.program.object.kernels.at(0), l.memory, launch);
  l.memory.remove(address);
  return outcome;
}

const std::string kKernel =
    "extern \"C\" __attribute__((global, "
    "amdgpu_flat_work_group_size(1, 1024))) void kernel(unsigned* out) {\n";

TEST(Launch, GivesThreadsTheirPlaces) {
  SKIP_WITHOUT_TOOLS();
  const auto l = load_text(
      kKernel +
      "  const unsigned x = __builtin_amdgcn_workitem_id_x(), y = __builtin_amdgcn_workitem_id_y(),"
      " z = __builtin_amdgcn_workitem_id_z();\n"
      "  const unsigned g = __builtin_amdgcn_workgroup_id_x() + 3 * "
      "(__builtin_amdgcn_workgroup_id_y() + 2 * __builtin_amdgcn_workgroup_id_z());\n"
      "  const unsigned bx = __builtin_amdgcn_workgroup_size_x(), by = "
      "__builtin_amdgcn_workgroup_size_y();\n"
      "  out[g * 105 + x + bx * (y + by * z)] = g * 1000 + x + 7 * y + 35 * z;\n}\n");
  for (const unsigned threads : {1U, 3U}) {
    std::vector<u32> out(std::size_t{12} * 105);
    const Outcome outcome = launch_text(*l, out, {3, 2, 2}, {7, 5, 3}, threads);
    ASSERT_EQ(outcome.finding.text, "");
    EXPECT_EQ(outcome.statistics.workgroups, 12U);
    for (u32 n = 0; n < out.size(); ++n) EXPECT_EQ(out[n], n / 105 * 1000 + n % 105);
  }
}

const std::string kWaiting =
    kKernel +
    "  const unsigned me = __builtin_amdgcn_workgroup_id_x();\n"
    "  if (__builtin_amdgcn_workitem_id_x() != 0) return;\n"
    "  while (__hip_atomic_load(out, __ATOMIC_ACQUIRE, __HIP_MEMORY_SCOPE_AGENT) != WANTED)\n"
    "    __builtin_amdgcn_s_sleep(1);\n"
    "  out[1 + me] = me;\n"
    "  __hip_atomic_fetch_add(out, 1, __ATOMIC_RELEASE, __HIP_MEMORY_SCOPE_AGENT);\n}\n";
std::string waiting_for(const std::string& wanted) {
  std::string text = kWaiting;
  return text.replace(text.find("WANTED"), 6, wanted);
}

TEST(Launch, WorkgroupsWaitForLaterOnes) {
  SKIP_WITHOUT_TOOLS();
  std::vector<u32> out(9);
  const auto l = load_text(waiting_for("7 - me"));
  const Outcome outcome = launch_text(*l, out, {8, 1, 1}, {64, 1, 1});
  ASSERT_EQ(outcome.finding.text, "");
  EXPECT_EQ(out[0], 8U);
  for (u32 n = 0; n < 8; ++n) EXPECT_EQ(out[1 + n], n);
}

TEST(Launch, WaitingForNobodyEndsWithASentence) {
  SKIP_WITHOUT_TOOLS();
  std::vector<u32> out(9);
  const auto l = load_text(waiting_for("99"));
  const Outcome outcome = launch_text(*l, out, {2, 1, 1}, {64, 1, 1}, 0, 5'000'000);
  EXPECT_EQ(outcome.finding.kind, Finding::Kind::endless);
  EXPECT_NE(outcome.finding.text.find("did not end; the limit is 5000000"), std::string::npos)
      << outcome.finding.text;
}

TEST(Launch, AddsFloatsInTheSameOrderEachTime) {
  SKIP_WITHOUT_TOOLS();
  const auto l =
      load_text(kKernel +
                "  const unsigned t = __builtin_amdgcn_workgroup_id_x() * 64 + "
                "__builtin_amdgcn_workitem_id_x();\n"
                "  __hip_atomic_fetch_add((float*)out, 1.0F / (t * 2654435761U % 1000 + 1), "
                "__ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);\n}\n");
  std::vector<u32> first(1), second(1);
  launch_text(*l, first, {50, 1, 1}, {64, 1, 1}, 1);
  launch_text(*l, second, {50, 1, 1}, {64, 1, 1}, 8);
  EXPECT_NE(first[0], 0U);
  EXPECT_EQ(first, second);
}

TEST(Launch, NamesTheFirstWorkgroupWithAFinding) {
  SKIP_WITHOUT_TOOLS();
  const auto l = load_text(kKernel +
                           "  const unsigned g = __builtin_amdgcn_workgroup_id_x();\n"
                           "  out[g < 5 ? g : 1000000 + g] = g;\n}\n");
  for (int n = 0; n < 3; ++n) {
    std::vector<u32> out(64);
    const Outcome outcome = launch_text(*l, out, {32, 1, 1}, {64, 1, 1}, 4);
    EXPECT_EQ(outcome.finding.kind, Finding::Kind::outside);
    EXPECT_TRUE(outcome.finding.text.ends_with("' (workgroup 5, 0, 0).")) << outcome.finding.text;
  }
}

TEST(Launch, ReadsConstantsOfTheImage) {
  SKIP_WITHOUT_TOOLS();
  const auto l = load_text(
      "__attribute__((device)) const unsigned table[64] = {5, 9, 2, 7};\n"
      "__attribute__((device, used)) extern const int kernel_abi = 3;\n" +
      kKernel +
      "  const unsigned t = __builtin_amdgcn_workitem_id_x();\n"
      "  out[t] = table[out[t] & 63];\n}\n");
  std::vector<u32> out(64, 2U);
  const Outcome outcome = launch_text(*l, out, {1, 1, 1}, {64, 1, 1});
  EXPECT_EQ(outcome.finding.text, "");
  EXPECT_EQ(out[40], 2U);
  out[3] = 3;
  launch_text(*l, out, {1, 1, 1}, {64, 1, 1});
  EXPECT_EQ(out[3], 7U);
}

TEST(Launch, RefusesWhatTheKernelDoesNotTake) {
  SKIP_WITHOUT_TOOLS();
  const auto l = load_text(
      "extern \"C\" __attribute__((global, amdgpu_flat_work_group_size(64, 128))) void "
      "kernel(unsigned* out) { *out = 1; }\n");
  std::vector<u32> out(1);
  EXPECT_EQ(launch_text(*l, out, {1, 1, 1}, {256, 1, 1}).finding.text,
            "The launch of kernel has 1 workgroups of 256 threads; the kernel takes 1 to 128 "
            "threads.");
}

TEST(Launch, RefusesScratchMemory) {
  SKIP_WITHOUT_TOOLS();
  const auto l = load_text(kKernel +
                           "  volatile unsigned much[64];\n"
                           "  for (int n = 0; n < 64; ++n) much[n] = out[n];\n"
                           "  out[0] = much[out[1] & 63];\n}\n");
  std::vector<u32> out(64);
  const Outcome outcome = launch_text(*l, out, {1, 1, 1}, {64, 1, 1});
  EXPECT_NE(outcome.finding.text.find("bytes a thread in scratch memory, which the emulator does "
                                      "not have."),
            std::string::npos)
      << outcome.finding.text;
}

TEST(CodeObject, DamagedOnesAreRefused) {
  SKIP_WITHOUT_TOOLS();
  const std::vector<u8> good = compile_hip(kKernel + "*out = 1; }\n", "gfx942");
  const auto sentence = [](const std::vector<u8>& file) -> std::string {
    try {
      read_code_object(file);
    } catch (const Finding& finding) {
      return finding.text;
    }
    return "";
  };
  EXPECT_EQ(sentence(good), "");
  EXPECT_EQ(sentence({1, 2, 3}),
            "The code object cannot be used: it ends at byte 3, but a part of it ends at byte 64.");
  auto random = fresh_random();
  for (int n = 0; n < 300; ++n) {  // whatever is changed, it is read or refused with a sentence
    std::vector<u8> bad = good;
    bad[random() % 2048] = static_cast<u8>(random());
    if (n % 3 == 0) bad.resize(random() % bad.size());
    sentence(bad);
  }
  std::vector<u8> other = good;
  other[48] = 0x36;  // gfx1030
  EXPECT_EQ(sentence(other),
            "The code object cannot be used: it is for processor number 54, and the emulator knows "
            "gfx90a, gfx942, gfx950, gfx1100 and gfx1201.");
}

}  // namespace
}  // namespace tessera::cdna_emulator
