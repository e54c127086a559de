"""Functions that choose kernels for the dispatcher by a model of the original's form.

A row of data calls the waves of a block warp_* and one instruction's tile warp_tile_*; a
configuration of the dispatcher calls them wave_* and warp_*.
"""
from __future__ import annotations

import dataclasses
import pathlib
import sys
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import _paths  # noqa: F401

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "codegen"))

from codegen_common import CommonTypeMappings, normalize_gfx_arch  # noqa: E402

from frames import VECTORS, parse_kernel_name  # noqa: E402
from predict import Predictor  # noqa: E402

_WORDS = {"r": "row", "c": "col"}
LAYOUT_TO_DISPATCHER = {layout: tuple(_WORDS[letter] for letter in layout)
                        for layout in ("rcr", "rrr", "crr", "ccr")}
_USUAL = {"tile_m": 128, "tile_n": 128, "tile_k": 64, "warp_m": 2, "warp_n": 2, "warp_k": 1,
          "warp_tile_m": 32, "warp_tile_n": 32, "warp_tile_k": 16, "pipeline": "compv3",
          "scheduler": "intrawave", "epilogue": "cshuffle"}
_PROBLEM = ("m", "n", "k", "split_k")


@dataclasses.dataclass
class MLKernelSpec:
    """A chosen kernel in the dispatcher's words."""

    kernel_name: str
    predicted_tflops: float
    tile_m: int
    tile_n: int
    tile_k: int
    wave_m: int
    wave_n: int
    wave_k: int
    warp_m: int
    warp_n: int
    warp_k: int
    pipeline: str
    scheduler: str
    epilogue: str
    pad_m: bool
    pad_n: bool
    pad_k: bool
    persistent: bool


def kernel_config_to_feature_dict(kernel_name: str) -> Dict[str, Any]:
    """The fields of a name as a row of data has them; {} for a name that is none."""
    found = parse_kernel_name(kernel_name)
    return {**found, "kernel_name": kernel_name} if found else {}


def _refuse_fixed_widths(feat: Dict[str, Any], what: str) -> None:
    given = [feat.get(name) for name in VECTORS]
    widths = tuple(0 if value in (None, "") or value != value
                   else int(float(value)) for value in given)
    if any(widths):
        raise ValueError(f"{feat.get('kernel_name', 'a kernel without a name')} fixes the widths "
                         f"{widths} of its vectors, which {what} cannot represent")


def _fields(feat: Dict[str, Any]) -> Dict[str, Any]:
    """The dispatcher's fields of a row."""
    known = {**_USUAL, **{name: value for name, value in feat.items() if value is not None}}
    found = {name: known[name] for name in ("pipeline", "scheduler", "epilogue")}
    for theirs, ours in (("tile", "tile"), ("warp", "wave"), ("warp_tile", "warp")):
        found.update({f"{ours}_{axis}": known[f"{theirs}_{axis}"] for axis in "mnk"})
    return found


def _config(fields: Dict[str, Any], pads: Dict[str, bool], layout: str, dtype: str, arch: str
            ) -> Dict[str, Any]:
    letters = LAYOUT_TO_DISPATCHER.get(layout, LAYOUT_TO_DISPATCHER["rcr"])
    return {"dtype_a": dtype, "dtype_b": dtype,
            "dtype_c": CommonTypeMappings.get_output_dtype(dtype),
            "dtype_acc": CommonTypeMappings.get_acc_dtype(dtype),
            **dict(zip(("layout_a", "layout_b", "layout_c"), letters)), **fields, **pads,
            "gfx_arch": arch}


def feature_dict_to_dispatcher_config(feat: Dict[str, Any], dtype: str = "fp8",
                                      arch: str = "gfx950") -> Dict[str, Any]:
    """The fields of a ctypes_utils.KernelConfig."""
    _refuse_fixed_widths(feat, "a configuration of the dispatcher")
    pads = {f"pad_{axis}": feat.get(f"pad_{axis}", True) for axis in "mnk"}
    return _config(_fields(feat), pads, str(feat.get("layout", "rcr")), dtype, arch)


def feature_dict_to_ml_spec(feat: Dict[str, Any], predicted_tflops: float = 0.0) -> MLKernelSpec:
    _refuse_fixed_widths(feat, "an MLKernelSpec")
    flags = {name: bool(feat.get(name, False))
             for name in ("pad_m", "pad_n", "pad_k", "persistent")}
    return MLKernelSpec(str(feat.get("kernel_name", "unknown")), predicted_tflops,
                        **_fields(feat), **flags)


