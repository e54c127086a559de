"""Configurations of convolutions as dicts: the original's two parts, and the flat fields.

{"tile_config": {"tile_m", ..., "wave_m", ..., "warp_m", ...}, "trait_config": {"pipeline",
"epilogue", "scheduler", ...}, "variant", "ndim_spatial", "arch", "layout", "dtype"}. A value is a
number or word, or a list that begins with it. warp_* are one instruction's tile.
"""
from __future__ import annotations

import copy
from typing import Any, Dict, List

from . import targets

PARTS = ("tile_config", "trait_config")
_AXES = "mnk"
# Old configurations say the output's and the reduced channels.
_OLD = {"tile_k": "tile_n", "tile_c": "tile_k"}
_TRAIT = ("pipeline", "epilogue", "scheduler", "pad_m", "pad_n", "pad_k", "double_smem_buffer",
          "num_groups_to_merge", "split_image", "explicit_gemm", "two_stage")


def is_nested(config: Any) -> bool:
    return isinstance(config, dict) and any(part in config for part in PARTS)


def _value(given: Any) -> Any:
    if isinstance(given, (list, tuple)):
        if not given:
            raise TypeError("a field's list of values is empty")
        return given[0]
    return given


def _field(key: str, part: Dict[str, Any]) -> str:
    """The flat name of a key of tile_config."""
    if "tile_c" in part and key in _OLD:
        return _OLD[key]
    return key.replace("warp_", "warp_tile_") if key.startswith("warp_") and (
        not key.startswith("warp_tile_")) else key


def flat(config: Dict[str, Any]) -> Dict[str, Any]:
    """The fields of GroupedConvKernelConfig."""
    if not is_nested(config):
        return dict(config)
    found = {key: value for key, value in config.items() if key not in PARTS}
    tile = config.get("tile_config", {})
    found.update({_field(key, tile): _value(value) for key, value in tile.items()})
    found.update({key: _value(value) for key, value in config.get("trait_config", {}).items()})
    return found


def to_dict(config: Any) -> Dict[str, Any]:
    names = {"tile": "tile", "wave": "wave", "warp": "warp_tile"}
    tile = {f"{key}_{axis}": [getattr(config, f"{name}_{axis}")]
            for key, name in names.items() for axis in _AXES}
    trait = {name: [getattr(config, name)] for name in _TRAIT}
    return {"tile_config": tile, "trait_config": trait,
            **{name: getattr(config, name) for name in (
                "variant", "ndim_spatial", "arch", "layout", "dtype", "vector_size_a",
                "vector_size_b", "vector_size_c", "block_per_cu", "num_wave_groups")}}


def missing(config: Any) -> List[str]:
    """A sentence for each part that a nested configuration lacks, and for one that is neither
    nested nor has a field of a kernel."""
    if not isinstance(config, dict):
        return []
    lacks = [part for part in PARTS if part not in config]
    if len(lacks) == 1 or set(config) <= {"arch", "layout", "dtype", "ndim_spatial"}:
        return [f"the configuration has no '{part}'" for part in lacks]
    return []


def copy_of(config: Dict[str, Any]) -> Dict[str, Any]:
    return copy.deepcopy(config)


def changed(config: Dict[str, Any], fields: Dict[str, Any]) -> Dict[str, Any]:
    """A copy with other values, in the form that the configuration has."""
    made = copy_of(config)
    if not is_nested(made):
        made.update(fields)
        return made
    for part in PARTS:
        for key, value in made[part].items():
            field = _field(key, made[part]) if part == "tile_config" else key
            if field in fields:
                made[part][key] = ([fields[field]] if isinstance(value, (list, tuple))
                                   else fields[field])
    return made


def _triple(config: Any, prefix: str) -> List[int]:
    return [getattr(config, f"{prefix}_{axis}") for axis in _AXES]


def _has_tables(config: Any) -> bool:
    """Whether the target is one of the original's, so that its tables say what there is."""
    row = targets.dispatcher_of(config.target().word).target
    return "conv" in row.get("cktile_spaces", {}) or "gemm" in row.get("cktile_spaces", {})


def table_errors(config: Any) -> List[str]:
    """What the tables of an original's target say against a configuration."""
    if not _has_tables(config):
        return []
    import dispatcher_common as common
    arch = config.target().name
    asked = (common.validate_wave_config(_triple(config, "wave"), arch),
             common.validate_warp_tile_config(_triple(config, "warp_tile"), arch, config.dtype),
             common.validate_trait_combo(config.pipeline, config.epilogue, config.scheduler))
    return [sentence for holds, sentence in asked if not holds]


def fixes(config: Any) -> Dict[str, Any]:
    """The fields whose change makes the tables take a configuration."""
    if not _has_tables(config):
        return {}
    import dispatcher_common as common
    arch = config.target().name
    found = dict(zip((f"wave_{axis}" for axis in _AXES),
                     common.auto_correct_wave(_triple(config, "wave"), arch)))
    tiles = common.warp_tiles_of(arch, config.dtype)
    wanted = _triple(config, "warp_tile")
    if tiles:
        nearest = wanted if wanted in tiles else min(
            tiles, key=lambda row: sum(abs(a - b) for a, b in zip(row, wanted)))
        found.update(zip((f"warp_tile_{axis}" for axis in _AXES), nearest))
    found["scheduler"] = common.auto_correct_trait(config.pipeline, config.scheduler)[1]
    return {name: value for name, value in found.items() if getattr(config, name) != value}
