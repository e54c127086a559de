"""Attention from Python: configurations, building, running, gradients, references.

Arrays are (batch, heads, tokens, elements of a head).
"""
from __future__ import annotations

import dataclasses
import json
import math
import time
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import numpy

import tessera
from tessera import Error
from tessera_ck import checked as _checked
from tessera_ck import dtypes as _dtypes
from tessera_ck import fields as _fields
from tessera_ck import fmha as _fmha
from tessera_ck import fmha_calls as _fmha_calls
from tessera_ck import fmha_configs as _fmha_configs
from tessera_ck import hints as _hints
from tessera_ck import libraries as _libraries
from tessera_ck import targets as _targets

from dispatcher_common import ValidationResult, detect_gpu_arch, result_of

__all__ = ["FmhaDispatcherLib", "FmhaKernelConfig", "FmhaKernelSpec", "FmhaProblem",
           "FmhaRegistry", "FmhaResult", "FmhaRunner", "FmhaSetupResult", "FmhaValidator",
           "cpu_attention_bwd", "cpu_attention_fwd", "cpu_attention_fwd_with_intermediates",
           "detect_gpu_arch", "fmha_compile_flags", "setup_fmha_dispatcher",
           "setup_multiple_fmha_dispatchers", "spec_to_config", "validate_fmha_config"]


@dataclasses.dataclass
class FmhaResult:
    """success: it ran; with verify it was compared with the fp64 reference. outputs: everything
    that was written, by name."""

    success: bool
    output: Any = None
    time_ms: float = 0.0
    tflops: float = 0.0
    error: str = ""
    kernel_name: str = ""
    target: str = ""
    outputs: Dict[str, Any] = dataclasses.field(default_factory=dict)


def _shape(*names: str) -> Any:
    """A method that gives the problem's numbers of these names, behind the batch."""
    return lambda self: tuple(getattr(self, name) for name in ("batch", *names))


@_fields.table(("batch", 2), ("nhead_q nhead_k", 8), ("seqlen_q seqlen_k hdim_q hdim_v", 128))
class FmhaProblem:
    q_shape = _shape("nhead_q", "seqlen_q", "hdim_q")
    k_shape = _shape("nhead_k", "seqlen_k", "hdim_q")
    v_shape = _shape("nhead_k", "seqlen_k", "hdim_v")
    o_shape = _shape("nhead_q", "seqlen_q", "hdim_v")

    @property
    def scale(self) -> float:
        return 1.0 / math.sqrt(self.hdim_q)

    @property
    def num_ops(self) -> int:
        scores = self.batch * self.nhead_q * self.seqlen_q * self.seqlen_k
        return 2 * scores * (self.hdim_q + self.hdim_v)


@_fields.table(
    ("family", "fwd"), ("data_type", "fp16"), ("mode", "batch"), ("vlayout", "r"),
    ("hdim_q hdim_v", 128), ("gfx_arch", None), ("tile_m0 tile_n0", 128),
    ("tile_k0 tile_n1 tile_k1", (32, 128, 32), _hints.OWN), ("tile_k0max", 128),
    ("wave_m0 wave_n0 wave_k0", (4, 1, 1), _hints.OWN),
    ("wave_m1 wave_n1 wave_k1", (4, 1, 1), _hints.OWN),
    ("wave_m2 wave_n2 wave_k2", 1, _hints.OWN),
    ("warp_m0 warp_n0 warp_k0", (32, 32, 16), _hints.OWN),
    ("warp_m1 warp_n1 warp_k1", (32, 32, 16), _hints.OWN),
    ("warp_m2 warp_n2 warp_k2", 16, _hints.OWN),
    ("pad_s pad_sk pad_d pad_dv", 1, _hints.ANY_SIZE), ("pipeline", "qr_async"),
    ("block_per_cu num_wave_groups", (-1, 1), _hints.OWN), ("mask bias", "no"),
    ("lse dropout", False), ("qscale", "no"), ("rope", "none"),
    ("logits paged_kv sink skip_min_seqlen_q", False), ("page_size", 1),
    ("kv_memory_layout", "vectorized"), ("kv_lookup_table", "sglang"),
    ("deterministic dbias", False), ("use_trload", False, _hints.OWN), either="mask bias")
