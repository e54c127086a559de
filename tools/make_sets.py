#!/usr/bin/env python3
"""Writes src/families/gemm/sets/<target>.json: the preselected kernels of each target.

The tables below are the content; names are made from them for each dtype and layout. The gemm tests
check that every name is legal. Run it without arguments after editing a table.
"""
import json
import pathlib

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "src/families/gemm/sets"
DTYPES = ["fp32", "fp16", "bf16", "fp8", "bf8", "int8"]
LAYOUTS = ["rcr", "rrr", "crr", "ccr"]
KINDS = ["essential", "compute", "memory", "latency"]

# CPU rows: kind -> (pipeline, tile, wave, register block without its k). In-place pipelines are
# left out where the dtype or layout rules them out.
CPU = {
    "avx512": {
        "products": {"bf16": 2, "fp8": 2, "bf8": 2, "int8": 4},
        "compute": [
            ("packab", "48x1920x512", "0x0x1", "12x32"),
            ("packab", "24x960x1024", "0x0x1", "12x32"),
            ("packab", "960x960x1024", "0x0x1", "8x48"),
            ("packb", "960x960x1024", "0x0x1", "8x48"),
            ("packb", "960x960x1024", "0x0x1", "12x32"),
            ("direct", "960x960x1024", "0x0x1", "12x32"),
        ],
        "memory": [
            ("stream", "8x4096x512", "0x0x1", "8x16"),
            ("stream", "8x1024x512", "0x0x1", "8x16"),
            ("packab", "8x4096x512", "0x0x1", "8x32"),
            ("packab", "48x1920x512", "1x1x0", "12x32"),
            ("packa", "48x1920x512", "0x0x1", "8x48"),
            ("packb", "24x960x1024", "0x0x1", "8x16"),
        ],
        "latency": [
            ("packab", "48x1920x512", "1x1x1", "12x32"),
            ("packab", "48x1920x512", "0x0x1", "8x32"),
            ("packb", "48x1920x512", "1x1x1", "12x32"),
            ("packa", "48x1920x512", "1x1x1", "12x32"),
            ("direct", "48x1920x512", "1x1x1", "12x32"),
            ("direct", "48x1920x512", "1x1x1", "8x32"),
            ("packab", "48x1920x512", "1x1x0", "12x32"),
        ],
        # A greedy cover of 12,900 timings (119 fp32, bf16, int8 problems, one thread, Zen 4):
        # per type and layout the best of these is within 1.5% of the best of all kernels.
        "essential": [
            ("packab", "8x4096x512", "0x0x1", "8x32"),
            ("packab", "48x1920x512", "0x0x1", "12x32"),
            ("packab", "48x1920x512", "0x0x1", "6x64"),
            ("packab", "48x1920x512", "1x1x0", "12x32"),
            ("packb", "960x960x1024", "0x0x1", "8x32"),
            ("packb", "960x960x1024", "0x0x1", "12x32"),
            ("packb", "24x960x1024", "0x0x1", "8x16"),
            ("packb", "8x1024x512", "0x0x1", "8x32"),
            ("direct", "960x960x1024", "0x0x1", "12x32"),
            ("direct", "960x960x1024", "0x0x1", "8x16"),
            ("direct", "48x1920x512", "0x0x1", "8x16"),
            ("stream", "8x4096x512", "0x0x1", "8x16"),
            ("stream", "8x1024x512", "0x0x1", "8x16"),
        ],
        # The fused kernels of the first layers people try, for the kernels that such layers choose.
        "fused": ["bias", "bias_gelu", "bias_relu"],
    },
    "avx2": {
        "products": {"int8": 2},
        "compute": [
            ("packab", "240x1536x256", "0x0x1", "6x16"),
            ("packab", "240x480x256", "0x0x1", "6x16"),
            ("packab", "192x768x192", "0x0x1", "6x16"),
            ("packab", "120x1536x256", "0x0x1", "12x8"),
            ("packb", "240x1536x256", "0x0x1", "6x16"),
        ],
        "memory": [
            ("stream", "8x384x512", "0x0x1", "8x8"),
            ("stream", "8x96x2048", "1x1x1", "8x8"),
            ("packab", "24x384x512", "0x0x1", "6x16"),
            ("packab", "48x192x256", "1x1x0", "6x16"),
            ("packb", "24x384x512", "0x0x1", "6x16"),
        ],
        "latency": [
            ("packab", "48x192x256", "1x1x1", "6x16"),
            ("packab", "48x192x256", "0x0x1", "12x8"),
            ("packb", "24x96x256", "1x1x1", "6x16"),
            ("packa", "48x192x256", "1x1x1", "6x16"),
            ("direct", "48x192x256", "1x1x1", "6x16"),
            ("packab", "48x192x256", "1x1x0", "6x16"),
        ],
        "essential": [
            ("packab", "240x1536x256", "0x0x1", "6x16"),
            ("packab", "96x192x256", "0x0x1", "6x16"),
            ("packab", "48x192x256", "0x0x1", "12x8"),
            ("packab", "48x192x256", "1x1x0", "6x16"),
            ("packb", "240x1536x256", "0x0x1", "6x16"),
            ("direct", "48x192x256", "0x0x1", "6x16"),
            ("stream", "8x384x512", "0x0x1", "8x8"),
        ],
    },
    "generic": {
        "products": {},
        "compute": [
            ("packab", "240x480x256", "0x0x1", "4x8"),
            ("packab", "192x768x192", "0x0x1", "4x8"),
            ("packab", "240x480x256", "0x0x1", "6x8"),
            ("packb", "240x480x256", "0x0x1", "4x8"),
        ],
        "memory": [
            ("stream", "8x384x512", "0x0x1", "8x4"),
            ("stream", "8x96x1024", "1x1x1", "8x4"),
            ("packab", "24x384x256", "0x0x1", "4x8"),
            ("packab", "48x192x256", "1x1x0", "4x8"),
        ],
        "latency": [
            ("packab", "48x192x256", "1x1x1", "4x8"),
            ("packb", "24x96x256", "1x1x1", "4x8"),
            ("direct", "48x192x256", "1x1x1", "4x8"),
            ("packab", "48x192x256", "1x1x0", "4x8"),
        ],
        "essential": [
            ("packab", "240x480x256", "0x0x1", "6x8"),
            ("packab", "48x192x256", "0x0x1", "4x8"),
            ("packab", "48x192x256", "1x1x0", "4x8"),
            ("packb", "240x480x256", "0x0x1", "4x8"),
            ("direct", "48x192x256", "0x0x1", "4x8"),
            ("stream", "8x384x512", "0x0x1", "8x4"),
        ],
    },
}

