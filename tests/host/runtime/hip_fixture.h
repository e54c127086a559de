// The runtime on the fake HIP: a kernel that is no code, and what became of its launches.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <string>
#include <vector>

#include "elf_files.h"
#include "fake_hip/fake_hip.h"
#include "tessera/base/error.h"
#include "tessera/base/files.h"
#include "tessera/runtime/runtime.h"
#include "tessera/targets/targets.h"

namespace tessera::runtime {

// HIP is loaded once in a process: by the first of these.
inline const fake_hip::Control& fake_amd() {
  static const fake_hip::Control control = [] {
    setenv("TESSERA_HIP", FAKE_HIP, 1);
    return fake_hip::Control(FAKE_HIP);
  }();
  return control;
}

struct HipTest : testing::Test {
  Target target = load_target("gfx942");
  fs::path folder;
  int stream_here = 0;  // its address is a stream

  HipTest() : folder(make_unique_folder(fs::temp_directory_path(), "tessera-hip-")) {
    fake_amd().reset();
    fake_amd().settings().devices = 2;
    write_file(code_object(), code_object_of("no code"));
  }
  ~HipTest() override { remove_tree(folder); }

  const Backend& backend() const { return backend_for(target); }
  fs::path code_object() const { return folder / "kernel.hsaco"; }
  void* stream() { return &stream_here; }

  std::shared_ptr<const LoadedKernel> load(const std::string& name = "kernel",
                                           const std::vector<std::string>& entries = {""}) const {
    jit::Artifact artifact;
    artifact.name = name;
    artifact.binary = code_object();
    artifact.abi = fake_hip::kAbi;
    artifact.entries = entries;
    return backend().load(artifact, target);
  }

  static Launch small_launch() {
    Launch launch;
    std::array<std::byte, 512> arguments;
    arguments.fill(std::byte{0x11});
    launch.arguments.set(arguments);
    launch.steps.push({});
    return launch;
  }

  static fake_hip::LaunchRecord last_record() {
    return fake_amd().record(fake_amd().counters().launches - 1);
  }

  // The message of the Error that the call throws.
  template <class Call>
  static std::string error_of(ErrorCode code, Call call) {
    try {
      call();
    } catch (const Error& error) {
      EXPECT_EQ(to_string(error.code()), to_string(code)) << error.what();
      return error.what();
    }
    ADD_FAILURE() << "no error";
    return {};
  }
};

}  // namespace tessera::runtime
