"""GEMM of sweeps: configurations by their generator's words, problems, runners of built files."""
from __future__ import annotations

import dataclasses
import functools
import importlib
import itertools
import json
import pathlib
from typing import Any, Dict, List, Optional, Sequence

import numpy

import tessera
from tessera import Error
from tessera_ck import dtypes as _dtypes
from tessera_ck import fields as _fields
from tessera_ck import float_bits as _bits
from tessera_ck import gemm as _gemm
from tessera_ck import libraries as _libraries
from tessera_ck import targets as _targets

from ctypes_utils import DispatcherLib as GemmDispatcherLib
from ctypes_utils import (STATUS_NO_KERNEL, STATUS_OK, STATUS_UNSUPPORTED, GemmResult, GemmRunner,
                          KernelConfig)
from ctypes_utils import setup_multiple_gemm_dispatchers as _setup

__all__ = ["STATUS_NO_KERNEL", "STATUS_OK", "STATUS_UNSUPPORTED", "GemmDispatcherLib",
           "GemmKernelConfig", "GemmProblem", "GemmResult", "GpuGemmRunner",
           "GpuGroupedGemmRunner", "GpuMultiDGemmRunner", "GroupedGemmProblem",
           "GroupedGemmResult", "MultiDGemmResult", "expand_sweep", "normalize_gfx_arch",
           "numpy_dtype_for", "output_dtype_for", "setup_multiple_gemm_dispatchers"]

# The original's, of which Tessera has rows.
_SUPPORTED_ARCHES = tuple(each for each in ("gfx90a", "gfx942", "gfx950")
                          if each in _targets.rows())


def normalize_gfx_arch(arch: Optional[str]) -> str:
    """"gfx942:sramecc+" is gfx942; None is the target that is used here; what is no target stays as
    it is."""
    return _targets.resolve(None).name if arch is None else arch.partition(":")[0]


def _resolve_arch(arch: Optional[str] = None) -> str:
    """The plain name. Raises ValueError for a name that is no target."""
    return _validate_arch(arch if arch is not None else _targets.resolve(None).name)


def _validate_arch(arch: str) -> str:
    name = normalize_gfx_arch(arch)
    if name not in _SUPPORTED_ARCHES and (name.startswith("gfx") or name not in _targets.rows()):
        raise ValueError(f"the GEMM bridge has no target '{name}' (from '{arch}'); it has " +
                         ", ".join(_SUPPORTED_ARCHES))
    return name


def numpy_dtype_for(dtype: str, use_ocp: Optional[bool] = None) -> Any:
    """NumPy's type for a word; bf16, fp8 and bf8 need the package ml_dtypes. use_ocp=False: the
    form of fp8 and bf8 that gfx942 reads; else that of OCP, in which Tessera takes its arrays."""
    if use_ocp is False and dtype in _bits.PARTS:
        name = {"fp8": "float8_e4m3fnuz", "bf8": "float8_e5m2fnuz"}[dtype]
        _dtypes.numpy_dtype(dtype)  # says what is missing
        return numpy.dtype(getattr(importlib.import_module("ml_dtypes"), name))
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

    @property
    def dtype_a(self) -> str:
        return str(self.dtype)

    dtype_b = dtype_a

    @property
    def dtype_c(self) -> str:
        return output_dtype_for(self.dtype)

    @property
    def dtype_acc(self) -> str:
        return "int32" if self.dtype == "int8" else "fp32"

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
        return KernelConfig(dtype_a=dtype, dtype_b=dtype, dtype_c=self.dtype_c,
                            dtype_acc=self.dtype_acc, **given)