class FmhaKernelConfig:
    """gfx_arch: None means this machine."""

    def target(self) -> _targets.Target:
        return _targets.resolve(self.gfx_arch)

    @property
    def name(self) -> str:
        """Everything that differs from the defaults is in the name."""
        words = ["fmha", self.family, self.data_type, self.mode, f"h{self.hdim_q}x{self.hdim_v}",
                 self.pipeline]
        known = {"family", "data_type", "mode", "hdim_q", "hdim_v", "pipeline"}
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.name not in known and value != field.default:
                words.append(f"{field.name.replace('_', '')}{value}")
        return "_".join(words)

    def _all(self, *names: str) -> Tuple[int, ...]:
        return tuple(getattr(self, name) for name in names)

    @property
    def tile(self) -> Tuple[int, ...]:
        return self._all("tile_m0", "tile_n0", "tile_k0", "tile_n1", "tile_k1", "tile_k0max")

    @property
    def wave(self) -> Tuple[int, ...]:
        return self._all(*(f"wave_{axis}{stage}" for stage in range(3) for axis in "mnk"))

    @property
    def warp(self) -> Tuple[int, ...]:
        return self._all(*(f"warp_{axis}{stage}" for stage in range(3) for axis in "mnk"))

    @property
    def padding(self) -> Tuple[bool, ...]:
        return tuple(map(bool, self._all("pad_s", "pad_sk", "pad_d", "pad_dv")))

    def to_codegen_json(self) -> str:
        """What codegen/fmha/codegen.py takes as --config-json: {"arch", "signature",
        "algorithm"}."""
        return json.dumps(_fmha_configs.parts_of(self), sort_keys=True)


def validate_fmha_config(config: FmhaKernelConfig) -> ValidationResult:
    """Whether the target has kernels for the configuration, and each rule's sentence if not. On the
    original's targets its own rules are asked, too."""
    try:
        wish = _fmha.named_kernels(config, config.target())
        if errors := _fmha_configs.original_errors(config):
            return ValidationResult(False, errors)
        _fmha.builder_of(FmhaProblem(hdim_q=config.hdim_q, hdim_v=config.hdim_v), config.family,
                         config.data_type, mask_type=config.mask, bias_type=config.bias,
                         rope=config.rope, page_size=config.page_size).build()
    except Error as error:
        return ValidationResult(False, [str(error)])
    return result_of(wish)


def _validate_batch_prefill_input_dtypes(api_family: str, data_type: str, Q: Any, K: Any, V: Any
                                         ) -> None:
    """Raises ValueError where batch_prefill would get queries of another type than its cache."""
    types = [numpy.asarray(each).dtype for each in (Q, K, V)]
    if api_family == "batch_prefill" and len(set(types)) > 1:
        raise ValueError(f"batch_prefill with {data_type} does not yet support mixed Q/KV dtypes: "
                         f"Q is {types[0]}, K {types[1]} and V {types[2]}")


# ---- References ----------------------------------------------------------------------------------

def cpu_attention_fwd(Q: Any, K: Any, V: Any, scale: float, mask_type: Any = 0) -> Any:
    """In fp64; consecutive query heads share one of K and V."""
    return _fmha.reference(Q, K, V, scale, mask_type)[0]


def cpu_attention_fwd_with_intermediates(Q: Any, K: Any, V: Any, scale: float, mask_type: Any = 0
                                         ) -> Tuple[Any, Any]:
    """(out, probabilities)"""
    return _fmha.reference(Q, K, V, scale, mask_type)[:2]


def cpu_attention_lse(Q: Any, K: Any, V: Any, scale: float, mask_type: Any = 0) -> Any:
    """The logarithm of the sum of each query's exponentials, which run_bwd() takes."""
    return _fmha.reference(Q, K, V, scale, mask_type)[2]


