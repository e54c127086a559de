"""GEMM from Python: configurations, generating, building, running and checking.

The names are those of the CK Tile Dispatcher; the work is done by the package tessera.
"""
from __future__ import annotations

import dataclasses
import pathlib
from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple, Union

import numpy

import tessera
from tessera import Error
from tessera_ck import c_library as _c_library
from tessera_ck import checked as _checked
from tessera_ck import dtypes as _dtypes
from tessera_ck import fields as _fields
from tessera_ck import gemm as _gemm
from tessera_ck import hints as _hints
from tessera_ck import kernel_files as _files
from tessera_ck import launching as _launching
from tessera_ck import libraries as _libraries
from tessera_ck import shuffled as _shuffled
from tessera_ck import targets as _targets
from tessera_ck.codegen_runner import CodegenResult, CodegenRunner
from tessera_ck.registry_json import gemm_registry_json

from dispatcher_common import (ValidationResult, auto_correct_kernel_config,
                               cleanup_generated_kernels, detect_gpu_arch, get_arch_filter_data,
                               get_build_dir, get_ck_root, get_codegen_dir, get_dispatcher_root,
                               get_generated_kernels_dir, print_auto_correction,
                               print_kernel_config, validate_kernel_config)

__all__ = ["CodegenResult", "CodegenRunner", "Dispatcher", "DispatcherLib", "GemmResult",
           "GemmRunner", "GemmSetupResult", "KernelConfig", "Registry", "ValidationResult",
           "Validator", "auto_correct_kernel_config", "cleanup_gemm", "cleanup_generated_kernels",
           "detect_gpu_arch", "get_arch_filter_data", "get_build_dir", "get_ck_root",
           "get_codegen_dir", "get_dispatcher_root", "get_generated_kernels_dir",
           "is_preshuffle_supported", "preshuffle_weight_matrix", "print_auto_correction",
           "print_kernel_config", "print_kernel_config_table", "reset_for_example",
           "setup_gemm_dispatcher", "setup_multiple_gemm_dispatchers", "validate_kernel_config"]


@_fields.spelled(warp_tile_m="warp_m", warp_tile_n="warp_n", warp_tile_k="warp_k",
                 padding="pad_m pad_n pad_k")
@_fields.table(
    ("dtype_a dtype_b dtype_c", "fp16"), ("dtype_acc", "fp32", _hints.SUMS),
    ("layout_a layout_b layout_c", ("row", "col", "row")),
    ("tile_m tile_n tile_k", (128, 128, 32)),
    ("wave_m wave_n wave_k", (2, 2, 1)),
    ("warp_m warp_n warp_k", (32, 32, 16)),
    ("block_size", 256, _hints.OWN), ("pipeline", "compv4"), ("scheduler", "intrawave"),
    ("epilogue", "cshuffle", _hints.OWN), ("pad_m pad_n pad_k", True, _hints.ANY_SIZE),
    ("gfx_arch", None), ("variant", "standard"), ("elementwise_op", "MultiDAdd"),
    ("num_d_tensors", 1), ("persistent", False), ("reduction_strategy", "atomic", _hints.IN_ORDER),
    ("num_a_tensors num_b_tensors", 1), ("a_elementwise_op b_elementwise_op", "PassThrough"),
    ("double_buffer", True, _hints.OWN))
class KernelConfig:
    """What a GEMM kernel computes and how. gfx_arch: None means this machine."""

    @property
    def layout(self) -> str:
        return _gemm.layout_word(self.layout_a, self.layout_b, self.layout_c)

    @property
    def tile_str(self) -> str:
        return _fields.shape(self, "tile")

    def target(self) -> _targets.Target:
        return _targets.resolve(self.gfx_arch)

    @property
    def file_str(self) -> str:
        """What tells a configuration's files from another's."""
        return "_".join([self.dtype_a, self.layout, self.tile_str, self.wave_str, self.warp_str,
                         self.pipeline, self.epilogue, self.scheduler])

    @property
    def wave_str(self) -> str:
        return _fields.shape(self, "wave")

    @property
    def warp_str(self) -> str:
        return _fields.shape(self, "warp")

    def print_config(self, indent: str = "  ") -> None:
        for name, text in (
                ("types", f"A={self.dtype_a} B={self.dtype_b} C={self.dtype_c} "
                          f"acc={self.dtype_acc}"),
                ("layout", self.layout), ("variant", self.variant), ("tile", self.tile_str),
                ("wave", _fields.shape(self, "wave")), ("warp tile", _fields.shape(self, "warp")),
                ("pipeline", f"{self.pipeline}/{self.scheduler}/{self.epilogue}"),
                ("target", self.target())):
            print(f"{indent}{name:9} {text}")


