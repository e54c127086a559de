"""The limits of targets under the original's names. They are read from Tessera's rows, so that
nothing has to be generated anew when a row changes; generate_arch_specs.py writes them out."""
from __future__ import annotations

from typing import Any, Dict, List, Optional, Set, Tuple

import _paths  # noqa: F401
from tessera_ck import gemm as _gemm
from tessera_ck import targets as _targets

from codegen_common import valid_trait_configs

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
            for dtype, words in _space(arch).get("warp_tiles", {}).items()}


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
# Bytes of a unit; gfx1250, which Tessera has no row for, as the original documents it.
LDS_TOTAL_CAPACITY_BY_ARCH = {"gfx1250": 327680, **{
    arch: size for arch, size in LDS_CAPACITY_LIMITS.items() if arch.startswith("gfx")}}
TRAIT_UNSUPPORTED_COMBINATIONS = _traits()


def get_supported_archs() -> List[str]:
    return list(_ARCHS)


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


def get_lds_limit(pipeline: str, arch: str = "gfx942") -> int:
    """The bytes of shared memory that a pipeline may use; 0 where the target has none."""
    row = _targets.dispatcher_of(arch).target
    fraction = row.get("pipeline_limits", {}).get(pipeline, {}).get("shared_memory_fraction", 1.0)
    return int(row.get("shared_memory_bytes", 0) * fraction)


def is_trait_combo_unsupported(pipeline: str, epilogue: str, scheduler: str) -> bool:
    return (pipeline, "*", scheduler) in TRAIT_UNSUPPORTED_COMBINATIONS


def get_dtype_info(dtype_a: str, dtype_b: str) -> Dict[str, str]:
    return DTYPE_COMBINATIONS.get(f"{dtype_a}_{dtype_b}", {})


def is_dtype_combo_valid(dtype_a: str, dtype_b: str) -> bool:
    return f"{dtype_a}_{dtype_b}" in DTYPE_COMBINATIONS


def get_valid_dtype_combos(arch: Optional[str] = None) -> List[Tuple[str, str]]:
    """Pairs of A's and B's types; with a target those for which it has a warp tile."""
    pairs = [tuple(key.split("_")) for key in DTYPE_COMBINATIONS]
    if arch is None:
        return pairs
    known = _space(arch).get("warp_tiles", {})
    return [(a, b) for a, b in pairs if a in known]
