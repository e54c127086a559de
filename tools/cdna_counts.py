#!/usr/bin/env python3
"""What kernels for AMD GPUs consist of: a table of counts, from code objects and the emulator.

    tools/cdna_counts.py gfx942 gemm_fp16_rcr_compv4_128x128x32_2x2x1_32x32x16_intrawave
    tools/cdna_counts.py gfx950 'fmha_forward_bf16_qr*_128x64x128_*x16'
    tools/cdna_counts.py gfx90a --compile NAME...   # with the seconds of a core of a compile

A pattern is a kernel's name without the target, and may have wildcards. Instructions are those that
a wave executes for a tile of K (of keys in attention, of the depth in convolutions): the emulator
runs two problems, of which one has FEW tiles and the other MANY, and the difference is divided. So
what comes before and after the main loop does not count, and neither does what runs for edges.
"""
import argparse
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FEW, MANY = 4, 8
KINDS = ("mfma", "vector", "exp", "scalar", "lds", "memory")
LDS_BYTES = {"gfx90a": 65536, "gfx942": 65536, "gfx950": 163840}
REGISTERS, MOST_WAVES, GRANULE = 512, 8, 8  # of a SIMD's lane; waves; registers are given in eights
VALUES = {192: 128, 576: 512}  # heads whose values are shorter
COLUMNS = ("MFMA", "vector", "exp", "scalar", "LDS", "memory", "VGPR", "AGPR", "SGPR", "spills",
           "scratch", "LDS bytes", "waves a SIMD", "LDS cycles")


def output_of(tessera, words, cache=None):
    """The JSON that the program prints, and the seconds of a core that it and its children took."""
    settings = dict(os.environ, **({"TESSERA_CACHE_DIR": cache} if cache else {}))
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    made = subprocess.run([tessera, *words, "--json"], capture_output=True, text=True, check=False,
                          env=settings)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if made.returncode != 0:
        sys.exit(f"cdna_counts.py: 'tessera {' '.join(words)}' failed: {made.stdout}{made.stderr}")
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return json.loads(made.stdout), seconds


def kernels_of(arguments, pattern):
    if "*" not in pattern and "?" not in pattern:
        return [f"{pattern}_{arguments.target}"]
    words = ["list", "--op", pattern.split("_")[0], "--target", arguments.target, "--pattern",
             f"{pattern}_{arguments.target}"]
    return output_of(arguments.tessera, words)[0]["kernels"]


def shapes_of(kernel):
    """Tile, waves and warp tile of a name."""
    shapes = re.findall(r"_(\d+)x(\d+)x(\d+)", kernel)
    return [[int(side) for side in shape] for shape in shapes[:3]]


def gemm_problem(kernel, tile, tiles):
    words = kernel.split("_")
    return f"gemm m={tile[0]} n={tile[1]} k={tile[2] * tiles} layout={words[2]} dtype={words[1]}"


def fmha_problem(kernel, tile, tiles):
    words = kernel.split("_")
    mask = " mask=bottom_right" if "masked" in words else ""
    lse = " lse=1" if "lse" in words else ""
    values = f" hdim_v={VALUES[tile[2]]}" if tile[2] in VALUES else ""
    latent = " v_in_k=1" if tile[2] == 576 else ""
    types = "".join(f" {field}={word[len(field):]}" for word in words for field in ("out", "kv")
                    if word.startswith(field))
    return (f"fmha heads=1 seqlen_q={tile[0]} seqlen_k={tile[1] * tiles} hdim={tile[2]} "
            f"dtype={words[2]}{mask}{lse}{values}{latent}{types}")


