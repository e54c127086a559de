#!/usr/bin/env python3
"""Measures all convolution kernels on all problems of a set, by `tessera sweep`.

    grouped_conv_full_benchmark.py [CONFIGS...] --problem_set forward_training_miopen
        [--csv grouped_conv_results.csv]

CONFIGS are wildcards over kernels' names, or JSON of GroupedConvRegistry.to_json(); all legal
kernels if left out. Sets are those of `tessera problems --op conv`; a set whose name begins with
forward, bwd_data or bwd_weight is that direction's, and one that ends in validation its unseen
part.
"""
from __future__ import annotations

import csv
import pathlib
import sys
from typing import Any, Dict, List

import _paths  # noqa: F401
from tessera_ck import conv as _conv
from tessera_ck import scripts as _scripts
from tessera_ck import targets as _targets

from grouped_conv_utils import GroupedConvRegistry

COLUMNS = ["kernel", "problem_idx", "N", "C", "K", "G", "Hi", "Wi", "Y", "X", "stride_h",
           "stride_w", "pad_h", "pad_w", "latency_ms", "tflops", "non_zero"]
FIELDS = {"N": "n", "C": "c", "K": "k", "G": "g", "Hi": "h", "Wi": "w", "Y": "y", "X": "x",
          "stride_h": "stride_h", "stride_w": "stride_w", "pad_h": "pad_h", "pad_w": "pad_w"}
USUAL = {"batch_size": 20}


def problems_of(name: str, dtype: str, target: _targets.Target) -> List[str]:
    """The lines of a set; a file with a problem a line is taken as it is."""
    if pathlib.Path(name).is_file():
        return pathlib.Path(name).read_text(encoding="utf-8").split("\n")
    word = name
    for theirs, (direction, _) in _conv.DIRECTIONS.items():
        if name.startswith((theirs, direction)):
            word = direction
    found = _scripts.run("problems", set=word, op="conv", target=target.word, dtype=dtype,
                         unseen=name.endswith("validation") or None)
    return list(found["problems"])


def kernels_of(configs: List[str], target: _targets.Target) -> List[str]:
    names: Dict[str, None] = {}
    for each in configs:
        if not each.endswith(".json"):
            names[each] = None
            continue
        text = pathlib.Path(each).read_text(encoding="utf-8")
        for config in GroupedConvRegistry.from_json(text).kernels:
            names.update(dict.fromkeys(_conv.wish_of(config, target).kernels))
    return list(names) or ["all-legal"]


def write_csv(file: pathlib.Path, rows: List[Dict[str, str]]) -> int:
    """The original's columns. non_zero: the result was compared with the reference."""
    written = 0
    with open(file, "w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        writer.writerow(COLUMNS)
        for idx, (problem, found) in enumerate(_scripts.by_problem(rows)):
            sizes: List[Any] = [problem.get(field) for field in FIELDS.values()]
            for row in found:
                if row["outcome"] != "ok":
                    continue
                seconds = float(row["seconds"])
                writer.writerow([row["kernel"], idx, *sizes, seconds * 1e3,
                                 problem.flops / seconds / 1e12, 1])
                written += 1
    return written


def main() -> int:
    options = _scripts.parsed(
        __doc__, ("configs", []), ("--arch", None, "this machine if left out"),
        ("--problems --problem_set", "forward_training"),
        ("--csv", pathlib.Path("grouped_conv_results.csv")), ("--workers", 8), ("--batch-size", 20),
        ("--kernel-timeout", 30, "", {"type": float}), ("--max-kernels", 0), ("--dtype", "bf16"),
        ("--max-problems", 0), ("--budget", None, "start no problem past this time: 30m"))
    target = _targets.resolve(options.arch)
    print(target)
    _scripts.worse_options(USUAL, "each kernel runs in a process of its own", options, USUAL)
    lines = [line for line in problems_of(options.problems, options.dtype, target) if line.strip()]
    kernels = kernels_of(options.configs, target)[:options.max_kernels or None]
    options.csv.parent.mkdir(parents=True, exist_ok=True)
    store = options.csv.with_suffix(".sqlite")
    result = _scripts.sweep(lines[:options.max_problems or None], kernels, store,
                            target=target.word, jobs=options.workers,
                            timeout=options.kernel_timeout, budget=options.budget)
    written = write_csv(options.csv, _scripts.rows_of(store))
    print(f"{written} measurements of {result['problems']} problems in {options.csv} and {store}")
    return 0 if written else 1


if __name__ == "__main__":
    sys.exit(_scripts.guarded(main))