def print_kernel_config_table(configs: Sequence[KernelConfig]) -> None:
    """A line for each configuration, between rules."""
    rows = [("#", "Tile", "Wave", "Warp", "Pipe", "Scheduler")]
    rows += [(str(number), each.tile_str, each.wave_str, each.warp_str, each.pipeline,
              each.scheduler) for number, each in enumerate(configs, 1)]
    widths = [max(map(len, column)) for column in zip(*rows)]
    rule = "+" + "+".join("-" * (width + 2) for width in widths) + "+"
    lines = ["| " + " | ".join(word.ljust(width) for word, width in zip(row, widths)) + " |"
             for row in rows]
    print("\n".join([rule, lines[0], rule, *lines[1:], rule]))


STATUS_OK, STATUS_ERROR, STATUS_NO_KERNEL, STATUS_UNSUPPORTED = 0, -1, -2, -3


@dataclasses.dataclass
class GemmResult:
    """One product. `success`: it ran. `verified`: it was compared with the fp64 reference, too."""

    output: Any
    time_ms: float
    status: int  # 0, -1 error, -2 no kernel for the problem, -3 the kernel refused it
    tflops: float
    kernel_name: str
    error: str = ""
    verified: bool = False
    target: str = ""

    @property
    def success(self) -> bool:
        return self.status == STATUS_OK

    @property
    def unsupported(self) -> bool:
        return self.status == STATUS_UNSUPPORTED

    @property
    def C(self) -> Any:
        return self.output


def _status_of(error: Error) -> int:
    missing = error.code in ("unsupported", "not_found", "illegal_spec")
    return STATUS_NO_KERNEL if missing else STATUS_ERROR


class DispatcherLib(_libraries.Library):
    """What the original's library was: the kernels of one configuration for one target."""

    def __init__(self, config: Optional[KernelConfig] = None) -> None:
        super().__init__(config or KernelConfig(), _gemm.wish_of)
        self._measures = self._measures and self.config.variant != "preshuffle"

    @classmethod
    def load(cls, path: Optional[Any] = None) -> Optional["DispatcherLib"]:
        """path: a file of setup_multiple_gemm_dispatchers(), the C library of GEMM, or Tessera's
        own, which has the default configuration, as None has."""
        if path is None:
            return cls()
        place = pathlib.Path(path)
        if _c_library.is_library(place):
            return _of_library(cls, place)
        made = cls(_files.config_of(place, KernelConfig))
        made._file = place
        return made

    @classmethod
    def auto(cls, recompile: bool = False, verbose: bool = True) -> Optional["DispatcherLib"]:
        _hints.of_argument("recompile", recompile, False)
        made = cls()
        if verbose:
            print(made.target)
        return made if made.initialize() else None

    @classmethod
    def compile(cls, output_path: Optional[Any] = None, verbose: bool = True
                ) -> Optional[pathlib.Path]:
        """Builds the default configuration's kernels. output_path: the folder of the list."""
        return setup_multiple_gemm_dispatchers([KernelConfig()], output_path, verbose)[0]

    get_kernel_count = _libraries.Library.kernel_count

    def is_supported(self, M: int, N: int, K: int) -> bool:
        return self.select_kernel(M, N, K) is not None

    def get_kernel_name(self) -> str:
        return self.wish.kernels[0] if self.wish.kernels else ""

    def select_kernel(self, M: int, N: int, K: int) -> Optional[str]:
        """The chosen kernel's lossless name; builds nothing, and needs no such machine."""
        decision = self._decided(M, N, K)
        return decision["kernel"] if decision else None

    def _decided(self, M: int, N: int, K: int) -> Optional[Dict[str, Any]]:
        _checked.sizes(M=M, N=N, K=K)
        if min(M, N, K) <= 0:
            return None
        return self._decision((M, N, K), lambda: _gemm.problem_of(self.config, M, N, K))

    def _plan(self, M: int, N: int, K: int) -> Any:
        return self._plan_of((M, N, K), lambda: _gemm.problem_of(self.config, M, N, K))

    def run_gemm(self, A: Any, B: Any, C: Any, M: int, N: int, K: int, D: Sequence[Any] = (),
                 verify: bool = False) -> Tuple[int, float]:
        """(status, ms): a STATUS_*, with the sentence in `last_error`."""
        self.last_error, self.last_kernel = self.refusal(), ""
        if self.last_error or not self.wish.kernels:
            return STATUS_ERROR if self.wish.kernels else STATUS_NO_KERNEL, -1.0
        plan = None
        try:
            plan = self._plan(M, N, K)
            arrays = {"a": A, "b": B, "out": C, **{f"d{i}": d for i, d in enumerate(D)}}
            if self.config.variant == "preshuffle":
                seconds = self._run_packed(plan, arrays, verify)
            else:
                seconds = _launching.launch(plan, arrays, verify=verify)
            self.last_kernel = plan.kernel
            return 0, seconds * 1e3
        except Error as error:
            self.last_error = str(error)
            refused = plan is not None and error.code == "unsupported"
            return STATUS_UNSUPPORTED if refused else _status_of(error), -1.0

    run = run_gemm

    def _run_packed(self, plan: Any, arrays: Dict[str, Any], verify: bool) -> float:
        """The library's reference needs B as it was, so that the comparison is made here."""
        seconds = _launching.launch_packed(plan, arrays)
        if verify:
            self._compare(plan.kernel, arrays["a"], arrays["b"], arrays["out"])
        return seconds

    def _compare(self, kernel: str, *arrays: Any) -> None:
        """Raises Error where an element of the product is outside its tolerance."""
        a, b, out = (array.astype(numpy.float64) for array in arrays)
        half = 2.0 ** -{"fp16": 11, "bf16": 8}.get(self.config.dtype_c, 24)
        sizes = abs(a) @ abs(b)
        wrong = ~(abs(out - a @ b) <= ((a.shape[1] + 4) * 2.0**-24 + half) * sizes + 1e-30)
        if wrong.any():
            raise Error(f"{kernel}: {int(wrong.sum())} of {wrong.size} elements are outside their "
                        "tolerance", "verification_failed")

    last_error = ""
    last_kernel = ""

    def export_registry_json(self) -> str:
        return gemm_registry_json(self.wish.kernels, self.target)

    export_json = export_registry_json