def cpu_attention_bwd(Q: Any, K: Any, V: Any, out: Any, dO: Any, P: Any, scale: float
                      ) -> Tuple[Any, Any, Any]:
    """(dQ, dK, dV) in fp64, from what the forward function returned."""
    q, k, v, o, do, p = (numpy.asarray(x).astype(numpy.float64) for x in (Q, K, V, out, dO, P))
    share = q.shape[1] // k.shape[1]
    k, v = (numpy.repeat(x, share, axis=1) for x in (k, v))
    ds = p * (do @ v.transpose(0, 1, 3, 2) - (do * o).sum(-1, keepdims=True))
    dq = scale * (ds @ k)
    dk = scale * (ds.transpose(0, 1, 3, 2) @ q)
    dv = p.transpose(0, 1, 3, 2) @ do
    shared = (dk.shape[0], -1, share, *dk.shape[2:])
    return dq, dk.reshape(shared).sum(2), dv.reshape(*shared[:4], dv.shape[-1]).sum(2)


class FmhaValidator(_checked.ElementValidator):
    """Compares element by element: one wrong element fails. check() gives (all elements are near,
    largest difference, largest relative difference)."""

    def __init__(self, rtol: float = 1e-2, atol: float = 1e-2) -> None:
        super().__init__(rtol, atol)

    def _further(self, difference: Any, wanted: Any) -> Any:
        return (difference / numpy.maximum(abs(wanted), 1e-9)).max()


# ---- Running -------------------------------------------------------------------------------------

class FmhaDispatcherLib(_libraries.Library):
    """The kernels of one configuration for one target."""

    def __init__(self, config: Optional[FmhaKernelConfig] = None) -> None:
        super().__init__(config or FmhaKernelConfig(), _fmha.named_kernels)

    def live(self, deterministic: bool = False) -> tessera.Dispatcher:
        return self._live(deterministic)

    def plan(self, problem: tessera.Problem, deterministic: bool = False) -> tessera.Plan:
        """Measures where no model knows the problem, and keeps the winner."""
        return self._plan_of((problem.line, deterministic), lambda: problem, deterministic)


