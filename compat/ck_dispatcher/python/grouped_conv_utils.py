"""Grouped convolutions from Python: configurations, building, choosing, running and checking."""
from __future__ import annotations

import dataclasses
import json
import pathlib
import traceback
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import numpy

import tessera
from tessera import Error
from tessera_ck import checked as _checked
from tessera_ck import conv as _conv
from tessera_ck import hints as _hints
from tessera_ck import kernel_files as _files
from tessera_ck import launching as _launching
from tessera_ck import libraries as _libraries
from tessera_ck import targets as _targets

from dispatcher_common import ValidationResult, detect_gpu_arch, result_of

__all__ = ["GpuGroupedConvRunner", "GroupedConvDispatcherLib", "GroupedConvKernelConfig",
           "GroupedConvProblem", "GroupedConvRegistry", "GroupedConvResult",
           "auto_correct_grouped_conv_config", "detect_gpu_arch", "format_grouped_conv_summary",
           "get_grouped_conv_default_config", "setup_multiple_grouped_conv_dispatchers",
           "validate_grouped_conv_config"]


@dataclasses.dataclass
class GroupedConvKernelConfig:
    """What a kernel computes and how. arch: None means this machine. A backward kernel with another
    pipeline than compv3 and mem gets compv3, as in the original."""

    variant: str = "forward"
    ndim_spatial: int = 2
    dtype: str = "fp16"
    layout: str = "nhwgc"
    arch: Optional[str] = None
    tile_m: int = 1
    tile_n: int = 128
    tile_k: int = 128
    wave_m: int = 2
    wave_n: int = 2
    wave_k: int = 1
    warp_tile_m: int = 32
    warp_tile_n: int = 32
    warp_tile_k: int = 16
    pipeline: str = "compv4"
    epilogue: str = "cshuffle"
    scheduler: str = "intrawave"
    vector_size_a: int = 4
    vector_size_b: int = 8
    vector_size_c: int = 8
    block_per_cu: int = 1
    num_wave_groups: int = 1
    num_groups_to_merge: int = 1
    pad_m: bool = True
    pad_n: bool = True
    pad_k: bool = True
    double_smem_buffer: bool = False
    split_image: bool = False
    explicit_gemm: bool = False
    two_stage: bool = False

    def __post_init__(self) -> None:
        _checked.fields(self)
        self.variant = _conv.variant_word(self.variant)
        originals = ("basic_v1", "basic_async_v1", "compv4", "compv5", "compv6", "comp_async")
        if self.variant != "forward" and self.pipeline in originals:
            self.pipeline = "compv3"

    @property
    def name(self) -> str:
        words = ["grouped_conv", self.variant, self.dtype, f"{self.ndim_spatial}d",
                 f"{self.tile_m}x{self.tile_n}x{self.tile_k}", self.pipeline, self.scheduler]
        if self.num_groups_to_merge != 1:
            words.append(f"gm{self.num_groups_to_merge}")
        for field, word in (("double_smem_buffer", "dsb"), ("split_image", "si"),
                            ("two_stage", "2stage")):
            if getattr(self, field):
                words.append(word)
        return "_".join(words)

    def target(self) -> _targets.Target:
        return _targets.resolve(self.arch)

    def to_dict(self) -> Dict[str, Any]:
        return dataclasses.asdict(self)

    def to_json_obj(self) -> Dict[str, Any]:
        return {"name": self.name,
                "signature": {"variant": self.variant, "dtype": self.dtype,
                              "ndim_spatial": self.ndim_spatial, "layout": self.layout},
                "algorithm": {
                    "tile_m": self.tile_m, "tile_n": self.tile_n, "tile_k": self.tile_k,
                    "wave": f"{self.wave_m}x{self.wave_n}x{self.wave_k}",
                    "warp": f"{self.warp_tile_m}x{self.warp_tile_n}x{self.warp_tile_k}",
                    "pipeline": self.pipeline, "epilogue": self.epilogue,
                    "scheduler": self.scheduler,
                    "vector_sizes": [self.vector_size_a, self.vector_size_b, self.vector_size_c],
                    "block_per_cu": self.block_per_cu, "num_wave_groups": self.num_wave_groups,
                    "num_groups_to_merge": self.num_groups_to_merge},
                "arch": self.arch}

    @classmethod
    def from_json_obj(cls, row: Dict[str, Any]) -> "GroupedConvKernelConfig":
        how = row["algorithm"]
        shapes = {}
        for prefix, word in (("wave", how["wave"]), ("warp_tile", how["warp"])):
            shapes.update({f"{prefix}_{axis}": int(size) for axis, size in
                           zip("mnk", word.split("x"))})
        vectors = {f"vector_size_{axis}": size for axis, size in zip("abc", how["vector_sizes"])}
        kept = {key: value for key, value in how.items()
                if key not in ("wave", "warp", "vector_sizes")}
        return cls(**row["signature"], arch=row["arch"], **kept, **shapes, **vectors)


