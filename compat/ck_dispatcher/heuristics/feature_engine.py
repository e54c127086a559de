"""The original's features of a kernel on a problem, by name.

An operation is a subclass of FeatureEngine: a function from a problem and a kernel to a dict of
numbers, and the values that its parameters may have.
"""
from __future__ import annotations

import math
from typing import Any, Callable, Dict, List, Optional, Sequence

import _paths  # noqa: F401
import numpy
from tessera import Error

from feature_base import (CODES, DTYPE_BYTES, FeatureEngine, HARDWARE, MachineFeatureEngine,
                          TILES, TOO_SMALL, code_of, first_of, interwave_is_mem, lds_features,
                          tile_features)
from feature_engine_grouped_conv import (GroupedConvDocumentedFeatureEngine,
                                         GroupedConvFeatureEngine,
                                         GroupedConvLatestFeatureEngine)

PROBLEM = ("M", "N", "K", "split_k", "log2_M", "log2_N", "log2_K", "log2_MNK",
           "arithmetic_intensity", "aspect_ratio_mn", "aspect_ratio_mk", "aspect_ratio_nk",
           "layout")
SHAPES = ("tile_m", "tile_n", "tile_k", "warp_m", "warp_n", "warp_k", "warp_tile_m",
          "warp_tile_n", "warp_tile_k")
KERNEL = (*SHAPES, "pipeline", "scheduler", "epilogue", "pad_m", "pad_n", "pad_k", "persistent",
          "num_warps", "tile_volume", "tile_mn", "lds_usage_estimate", "lds_usage_ratio")
SMALL = (*(f"ratio_{axis.upper()}_to_tile_{axis}" for axis in "mnk"), *TOO_SMALL,
         "any_dim_too_small")
PADDING = tuple(f"{word}_{axis}" for word in ("needs_padding", "has_padding_when_needed",
                                              "missing_required_padding") for axis in "mnk") + (
    "missing_any_required_padding",)


PIPELINE_MAP, SCHEDULER_MAP, EPILOGUE_MAP, LAYOUT_MAP = (
    CODES[field] for field in ("pipeline", "scheduler", "epilogue", "layout"))
# What tells the problems of rows apart.
_ASKED = (*"MNKmnk", "split_k", "layout", "dtype")
_HARDWARE = tuple(f"hw_{name}" for name in HARDWARE)