class _CDispatcherLib(DispatcherLib):
    """The C library's own functions; its configuration says what it computes, and for what target.
    """

    def __init__(self, library: _c_library.CLibrary) -> None:
        super().__init__(KernelConfig(**library.fields()))
        self._c, self._file = library, library.path

    def select_kernel(self, M: int, N: int, K: int) -> Optional[str]:
        _checked.sizes(M=M, N=N, K=K)
        return self._c.select(M, N, K)

    def run_gemm(self, A: Any, B: Any, C: Any, M: int, N: int, K: int, D: Sequence[Any] = (),
                 verify: bool = False) -> Tuple[int, float]:
        self.last_error = "the C library's products have no D tensors" if len(D) else ""
        if self.last_error:
            return STATUS_ERROR, -1.0
        status, ms = self._c.run(A, B, C, M, N, K)
        if status:
            self.last_error = self._c.last_error()
            return status, ms
        self.last_kernel = self.select_kernel(M, N, K) or ""
        try:
            if verify:
                self._compare(self.last_kernel, A, B, C)
        except Error as error:
            self.last_error = str(error)
            return STATUS_ERROR, -1.0
        return status, ms

    run = run_gemm


def _of_library(cls: Any, path: pathlib.Path) -> DispatcherLib:
    """Raises Error for a library that is neither the C library nor Tessera's."""
    library = _c_library.opened(path)
    if hasattr(library, "dispatcher_run_gemm"):
        return _CDispatcherLib(_c_library.CLibrary(path, library))
    if not hasattr(library, "tsr_abi"):
        raise Error(f"{path} has neither the functions of the C library of GEMM, such as "
                    "dispatcher_run_gemm, nor those of Tessera", "not_found")
    made = cls()
    made._file = path
    return made  # type: ignore[no-any-return]


def _stored(array: Any, dtype: str, letter: str, what: str) -> Any:
    """The matrix in the type and the order of the kernel; copied only where either differs."""
    wanted = _dtypes.numpy_dtype(dtype, getattr(array, "dtype", None))
    given = numpy.asarray(array)
    if given.ndim != 2:
        raise Error(f"{what} must have two dimensions, got {given.ndim}")
    return numpy.asarray(_checked.as_numbers(given, wanted, what),
                         order="C" if letter == "r" else "F")


