"""The preselected GEMM kernels of AMD's GPUs: tables, and the names that they make."""
import re

SIZES = {"fp32": 4, "tf32": 4, "fp16": 2, "bf16": 2, "fp8": 1, "bf8": 1, "int8": 1}
# (pipeline, tile of 16-bit operands, wave, side of an MFMA, options). Chosen on paper, nothing was
# measured: large tiles where multiplying takes longest, small ones with more tiles under way where
# memory does, K in slices where there are few tiles.
DIRECT = ("direct", "64x64x16", "2x2x1", 0, "")
ASYNC = {"compute": [("async", "256x256x64", "2x4x1", 16, "s2"),
                     ("async", "256x128x64", "2x2x1", 32, "s3")],
         "memory": [("async", "64x64x128", "2x2x1", 16, "s3")],
         "latency": [("async", "64x64x64", "2x2x1", 32, "s3")]}
HIP = {
    "compute": [
        ("compv4", "256x128x32", "2x2x1", 32, ""),
        ("compv3", "256x256x32", "2x2x1", 32, ""),
        ("compv4", "256x256x32", "2x4x1", 16, ""),
        ("compv4", "128x128x32", "2x2x1", 32, ""),
        ("compv3", "256x128x32", "2x2x1", 32, "persistent"),
    ],
    "memory": [
        ("mem", "16x64x128", "1x4x1", 16, ""),
        ("compv4", "64x64x64", "2x2x1", 16, "splitordered1_slices4"),
        ("compv4", "32x64x128", "1x4x1", 16, ""),
        ("mem", "64x16x128", "4x1x1", 16, ""),
        ("mem", "32x64x128", "1x4x1", 16, "splitatomic1_slices4"),
        ("mem", "64x64x64", "2x2x1", 32, "splitordered1_slices4"),
        ("mem", "64x64x128", "2x2x1", 16, ""),
    ],
    "latency": [
        ("compv3", "64x64x64", "2x2x1", 32, ""),
        ("compv4", "64x64x64", "2x2x1", 16, ""),
        ("mem", "64x64x64", "2x2x1", 32, ""),
        ("mem", "32x64x128", "1x4x1", 16, "splitordered1_slices8"),
    ],
}
# Essential kernels are built and run on the emulator by every test run, so rare types and layouts
# have few of them: (rcr, other layouts) of fp16 and bf16, then of other types.
HIP_ESSENTIAL = {
    "common": ([("compv4", "256x128x32", "2x2x1", 32, ""),
                ("compv3", "256x256x32", "2x4x1", 16, ""),
                ("compv4", "128x128x32", "2x2x1", 32, ""),
                ("compv4", "128x128x64", "2x2x1", 16, "persistent"),
                ("mem", "64x64x64", "2x2x1", 32, ""),
                ("mem", "16x64x128", "1x4x1", 16, ""),
                ("mem", "64x64x64", "2x2x1", 16, "splitordered1_slices4"),
                ("mem", "32x64x128", "1x4x1", 16, "splitatomic1_slices4"), DIRECT],
               [("compv4", "256x128x32", "2x2x1", 32, ""),
                ("compv3", "128x128x32", "2x2x1", 16, ""),
                ("mem", "64x64x64", "2x2x1", 32, ""), DIRECT]),
    "rare": ([("compv4", "256x128x32", "2x2x1", 32, ""), ("compv3", "128x128x32", "2x2x1", 16, ""),
              ("mem", "64x64x64", "2x2x1", 32, ""), DIRECT],
             [("compv4", "128x128x32", "2x2x1", 32, ""), ("compv3", "64x64x64", "2x2x1", 16, "")]),
}
HIP_ASYNC_ESSENTIAL = [("async", "256x256x64", "2x4x1", 16, "s2"),
                       ("async", "128x128x64", "2x2x1", 32, "s3")]