# Hopper: kind -> (tile m, n, k, consumers, options). The configurations of a measured prototype.
HOPPER = {
    "compute": [
        (128, 128, 64, 2, "pingpong_s6"),
        (128, 192, 64, 2, "pingpong_s4"),
        (128, 224, 64, 2, "cooperative_s4"),
        (128, 256, 64, 2, "cooperative_s4"),
        (128, 256, 64, 2, "cooperative_s4_c2x1"),
        (128, 160, 64, 2, "pingpong_s5"),
    ],
    "memory": [
        (64, 8, 128, 1, "cooperative_splitordered2_s8_swap"),
        (64, 16, 128, 1, "cooperative_splitordered2_s8_swap"),
        (64, 32, 64, 1, "cooperative_splitordered4_s8_swap"),
    ],
    "latency": [
        (64, 128, 64, 1, "cooperative_s8"),
        (64, 64, 64, 1, "cooperative_s6"),
        (64, 64, 64, 1, "cooperative_splitordered2_s6"),
    ],
    "essential": [
        (128, 128, 64, 2, "pingpong_s6"),
        (128, 192, 64, 2, "pingpong_s4"),
        (128, 224, 64, 2, "cooperative_s4"),
        (128, 256, 64, 2, "cooperative_s4"),
        (64, 128, 64, 1, "cooperative_s8"),
        (64, 8, 128, 1, "cooperative_splitordered2_s8_swap"),
        (64, 16, 128, 1, "cooperative_splitordered2_s8_swap"),
    ],
}
# fp32 without tf32: fused multiply-adds on the ordinary cores.
HOPPER_FP32 = {
    "compute": ["128x128x64_2x4x1_8x8x1_s2", "128x64x64_2x4x1_8x8x1_s3"],
    "memory": ["64x32x64_2x2x1_8x8x1_s8", "64x64x64_2x2x1_8x8x1_s6"],
    "latency": ["64x64x64_2x2x1_8x8x1_s3", "64x32x64_2x2x1_8x8x1_s4"],
    "essential": ["128x128x64_2x4x1_8x8x1_s2", "64x64x64_2x2x1_8x8x1_s4"],
}

