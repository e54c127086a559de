// The runtime on the fake driver: a kernel that is no code, and what became of its launches.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "fake_cuda/fake_cuda.h"
#include "tessera/base/error.h"
#include "tessera/base/files.h"
#include "tessera/runtime/runtime.h"
#include "tessera/targets/targets.h"

namespace tessera::runtime {

// The driver is loaded once in a process: by the first of these.
inline const fake_cuda::Control& fake() {
  static const fake_cuda::Control control = [] {
    setenv("TESSERA_CUDA_DRIVER", FAKE_CUDA, 1);
    return fake_cuda::Control(FAKE_CUDA);
  }();
  return control;
}

struct CudaTest : testing::Test {
  static constexpr int kDevices = 2;
  Target target = load_target("sm90a");
  fs::path folder;
  int stream_here = 0;  // its address is a stream

  CudaTest() : folder(make_unique_folder(fs::temp_directory_path(), "tessera-cuda-")) {
    fake().reset();
    fake().settings().devices = kDevices;
    write_file(cubin(), "\177ELF: no more than its first bytes are looked at");
  }
  ~CudaTest() override { remove_tree(folder); }

  const Backend& backend() const { return backend_for(target); }
  fs::path cubin() const { return folder / "kernel.cubin"; }
  void* stream() { return &stream_here; }

  std::shared_ptr<const LoadedKernel> load(const std::string& name = "kernel",
                                           const std::vector<std::string>& entries = {""}) const {
    jit::Artifact artifact;
    artifact.name = name;
    artifact.binary = cubin();
    artifact.abi = fake_cuda::kAbi;
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

  static fake_cuda::LaunchRecord last_record() {
    return fake().record(fake().counters().launches - 1);
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
