#!/usr/bin/env python3
"""Compares a model's choices with the best that was measured, for each problem.

    validate_ml_heuristic.py --dtype fp16 --layout rcr --model_dir D --data_dir D

Writes validation_results_{dtype}_{layout}.csv. Exit code 1 where the mean is below 95%.
"""
from __future__ import annotations

import pathlib
import sys

import _paths  # noqa: F401
from tessera import Error
from tessera_ck import scripts as _scripts

import judging
from predict import Predictor

WANTED = 0.95


def main() -> int:
    options = _scripts.parsed(
        __doc__, ("--dtype", "fp16"), ("--layout", "rcr"),
        ("--model_dir", None, "models/gemm_universal_<dtype>_<this machine> if left out",
         {"type": pathlib.Path}), ("--data_dir", "data"), ("--output_dir", pathlib.Path(".")))
    from tessera_ck import targets
    folder = options.model_dir or pathlib.Path("models") / \
        f"gemm_universal_{options.dtype}_{targets.resolve().name}"
    predictor = Predictor(folder)
    data = [(problem, kernels) for problem, kernels in judging.measured([options.data_dir])
            if problem.get("layout") == options.layout]
    print(_scripts.line_of("evaluate", {"model": predictor._file("tflops"),
                                        "data": judging.data_files(options.data_dir)}))
    made = judging.choices(predictor, data)
    if not made:
        raise Error(f"the model has no opinion on any of the {len(data)} problems with layout "
                    f"{options.layout}", "not_found")
    file = options.output_dir / f"validation_results_{options.dtype}_{options.layout}.csv"
    judging.write_choices(file, made)
    found = judging.summary([each.efficiency for each in made])
    print(f"{judging.text_of(found)}; {file}")
    return 0 if found["mean"] >= WANTED else 1


if __name__ == "__main__":
    sys.exit(_scripts.guarded(main))
