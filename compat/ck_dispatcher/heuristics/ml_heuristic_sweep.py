#!/usr/bin/env python3
"""Says for many problems which kernel of a pool a model predicts to be the fastest.

    ml_heuristic_sweep.py --model_dir D [--dtype fp16] [--layout rcr] [--arch gfx950]

The pool is what is shipped for the target, type and layout, without pipelines that the original's
features have no number for. Nothing is measured.
"""
from __future__ import annotations

import csv
import dataclasses
import functools
import pathlib
import sys
from typing import Any, Dict, List

import _paths  # noqa: F401
from tessera_ck import gemm as _gemm
from tessera_ck import problems as _problems
from tessera_ck import scripts as _scripts
from tessera_ck import targets as _targets

from feature_engine import PIPELINE_MAP
from predict import Predictor

_AXES = "mnk"


@dataclasses.dataclass(frozen=True)
class KernelSpec:
    """A kernel of the pool in the dispatcher's words: wave_* of a block, warp_* of an instruction.
    """

    name: str
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
    persistent: bool


@functools.lru_cache(maxsize=None)
def pool_of(arch: str, dtype: str, layout: str) -> List[KernelSpec]:
    """The shipped kernels of a target whose pipelines the features know. Raises Error where it has
    none for the type and layout."""
    target = _targets.resolve(arch)
    made = []
    for name in _gemm.variant_kernels(target, dtype, layout, "standard"):
        row = _problems.row_of(_gemm.spec_of(name, target))
        if row["pipeline"] not in PIPELINE_MAP:
            continue
        sizes = {f"{ours}_{axis}": row[f"{theirs}_{axis}"] for axis in _AXES
                 for theirs, ours in (("tile", "tile"), ("warp", "wave"), ("warp_tile", "warp"))}
        made.append(KernelSpec(name, **sizes, **{key: row[key] for key in (
            "pipeline", "scheduler", "epilogue", "persistent")}))
    return made


KERNEL_POOL = pool_of("gfx950", "fp16", "rcr")


def spec_to_feature_dict(spec: Any, dtype: str, layout: str, arch: str) -> Dict[str, Any]:
    """A kernel of the pool as a row of data; its widths of vectors are its own, 0."""
    row = {"kernel_name": spec.name, "dtype": dtype, "layout": layout, "arch": arch,
           "vec_a": 0, "vec_b": 0, "vec_c": 0, "pad_m": True, "pad_n": True, "pad_k": True}
    row.update({key: getattr(spec, key) for key in ("pipeline", "scheduler", "epilogue",
                                                    "persistent")})
    for ours, theirs in (("tile", "tile"), ("wave", "warp"), ("warp", "warp_tile")):
        row.update({f"{theirs}_{axis}": getattr(spec, f"{ours}_{axis}") for axis in _AXES})
    return row


def main() -> int:
    options = _scripts.parsed(
        __doc__, ("--model_dir", pathlib.Path), ("--dtype", "fp16"), ("--layout", "rcr"),
        ("--arch", "gfx950"), ("--output", None, "a CSV file"), ("--max_shapes", 0))
    predictor = Predictor(options.model_dir)
    found = _scripts.run("problems", set="wide", target=options.arch, dtype=options.dtype,
                         layout=options.layout)
    rows = [spec_to_feature_dict(spec, options.dtype, options.layout, options.arch)
            for spec in pool_of(options.arch, options.dtype, options.layout)]
    made = []
    for line in found["problems"][:options.max_shapes or None]:
        text = line if isinstance(line, str) else line["problem"]
        sizes = {word[0].upper(): int(word[2:]) for word in text.split() if word[:2] in (
            "m=", "n=", "k=")}
        name, tflops = predictor.rank_kernels({**sizes, "dtype": options.dtype,
                                               "layout": options.layout}, rows)[0]
        made.append([sizes["M"], sizes["N"], sizes["K"], name, tflops])
        print(f"{sizes['M']:6} {sizes['N']:6} {sizes['K']:6}  {tflops:10.3f} TFLOPS  {name}")
    if options.output:
        with open(options.output, "w", newline="", encoding="utf-8") as stream:
            csv.writer(stream).writerows([["M", "N", "K", "kernel_name", "predicted_tflops"],
                                          *made])
    return 0


if __name__ == "__main__":
    sys.exit(_scripts.guarded(main))
