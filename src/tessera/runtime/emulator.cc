#include "tessera/runtime/emulator.h"

#include <fmt/format.h>

#include <filesystem>

#include "tessera/base/error.h"
#include "tessera/jit/worker_program.h"
#include "tessera/runtime/hip_driver_internal.h"

namespace tessera::runtime {
namespace {

namespace fs = std::filesystem;

constexpr const char* kEmulatorFile = "libtessera-emulated-hip.so";

// It lies among the helper programs.
fs::path find_emulator() {
  for (const fs::path& worker : jit::worker_places("")) {
    const fs::path file = (worker.parent_path() / kEmulatorFile).lexically_normal();
    std::error_code unknown;
    if (fs::is_regular_file(file, unknown)) return file;
  }
  return {};
}

}  // namespace

void use_emulator(const Target& target) {
  if (target.backend != "hip") {
    throw Error(ErrorCode::unsupported,
                fmt::format("the emulator runs kernels for AMD's GPUs, and {} is a target of the "
                            "backend {}",
                            target.name, target.backend));
  }
  const fs::path file = find_emulator();
  if (file.empty()) {
    throw Error(ErrorCode::unsupported,
                fmt::format("this installation has no emulator: {} is neither beside the library "
                            "nor among its helper programs",
                            kEmulatorFile));
  }
  const std::string used = hip::choose_library(file.string(), target.name);
  if (!used.empty()) {
    throw Error(ErrorCode::unsupported,
                fmt::format("this process uses {} already; to emulate {}, start another one", used,
                            target.name));
  }
}

std::string emulator_report() {
  const hip::Functions& hip = hip::loaded_functions();
  return hip.emulator_report == nullptr ? "{}" : hip.emulator_report();
}

std::string describe_code_object(const std::string& bytes) {
  const hip::Functions& hip = hip::loaded_functions();
  if (hip.emulator_describe == nullptr) {
    throw Error(ErrorCode::unsupported, "only an emulated HIP describes code objects");
  }
  std::string json = hip.emulator_describe(bytes.data(), bytes.size());
  if (json.empty()) throw Error(ErrorCode::unsupported, hip.emulator_finding());
  return json;
}

}  // namespace tessera::runtime