def _by_operand(made: Any) -> Any:
    """GemmKernelConfig also by dtype_a, dtype_b, dtype_c, dtype_acc, layout_a, layout_b, layout_c,
    as far as they say one type and one layout."""
    plain = made.__init__

    @functools.wraps(plain)
    def init(self: Any, *args: Any, **given: Any) -> None:
        types = {name: given.pop(name) for name in ("dtype_a", "dtype_b", "dtype_c", "dtype_acc")
                 if name in given}
        layouts = {name: given.pop(name) for name in ("layout_a", "layout_b", "layout_c")
                   if name in given}
        if layouts:
            given["layout"] = "".join(layouts.get(f"layout_{each}", usual)[0]
                                      for each, usual in zip("abc", ("row", "col", "row")))
        given.setdefault("dtype", types.get("dtype_a", types.get("dtype_b", "fp16")))
        plain(self, *args, **given)
        for name, value in types.items():
            if value != getattr(self, name):
                raise Error(f"{name} must be {getattr(self, name)} where the type is "
                            f"{self.dtype}, got {value}")
    made.__init__ = init
    return made


_by_operand(GemmKernelConfig)


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


# ---- Several products, and products with further operands ----------------------------------------

@dataclasses.dataclass
class MultiDGemmResult(GemmResult):
    """A product to which operands D were added or multiplied."""


@dataclasses.dataclass(frozen=True)
class GroupedGemmProblem:
    """groups: (M, N, K) of each product."""

    groups: List[Any]

    @property
    def group_count(self) -> int:
        return len(self.groups)

    @property
    def flops(self) -> float:
        return sum(2.0 * m * n * k for m, n, k in self.groups)

    def to_dict(self) -> Dict[str, Any]:
        return {"groups": [list(group) for group in self.groups]}

    @classmethod
    def from_dict(cls, data: Dict[str, Any]) -> "GroupedGemmProblem":
        return cls([tuple(group) for group in data["groups"]])


@dataclasses.dataclass
class GroupedGemmResult:
    """time_ms: of all products. status: the first that is not 0."""

    outputs: List[Any]
    time_ms: float
    status: int
    tflops: float
    kernel_name: str
    error: str = ""

    success = GemmResult.success
    unsupported = GemmResult.unsupported


class GpuMultiDGemmRunner(GpuGemmRunner):
    def run(self, A: Any, B: Any, Ds: Sequence[Any] = (),  # type: ignore[override]
            problem: Optional[GemmProblem] = None, verify: bool = False) -> MultiDGemmResult:
        """Ds: an array, or as many as the configuration says, each of the result's shape."""
        done = super().run(A, B, problem, [Ds] if hasattr(Ds, "shape") else list(Ds), verify)
        return MultiDGemmResult(output=done.output, time_ms=done.time_ms, status=done.status,
                                tflops=done.tflops, kernel_name=done.kernel_name,
                                error=done.error, verified=done.verified, target=done.target)


class GpuGroupedGemmRunner(GpuGemmRunner):
    """Products of unequal sizes by one kernel. Each is a launch of its own."""

    def run(self, As: Sequence[Any], Bs: Sequence[Any],  # type: ignore[override]
            problem: Optional[GroupedGemmProblem] = None, verify: bool = False
            ) -> GroupedGemmResult:
        if len(As) != len(Bs) or (problem is not None and len(As) != problem.group_count):
            raise Error(f"there are {len(As)} A and {len(Bs)} B" + (
                f" for {problem.group_count} groups" if problem is not None else ""))
        sizes = problem.groups if problem is not None else [None] * len(As)
        done = [super(GpuGroupedGemmRunner, self).run(a, b, size and GemmProblem(*size), (), verify)
                for a, b, size in zip(As, Bs, sizes)]
        bad = next((each for each in done if each.status), None)
        time_ms = sum(each.time_ms for each in done) if bad is None else -1.0
        flops = sum(2.0 * a.shape[0] * a.shape[1] * b.shape[1] for a, b in zip(As, Bs))
        return GroupedGemmResult([each.output for each in done], time_ms, bad.status if bad else 0,
                                 flops / (time_ms * 1e9) if time_ms > 0 else 0.0,
                                 done[0].kernel_name if done else "", bad.error if bad else "")