class FmhaRunner(_libraries.LateRunner):
    """As LateRunner, on NumPy's arrays."""

    _make_library, _make_config = FmhaDispatcherLib, FmhaKernelConfig

    def __init__(self, config: Any = None, library_path: Optional[Any] = None) -> None:
        """config: an FmhaKernelConfig, or an FmhaDispatcherLib, which knows its target."""
        is_library = isinstance(config, FmhaDispatcherLib)
        super().__init__(None if is_library else library_path,
                         config.config if is_library else config)
        if is_library:
            self._lib = config

    @property
    def kernel_count(self) -> int:
        return self.lib.kernel_count()

    @classmethod
    def from_prebuilt(cls, arch: Optional[str] = None) -> "FmhaRunner":
        """With the kernels that are shipped for a target; None: this machine."""
        return cls(FmhaKernelConfig(gfx_arch=arch))

    @classmethod
    def from_library(cls, path: Any, arch: Optional[str] = None) -> "FmhaRunner":
        """path: of setup_multiple_fmha_dispatchers(). Where a target is named it must be the
        file's."""
        runner = cls(None, path)
        if arch is not None and runner.lib.target.name != _targets.resolve(arch).name:
            raise Error(f"{path} holds kernels for {runner.lib.target.name}, not for {arch}")
        return runner

    def run(self, Q: Any, K: Any, V: Any, prob: FmhaProblem, mask_type: Any = 0,
            bias_type: Any = 0, has_lse: bool = False, has_dropout: bool = False,
            has_logits: bool = False, has_sink: bool = False, has_skip: bool = False,
            api_family: str = "fwd", data_type: Any = None, verify: bool = False, **kw: Any
            ) -> FmhaResult:
        """data_type: the configuration's if left out. kw: bias, slopes, window, num_splits,
        page_size, kv_lookup, rope, and the values of what the switches turn on: dropout, soft_cap,
        sink, skip. Where a switch has no value the original's is taken: dropout 0.2 with seed 1,
        soft cap 30, 4 sink tokens, 1 query. The original's window_left, window_right, rope_type and
        paged_kv are taken, too, and its short words of families.

        Families with pages put K and V into pages that follow each other. fwd_appendkv writes K and
        V, the new ones, into an empty cache, and turns Q where rope asks for it.
        """
        try:
            api_family = _fmha_calls.translated(api_family, prob.seqlen_q, kw)
            data_type = self.lib.config.data_type if data_type is None else data_type
        except Error as error:
            return FmhaResult(False, error=str(error))
        if kw.get("skip_min_seqlen_q"):
            has_skip, kw["skip"] = True, kw["skip_min_seqlen_q"]
        kw.pop("skip_min_seqlen_q", None)
        given = {"mask_type": mask_type, "bias_type": bias_type, "lse": has_lse}
        for name, is_on, usual in (("dropout", has_dropout, _fmha.P_DROP),
                                   ("soft_cap", has_logits, _fmha.SOFT_CAP),
                                   ("sink", has_sink, _fmha.SINK), ("skip", has_skip, 1)):
            given[name] = kw.pop(name, usual) if is_on else 0
        arrays = {name: kw.pop(name) for name in ("bias", "slopes") if name in kw}
        given.update({name: kw.pop(name) for name in (
            "window", "num_splits", "page_size", "kv_lookup", "rope") if name in kw})
        _checked.texts(api_family=api_family)
        _validate_batch_prefill_input_dtypes(api_family, data_type, Q, K, V)
        _checked.sizes(**{name: given[name] for name in ("num_splits", "page_size", "sink", "skip")
                          if given.get(name) is not None})
        if given.get("window") is not None:
            left, right = given["window"] if numpy.shape(given["window"]) == (2,) else (None, None)
            _checked.sizes(**{"window[0]": left, "window[1]": right})
        if kw:
            raise TypeError(f"run() has no argument {', '.join(kw)}")
        return self._guarded(lambda: self._run((Q, K, V), prob, api_family, data_type, given,
                                               arrays, verify))

    def run_bwd(self, Q: Any, K: Any, V: Any, out: Any, LSE: Any, dO: Any, prob: FmhaProblem,
                data_type: Any = None, mask_type: Any = 0, bias_type: Any = 0,
                has_dropout: bool = False, has_dbias: bool = False, is_deterministic: bool = False,
                is_group_mode: bool = False, is_store_randval: bool = False, tile_n0: int = 128,
                verify: bool = False, bias: Any = None) -> FmhaResult:
        """output: (dQ, dK, dV), with has_dbias also dbias. tile_n0 changes nothing."""
        try:
            _fmha_calls.plain("run_bwd()", {"is_group_mode": is_group_mode,
                                            "is_store_randval": is_store_randval})
            data_type = self.lib.config.data_type if data_type is None else data_type
        except Error as error:
            return FmhaResult(False, error=str(error))
        given = {"mask_type": mask_type, "bias_type": bias_type, "dbias": has_dbias,
                 "dropout": _fmha.P_DROP if has_dropout else 0.0,
                 "deterministic": is_deterministic}
        arrays = {"out": out, "lse": LSE, "dout": dO}
        if bias is not None:
            arrays["bias"] = bias
        return self._guarded(lambda: self._run((Q, K, V), prob, "bwd", data_type, given, arrays,
                                               verify))

    def _guarded(self, work: Callable[[], FmhaResult]) -> FmhaResult:
        try:
            if refusal := self.lib.refusal():
                return FmhaResult(False, error=refusal, target=self.lib.target.name)
            return work()
        except Error as error:
            return FmhaResult(False, error=str(error))

    def _run(self, qkv: Tuple[Any, Any, Any], prob: FmhaProblem, family: str, data_type: str,
             given: Dict[str, Any], arrays: Dict[str, Any], verify: bool) -> FmhaResult:
        _checked.fields(prob)
        _checked.texts(data_type=data_type)
        shapes = (prob.q_shape(), prob.k_shape(), prob.v_shape())
        if family == "fwd_appendkv":
            shapes = (prob.q_shape(), (prob.batch, prob.nhead_k, prob.seqlen_q, prob.hdim_q),
                      (prob.batch, prob.nhead_k, prob.seqlen_q, prob.hdim_v))
        q, k, v = (_typed(x, data_type, shape, name)
                   for x, shape, name in zip(qkv, shapes, ("Q", "K", "V")))
        problem, operands = _arranged(q, k, v, prob, family, data_type, given)
        for name, array in arrays.items():
            operand = next((op for op in problem.operands if op.name == name), None)
            if operand is None:
                raise Error(f"{name} is given, but the switches ask for none", "not_found")
            operands[name] = _fmha.fitted(array, operand)
        page = given.get("page_size") or _fmha.PAGE
        operands.update(_fmha.own_operands(problem, prob, page, operands))
        plan = self.lib.plan(problem, bool(given.get("deterministic")))
        ran = self.lib._ran(plan, operands, problem.flops, verify)
        written = {op.name: operands[op.name] for op in problem.operands if op.access != "read"}
        if "lse" in written and written["lse"].shape[-1] == 1:
            written["lse"] = written["lse"][..., 0]
        return FmhaResult(**ran, output=_output_of(family, written, prob), outputs=written)


