// A compiler that turns some kernels into ones that crash, hang or write nothing, and leaves the
// others alone: what a user's machine may do to us, on purpose.
#pragma once

#include <string>

#include "tessera/base/files.h"
#include "tessera/families/family.h"

namespace tessera::testing_support {

// What becomes of every kernel whose name matches the shell pattern.
struct Breakage {
  std::string pattern;
  std::string body;  // of the kernel's run(), in C++
};

inline constexpr const char* kWritesNothing = "";
inline constexpr const char* kCrashes = "*(volatile int*)nullptr = 1;";
inline constexpr const char* kHangs = "for (volatile int i = 0;; i = i + 1) {}";

// The path of a script in `folder` that stands for g++.
template <typename Breakages>
fs::path broken_compiler(const fs::path& folder, const Breakages& breakages) {
  std::string cases;
  for (const Breakage& breakage : breakages) {
    cases += breakage.pattern + ") body='" + breakage.body + "' ;;\n";
  }
  const std::string text =
      "#!/bin/sh\n"
      "name=$(grep -o -m1 'gemm_[a-z0-9_]*' kernel.cc 2>/dev/null)\n"
      "body=none\n"
      "case \"$name\" in\n"
      "'') ;;\n" +  // a probe of the compiler, not a kernel
      cases +
      "esac\n"
      "if [ \"$body\" != none ]; then cat > kernel.cc <<END\n"
      "#include \"tessera/device/cpu/abi.h\"\n"
      "using namespace tessera::device;\n"
      "static i64 bytes(const void*, int) { return 0; }\n"
      "static void run([[maybe_unused]] const void* arguments, const CpuThread*) { $body }\n"
      "#pragma GCC visibility push(default)\n"
      "extern \"C\" { extern const CpuKernel $name; }\n"
      "const CpuKernel $name = {" +
      std::to_string(family_of(Op::gemm).abi) +
      ", {{bytes, run}}};\n"
      "END\n"
      "fi\n"
      "exec g++ \"$@\"\n";
  write_file(folder / "broken-g++", text);
  fs::permissions(folder / "broken-g++", fs::perms::owner_all);
  return folder / "broken-g++";
}

}  // namespace tessera::testing_support
