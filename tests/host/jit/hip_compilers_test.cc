// Finding a compiler for AMD's GPUs, refusing it, and what it states about a code object. The
// compilers here are shell scripts; real ones are tested in tests/cpu/jit.
#include "tessera/jit/hip_compilers.h"

#include <elf.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "host/jit/fixtures.h"
#include "host/spec/expect_error.h"
#include "tessera/base/error.h"
#include "tessera/jit/hip_compilers_internal.h"

namespace tessera::jit {
namespace {

constexpr const char* kAdvice =
    "get one with 'apt install clang-22 lld-22' or ROCm, or name a clang++ or libhiprtc.so with "
    "TESSERA_HIPCC; kernels in a pack need none";

Target gfx(const std::string& name) {
  Target target;
  target.name = name;
  target.backend = "hip";
  target.compile_flags = {"--offload-arch=" + name};
  return target;
}

class HipCompilers : public testing::Test {
 protected:
  HipCompilers() { fs::create_directories(temp_ / "bin"); }

  // A compiler that states this version and makes code for targets whose name holds `knows`.
  fs::path write_compiler(const fs::path& file, const std::string& version,
                          const std::string& knows = "gfx") const {
    fs::create_directories(file.parent_path());
    write_file(file, fmt::format(R"(#!/bin/sh
case "$*" in *--version) echo "{}" && exit 0;; *-print-prog-name=*) exit 0;; esac
case "$*" in *--offload-arch=*{}*) echo made > kernel.hsaco && exit 0;; esac
echo "error: unknown target"; exit 1
)",
                                 version, knows));
    fs::permissions(file, fs::perms::owner_all);
    return file;
  }
  Toolchain find(const std::string& target) const {
    return find_hip_compiler({.compiler = {}, .worker = (temp_ / "worker").string()}, gfx(target));
  }

  TempFolder temp_;
  ScopedVariable path_{"PATH", (temp_ / "bin").string() + ":/usr/sbin:/sbin"};
  ScopedVariable rocm_{"ROCM_PATH", (temp_ / "rocm").string()};
  ScopedVariable hip_{"HIP_PATH", std::nullopt};
  ScopedVariable named_{"TESSERA_HIPCC", std::nullopt};
  ScopedVariable libraries_{"LD_LIBRARY_PATH", std::nullopt};
};

TEST_F(HipCompilers, RocmsComesBeforeDebiansAndLibrariesLast) {
  const fs::path debian = write_compiler(temp_ / "bin" / "clang++-22", "Debian clang version 22.1");
  EXPECT_EQ(find("gfx942").path, debian);
  EXPECT_EQ(find("gfx942").version, "Debian clang version 22.1");
  EXPECT_TRUE(find("gfx942").runner.empty());
  const fs::path amd =
      write_compiler(temp_ / "rocm" / "llvm/bin/amdclang++", "AMD clang version 19.0.0git");
  fs::create_directories(temp_ / "rocm" / "lib");
  write_file(temp_ / "rocm" / "lib/libhiprtc.so.6", "a library");
  EXPECT_EQ(find("gfx942").path, amd);
  const std::vector<fs::path> places = hip_compiler_places();
  ASSERT_GE(places.size(), 3U);
  EXPECT_EQ(places[0], amd);
  EXPECT_EQ(places[1], debian);
  EXPECT_EQ(places[2], temp_ / "rocm" / "lib/libhiprtc.so.6");
}

TEST_F(HipCompilers, OneThatMakesNoCodeForTheTargetIsPassedOver) {
  const fs::path old =
      write_compiler(temp_ / "rocm" / "llvm/bin/amdclang++", "AMD clang version 15.0.0", "gfx90a");
  const fs::path later = write_compiler(temp_ / "bin" / "clang++-22", "Debian clang version 22.1");
  EXPECT_EQ(find("gfx90a").path, old);
  EXPECT_EQ(find("gfx942").path, later);
  // The one that was passed over is asked again when it has changed.
  write_compiler(old, "AMD clang version 19.0.0 (an update)");
  EXPECT_EQ(find("gfx942").path, old);
}

