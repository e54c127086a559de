"""Grouped convolutions from Python: configurations, building, choosing, running and checking."""
from __future__ import annotations

import dataclasses
import enum
import json
import pathlib
import traceback
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import numpy

import tessera
from tessera import Error
from tessera_ck import checked as _checked
from tessera_ck import conv as _conv
from tessera_ck import conv_configs as _conv_configs
from tessera_ck import dtypes as _dtypes
from tessera_ck import fields as _fields
from tessera_ck import hints as _hints
from tessera_ck import libraries as _libraries
from tessera_ck import targets as _targets
from tessera_ck.registry_json import statistics

from dispatcher_common import ValidationResultBase, detect_gpu_arch

__all__ = ["GpuGroupedConvRunner", "GroupedConvDispatcherLib", "GroupedConvKernelConfig",
           "GroupedConvDataType", "GroupedConvProblem", "GroupedConvRegistry", "GroupedConvResult",
           "GroupedConvValidationResult",
           "auto_correct_grouped_conv_config", "detect_gpu_arch", "format_grouped_conv_summary",
           "get_grouped_conv_default_config", "setup_multiple_grouped_conv_dispatchers",
           "validate_grouped_conv_config"]


# The parts of a configuration in JSON: the key and, where it is another, the field.
_SIGNATURE = ("variant", "dtype", "ndim_spatial", "layout")
_ALGORITHM = ("tile_m", "tile_n", "tile_k", "pipeline", "epilogue", "scheduler", "block_per_cu",
              "num_wave_groups", "num_groups_to_merge")
_SHAPES = {"wave": "wave", "warp": "warp_tile"}
_VECTORS = ("vector_size_a", "vector_size_b", "vector_size_c")


@_fields.table(
    ("variant", "forward"), ("ndim_spatial", 2), ("dtype", "fp16"), ("layout", "nhwgc"),
    ("arch", None), ("tile_m tile_n tile_k", (1, 128, 128)), ("wave_m wave_n wave_k", (2, 2, 1)),
    ("warp_tile_m warp_tile_n warp_tile_k", (32, 32, 16)), ("pipeline", "compv4"),
    ("epilogue", "cshuffle", _hints.OWN), ("scheduler", "intrawave"),
    (" ".join(_VECTORS), (4, 8, 8), _hints.OWN),
    ("block_per_cu num_wave_groups num_groups_to_merge", 1, _hints.OWN),
    ("pad_m pad_n pad_k", True, _hints.ANY_SIZE),
    ("double_smem_buffer split_image explicit_gemm two_stage", False, _hints.OWN))
class GroupedConvKernelConfig:
    """What a kernel computes and how. arch: None means this machine. A backward kernel with another
    pipeline than compv3 and mem gets compv3, as in the original."""

    def __post_init__(self) -> None:
        _checked.fields(self)
        self.variant = _conv.variant_word(self.variant)
        originals = ("basic_v1", "basic_async_v1", "compv4", "compv5", "compv6", "comp_async")
        if self.variant != "forward" and self.pipeline in originals:
            self.pipeline = "compv3"

    @property
    def name(self) -> str:
        words = ["grouped_conv", self.variant, self.dtype, f"{self.ndim_spatial}d",
                 _fields.shape(self, "tile"), self.pipeline, self.scheduler]
        if self.num_groups_to_merge != 1:
            words.append(f"gm{self.num_groups_to_merge}")
        for field, word in (("double_smem_buffer", "dsb"), ("split_image", "si"),
                            ("two_stage", "2stage")):
            if getattr(self, field):
                words.append(word)
        return "_".join(words)

    def target(self) -> _targets.Target:
        return _targets.resolve(self.arch)

    @property
    def tile_str(self) -> str:
        return _fields.shape(self, "tile")

    @property
    def wave_str(self) -> str:
        return _fields.shape(self, "wave")

    @property
    def warp_str(self) -> str:
        return _fields.shape(self, "warp_tile")

    @property
    def vec_str(self) -> str:
        return "x".join(str(getattr(self, name)) for name in _VECTORS)

    def print_config(self, indent: str = "  ") -> None:
        for name, text in (
                ("kernel", self.name), ("type", f"{self.dtype} {self.layout}"),
                ("tile", self.tile_str), ("wave", self.wave_str), ("warp tile", self.warp_str),
                ("vectors", self.vec_str),
                ("pipeline", f"{self.pipeline}/{self.scheduler}/{self.epilogue}"),
                ("target", self.target())):
            print(f"{indent}{name:9} {text}")

    def to_dict(self) -> Dict[str, Any]:
        """As the original's generator takes it: {"tile_config": {...}, "trait_config": {...}},
        whose values are lists, and the other fields."""
        return _conv_configs.to_dict(self)

    def to_json_obj(self) -> Dict[str, Any]:
        how = {name: getattr(self, name) for name in _ALGORITHM}
        how.update({key: _fields.shape(self, prefix) for key, prefix in _SHAPES.items()})
        how["vector_sizes"] = [getattr(self, name) for name in _VECTORS]
        return {"name": self.name, "signature": {name: getattr(self, name) for name in _SIGNATURE},
                "algorithm": how, "arch": self.arch}

    @classmethod
    def from_json_obj(cls, row: Dict[str, Any]) -> "GroupedConvKernelConfig":
        how = dict(row["algorithm"])
        sizes = {f"{prefix}_{axis}": int(size) for key, prefix in _SHAPES.items()
                 for axis, size in zip("mnk", how.pop(key).split("x"))}
        vectors = dict(zip(_VECTORS, how.pop("vector_sizes")))
        return cls(**row["signature"], arch=row["arch"], **how, **sizes, **vectors)


