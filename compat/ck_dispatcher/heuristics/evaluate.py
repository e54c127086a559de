#!/usr/bin/env python3
"""Says how good a model is, by `tessera evaluate`, with R2 and RMSE of its predictions.

    evaluate.py --model_dir D --data_dir D [--op gemm_universal] [--dtype fp16] [--output FILE]
"""
from __future__ import annotations

import json
import pathlib
import sys
from typing import Any, Dict

import _paths  # noqa: F401
from tessera_ck import gemm as _gemm
from tessera_ck import scripts as _scripts

from judging import data_files, errors, measured
from predict import Predictor


def line_of(name: str, found: Dict[str, Any]) -> str:
    return (f"{name:24} mean {100 * found['mean']:6.2f}%  P10 {100 * found['p10']:6.2f}%  P50 "
            f"{100 * found['p50']:6.2f}%  min {100 * found['min']:6.2f}%  NDCG@1 "
            f"{100 * found['top1']:6.2f}%  top-3 {100 * found['top3']:6.2f}%  top-5 "
            f"{100 * found['top5']:6.2f}%  of {found['problems']}")


def main() -> int:
    options = _scripts.parsed(
        __doc__, ("--model_dir", pathlib.Path),
        ("--data_dir", str, "a folder of measurements, or a file"),
        ("--op --operation", "gemm_universal", "accepted; the folder says it"),
        ("--dtype", None, "accepted; the folder says it"),
        ("--output -o", None, "", {"type": pathlib.Path}))
    predictor = Predictor(options.model_dir)
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
    if options.output:
        options.output.parent.mkdir(parents=True, exist_ok=True)
        options.output.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
        print(options.output)
    return 0


if __name__ == "__main__":
    sys.exit(_scripts.guarded(main))
