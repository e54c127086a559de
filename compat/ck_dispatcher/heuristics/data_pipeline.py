#!/usr/bin/env python3
"""Turns a log of GEMM benchmarks into what `tessera train` and train.py read.

    data_pipeline.py LOG -o data.parquet --arch gfx950 --capture_hw

The output has Tessera's columns; it may also end in .csv or .sqlite. --capture_hw writes the
target's row beside it, as FILE.hw.json, under the original's names.
"""
from __future__ import annotations

import json
import pathlib
import sys
from typing import Any, Dict

import _paths  # noqa: F401
from tessera_ck import scripts as _scripts
from tessera_ck import targets as _targets

import foreign_rows


def hardware_of(arch: str) -> Dict[str, Any]:
    """hw_* of a target's row; what a row does not say is left out."""
    row = _targets.dispatcher_of(_targets.resolve(arch).word).target
    found: Dict[str, Any] = {"hw_num_cus": row.get("units"),
                             "hw_max_clock_mhz": row.get("clock_ghz", 0) * 1000,
                             "hw_wavefront_size": row.get("warp_size"),
                             "hw_lds_capacity": row.get("shared_memory_bytes"),
                             "hw_num_xcd": row.get("xcds")}
    for cache in row.get("caches", []):
        found[f"hw_{cache['name']}_cache_kb"] = cache["bytes"] // 1024
    return {key: value for key, value in found.items() if value}


def main() -> int:
    options = _scripts.parsed(
        __doc__, ("log", str), ("-o --output", str), ("--arch", "gfx950"),
        ("--op_type", "gemm_universal", "", {"choices": ["gemm_universal"]}),
        ("--capture_hw", False))
    place = foreign_rows.convert(options.log, options.arch, options.output)
    if options.capture_hw:
        file = pathlib.Path(f"{place}.hw.json")
        file.write_text(json.dumps(hardware_of(options.arch), indent=2) + "\n", encoding="ascii")
        print(file)
    return 0


if __name__ == "__main__":
    sys.exit(_scripts.guarded(main))
