#!/usr/bin/env python3
"""Runs convolution kernels in this process, as stdin asks:

    {"so_path": FILE, "problem": {"N": 1, "C": 64, ...}, "kernel_name": NAME}
    {"items": [{...}, ...]}

FILE is one of setup_multiple_grouped_conv_dispatchers(), or null for this machine's kernels; NAME
is Tessera's name of a kernel, or null for the chosen one. With a FILE, its stem and the original's
names of kernels mean the one that is chosen of it. A line of JSON for each item:
{"idx", "ok": true, "ms", "tflops", "non_zero", "kernel"} or {"idx", "ok": false, "error"}.
"""
from __future__ import annotations

import dataclasses
import json
import pathlib
import sys
from typing import Any, Dict, Optional

import _paths  # noqa: F401
import numpy
import tessera
from tessera import Error
from tessera_ck import kernel_files as _files
from tessera_ck import launching as _launching

from grouped_conv_utils import (GroupedConvDispatcherLib, GroupedConvKernelConfig,
                                GroupedConvProblem)


def forced(item: Dict[str, Any]) -> Optional[str]:
    name = item.get("kernel_name") or None
    if name and item.get("so_path"):
        stem = pathlib.Path(item["so_path"]).stem
        if name in (stem, stem.removeprefix("lib")) or name.startswith("grouped_conv_"):
            return None
    return name


def run_item(item: Dict[str, Any]) -> Dict[str, Any]:
    known = {field.name for field in dataclasses.fields(GroupedConvProblem)}
    unknown = [name for name in item["problem"] if name not in known]
    if unknown:
        raise Error(f"a problem has no field '{unknown[0]}'", "not_found")
    problem = GroupedConvProblem(**item["problem"])
    config = GroupedConvKernelConfig(variant=problem.direction, dtype=problem.dtype or "fp16",
                                     ndim_spatial=problem.ndim_spatial, arch=item.get("arch"))
    if item.get("so_path"):
        config = GroupedConvKernelConfig(**_files.read(item["so_path"])["config"])
    lib = GroupedConvDispatcherLib(config)
    whole = lib._problem(problem)
    plan = lib._live().plan(whole, force=forced(item))
    random = numpy.random.default_rng(item.get("seed", 1))
    first, second, result = (slot for slot in problem.slots())
    arrays = lib._arrays([random.standard_normal(first[1]).astype("float32"),
                          random.standard_normal(second[1]).astype("float32"), None], problem)
    seconds = _launching.launch(plan, arrays, verify=True)
    written = numpy.asarray(arrays[result[0]])
    return {"ok": True, "ms": seconds * 1e3, "tflops": problem.flops / max(seconds, 1e-12) / 1e12,
            "non_zero": int(numpy.count_nonzero(written.astype(numpy.float32))),
            "kernel": plan.kernel}


def main() -> int:
    try:
        whole = json.load(sys.stdin)
        items = whole["items"] if "items" in whole else [whole]
    except (ValueError, TypeError, KeyError) as error:
        print(json.dumps({"idx": 0, "ok": False, "error": f"stdin holds no items: {error}"}))
        return 1
    failed = 0
    for idx, item in enumerate(items):
        try:
            result = run_item(item)
        except (tessera.Error, ValueError, TypeError, KeyError) as error:
            result = {"ok": False, "error": str(error)}
        failed += not result["ok"]
        print(json.dumps({"idx": idx, **result}), flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
