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
from tessera_ck import kernel_files as _files
from tessera_ck import libraries as _libraries
from tessera_ck import targets as _targets
from tessera_ck.operand_bits import (  # noqa: F401
    _bf16_u16_to_fp32, _bf8_u8_to_fp32, _C_NP, _c_numpy_dtype, _cshuffle_store_ok, _decode_c,
    _dtype_from_kernel_name, _encode_operand, _fnuz_decode_table, _fp32_to_bf16_u16,
    _fp32_to_bf8_ocp_u8, _fp32_to_bf8_u8, _fp32_to_fp8_ocp_u8, _fp32_to_fp8_u8, _fp8_decode_table,
    _fp8_encode, _fp8_u8_to_fp32, _layout_from_kernel_name, _output_dtype, _use_ocp_fp8)

from ctypes_utils import DispatcherLib as GemmDispatcherLib
from ctypes_utils import (STATUS_NO_KERNEL, STATUS_OK, STATUS_UNSUPPORTED, GemmResult, GemmRunner,
                          KernelConfig)
from ctypes_utils import setup_multiple_gemm_dispatchers as _setup

__all__ = ["STATUS_NO_KERNEL", "STATUS_OK", "STATUS_UNSUPPORTED", "GemmDispatcherLib",
           "GemmKernelConfig", "GemmProblem", "GemmResult", "GpuGemmRunner",
           "GpuGroupedGemmRunner", "GpuMultiABDRunner", "GpuMultiDGemmRunner",
           "GroupedGemmProblem", "GroupedGemmResult", "MultiABDGemmResult", "MultiDGemmProblem",
           "MultiDGemmResult", "expand_sweep", "normalize_gfx_arch", "numpy_dtype_for",
           "output_dtype_for", "setup_multiple_gemm_dispatchers"]

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

    @property
    def flops(self) -> float:
        return float(self.num_ops)


# The fields of a generator's configuration, by the parts in which it lies.
_TILE = {"tile": (128, 128, 32), "warp": (2, 2, 1), "warp_tile": (32, 32, 16)}
_TRAIT = {"pipeline": "compv4", "scheduler": "intrawave", "epilogue": "cshuffle", "pad_m": True,
          "pad_n": True, "pad_k": True, "persistent": False}
# What a variant's configuration has besides, under the words of its file.
_PARTS: Dict[str, Dict[str, Dict[str, str]]] = {
    "multi_d": {"multi_d_config": {"elementwise_ops": "elementwise_op",
                                   "num_d_tensors": "num_d_tensors"}},
    "stream_k": {"streamk_config": {"reduction_strategy": "reduction_strategy"}},
    "multi_abd": {"multi_abd_config": {name: name for name in (
        "num_a_tensors", "num_b_tensors", "num_d_tensors", "a_elementwise_op",
        "b_elementwise_op", "cde_elementwise_op")}}}


@_fields.table(
    ("dtype", "fp16"), ("layout", "rcr"),
    *((" ".join(f"{prefix}_{axis}" for axis in "mnk"), sizes) for prefix, sizes in _TILE.items()),
    *_TRAIT.items(), ("variant", "standard"), ("elementwise_op", "MultiDAdd"),
    ("num_d_tensors", 1), ("gfx_arch", None), ("reduction_strategy", "atomic"),
    ("num_a_tensors num_b_tensors", 2),
    ("a_elementwise_op b_elementwise_op cde_elementwise_op", "PassThrough"), frozen=True)