# gfx90a has fewer types, so each has more kernels.
GFX90A_ESSENTIAL = [("mem", "16x64x128", "1x4x1", 16, ""), ("compv3", "64x64x64", "2x2x1", 32, "")]
HIP_TYPES = {"gfx90a": ("fp32", "fp16", "bf16", "int8"),
             "gfx942": ("fp32", "tf32", "fp16", "bf16", "fp8", "bf8", "int8"),
             "gfx950": ("fp32", "fp16", "bf16", "fp8", "bf8", "int8")}
HIP_EPILOGUES = ["bias", "bias_gelu", "multidadd2", "multidmultiply2"]
# Operands of two types, and results of another type than the operands'.
HIP_MIXED = {"gfx90a": ["fp16_rcr_outfp32", "bf16_rcr_outfp32", "int8_rcr_outfp32",
                        "int8_rcr_outbf16", "int8_rcr_outint8"]}
HIP_MIXED["gfx942"] = HIP_MIXED["gfx950"] = HIP_MIXED["gfx90a"] + [
    "fp8_bf8_rcr_", "bf8_fp8_rcr_", "fp8_rcr_outbf16", "fp8_rcr_outfp32", "bf8_rcr_outfp32"]


def hip_name(head, dtype, row, target, words=""):
    """`words` are those between the shapes and the algorithm's options."""
    pipeline, tile, wave, side, options = row
    size = SIZES[dtype]
    if pipeline == "direct":
        return f"{head}_direct_{tile}_{wave}_4x4x1_{words}_{target}".replace("__", "_")
    m, n, k = map(int, tile.split("x"))
    warp_tile = f"{side}x{side}x{64 // side * 16 // size}"
    name = f"{head}_{pipeline}_{m}x{n}x{k * 2 // size}_{wave}_{warp_tile}"
    return re.sub("_+", "_", f"{name}_{words}_intrawave_{options}_{target}")


def hip_rows(target, dtype, layout, kind):
    has_async = target == "gfx950" and layout == "rcr"
    if kind != "essential":
        rows = HIP[kind] + (ASYNC[kind] if has_async else [])
        # 8 waves have no registers to transpose elements of one byte for so many sums.
        transposes = SIZES[dtype] == 1 and layout != "rcr"
        return [row for row in rows if not transposes or row[1:3] != ("256x256x32", "2x4x1")]
    rcr, other = HIP_ESSENTIAL["common" if dtype in ("fp16", "bf16") else "rare"]
    rows = list(rcr if layout == "rcr" else other)
    if has_async and dtype != "fp32":
        rows += HIP_ASYNC_ESSENTIAL
    if target == "gfx90a":
        rows += [row for row in GFX90A_ESSENTIAL if row not in rows]
    return rows


def hip_names(target, dtype, layout, kind):
    if dtype not in HIP_TYPES[target]:
        return
    head = f"gemm_{dtype}_{layout}"
    for row in hip_rows(target, dtype, layout, kind):
        yield hip_name(head, dtype, row, target)
    if (dtype, layout, kind) == ("fp16", "rcr", "essential"):
        yield hip_name(head, dtype, HIP["compute"][0], target, "bias_gelu")
        yield hip_name(head, dtype, HIP["compute"][3], target, "presh")


def hip_extra_sets(target):
    """Sets of fp16 besides those of every type, and kernels of mixed types."""
    rows = HIP["compute"][:4] + HIP["latency"][:1]
    multi_d = [hip_name("gemm_fp16_rcr", "fp16", row, target, words)
               for row in HIP["compute"][0:4:3] + HIP["latency"][:1] for words in HIP_EPILOGUES]
    preshuffle = [hip_name("gemm_fp16_rcr", "fp16", row, target, "presh") for row in rows]
    mixed = []
    for words in HIP_MIXED[target]:
        dtype = words.split("_")[0]
        head, _, out = words.partition("_rcr_")
        for row in (HIP["compute"][3], HIP["latency"][2]):
            mixed.append(hip_name(f"gemm_{head}_rcr", dtype, row, target, out))
    return {"fp16_rcr_multi_d": multi_d, "fp16_rcr_preshuffle": preshuffle,
            "mixed_precision": mixed}