def ml_spec_to_dispatcher_config(spec: MLKernelSpec, dtype: str = "fp8", arch: str = "gfx950"
                                 ) -> Dict[str, Any]:
    fields = dataclasses.asdict(spec)
    pads = {name: fields.pop(name) for name in ("pad_m", "pad_n", "pad_k")}
    for name in ("kernel_name", "predicted_tflops", "persistent"):
        del fields[name]
    return _config(fields, pads, "rcr", dtype, arch)


def load_kernel_pool_from_binaries(bin_dir: Any) -> List[Dict[str, Any]]:
    """The kernels of a folder of the original's benchmarks, by the names of the programs."""
    names = [path.stem.replace("benchmark_", "", 1) for path in sorted(
        pathlib.Path(bin_dir).glob("benchmark_gemm_universal_*"))]
    found = map(kernel_config_to_feature_dict, names)
    return [feat for feat in found if "tile_m" in feat]


def _is_same(one: Any, other: Any) -> bool:
    return normalize_gfx_arch(str(one)) == normalize_gfx_arch(str(other))


def _resolve_arch(predictor: Any, arch: Optional[str], kernel_pool: Sequence[Dict[str, Any]]
                  ) -> Optional[str]:
    """The arch that is asked about: the caller's, which must be the model's, else the model's, else
    None. Raises ValueError where a kernel of the pool says another, or says a problem's size."""
    of_model = getattr(predictor, "spec", {}).get("arch")
    if arch and of_model and not _is_same(arch, of_model):
        raise ValueError(f"arch '{arch}' disagrees with the model, which was trained for "
                         f"{of_model}")
    found: Optional[str] = arch or of_model
    shadowed = sorted({name for feat in kernel_pool for name in _PROBLEM
                       if feat.get(name) is not None})
    if shadowed:
        raise ValueError(f"kernel_pool entries have the problem keys {', '.join(shadowed)}, which "
                         "would stand for those of every problem")
    others = sorted({str(feat["arch"]) for feat in kernel_pool if feat.get("arch") is not None and
                     (found is None or not _is_same(feat["arch"], found))})
    if others:
        raise ValueError(f"kernel_pool entries carry arch {', '.join(others)}, but the arch is "
                         f"{found or 'not known'}")
    return found


def _ranking(model_dir: Any, dtype: str, arch: Optional[str], layout: str,
             kernel_pool: Optional[Sequence[Dict[str, Any]]], bin_dir: Optional[Any]
             ) -> Callable[[int, int, int], List[Tuple[Dict[str, Any], float]]]:
    """A function that gives a pool's kernels, best first, with what the model predicts."""
    predictor = Predictor(model_dir)
    pool = list(kernel_pool or [])
    if kernel_pool is None and bin_dir is not None:
        pool = load_kernel_pool_from_binaries(bin_dir)
    if not pool:
        raise ValueError("No kernel configs: kernel_pool is empty, and bin_dir has no benchmarks")
    resolved = _resolve_arch(predictor, arch, pool)
    by_name = {feat["kernel_name"]: feat for feat in pool}

    def ranked(M: int, N: int, K: int) -> List[Tuple[Dict[str, Any], float]]:
        problem = {"m": M, "n": N, "k": K, "dtype": dtype, "layout": layout, "split_k": 1}
        if resolved is not None:
            problem["arch"] = resolved
        return [(by_name[name], tflops)
                for name, tflops in predictor.rank_kernels(problem, pool)]

    return ranked


def create_ml_heuristic(model_dir: Any, dtype: str = "fp8", arch: Optional[str] = None,
                        layout: str = "rcr",
                        kernel_pool: Optional[Sequence[Dict[str, Any]]] = None,
                        bin_dir: Optional[Any] = None) -> Callable[[int, int, int], MLKernelSpec]:
    """A function from (M, N, K) to the kernel that the model predicts to be the fastest."""
    ranked = _ranking(model_dir, dtype, arch, layout, kernel_pool, bin_dir)
    return lambda M, N, K: feature_dict_to_ml_spec(*ranked(M, N, K)[0])


def create_ranked_heuristic(model_dir: Any, dtype: str = "fp8", arch: Optional[str] = None,
                            layout: str = "rcr",
                            kernel_pool: Optional[Sequence[Dict[str, Any]]] = None,
                            bin_dir: Optional[Any] = None, top_k: int = 5
                            ) -> Callable[[int, int, int], List[MLKernelSpec]]:
    """A function from (M, N, K) to the top_k kernels, best first."""
    ranked = _ranking(model_dir, dtype, arch, layout, kernel_pool, bin_dir)
    return lambda M, N, K: [feature_dict_to_ml_spec(*pair) for pair in ranked(M, N, K)[:top_k]]