class GemmKernelConfig:
    """As the generator names the fields: warp_* are waves, warp_tile_* one instruction's tile.
    num_a_tensors, num_b_tensors and the three operations are of the variant multi_abd, and
    reduction_strategy is of stream_k."""

    @property
    def name(self) -> str:
        """Lossless: Tessera's name of the one kernel that the fields describe; for stream_k the
        original's, because Tessera's has no word for the way in which parts are added up."""
        if self.variant == _gemm.STREAM_K:
            return self._original_name()
        return _gemm.named_kernel(self.to_ctypes_config(), _targets.resolve(self.gfx_arch))

    def _original_name(self) -> str:
        flags = (self.pad_m, self.pad_n, self.pad_k, self.persistent)
        how = "" if self.reduction_strategy == "atomic" else f"_{self.reduction_strategy}"
        shapes = (_fields.shape(self, prefix) for prefix in _TILE)
        return "_".join(["gemm", self.dtype, self.layout[:3], self.pipeline, self.epilogue,
                         self.scheduler, *map(str, flags), *shapes, f"streamk{how}"])

    def _letter(self, place: int) -> str:
        return {"r": "row", "c": "col"}[self.layout[min(place, len(self.layout) - 1)]]

    @property
    def layout_a(self) -> str:
        return self._letter(0)

    @property
    def layout_b(self) -> str:
        return self._letter(1)

    @property
    def layout_c(self) -> str:
        return self._letter(2)

    @property
    def layout_d(self) -> str:
        return self._letter(3)

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

    def to_codegen_json(self) -> Dict[str, Any]:
        """What unified_gemm_codegen.py takes as --tile-config-json, and expand_sweep()."""
        tile = {f"{prefix}_{axis}": [getattr(self, f"{prefix}_{axis}")]
                for prefix in _TILE for axis in "mnk"}
        trait = {key: [getattr(self, key)] for key in _TRAIT}
        whole: Dict[str, Any] = {"tile_config": tile, "trait_config": trait}
        for part, fields in _PARTS.get(self.variant, {}).items():
            whole[part] = {key: [getattr(self, field)] for key, field in fields.items()}
        return whole

    def to_ctypes_config(self) -> KernelConfig:
        given = dataclasses.asdict(self)
        dtype, layout = given.pop("dtype"), given.pop("layout")
        operation = given.pop("cde_elementwise_op")
        if self.variant == "multi_abd":
            given["elementwise_op"] = operation
        else:
            for name in ("num_a_tensors", "num_b_tensors", "a_elementwise_op",
                         "b_elementwise_op"):
                del given[name]
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
        layouts = {name: given.pop(name) for name in (
            "layout_a", "layout_b", "layout_c", "layout_d") if name in given}
        if layouts:
            given["layout"] = "".join(
                layouts.get(f"layout_{each}", usual)[0]
                for each, usual in zip("abcd", ("row", "col", "row", "row"))
                if each != "d" or "layout_d" in layouts)
        given.setdefault("dtype", types.get("dtype_a", types.get("dtype_b", "fp16")))
        plain(self, *args, **given)
        for name, value in types.items():
            if value != getattr(self, name):
                raise Error(f"{name} must be {getattr(self, name)} where the type is "
                            f"{self.dtype}, got {value}")
    made.__init__ = init
    return made


_by_operand(GemmKernelConfig)


def _listed(values: Any) -> List[Any]:
    """{"values": [...]}, {"min", "max", "step"}, a list, or one value."""
    if isinstance(values, dict) and "min" in values:
        return list(range(values["min"], values["max"] + 1, values.get("step", 1)))
    values = values.get("values", [values]) if isinstance(values, dict) else values
    return list(values) if isinstance(values, list) else [values]


def _read(sweep: Any) -> Dict[str, Any]:
    """A sweep, or the file that holds it."""
    if isinstance(sweep, dict):
        return sweep
    try:
        return dict(json.loads(pathlib.Path(sweep).read_text(encoding="utf-8")))
    except OSError as error:
        raise Error(f"{sweep} cannot be read: {error.strerror}", "io_error") from None
    except ValueError as error:
        raise Error(f"{sweep} is no JSON: {error}", "parse_error") from None


def expand_sweep(sweep: Any, dtype: str = "fp16", layout: str = "rcr", variant: str = "standard",
                 gfx_arch: Optional[str] = None, arch: Optional[str] = None
                 ) -> List[GemmKernelConfig]:
    """All legal combinations of a generator's configuration, a dict or a file of JSON:
    {"tile_config": {"tile_m": [...], ...}, "trait_config": {...}, "multi_d_config": {...},
    "streamk_config": {...}, "multi_abd_config": {...}}. What is left out has its default. arch is
    gfx_arch, as the original calls it."""
    whole, gfx_arch = _read(sweep), gfx_arch or arch
    ranges: Dict[str, Sequence[Any]] = {}
    for part in ("tile_config", "trait_config"):
        ranges.update((key, _listed(values)) for key, values in whole.get(part, {}).items())
    for part, fields in _PARTS.get(variant, {}).items():
        ranges.update((field, _listed(whole[part][key])) for key, field in fields.items()
                      if key in whole.get(part, {}))
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


# The original's source of the C library for a variant; bindings/ctypes/gemm_ctypes_lib.cpp serves
# all of Tessera's.
_CTYPES_SOURCES = {"stream_k": "streamk_", "grouped": "grouped_", "multi_d": "multi_d_"}


