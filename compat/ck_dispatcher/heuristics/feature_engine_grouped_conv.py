"""The original's features of grouped convolutions."""
from __future__ import annotations

import math
from typing import Any, Callable, Dict, List, Tuple

from feature_base import (DTYPE_BYTES, HARDWARE, MachineFeatureEngine, TILES, TOO_SMALL, code_of,
                          first_of, interwave_is_mem, lds_features, tile_features)

PROBLEM = ("N", "C", "K", "G", "Hi", "Wi", "Y", "X", "stride_h", "stride_w", "pad_h", "pad_w",
           "Ho", "Wo", "log2_N", "log2_C", "log2_K", "log2_G", "log2_Hi", "log2_Wi",
           "log2_spatial", "log2_filter", "log2_output", "arithmetic_intensity", "filter_area",
           "is_1x1_conv", "is_3x3_conv", "channels_per_group", "aspect_ratio_hw",
           "aspect_ratio_filter")
DEPTH = ("is_3d", "Di", "Z", "Do", "stride_d", "pad_d", "dilation_h", "dilation_w")
GROUP = ("log2_channels_per_group", "log2_output_channels_per_group", "is_depthwise",
         "group_density", "is_small_group", "channels_product_per_group", "batch_group_product",
         "is_small_batch_grouped", "K_per_C")
KERNEL = ("block_size", "gemm_m_per_block", "gemm_n_per_block", "gemm_k_per_block", "pipeline",
          "num_warps", "tile_volume", "tile_mn", "lds_usage_estimate", "lds_usage_ratio",
          "block_tile_ratio_m", "block_tile_ratio_n", "block_efficiency", "is_compv3", "is_compv4",
          "is_compv5")
SUFFIX = ("is_intrawave", "has_dsb", "has_si", "is_basic", "is_compv6", "is_mem")
INTERACTION = (
    *(f"gemm_{axis}_output" for axis in "mnk"), *TILES,
    *(f"ratio_gemm_{axis}_to_tile_{axis}" for axis in "mnk"), *TOO_SMALL,
    "log_gemm_m_n_ratio", "log_total_output_tiles",
    "log_num_tiles_m", "is_mem_x_log_num_tiles_m", "log_gemm_m_raw", "gemm_m_lt_num_cus",
    "log_gemm_m_over_num_cus", "is_mem_x_log_gemm_m_raw", "log_cu_fill", "k_tiles_over_mn_tiles",
    "waves_per_max_occ", "wave_quant_efficiency", "log_k_per_active_cu", "is_subwave")


# What the latest engine has beyond the 97 features of the one before it.
LATEST = ("K_per_C", "gemm_k_per_block", *INTERACTION[INTERACTION.index("log_gemm_m_n_ratio"):])


class GroupedConvFeatureEngine(MachineFeatureEngine):
    """The 97 features of the original's tests. A tile's depth is what they call the block's size.
    """

    depth: Tuple[str, ...] = ("block_size", "gemm_k_per_block", "tile_k")

    def _all_names(self) -> List[str]:
        return [*PROBLEM, *DEPTH, *GROUP, *KERNEL, *SUFFIX, *INTERACTION,
                *(f"hw_{name}" for name in HARDWARE)]

    def get_feature_names(self) -> List[str]:
        return [name for name in self._all_names() if name not in LATEST]

    def get_categorical_features(self) -> List[str]:
        return ["pipeline"]

    def compute(self, problem: Dict[str, Any], kernel: Dict[str, Any]) -> Dict[str, float]:
        element = DTYPE_BYTES[str(problem.get("dtype", kernel.get("dtype", "bf16")))]
        found = _problem_features(problem, element)
        found.update(_kernel_features(kernel, element, self.hardware["lds_capacity"], self.depth))
        found.update(_interaction(found, self.hardware))
        found.update(self.hardware_features())
        return found

    def get_parameter_space(self) -> Dict[str, List[Any]]:
        return {"block_size": [64, 128, 256], "gemm_m_per_block": [16, 32, 64, 128, 256],
                "gemm_n_per_block": [16, 32, 64, 128, 256], "gemm_k_per_block": [32, 64, 128],
                "pipeline": ["compv3", "compv4", "compv5", "mem"],
                "scheduler": ["intrawave", "interwave"]}

    def get_constraints(self) -> List[Callable[[Dict[str, Any]], bool]]:
        def tiles_fit_lds(config: Dict[str, Any]) -> bool:
            element = DTYPE_BYTES[str(config.get("dtype", "bf16"))]
            rows = config["gemm_m_per_block"] + config["gemm_n_per_block"]
            return rows * config["gemm_k_per_block"] * element <= self.room_for(config)

        return [tiles_fit_lds, interwave_is_mem]


