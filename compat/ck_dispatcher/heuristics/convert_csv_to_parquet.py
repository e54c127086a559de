#!/usr/bin/env python3
"""Turns the CSV of grouped_conv_full_benchmark.py into what `tessera train` and train.py read.

    convert_csv_to_parquet.py --input train.csv --output train.parquet --arch avx512 --dtype bf16
        --variant forward

The output has Tessera's columns; --output may also end in .csv or .sqlite. --dtype and --variant
say what neither columns nor kernels' names do; short names of kernels need --wave and --warp-tile.
"""
from __future__ import annotations

import sys

import _paths  # noqa: F401
from tessera_ck import conv as _conv
from tessera_ck import scripts as _scripts

import foreign_rows


def main() -> int:
    options = _scripts.parsed(
        __doc__, ("--input", str), ("--output", str), ("--arch", None, "this machine if left out"),
        ("--dtype", None), ("--variant", None, "forward, bwd_data or bwd_weight"),
        ("--wave", None, "2x2x1"), ("--warp-tile", None, "32x32x16"),
        ("--op-type", "grouped_conv", "", {"choices": ["grouped_conv"]}),
        ("--kernel-pattern", "", "part of the kernels' names"))
    fields = {"wave": options.wave, "warp_tile": options.warp_tile}
    if options.variant:
        fields["direction"] = _conv.DIRECTIONS[_conv.variant_word(options.variant)][0]
    given = [f"{name}={value}" for name, value in fields.items() if value]
    foreign_rows.convert(
        options.input, options.arch, options.output, op="conv", dtype=options.dtype,
        field=given or None,
        kernels=f"*{options.kernel_pattern}*" if options.kernel_pattern else None)
    return 0


if __name__ == "__main__":
    sys.exit(_scripts.guarded(main))