class GemmUniversalFeatureEngine(MachineFeatureEngine):
    """The 72 features of the later engine, which hold the 55 that are documented."""

    def get_feature_names(self) -> List[str]:
        return [*PROBLEM, *KERNEL, *TILES, *SMALL, *PADDING, *_HARDWARE]

    def get_categorical_features(self) -> List[str]:
        return ["layout", "pipeline", "scheduler", "epilogue"]

    def compute(self, problem: Dict[str, Any], kernel: Dict[str, Any]) -> Dict[str, float]:
        return {name: float(value) if numpy.ndim(value) == 0 else float(value[0])
                for name, value in self._columns(problem, [kernel]).items()}

    def _computes_its_own(self) -> bool:
        own = GemmUniversalFeatureEngine
        return (type(self).compute, type(self).extract) != (own.compute, own.extract)

    def extract_kernels(self, problem: Dict[str, Any], kernels: Sequence[Dict[str, Any]],
                        names: Optional[Sequence[str]] = None) -> Any:
        """All at once, unless a subclass computes features of its own."""
        if self._computes_its_own():
            return super().extract_kernels(problem, kernels, names)
        names = self.get_feature_names() if names is None else names
        columns = self._columns(problem, kernels)
        table = numpy.empty((len(kernels), len(names)))
        for place, name in enumerate(names):
            if name not in columns:
                raise Error(f"the feature '{name}' cannot be computed", "not_found")
            table[:, place] = columns[name]
        return table

    def extract_batch(self, rows: Any, names: Optional[Sequence[str]] = None) -> Any:
        """The rows of a problem at once."""
        records = rows.to_dict("records") if hasattr(rows, "to_dict") else rows
        if self._computes_its_own() or not len(records):
            return super().extract_batch(records, names)
        places: Dict[Any, List[int]] = {}
        for place, row in enumerate(records):
            key = tuple(str(row.get(name)) for name in _ASKED)
            places.setdefault(key, []).append(place)
        table = numpy.empty((len(records), len(self.get_feature_names() if names is None
                                               else names)))
        for mine in places.values():
            kernels = [records[place] for place in mine]
            table[mine] = self.extract_kernels(kernels[0], kernels, names)
        return table

    def _columns(self, problem: Dict[str, Any], kernels: Sequence[Dict[str, Any]]
                 ) -> Dict[str, Any]:
        """Each feature: a number where all kernels share it, else an array."""
        sizes = tuple(float(first_of(problem, axis, axis.lower())) for axis in "MNK")
        element = DTYPE_BYTES[str(problem.get("dtype", "fp8"))]
        found = _problem_features(sizes, problem, element)
        found.update(_kernel_features(kernels, element, self.hardware["lds_capacity"]))
        found.update(_interaction(sizes, found, self.hardware["num_cus"]))
        found.update(self.hardware_features())
        return found

    def get_parameter_space(self) -> Dict[str, List[Any]]:
        return {"tile_m": [32, 64, 128, 192, 256], "tile_n": [32, 64, 128, 192, 256],
                "tile_k": [32, 64, 128, 256], "warp_m": [1, 2, 4], "warp_n": [1, 2, 4],
                "warp_k": [1], "warp_tile_m": [4, 16, 32, 64], "warp_tile_n": [4, 16, 32, 64],
                "warp_tile_k": [8, 16, 32, 64, 128], "pipeline": ["compv3", "compv4", "mem"],
                "scheduler": ["intrawave", "interwave"], "epilogue": ["default", "cshuffle"],
                "pad_m": [False, True], "pad_n": [False, True], "pad_k": [False, True],
                "persistent": [False, True]}

    def get_constraints(self) -> List[Callable[[Dict[str, Any]], bool]]:
        def tiles_fit_lds(config: Dict[str, Any]) -> bool:
            element = DTYPE_BYTES[str(config.get("dtype", "fp8"))]
            used = (config["tile_m"] + config["tile_n"]) * config["tile_k"] * element
            return used <= self.room_for(config)

        def waves_are_2_to_8(config: Dict[str, Any]) -> bool:
            return config["warp_m"] * config["warp_n"] * config["warp_k"] in (2, 4, 8)

        def warp_tiles_divide_tiles(config: Dict[str, Any]) -> bool:
            return all(config[f"tile_{axis}"] %
                       (config[f"warp_{axis}"] * config.get(f"warp_tile_{axis}", 1)) == 0
                       for axis in "mnk")

        return [tiles_fit_lds, waves_are_2_to_8, warp_tiles_divide_tiles, interwave_is_mem]


class GemmDocumentedFeatureEngine(GemmUniversalFeatureEngine):
    """The 55 features that are documented."""

    def get_feature_names(self) -> List[str]:
        return [*PROBLEM, *KERNEL, *TILES, *_HARDWARE]


# What stands for a field that a kernel's row does not have.
_USUAL = {"tile_m": 128, "tile_n": 128, "tile_k": 64, "warp_m": 2, "warp_n": 2, "warp_k": 1,
          "warp_tile_m": 32, "warp_tile_n": 32, "warp_tile_k": 16}


def _problem_features(sizes: Sequence[float], problem: Dict[str, Any], element: float
                      ) -> Dict[str, float]:
    m, n, k = sizes
    traffic = (m * k + k * n + m * n) * element
    return {"M": m, "N": n, "K": k, "split_k": float(problem.get("split_k", 1)),
            "log2_M": math.log2(m), "log2_N": math.log2(n), "log2_K": math.log2(k),
            "log2_MNK": math.log2(m * n * k), "arithmetic_intensity": 2 * m * n * k / traffic,
            "aspect_ratio_mn": m / n, "aspect_ratio_mk": m / k, "aspect_ratio_nk": n / k,
            "layout": code_of("layout", problem.get("layout", "rcr"))}


