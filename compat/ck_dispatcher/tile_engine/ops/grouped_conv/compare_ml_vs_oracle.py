#!/usr/bin/env python3
"""Where a model's choices lose: the worst problems of a file of choices.

    compare_ml_vs_oracle.py --ml-csv PREDICTIONS [--output FILE] [--shapes 10]

PREDICTIONS is what validate_ml_vs_oracle.py --save-predictions wrote; it holds the best measured
kernels, too, so that --oracle-csv is not needed.
"""
from __future__ import annotations

import pathlib
import sys

import _paths  # noqa: F401
from tessera import Error
from tessera_ck import scripts as _scripts

import judging


def main() -> int:
    options = _scripts.parsed(
        __doc__, ("--ml-csv", str), ("--oracle-csv", None, "accepted; the choices hold it"),
        ("--shapes", 10), ("--problem-set", None, "accepted"),
        ("--variant", "forward", "accepted; the problems say it"),
        ("--dtype", "bf16", "accepted; the problems say it"),
        ("--arch", None, "accepted; the kernels say it"),
        ("--output", None, "", {"type": pathlib.Path}),
        ("--plot", False, "accepted; 'tessera report' draws such charts"))
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
