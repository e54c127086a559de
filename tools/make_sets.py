#!/usr/bin/env python3
"""Writes src/tessera/families/<op>/sets/<target>.json: the preselected kernels of each target.

The tables below are the content; names are made from them for each dtype and layout. The gemm tests
check that every name is legal. Run it without arguments after editing a table.
"""
import json
import pathlib
import re

from amd_sets import HIP_TYPES, hip_extra_sets, hip_names
from fmha_sets import fmha_sets

FAMILIES = pathlib.Path(__file__).resolve().parent.parent / "src/tessera/families"
DTYPES = ["fp32", "tf32", "fp16", "bf16", "fp8", "bf8", "int8"]
LAYOUTS = ["rcr", "rrr", "crr", "ccr"]
KINDS = ["essential", "compute", "memory", "latency"]

# CPU rows: kind -> (pipeline, tile, wave, register block without its k). In-place pipelines are
# left out when the dtype or the layout does not allow them.
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
        # per type and layout the best of these is within 1.5% of the best of all kernels. Tiles of
        # 2048 k are the best for large calls of bf16 and int8 (62 problems of 12 to 180 ms).
        "essential": [
            ("packab", "8x4096x512", "0x0x1", "8x32"),
            ("packab", "48x1920x512", "0x0x1", "12x32"),
            ("packab", "48x1920x512", "0x0x1", "6x64"),
            ("packab", "48x1920x512", "1x1x0", "12x32"),
            ("packb", "960x960x1024", "0x0x1", "8x32"),
            ("packb", "960x960x1024", "0x0x1", "12x32"),
            ("packb", "96x960x2048", "0x0x1", "8x32"),
            ("packb", "24x960x1024", "0x0x1", "8x16"),
            ("direct", "960x960x1024", "0x0x1", "12x32"),
            ("direct", "960x960x1024", "0x0x1", "8x16"),
            ("direct", "48x1920x512", "0x0x1", "8x16"),
            ("stream", "8x4096x512", "0x0x1", "8x16"),
            ("stream", "8x1024x512", "0x0x1", "8x16"),
        ],
        # See is_fused_layer().
        "fused": ["bias", "bias_gelu", "bias_relu"],
        # Kernels for short calls, all of them essential: compiling takes longer than many calls.
        # Tile and warp tile; the k of dot products is a vector of words.
        "small": {
            "types": ("fp32", "bf16", "int8"),
            "rcr": [("1x16", "1x16", 16), ("2x12", "2x12", 16), ("3x8", "3x8", 16),
                    ("4x6", "4x6", 16), ("12x16", "12x16", 1), ("6x32", "6x32", 1),
                    ("3072x32", "12x32", 1)],
            "rrr": [("12x32", "12x32", 1), ("6x64", "6x64", 1)],
            "fp32": [("9x48", "9x48", 1), ("1x128", "1x128", 1), ("2x128", "2x128", 1)],
            "others": [("3072x32", "12x32", 1)],
        },
        # Kernels on tiles of Intel AMX that the estimate chooses. The k of a register block is a
        # row of a tile.
        "amx": ["960x960x1024", "96x960x2048", "96x960x512"],
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
        "small": {
            "types": ("fp32",),
            "rcr": [("1x8", "1x8", 8), ("2x4", "2x4", 8), ("3x4", "3x4", 8), ("4x3", "4x3", 8),
                    ("6x8", "6x8", 1), ("3072x16", "6x16", 1)],
            "rrr": [("6x16", "6x16", 1), ("4x24", "4x24", 1)],
            "fp32": [("1x96", "1x96", 1), ("2x48", "2x48", 1)],
        },
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