def _codes(field: str, words: Sequence[Any]) -> Any:
    known = {word: code_of(field, word) for word in set(words)}
    return numpy.array([known[word] for word in words])


def _kernel_features(kernels: Sequence[Dict[str, Any]], element: float, capacity: float
                     ) -> Dict[str, Any]:
    found: Dict[str, Any] = {}
    for name in SHAPES:
        usual = _USUAL[name]
        found[name] = numpy.array([float(kernel.get(name, usual)) for kernel in kernels])
    for field, word in (("pipeline", "compv4"), ("scheduler", "intrawave"),
                        ("epilogue", "cshuffle")):
        found[field] = _codes(field, [kernel.get(field, word) for kernel in kernels])
    for field in ("pad_m", "pad_n", "pad_k", "persistent"):
        found[field] = numpy.array([float(bool(kernel.get(field, False))) for kernel in kernels])
    found["num_warps"] = found["warp_m"] * found["warp_n"] * found["warp_k"]
    found.update(lds_features([found[f"tile_{axis}"] for axis in "mnk"], element,
                              found["pipeline"] == CODES["pipeline"]["compv4"], capacity))
    return found


def _interaction(sizes: Sequence[float], kernels: Dict[str, Any], units: float
                 ) -> Dict[str, Any]:
    tiles = [kernels[f"tile_{axis}"] for axis in "mnk"]
    found = tile_features(sizes, tiles, units)
    for axis, size, tile in zip("mnk", sizes, tiles):
        needs = (numpy.fmod(size, tile) != 0) * 1.0
        padded = kernels[f"pad_{axis}"]
        found.update({
            f"ratio_{axis.upper()}_to_tile_{axis}": size / tile,
            f"needs_padding_{axis}": needs,
            f"has_padding_when_needed_{axis}": needs * padded,
            f"missing_required_padding_{axis}": needs * (1.0 - padded)})
    for name, each in (("any_dim_too_small", "problem_smaller_than_tile"),
                       ("missing_any_required_padding", "missing_required_padding")):
        found[name] = numpy.maximum.reduce([found[f"{each}_{axis}"] for axis in "mnk"])
    return found


# The engine of each operation, by the name that feature_spec.json has.
OPERATION_ENGINES = {"gemm_universal": "GemmUniversalFeatureEngine",
                     "gemm_streamk": "GemmUniversalFeatureEngine",
                     "gemm_universal_vec": "GemmUniversalVecFeatureEngine",
                     "grouped_conv": "GroupedConvFeatureEngine"}


def feature_engine_class(name: str) -> Any:
    """The class of a name. Raises ValueError for one that is unknown."""
    known = {each.__name__: each for each in (
        GemmUniversalFeatureEngine, GemmDocumentedFeatureEngine, GroupedConvFeatureEngine,
        GroupedConvDocumentedFeatureEngine, GroupedConvLatestFeatureEngine)}
    if name == "GemmUniversalVecFeatureEngine":
        from feature_engine_vec import GemmUniversalVecFeatureEngine
        return GemmUniversalVecFeatureEngine
    if name not in known:
        raise ValueError(f"there is no feature engine '{name}'; there are {', '.join(known)} and "
                         "GemmUniversalVecFeatureEngine")
    return known[name]


def engine_for(op_type: str, hardware: Optional[Dict[str, Any]] = None) -> FeatureEngine:
    """The engine of a model's operation; hardware: num_cus, lds_capacity, ... of feature_spec."""
    known = {key: value for key, value in (hardware or {}).items()
             if key in HARDWARE and key != "total_simds"}
    name = OPERATION_ENGINES.get(op_type)
    if name is None and op_type.startswith("grouped_conv"):
        name = "GroupedConvFeatureEngine"
    if name is None and op_type.startswith("gemm"):
        name = "GemmUniversalFeatureEngine"
    if name is not None:
        return feature_engine_class(name)(**known)  # type: ignore[no-any-return]
    raise Error(f"there are no features of '{op_type}'; there are those of gemm_universal and "
                "grouped_conv", "not_found")
