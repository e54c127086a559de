"""Declared kernels as dicts, with wildcards: whether one is legal by the tables of a target, and
what it expands to. -1 stands for any wave or warp size, "*" for any pipeline or scheduler."""
from __future__ import annotations

import itertools
from typing import Any, Dict, List, Tuple

ANY_INT, ANY = -1, "*"
_AXES = "mnk"
USUAL = {"wave_m": 2, "wave_n": 2, "wave_k": 1, "warp_m": 32, "warp_n": 32, "warp_k": 16,
         "pipeline": "compv4", "scheduler": "intrawave", "epilogue": "cshuffle"}
PIPELINES = ("mem", "compv3", "compv4", "compv5", "compv6", "basic_v1", "basic_async_v1",
             "comp_async", "preshufflev2")


def _read(config: Dict[str, Any], name: str) -> Any:
    return config.get(name, USUAL[name])


def _triple(config: Dict[str, Any], prefix: str) -> List[int]:
    return [_read(config, f"{prefix}_{axis}") for axis in _AXES]


def _is_open(config: Dict[str, Any], prefix: str) -> bool:
    return ANY_INT in _triple(config, prefix)


def is_wildcard(config: Dict[str, Any]) -> bool:
    return (_is_open(config, "wave") or _is_open(config, "warp") or
            ANY in (_read(config, "pipeline"), _read(config, "scheduler")))


def validate(config: Dict[str, Any], arch: str, dtype: str) -> Tuple[bool, str]:
    """(whether the tables of the target take it, the sentences of those that do not). What has
    wildcards is taken, since each kernel that it expands to is asked."""
    import dispatcher_common as common
    known = common.get_arch_filter_data()["supported_archs"]
    if arch not in known:
        return False, f"unsupported target '{arch}'; there are {', '.join(known)}"
    if is_wildcard(config):
        return True, ""
    pipeline = _read(config, "pipeline")
    asked = [(pipeline in PIPELINES,
              f"trait: pipeline must be one of {', '.join(PIPELINES)}, got '{pipeline}'"),
             common.validate_wave_config(_triple(config, "wave"), arch),
             common.validate_warp_tile_config(_triple(config, "warp"), arch, dtype),
             common.validate_trait_combo(pipeline, _read(config, "epilogue"),
                                         _read(config, "scheduler"))]
    errors = [sentence for holds, sentence in asked if not holds]
    return not errors, "; ".join(errors)


def expand(config: Dict[str, Any], arch: str, dtype: str) -> List[Dict[str, Any]]:
    """Every legal kernel of the target that a declaration stands for; one without wildcards stands
    for itself."""
    if not is_wildcard(config):
        return [dict(config)]
    import dispatcher_common as common
    data = common.get_arch_filter_data()
    if arch not in data["supported_archs"]:
        return []
    waves = [_triple(config, "wave")]
    if _is_open(config, "wave"):
        waves = data["warp_combos"][arch]
    warps = [_triple(config, "warp")]
    if _is_open(config, "warp"):
        warps = common.warp_tiles_of(arch, dtype)
    pipelines = ("compv3", "compv4", "mem") if _read(config, "pipeline") == ANY else (
        _read(config, "pipeline"),)
    schedulers = ("intrawave", "interwave") if _read(config, "scheduler") == ANY else (
        _read(config, "scheduler"),)
    made = []
    for wave, warp, pipeline, scheduler in itertools.product(waves, warps, pipelines, schedulers):
        one = {**config, "pipeline": pipeline, "scheduler": scheduler}
        one.update(zip((f"wave_{axis}" for axis in _AXES), wave))
        one.update(zip((f"warp_{axis}" for axis in _AXES), warp))
        if _divides(one) and validate(one, arch, dtype)[0]:
            made.append(one)
    return made


def _divides(config: Dict[str, Any]) -> bool:
    """Whether the tile, where it is given, is whole warp tiles of all waves."""
    tile = [config.get(f"tile_{axis}", ANY_INT) for axis in _AXES]
    if "tile_c" in config or ANY_INT in tile:  # old declarations of convolutions name channels
        return True
    return all(size % (wave * warp) == 0 for size, wave, warp in zip(
        tile, _triple(config, "wave"), _triple(config, "warp")))