@dataclasses.dataclass
class GroupedConvProblem:
    """dtype: None means the runner's own."""

    N: int = 1
    C: int = 64
    K: int = 128
    G: int = 1
    Hi: int = 28
    Wi: int = 28
    Di: int = 1
    Y: int = 3
    X: int = 3
    Z: int = 1
    stride_h: int = 1
    stride_w: int = 1
    stride_d: int = 1
    pad_h: int = 0
    pad_w: int = 0
    pad_d: int = 0
    dilation_h: int = 1
    dilation_w: int = 1
    dilation_d: int = 1
    direction: str = "forward"
    split_k: int = 1
    dtype: Optional[str] = None

    def __post_init__(self) -> None:
        _checked.fields(self)
        self.direction = _conv.variant_word(self.direction)
        for name in ("G", "stride_h", "stride_w", "stride_d"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        _hints.of_argument("split_k", self.split_k, 1)
        if self.C % self.G or self.K % self.G:
            raise ValueError(f"C={self.C} and K={self.K} must both divide by G={self.G}")

    def _out(self, size: int, filters: int, axis: str) -> int:
        pad, stride, dilation = (getattr(self, f"{word}_{axis}")
                                 for word in ("pad", "stride", "dilation"))
        return (size + 2 * pad - dilation * (filters - 1) - 1) // stride + 1

    @property
    def Ho(self) -> int:
        return self._out(self.Hi, self.Y, "h")

    @property
    def Wo(self) -> int:
        return self._out(self.Wi, self.X, "w")

    @property
    def Do(self) -> int:
        return self._out(self.Di, self.Z, "d")

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

    @property
    def input_shape(self) -> Tuple[int, ...]:
        return self._image(self.Di, self.Hi, self.Wi, self.C)

    @property
    def weight_shape(self) -> Tuple[int, ...]:
        deep = (self.Z,) if self.is_3d else ()
        return (self.G, self.K // self.G, *deep, self.Y, self.X, self.C // self.G)

    @property
    def output_shape(self) -> Tuple[int, ...]:
        return self._image(self.Do, self.Ho, self.Wo, self.K)

    def slots(self) -> List[Tuple[str, Tuple[int, ...]]]:
        """The operands in the order of run(input, weight, output): name and shape."""
        shapes = {"in": self.input_shape, "grad_in": self.input_shape,
                  "weight": self.weight_shape, "grad_weight": self.weight_shape,
                  "out": self.output_shape, "grad_out": self.output_shape}
        return [(name, shapes[name]) for name in _conv.DIRECTIONS[self.direction][1]]


@dataclasses.dataclass
class GroupedConvResult:
    """One convolution. success: it ran, and it was compared with the fp64 reference."""

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

    def kernel_count(self) -> int:
        return len(self.wish.kernels)

    def _problem(self, problem: GroupedConvProblem) -> tessera.Problem:
        return _conv.problem_of(problem, problem.dtype or self.config.dtype, self.config.layout)

    def select(self, problem: GroupedConvProblem) -> Dict[str, Any]:
        """Tessera's decision; builds nothing, and needs no such machine."""
        return self._select(self._problem(problem))

    def _decided(self, problem: GroupedConvProblem) -> Optional[Dict[str, Any]]:
        return self._decision(lambda: self._problem(problem))

    def is_supported(self, problem: GroupedConvProblem) -> bool:
        return self._decided(problem) is not None

    def plan(self, problem: GroupedConvProblem) -> tessera.Plan:
        """Measures where no model knows the problem, and keeps the winner."""
        whole = self._problem(problem)
        return self._plan_of(whole.line, lambda: whole)

    def run(self, first: Any, second: Any, problem: GroupedConvProblem, output: Any = None,
            verify: bool = True) -> GroupedConvResult:
        """first, second: input and weight; backward data: the output's gradient and weight;
        backward weight: input and the output's gradient."""
        if refusal := self.refusal():
            return GroupedConvResult(error=refusal, target=self.target.name)
        try:
            arrays = self._arrays((first, second, output), problem)
            plan = self.plan(problem)
            seconds = _launching.launch(plan, arrays, verify=verify)
        except Error as error:
            return GroupedConvResult(error=str(error), target=self.target.name)
        result = arrays[problem.slots()[2][0]]
        tflops = problem.flops / seconds / 1e12 if seconds > 0 else 0.0
        return GroupedConvResult(verify, seconds * 1e3, tflops, result, "", plan.kernel,
                                 self.target.name)

    def _arrays(self, given: Sequence[Any], problem: GroupedConvProblem) -> Dict[str, Any]:
        dtype = problem.dtype or self.config.dtype
        arrays = {}
        for (name, shape), array in zip(problem.slots(), given):
            wanted = tessera._dtypes.numpy_dtype(dtype, getattr(array, "dtype", None))
            if array is None:
                near = getattr(given[0], "dtype", None)
                arrays[name] = numpy.empty(shape, tessera._dtypes.numpy_dtype(dtype, near))
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


class GpuGroupedConvRunner:
    """Runs the kernels of a file of setup_multiple_grouped_conv_dispatchers(), or the default
    configuration's. Nothing is loaded, and no GPU started, before the first run()."""

    def __init__(self, lib_path: Optional[Any] = None,
                 config: Optional[GroupedConvKernelConfig] = None) -> None:
        self.library_path = None if lib_path is None else pathlib.Path(lib_path)
        self._config = config
        self._lib: Optional[GroupedConvDispatcherLib] = None
        self._error, self._traceback = "", ""

    def _ensure_initialized(self) -> bool:
        if self._lib is not None:
            return True
        try:
            config = self._config
            if self.library_path is not None:
                config = _files.config_of(self.library_path, GroupedConvKernelConfig)
            self._lib = GroupedConvDispatcherLib(config)
        except Error as error:
            self._error, self._traceback = str(error), traceback.format_exc()
        return self._lib is not None

    @property
    def lib(self) -> Optional[GroupedConvDispatcherLib]:
        self._ensure_initialized()
        return self._lib

    def is_available(self) -> bool:
        """Whether it has kernels that run on this machine."""
        lib = self.lib
        return lib is not None and lib.initialize() and not _targets.why_not_here(lib.target)

    def get_init_error(self) -> str:
        return self._error

    def get_init_traceback(self) -> str:
        return self._traceback

    def run(self, input_np: Any, weight_np: Any, problem: GroupedConvProblem,
            output_np: Any = None, verbose: bool = False, verify: bool = True
            ) -> GroupedConvResult:
        lib = self.lib
        if lib is None:
            return GroupedConvResult(error=self._error)
        result = lib.run(input_np, weight_np, problem, output_np, verify)
        if verbose:
            print(result.error or f"{result.kernel_name}: {result.time_ms:.4f} ms, "
                  f"{result.tflops:.3f} TFLOPS, {lib.target}")
        return result

    def cleanup(self) -> None:
        if self._lib is not None:
            self._lib.cleanup()
        self._lib = None


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

    @property
    def kernels(self) -> List[GroupedConvKernelConfig]:
        return list(self._configs)

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
            output: Any = None, verify: bool = True) -> GroupedConvResult:
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
        count: Dict[str, Dict[str, int]] = {"by_datatype": {}, "by_pipeline": {}, "by_arch": {}}
        for config in self._configs:
            for key, word in (("by_datatype", config.dtype), ("by_pipeline", config.pipeline),
                              ("by_arch", config.target().name)):
                count[key][word] = count[key].get(word, 0) + 1
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


def validate_grouped_conv_config(config: Dict[str, Any]) -> ValidationResult:
    """Whether the target has kernels for the configuration, and the rule's sentence if not."""
    try:
        made = GroupedConvKernelConfig(**config)
        return result_of(_conv.wish_of(made, made.target()))
    except (Error, TypeError) as error:
        return ValidationResult(False, [str(error)])


def auto_correct_grouped_conv_config(config: Dict[str, Any]
                                     ) -> Tuple[Dict[str, Any], ValidationResult]:
    """The configuration as it is taken, and what is wrong with the given one: a backward kernel's
    pipeline becomes compv3, and a kernel that the rules refuse the target's own choice."""
    found = validate_grouped_conv_config(config)
    try:
        corrected = GroupedConvKernelConfig(**config).to_dict()
    except (Error, TypeError):
        return dict(config), found
    if not found.is_valid:
        target = _targets.resolve(corrected["arch"])
        made = GroupedConvKernelConfig(**{**corrected, "pipeline": "compv3"})
        if _conv.wish_of(made, target).kernels:
            corrected["pipeline"] = "compv3"
            found.suggested_fixes = {"pipeline": "compv3"}
    return corrected, found


def get_grouped_conv_default_config(variant: str = "forward", ndim_spatial: int = 2,
                                    arch: Optional[str] = None, dtype: str = "fp16"
                                    ) -> Dict[str, Any]:
    return GroupedConvKernelConfig(variant=variant, ndim_spatial=ndim_spatial, arch=arch,
                                   dtype=dtype).to_dict()


def format_grouped_conv_summary(config: Any) -> str:
    made = config if isinstance(config, GroupedConvKernelConfig) else GroupedConvKernelConfig(
        **config)
    return (f"{made.name}: wave {made.wave_m}x{made.wave_n}x{made.wave_k}, warp tile "
            f"{made.warp_tile_m}x{made.warp_tile_n}x{made.warp_tile_k}, {made.target()}")
