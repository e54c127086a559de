"""Whether a target's rules let a GEMM kernel be. The rules are Tessera's."""
from __future__ import annotations

import dataclasses
from typing import Any, Iterable, List, Optional, Tuple

import _paths  # noqa: F401
import tessera
from tessera_ck import gemm as _gemm
from tessera_ck import targets as _targets

from codegen_common import KernelConfig


@dataclasses.dataclass
class FilterResult:
    valid: bool
    errors: List[str] = dataclasses.field(default_factory=list)
    warnings: List[str] = dataclasses.field(default_factory=list)

    def __bool__(self) -> bool:
        return self.valid


class ArchFilter:
    """arch: a target's name; None: this machine."""

    def __init__(self, arch: Optional[str] = None, strict: bool = False) -> None:
        self.target = _targets.resolve(arch)
        self.strict = strict

    def is_kernel_valid(self, datatype_a: str = "fp16", datatype_b: str = "fp16",
                        datatype_c: str = "fp16", tile_m: int = 128, tile_n: int = 128,
                        tile_k: int = 32, warp_m: int = 2, warp_n: int = 2, warp_k: int = 1,
                        warp_tile_m: int = 32, warp_tile_n: int = 32, warp_tile_k: int = 16,
                        pipeline: str = "compv4", epilogue: str = "cshuffle",
                        scheduler: str = "intrawave", layout: str = "rcr") -> bool:
        return self._check(datatype_a, datatype_b, datatype_c, layout, pipeline, scheduler,
                           (tile_m, tile_n, tile_k), (warp_m, warp_n, warp_k),
                           (warp_tile_m, warp_tile_n, warp_tile_k)).valid

    def validate_kernel(self, config: Any) -> FilterResult:
        """config: an object or a dict with the fields of is_kernel_valid(), a KernelConfig of
        codegen_common, or a kernel's name."""
        if isinstance(config, str):
            return self._show(config)
        if isinstance(config, KernelConfig):
            return self._show(config.name)
        read = config.get if isinstance(config, dict) else (
            lambda name, default: getattr(config, name, default))
        dtype = read("dtype", "fp16")
        types = [read(f"datatype_{each}", read(f"dtype_{each}", dtype)) for each in "ab"]
        out = read("datatype_c", read("dtype_c", _gemm.default_output(types[0])))
        shapes = [tuple(read(f"{prefix}_{axis}", 0) for axis in "mnk")
                  for prefix in ("tile", "warp", "warp_tile")]
        return self._check(*types, out, read("layout", "rcr"), read("pipeline", "compv4"),
                           read("scheduler", "intrawave"), *shapes)

    def _check(self, a: str, b: str, out: str, layout: str, pipeline: str, scheduler: str,
               *shapes: Tuple[int, ...]) -> FilterResult:
        there = _targets.pipelines(self.target, "gemm")
        pipeline = _gemm.PIPELINES.get(pipeline, pipeline)
        if pipeline not in there:
            return FilterResult(False, [f"pipeline must be one of {', '.join(there)} for "
                                        f"{self.target.name}, got {pipeline}"])
        words = ["gemm", a, *([b] if b != a else []), layout[:3], pipeline,
                 *(_gemm.triple(*shape) for shape in shapes)]
        if out != _gemm.default_output(a):
            words.append("out" + out)
        if self.target.backend != "cpu" and scheduler not in ("default", "auto", "standard"):
            words.append(scheduler)
        return self._show("_".join([*words, self.target.name]))

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
