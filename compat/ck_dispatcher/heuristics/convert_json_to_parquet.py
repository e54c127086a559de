#!/usr/bin/env python3
"""Turns benchmark results in JSON into what `tessera train` and train.py read.

    convert_json_to_parquet.py --input benchmark_results_fp16_rcr.json --output data.parquet
        --arch gfx950 [--merge_with FILE...]

A .parquet output of an AMD GPU's results has the original's columns, by the caller's pandas and
pyarrow. Without the two packages, for other targets, and where the output ends in .csv or .sqlite,
it has Tessera's columns.
"""
from __future__ import annotations

import pathlib
import sys
from typing import Any

import _paths  # noqa: F401
from tessera_ck import scripts as _scripts

import foreign_rows
from frame_converting import (convert_json_to_parquet, has_tables, is_original_json,
                              merge_datasets)

__all__ = ["convert_json_to_parquet", "merge_datasets"]


def _convert(options: Any) -> int:
    table = convert_json_to_parquet(options.input, options.output, options.arch)
    print(f"{int(table['is_valid'].sum())} measurements in {options.output}, "
          f"{int((~table['is_valid']).sum())} runs failed")
    if options.merge_with:
        place = pathlib.Path(options.output)
        merged = place.with_name(f"{place.stem}_merged.parquet")
        whole = merge_datasets([place, *options.merge_with], merged)
        print(f"{len(whole)} rows in {merged}")
    return 0


def main() -> int:
    options = _scripts.parsed(
        __doc__, ("--input", str), ("--output", str), ("--arch", "gfx950"), ("--merge_with", []))
    if options.output.endswith(".parquet") and options.arch.startswith("gfx") and has_tables() \
            and is_original_json(options.input):
        return _convert(options)
    foreign_rows.convert(options.input, options.arch, options.output, options.merge_with)
    return 0


if __name__ == "__main__":
    sys.exit(_scripts.guarded(main))