TEST_F(HipCompilers, OneThatMakesWrongCodeIsRefused) {
  const std::string reason =
      "clang 19 moves writes to LDS behind a barrier in code for gfx942, so that waves read what "
      "is not written yet; clang 22 is the first later version that was checked";
  for (const char* version : {"Debian clang version 19.1.7 (3~deb12u1)", "clang version 17.0.6",
                              "Ubuntu clang version 21.0.0"}) {
    EXPECT_EQ(wrong_code_reason(version, "gfx942"), reason) << version;
    EXPECT_EQ(wrong_code_reason(version, "gfx90a"), "") << version;
  }
  for (const char* version : {"Debian clang version 22.1.8", "AMD clang version 19.0.0git",
                              "hiprtc 9.0 in libhiprtc.so.6.2", ""}) {
    EXPECT_EQ(wrong_code_reason(version, "gfx942"), "") << version;
  }
  const fs::path file = write_compiler(temp_ / "bin" / "clang++-19", "Debian clang version 19.1.7");
  EXPECT_EQ(find("gfx90a").path, file);
  const ScopedVariable variable("TESSERA_HIPCC", file.string());
  expect_error(
      ErrorCode::compile_failed,
      file.string() + " (Debian clang version 19.1.7) is refused for target 'gfx942': " + reason,
      [&] { find("gfx942"); });
}

TEST_F(HipCompilers, TheNamedOneIsUsedOrReported) {
  write_compiler(temp_ / "bin" / "clang++-22", "Debian clang version 22.1");
  const fs::path mine = write_compiler(temp_ / "mine", "my clang version 30");
  {
    const ScopedVariable variable("TESSERA_HIPCC", mine.string() + " -v");
    EXPECT_EQ(find("gfx942").path, mine);
    EXPECT_EQ(find("gfx942").arguments, std::vector<std::string>{"-v"});
  }
  const ScopedVariable variable("TESSERA_HIPCC", "/none");
  expect_error(ErrorCode::compile_failed,
               "the compiler '/none', named by TESSERA_HIPCC, is neither an executable file nor a "
               "library (PATH is '" +
                   environment("PATH") + "'); " + kAdvice,
               [&] { find("gfx942"); });
  expect_error(
      ErrorCode::compile_failed,
      "the compiler '/libhiprtc.so' is neither an executable file nor a library (PATH is "
      "'" +
          environment("PATH") + "'); " + kAdvice,
      [&] { find_hip_compiler({.compiler = "/libhiprtc.so", .worker = {}}, gfx("gfx942")); });
}

TEST_F(HipCompilers, SaysWhyNoneWasTaken) {
  const fs::path file =
      write_compiler(temp_ / "bin" / "clang++-22", "Debian clang version 22.1", "gfx90a");
  try {
    find("gfx950");
    FAIL();
  } catch (const Error& error) {
    const std::string words = error.what();
    EXPECT_TRUE(words.starts_with("no compiler for target 'gfx950' was found: " + file.string() +
                                  " (Debian clang version 22.1) makes no code for target "
                                  "'gfx950' (exit code 1, signal 0): error: unknown target"))
        << words;
    EXPECT_TRUE(words.ends_with(kAdvice)) << words;
  }
}

// hiprtc is run by the worker, which names the libraries that it loaded.
TEST_F(HipCompilers, HiprtcIsKnownByAllThatItLoads) {
  const fs::path library = temp_ / "libhiprtc.so.6.2.41134";
  write_file(library, "the front");
  write_file(temp_ / "libamd_comgr.so.2", "the compiler proper");
  write_file(temp_ / "worker", fmt::format("#!/bin/sh\necho \"$@\" >> {0}/words\necho hiprtc 9.0\n"
                                           "echo {0}/libhiprtc.so.6.2.41134\n"
                                           "echo {0}/libamd_comgr.so.2\n",
                                           temp_.path().string()));
  fs::permissions(temp_ / "worker", fs::perms::owner_all);
  const HipCompilerOptions options{library.string(), (temp_ / "worker").string()};
  const Toolchain found = find_hip_compiler(options, gfx("gfx942"));
  EXPECT_EQ(found.path, library);
  EXPECT_EQ(found.version, "hiprtc 9.0 in libhiprtc.so.6.2.41134");
  EXPECT_EQ(found.runner, temp_ / "worker");
  EXPECT_EQ(read_file(temp_ / "words"),
            "hiprtc " + library.string() + " --version --offload-arch=gfx942\n");
  write_file(temp_ / "libamd_comgr.so.2", "the compiler proper, updated");
  EXPECT_NE(find_hip_compiler(options, gfx("gfx942")).build_id, found.build_id);
}