class GroupedConvDocumentedFeatureEngine(GroupedConvFeatureEngine):
    """The 83 features of the documented models: no depth, and no suffix of a kernel's name."""

    def get_feature_names(self) -> List[str]:
        return [name for name in super().get_feature_names() if name not in (*DEPTH, *SUFFIX)]


class GroupedConvLatestFeatureEngine(GroupedConvFeatureEngine):
    """The 113 features of the latest engine, which knows the depth of a tile."""

    depth = ("gemm_k_per_block", "tile_k", "block_size")

    def get_feature_names(self) -> List[str]:
        return self._all_names()


def _out(size: float, filters: float, pad: float, stride: float, dilation: float) -> float:
    return float((size + 2 * pad - dilation * (filters - 1) - 1) // stride + 1)


def _problem_features(problem: Dict[str, Any], element: float) -> Dict[str, float]:
    p = {name: float(first_of(problem, name)) for name in ("N", "C", "K", "Hi", "Wi", "Y", "X")}
    for name, usual in (("G", 1), ("Di", 1), ("Z", 1), ("stride_h", 1), ("stride_w", 1),
                        ("stride_d", 1), ("pad_h", 0), ("pad_w", 0), ("pad_d", 0),
                        ("dilation_h", 1), ("dilation_w", 1)):
        p[name] = float(problem.get(name, usual))
    deep = float(problem.get("dilation_d", 1))
    p["Ho"] = _out(p["Hi"], p["Y"], p["pad_h"], p["stride_h"], p["dilation_h"])
    p["Wo"] = _out(p["Wi"], p["X"], p["pad_w"], p["stride_w"], p["dilation_w"])
    p["Do"] = _out(p["Di"], p["Z"], p["pad_d"], p["stride_d"], deep)
    spatial, filters = p["Di"] * p["Hi"] * p["Wi"], p["Z"] * p["Y"] * p["X"]
    places = p["Do"] * p["Ho"] * p["Wo"]
    share = p["C"] / p["G"]
    flops = 2 * p["N"] * p["K"] * places * share * filters
    traffic = (p["N"] * p["C"] * spatial + p["K"] * share * filters +
               p["N"] * p["K"] * places) * element
    for name in ("N", "C", "K", "G", "Hi", "Wi"):
        p[f"log2_{name}"] = math.log2(p[name])
    is_3d = p["Di"] > 1 or p["Z"] > 1 or p["pad_d"] > 0
    window = (p["Z"], p["Y"], p["X"])
    p.update({
        "log2_spatial": math.log2(spatial), "log2_filter": math.log2(filters),
        "log2_output": math.log2(max(places, 1.0)), "arithmetic_intensity": flops / traffic,
        "filter_area": filters, "is_1x1_conv": float(window == (1, 1, 1)),
        "is_3x3_conv": float(window[1:] == (3, 3) and (not is_3d or window[0] == 3)),
        "channels_per_group": share, "aspect_ratio_hw": p["Hi"] / p["Wi"],
        "aspect_ratio_filter": p["Y"] / p["X"], "is_3d": float(is_3d)})
    p.update(_group_features(p))
    return p


def _group_features(p: Dict[str, float]) -> Dict[str, float]:
    share, made = p["C"] / p["G"], p["K"] / p["G"]
    return {"log2_channels_per_group": math.log2(max(share, 1.0)),
            "log2_output_channels_per_group": math.log2(max(made, 1.0)),
            "is_depthwise": float(p["G"] == p["C"] == p["K"]), "group_density": p["G"] / p["C"],
            "is_small_group": float(share < 16 or made < 16),
            "channels_product_per_group": share * made, "batch_group_product": p["N"] * p["G"],
            "is_small_batch_grouped": float(p["N"] < 8 and p["G"] > 1), "K_per_C": p["K"] / p["C"]}


def _kernel_features(kernel: Dict[str, Any], element: float, capacity: float,
                     depth: Tuple[str, ...]) -> Dict[str, float]:
    # Old tables have no depth of a tile; what they call the block's size was taken for it.
    found = {name: float(first_of(kernel, *names)) for name, names in (
        ("gemm_m_per_block", ("gemm_m_per_block", "tile_m")),
        ("gemm_n_per_block", ("gemm_n_per_block", "tile_n")), ("gemm_k_per_block", depth))}
    block = float(kernel.get("block_size", 256))
    word = str(kernel.get("pipeline", "compv3"))
    m, n, k = found.values()
    found.update(lds_features((m, n, k), element, word == "compv4", capacity))
    found.update({
        "block_size": block, "pipeline": code_of("pipeline", word), "num_warps": block / 4,
        "block_tile_ratio_m": m / block, "block_tile_ratio_n": n / block,
        "block_efficiency": min(m, n) / max(m, n),
        "is_intrawave": float(kernel.get("wave_mode", kernel.get("scheduler", "intrawave")) ==
                              "intrawave"),
        "has_dsb": float(bool(kernel.get("double_smem_buffer", kernel.get("has_dsb", False)))),
        "has_si": float(bool(kernel.get("split_image", kernel.get("has_si", False)))),
        "is_basic": float(word.startswith("basic"))})
    for name in ("compv3", "compv4", "compv5", "compv6", "mem"):
        found[f"is_{name}"] = float(word == name)
    return found


def _interaction(f: Dict[str, float], hardware: Dict[str, float]) -> Dict[str, float]:
    units = hardware["num_cus"]
    sizes = {"m": f["N"] * f["Do"] * f["Ho"] * f["Wo"], "n": f["K"],
             "k": f["channels_per_group"] * f["Z"] * f["Y"] * f["X"]}
    blocks = [f[f"gemm_{axis}_per_block"] for axis in "mnk"]
    found = tile_features(list(sizes.values()), blocks, units)
    for (axis, size), block in zip(sizes.items(), blocks):
        found[f"gemm_{axis}_output"] = size
        found[f"ratio_gemm_{axis}_to_tile_{axis}"] = size / block
    tiles = found["total_output_tiles"]
    log_m, log_tiles_m = math.log(max(sizes["m"], 1.0)), math.log(max(found["num_tiles_m"], 1.0))
    rounds = math.ceil(tiles / units)
    found.update({
        "log_gemm_m_n_ratio": math.log(max(sizes["m"], 1.0) / sizes["n"]),
        "log_total_output_tiles": math.log(max(tiles, 1.0)), "log_num_tiles_m": log_tiles_m,
        "is_mem_x_log_num_tiles_m": f["is_mem"] * log_tiles_m, "log_gemm_m_raw": log_m,
        "gemm_m_lt_num_cus": float(sizes["m"] < units),
        "log_gemm_m_over_num_cus": math.log(max(sizes["m"], 1.0) / units),
        "is_mem_x_log_gemm_m_raw": f["is_mem"] * log_m,
        "log_cu_fill": math.log(max(tiles, 1.0) / units),
        "k_tiles_over_mn_tiles": found["num_tiles_k"] / max(tiles, 1.0),
        "waves_per_max_occ": tiles / (units * hardware["max_waves_per_cu"]),
        "wave_quant_efficiency": tiles / max(rounds * units, 1.0),
        "log_k_per_active_cu": math.log(max(found["num_tiles_k"], 1.0) /
                                        max(min(tiles, units), 1.0)),
        "is_subwave": float(tiles < units)})
    return found
