#!/usr/bin/env python3
"""Turns benchmark results in JSON into what `tessera train` and train.py read.

    convert_json_to_parquet.py --input benchmark_results_fp16_rcr.json --output data.parquet
        --arch gfx950 [--merge_with FILE...]

The output has Tessera's columns; --output may also end in .csv or .sqlite.
"""
from __future__ import annotations

import sys

import _paths  # noqa: F401
from tessera_ck import scripts as _scripts

import foreign_rows


def main() -> int:
    options = _scripts.parsed(
        __doc__, ("--input", str), ("--output", str), ("--arch", "gfx950"), ("--merge_with", []))
    foreign_rows.convert(options.input, options.arch, options.output, options.merge_with)
    return 0


if __name__ == "__main__":
    sys.exit(_scripts.guarded(main))
