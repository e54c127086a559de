"""The original's features of a kernel on a problem, by name.

An operation is a subclass of FeatureEngine: a function from a problem and a kernel to a dict of
numbers, and the values that its parameters may have.
"""
from __future__ import annotations

import abc
import math
from typing import Any, Callable, Dict, Iterable, List, Optional, Sequence

import _paths  # noqa: F401
import numpy

from tessera import Error

DTYPE_BYTES = {"fp32": 4.0, "tf32": 4.0, "fp16": 2.0, "bf16": 2.0, "fp8": 1.0, "bf8": 1.0,
               "int8": 1.0, "int4": 0.5, "pk_fp4": 0.5}
CODES = {"layout": {"rcr": 0, "rrr": 1, "crr": 2, "ccr": 3},
         "pipeline": {"compv3": 0, "compv4": 1, "compv5": 2, "mem": 3, "preshufflev2": 4,
                      "basic_v1": 5, "compv6": 6},
         "scheduler": {"intrawave": 0, "interwave": 1},
         "epilogue": {"default": 0, "cshuffle": 1}}

HARDWARE = ("num_cus", "simds_per_cu", "total_simds", "shader_engines", "max_clock_mhz",
            "max_waves_per_cu", "wavefront_size", "lds_capacity", "l1_cache_kb", "l2_cache_kb",
            "l3_cache_kb", "num_xcd")


def code_of(field: str, word: Any) -> float:
    """A word's number; numbers are taken as they are."""
    if isinstance(word, (int, float)):
        return float(word)
    try:
        return float(CODES[field][str(word)])
    except KeyError:
        raise Error(f"the features know no {field} '{word}'; they know " +
                    ", ".join(CODES[field]), "not_found") from None


class FeatureEngine(abc.ABC):
    """What a model sees. Subclasses say the names and how they are computed."""

    def __init__(self, hardware: Dict[str, float]) -> None:
        self.hardware = dict(hardware)
        self.hardware["total_simds"] = hardware["num_cus"] * hardware["simds_per_cu"]

    @abc.abstractmethod
    def get_feature_names(self) -> List[str]:
        """In the order of extract()."""

    @abc.abstractmethod
    def compute(self, problem: Dict[str, Any], kernel: Dict[str, Any]) -> Dict[str, float]:
        """All features that the engine knows; they may be more than get_feature_names()."""

    @abc.abstractmethod
    def get_categorical_features(self) -> List[str]:
        """Those whose numbers are codes."""

    @abc.abstractmethod
    def get_parameter_space(self) -> Dict[str, List[Any]]:
        """The values that a search tries for each field of a kernel."""

    @abc.abstractmethod
    def get_constraints(self) -> List[Callable[[Dict[str, Any]], bool]]:
        """What must hold of a kernel; each has a name that says what."""

    def hardware_features(self) -> Dict[str, float]:
        return {f"hw_{name}": float(self.hardware[name]) for name in HARDWARE}

    def extract(self, problem: Dict[str, Any], kernel: Dict[str, Any],
                names: Optional[Sequence[str]] = None) -> Any:
        """One row, in the order of get_feature_names() or of the names given. Raises Error with the
        first name that it cannot compute."""
        known = self.compute(problem, kernel)
        wanted = self.get_feature_names() if names is None else names
        for name in wanted:
            if name not in known:
                raise Error(f"the feature '{name}' cannot be computed", "not_found")
        return numpy.array([known[name] for name in wanted], numpy.float64)

    def extract_batch(self, rows: Any, names: Optional[Sequence[str]] = None) -> Any:
        """A row of features for each dict, or row of a DataFrame, that holds a problem and a
        kernel; the same numbers as extract()."""
        if hasattr(rows, "to_dict"):
            rows = rows.to_dict("records")
        return numpy.stack([self.extract(row, row, names) for row in rows])

    def validate_config(self, config: Dict[str, Any]) -> bool:
        return all(holds(config) for holds in self.get_constraints())

    def project_to_valid(self, config: Dict[str, Any]) -> Dict[str, Any]:
        """The nearest values of the parameter space."""
        projected = dict(config)
        for name, values in self.get_parameter_space().items():
            given = projected.get(name, values[0])
            if given in values:
                continue
            numbers = [value for value in values if isinstance(value, (int, float))]
            if numbers and isinstance(given, (int, float)):
                projected[name] = min(numbers, key=lambda value: abs(value - given))
            else:
                projected[name] = values[0]
        return projected


