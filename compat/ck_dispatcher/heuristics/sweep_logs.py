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


def cover(problem_set: str, prefix: str, folder: pathlib.Path, batch_size: int, most: int,
          dtype: str, layout: str, arch: Any, kernels: List[str], budget: Any) -> int:
    """Measures the set's problems in batches, and writes a log for each batch."""
    target = _targets.resolve(arch)
    print(target)
    found = _scripts.run("problems", set=problem_set, target=target.word, dtype=dtype,
                         layout=layout)
    lines = [row if isinstance(row, str) else row["problem"] for row in found["problems"]]
    lines = lines[:most or None]
    folder.mkdir(parents=True, exist_ok=True)
    names = kernels or _gemm.legal_kernels(target, dtype, layout, where=["epilogue=none"])
    measured = 0
    for start in range(0, len(lines), batch_size):
        number = start // batch_size
        store = folder / f"{prefix}_batch_{number:03d}.sqlite"
        _scripts.sweep(lines[start:start + batch_size], names, store, target=target.word,
                       budget=budget)
        groups = _scripts.by_problem(_scripts.rows_of(store))
        measured += len(groups)
        (folder / f"{prefix}_batch_{number:03d}.log").write_text("".join(
            log_of(problem, rows, start + i, dtype, layout)
            for i, (problem, rows) in enumerate(groups)), encoding="utf-8")
    print(f"{measured} of {len(lines)} shapes in {folder}")
    return 0 if measured else 1
