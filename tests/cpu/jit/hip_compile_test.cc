// Code objects by the real compilers for AMD's GPUs that this machine has. './dev setup' installs
// one; where CI is set, there must be one.
#include <gtest/gtest.h>

#include <cstdlib>
#include <random>
#include <string>

#include "host/jit/fixtures.h"
#include "tessera/base/error.h"
#include "tessera/families/headers.h"
#include "tessera/jit/hip_compilers.h"
#include "tessera/targets/targets.h"

namespace tessera::jit {
namespace {

constexpr std::string_view kHipHeader = R"(#pragma once
namespace tessera::device {
struct AddArguments { const float* from; float* to; int n; };
template <int kThreads> __attribute__((device)) inline int lane() {
  return __builtin_amdgcn_workgroup_id_x() * kThreads + __builtin_amdgcn_workitem_id_x();
}
}
)";

// Reads its neighbour's element through LDS.
constexpr const char* kHipText = R"(#include "tessera/device/test.h"
using namespace tessera::device;
extern "C" {
__attribute__((device, used)) extern const int NAME_abi = 3;
__attribute__((global, amdgpu_flat_work_group_size(256, 256))) void NAME(AddArguments g) {
  __attribute__((shared)) static float tile[256];
  const int i = lane<256>();
  tile[__builtin_amdgcn_workitem_id_x()] = i < g.n ? g.from[i] : 0.0f;
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
  if (i < g.n) g.to[i] = tile[__builtin_amdgcn_workitem_id_x() ^ 1] + SALT;
}
}
)";

Source hip_source() {
  const std::string name = "add_" + std::to_string(std::random_device()());
  std::string text = kHipText;
  for (const auto& [from, to] : {std::pair{std::string("NAME"), name}, {"SALT", "1.5f"}}) {
    for (std::size_t at = text.find(from); at != text.npos; at = text.find(from)) {
      text.replace(at, from.size(), to);
    }
  }
  auto headers = std::make_shared<Headers>();
  headers->files = {{"tessera/device/test.h", kHipHeader}};
  headers->hash = "test";
  return {.name = name, .extension = ".hip", .text = text, .headers = headers};
}

BuildOptions hip_options(const TempFolder& folder) {
  BuildOptions options;
  options.cache.folder = folder / "cache";
  options.worker = TESSERA_WORKER;
  options.use_shipped_packs = false;
  return options;
}

class HipCompile : public testing::TestWithParam<const char*> {};

TEST_P(HipCompile, MakesACodeObjectWithFacts) {
  const Target target = load_target(GetParam());
  const TempFolder folder;
  Builder builder(hip_options(folder));
  if (const std::string reason = builder.no_compiler(target); !reason.empty()) {
    ASSERT_EQ(environment("CI"), "") << reason;
    GTEST_SKIP() << reason;
  }
  const Source source = hip_source();
  const Artifact artifact = builder.build(source, target);
  EXPECT_EQ(artifact.binary.filename(), "kernel.hsaco");
  const std::string code = read_file(artifact.binary);
  EXPECT_NE(code.find(source.name + "_abi"), std::string::npos);
  EXPECT_NE(code.find(source.name + ".kd"), std::string::npos);
  const std::vector<EntryInfo> entries = builder.cache().list();
  ASSERT_EQ(entries.size(), 1U);
  const auto& facts = entries[0].facts;
  EXPECT_EQ(facts.at("shared_bytes"), 1024);
  EXPECT_EQ(facts.at("stack_bytes"), 0);
  EXPECT_EQ(facts.at("spilled_registers"), 0);
  EXPECT_GT(facts.at("registers"), 0);
  // The cache answers in a second builder.
  Builder again(hip_options(folder));
  EXPECT_EQ(again.build(source, target).binary, artifact.binary);
}

TEST_P(HipCompile, ReportsTheCompilersWords) {
  const Target target = load_target(GetParam());
  const TempFolder folder;
  Builder builder(hip_options(folder));
  if (!builder.no_compiler(target).empty()) GTEST_SKIP() << builder.no_compiler(target);
  Source source = hip_source();
  source.text += "int wrong = ;\n";
  try {
    builder.build(source, target);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::compile_failed);
    EXPECT_NE(std::string(error.what()).find("expected expression"), std::string::npos)
        << error.what();
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, HipCompile, testing::Values("gfx90a", "gfx942", "gfx950"));

// AMD's own compiler in a library needs no GPU. Debian's package libamdhip64-5 has one, for gfx90a.
TEST(Hiprtc, CompilesInTheWorkerWithoutAGpu) {
  fs::path library;
  for (const fs::path& place : hip_compiler_places()) {
    if (library.empty() && place.filename().string().find(".so") != std::string::npos) {
      library = place;
    }
  }
  if (library.empty()) {
    GTEST_SKIP() << "there is no libhiprtc.so; 'apt-get install libamdhip64-5 libhiprtc-builtins5' "
                    "brings one for gfx90a";
  }
  const Target target = load_target("gfx90a");
  const TempFolder folder;
  BuildOptions options = hip_options(folder);
  options.hip_compiler = library.string();
  Builder builder(options);
  EXPECT_EQ(builder.no_compiler(target), "");
  const Toolchain found = find_hip_compiler(
      {.compiler = library.string(), .worker = TESSERA_WORKER}, target, folder / "memo");
  EXPECT_TRUE(found.version.starts_with("hiprtc ")) << found.version;
  Source source = hip_source();
  const Artifact artifact = builder.build(source, target);
  EXPECT_NE(read_file(artifact.binary).find(source.name + ".kd"), std::string::npos);
  EXPECT_EQ(builder.cache().list().at(0).facts.at("shared_bytes"), 1024);
  source.text += "int wrong = ;\n";
  try {
    builder.build(source, target);
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("expected expression"), std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace tessera::jit
