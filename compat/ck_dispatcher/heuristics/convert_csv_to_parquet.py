#!/usr/bin/env python3
"""Turns the CSV of grouped_conv_full_benchmark.py into what `tessera train` and train.py read.

    convert_csv_to_parquet.py --input train.csv --output train.parquet --arch avx512 --dtype bf16
        --variant forward

The output has Tessera's columns; --output may also end in .csv or .sqlite.
"""
from __future__ import annotations

import argparse
import sys

import _paths  # noqa: F401
from tessera_ck import scripts as _scripts
from tessera_ck import targets as _targets

import foreign_rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--input", required=True)
    parser.add_argument("--output", required=True)
    parser.add_argument("--arch", default=None, help="this machine if left out")
    parser.add_argument("--dtype", default="bf16")
    parser.add_argument("--variant", default="forward")
    parser.add_argument("--op-type", default="grouped_conv", choices=["grouped_conv"])
    parser.add_argument("--kernel-pattern", default="", help="part of the kernels' names")
    options = parser.parse_args()
    rows = foreign_rows.conv_rows(foreign_rows.read_text(options.input), options.variant,
                                  options.dtype, options.kernel_pattern)
    foreign_rows.store_rows(rows, "conv", _targets.resolve(options.arch).name, options.output)
    return 0


if __name__ == "__main__":
    sys.exit(_scripts.guarded(main))