def _partial(size: float, tile: float) -> float:
    """How full the last tile is."""
    rest = math.fmod(size, tile) if tile > 0 else 0.0
    return rest / tile if rest > 0 else 1.0


PROBLEM = ("M", "N", "K", "split_k", "log2_M", "log2_N", "log2_K", "log2_MNK",
           "arithmetic_intensity", "aspect_ratio_mn", "aspect_ratio_mk", "aspect_ratio_nk",
           "layout")
SHAPES = ("tile_m", "tile_n", "tile_k", "warp_m", "warp_n", "warp_k", "warp_tile_m",
          "warp_tile_n", "warp_tile_k")
KERNEL = (*SHAPES, "pipeline", "scheduler", "epilogue", "pad_m", "pad_n", "pad_k", "persistent",
          "num_warps", "tile_volume", "tile_mn", "lds_usage_estimate", "lds_usage_ratio")
INTERACTION = ("num_tiles_m", "num_tiles_n", "num_tiles_k", "total_output_tiles", "tile_eff_m",
               "tile_eff_n", "tile_eff_k", "overall_tile_efficiency", "cu_utilization")
SMALL = ("ratio_M_to_tile_m", "ratio_N_to_tile_n", "ratio_K_to_tile_k",
         "problem_smaller_than_tile_m", "problem_smaller_than_tile_n",
         "problem_smaller_than_tile_k", "any_dim_too_small")
PADDING = tuple(f"{word}_{axis}" for word in ("needs_padding", "has_padding_when_needed",
                                              "missing_required_padding") for axis in "mnk") + (
    "missing_any_required_padding",)


class GemmUniversalFeatureEngine(FeatureEngine):
    """The 55 features that are documented; extended=True: with the 17 of the later engine."""

    def __init__(self, num_cus: int = 256, lds_capacity: int = 65536, max_clock_mhz: int = 2400,
                 simds_per_cu: int = 4, shader_engines: int = 32, max_waves_per_cu: int = 32,
                 wavefront_size: int = 64, l1_cache_kb: int = 32, l2_cache_kb: int = 4096,
                 l3_cache_kb: int = 262144, num_xcd: int = 8, extended: bool = False) -> None:
        super().__init__({key: value for key, value in locals().items()
                          if key not in ("self", "extended", "__class__")})
        self.extended = extended

    def get_feature_names(self) -> List[str]:
        hardware = tuple(f"hw_{name}" for name in HARDWARE)
        middle = (*INTERACTION, *SMALL, *PADDING) if self.extended else INTERACTION
        return [*PROBLEM, *KERNEL, *middle, *hardware]

    def get_categorical_features(self) -> List[str]:
        return ["layout", "pipeline", "scheduler", "epilogue"]

    def compute(self, problem: Dict[str, Any], kernel: Dict[str, Any]) -> Dict[str, float]:
        sizes = tuple(float(_first(problem, axis, axis.lower())) for axis in "MNK")
        element = DTYPE_BYTES[str(problem.get("dtype", kernel.get("dtype", "fp16")))]
        found = _problem_features(sizes, problem, element)
        found.update(_kernel_features(kernel, element, self.hardware["lds_capacity"]))
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
        capacity = self.hardware["lds_capacity"]

        def tiles_fit_lds(config: Dict[str, Any]) -> bool:
            room = capacity / 2 if config["pipeline"] == "compv4" else capacity
            element = DTYPE_BYTES[str(config.get("dtype", "fp16"))]
            return (config["tile_m"] + config["tile_n"]) * config["tile_k"] * element <= room

        def waves_are_2_to_8(config: Dict[str, Any]) -> bool:
            return config["warp_m"] * config["warp_n"] * config["warp_k"] in (2, 4, 8)

        def warp_tiles_divide_tiles(config: Dict[str, Any]) -> bool:
            return all(config[f"tile_{axis}"] %
                       (config[f"warp_{axis}"] * config[f"warp_tile_{axis}"]) == 0
                       for axis in "mnk")

        def interwave_is_mem(config: Dict[str, Any]) -> bool:
            return config["scheduler"] != "interwave" or config["pipeline"] == "mem"

        return [tiles_fit_lds, waves_are_2_to_8, warp_tiles_divide_tiles, interwave_is_mem]