# CK Tile: kind -> (pipeline, tile, wave, scheduler); warp tiles per dtype.
CK_WARP_TILES = {"fp32": "16x16x4", "fp16": "32x32x8", "bf16": "32x32x8", "fp8": "32x32x16",
                 "bf8": "32x32x16", "int8": "32x32x16"}
CK = {
    "compute": [
        ("compv3", "256x256x32", "2x2x1", "intrawave"),
        ("compv3", "256x128x32", "2x2x1", "intrawave"),
        ("compv3", "128x128x64", "2x2x1", "intrawave"),
        ("compv4", "128x128x32", "2x2x1", "intrawave"),
    ],
    "memory": [
        ("mem", "128x128x32", "2x2x1", "intrawave"),
        ("mem", "64x64x64", "2x2x1", "interwave"),
        ("mem", "128x64x64", "2x2x1", "interwave"),
    ],
    "latency": [
        ("mem", "64x64x64", "2x2x1", "intrawave"),
        ("compv3", "64x64x64", "2x2x1", "intrawave"),
    ],
    "essential": [
        ("compv3", "256x128x32", "2x2x1", "intrawave"),
        ("compv3", "128x128x64", "2x2x1", "intrawave"),
        ("compv4", "128x128x32", "2x2x1", "intrawave"),
        ("mem", "64x64x64", "2x2x1", "interwave"),
    ],
}
SIZES = {"fp32": 4, "fp16": 2, "bf16": 2, "fp8": 1, "bf8": 1, "int8": 1}


def cpu_names(target, table, dtype, layout, kind):
    products = table["products"].get(dtype, 1)
    words_in_place = SIZES[dtype] * products == 4
    for pipeline, tile, wave, block in table[kind]:
        if pipeline in ("packb", "direct"):  # A in place
            if not words_in_place or (products > 1 and layout[0] != "r"):
                continue
        if pipeline in ("packa", "direct") and (dtype != "fp32" or layout[1] != "r"):  # B in place
            continue
        name = f"gemm_{dtype}_{layout}_{pipeline}_{tile}_{wave}_{block}x{products}"
        yield f"{name}_{target}"
        is_layer = dtype in ("fp32", "bf16") and layout == "rcr" and tile == "960x960x1024"
        for steps in table.get("fused", []) if is_layer and kind == "essential" else []:
            yield f"{name}_{steps}_{target}"


def hopper_names(target, dtype, layout, kind):
    if dtype == "fp32":
        for rest in HOPPER_FP32[kind]:
            yield f"gemm_{dtype}_{layout}_cpasync_{rest}_{target}"
        return
    size = SIZES[dtype]
    if size == 1 and layout != "rcr":  # wgmma transposes 16-bit operands only
        return
    for m, n, k, consumers, options in HOPPER[kind]:
        yield (f"gemm_{dtype}_{layout}_tmaws_{m}x{n}x{k}_{consumers}x1x1_64x{n}x{32 // size}"
               f"_{options}_{target}")


def ck_names(target, dtype, layout, kind):
    for pipeline, tile, wave, scheduler in CK[kind]:
        warp_tile = CK_WARP_TILES[dtype]
        yield f"gemm_{dtype}_{layout}_{pipeline}_{tile}_{wave}_{warp_tile}_{scheduler}_{target}"


def write(target, names_of):
    sets = {}
    for dtype in DTYPES:
        for layout in LAYOUTS:
            for kind in KINDS:
                names = sorted(set(names_of(dtype, layout, kind)))
                if names:
                    sets[f"{dtype}_{layout}_{kind}"] = names
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER / f"{target}.json").write_text(json.dumps(sets, indent=1) + "\n")


def main():
    for target, table in CPU.items():
        write(target, lambda d, l, k, t=target, rows=table: cpu_names(t, rows, d, l, k))
    write("sm90a", lambda d, l, k: hopper_names("sm90a", d, l, k))
    for target in ("gfx90a", "gfx942", "gfx950"):
        write(target, lambda d, l, k, t=target: ck_names(t, d, l, k))


if __name__ == "__main__":
    main()
