#!/usr/bin/env python3
"""Where a model's choices lose: the worst problems of a file of choices.

    compare_ml_vs_oracle.py --ml-csv PREDICTIONS [--output FILE] [--shapes 10]

PREDICTIONS is what validate_ml_vs_oracle.py --save-predictions wrote; it holds the best measured
kernels, too, so that --oracle-csv is not needed.
"""
from __future__ import annotations

import argparse
import pathlib
import sys

import _paths  # noqa: F401
from tessera import Error
from tessera_ck import scripts as _scripts

import judging


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ml-csv", required=True)
    parser.add_argument("--oracle-csv", default=None, help="accepted; the choices hold it")
    parser.add_argument("--shapes", type=int, default=10)
    parser.add_argument("--problem-set", default=None, help="accepted")
    parser.add_argument("--variant", default="forward", help="accepted; the problems say it")
    parser.add_argument("--dtype", default="bf16", help="accepted; the problems say it")
    parser.add_argument("--arch", default=None, help="accepted; the kernels say it")
    parser.add_argument("--output", type=pathlib.Path, default=None)
    parser.add_argument("--plot", action="store_true",
                        help="accepted; 'tessera report' draws such charts")
    options = parser.parse_args()
    made = list(judging.read_choices(options.ml_csv).values())
    if not made:
        raise Error(f"{options.ml_csv} holds no choice", "not_found")
    lines = [judging.text_of(judging.summary([each.efficiency for each in made]))]
    for each in sorted(made, key=lambda one: one.efficiency)[:options.shapes]:
        lines.append(f"{100 * each.efficiency:6.2f}%  {each.problem}\n"
                     f"         chosen {each.chosen}\n         best   {each.best}")
    print("\n".join(lines))
    if options.output:
        options.output.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(_scripts.guarded(main))