def _first(row: Dict[str, Any], *names: str) -> Any:
    for name in names:
        if name in row:
            return row[name]
    raise Error(f"a problem has no '{names[0]}'", "not_found")


def _problem_features(sizes: Sequence[float], problem: Dict[str, Any], element: float
                      ) -> Dict[str, float]:
    m, n, k = sizes
    traffic = (m * k + k * n + m * n) * element
    return {"M": m, "N": n, "K": k, "split_k": float(problem.get("split_k", 1)),
            "log2_M": math.log2(m), "log2_N": math.log2(n), "log2_K": math.log2(k),
            "log2_MNK": math.log2(m * n * k), "arithmetic_intensity": 2 * m * n * k / traffic,
            "aspect_ratio_mn": m / n, "aspect_ratio_mk": m / k, "aspect_ratio_nk": n / k,
            "layout": code_of("layout", problem.get("layout", "rcr"))}


def _kernel_features(kernel: Dict[str, Any], element: float, capacity: float) -> Dict[str, float]:
    found = {name: float(_first(kernel, name)) for name in SHAPES}
    for field, usual in (("pipeline", "compv4"), ("scheduler", "intrawave"),
                         ("epilogue", "cshuffle")):
        found[field] = code_of(field, kernel.get(field, usual))
    for field in ("pad_m", "pad_n", "pad_k", "persistent"):
        found[field] = float(bool(kernel.get(field, False)))
    m, n, k = (found[f"tile_{axis}"] for axis in "mnk")
    used = (m * k + n * k) * element
    room = 32768.0 if found["pipeline"] == CODES["pipeline"]["compv4"] else capacity
    found.update({"num_warps": found["warp_m"] * found["warp_n"] * found["warp_k"],
                  "tile_volume": m * n * k, "tile_mn": m * n, "lds_usage_estimate": used,
                  "lds_usage_ratio": used / room})
    return found


def _interaction(sizes: Sequence[float], kernel: Dict[str, float], units: float
                 ) -> Dict[str, float]:
    found: Dict[str, float] = {}
    product, missing, small = 1.0, False, False
    for axis, size in zip("mnk", sizes):
        tile = kernel[f"tile_{axis}"]
        partial = _partial(size, tile)
        needs = math.fmod(size, tile) != 0
        padded = bool(kernel[f"pad_{axis}"])
        found.update({
            f"num_tiles_{axis}": float(math.ceil(size / tile)), f"tile_eff_{axis}": partial,
            f"ratio_{axis.upper()}_to_tile_{axis}": size / tile,
            f"problem_smaller_than_tile_{axis}": float(size < tile),
            f"needs_padding_{axis}": float(needs),
            f"has_padding_when_needed_{axis}": float(needs and padded),
            f"missing_required_padding_{axis}": float(needs and not padded)})
        product *= partial
        missing, small = missing or (needs and not padded), small or size < tile
    tiles = found["num_tiles_m"] * found["num_tiles_n"]
    found.update({"total_output_tiles": tiles, "overall_tile_efficiency": product,
                  "cu_utilization": tiles / units, "any_dim_too_small": float(small),
                  "missing_any_required_padding": float(missing)})
    return found


def engine_for(op_type: str, hardware: Optional[Dict[str, Any]] = None) -> FeatureEngine:
    """The engine of a model's operation; hardware: num_cus, lds_capacity, ... of feature_spec."""
    known = {key: value for key, value in (hardware or {}).items()
             if key in HARDWARE and key != "total_simds"}
    if op_type.startswith("gemm"):
        return GemmUniversalFeatureEngine(**known)
    if op_type.startswith("grouped_conv"):
        from feature_engine_grouped_conv import GroupedConvFeatureEngine
        return GroupedConvFeatureEngine(**known)
    raise Error(f"there are no features of '{op_type}'; there are those of gemm_universal and "
                "grouped_conv", "not_found")


def missing_features(engine: FeatureEngine, names: Iterable[str], problem: Dict[str, Any],
                     kernel: Dict[str, Any]) -> List[str]:
    known = engine.compute(problem, kernel)
    return [name for name in names if name not in known]