class GemmRunner:
    """Runs products on NumPy's arrays: A is M x K, B is K x N."""

    def __init__(self, lib: DispatcherLib) -> None:
        self.lib = lib

    def run(self, A: Any, B: Any, dtype: Any = None, D: Sequence[Any] = (), verify: bool = False
            ) -> GemmResult:
        """dtype: of the result, where it is not the configuration's. verify: the result is compared
        with the fp64 reference, and a wrong one is no success."""
        config = self.lib.config
        word = config.dtype_c if dtype is None else tessera._dtypes.word_of(dtype, "dtype")
        if word != config.dtype_c:
            config = dataclasses.replace(config, dtype_c=word)
            self.lib = DispatcherLib(config)
        if not len(D) and _gemm.is_plain_without_d(config):
            _hints.of_argument("variant", "multi_d", "standard")
            config = dataclasses.replace(config, variant="standard")
            self.lib = DispatcherLib(config)
        shapes = numpy.shape(A), numpy.shape(B)
        if tuple(map(len, shapes)) != (2, 2):
            raise Error(f"A and B must have two dimensions, got the shapes {shapes[0]} and "
                        f"{shapes[1]}")
        (M, K), (K2, N) = shapes
        if K != K2:
            raise Error(f"A has {K} columns and B {K2} rows; the two must be equal")
        if isinstance(B, tessera.PackedWeight):
            return self._run_shuffled(A, B, verify)
        if config.variant != "standard" and config.elementwise_op == "PassThrough":
            D = ()  # reads none, as in the original
        letters = config.layout
        try:
            a = _stored(A, config.dtype_a, letters[0], "A")
            b = _stored(B, config.dtype_b, letters[1], "B")
            d = [_stored(each, config.dtype_c, letters[2], "D") for each in D]
            out_type = _dtypes.numpy_dtype(config.dtype_c, a.dtype)
            out = numpy.empty((M, N), out_type, order="C" if letters[2] == "r" else "F")
        except Error as error:
            return GemmResult(None, -1.0, -1, 0.0, "", str(error), False, self.lib.target.name)
        status, ms = self.lib.run_gemm(a, b, out, M, N, K, d, verify)
        tflops = 2.0 * M * N * K / (ms * 1e9) if status == 0 and ms > 0 else 0.0
        return GemmResult(out if status == 0 else None, ms, status, tflops, self.lib.last_kernel,
                          self.lib.last_error, verify and status == 0, self.lib.target.name)

    def _run_shuffled(self, A: Any, B: tessera.PackedWeight, verify: bool) -> GemmResult:
        """By the kernel for which B was packed, which is of Tessera's choice."""
        target = self.lib.target
        try:
            if verify:
                raise Error("a product with a packed B cannot be compared, because the reference "
                            "needs B as it was", "unsupported")
            out, ms, kernel = _shuffled.multiply(A, B, self.lib.config, target)
        except Error as error:
            return GemmResult(None, -1.0, -1, 0.0, "", str(error), False, target.name)
        flops = 2.0 * B.shape[0] * out.shape[0] * out.shape[1]
        return GemmResult(out, ms, 0, flops / (ms * 1e9) if ms > 0 else 0.0, kernel, "", False,
                          target.name)

    def benchmark(self, M: int, N: int, K: int, warmup: int = 2, iterations: int = 10
                  ) -> Dict[str, Any]:
        """Times random operands, whose result is compared with the reference first."""
        if refusal := _targets.why_not_here(self.lib.target):
            raise Error(refusal, "unsupported")
        plan = self.lib._plan(M, N, K)
        found = plan.bench(rounds=iterations, warmup=warmup)
        return {"M": M, "N": N, "K": K, "kernel_name": plan.kernel,
                "avg_time_ms": 1e3 * sum(found["seconds"]) / len(found["seconds"]),
                "min_time_ms": 1e3 * found["min_seconds"],
                "median_time_ms": 1e3 * found["median_seconds"],
                "tflops": found["gflops"] / 1e3}