def _typed(array: Any, dtype: str, shape: Sequence[int], name: str) -> Any:
    """The array in the kernel's type, without gaps; copied where it differs."""
    given = numpy.asarray(array)
    if given.size != math.prod(shape):
        raise Error(f"{name} must have the shape {tuple(shape)}, got {given.shape}")
    stored = {"fp8fp16": "fp8", "fp8bf16": "fp8", "fp8fp32": "fp8"}.get(dtype, dtype)
    wanted = _dtypes.numpy_dtype(stored, given.dtype)
    return numpy.ascontiguousarray(_checked.as_numbers(given.reshape(shape), wanted, name))


def _arranged(q: Any, k: Any, v: Any, prob: FmhaProblem, family: str, data_type: str,
              given: Dict[str, Any]) -> Tuple[tessera.Problem, Dict[str, Any]]:
    """The problem, and Q, K and V as it reads them."""
    problem = _fmha.builder_of(prob, family, data_type, **given).build()
    if family in ("fwd_pagedkv", "batch_prefill"):
        page = given.get("page_size") or _fmha.PAGE
        operands = {"k": _fmha.pages_of(k, page).transpose(0, 2, 1, 3),
                    "v": _fmha.pages_of(v, page).transpose(0, 2, 1, 3), "q": q}
        if family == "batch_prefill":  # tokens of all sequences, one behind the other
            packed = q.transpose(0, 2, 1, 3).reshape(-1, *q.shape[1::2])
            operands["q"] = numpy.ascontiguousarray(packed)[None].transpose(0, 2, 1, 3)
            return problem, operands
        return _fmha.with_strides(problem, ("q", "out")), operands
    names = ("q", "k", "v", "out", "dout", "dq", "dk", "dv", "k_new", "v_new")
    if family == "fwd_appendkv" and given.get("rope", "none") != "none":
        problem = tessera.Problem(problem.line, rotate_q=1)
    problem = _fmha.with_strides(problem, names)
    operands = {"q": q, "k": k, "v": v}
    if family == "fwd_appendkv":
        operands = {"k_new": k, "v_new": v}
        if any(op.name == "q" for op in problem.operands):
            operands["q"] = q
    return problem, operands


def _output_of(family: str, written: Dict[str, Any], prob: FmhaProblem) -> Any:
    if family == "bwd":
        return tuple(written[name] for name in ("dq", "dk", "dv", "dbias") if name in written)
    if family == "fwd_appendkv":
        return written.get("out", written["k"])
    if family == "batch_prefill":
        tokens = written["out"].reshape(prob.nhead_q, prob.batch, prob.seqlen_q, prob.hdim_v)
        return numpy.ascontiguousarray(tokens.transpose(1, 0, 2, 3))
    return written["out"]


# ---- Setting up ----------------------------------------------------------------------------------