# Hopper: kind -> (tile m, n, k of 16-bit operands, consumers, options). The configurations that
# were best on some shape when they were measured.
TMAWS = {
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
    # A greedy cover of data/gemm_sm90a_{bf16,fp8}.parquet, and two large tiles: with those of
    # CPASYNC the best of these reaches 95% of the best of all kernels in the mean, on either type.
    "essential": [
        (128, 256, 64, 2, "cooperative_s4"),
        (128, 192, 64, 2, "pingpong_s4"),
        (128, 160, 64, 2, "pingpong_s5"),
        (128, 128, 64, 2, "pingpong_s6_repack"),
        (64, 128, 64, 2, "pingpong_s8_repack"),
        (64, 64, 64, 2, "pingpong_s10"),
        (64, 32, 64, 1, "cooperative_s8_swap"),
        (64, 32, 64, 1, "cooperative_splitordered4_s8_swap"),
        (64, 32, 64, 1, "cooperative_splitordered4_s8_swap_repack"),
        (64, 16, 128, 1, "cooperative_splitordered4_s8_swap"),
        (64, 16, 128, 1, "cooperative_splitordered8_slices4_s10_swap_repack"),
        (64, 8, 128, 1, "cooperative_s6_swap"),
    ],
}
# Any size, stride and alignment: (tile m, n, k of 16-bit operands, wave, stages).
CPASYNC = {
    "compute": [(128, 128, 64, "2x4x1", 3), (128, 128, 64, "2x2x1", 3),
                (64, 128, 64, "2x2x1", 3)],
    "memory": [(32, 128, 64, "1x4x1", 4), (64, 64, 64, "2x2x1", 5)],
    "latency": [(64, 64, 64, "2x2x1", 3), (32, 128, 64, "1x4x1", 3)],
    "essential": [(128, 128, 64, "2x4x1", 3), (64, 64, 64, "2x2x1", 3), (64, 32, 64, "2x2x1", 6),
                  (16, 64, 64, "1x4x1", 6)],
}
MMA = {"tf32": "16x8x8", "fp16": "16x8x16", "bf16": "16x8x16", "fp8": "16x8x16",
       "bf8": "16x8x16", "int8": "16x8x32"}
# The same for fp32 without tf32, which is multiplied on the ordinary cores: (tile, wave, what one
# lane accumulates, options).
FMA = {
    "compute": [("128x128x32", "2x4x1", "8x8x1", "s3"), ("128x64x32", "2x2x1", "8x8x1", "s3")],
    "memory": [("64x64x32", "2x2x1", "8x4x1", "s5"),
               ("8x128x32", "2x1x1", "4x4x1", "splitordered1_slices16_s3")],
    "latency": [("64x64x32", "2x2x1", "8x4x1", "s3"), ("64x32x32", "2x2x1", "4x4x1", "s3")],
    "essential": [("128x128x32", "2x4x1", "8x8x1", "s3"), ("128x64x32", "2x2x1", "8x8x1", "s3"),
                  ("64x64x32", "2x2x1", "8x4x1", "s3"), ("64x32x32", "2x2x1", "4x4x1", "s3"),
                  ("64x32x32", "2x2x1", "4x4x1", "splitordered1_slices8_s3"),
                  ("8x128x32", "2x1x1", "4x4x1", "splitordered1_slices16_s3")],
}

# Few rows or columns: (warps with rows of their own, warps that share k, rows of a warp, words of
# 16 bytes that a lane awaits of each), with each number of rows that are kept.
STREAM = [(8, 1, 2, 4), (1, 8, 4, 2)]
STREAM_FEW = (1, 2, 4)

SIZES = {"fp32": 4, "tf32": 4, "fp16": 2, "bf16": 2, "fp8": 1, "bf8": 1, "int8": 1}


def cpu_names(target, table, dtype, layout, kind):
    if dtype == "tf32":
        return
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
        for steps in table.get("fused", []) if is_fused_layer(dtype, layout, tile, kind) else []:
            yield f"{name}_{steps}_{target}"
    yield from small_names(target, table.get("small", {}), dtype, layout, kind)
    yield from amx_names(target, table, dtype, layout, kind)


def is_fused_layer(dtype, layout, tile, kind):
    """The fused kernels that are chosen for common layers are essential."""
    is_layer = dtype in ("fp32", "bf16") and layout == "rcr" and tile == "960x960x1024"
    return is_layer and kind == "essential"


def amx_names(target, table, dtype, layout, kind):
    if kind != "essential" or dtype not in ("bf16", "int8") or layout not in ("rcr", "rrr"):
        return
    for tile in table.get("amx", []):
        name = f"gemm_{dtype}_{layout}_amx_{tile}_0x0x1_32x32x{64 // SIZES[dtype]}"
        yield f"{name}_{target}"
        for steps in table.get("fused", []) if is_fused_layer(dtype, layout, tile, kind) else []:
            yield f"{name}_{steps}_{target}"