class Validator(_checked.ElementValidator):
    """Compares a result with a reference, element by element: one wrong element fails. check()
    gives (all elements are near, largest difference, mean difference); a NaN is near nothing."""

    def __init__(self, rtol: float = 1e-3, atol: float = 1e-2) -> None:
        super().__init__(rtol, atol)

    def _further(self, difference: Any, wanted: Any) -> Any:
        return difference.mean()

    def compute_reference(self, A: Any, B: Any) -> Any:
        return numpy.matmul(numpy.asarray(A).astype(numpy.float64),
                            numpy.asarray(B).astype(numpy.float64))


class Registry(_libraries.Configurations):
    """The kernels of several configurations."""

    _make_library = DispatcherLib

    def __init__(self, lib: Optional[DispatcherLib] = None, name: str = "default") -> None:
        super().__init__(name)
        self._lib = lib

    def get_kernels(self) -> List[KernelConfig]:
        return list(self._configs)

    def clear(self) -> None:
        self._configs.clear()

    def bind_library(self, lib: DispatcherLib) -> None:
        self._lib = lib

    @property
    def kernel_count(self) -> int:
        return len(self._configs)

    @property
    def lib(self) -> Optional[DispatcherLib]:
        return self._lib

    def build(self, verbose: bool = False, max_workers: Optional[int] = None
              ) -> List["GemmSetupResult"]:
        """Builds all configurations' kernels, `max_workers` at a time; the results' order is that
        of registering."""
        paths = setup_multiple_gemm_dispatchers(self._configs, None, verbose, max_workers)
        results = []
        for config, path in zip(self._configs, paths):
            lib = DispatcherLib(config)
            registry = Registry(lib, self.name)
            registry.register_kernel(config)
            results.append(GemmSetupResult(
                path is not None, Dispatcher(registry, lib), lib, registry, None, config, path,
                "" if path else "; ".join(lib.wish.corrections), lib.wish.corrections))
        return results

    def select(self, M: int, N: int, K: int) -> Optional[KernelConfig]:
        """The configuration whose kernel is predicted to be the fastest; None where none fits."""
        return _libraries.fastest(self._fitting(lambda lib: lib._decided(M, N, K)))


class Dispatcher:
    """Chooses and runs what a registry has."""

    def __init__(self, registry: Registry, lib: Optional[DispatcherLib] = None) -> None:
        self.registry = registry
        self._lib = lib or registry.lib

    def __repr__(self) -> str:
        return (f"Dispatcher(registry={self.registry.name!r}, "
                f"kernels={len(self.registry.get_kernels())})")

    def _lib_for(self, M: int, N: int, K: int) -> DispatcherLib:
        configs = self.registry.get_kernels()
        if len(configs) < 2 and (self._lib or not configs):
            if self._lib is None:
                raise Error("the registry has no kernel", "not_found")
            return self._lib
        config = self.registry.select(M, N, K)
        if config is None:
            raise Error(f"no kernel of the registry computes {M} x {N} x {K}", "not_found")
        return self.registry._lib_of(config)

    def select_kernel(self, M: int, N: int, K: int) -> Optional[str]:
        try:
            return self._lib_for(M, N, K).select_kernel(M, N, K)
        except Error as error:
            if error.code == "not_found":
                return None
            raise

    def is_supported(self, M: int, N: int, K: int) -> bool:
        return self.select_kernel(M, N, K) is not None

    def run(self, A: Any, B: Any, M: int, N: int, K: int, D: Sequence[Any] = (),
            verify: bool = False) -> GemmResult:
        _checked.sizes(M=M, N=N, K=K)
        shapes = numpy.shape(A), numpy.shape(B)
        if shapes != ((M, K), (K, N)):
            raise Error(f"A and B have the shapes {shapes[0]} and {shapes[1]}, but M={M} N={N} "
                        f"K={K} asks for {(M, K)} and {(K, N)}")
        return GemmRunner(self._lib_for(M, N, K)).run(A, B, D=D, verify=verify)


@dataclasses.dataclass
class GemmSetupResult:
    success: bool
    dispatcher: Optional[Dispatcher] = None
    lib: Optional[DispatcherLib] = None
    registry: Optional[Registry] = None
    codegen: Optional[CodegenRunner] = None
    config: Optional[KernelConfig] = None
    kernel_header: Optional[pathlib.Path] = None
    error: str = ""
    corrections: List[str] = dataclasses.field(default_factory=list)

    def __iter__(self) -> Iterator[Any]:
        """lib, dispatcher, registry, as the documents unpack it. Raises Error where there are
        none."""
        if not self.success:
            raise Error(self.error, "not_found")
        return iter((self.lib, self.dispatcher, self.registry))


