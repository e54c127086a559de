#!/usr/bin/env python3
"""Compares a model's choices for convolutions with the best that was measured.

    validate_ml_vs_oracle.py --variant forward [--oracle-csv FILE] [--save-predictions FILE]

FILE of --oracle-csv is what grouped_conv_full_benchmark.py wrote beside its CSV (.sqlite), or any
measurements of Tessera's; left out, the shipped ones of the variant.
"""
from __future__ import annotations

import argparse
import pathlib
import sys

import _paths  # noqa: F401
from tessera import Error
from tessera_ck import conv as _conv
from tessera_ck import scripts as _scripts
from tessera_ck import targets as _targets

import judging
from predict import Predictor

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
    """The original's folder where there is one, else the shipped one."""
    target = _targets.resolve(options.arch).name
    theirs = pathlib.Path("models") / f"grouped_conv_{variant}_{options.dtype}_{target}"
    direction = _conv.DIRECTIONS[variant][0]
    ours = CHECKOUT / "models" / f"conv_{target}_{direction}_{options.dtype}"
    return options.model_dir or (theirs if theirs.is_dir() else ours)


def main() -> int:
    options = parse()
    variant = variant_of(options)
    predictor = Predictor(model_of(options, variant))
    direction = _conv.DIRECTIONS[variant][0]
    oracle = options.oracle_csv or judging.conv_data(
        direction, options.dtype, _targets.resolve(options.arch).name, CHECKOUT)
    print(_scripts.line_of("evaluate", {"model": predictor._file("tflops"), "data": [oracle]}))
    data = [pair for pair in judging.measured([oracle]) if pair[0].get("direction") == direction]
    made = judging.choices(predictor, data[:options.max_problems or None])
    if not made:
        raise Error(f"the model has no opinion on any of the {len(data)} problems", "not_found")
    if options.save_predictions:
        judging.write_choices(options.save_predictions, made)
        print(options.save_predictions)
    right = sum(each.chosen == each.best for each in made)
    print(judging.text_of(judging.summary([each.efficiency for each in made])) +
          f"; the best {right}/{len(made)}")
    return 0


if __name__ == "__main__":
    sys.exit(_scripts.guarded(main))
