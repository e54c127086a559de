#!/usr/bin/env python3
"""Measures GEMM kernels on a list of sizes, by `tessera sweep`, and writes the original's JSON.

    generate_benchmark_data.py --build_dir /tmp/build --output_dir /tmp/benchmark_data --dtype fp16
        --layout rcr --num_build_jobs 4 --warmup 10 --repeat 50

Writes benchmark_results_{dtype}_{layout}.json, build_results.json and the store, sweep.sqlite,
which `tessera train` and train.py read. An interrupted run goes on where it was.
"""
from __future__ import annotations

import argparse
import datetime
import json
import pathlib
import sys
from typing import Any, Dict, List

import _paths  # noqa: F401
from tessera_ck import gemm as _gemm
from tessera_ck import kernel_files as _files
from tessera_ck import problems as _problems
from tessera_ck import scripts as _scripts
from tessera_ck import targets as _targets

SIZES = [(1, 4096, 4096), (8, 4096, 4096), (16, 1536, 7168), (32, 4096, 4096), (64, 64, 64),
         (64, 2048, 512), (128, 128, 128), (128, 1536, 7168), (128, 4096, 512), (256, 256, 256),
         (256, 1024, 4096), (333, 777, 555), (512, 512, 512), (512, 2048, 2048), (768, 768, 3072),
         (1000, 1000, 1000), (1024, 1024, 1024), (1024, 4096, 1024), (1536, 1536, 1536),
         (2048, 64, 2048), (2048, 2048, 2048), (3072, 768, 1024), (4096, 1, 4096),
         (4096, 4096, 128), (4096, 4096, 4096)]
USUAL = {"warmup": 10, "repeat": 50, "num_benchmark_jobs": 1}


def parse() -> argparse.Namespace:
    return _scripts.parsed(
        __doc__, ("--build_dir", "/tmp/build", "accepted; kernels lie in Tessera's cache"),
        ("--output_dir", pathlib.Path("/tmp/benchmark_data")),
        ("--dtype", "fp16", "", {"choices": ["fp32", "fp16", "bf16", "fp8", "bf8", "int8"]}),
        ("--layout", "rcr"), ("--op", "gemm_universal", "", {"choices": list(_gemm.WHERE)}),
        ("--only_build", False, "measure nothing"), ("--num_build_jobs", 4),
        ("--num_benchmark_jobs", 1), ("--warmup", 10), ("--repeat", 50), ("--max_kernels", 0),
        ("--skip_build", False), ("--gpu-target", None, "this machine if left out"),
        ("--max_shapes", 0), ("--budget", None, "start no size past this time: 30m"))


def nested(rows: List[Dict[str, str]], options: argparse.Namespace, target: _targets.Target
           ) -> Dict[str, Any]:
    """{metadata, problem_sizes, results: [{kernel_config, benchmarks}]}"""
    results: Dict[str, Dict[str, Any]] = {}
    sizes: Dict[str, Dict[str, int]] = {}
    for problem, found in _scripts.by_problem(rows):
        size = sizes.setdefault(problem.line, _scripts.gemm_sizes(problem))
        for row in found:
            name = row["kernel"]
            if name not in results:
                config = _problems.row_of(_gemm.spec_of(name, target))
                config["name"] = config.pop("kernel_name")
                results[name] = {"kernel_config": config, "benchmarks": []}
            is_valid = row["outcome"] == "ok"
            seconds = float(row["seconds"]) if is_valid else 0.0
            results[name]["benchmarks"].append({
                "kernel_name": name, **size, "avg_time_ms": seconds * 1e3,
                "tflops": problem.flops / seconds / 1e12 if seconds > 0 else 0.0,
                "is_valid": is_valid, "error": "" if is_valid else row["note"] or row["outcome"]})
    now = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
    return {"metadata": {"dtype": options.dtype, "layout": options.layout, "arch": target.name,
                         "num_kernels": len(results), "num_problems": len(sizes),
                         "warmup": None, "repeat": None,  # the protocol says how it was timed
                         "protocol": rows[0]["protocol"] if rows else "", "timestamp": now},
            "problem_sizes": list(sizes.values()), "results": list(results.values())}


def main() -> int:
    options = parse()
    target = _targets.resolve(options.gpu_target)
    print(target)
    _scripts.worse_options(USUAL, "a sweep measures until a median is known to 1%, one kernel at a "
                           "time", options, USUAL)
    names = _gemm.legal_kernels(target, options.dtype, options.layout,
                                where=["epilogue=none", "preshuffle=false",
                                       *_gemm.WHERE[options.op]])
    names = names[:options.max_kernels or None]
    failed = {} if options.skip_build else _files.build(target, names, options.num_build_jobs)
    options.output_dir.mkdir(parents=True, exist_ok=True)
    (options.output_dir / "build_results.json").write_text(json.dumps(
        {"built": [name for name in names if name not in failed], "failed": failed}, indent=2),
        encoding="utf-8")
    if options.only_build:
        print(f"{len(names) - len(failed)} of {len(names)} kernels of {options.op} are built")
        return 1 if failed else 0
    lines = [f"gemm m={m} n={n} k={k} dtype={options.dtype} layout={options.layout}"
             for m, n, k in SIZES[:options.max_shapes or None]]
    store = options.output_dir / "sweep.sqlite"
    result = _scripts.sweep(lines, names, store, target=target.word, jobs=options.num_build_jobs,
                            budget=options.budget)
    file = options.output_dir / f"benchmark_results_{options.dtype}_{options.layout}.json"
    file.write_text(json.dumps(nested(_scripts.rows_of(store), options, target), indent=1),
                    encoding="utf-8")
    print(f"{result['rows']} measurements, {len(failed)} kernels that were not built, {file}")
    return 1 if failed and len(failed) == len(names) else 0


if __name__ == "__main__":
    sys.exit(_scripts.guarded(main))