def conv_problem(kernel, tile, tiles):
    """Filters of 3x3; the depth grows by channels of x, of y, or by images."""
    words = kernel.split("_")
    direction = {"backwarddata": "backward_data", "backwardweight": "backward_weight"}.get(
        words[1], words[1])
    size = "h=16 w=16 y=3 x=3 pad_h=1 pad_w=1"
    images, c, k = max(1, tile[0] // 256), 64, tile[1]
    if direction == "forward":
        c = tile[2] * tiles // FEW
    elif direction == "backward_data":
        c, k = tile[1], tile[2] * tiles // FEW
    else:
        images, k = tiles, tile[0]
    return f"conv direction={direction} n={images} c={c} k={k} {size} dtype={words[2]}"


PROBLEMS = {"gemm": gemm_problem, "fmha": fmha_problem, "conv": conv_problem}


def run_of(arguments, kernel, tiles):
    problem = PROBLEMS[kernel.split("_")[0]](kernel, shapes_of(kernel)[0], tiles)
    words = ["verify", "--emulate", "--target", arguments.target, "--force", kernel,
             *problem.split()]
    return output_of(arguments.tessera, words)[0]["emulator"]


def products_of_tile(kernel):
    """Products of a wave for a tile. Waves differ in rows, and in columns, keys or elements."""
    tile, wave, _ = shapes_of(kernel)
    depth = tile[2] + VALUES.get(tile[2], tile[2]) if kernel.startswith("fmha") else tile[2]
    return tile[0] // wave[0] * tile[1] * depth // wave[1]


def products_in(mfmas):
    """Those of instructions, each with its own sides and k."""
    sides = [(re.search(r"(\d+)x(\d+)x(\d+)", name).groups(), n) for name, n in mfmas.items()]
    return sum(int(m) * int(n) * int(k) * count for (m, n, k), count in sides)


def waves_of(facts, target):
    """Waves that share a SIMD, as registers and LDS let them."""
    groups = LDS_BYTES[target] // max(1, facts["lds_bytes"])
    by_lds = max(1, groups * facts["max_threads"] // 256)
    registers = -(-facts["vgprs"] // GRANULE) * GRANULE
    return min(MOST_WAVES, REGISTERS // registers, by_lds)


def row_of(arguments, kernel):
    facts = output_of(arguments.tessera, ["show", "--asm", kernel])[0]["kernels"][0]
    few, many = run_of(arguments, kernel, FEW), run_of(arguments, kernel, MANY)
    more = {kind: many["kinds"][kind] - few["kinds"][kind] for kind in KINDS}
    cells = ["-"] * len(KINDS)
    if more["mfma"] > 0:
        products = products_in(many["mfmas"]) - products_in(few["mfmas"])
        times = products / products_of_tile(kernel)
        cells = [f"{more[kind] / times:.0f}" for kind in KINDS]
    ideal = many["lds_ideal_cycles"]
    cells += [str(facts[key]) for key in ("vgprs", "agprs", "sgprs")]
    cells += [str(facts["vgpr_spills"] + facts["sgpr_spills"]), str(facts["scratch_bytes"]),
              str(facts["lds_bytes"]), str(waves_of(facts, arguments.target)),
              f"{many['lds_cycles'] / ideal:.2f}" if ideal else "-"]
    if arguments.compile:
        cells.append(f"{compile_seconds(arguments, kernel):.2f}")
    return [kernel.removesuffix(f"_{arguments.target}"), *cells]


def compile_seconds(arguments, kernel):
    """What a first call takes and a second one does not."""
    with tempfile.TemporaryDirectory() as cache:
        times = [output_of(arguments.tessera, ["show", "--asm", kernel], cache)[1]
                 for _ in range(2)]
    return max(0.0, times[0] - times[1])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("target", choices=LDS_BYTES)
    parser.add_argument("patterns", nargs="+", metavar="KERNEL-PATTERN")
    parser.add_argument("--tessera", default=str(ROOT / "build/release/bin/tessera"))
    parser.add_argument("--compile", action="store_true", help="Measure compiles, too")
    arguments = parser.parse_args()
    columns = ["kernel", *COLUMNS, *(["compile, s"] if arguments.compile else [])]
    print("| " + " | ".join(columns) + " |")
    print("|" + " --- |" * len(columns))
    for pattern in arguments.patterns:
        kernels = kernels_of(arguments, pattern)
        if not kernels:
            sys.exit(f"cdna_counts.py: no kernel of {arguments.target} fits '{pattern}'")
        for kernel in kernels:
            print("| " + " | ".join(row_of(arguments, kernel)) + " |", flush=True)


if __name__ == "__main__":
    main()
