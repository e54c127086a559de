#!/usr/bin/env python3
"""Compiles an instance of each family for gfx942 and runs GEMM's on the emulator.

    tests/cktile/check_instances.py BUILD CKTILE

BUILD is a build folder, CKTILE holds CK Tile's headers in include/. Skips, saying why, where these
headers, clang++-22 or llvm-objdump-22 are missing. An instance takes about 25 s and 800 MB, so they
are compiled one after the other. Exits 1 for a finding.
"""
import json
import pathlib
import random
import shutil
import struct
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
COMPILER = "clang++-22"
HALF_ULP = 2.0**-11  # of fp16, relative

# The kernel; what its source needs besides: the types of kernel and arguments, threads, flags; the
# number of MFMAs that its tiles take: (tile m / waves m / side)(tile n / waves n / side)
# (tile k / 8) for GEMM, twice, because the end of K is apart; a call of the function that
# registers it.
INSTANCES = [
    ("gemm", "gemm_fp16_rcr_compv3_256x128x64_2x2x1_32x32x16_intrawave_storecshuffle_gfx942",
     "using Kernel = kernel::SelectedKernel::Kernel<true, ck_tile::TailNumber::Full>;\n"
     "using Arguments = Kernel::UniversalGemmKernel::KernelArgs;\n"
     "constexpr int kThreads = 256, kWaves = 1;\n", [], 128,
     "ck_tile::dispatcher::register_all_tile_gemm_kernels()"),
    ("conv", "conv_forward_fp16_nhwgc_2d_compv3_128x128x64_2x2x1_32x32x16_intrawave_storecshuffle"
             "_gfx942",
     "using Kernel = kernel::@NAME@_Launcher::Kernel<true, ck_tile::TailNumber::Full>;\n"
     "using Arguments = Kernel::GroupedConvFwdKernelArgsSpecialized;\n"
     "constexpr int kThreads = 256, kWaves = 1;\n", [], 64,
     "ck_tile::dispatcher::register_all_grouped_conv_fwd_kernels()"),
    ("fmha", "fmha_forward_bf16_qrasync_128x128x128_4x1x1_32x32x16_packed_masked_gfx942",
     "using Kernel = kernel::@NAME@_Launcher::Kernel;\n"
     "using Arguments = Kernel::Kargs;\n"
     "constexpr int kThreads = Kernel::kBlockSize, kWaves = Kernel::kBlockPerCu;\n",
     ["-DCK_TILE_FMHA_FWD_FAST_EXP2=1", "-fgpu-flush-denormals-to-zero"], 128,
     "register_all_fmha_kernels([](const char*, auto launcher) { (void)launcher; })"),
]

SOURCE = """#include <hip/hip_runtime.h>
#include "@NAME@.hpp"
namespace kernel = ns_@NAME@;
@KERNEL@extern "C" __global__ void __launch_bounds__(kThreads, kWaves) entry(Arguments arguments) {
  Kernel{}(arguments);
}
"""


def skip(reason):
    print(f"cktile: skipped: {reason}")
    sys.exit(0)


