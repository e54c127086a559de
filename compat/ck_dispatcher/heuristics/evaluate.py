#!/usr/bin/env python3
"""Says how good a model is, by `tessera evaluate`, with R2 and RMSE of its predictions.

    evaluate.py --model_dir D --data_dir D [--op gemm_universal] [--dtype fp16] [--output FILE]

A model of the original's form is judged on measurements in the original's columns, by the caller's
pandas, among the kernels that these name.
"""
from __future__ import annotations

import argparse
import json
import pathlib
import sys
from typing import Any, Dict, Optional, Sequence

import _paths  # noqa: F401
from tessera_ck import gemm as _gemm
from tessera_ck import scripts as _scripts

from frame_judging import classify_k_regime, classify_shape_family, evaluate_model, lines_of
from frames import build_training_dataset
from judging import data_files, errors, measured
from predict import Predictor

__all__ = ["classify_k_regime", "classify_shape_family", "evaluate_model"]
_OPERATION = "gemm_universal"


def line_of(name: str, found: Dict[str, Any]) -> str:
    return (f"{name:24} mean {100 * found['mean']:6.2f}%  P10 {100 * found['p10']:6.2f}%  P50 "
            f"{100 * found['p50']:6.2f}%  min {100 * found['min']:6.2f}%  NDCG@1 "
            f"{100 * found['top1']:6.2f}%  top-3 {100 * found['top3']:6.2f}%  top-5 "
            f"{100 * found['top5']:6.2f}%  of {found['problems']}")


def build_arg_parser() -> argparse.ArgumentParser:
    return _scripts.parser_of(
        __doc__, ("--model_dir", pathlib.Path),
        ("--data_dir", str, "a folder of measurements, or a file"),
        ("--op --operation", _OPERATION, "accepted; the folder says it",
         {"choices": [_OPERATION, _gemm.STREAMK]}),
        ("--dtype", None, "of the measurements; those of Tessera's folders say it"),
        ("--output -o", None, "", {"type": pathlib.Path}))


def main(argv: Optional[Sequence[str]] = None) -> int:
    options = build_arg_parser().parse_args(argv)
    predictor = Predictor(options.model_dir)
    if not predictor.is_tessera:
        op = "grouped_conv" if predictor.op_type.startswith("grouped_conv") else options.op
        report = evaluate_model(predictor, build_training_dataset(options.data_dir, op,
                                                                  options.dtype))
        print("\n".join(lines_of(report)))
        return _written(report, options.output)
    folder = predictor._file("tflops") or options.model_dir
    files = data_files(options.data_dir)
    report = _scripts.run("evaluate", model=str(folder), data=files, by=["all"],
                          kernels=_gemm.names_of(predictor.op_type))
    report["errors"] = errors(predictor, measured([options.data_dir], predictor.op_type))
    print(f"R2 {report['errors']['r2']:.4f}  RMSE {report['errors']['rmse']:.6g} TFLOPS  of "
          f"{report['errors']['rows']} rows")
    print(line_of("model", report["model"]))
    for each in report.get("slices", []):
        print(line_of(f"{each['by']}={each['value']}", each["summary"]))
    return _written(report, options.output)


def _written(report: Dict[str, Any], output: Optional[pathlib.Path]) -> int:
    if output:
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text(json.dumps(report, indent=2, default=float) + "\n", encoding="utf-8")
        print(output)
    return 0


if __name__ == "__main__":
    sys.exit(_scripts.guarded(main))
