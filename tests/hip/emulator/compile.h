// Compiles HIP text for a target by clang 22, where there is one.
#pragma once

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "cdna_emulator/launch.h"

namespace tessera::cdna_emulator {

// Why nothing can be compiled; empty where it can. Asked once: a compiler takes long to start.
inline const std::string& missing_tool() {
  static const std::string* const missing = [] {
    const char* text = find_objdump().empty() ? "there is no llvm-objdump" : "";
    if (std::system("command -v clang++-22 >/dev/null 2>&1") != 0) {
      text = "there is no clang++-22 in PATH";
    }
    return new std::string(text);
  }();
  return *missing;
}

#define SKIP_WITHOUT_TOOLS() \
  if (!missing_tool().empty()) GTEST_SKIP() << missing_tool()

// A folder that is removed when the program ends.
inline const std::filesystem::path& scratch_folder() {
  static const std::filesystem::path* const folder = [] {
    std::string name = (std::filesystem::temp_directory_path() / "emulator_test_XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) std::abort();
    std::atexit([] {
      std::error_code error;
      std::filesystem::remove_all(scratch_folder(), error);
    });
    return new std::filesystem::path(name);
  }();
  return *folder;
}

inline std::vector<u8> read_bytes(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  return std::vector<u8>(std::istreambuf_iterator<char>(in), {});
}

// The code object's bytes; a test failure and nothing where the compiler refuses the text.
inline std::vector<u8> compile_hip(const std::string& text, const std::string& target,
                                   const std::string& include = TESSERA_SOURCE "/src") {
  static int number = 0;
  const auto base = scratch_folder() / ("k" + std::to_string(number++));
  const std::string source = base.string() + ".hip", object = base.string() + ".co";
  std::ofstream(source) << text;
  const std::string command =
      "clang++-22 -x hip --cuda-device-only --no-gpu-bundle-output --offload-arch=" + target +
      " -nogpuinc -nogpulib -O3 -std=c++20 -I " + include + " -o " + object + " " + source;
  if (std::system(command.c_str()) != 0) {
    ADD_FAILURE() << "clang refuses this for " << target << ":\n" << text;
    return {};
  }
  return read_bytes(object);
}

}  // namespace tessera::cdna_emulator