def small_names(target, table, dtype, layout, kind):
    """Kernels that multiply words as memory holds them: two by rows differ between types."""
    if kind != "essential" or layout not in table or dtype not in table["types"]:
        return
    products = 4 // SIZES[dtype]
    shapes = list(table[layout])
    if layout == "rrr":
        shapes += table["fp32" if dtype == "fp32" else "others"]
    for tile, block, words in shapes:
        for wave in ("0x0x1", "1x1x1"):
            k = products * words
            yield f"gemm_{dtype}_{layout}_small_{tile}x{k}_{wave}_{block}x{k}_{target}"


def stream_names(target, dtype, layout, kind):
    if kind != "essential" or layout != "rcr" or dtype not in ("fp32", "fp16", "bf16"):
        return
    for few in STREAM_FEW:
        for wave_n, wave_k, rows, words in STREAM:
            yield (f"gemm_{dtype}_{layout}_stream_{few}x{wave_n * rows}x{16384 // few}"
                   f"_1x{wave_n}x{wave_k}_{few}x{rows}x{words * 16 // SIZES[dtype]}_{target}")


def hopper_names(target, dtype, layout, kind):
    size = SIZES[dtype]
    head = f"gemm_{dtype}_{layout}"
    yield from stream_names(target, dtype, layout, kind)
    if dtype == "fp32":
        for tile, wave, lane_tile, options in FMA[kind]:
            yield f"{head}_cpasync_{tile}_{wave}_{lane_tile}_{options}_{target}"
        return
    for m, n, k, consumers, options in TMAWS[kind]:
        # wgmma transposes 16-bit operands only
        if size != 2 and layout != "rcr" and "repack" not in options:
            continue
        if layout[0] == "c" and n < 32:  # lines of 64 rows of A
            options = options.replace("_s8", "_s6").replace("_s10", "_s6")
        yield (f"{head}_tmaws_{m}x{n}x{k * 2 // size}_{consumers}x1x1_64x{n}x{32 // size}"
               f"_{options}_{target}")
    if kind != "essential" and (size == 2 or layout == "rcr"):
        return
    yield from cpasync_names(target, dtype, layout, kind)


