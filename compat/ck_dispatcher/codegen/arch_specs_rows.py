"""The limits of targets under the original's names. They are read from Tessera's rows, so that
nothing has to be generated anew when a row changes; generate_arch_specs.py writes them out, and the
functions with them, which therefore use nothing but the tables."""
from __future__ import annotations

from typing import Any, Dict, List, Optional, Set, Tuple

import _paths  # noqa: F401
from tessera_ck import gemm as _gemm
from tessera_ck import targets as _targets

from codegen_common import valid_trait_configs

TABLES = (
    "ARCH_FAMILY_MAP", "ELEMENT_SIZE_MAP", "DTYPE_COMBINATIONS", "WARP_SUPPORTED_COMBINATIONS",
    "WARP_TILE_SUPPORTED_COMBINATIONS", "PRESHUFFLE_WARP_TILE_SUPPORTED_COMBINATIONS",
    "PRESHUFFLE_PIPELINES", "LDS_CAPACITY_LIMITS", "LDS_TOTAL_CAPACITY_BY_ARCH",
    "DOUBLE_BUFFERED_PIPELINES", "SINGLE_BUFFERED_PIPELINES", "LDS_CAPACITY_LIMITS_BY_ARCH",
    "LDS_FRACTIONS", "TRAIT_UNSUPPORTED_COMBINATIONS")
FUNCTIONS = (
    "get_supported_archs", "get_arch_family", "get_element_size", "get_warp_configs",
    "get_warp_tile_combos", "get_lds_limit", "is_trait_combo_unsupported", "get_dtype_info",
    "is_dtype_combo_valid", "get_valid_dtype_combos")
__all__ = [*TABLES, *FUNCTIONS]

FAMILIES = {"gfx908": "cdna1", "gfx90a": "cdna2", "gfx942": "cdna3", "gfx950": "cdna4",
            "sm90a": "hopper"}
ELEMENT_SIZE_MAP = {"fp16": 2, "bf16": 2, "fp32": 4, "tf32": 4, "fp8": 1, "bf8": 1, "int8": 1,
                    "int32": 4}
DTYPE_COMBINATIONS = {
    f"{word}_{word}": {"acc": "int32" if word == "int8" else "fp32",
                       "output": _gemm.default_output(word)}
    for word in ("fp32", "tf32", "fp16", "bf16", "fp8", "bf8", "int8")}
DTYPE_COMBINATIONS.update({pair: {"acc": "fp32", "output": "fp16"}
                           for pair in ("fp8_bf8", "bf8_fp8")})
PRESHUFFLE_PIPELINES = ["preshufflev2"]


def _space(arch: str) -> Dict[str, Any]:
    return _targets.original_space(arch, "gemm")


def _shapes(words: List[str]) -> List[List[int]]:
    return [list(_gemm.numbers(word)) for word in words]


def _combination(dtype: str) -> str:
    return f"{dtype}_{dtype}_{DTYPE_COMBINATIONS[f'{dtype}_{dtype}']['acc']}"


def _warp_tiles(arch: str) -> Dict[str, List[List[int]]]:
    return {_combination(dtype): _shapes(words)
            for dtype, words in _space(arch).get("warp_tiles", {}).items() if words}


def _fractions(arch: str) -> Dict[str, float]:
    """The share of shared memory that a pipeline may use, where the target's row limits it."""
    limits = _targets.dispatcher_of(arch).target.get("pipeline_limits", {})
    return {pipeline: each["shared_memory_fraction"] for pipeline, each in limits.items()
            if "shared_memory_fraction" in each}


def _traits() -> Set[Tuple[str, str, str]]:
    """What goes together on no target, whatever the epilogue."""
    legal = set(valid_trait_configs())
    return {(pipeline, "*", scheduler) for pipeline in ("mem", "compv3", "compv4", "compv5")
            for scheduler in ("intrawave", "interwave") if (pipeline, scheduler) not in legal}


_ARCHS = sorted(_targets.rows())
ARCH_FAMILY_MAP = {arch: FAMILIES.get(arch, _targets.rows()[arch]["backend"]) for arch in _ARCHS}
WARP_SUPPORTED_COMBINATIONS = {arch: _shapes(_space(arch).get("waves", [])) for arch in _ARCHS}
WARP_TILE_SUPPORTED_COMBINATIONS = {arch: _warp_tiles(arch) for arch in _ARCHS}
PRESHUFFLE_WARP_TILE_SUPPORTED_COMBINATIONS = WARP_TILE_SUPPORTED_COMBINATIONS
LDS_CAPACITY_LIMITS = {arch: _targets.dispatcher_of(arch).target.get("shared_memory_bytes", 0)
                       for arch in _ARCHS}
