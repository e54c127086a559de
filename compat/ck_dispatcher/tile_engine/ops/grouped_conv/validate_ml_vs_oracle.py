#!/usr/bin/env python3
"""Compares a model's choices for convolutions with the best that was measured.

    validate_ml_vs_oracle.py --variant forward [--oracle-csv FILE] [--save-predictions FILE]

FILE of --oracle-csv is what grouped_conv_full_benchmark.py wrote beside its CSV (.sqlite), or any
measurements of Tessera's; left out, the shipped ones of the variant. Without --model-dir the model
is heuristics/models/grouped_conv_{variant}_{dtype}_{arch}, or else the shipped one. A model of the
original's form is judged on the original's CSV, or on tables in its columns.
"""
from __future__ import annotations

import argparse
import pathlib
import sys
from typing import Any, List

import _paths  # noqa: F401
from tessera import Error
from tessera_ck import conv as _conv
from tessera_ck import scripts as _scripts
from tessera_ck import targets as _targets

import frame_judging
import judging
from frame_converting import read_measurements
from predict import HEURISTICS, Predictor

CHECKOUT = pathlib.Path(__file__).resolve().parents[5]


def parse() -> argparse.Namespace:
    return _scripts.parsed(
        __doc__, ("--variant", None, "forward, bwd_data or bwd_weight"),
        ("--operation", "grouped_conv", "", {"choices": ["grouped_conv"]}),
        ("--problem-set", None, "names the variant; the problems are those of the measurements"),
        ("--oracle-csv", None), ("--model-dir", None, "", {"type": pathlib.Path}),
        ("--save-predictions --output", None, "", {"type": pathlib.Path}), ("--dtype", "bf16"),
        ("--arch", None), ("--max-problems", 0),
        ("--run-ml-hw", False, "accepted; choices are looked up in the measurements"))


def variant_of(options: argparse.Namespace) -> str:
    if options.variant:
        return _conv.variant_word(options.variant)
    for word in _conv.DIRECTIONS:
        if (options.problem_set or "forward").startswith(word):
            return word
    raise Error(f"--problem-set '{options.problem_set}' names no variant; give --variant",
                "not_found")


def model_of(options: argparse.Namespace, variant: str) -> pathlib.Path:
    """The folder beside the scripts where there is one, of --arch, or else of this machine, or else
    the only one; else the shipped one."""
    if options.model_dir:
        return pathlib.Path(options.model_dir)
    target = options.arch or _targets.resolve(None).name
    stem = f"grouped_conv_{variant}_{options.dtype}_"
    found = sorted((HEURISTICS / "models").glob(f"{stem}*"))
    for folder in found:
        if folder.name == stem + target or (not options.arch and len(found) == 1):
            return folder
    direction = _conv.DIRECTIONS[variant][0]
    return CHECKOUT / "models" / f"conv_{_targets.resolve(options.arch).name}_{direction}_" \
        f"{options.dtype}"


def choices_of(options: argparse.Namespace, variant: str, predictor: Predictor
               ) -> List[judging.Choice]:
    if not predictor.is_tessera:
        return original_choices(options, variant, predictor)
    direction = _conv.DIRECTIONS[variant][0]
    oracle = options.oracle_csv or judging.conv_data(
        direction, options.dtype, _targets.resolve(options.arch).name, CHECKOUT)
    print(_scripts.line_of("evaluate", {"model": predictor._file("tflops"), "data": [oracle]}))
    data = [pair for pair in judging.measured([oracle]) if pair[0].get("direction") == direction]
    made = judging.choices(predictor, data[:options.max_problems or None])
    if not made:
        raise Error(f"the model has no opinion on any of the {len(data)} problems", "not_found")
    return made


def original_choices(options: argparse.Namespace, variant: str, predictor: Predictor
                     ) -> List[judging.Choice]:
    if not options.oracle_csv:
        raise Error(f"{predictor.model_dir} is a model of the original's form; give its "
                    "measurements by --oracle-csv", "invalid_argument")
    table: Any = read_measurements(options.oracle_csv, predictor.spec.get("arch", "gfx950"))
    if "variant" in table.columns:
        table = table[table["variant"].map(_conv.variant_word) == variant]
    if not len(table):
        raise Error(f"{options.oracle_csv} has no row of the direction {variant}", "not_found")
    return frame_judging.choices(predictor, table)[:options.max_problems or None]


def main() -> int:
    options = parse()
    variant = variant_of(options)
    predictor = Predictor(model_of(options, variant))
    print(predictor.model_dir)
    made = choices_of(options, variant, predictor)
    if options.save_predictions:
        judging.write_choices(options.save_predictions, made)
        print(options.save_predictions)
    right = sum(each.chosen == each.best for each in made)
    print(judging.text_of(judging.summary([each.efficiency for each in made])) +
          f"; the best {right}/{len(made)}")
    return 0


if __name__ == "__main__":
    sys.exit(_scripts.guarded(main))