def cpasync_names(target, dtype, layout, kind):
    for m, n, k, wave, stages in CPASYNC[kind]:
        if dtype in ("fp8", "bf8") and layout != "rcr" and (m, n, wave) == (128, 128, "2x2x1"):
            continue  # too many registers
        warps_m, warps_n = int(wave[0]), int(wave[2])
        # 8-bit operands are transposed 32 rows at a time.
        if SIZES[dtype] == 1 and ((layout[0] == "c" and m // warps_m < 32) or
                                  (layout[1] == "r" and n // warps_n < 32)):
            continue
        tile = f"{m}x{n}x{k * 2 // SIZES[dtype]}"
        yield f"gemm_{dtype}_{layout}_cpasync_{tile}_{wave}_{MMA[dtype]}_s{stages}_{target}"


# Normalisations: (tile_n, wave, slices) for each kind.
NORM_KINDS = {"softmax": [""], "rmsnorm": ["_scale", "_scale_residual"],
              "layernorm": ["_scale_shift", "_scale_shift_residual"]}
NORM_CPU = [(4096, "0x1x1", 1)]
NORM_HOPPER = {"softmax": [(1024, "4x2x1", 1), (4096, "1x8x1", 1), (16384, "1x16x1", 1),
                           (8192, "1x8x1", 32)],
               "rmsnorm": [(4096, "1x8x1", 1), (8192, "1x8x1", 1)],
               "layernorm": [(4096, "1x8x1", 1), (8192, "1x8x1", 1)]}


def norm_names(target, table, dtype, kind):
    for flags in NORM_KINDS[kind]:
        for columns, wave, slices in table[kind] if isinstance(table, dict) else table:
            rows = int(wave.split("x")[0]) if target == "sm90a" else 1
            end = f"_slices{slices}" if slices > 1 else ""
            yield (f"norm_{dtype}_{kind}_rows_{rows}x{columns}x1_{wave}_1x1x1{flags}{end}"
                   f"_{target}")


def write_norm(target, table):
    sets = {f"{dtype}_{kind}_essential": sorted(norm_names(target, table, dtype, kind))
            for dtype in ("fp32", "fp16", "bf16") for kind in NORM_KINDS}
    write_file("norm", target, sets)


# Convolutions in two dimensions. fp32 and half precision have the general kernel, as all types have
# on CPUs. Half precision with channels last has tmaws kernels besides, tile x wave and options:
# those that came out best over the layers of networks on an H200 by our first kernels for it.
# cpasync kernels serve what tmaws cannot: direction -> (tile, wave, slices), reckoned and not
# measured.
CONV_DIRECT = {"cpu": "direct_1x1x1_0x1x1_1x1x1", "sm90a": "direct_64x64x16_2x2x1_4x8x1"}
CONV_TMAWS = {
    "forward": [
        ("128x64", 2, "pingpong_s8"), ("256x64", 2, "cooperative_s5"),
        ("192x64", 3, "cooperative_s6"), ("128x128", 2, "pingpong_s6"),
        ("192x128", 3, "cooperative_s5"), ("128x80", 2, "cooperative_s8"),
        ("128x160", 2, "pingpong_s6"), ("64x128", 2, "pingpong_s8"),
        ("128x128", 2, "cooperative_splitordered1_slices3_s6")],
    "backward_data": [
        ("128x64", 2, "pingpong_s8"), ("256x64", 2, "cooperative_s5"),
        ("128x128", 2, "pingpong_s6"), ("128x128", 2, "cooperative_s6"),
        ("192x128", 3, "cooperative_s5"), ("128x160", 2, "pingpong_s5"),
        ("64x128", 2, "pingpong_s8"), ("128x128", 2, "cooperative_splitordered1_slices3_s6")],
    "backward_weight": [
        ("64x64", 1, "cooperative_s9"), ("64x64", 1, "cooperative_splitordered1_slices48_s9"),
        ("128x64", 2, "cooperative_splitordered1_slices8_s8"),
        ("128x64", 2, "cooperative_splitordered1_slices64_s8"),
        ("128x128", 2, "pingpong_s6"), ("128x128", 2, "cooperative_splitordered1_slices3_s6"),
        ("128x128", 2, "cooperative_splitordered1_slices16_s6"), ("128x192", 2, "pingpong_s5"),
        ("128x256", 2, "cooperative_s4")]}


CONV_CPASYNC = {
    "forward": [("128x128", "2x4", 1), ("128x64", "2x2", 1), ("256x32", "4x1", 1)],
    "backward_data": [("128x128", "2x4", 1), ("128x64", "2x2", 1), ("256x32", "4x1", 1)],
    "backward_weight": [
        ("128x64", "2x2", 8), ("64x64", "2x2", 1), ("64x64", "2x2", 16), ("64x64", "2x2", 64)],
}
# Depth and instruction of each type. 8-bit types and tf32 have fewer kernels.
CONV_MMA = {
    "fp16": (32, "16x8x16"), "bf16": (32, "16x8x16"), "tf32": (16, "16x8x8"),
    "fp8": (64, "16x8x16"), "int8": (64, "16x8x32")}
CONV_TYPES = ("fp32", "tf32", "fp16", "bf16", "fp8", "int8")


def conv_cpasync_names(direction, dtype):
    depth, mma = CONV_MMA[dtype]
    is_half = dtype in ("fp16", "bf16")
    for tile, wave, slices in CONV_CPASYNC[direction]:
        is_special = tile != "128x64" if direction != "backward_weight" else slices in (1, 64)
        if is_special and not is_half:
            continue
        split = f"splitordered1_slices{slices}_" if slices > 1 else ""
        stages = 3 if dtype == "fp8" else 4
        yield f"cpasync_{tile}x{depth}_{wave}x1_{mma}_{split}s{stages}"


# Depthwise, channels last: tile, warp tile and slices: the filters and strides of MobileNetV3,
# EfficientNet and ConvNeXt, for large images and for small ones, and any filter. Chosen by counting
# instructions and registers, not yet measured.
CONV_DEPTHWISE = {
    "forward": [
        ("64x128x1", "4x4x3", 1), ("32x128x1", "2x4x3", 1), ("64x128x2", "4x4x3", 1),
        ("16x128x2", "2x2x3", 1), ("112x64x1", "4x7x5", 1), ("56x64x1", "2x7x5", 1),
        ("56x64x2", "2x7x5", 1), ("112x64x1", "4x7x7", 1), ("56x64x1", "2x7x7", 1),
        ("4x32x0", "1x1x0", 1)],
    "backward_data": [
        ("64x128x1", "4x4x3", 1), ("32x128x1", "2x4x3", 1), ("64x128x2", "4x4x3", 1),
        ("16x128x2", "2x2x3", 1), ("112x64x1", "4x7x5", 1), ("56x64x1", "2x7x5", 1),
        ("64x64x2", "4x4x5", 1), ("112x64x1", "4x7x7", 1), ("56x64x1", "2x7x7", 1),
        ("4x32x0", "1x1x0", 1)],
    "backward_weight": [
        ("128x128x1", "8x4x3", 16), ("128x128x1", "8x4x3", 128), ("128x128x2", "8x4x3", 16),
        ("128x128x2", "8x4x3", 128), ("128x64x1", "8x4x5", 16), ("128x64x1", "8x4x5", 128),
        ("128x64x2", "8x4x5", 16), ("128x64x1", "8x4x7", 16), ("128x64x1", "8x4x7", 128),
        ("4x32x0", "1x1x0", 16)]}


def conv_hopper_depthwise_names(direction, dtype):
    whole = direction == "forward" and dtype == "bf16"
    # Other types than bf16 get every second one, so that the pack stays small.
    for tile, warp_tile, slices in CONV_DEPTHWISE[direction][::1 if dtype == "bf16" else 2]:
        options = f"_splitordered1_slices{slices}" if slices > 1 else ""
        for epilogue in ("", "_bias_relu") if whole else ("",):
            yield f"depthwise_{tile}_2x2x1_{warp_tile}{epilogue}{options}"


# The same with operands copied first, in both layouts.
CONV_REPACK = {
    "forward": [
        ("128x64", 2, "pingpong_s8_repack"), ("256x64", 2, "cooperative_s5_repack"),
        ("128x128", 2, "pingpong_s6_repack")],
    "backward_data": [
        ("128x64", 2, "pingpong_s8_repack"), ("256x64", 2, "cooperative_s5_repack"),
        ("128x128", 2, "pingpong_s6_repack")],
    "backward_weight": [
        ("64x64", 1, "cooperative_s9_repack"),
        ("64x64", 1, "cooperative_splitordered1_slices64_s9_repack"),
        ("64x192", 1, "cooperative_splitordered1_slices16_s6_repack"),
        ("128x128", 2, "cooperative_splitordered1_slices4_s6_repack")]}


def conv_tmaws_names(direction, dtype, layout):
    plain = CONV_TMAWS[direction] if layout == "nhwgc" else []
    for tile, wave, options in plain + CONV_REPACK[direction]:
        columns = tile.split("x")[1]
        whole = (direction == "forward" and dtype == "bf16" and layout == "nhwgc"
                 and "slices" not in options)
        for epilogue in ("", "bias_relu_") if whole else ("",):
            yield f"tmaws_{tile}x64_{wave}x1x1_64x{columns}x16_{epilogue}{options}"


# GEMM's layout for each layout and direction of a pointwise convolution.
CONV_PRODUCTS = {"nhwgc": {"forward": "rcr", "backward_data": "rrr", "backward_weight": "crr"},
                 "nchw": {"forward": "rrr", "backward_data": "crr", "backward_weight": "rcr"}}
EPILOGUE_WORDS = re.compile(
    "bias|relu|gelu|gelutanh|silu|add|multiply|multid.*|out.*|d(fp|bf|int).*")


def conv_pointwise_names(target, direction, dtype, layout):
    """Four of GEMM's essential algorithms for the product, spread over the list.

    Those for short calls, for machines with tiles and for few rows on a GPU are left out: few
    convolutions take them.
    """
    left_out = ("small", "amx", "stream") if target == "sm90a" else ("small", "amx")
    product = CONV_PRODUCTS[layout][direction]
    sets = json.loads((FAMILIES / "gemm" / "sets" / f"{target}.json").read_text())
    head = f"gemm_{dtype}_{product}_"
    algorithms = [name[len(head):-len(target) - 1] for name in sets[f"{dtype}_{product}_essential"]]
    plain = [a for a in algorithms if not any(map(EPILOGUE_WORDS.fullmatch, a.split("_")))
             and not a.startswith(left_out)]
    return [f"{plain[i * len(plain) // 4]}_pointwise" for i in range(min(4, len(plain)))]


# One channel in each group: tile_m, which is the stride, and warp tile for filters of 3, 5 and 7
# taps (2: half of the taps of a gradient with a stride). Those with tile_m = 2 are for fp32 alone.
CONV_DEPTHWISE_CPU = {
    "avx512": {"forward": [(1, "7x32x3"), (1, "7x32x5"), (1, "7x32x7"), (2, "7x32x3"),
                           (2, "7x32x5")],
               "backward_data": [(1, "7x32x3"), (1, "7x32x5"), (1, "7x32x7"), (1, "8x16x2")],
               "backward_weight": [(1, "7x48x3"), (1, "7x32x5"), (1, "7x32x7"), (2, "7x48x3"),
                                   (2, "7x32x5")]}}
for _target, _lanes in (("avx2", 8), ("generic", 4)):
    CONV_DEPTHWISE_CPU[_target] = {
        "forward": [(_step, f"7x{_lanes}x{_taps}")
                    for _step, _taps in ((1, 3), (1, 5), (1, 7), (2, 3), (2, 5))],
        "backward_data": [(1, f"7x{_lanes}x{_taps}") for _taps in (2, 3, 5, 7)]}
    CONV_DEPTHWISE_CPU[_target]["backward_weight"] = CONV_DEPTHWISE_CPU[_target]["forward"]


def conv_depthwise_names(target, direction, dtype, layout):
    if dtype != "fp32" and layout != "nhwgc":
        return
    for step, warp_tile in CONV_DEPTHWISE_CPU.get(target, {}).get(direction, []):
        if dtype == "fp32" or step == 1:
            yield f"depthwise_{step}x1x1_0x0x1_{warp_tile}"


def conv_algorithms(direction, dtype, layout, target):
    is_common = dtype in ("fp32", "fp16", "bf16")
    if not is_common and (layout == "nchw" or direction != "forward" and dtype != "tf32"):
        return
    if is_common or target != "sm90a":
        yield CONV_DIRECT.get(target, CONV_DIRECT["cpu"])
    if is_common:
        yield from conv_pointwise_names(target, direction, dtype, layout)
        yield from conv_depthwise_names(target, direction, dtype, layout)
    if target != "sm90a":
        return
    if is_common and layout == "nhwgc":
        yield from conv_hopper_depthwise_names(direction, dtype)
    if is_common and dtype != "fp32":
        yield from conv_tmaws_names(direction, dtype, layout)
    if dtype != "fp32":
        yield from conv_cpasync_names(direction, dtype)


def write_conv(target):
    sets = {}
    for direction in CONV_TMAWS:
        for dtype in CONV_TYPES:
            for layout in ("nhwgc", "nchw"):
                head = f"conv_{direction.replace('_', '')}_{dtype}_{layout}_2d"
                algorithms = list(conv_algorithms(direction, dtype, layout, target))
                if algorithms:
                    sets[f"{direction}_{dtype}_{layout}_essential"] = sorted(
                        f"{head}_{algorithm}_{target}" for algorithm in algorithms)
    write_file("conv", target, sets)


def write_file(op, target, sets):
    folder = FAMILIES / op / "sets"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{target}.json").write_text(json.dumps(sets, indent=1) + "\n")


def write(target, names_of, extra=None):
    sets = {}
    for dtype in DTYPES:
        for layout in LAYOUTS:
            for kind in KINDS:
                names = sorted(set(names_of(dtype, layout, kind)))
                if names:
                    sets[f"{dtype}_{layout}_{kind}"] = names
    for name, names in (extra or {}).items():
        sets[name] = sorted(set(names))
    if extra:
        sets["fp16_rcr_all"] = sorted(
            {name for key in sets if key.startswith("fp16_rcr_") for name in sets[key]})
    write_file("gemm", target, sets)


def main():
    for target, table in CPU.items():
        write(target, lambda d, l, k, t=target, rows=table: cpu_names(t, rows, d, l, k))
    write("sm90a", lambda d, l, k: hopper_names("sm90a", d, l, k))
    for target in HIP_TYPES:
        write(target, lambda d, l, k, t=target: hip_names(t, d, l, k), hip_extra_sets(target))
    for target in CPU:
        write_norm(target, NORM_CPU)
        write_conv(target)
        write_file("fmha", target, fmha_sets(target))
    write_norm("sm90a", NORM_HOPPER)
    write_conv("sm90a")
    write_file("fmha", "sm90a", fmha_sets("sm90a"))


if __name__ == "__main__":
    main()