# ---- Operands as bytes, under the original's names -----------------------------------------------

_C_NP = {"fp16": numpy.float16, "bf16": numpy.uint16, "fp32": numpy.float32, "int32": numpy.int32}
_PLAIN = {"fp16": numpy.float16, "fp32": numpy.float32, "int8": numpy.int8}
_output_dtype, _use_ocp_fp8 = output_dtype_for, _bits.uses_ocp
_fp32_to_bf16_u16, _bf16_u16_to_fp32 = _bits.bf16_bits, _bits.bf16_values
_fp8_decode_table, _fp8_encode = _bits.decoded, _bits.encoded


def _fnuz_decode_table(exponent_bits: int, fraction_bits: int) -> Any:
    return _bits.decoded(exponent_bits, fraction_bits, False)


def _fp32_to_fp8_u8(values: Any, use_ocp: Optional[bool] = None) -> Any:
    return _bits.bytes_of(values, "fp8", use_ocp)


def _fp8_u8_to_fp32(bits: Any, use_ocp: Optional[bool] = None) -> Any:
    return _bits.values_of(bits, "fp8", use_ocp)


def _fp32_to_bf8_u8(values: Any, use_ocp: Optional[bool] = None) -> Any:
    return _bits.bytes_of(values, "bf8", use_ocp)


def _bf8_u8_to_fp32(bits: Any, use_ocp: Optional[bool] = None) -> Any:
    return _bits.values_of(bits, "bf8", use_ocp)


def _fp32_to_fp8_ocp_u8(values: Any) -> Any:
    return _bits.bytes_of(values, "fp8", True)


def _fp32_to_bf8_ocp_u8(values: Any) -> Any:
    return _bits.bytes_of(values, "bf8", True)


def _dtype_from_kernel_name(name: str) -> str:
    """fp16 where the name says nothing."""
    return (name.split("_") + ["fp16"])[1]


def _layout_from_kernel_name(name: str) -> str:
    """rcr where the name says nothing."""
    word = (name.split("_") + ["", ""])[2]
    return word if len(word) == 3 and set(word) <= {"r", "c"} else "rcr"


def _cshuffle_store_ok(m_repeat: int, n_repeat: int, warp_tile_m: int, warp_tile_n: int) -> bool:
    """Whether CK's own store through shared memory is right for a shape; Tessera's kernels have no
    such limit. It is not where a wave repeats a tile of 32 an odd number of times."""
    return not any(repeat > 1 and repeat % 2 and tile == 32
                   for repeat, tile in ((m_repeat, warp_tile_m), (n_repeat, warp_tile_n)))


def _encode_operand(values: Any, dtype: str, use_ocp: Optional[bool] = None) -> Any:
    """A dense array of an operand's bits; bf16 as uint16, fp8 and bf8 as uint8."""
    if dtype == "bf16":
        return _bits.bf16_bits(values)
    if dtype in _bits.PARTS:
        return numpy.ascontiguousarray(_bits.bytes_of(values, dtype, use_ocp))
    if dtype not in _PLAIN:
        raise ValueError(f"operands are of fp16, bf16, fp32, fp8, bf8 or int8, got '{dtype}'")
    return numpy.ascontiguousarray(values, _PLAIN[dtype])


def _c_numpy_dtype(dtype: str) -> Any:
    """(C's word, the type of its bits) for a type of the operands."""
    if dtype not in _PLAIN and dtype not in _bits.PARTS and dtype != "bf16":
        raise ValueError(f"operands are of fp16, bf16, fp32, fp8, bf8 or int8, got '{dtype}'")
    word = output_dtype_for(dtype)
    return word, _C_NP[word]


def _decode_c(values: Any, dtype: str) -> Any:
    """C's values from its bits."""
    if dtype not in _C_NP:
        raise ValueError(f"results are of {', '.join(_C_NP)}, got '{dtype}'")
    return _bits.bf16_values(values) if dtype == "bf16" else values