def setup_gemm_dispatcher(config: Union[KernelConfig, Sequence[KernelConfig]],
                          registry_name: str = "gemm_registry", verbose: bool = True,
                          auto_rebuild: bool = True) -> GemmSetupResult:
    """Corrects the configuration where it is illegal, and builds its kernels (auto_rebuild). Of
    several, the dispatcher chooses for each problem; all of them must have kernels."""
    if isinstance(config, KernelConfig):
        return _set_up_one(config, registry_name, verbose, auto_rebuild)
    if not config:
        return GemmSetupResult(False, error="no configuration is given")
    results = [_set_up_one(each, registry_name, verbose, auto_rebuild) for each in config]
    failed = next((each for each in results if not each.success), None)
    if failed is not None:
        return failed
    registry = Registry(results[0].lib, registry_name)
    for each in results:
        registry.register_kernel(each.config)
    return dataclasses.replace(
        results[0], registry=registry, dispatcher=Dispatcher(registry, results[0].lib),
        corrections=[sentence for each in results for sentence in each.corrections])


def _set_up_one(config: KernelConfig, registry_name: str, verbose: bool, auto_rebuild: bool
                ) -> GemmSetupResult:
    try:
        corrected, changed, corrections = auto_correct_kernel_config(config)
        lib = DispatcherLib(corrected)
    except Error as error:
        return GemmSetupResult(False, config=config, error=str(error))
    if verbose:
        print(lib.target)
        for sentence in corrections:
            print(f"  {sentence}")
    if not lib.wish.kernels:
        return GemmSetupResult(False, config=config, error="; ".join(lib.wish.corrections),
                               corrections=corrections)
    failed = _files.build(lib.target, lib.wish.kernels) if auto_rebuild else {}
    if len(failed) == len(lib.wish.kernels):
        return GemmSetupResult(False, config=corrected, error=next(iter(failed.values())),
                               corrections=corrections)
    if auto_rebuild:
        _libraries.list_file(lib, f"libdispatcher_gemm_{corrected.file_str}",
                             [name for name in lib.wish.kernels if name not in failed])
    registry = Registry(lib, registry_name)
    registry.register_kernel(corrected)
    codegen = CodegenRunner(datatype=corrected.dtype_a, layout=corrected.layout,
                            gpu_target=corrected.gfx_arch)
    return GemmSetupResult(True, Dispatcher(registry, lib), lib, registry, codegen, corrected,
                           None, "", corrections)


def setup_multiple_gemm_dispatchers(configs: Sequence[KernelConfig],
                                    output_dir: Optional[Any] = None, verbose: bool = True,
                                    max_workers: Optional[int] = None
                                    ) -> List[Optional[pathlib.Path]]:
    """Builds the kernels of all configurations, `max_workers` at a time. Returns a file for each,
    for DispatcherLib.load(), and None for one that has no kernel; a sentence is printed then. No
    GPU is started."""
    libs = [DispatcherLib(config) for config in configs]
    return _libraries.set_up(libs, output_dir, verbose, max_workers)


def is_preshuffle_supported(pipeline: str = "preshufflev2", layout: str = "rcr",
                            dtype: str = "fp16", arch: Optional[str] = None) -> bool:
    """Whether the target has kernels that read a B packed before. A target may stand first, too."""
    if arch is None and _targets.plain_name(pipeline) in _targets.rows():
        arch = pipeline
    target = _targets.resolve(arch)
    return bool(_gemm.legal_kernels(target, dtype, layout, ["preshuffle"]))


def preshuffle_weight_matrix(B: Any, warp_tile_n: int = 0, warp_tile_k: int = 0,
                             arch: Optional[str] = None) -> _shuffled.ShuffledWeight:
    """B, K x N, packed for the kernel that Tessera chooses; tessera.matmul and GemmRunner take it
    as B. The warp tile is the kernel's own."""
    _hints.of_argument("warp_tile_n", warp_tile_n, 0)
    _hints.of_argument("warp_tile_k", warp_tile_k, 0)
    if refusal := _targets.why_not_here(_targets.resolve(arch)):
        raise Error(refusal, "unsupported")
    return _shuffled.ShuffledWeight(tessera.prepack(B))


def cleanup_gemm() -> None:
    """Nothing is global; kernels stay in the cache."""


def reset_for_example() -> None:
    """Nothing is global, so that an example begins as a program does."""
