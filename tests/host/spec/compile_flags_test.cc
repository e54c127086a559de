#include "tessera/spec/compile_flags_internal.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace tessera {
namespace {

struct Flags {
  std::string backend;
  std::vector<std::string> flags;
};

const std::vector<Flags> kTaken = {
    {"cpu",
     {"-mavx2", "-mavx512vnni", "-msse4.2", "-mno-red-zone", "-mprefer-vector-width=512",
      "-march=native", "-march=armv8.2-a+sve", "-mcpu=neoverse-v1", "-mcmodel=large", "-O0", "-O3",
      "-funroll-loops", "-fno-tree-vectorize", "-fomit-frame-pointer"}},
    {"cuda", {"--gpu-architecture=sm_90a", "-arch=sm_90", "--maxrregcount=128", "--fmad=false"}},
    {"hip", {"--offload-arch=gfx942:xnack-", "-O3", "-mcumode"}},
};

// Each names a file, a folder or a program, takes the next word, or changes what is computed.
const std::vector<Flags> kRefused = {
    {"cpu",
     {"-wrapper",
      "/bin/sh,-c,id",
      "-MD",
      "-MF",
      "-o",
      "-fplugin=x.so",
      "-fplugin-arg-x-y",
      "-specs=x",
      "--specs=x",
      "-include",
      "-imacros",
      "-I/tmp",
      "-isystem",
      "-iquote",
      "-B.",
      "-B",
      "@file",
      "-Wl,-rpath,/tmp",
      "-Wa,x",
      "-Wp,-MD,x",
      "-Xlinker",
      "-Xclang",
      "-Xassembler",
      "-l:x.so",
      "-L.",
      "-T",
      "-x",
      "-E",
      "-S",
      "-c",
      "-DX",
      "-UX",
      "-save-temps",
      "-fdump-tree-all=x",
      "-fprofile-use=x",
      "-fprofile-generate=x",
      "-fprofile-dir=x",
      "-fauto-profile=x",
      "-fsanitize-blacklist=x",
      "-fuse-ld=x",
      "-flto",
      "-fcallgraph-info",
      "-fstack-usage",
      "-foffload=x",
      "-ffast-math",
      "-fmodules",
      "-fmodule-file=x",
      "-fopt-info-all=x",
      "-frandom-seed=x",
      "-fsave-optimization-record",
      "-fno-plugin=x",
      "-fcompare-debug",
      "--sysroot=x",
      "--config",
      "-dumpbase",
      "-aux-info",
      "-pie",
      "-static"}},
    {"cpu",
     {"-O",
      "-O4",
      "-Ofast",
      "-Os ",
      "-m",
      "-m ",
      "-mllvm",
      "-mllvm=-x",
      "-mmlir",
      "-meabi",
      "-mthread-model",
      "-mlink-builtin-bitcode",
      "-module-dependency-dir",
      "-mmcu=../x",
      "-march=../x",
      "-march=",
      "-mavx2 -wrapper",
      "-mavx2\n-x",
      "-mdevices-csv-loc=x",
      "-mfentry-section=x",
      "-mstack-protector-guard-symbol=x",
      "",
      "avx2",
      "-",
      "--"}},
    {"cuda",
     {"-I/tmp", "--include-path=/tmp", "-include", "--pre-include=x", "-D", "--time=x",
      "--create-pch=x", "--use-pch=x", "--pch-dir=x", "-Xptxas", "--ptxas-options=x", "-o",
      "--gpu-architecture", "--gpu-architecture=", "--gpu-architecture=a/b", "x.cu", "-mavx2",
      "--fdevice-time-trace=x"}},
    {"hip", {"--offload-arch=", "--offload-arch=a/b", "--hip-path=x", "-wrapper"}},
};

TEST(CompileFlags, ThatOnlyMakeCodeDifferentlyAreTaken) {
  for (const auto& [backend, flags] : kTaken) {
    for (const std::string& flag : flags) EXPECT_EQ(compile_flag_damage(backend, flag), "") << flag;
  }
}

TEST(CompileFlags, ThatReachFurtherAreRefused) {
  for (const auto& [backend, flags] : kRefused) {
    for (const std::string& flag : flags) EXPECT_NE(compile_flag_damage(backend, flag), "") << flag;
  }
}

TEST(CompileFlags, ARefusalSaysWhatIsTaken) {
  EXPECT_EQ(compile_flag_damage("cuda", "-I/tmp"),
            "one of --fmad, --ftz, --gpu-architecture, --maxrregcount, --prec-div, --prec-sqrt, "
            "-arch, -fmad, -ftz, -maxrregcount, -prec-div, -prec-sqrt with a value, or one of "
            "--extra-device-vectorization, -extra-device-vectorization");
  EXPECT_EQ(compile_flag_damage("cpu", "-wrapper"),
            "-m and a feature, one of -mabi, -march, -mbranch-cost, -mbranch-protection, -mcmodel, "
            "-mcpu, -mfloat-abi, -mfpmath, -mfpu, -mharden-sls, -mmove-max, -mprefer-vector-width, "
            "-mrecip, -mstore-max, -mstringop-strategy, -msve-vector-bits, -mtune, -mtune-ctrl "
            "with a value, -O0 to -O3, or -f or -fno- before one of gcse, ivopts, "
            "omit-frame-pointer, prefetch-loop-arrays, rename-registers, schedule-insns, "
            "schedule-insns2, semantic-interposition, slp-vectorize, strict-aliasing, "
            "tree-slp-vectorize, tree-vectorize, unroll-loops, vectorize");
}

}  // namespace
}  // namespace tessera
