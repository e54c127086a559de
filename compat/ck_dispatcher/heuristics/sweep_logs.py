"""Sweeps of a frozen set of problems, with the original's logs."""
from __future__ import annotations

import json
import pathlib
from typing import Any, Dict, List

import _paths  # noqa: F401
import tessera
from tessera_ck import gemm as _gemm
from tessera_ck import scripts as _scripts
from tessera_ck import targets as _targets

USUAL = {"warmup": 3, "repeat": 10}


def log_of(problem: tessera.Problem, rows: List[Dict[str, str]], number: int, dtype: str,
           layout: str) -> str:
    """'Shape N: M= N= K= dtype= layout=', and a block of JSON for each kernel."""
    size = _scripts.gemm_sizes(problem)
    text = (f"Shape {number}: M={size['m']} N={size['n']} K={size['k']} dtype={dtype} "
            f"layout={layout}\n")
    for row in rows:
        if row["outcome"] != "ok":
            continue
        seconds = float(row["seconds"])
        text += json.dumps({
            "name": row["kernel"],
            "problem": {**size, "split_k": 1, "dtype_a": dtype, "layout_a": layout[0]},
            "perf_result": {"latency(ms)": seconds * 1e3,
                            "tflops(TFlops)": problem.flops / seconds / 1e12,
                            "bandwidth(GB/s)": problem.bytes / seconds / 1e9}}, indent=1) + "\n"
    return text


def cover(doc: Any, problem_set: str, prefix: str, folder: str) -> int:
    """A script that measures the set's problems in batches, and writes a log for each batch."""
    options = _scripts.parsed(
        doc, ("--bin_dir", None, "accepted; kernels lie in the cache"),
        ("--out_dir", pathlib.Path(folder)), ("--batch_size", 25), ("--warmup", USUAL["warmup"]),
        ("--repeat", USUAL["repeat"]), ("--max_shapes", 0), ("--dtype", "fp16"),
        ("--layout", "rcr"), ("--gpu-target", None, "this machine if left out"),
        ("--kernels", [], "names and wildcards; all legal"),
        ("--budget", None, "of each batch: 30m"))
    _scripts.worse_options(USUAL, "a sweep measures until a median is known to 1%", options, USUAL)
    target, dtype, layout = _targets.resolve(options.gpu_target), options.dtype, options.layout
    print(target)
    found = _scripts.run("problems", set=problem_set, target=target.word, dtype=dtype,
                         layout=layout)
    lines = [row if isinstance(row, str) else row["problem"] for row in found["problems"]]
    lines = lines[:options.max_shapes or None]
    options.out_dir.mkdir(parents=True, exist_ok=True)
    names = options.kernels or _gemm.legal_kernels(target, dtype, layout, where=["epilogue=none"])
    measured = 0
    for start in range(0, len(lines), options.batch_size):
        place = options.out_dir / f"{prefix}_batch_{start // options.batch_size:03d}.log"
        store = place.with_suffix(".sqlite")
        _scripts.sweep(lines[start:start + options.batch_size], names, store, target=target.word,
                       budget=options.budget)
        groups = _scripts.by_problem(_scripts.rows_of(store))
        measured += len(groups)
        place.write_text("".join(log_of(problem, rows, start + i, dtype, layout)
                                 for i, (problem, rows) in enumerate(groups)), encoding="utf-8")
    print(f"{measured} of {len(lines)} shapes in {options.out_dir}")
    return 0 if measured else 1