def run(command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def generate(tessera, op, name, folder):
    """The instance's name, from the index that lies beside its header."""
    run([tessera, "generate", name, "--op", op, "--source", "cktile", "--target", "gfx942",
         "--output-dir", str(folder)])
    kernels = json.loads((folder / "index.json").read_text())["kernels"]
    assert [k["name"] for k in kernels] == [name], kernels
    return kernels[0]["instance"]


def compile_text(folder, include, source, flags):
    (folder / "entry.hip").write_text(source)
    run([COMPILER, "-x", "hip", "--cuda-device-only", "--no-gpu-bundle-output", "-nogpuinc",
         "-nogpulib", "--offload-arch=gfx942", "-O3", "-std=c++20", "-w", "-D__HIP_PLATFORM_AMD__",
         "-DCK_TILE_USE_OCP_FP8=0", "-I", str(HERE), "-I", str(HERE / "dispatcher"), "-I",
         str(include), "-I", str(folder), *flags, str(folder / "entry.hip")])


def compile_instance(folder, instance, kernel, flags, include):
    source = SOURCE.replace("@KERNEL@", kernel).replace("@NAME@", instance)
    compile_text(folder, include, source, [*flags, "-o", str(folder / "entry.co")])
    return folder / "entry.co"


def check_registration(folder, call, flags, include):
    """The file that registers the kernel, with stand-ins for the dispatcher's headers."""
    [file] = (folder / "dispatcher_wrappers").iterdir()
    source = ("#include <hip/hip_runtime.h>\n"
              f'#include "dispatcher_wrappers/{file.name}"\n'
              f"void use() {{ {call}; }}\n")
    compile_text(folder, include, source, [*flags, "-fsyntax-only"])


def halves(count, draw):
    return struct.pack(f"<{count}e", *(draw.gauss(0, 1) for _ in range(count)))


def run_gemm(emulator, folder, code, sizes, draw):
    """One product on the emulator, every element compared; the number of wrong ones."""
    m, n, k = sizes
    ld = (k + 7) // 8 * 8 + 8
    ld_out = (n + 7) // 8 * 8 + 8
    untouched = b"\xcd" * (2 * ld_out * m)
    for name, data in (("a", halves(ld * m, draw)), ("b", halves(ld * n, draw)),
                       ("e", untouched)):
        (folder / name).write_bytes(data)
    arguments = [{"buffer": "a"}, {"buffer": "b"}, {"i64": 0}, {"buffer": "e"}]
    arguments += [{"i32": x} for x in (m, n, k, ld, ld, 0, ld_out, 1)]
    launch = {"grid": [(m + 255) // 256 * ((n + 127) // 128), 1, 1], "block": [256, 1, 1],
              "arguments": arguments,
              "buffers": {x: {"file": str(folder / x), "output": str(folder / (x + ".out"))}
                          for x in "abe"}}
    (folder / "launch.json").write_text(json.dumps(launch))
    run([emulator, str(code), "--kernel", "entry", "--launch", str(folder / "launch.json")])
    a = struct.unpack(f"<{ld * m}e", (folder / "a").read_bytes())
    b = struct.unpack(f"<{ld * n}e", (folder / "b").read_bytes())
    raw = (folder / "e.out").read_bytes()
    out = struct.unpack(f"<{ld_out * m}e", raw)
    wrong = 0
    for i in range(m):
        row = a[i * ld:i * ld + k]
        for j in range(n):
            products = [x * y for x, y in zip(row, b[j * ld:j * ld + k])]
            exact, size = sum(products), sum(map(abs, products))
            bound = 1.01 * HALF_ULP * abs(exact) + size * k * 2.0**-22 + 2.0**-25
            wrong += not abs(out[i * ld_out + j] - exact) <= bound
        gap = slice(2 * (i * ld_out + n), 2 * (i + 1) * ld_out)
        wrong += raw[gap] != untouched[gap]  # between the rows nothing may change
    return wrong


def check(tessera, emulator, include, row, seed):
    op, name, kernel, flags, expected, registration = row
    with tempfile.TemporaryDirectory(prefix="tessera-cktile-") as temporary:
        folder = pathlib.Path(temporary)
        instance = generate(tessera, op, name, folder)
        began = time.monotonic()
        code = compile_instance(folder, instance, kernel.replace("@NAME@", instance), flags,
                                include)
        seconds = time.monotonic() - began
        listing = run(["llvm-objdump-22", "-d", str(code)])
        mfmas = listing.count("v_mfma_")
        print(f"cktile: {instance}: {seconds:.1f} s, {mfmas} MFMAs")
        check_registration(folder, registration, flags, include)
        good = mfmas == expected
        if not good:
            print(f"cktile: {instance}: must have {expected} MFMAs, got {mfmas}")
        if op != "gemm":
            return good
        draw = random.Random(seed)
        # K of three tiles or more, as the kernel with a hot loop and a full tail needs.
        for sizes in ((256, 128, 192), (304, 200, 256), (37, 56, 200)):
            wrong = run_gemm(emulator, folder, code, sizes, draw)
            print(f"cktile: m={sizes[0]} n={sizes[1]} k={sizes[2]} seed {seed}: {wrong} wrong")
            good = good and wrong == 0
        return good


def main(build, cktile):
    tessera = pathlib.Path(build) / "bin" / "tessera"
    emulator = pathlib.Path(build) / "bin" / "tessera-emulator"
    include = pathlib.Path(cktile) / "include"
    if not (include / "ck_tile" / "core.hpp").exists():
        skip(f"there are no headers of CK Tile in {include}; './dev setup --cktile' gets them")
    for tool in (COMPILER, "llvm-objdump-22"):
        if shutil.which(tool) is None:
            skip(f"{tool} is not installed; './dev setup' installs it")
    seed = random.SystemRandom().randrange(2**32)
    try:
        good = [check(tessera, emulator, include, row, seed) for row in INSTANCES]
    except subprocess.CalledProcessError as error:
        print(error.stdout + error.stderr[-4000:])
        sys.exit(f"cktile: '{error.cmd[0]}' failed with {error.returncode}")
    sys.exit(0 if all(good) else 1)


if __name__ == "__main__":
    main(*sys.argv[1:])