# Bytes of a unit of the original's targets, also of those that Tessera has no row for.
LDS_TOTAL_CAPACITY_BY_ARCH = {
    **{arch: size << 10 for arch, size in (
        ("gfx908", 64), ("gfx90a", 64), ("gfx942", 64), ("gfx950", 160), ("gfx1100", 64),
        ("gfx1200", 64), ("gfx1201", 64), ("gfx1250", 320))},
    **{arch: size for arch, size in LDS_CAPACITY_LIMITS.items() if arch.startswith("gfx")}}
# Pipelines with two buffers for A and B whatever the configuration says, and the others.
DOUBLE_BUFFERED_PIPELINES = ("compv4", "compv6", "preshufflev1", "preshufflev2", "comp_async")
SINGLE_BUFFERED_PIPELINES = ("mem", "compv1", "compv2", "compv3", "compv5", "wavelet", "default")


def limits_of(capacities: Dict[str, int]) -> Dict[str, Dict[str, int]]:
    """What each pipeline may use of a unit's shared memory."""
    return {arch: {**{pipeline: size for pipeline in SINGLE_BUFFERED_PIPELINES},
                   **{pipeline: size // 2 for pipeline in DOUBLE_BUFFERED_PIPELINES}}
            for arch, size in capacities.items()}


LDS_CAPACITY_LIMITS_BY_ARCH = limits_of(LDS_TOTAL_CAPACITY_BY_ARCH)
LDS_FRACTIONS = {arch: _fractions(arch) for arch in _ARCHS
                 if arch not in LDS_CAPACITY_LIMITS_BY_ARCH}
TRAIT_UNSUPPORTED_COMBINATIONS = _traits()


def get_supported_archs() -> List[str]:
    return sorted(ARCH_FAMILY_MAP)


def get_arch_family(arch: str) -> str:
    return ARCH_FAMILY_MAP.get(arch, "unknown")


def get_element_size(dtype: str) -> int:
    return ELEMENT_SIZE_MAP[dtype]


def get_warp_configs(arch: str) -> List[List[int]]:
    return WARP_SUPPORTED_COMBINATIONS.get(arch, [])


def get_warp_tile_combos(arch: str, dtype_key: str) -> List[List[int]]:
    """dtype_key: "fp16_fp16_fp32", or the type alone."""
    tiles = WARP_TILE_SUPPORTED_COMBINATIONS.get(arch, {})
    return tiles.get(dtype_key) or tiles.get(f"{dtype_key}_{dtype_key}_fp32", [])


def get_lds_limit(arch: str = "gfx942", pipeline: str = "default",
                  double_smem_buffer: bool = False) -> int:
    """The bytes of shared memory that the tiles of A and B may use in a pipeline; 0 where the
    target has none. The older order, (pipeline, arch), is taken, too. An unknown target has the
    least that any has."""
    if arch in (*DOUBLE_BUFFERED_PIPELINES, *SINGLE_BUFFERED_PIPELINES) or (
            pipeline in LDS_CAPACITY_LIMITS):
        arch, pipeline = pipeline, arch
    name = arch.partition(":")[0]
    if name in LDS_CAPACITY_LIMITS and name not in LDS_CAPACITY_LIMITS_BY_ARCH:
        fraction = LDS_FRACTIONS.get(name, {}).get(pipeline, 1.0)
        return int(LDS_CAPACITY_LIMITS[name] * fraction)
    limits = LDS_CAPACITY_LIMITS_BY_ARCH.get(name) or min(
        LDS_CAPACITY_LIMITS_BY_ARCH.values(), key=lambda each: each["default"])
    limit = limits.get(pipeline, limits["default"])
    return min(limit, limits["default"] // 2) if double_smem_buffer else limit


def is_trait_combo_unsupported(pipeline: str, epilogue: str, scheduler: str) -> bool:
    return any((pipeline, each, scheduler) in TRAIT_UNSUPPORTED_COMBINATIONS
               for each in ("*", epilogue))


def get_dtype_info(dtype_a: str, dtype_b: str) -> Dict[str, str]:
    return DTYPE_COMBINATIONS.get(f"{dtype_a}_{dtype_b}", {})


def is_dtype_combo_valid(dtype_a: str, dtype_b: str) -> bool:
    return f"{dtype_a}_{dtype_b}" in DTYPE_COMBINATIONS


def get_valid_dtype_combos(arch: Optional[str] = None) -> List[Tuple[str, str]]:
    """Pairs of A's and B's types; with a target those for which it has a warp tile."""
    pairs: List[Tuple[str, str]] = [(a, b) for a, _, b in (
        key.partition("_") for key in DTYPE_COMBINATIONS)]
    if arch is None:
        return pairs
    known = {key.partition("_")[0] for key in WARP_TILE_SUPPORTED_COMBINATIONS.get(arch, {})}
    return [(a, b) for a, b in pairs if a in known]