TEST_F(HipCompilers, AreCalledWithoutRocmsFiles) {
  Source source = make_source("gemm_a", "int x;\n");
  source.extension = ".hip";
  const Toolchain clang{
      .path = "/bin/clang++", .version = "", .build_id = "", .arguments = {"-v"}, .runner = {}};
  EXPECT_EQ(compile_command(clang, gfx("gfx942"), source),
            (std::vector<std::string>{"/bin/clang++", "-v", "-x", "hip", "--cuda-device-only",
                                      "--no-gpu-bundle-output", "-nogpuinc", "-nogpulib", "-I.",
                                      "--offload-arch=gfx942", "-std=c++20", "-O3",
                                      "-ffp-contract=fast", "-mcode-object-version=4", "-w",
                                      "kernel.hip", "-o", "kernel.hsaco"}));
  Toolchain library = clang;
  library.path = "/lib/libhiprtc.so.7";
  library.runner = "/w";
  EXPECT_EQ(compile_command(library, gfx("gfx950"), source),
            (std::vector<std::string>{"/w", "hiprtc", "/lib/libhiprtc.so.7",
                                      "--offload-arch=gfx950", "-std=c++20", "-O3",
                                      "-ffp-contract=fast", "-mcode-object-version=4", "-w",
                                      "kernel.hip", "-o", "kernel.hsaco"}));
}

// A file with one segment of notes: one of another owner, and AMD's.
std::string code_object_with(const nlohmann::json& metadata) {
  const std::vector<std::uint8_t> packed = nlohmann::json::to_msgpack(metadata);
  const auto note = [](const std::string& owner, unsigned type, std::string text) {
    const Elf64_Nhdr header{static_cast<unsigned>(owner.size() + 1),
                            static_cast<unsigned>(text.size()), type};
    std::string padded_owner = owner + '\0';
    padded_owner.resize((padded_owner.size() + 3) / 4 * 4);
    text.resize((text.size() + 3) / 4 * 4);
    return std::string(reinterpret_cast<const char*>(&header), sizeof(header)) + padded_owner +
           text;
  };
  const std::string notes =
      note("GNU", 3, "12345") + note("AMDGPU", 32, std::string(packed.begin(), packed.end()));
  std::string file = elf_headers(ET_DYN, kAmdGpuMachine);
  Elf64_Phdr segment{};
  segment.p_type = PT_NOTE;
  segment.p_offset = file.size();
  segment.p_filesz = notes.size();
  std::memcpy(file.data() + sizeof(Elf64_Ehdr), &segment, sizeof(segment));
  return file + notes;
}

TEST(CodeObjectFacts, AreThoseOfTheKernelsNotes) {
  const nlohmann::json metadata = {{"amdhsa.kernels",
                                    {{{".name", "gemm_a_pack"}, {".vgpr_count", 40}},
                                     {{".name", "gemm_a"},
                                      {".vgpr_count", 168},
                                      {".agpr_count", 64},
                                      {".sgpr_count", 32},
                                      {".vgpr_spill_count", 3},
                                      {".sgpr_spill_count", 2},
                                      {".private_segment_fixed_size", 16},
                                      {".group_segment_fixed_size", 65536},
                                      {".symbol", "gemm_a.kd"}}}}};
  const std::string file = code_object_with(metadata);
  EXPECT_EQ(code_object_facts(file, "gemm_a"),
            (std::map<std::string, std::int64_t>{{"registers", 168},
                                                 {"accumulation_registers", 64},
                                                 {"scalar_registers", 32},
                                                 {"spilled_registers", 3},
                                                 {"spilled_scalar_registers", 2},
                                                 {"stack_bytes", 16},
                                                 {"shared_bytes", 65536}}));
  EXPECT_EQ(code_object_facts(file, "gemm_a_pack").at("registers"), 40);
  EXPECT_TRUE(code_object_facts(file, "gemm_b").empty());
}

TEST(CodeObjectFacts, AreEmptyForAFileThatIsCutOrDamaged) {
  const std::string file =
      code_object_with({{"amdhsa.kernels", {{{".name", "gemm_a"}, {".vgpr_count", 1}}}}});
  ASSERT_EQ(code_object_facts(file, "gemm_a").size(), 1U);
  for (std::size_t bytes = 0; bytes + 4 <= file.size(); ++bytes) {
    EXPECT_TRUE(code_object_facts(std::string_view(file).substr(0, bytes), "gemm_a").empty())
        << bytes;
  }
  EXPECT_TRUE(code_object_facts(code_object_with({{"amdhsa.kernels", 3}}), "gemm_a").empty());
  EXPECT_TRUE(code_object_facts(code_object_with({1, 2}), "gemm_a").empty());
  EXPECT_TRUE(code_object_facts("", "gemm_a").empty());
}

}  // namespace
}  // namespace tessera::jit