@dataclasses.dataclass
class FmhaSetupResult:
    success: bool
    config: Optional[FmhaKernelConfig] = None
    runner: Optional[FmhaRunner] = None
    library_path: str = ""
    error: str = ""
    build_time_s: float = 0.0


def setup_fmha_dispatcher(config: FmhaKernelConfig, output_dir: Optional[Any] = None,
                          verbose: bool = False) -> FmhaSetupResult:
    return setup_multiple_fmha_dispatchers([config], output_dir, verbose)[0]


def setup_multiple_fmha_dispatchers(
        configs: Sequence[FmhaKernelConfig], output_dir: Optional[Any] = None,
        verbose: bool = False, max_workers: Optional[int] = None, executor: Any = None,
        progress_callback: Optional[Callable[[str, int, int], None]] = None
        ) -> List[FmhaSetupResult]:
    """Builds the kernels of all configurations, `max_workers` at a time, and calls
    progress_callback("compile", done, total) after each. library_path is a file for
    FmhaRunner.from_library(). The library has threads of its own, so that an executor is not
    needed, and not used."""
    _hints.of_argument("executor", executor)
    results = []
    for config in configs:
        started = time.perf_counter()
        result = _setup(config, output_dir, max_workers)
        result.build_time_s = time.perf_counter() - started
        results.append(result)
        if verbose:
            print(result.error or f"{config.target()}: {result.library_path}")
        if progress_callback is not None:
            progress_callback("compile", len(results), len(configs))
    return results


def _setup(config: FmhaKernelConfig, folder: Optional[Any], max_workers: Optional[int]
           ) -> FmhaSetupResult:
    try:
        built = _libraries.build_files([FmhaDispatcherLib(config)], folder, max_workers)[0]
        if built.path is None:
            return FmhaSetupResult(False, config, error=built.error)
        runner = FmhaRunner.from_library(built.path)
        return FmhaSetupResult(True, config, runner, str(built.path))
    except Error as error:
        return FmhaSetupResult(False, config, error=str(error))


def fmha_compile_flags(arch: Optional[str] = None, hipcc: Optional[str] = None,
                       family: str = "fwd") -> List[str]:
    """The flags that the target's row gives to the compiler of kernels, for all families."""
    _hints.of_argument("hipcc", hipcc)
    return list(_targets.dispatcher_of(_targets.resolve(arch).word).target["compile_flags"])


class FmhaRegistry(_libraries.Configurations):
    """Configurations of attention, and what is built of them."""

    _make_library = FmhaDispatcherLib

    def build(self, verbose: bool = False, max_workers: Optional[int] = None
              ) -> List[FmhaSetupResult]:
        return setup_multiple_fmha_dispatchers(self._configs, None, verbose, max_workers)

    def select(self, prob: FmhaProblem, data_type: str = "fp16", api_family: str = "fwd",
               **given: Any) -> Optional[FmhaKernelConfig]:
        """The configuration whose kernel is predicted to be the fastest."""
        problem = _fmha.builder_of(prob, api_family, data_type, **given).build()

        def decide(lib: FmhaDispatcherLib) -> Optional[Dict[str, Any]]:
            try:
                return lib._decision(problem.line, lambda: problem)
            except Error:  # a configuration that fails does not hide the others
                return None

        return _libraries.fastest(self._fitting(
            decide, lambda config: (config.family, config.data_type) == (api_family, data_type)))


@dataclasses.dataclass(frozen=True)
class FmhaKernelSpec:
    """The few fields by which examples tell kernels apart."""

    name: str = ""
    hdim: int = 128
    pipeline: str = "qr_async"
    tile_m0: int = 128
    tile_n0: int = 128
    tile_k0: int = 32


def spec_to_config(spec: FmhaKernelSpec, dtype: str = "fp16", arch: Optional[str] = None
                   ) -> FmhaKernelConfig:
    return FmhaKernelConfig(data_type=dtype, hdim_q=spec.hdim, hdim_v=spec.hdim,
                            gfx_arch=arch, pipeline=spec.pipeline, tile_m0=spec.tile_m0,
                            tile_n0=spec.tile_n0, tile_k0=spec.tile_k0, tile_k0max=spec.hdim)
