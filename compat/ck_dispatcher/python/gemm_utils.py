"""GEMM of sweeps: configurations by their generator's words, problems, runners of built files."""
from __future__ import annotations

import dataclasses
import itertools
import json
import pathlib
from typing import Any, Dict, List, Optional, Sequence

import numpy

import tessera
from tessera import Error
from tessera_ck import dtypes as _dtypes
from tessera_ck import fields as _fields
from tessera_ck import gemm as _gemm
from tessera_ck import libraries as _libraries
from tessera_ck import targets as _targets

from ctypes_utils import DispatcherLib as GemmDispatcherLib
from ctypes_utils import GemmResult, GemmRunner, KernelConfig
from ctypes_utils import setup_multiple_gemm_dispatchers as _setup

__all__ = ["GemmDispatcherLib", "GemmKernelConfig", "GemmProblem", "GemmResult", "GpuGemmRunner",
           "expand_sweep", "normalize_gfx_arch", "numpy_dtype_for", "output_dtype_for",
           "setup_multiple_gemm_dispatchers"]


def normalize_gfx_arch(arch: Optional[str]) -> str:
    """The row's name: "gfx942:sramecc+" is gfx942. Raises Error for an unknown one."""
    return _targets.resolve(arch).name


def numpy_dtype_for(dtype: str) -> Any:
    """NumPy's type for a word; bf16, fp8 and bf8 need the package ml_dtypes."""
    return _dtypes.numpy_dtype(dtype)


def output_dtype_for(dtype: str) -> str:
    """The usual type of C: fp16 for fp8 and bf8, int32 for int8, else the operands' own."""
    return _gemm.default_output(dtype)


@dataclasses.dataclass(frozen=True)
class GemmProblem:
    M: int
    N: int
    K: int

    @property
    def num_ops(self) -> int:
        return 2 * self.M * self.N * self.K


# The fields of a generator's configuration, by the parts in which it lies.
_TILE = {"tile": (128, 128, 32), "warp": (2, 2, 1), "warp_tile": (32, 32, 16)}
_TRAIT = {"pipeline": "compv4", "scheduler": "intrawave", "epilogue": "cshuffle", "pad_m": True,
          "pad_n": True, "pad_k": True, "persistent": False}


@_fields.table(
    ("dtype", "fp16"), ("layout", "rcr"),
    *((" ".join(f"{prefix}_{axis}" for axis in "mnk"), sizes) for prefix, sizes in _TILE.items()),
    *_TRAIT.items(), ("variant", "standard"), ("elementwise_op", "MultiDAdd"),
    ("num_d_tensors", 1), ("gfx_arch", None), frozen=True)
class GemmKernelConfig:
    """As the generator names the fields: warp_* are waves, warp_tile_* one instruction's tile."""

    @property
    def name(self) -> str:
        """Lossless: Tessera's name of the one kernel that the fields describe."""
        return _gemm.named_kernel(self.to_ctypes_config(), _targets.resolve(self.gfx_arch))

    def to_dict(self) -> Dict[str, Any]:
        return dataclasses.asdict(self)

    def to_codegen_json(self) -> str:
        """What unified_gemm_codegen.py takes as --tile-config-json."""
        tile = {f"{prefix}_{axis}": [getattr(self, f"{prefix}_{axis}")]
                for prefix in _TILE for axis in "mnk"}
        trait = {key: [getattr(self, key)] for key in _TRAIT}
        whole: Dict[str, Any] = {"tile_config": tile, "trait_config": trait}
        if self.variant == "multi_d":
            whole["multi_d_config"] = {"elementwise_ops": [self.elementwise_op],
                                       "num_d_tensors": [self.num_d_tensors]}
        return json.dumps(whole)

    def to_ctypes_config(self) -> KernelConfig:
        given = dataclasses.asdict(self)
        dtype, layout = given.pop("dtype"), given.pop("layout")
        for theirs, ours in (("warp", "wave"), ("warp_tile", "warp")):
            given.update({f"{ours}_{axis}": given.pop(f"{theirs}_{axis}") for axis in "mnk"})
        given.update(zip(("layout_a", "layout_b", "layout_c"),
                         ({"r": "row", "c": "col"}[letter] for letter in layout[:3])))
        return KernelConfig(dtype_a=dtype, dtype_b=dtype, dtype_c=output_dtype_for(dtype),
                            dtype_acc="int32" if dtype == "int8" else "fp32", **given)


def expand_sweep(sweep: Dict[str, Any], dtype: str = "fp16", layout: str = "rcr",
                 variant: str = "standard", gfx_arch: Optional[str] = None
                 ) -> List[GemmKernelConfig]:
    """All legal combinations of a generator's configuration: {"tile_config": {"tile_m": [...],
    ...}, "trait_config": {...}, "multi_d_config": {...}}. What is left out has its default."""
    ranges: Dict[str, Sequence[Any]] = {}
    for part in ("tile_config", "trait_config"):
        for key, values in sweep.get(part, {}).items():
            ranges[key] = values.get("values", [values]) if isinstance(values, dict) else (
                values if isinstance(values, list) else [values])
    if variant == "multi_d":
        extra = sweep.get("multi_d_config", {})
        ops = extra.get("elementwise_ops", ["MultiDAdd"])
        count = extra.get("num_d_tensors", [1])
        ranges["elementwise_op"] = ops if isinstance(ops, list) else [ops]
        ranges["num_d_tensors"] = count if isinstance(count, list) else [count]
    known = {field.name for field in dataclasses.fields(GemmKernelConfig)}
    for key in ranges:
        if key not in known:
            raise Error(f"a sweep has no field '{key}'; there are {', '.join(sorted(known))}",
                        "not_found")
    target = _targets.resolve(gfx_arch)
    found = []
    for values in itertools.product(*ranges.values()):
        config = GemmKernelConfig(dtype=dtype, layout=layout, variant=variant, gfx_arch=gfx_arch,
                                  **dict(zip(ranges, values)))
        if _gemm.wish_of(config.to_ctypes_config(), target).kernels:
            found.append(config)
    return found


def setup_multiple_gemm_dispatchers(configs: Sequence[Any], output_dir: Optional[Any] = None,
                                    verbose: bool = True, max_workers: Optional[int] = None
                                    ) -> List[Optional[pathlib.Path]]:
    """Builds all configurations' kernels and returns a file for each, None for one without."""
    plain = [config.to_ctypes_config() if isinstance(config, GemmKernelConfig) else config
             for config in configs]
    return _setup(plain, output_dir, verbose, max_workers)


class GpuGemmRunner(_libraries.LateRunner):
    _make_library, _make_config = GemmDispatcherLib, KernelConfig

    def __init__(self, lib_path: Any) -> None:
        super().__init__(lib_path)

    @property
    def kernel_name(self) -> str:
        return self.lib.get_kernel_name()

    def run(self, A: Any, B: Any, problem: Optional[GemmProblem] = None, D: Sequence[Any] = (),
            verify: bool = False) -> GemmResult:
        if problem is not None and (numpy.shape(A), numpy.shape(B)) != (
                (problem.M, problem.K), (problem.K, problem.N)):
            raise Error(f"A and B have the shapes {numpy.shape(A)} and {numpy.shape(B)}, but the "
                        f"problem asks for {(problem.M, problem.K)} and {(problem.K, problem.N)}")
        return GemmRunner(self.lib).run(A, B, D=D, verify=verify)
