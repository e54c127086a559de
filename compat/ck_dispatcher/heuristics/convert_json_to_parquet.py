#!/usr/bin/env python3
"""Turns benchmark results in JSON into what `tessera train` and train.py read.

    convert_json_to_parquet.py --input benchmark_results_fp16_rcr.json --output data.parquet
        --arch gfx950 [--merge_with FILE...]

The output has Tessera's columns; --output may also end in .csv or .sqlite.
"""
from __future__ import annotations

import argparse
import sys

import _paths  # noqa: F401
from tessera_ck import scripts as _scripts

import foreign_rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--input", required=True)
    parser.add_argument("--output", required=True)
    parser.add_argument("--arch", default="gfx950")
    parser.add_argument("--merge_with", nargs="*", default=[])
    options = parser.parse_args()
    foreign_rows.convert(options.input, options.arch, options.output, options.merge_with)
    return 0


if __name__ == "__main__":
    sys.exit(_scripts.guarded(main))
