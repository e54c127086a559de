#!/usr/bin/env python3
"""Compares a model's choices with the best that was measured, for each problem.

    validate_ml_heuristic.py --dtype fp16 --layout rcr --model_dir D --data_dir D

Writes validation_results_{dtype}_{layout}.csv. Exit code 1 where the mean is below 95%. A model of
the original's form is judged among the kernels that its data names.
"""
from __future__ import annotations

import pathlib
import sys
from typing import List

import _paths  # noqa: F401
from tessera import Error
from tessera_ck import scripts as _scripts
from tessera_ck import targets as _targets

import frame_judging
import judging
from frames import build_training_dataset
from predict import HEURISTICS, Predictor, default_model

WANTED = 0.95


def choices_of(predictor: Predictor, data_dir: str, dtype: str, layout: str
               ) -> List[judging.Choice]:
    if not predictor.is_tessera:
        table = build_training_dataset(data_dir, dtype=dtype)
        return frame_judging.choices(predictor, table[table["layout"] == layout])
    data = [(problem, kernels) for problem, kernels in judging.measured([data_dir])
            if problem.get("layout") == layout]
    print(_scripts.line_of("evaluate", {"model": predictor._file("tflops"),
                                        "data": judging.data_files(data_dir)}))
    made = judging.choices(predictor, data)
    if not made:
        raise Error(f"the model has no opinion on any of the {len(data)} problems with layout "
                    f"{layout}", "not_found")
    return made


def main() -> int:
    options = _scripts.parsed(
        __doc__, ("--dtype", "fp16"), ("--layout", "rcr"),
        ("--model_dir", None, "models/gemm_universal_<dtype>_<arch> of the scripts if left out",
         {"type": pathlib.Path}), ("--arch", None, "this machine if left out"),
        ("--data_dir", "", "data/ of the scripts if left out"),
        ("--output_dir", pathlib.Path(".")))
    data_dir = options.data_dir or str(HEURISTICS / "data")
    predictor = Predictor(options.model_dir or default_model(
        "gemm_universal", options.dtype, options.arch or _targets.resolve().name))
    made = choices_of(predictor, data_dir, options.dtype, options.layout)
    file = options.output_dir / f"validation_results_{options.dtype}_{options.layout}.csv"
    judging.write_choices(file, made)
    found = judging.summary([each.efficiency for each in made])
    print(f"{judging.text_of(found)}; {file}")
    return 0 if found["mean"] >= WANTED else 1


if __name__ == "__main__":
    sys.exit(_scripts.guarded(main))
