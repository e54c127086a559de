"""What the engines of all operations share: the interface, the codes of words, tiles."""
from __future__ import annotations

import abc
import dataclasses
import inspect
import math
from typing import Any, Callable, Dict, List, Optional, Sequence

import _paths  # noqa: F401
import numpy

from tessera import Error
from tessera_ck import fields as _fields

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


# What tile_features() says, in the order in which both engines have it; TOO_SMALL lies elsewhere.
TILES = ("num_tiles_m", "num_tiles_n", "num_tiles_k", "total_output_tiles", "tile_eff_m",
         "tile_eff_n", "tile_eff_k", "overall_tile_efficiency", "cu_utilization")
TOO_SMALL = tuple(f"problem_smaller_than_tile_{axis}" for axis in "mnk")


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
    """What a model sees. Subclasses say the names and how they are computed.

    ENCODING_VERSION: a model is evaluated by an engine of the version with which it was trained.
    """

    ENCODING_VERSION = 0

    def __init__(self, hardware: Dict[str, float]) -> None:
        self.hardware = dict(hardware)
        self.hardware["total_simds"] = hardware["num_cus"] * hardware["simds_per_cu"]

    @property
    def _hw(self) -> Dict[str, float]:
        """The original's name of the machine's numbers."""
        return self.hardware

    @property
    def hardware_config(self) -> Dict[str, float]:
        """The machine's numbers that the class takes, without those that follow from them. Raises
        TypeError where the class hides what it takes, or holds a number that it does not take."""
        taken = inspect.signature(type(self).__init__).parameters.values()
        if any(each.kind in (each.VAR_KEYWORD, each.VAR_POSITIONAL) for each in taken):
            raise TypeError(f"what {type(self).__name__} takes cannot be resolved from the "
                            "signature of its __init__")
        names = {each.name for each in taken} - {"self"}
        held = {name: value for name, value in self.hardware.items() if name != "total_simds"}
        for name in held:
            if name not in names:
                raise TypeError(f"{type(self).__name__} holds '{name}', which its __init__ does "
                                "not accept")
        return held

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

    def extract_kernels(self, problem: Dict[str, Any], kernels: Sequence[Dict[str, Any]],
                        names: Optional[Sequence[str]] = None) -> Any:
        """A row for each kernel on one problem; the same numbers as extract()."""
        return numpy.stack([self.extract(problem, kernel, names) for kernel in kernels])

    def extract_batch(self, rows: Any, names: Optional[Sequence[str]] = None) -> Any:
        """A row of features for each dict, or row of a DataFrame, that holds a problem and a
        kernel; the same numbers as extract()."""
        if hasattr(rows, "to_dict"):
            rows = rows.to_dict("records")
        if not len(rows):
            return numpy.zeros((0, len(self.get_feature_names() if names is None else names)))
        return numpy.stack([self.extract(row, row, names) for row in rows])

    def validate_config(self, config: Dict[str, Any]) -> bool:
        """Whether every field has one of the space's values, and the constraints hold. What does
        not say its tile is no kernel."""
        space = self.get_parameter_space()
        if any(config[name] not in values for name, values in space.items() if name in config):
            return False
        return all(_holds(constraint, config) for constraint in self.get_constraints())

    def project_to_valid(self, config: Dict[str, Any]) -> Dict[str, Any]:
        """The nearest values of the parameter space."""
        projected = dict(config)
        for name, values in self.get_parameter_space().items():
            if name not in projected or projected[name] in values:
                continue
            given = projected[name]
            numbers = [value for value in values if isinstance(value, (int, float))]
            if numbers and isinstance(given, (int, float)):
                projected[name] = min(numbers, key=lambda value: abs(value - given))
            else:
                projected[name] = values[0]
        return projected


@_fields.table(
    ("num_cus lds_capacity max_clock_mhz", (256, 65536, 2400)),
    ("simds_per_cu shader_engines max_waves_per_cu wavefront_size", (4, 32, 32, 64)),
    ("l1_cache_kb l2_cache_kb l3_cache_kb num_xcd", (32, 4096, 262144, 8)), eq=False)
class MachineFeatureEngine(FeatureEngine):
    """An engine whose machine is given by its numbers."""

    def __post_init__(self) -> None:
        FeatureEngine.__init__(self, {field.name: getattr(self, field.name) for field in
                                      dataclasses.fields(MachineFeatureEngine)})

    def room_for(self, config: Dict[str, Any]) -> float:
        """The bytes that a block's tiles may take; the original gives compv4 32 KB."""
        room = self.hardware["lds_capacity"]
        return min(room, 32768) if config.get("pipeline") == "compv4" else room


def _holds(constraint: Callable[[Dict[str, Any]], bool], config: Dict[str, Any]) -> bool:
    try:
        return constraint(config)
    except KeyError:
        return False


def interwave_is_mem(config: Dict[str, Any]) -> bool:
    return config.get("scheduler") != "interwave" or config.get("pipeline") == "mem"


def first_of(row: Dict[str, Any], *names: str) -> Any:
    for name in names:
        if name in row:
            return row[name]
    raise Error(f"a problem has no '{names[0]}'", "not_found")


def last_tile(size: float, tile: Any) -> Any:
    """How full the last tile is."""
    rest = numpy.fmod(size, tile)
    return numpy.where(rest > 0, rest / tile, 1.0)


def tile_features(sizes: Sequence[float], tiles: Sequence[Any], units: float) -> Dict[str, Any]:
    """How many tiles of (m, n, k) there are, how full the last ones are, and what shares of the
    machine's units they fill. Tiles are numbers, or arrays of many kernels'."""
    found: Dict[str, Any] = {}
    product = 1.0
    for axis, size, tile in zip("mnk", sizes, tiles):
        full = last_tile(size, tile)
        found.update({f"num_tiles_{axis}": numpy.ceil(size / tile), f"tile_eff_{axis}": full,
                      f"problem_smaller_than_tile_{axis}": numpy.less(size, tile) * 1.0})
        product = product * full
    count = found["num_tiles_m"] * found["num_tiles_n"]
    found.update({"total_output_tiles": count, "overall_tile_efficiency": product,
                  "cu_utilization": count / units})
    return found


def lds_features(tiles: Sequence[Any], element: float, is_compv4: Any, capacity: float
                 ) -> Dict[str, Any]:
    """What the tiles of A and B take of a unit's memory; of one kernel, or arrays of many's."""
    m, n, k = tiles
    used = (m * k + n * k) * element
    return {"tile_volume": m * n * k, "tile_mn": m * n, "lds_usage_estimate": used,
            "lds_usage_ratio": used / numpy.where(is_compv4, 32768.0, capacity)}
