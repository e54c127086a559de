#include "tessera/jit/compilers.h"

#include <elf.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "host/jit/fixtures.h"
#include "host/spec/expect_error.h"
#include "tessera/base/error.h"
#include "tessera/base/subprocess.h"
#include "tessera/jit/compile_internal.h"
#include "tessera/jit/compilers_internal.h"
#include "tessera/jit/toolchain.h"
#include "tessera/targets/targets.h"

namespace tessera::jit {
namespace {

TEST(Compilers, HaveOneRowForEachBackendAndBinary) {
  std::set<std::string_view> backends, binaries = {kObjectFile};
  for (const CompilerRow& row : compilers()) {
    EXPECT_TRUE(backends.insert(row.backend).second) << row.backend;
    EXPECT_TRUE(binaries.insert(row.binary.file).second) << row.binary.file;
    EXPECT_EQ(compiler_of_binary(row.binary.file), &row);
  }
  EXPECT_EQ(compiler_of_binary(kObjectFile), nullptr);
  for (const std::string& name : target_names()) {
    const Target target = load_target(name);
    EXPECT_EQ(compiler_for(target).backend, target.backend);
  }
}

// A row as another kind of machine would have it: a clang for its processors.
Toolchain find_clang(const BuildOptions&, const Target&, const fs::path& memo) {
  for (const char* name : {"clang-other", "clang-19"}) {
    if (!find_executable(name).empty()) return find_toolchain(name, memo);
  }
  throw Error(ErrorCode::compile_failed, "no clang for these was found");
}

std::vector<std::string> clang_command(const Toolchain& clang, const Target& target,
                                       const Source& source) {
  return {clang.path.string(),
          "--cuda-device-only",
          "--offload-arch=" + target.name,
          "kernel" + source.extension,
          "-o",
          "kernel.hsaco"};
}

std::map<std::string, std::int64_t> no_facts(std::string_view, std::string_view, std::string_view) {
  return {};
}

constexpr CompilerRow kClang = {.backend = "other",
                                .title = "clang for others",
                                .find = find_clang,
                                .command = clang_command,
                                .binary = {"kernel.hsaco", ET_DYN, kAmdMachine},
                                .facts = no_facts,
                                .host_runs = false};

class AnotherCompiler : public testing::Test {
 protected:
  // Compiles with a program that copies the file `made`.
  void compile_with(const std::string& made) {
    write_file(temp_ / "made", made);
    write_file(temp_ / "clang-19", fmt::format(R"(#!/bin/sh
[ "$1" = --version ] && echo "clang version 19" && exit 0
case "$1" in -print-prog-name=*) exit 0;; esac
echo "$@"
cp {} "$5"
)",
                                               (temp_ / "made").string()));
    fs::permissions(temp_ / "clang-19", fs::perms::owner_all);
    const Toolchain found = kClang.find({}, {}, {});
    EXPECT_EQ(found.version, "clang version 19");
    Source source = make_source("gemm_a", "__global__ void gemm_a() {}\n");
    source.extension = ".hip";
    Target target = make_target();
    target.name = "gfx942";
    target.backend = "other";
    fs::create_directory(temp_ / "folder");
    compile({.source = &source,
             .objects = {},
             .target = &target,
             .compiler = &kClang,
             .toolchain = &found,
             .worker = "/no/worker",
             .timeout_seconds = 60,
             .cache = temp_ / "cache",
             .key = "key"},
            temp_ / "folder");
  }
  TempFolder temp_;
  ScopedVariable path_{"PATH", temp_.path().string() + ":/usr/bin:/bin"};
};

TEST_F(AnotherCompiler, IsOneRowAndItsFunctions) {
  const std::string code_object = elf_headers(ET_DYN, kAmdMachine);
  compile_with(code_object);
  EXPECT_EQ(names_in(temp_ / "folder"),
            (std::vector<std::string>{"command.txt", "kernel.hip", "kernel.hsaco", "log.txt"}));
  EXPECT_EQ(read_file(temp_ / "folder/kernel.hsaco"), code_object);
  EXPECT_EQ(read_file(temp_ / "folder/log.txt"),
            "--cuda-device-only --offload-arch=gfx942 kernel.hip -o kernel.hsaco\n");
}

TEST_F(AnotherCompiler, IsNotBelievedThatItWroteItsKind) {
  const std::string path = (temp_ / "clang-19").string();
  expect_error(ErrorCode::compile_failed,
               "gemm_a: " + path +
                   " reported success but its kernel.hsaco must be for ELF machine 224, got "
                   "machine " +
                   std::to_string(kMachine) +
                   ": --cuda-device-only --offload-arch=gfx942 kernel.hip -o kernel.hsaco; all it "
                   "said is in " +
                   (temp_ / "cache/failed/gemm_a-key/log.txt").string(),
               [&] { compile_with(library_of("")); });
}

}  // namespace
}  // namespace tessera::jit
