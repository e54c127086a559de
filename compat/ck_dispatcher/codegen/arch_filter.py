"""Whether a target's rules let a GEMM kernel be. The rules are Tessera's."""
from __future__ import annotations

import dataclasses
import enum
import types
from typing import Any, Iterable, List, Optional

import _paths  # noqa: F401
import tessera
from tessera_ck import gemm as _gemm
from tessera_ck import targets as _targets

from arch_specs_generated import (  # noqa: F401
    ELEMENT_SIZE_MAP, LDS_TOTAL_CAPACITY_BY_ARCH, WARP_TILE_SUPPORTED_COMBINATIONS, get_lds_limit)
from codegen_common import KernelConfig as NamedConfig

OperatorType = enum.Enum("OperatorType", {word.upper(): word for word in (  # type: ignore[misc]
    "gemm", "gemm_preshuffle", "gemm_multi_d", "gemm_grouped", "gemm_streamk", "conv_fwd",
    "conv_bwd_data", "conv_bwd_weight", "conv3d_fwd", "conv3d_bwd_data", "conv3d_bwd_weight")})
# The least of a tile's sides, and what they are multiples of: m, n, k each.
_SIDES = {"gemm_preshuffle": (64, 64, 32, 32, 32, 16), "conv": (1, 16, 16, 1, 16, 16),
          "gemm": (16, 16, 8, 16, 16, 8)}
OPERATOR_TILE_CONSTRAINTS = {
    operator: dict(zip(("min_tile_m", "min_tile_n", "min_tile_k", "tile_m_alignment",
                        "tile_n_alignment", "tile_k_alignment"),
                       next(sides for word, sides in _SIDES.items()
                            if operator.value.startswith(word))))
    for operator in OperatorType}


@dataclasses.dataclass
class KernelConfig:
    """What a filter is asked about. warp_*: waves; warp_tile_*: one matrix instruction."""

    datatype_a: str = "fp16"
    datatype_b: str = "fp16"
    datatype_c: str = "fp16"
    tile_m: int = 128
    tile_n: int = 128
    tile_k: int = 32
    warp_m: int = 2
    warp_n: int = 2
    warp_k: int = 1
    warp_tile_m: int = 32
    warp_tile_n: int = 32
    warp_tile_k: int = 16
    pipeline: str = "compv4"
    epilogue: str = "cshuffle"
    scheduler: str = "intrawave"
    layout: str = "rcr"
    double_smem_buffer: bool = False


@dataclasses.dataclass
class FilterResult:
    valid: bool
    errors: List[str] = dataclasses.field(default_factory=list)
    warnings: List[str] = dataclasses.field(default_factory=list)

    def __bool__(self) -> bool:
        return self.valid


class ArchFilter:
    """arch: a target's name; None: this machine."""

    def __init__(self, arch: Optional[str] = None, strict: bool = False,
                 strict_mode: bool = False) -> None:
        self.target = _targets.resolve(arch)
        self.strict = self.strict_mode = strict or strict_mode

    def is_kernel_valid(self, datatype_a: str = "fp16", datatype_b: str = "fp16",
                        datatype_c: str = "fp16", tile_m: int = 128, tile_n: int = 128,
                        tile_k: int = 32, warp_m: int = 2, warp_n: int = 2, warp_k: int = 1,
                        warp_tile_m: int = 32, warp_tile_n: int = 32, warp_tile_k: int = 16,
                        pipeline: str = "compv4", epilogue: str = "cshuffle",
                        scheduler: str = "intrawave", layout: str = "rcr") -> bool:
        given = {name: value for name, value in locals().items() if name != "self"}
        return self.validate_kernel(given).valid

    def validate_kernel(self, config: Any) -> FilterResult:
        """config: an object or a dict with the fields of KernelConfig, a KernelConfig of
        codegen_common, or a kernel's name."""
        if isinstance(config, str):
            return self._show(config)
        if isinstance(config, NamedConfig):
            return self._show(config.name)
        read = config.get if isinstance(config, dict) else (
            lambda name, default: getattr(config, name, default))
        dtype = read("dtype", "fp16")
        a, b = (read(f"datatype_{each}", read(f"dtype_{each}", dtype)) for each in "ab")
        out = read("datatype_c", read("dtype_c", _gemm.default_output(a)))
        made = {f"{prefix}_{axis}": read(f"{theirs}_{axis}", 0) for axis in "mnk"
                for prefix, theirs in (("tile", "tile"), ("wave", "warp"), ("warp", "warp_tile"))}
        wanted = types.SimpleNamespace(
            dtype_a=a, dtype_b=b, dtype_c=out, layout=read("layout", "rcr"), variant="standard",
            pipeline=read("pipeline", "compv4"), scheduler=read("scheduler", "intrawave"),
            persistent=False, **made)
        there = _targets.pipelines(self.target, "gemm")
        pipeline = _gemm.PIPELINES.get(wanted.pipeline, wanted.pipeline)
        if pipeline not in there:
            return FilterResult(False, [f"pipeline must be one of {', '.join(there)} for "
                                        f"{self.target.name}, got {pipeline}"])
        shown = self._show(_gemm.named_kernel(wanted, self.target))
        if any("bytes of LDS" in error for error in shown.errors):
            return FilterResult(False, [f"LDS capacity exceeded: {each}" for each in shown.errors])
        crowded = self._crowded(a, b, wanted, read("double_smem_buffer", False))
        return FilterResult(False, crowded + shown.errors) if crowded else shown

    def _crowded(self, a: str, b: str, wanted: Any, double: bool) -> List[str]:
        """A sentence where the tiles of A and B do not fit into a GPU's shared memory."""
        name = self.target.name
        if name not in LDS_TOTAL_CAPACITY_BY_ARCH:
            return []
        limit = get_lds_limit(name, wanted.pipeline, double)
        taken = wanted.tile_k * (wanted.tile_m * ELEMENT_SIZE_MAP.get(a, 2) +
                                 wanted.tile_n * ELEMENT_SIZE_MAP.get(b, 2))
        return [] if taken <= limit else [
            f"LDS capacity exceeded: tiles of {taken} bytes, and {name} has {limit} for them in "
            f"{wanted.pipeline}" + (" with two buffers" if double else "")]

    def _show(self, name: str) -> FilterResult:
        try:
            shown = tessera.command("show", kernel=name, target=self.target.word, check=False)
        except tessera.Error as error:
            return FilterResult(False, [str(error)])
        return FilterResult(shown["legal"], [] if shown["legal"] else [shown["reason"]])


def filter_kernels(configs: Iterable[Any], arch: Optional[str] = None) -> List[Any]:
    """Those that the target's rules let be."""
    rules = ArchFilter(arch)
    return [config for config in configs if rules.validate_kernel(config)]