def _places(axis: str, size: str, filters: str) -> Any:
    """The size of the output along an axis."""
    def count(self: Any) -> int:
        pad, stride, dilation = (getattr(self, f"{word}_{axis}")
                                 for word in ("pad", "stride", "dilation"))
        reach = dilation * (getattr(self, filters) - 1) + 1
        return (getattr(self, size) + 2 * pad - reach) // stride + 1
    return property(count)


@_fields.table(
    ("N C K G", (1, 64, 128, 1)), ("Hi Wi Di", (28, 28, 1)), ("Y X Z", (3, 3, 1)),
    ("stride_h stride_w stride_d", 1), ("pad_h pad_w pad_d", 0),
    ("dilation_h dilation_w dilation_d", 1), ("direction", "forward"), ("split_k", 1),
    ("dtype", None))
class GroupedConvProblem:
    """dtype: None means the runner's own."""

    def __post_init__(self) -> None:
        _checked.fields(self)
        self.direction = _conv.variant_word(self.direction)
        for name in ("G", "stride_h", "stride_w", "stride_d"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        _hints.of_argument("split_k", self.split_k, 1)
        if self.C % self.G or self.K % self.G:
            raise ValueError(f"C={self.C} and K={self.K} must both divide by G={self.G}")

    Ho, Wo, Do = _places("h", "Hi", "Y"), _places("w", "Wi", "X"), _places("d", "Di", "Z")

    @property
    def is_3d(self) -> bool:
        return _conv.is_3d(self.Di, self.Z, self.pad_d)

    @property
    def ndim_spatial(self) -> int:
        return 3 if self.is_3d else 2

    @property
    def flops(self) -> float:
        places = self.N * self.Do * self.Ho * self.Wo
        return 2.0 * places * self.K * (self.C // self.G) * self.Z * self.Y * self.X

    @property
    def gflops(self) -> float:
        return self.flops / 1e9

    def _image(self, depth: int, height: int, width: int, channels: int) -> Tuple[int, ...]:
        deep = (depth,) if self.is_3d else ()
        return (self.N, *deep, height, width, self.G, channels // self.G)

    def input_shape(self) -> Tuple[int, ...]:
        return self._image(self.Di, self.Hi, self.Wi, self.C)

    def weight_shape(self) -> Tuple[int, ...]:
        deep = (self.Z,) if self.is_3d else ()
        return (self.G, self.K // self.G, *deep, self.Y, self.X, self.C // self.G)

    def output_shape(self) -> Tuple[int, ...]:
        return self._image(self.Do, self.Ho, self.Wo, self.K)

    def print_problem(self, indent: str = "  ") -> None:
        for name, text in (
                ("direction", f"{self.direction}, {self.ndim_spatial}D, G={self.G}"),
                ("input", self.input_shape()), ("weight", self.weight_shape()),
                ("output", self.output_shape()), ("GFLOP", f"{self.gflops:.4g}")):
            print(f"{indent}{name:9} {text}")

    def slots(self) -> List[Tuple[str, Tuple[int, ...]]]:
        """The operands in the order of run(input, weight, output): name and shape."""
        shapes = {"in": self.input_shape(), "grad_in": self.input_shape(),
                  "weight": self.weight_shape(), "grad_weight": self.weight_shape(),
                  "out": self.output_shape(), "grad_out": self.output_shape()}
        return [(name, shapes[name]) for name in _conv.DIRECTIONS[self.direction][1]]


@dataclasses.dataclass
class GroupedConvResult:
    """One convolution. success: it ran; with verify it was compared with the fp64 reference."""

    success: bool = False
    time_ms: float = 0.0
    tflops: float = 0.0
    output: Any = None
    error: str = ""
    kernel_name: str = ""
    target: str = ""


class GroupedConvDispatcherLib(_libraries.Library):
    """The kernels of one configuration for one target."""

    def __init__(self, config: Optional[GroupedConvKernelConfig] = None) -> None:
        super().__init__(config or GroupedConvKernelConfig(), _conv.wish_of)

    @staticmethod
    def version() -> str:
        return "1.0.0"

    def _has(self, variant: str) -> bool:
        return self.config.variant == variant and bool(self.wish.kernels)

    def has_forward(self) -> bool:
        return self._has("forward")

    def has_bwd_data(self) -> bool:
        return self._has("bwd_data")

    def has_bwd_weight(self) -> bool:
        return self._has("bwd_weight")

    def _problem(self, problem: GroupedConvProblem) -> tessera.Problem:
        return _conv.problem_of(problem, problem.dtype or self.config.dtype, self.config.layout)

    def select(self, problem: GroupedConvProblem) -> Dict[str, Any]:
        """Tessera's decision; builds nothing, and needs no such machine."""
        return self._select(self._problem(problem))

    def _decided(self, problem: GroupedConvProblem) -> Optional[Dict[str, Any]]:
        whole = self._problem(problem)
        return self._decision(whole.line, lambda: whole)

    def is_supported(self, problem: GroupedConvProblem) -> bool:
        return self._decided(problem) is not None

    def plan(self, problem: GroupedConvProblem) -> tessera.Plan:
        """Measures where no model knows the problem, and keeps the winner."""
        whole = self._problem(problem)
        return self._plan_of(whole.line, lambda: whole)

    def run(self, first: Any, second: Any, problem: GroupedConvProblem, output: Any = None,
            verify: bool = False) -> GroupedConvResult:
        """first, second: input and weight; backward data: the output's gradient and weight;
        backward weight: input and the output's gradient."""
        if refusal := self.refusal():
            return GroupedConvResult(error=refusal, target=self.target.name)
        try:
            arrays = self._arrays((first, second, output), problem)
            ran = self._ran(self.plan(problem), arrays, problem.flops, verify)
        except Error as error:
            return GroupedConvResult(error=str(error), target=self.target.name)
        return GroupedConvResult(**ran, output=arrays[problem.slots()[2][0]])

    def _arrays(self, given: Sequence[Any], problem: GroupedConvProblem) -> Dict[str, Any]:
        dtype = problem.dtype or self.config.dtype
        arrays = {}
        for (name, shape), array in zip(problem.slots(), given):
            wanted = _dtypes.numpy_dtype(dtype, getattr(array, "dtype", None))
            if array is None:
                near = getattr(given[0], "dtype", None)
                arrays[name] = numpy.empty(shape, _dtypes.numpy_dtype(dtype, near))
                continue
            array = numpy.asarray(array)
            if array.size != numpy.prod(shape, dtype=int):
                raise Error(f"{name} has the shape {array.shape}, but the problem asks for {shape}")
            arrays[name] = numpy.ascontiguousarray(
                _checked.as_numbers(array.reshape(shape), wanted, name))
            if array is given[2] and arrays[name] is not array and not numpy.shares_memory(
                    arrays[name], array):
                raise Error(f"{name} must be an array of {wanted} without gaps, because the result "
                            "goes there")
        return arrays


class GpuGroupedConvRunner(_libraries.LateRunner):
    _make_library, _make_config = GroupedConvDispatcherLib, GroupedConvKernelConfig
    _error, _traceback = "", ""

    @property
    def lib(self) -> Optional[GroupedConvDispatcherLib]:
        try:
            return super().lib
        except Error as error:
            self._error, self._traceback = str(error), traceback.format_exc()
            return None

    def is_available(self) -> bool:
        """Whether it has kernels that run on this machine."""
        lib = self.lib
        return lib is not None and lib.initialize() and not _targets.why_not_here(lib.target)

    def get_init_error(self) -> str:
        return self._error

    def get_init_traceback(self) -> str:
        return self._traceback

    def run(self, input_np: Any, weight_np: Any, problem: GroupedConvProblem,
            output_np: Any = None, verbose: bool = False, verify: bool = False
            ) -> GroupedConvResult:
        lib = self.lib
        if lib is None:
            return GroupedConvResult(error=self._error)
        result = lib.run(input_np, weight_np, problem, output_np, verify)
        if verbose:
            print(result.error or f"{result.kernel_name}: {result.time_ms:.4f} ms, "
                  f"{result.tflops:.3f} TFLOPS, {lib.target}")
        return result


class GroupedConvRegistry(_libraries.Configurations):
    """Configurations, and what is built of them. With arch= and without configurations it runs any
    problem by whatever its target has."""

    _make_library = GroupedConvDispatcherLib

    def __init__(self, name: str = "default", arch: Optional[str] = None) -> None:
        super().__init__(name)
        self.arch = arch

    def add(self, config: GroupedConvKernelConfig) -> "GroupedConvRegistry":
        self._configs.append(config)
        return self

    def select(self, problem: GroupedConvProblem,
               heuristic: Optional[Callable[[GroupedConvProblem], Sequence[str]]] = None
               ) -> Optional[GroupedConvKernelConfig]:
        """The configuration that is predicted to be the fastest; with a heuristic the first that
        fits one of its parts of names, in their order. None where none computes the problem."""
        fitting = self._fitting(
            lambda lib: lib._decided(problem),
            lambda config: (config.variant == problem.direction and
                            config.ndim_spatial == problem.ndim_spatial and
                            problem.dtype in (None, config.dtype)))
        for part in heuristic(problem) if heuristic is not None else ():
            for _, config in fitting:
                if part in config.name:
                    return config
        return _libraries.fastest(fitting)

    def run(self, problem: GroupedConvProblem, input_tensor: Any, weight_tensor: Any,
            output: Any = None, verify: bool = False) -> GroupedConvResult:
        """A model chooses; where none knows the problem, kernels are measured once, and the winner
        is kept."""
        if self._configs:
            config = self.select(problem)
            if config is None:
                return GroupedConvResult(error=f"the registry '{self.name}' has no kernel for "
                                               f"{problem}")
        else:
            config = GroupedConvKernelConfig(
                variant=problem.direction, ndim_spatial=problem.ndim_spatial, arch=self.arch,
                dtype=problem.dtype or tessera._dtypes.word_of(
                    numpy.asarray(input_tensor).dtype, "input"))
        return self._lib_of(config).run(input_tensor, weight_tensor, problem, output, verify)

    def _filtered(self, keep: Callable[[GroupedConvKernelConfig], bool]) -> "GroupedConvRegistry":
        made = GroupedConvRegistry(self.name, self.arch)
        made._configs = [config for config in self._configs if keep(config)]
        return made

    def filter_by_variant(self, variant: str) -> "GroupedConvRegistry":
        word = _conv.variant_word(variant)
        return self._filtered(lambda config: config.variant == word)

    def filter_by_arch(self, arch: str) -> "GroupedConvRegistry":
        name = _targets.resolve(arch).name
        return self._filtered(lambda config: config.target().name == name)

    def to_json(self, indent: int = 2) -> str:
        count = statistics(self._configs, by_datatype=lambda config: config.dtype,
                           by_pipeline=lambda config: config.pipeline,
                           by_arch=lambda config: config.target().name)
        return json.dumps({"metadata": {"registry_name": self.name,
                                        "total_kernels": len(self._configs)},
                           "statistics": count,
                           "kernels": [config.to_json_obj() for config in self._configs]},
                          indent=indent)

    @classmethod
    def from_json(cls, text: str) -> "GroupedConvRegistry":
        try:
            whole = json.loads(text)
            made = cls(whole["metadata"]["registry_name"])
            for row in whole["kernels"]:
                made.add(GroupedConvKernelConfig.from_json_obj(row))
            return made
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise Error(f"the text is no registry of to_json(): {error!r}",
                        "parse_error") from None

    def build(self, verbose: bool = False, max_workers: Optional[int] = None
              ) -> Dict[Tuple[str, int], GpuGroupedConvRunner]:
        """Builds everything, `max_workers` at a time; a runner for each (variant, dimensions), of
        the first configuration that was built. No GPU is started."""
        runners: Dict[Tuple[str, int], GpuGroupedConvRunner] = {}
        paths = setup_multiple_grouped_conv_dispatchers(self._configs, verbose, max_workers)
        for config, path in zip(self._configs, paths):
            if path is not None:
                runners.setdefault((config.variant, config.ndim_spatial),
                                   GpuGroupedConvRunner(path))
        return runners

    def print_registry(self) -> None:
        print(f"{self.name}: {len(self._configs)} kernels")
        for config in self._configs:
            print(f"  {config.name}  {config.target()}")


def setup_multiple_grouped_conv_dispatchers(configs: Sequence[GroupedConvKernelConfig],
                                            verbose: bool = True,
                                            max_workers: Optional[int] = None,
                                            output_dir: Optional[Any] = None
                                            ) -> List[Optional[pathlib.Path]]:
    """Builds all configurations' kernels, `max_workers` at a time. Returns a file for each, for
    GpuGroupedConvRunner, and None for one without a kernel; a sentence is printed then."""
    libs = [GroupedConvDispatcherLib(config) for config in configs]
    return _libraries.set_up(libs, output_dir, verbose, max_workers)


@dataclasses.dataclass
class GroupedConvValidationResult(ValidationResultBase):
    """What validate_grouped_conv_config() found."""


class GroupedConvDataType(enum.Enum):
    FP16 = "fp16"
    BF16 = "bf16"
    FP32 = "fp32"
    FP8 = "fp8"
    BF8 = "bf8"
    INT8 = "int8"


def _config_of(config: Any) -> GroupedConvKernelConfig:
    if isinstance(config, GroupedConvKernelConfig):
        return config
    return GroupedConvKernelConfig(**_conv_configs.flat(config))


def validate_grouped_conv_config(config: Any) -> GroupedConvValidationResult:
    """Whether the target has kernels for the configuration, and each rule's sentence if not.
    config: a GroupedConvKernelConfig, its to_dict(), or its fields by name. For a target of the
    original the tables of its waves, warp tiles and traits are asked, too."""
    errors = _conv_configs.missing(config)
    warnings: List[str] = []
    if not errors:
        try:
            made = _config_of(config)
            errors = _conv_configs.table_errors(made)
            wish = _conv.wish_of(made, made.target())
            (warnings if wish.kernels else errors).extend(wish.corrections)
        except (Error, TypeError) as error:
            errors = [*errors, str(error)]
    return GroupedConvValidationResult(not errors, errors, warnings)


def auto_correct_grouped_conv_config(config: Any
                                     ) -> Tuple[Dict[str, Any], GroupedConvValidationResult]:
    """(the nearest configuration that the tables and the rules take, what is wrong with the given
    one). The first has the form of the given one; what had to change is in suggested_fixes."""
    found = validate_grouped_conv_config(config)
    given = config.to_dict() if isinstance(config, GroupedConvKernelConfig) else config
    if found.is_valid or _conv_configs.missing(config):
        return _conv_configs.copy_of(given), found
    try:
        made = _config_of(config)
        found.suggested_fixes = _conv_configs.fixes(made)
        if _conv.wish_of(dataclasses.replace(made, **found.suggested_fixes),
                         made.target()).kernels:
            return _conv_configs.changed(given, found.suggested_fixes), found
        plain = {**found.suggested_fixes, "pipeline": "compv3", "tile_m": 1}
        if _conv.wish_of(dataclasses.replace(made, **plain), made.target()).kernels:
            found.suggested_fixes = plain
    except (Error, TypeError):
        return _conv_configs.copy_of(given), found
    return _conv_configs.changed(given, found.suggested_fixes), found


def get_grouped_conv_default_config(variant: str = "forward", ndim_spatial: int = 2,
                                    arch: Optional[str] = None, dtype: str = "fp16"
                                    ) -> GroupedConvKernelConfig:
    return GroupedConvKernelConfig(variant=variant, ndim_spatial=ndim_spatial, arch=arch,
                                   dtype=dtype)


def format_grouped_conv_summary(config: Any) -> str:
    """One line; what is left out of a dict has its default."""
    made = _config_of(config)
    return (f"{made.name}: {made.layout}, wave {made.wave_str}, warp tile {made.warp_str}, "
            f"{made.target()}")