def _ctypes_source_name(config: Any) -> str:
    """The name under which the original has the C library of a configuration's variant."""
    if config.variant == "multi_abd":
        return "gemm_multi_abd_ctypes_lib.cpp"
    return f"{_CTYPES_SOURCES.get(config.variant, '')}gemm_ctypes_lib.cpp"


class GpuGemmRunner(_libraries.LateRunner):
    """lib can be set: to a library of ctypes_utils, or to anything with run(A, B, C, M, N, K) that
    gives (status, ms) and takes arrays in the form that kernel_name says."""

    _make_library, _make_config = GemmDispatcherLib, KernelConfig
    _kernel_name = ""

    def __init__(self, lib_path: Any) -> None:
        super().__init__(lib_path)

    @property
    def kernel_name(self) -> str:
        return self._kernel_name or str(self.lib.get_kernel_name())

    def run(self, A: Any, B: Any, problem: Optional[GemmProblem] = None, D: Sequence[Any] = (),
            verify: bool = False) -> GemmResult:
        if problem is not None and (numpy.shape(A), numpy.shape(B)) != (
                (problem.M, problem.K), (problem.K, problem.N)):
            raise Error(f"A and B have the shapes {numpy.shape(A)} and {numpy.shape(B)}, but the "
                        f"problem asks for {(problem.M, problem.K)} and {(problem.K, problem.N)}")
        if isinstance(self.lib, GemmDispatcherLib):
            return GemmRunner(self.lib).run(A, B, D=D, verify=verify)
        return self._run_given(numpy.asarray(A), numpy.asarray(B))

    def _run_given(self, a: Any, b: Any) -> GemmResult:
        """By a library that is not ours. Its kernel's name says types and orders."""
        name = self.kernel_name
        dtype, layout = _dtype_from_kernel_name(name), _layout_from_kernel_name(name)
        word, kind = _c_numpy_dtype(dtype)
        (m, k), n = a.shape, b.shape[1]
        c = numpy.zeros((m, n) if layout[2] == "r" else (n, m), kind)
        status, ms = self.lib.run(*(
            _encode_operand(each if letter == "r" else each.T, dtype)
            for each, letter in zip((a, b), layout)), c, m, n, k)
        tflops = 2.0 * m * n * k / (ms * 1e9) if status == 0 and ms > 0 else 0.0
        return GemmResult(_decode_c(c if layout[2] == "r" else c.T, word), ms, status, tflops, name)


# ---- Several products, and products with further operands ----------------------------------------

@dataclasses.dataclass(frozen=True)
class MultiDGemmProblem(GemmProblem):
    """num_d: how many operands D there are, each of the result's shape."""

    num_d: int = 2


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


def _agree(name: str, given: Optional[str], built: str) -> None:
    if given is not None and given != built:
        raise Error(f"{name} must be {built}, of which the kernels are, got {given}")


class GpuMultiDGemmRunner(GpuGemmRunner):
    @property
    def num_d_tensors(self) -> int:
        return int(self.lib.config.num_d_tensors)

    def run(self, A: Any, B: Any, Ds: Sequence[Any] = (),  # type: ignore[override]
            problem: Optional[GemmProblem] = None, verify: bool = False) -> MultiDGemmResult:
        """Ds: an array, or as many as the configuration says, each of the result's shape."""
        operands = [Ds] if hasattr(Ds, "shape") else list(Ds)
        if isinstance(problem, MultiDGemmProblem) and problem.num_d != len(operands):
            raise Error(f"there are {len(operands)} D, but the problem asks for {problem.num_d}")
        done = super().run(A, B, problem, operands, verify)
        return MultiDGemmResult(output=done.output, time_ms=done.time_ms, status=done.status,
                                tflops=done.tflops, kernel_name=done.kernel_name,
                                error=done.error, verified=done.verified, target=done.target)


class GpuGroupedGemmRunner(GpuGemmRunner):
    """Products of unequal sizes by one kernel. Each is a launch of its own. dtype and layout, where
    they are given, must be the kernel's."""

    def __init__(self, lib_path: Any, dtype: Optional[str] = None, layout: Optional[str] = None
                 ) -> None:
        super().__init__(lib_path)
        config = _files.config_of(lib_path, KernelConfig)
        _agree("dtype", dtype, config.dtype_a)
        _agree("layout", layout, config.layout)

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


def _combined(operation: str, first: Any, rest: Sequence[Any], what: str) -> Any:
    """An operation on arrays in fp32: PassThrough takes the first, AddScale has the scale 1."""
    found, further = (numpy.asarray(first).astype(numpy.float32),
                      [numpy.asarray(each).astype(numpy.float32) for each in rest])
    if operation == "PassThrough":
        return found
    if operation in ("MultiDAdd", "AddScale"):
        return functools.reduce(numpy.add, further, found)
    if operation == "MultiDMultiply":
        return functools.reduce(numpy.multiply, further, found)
    raise ValueError(f"{what} have no reference for '{operation}'; there are PassThrough, "
                     "MultiDAdd, MultiDMultiply and AddScale")


def _cde_reference(op: str, acc: Any, ds: Sequence[Any]) -> Any:
    """What an operation makes of a product and the operands D, in fp32."""
    return _combined(op, acc, ds, "products with operands D")


def _ab_reference(op: str, group: Sequence[Any]) -> Any:
    """The one matrix for which several A, or several B, stand, in fp32."""
    return _combined(op, group[0], group[1:], "groups of operands")


@dataclasses.dataclass
class MultiABDGemmResult(GemmResult):
    """max_rel: the largest difference from the reference over the reference's largest; None where
    nothing was compared."""

    max_rel: Optional[float] = None


class GpuMultiABDRunner(GpuGemmRunner):
    """Products of groups of A and B with operands D, by kernels that read one A and one B: a file
    of the variant multi_abd exists where PassThrough takes the first of each group. The runner
    draws the operands itself. The layout and the operations, where they are given, must be those
    of the file."""

    def __init__(self, lib_path: Any, layout4: Optional[str] = None,
                 a_elementwise_op: Optional[str] = None, b_elementwise_op: Optional[str] = None,
                 cde_elementwise_op: Optional[str] = None) -> None:
        super().__init__(lib_path)
        self._config = _files.config_of(lib_path, KernelConfig)
        if self._config.variant != "multi_abd":
            raise Error(f"{lib_path} holds kernels of the variant {self._config.variant}, and this "
                        "runner is for multi_abd", "unsupported")
        _agree("layout4", layout4, self._parse_layout4())
        for name, given in (("a_elementwise_op", a_elementwise_op),
                            ("b_elementwise_op", b_elementwise_op)):
            _agree(name, given, getattr(self._config, name))
        _agree("cde_elementwise_op", cde_elementwise_op, self._config.elementwise_op)

    def _parse_layout4(self) -> str:
        """Of A, B, the result and D, which lies as the result does."""
        return str(self._config.layout + self._config.layout[2])

    @property
    def tensor_counts(self) -> Any:
        return tuple(getattr(self._config, f"num_{each}_tensors") for each in "abd")

    def operands(self, problem: GemmProblem, seed: int = 0) -> Any:
        """(the A, the B, the D) of a problem: random numbers in the kernels' types."""
        random = numpy.random.default_rng(seed)
        sizes = ((problem.M, problem.K), (problem.K, problem.N), (problem.M, problem.N))
        types = (self._config.dtype_a, self._config.dtype_b, self._config.dtype_c)
        return tuple([(random.standard_normal(size) * 0.1).astype(numpy_dtype_for(word))
                      for _ in range(count)]
                     for size, word, count in zip(sizes, types, self.tensor_counts))

    def run(self, problem: GemmProblem, seed: int = 0,  # type: ignore[override]
            verify: bool = False, verify_tol: float = 2e-2) -> MultiABDGemmResult:
        """verify: a result whose max_rel is above verify_tol is no success."""
        many_a, many_b, many_d = self.operands(problem, seed)
        config, uses_d = self._config, self._config.elementwise_op != "PassThrough"
        a, b = (_ab_reference(operation, group) for operation, group in (
            (config.a_elementwise_op, many_a), (config.b_elementwise_op, many_b)))
        done = super().run(many_a[0], many_b[0], problem, many_d if uses_d else (), verify)
        result = MultiABDGemmResult(**dataclasses.asdict(done))
        if verify and done.success:
            wanted = _cde_reference(config.elementwise_op, a @ b, many_d)
            away = abs(done.output.astype(numpy.float32) - wanted).max()
            result.max_rel = float(away) / (float(abs(wanted).max()) + 1e-12)
            if not result.max_rel <= verify_tol:
                result.status, result.error = -1, (
                    f"max_rel is {result.max_rel:.3g}, above {verify_tol:g}")
        return result
