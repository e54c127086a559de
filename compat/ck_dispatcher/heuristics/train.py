#!/usr/bin/env python3
"""Trains models of measurements, by `tessera train`, into a folder with the original's files.

    train.py --data_dir data --out_dir models/gemm_universal_fp16_avx512 --op gemm_universal
        --dtype fp16 [--targets tflops,latency,bandwidth] [--warm_start DIR]

Tessera's own folder of each quantity lies in OUT_DIR/{tflops,latency,bandwidth}. Where the
measurements have the original's columns (kernel_name, measured_tflops), the models have the
original's form instead, and are trained by the LightGBM of the Python that runs this script.
"""
from __future__ import annotations

import argparse
import datetime
import json
import pathlib
import shutil
import sys
from typing import Any, Dict, List, Optional, Sequence, Tuple

import _paths  # noqa: F401
from tessera import Error
from tessera_ck import conv as _conv
from tessera_ck import gemm as _gemm
from tessera_ck import scripts as _scripts
from tessera_ck import targets as _targets

from frame_training import (DEFAULT_PARAMS, TARGET_COLUMNS, base_operation, build_feature_spec,
                            build_hw_kwargs, check_arch_matches_data, check_feature_compatibility,
                            compute_group_keys, compute_tflops_efficiency, get_feature_engine,
                            load_warm_start_model, run_cv, train_final_model, train_folder)
from frames import build_training_dataset, original_files
from judging import data_files
from predict import HEURISTICS, default_model

__all__ = ["DEFAULT_PARAMS", "TARGET_COLUMNS", "base_operation", "build_feature_spec",
           "build_hw_kwargs", "build_training_dataset", "check_arch_matches_data",
           "check_feature_compatibility", "compute_group_keys", "compute_tflops_efficiency",
           "get_feature_engine", "load_warm_start_model", "run_cv", "train_final_model"]

QUANTITIES = {"tflops": "tflops", "latency": "seconds", "bandwidth": "bandwidth"}
LOGGED = ("tflops", "bandwidth")
# The original's parameters, by LightGBM's names.
PARAMETERS = {"max_depth": 15, "learning_rate": 0.02, "min_data_in_leaf": 10,
              "bagging_fraction": 0.85, "feature_fraction": 0.85, "lambda_l1": 0.05,
              "lambda_l2": 0.5}
LEAVES, TREES, PATIENCE, SEED = 255, 2000, 50, 42


OPERATIONS = ("gemm_universal", "gemm_universal_vec", "gemm_streamk", "grouped_conv",
              "grouped_conv_forward", "grouped_conv_bwd_data", "grouped_conv_bwd_weight", "fmha")


def build_arg_parser() -> argparse.ArgumentParser:
    return _scripts.parser_of(
        __doc__, ("--data_dir", "", "a folder of measurements, or a file; data/ of the scripts"),
        ("--out_dir", None, "models/<op>_<dtype>_<arch> of the scripts if left out",
         {"type": pathlib.Path}),
        ("--operation --op", "gemm_universal", "", {"choices": OPERATIONS}),
        ("--direction", None, "forward, bwd_data, bwd_weight; what the data has, or forward"),
        ("--dtype", "fp16"), ("--arch", None, "what the data says; else gfx950 for the original's "
                              "data, and this machine"), ("--targets", "tflops"),
        ("--n_splits", 5), ("--tune", False, "accepted; parameters are given by --param"),
        ("--no_log_transform", False), ("--warm_start", None, "", {"type": pathlib.Path}),
        ("--warm_start_n_estimators", 500), ("--n_estimators", TREES),
        ("--param", [], "NAME=VALUE for LightGBM", {"action": "append", "nargs": None}))


def op_of(options: argparse.Namespace) -> str:
    """gemm_universal, grouped_conv_forward, ..."""
    word = options.operation
    if word == "fmha":
        raise Error("a model of attention is trained by 'tessera train --op fmha'", "unsupported")
    if word.startswith("grouped_conv"):
        direction = options.direction or word.partition("grouped_conv_")[2] or "forward"
        return f"grouped_conv_{_conv.variant_word(direction)}"
    if word == "gemm_universal_vec":
        raise Error("gemm_universal_vec is for measurements of the original's kernels, in its "
                    "columns", "unsupported")
    return _gemm.STREAMK if word == _gemm.STREAMK else "gemm_universal"


def train_one(options: argparse.Namespace, op: str, quantity: str, folder: pathlib.Path
              ) -> Dict[str, Any]:
    variant = op.partition("grouped_conv_")[2]
    words = f"{_conv.DIRECTIONS[variant][0]}_{options.dtype}" if variant else options.dtype
    parameters = {**PARAMETERS, **dict(each.split("=", 1) for each in options.param)}
    transform = "log1p" if quantity in LOGGED and not options.no_log_transform else "none"
    warm = options.warm_start
    return _scripts.run(
        "train", data=data_files(options.data_dir), op="conv" if variant else "gemm",
        dtype=[words], target=options.arch and _targets.resolve(options.arch).word,
        kernels=_gemm.names_of(op),
        output=str(folder / quantity), quantity=QUANTITIES[quantity], transform=transform,
        folds=options.n_splits, leaves=LEAVES, patience=PATIENCE, seed=SEED,
        trees=options.warm_start_n_estimators if warm else options.n_estimators,
        warm_start=str(warm / quantity) if warm else None,
        param=[f"{name}={value}" for name, value in parameters.items()])


def write(folder: pathlib.Path, name: str, whole: Any) -> None:
    (folder / name).write_text(json.dumps(whole, indent=2) + "\n", encoding="utf-8")


def write_quantity(folder: pathlib.Path, quantity: str, result: Dict[str, Any]) -> Dict[str, Any]:
    """The original's files of one model; returns its manifest."""
    manifest = json.loads((folder / quantity / "manifest.json").read_text(encoding="utf-8"))
    packed = manifest["file"].endswith(".gz")
    shutil.copyfile(folder / quantity / manifest["file"],
                    folder / f"model_{quantity}.lgbm{'.gz' if packed else ''}")
    write(folder, f"cv_metrics_{quantity}.json", [
        {"fold": i, "mean_efficiency": fold["summary"]["mean"],
         "p10_efficiency": fold["summary"]["p10"], "val_groups": fold["summary"]["problems"],
         "trees": fold["trees"]} for i, fold in enumerate(result["folds"] or [])])
    write(folder, f"feature_importances_{quantity}.json", result["importances"])
    return manifest


def trees_of(manifest: Dict[str, Any], folder: pathlib.Path) -> int:
    from tessera_ck import forest
    return len(forest.read(folder / manifest["file"]).trees)


def has_original_columns(place: str) -> bool:
    """Whether a folder's tables are the original's: some are, and it has nothing of Tessera's; or
    there is nothing at all, which build_training_dataset() says."""
    path = pathlib.Path(place)
    return not path.exists() or bool(original_files(place))


def of_direction(table: Any, given: str) -> Tuple[str, Any]:
    """A direction and its rows: the one asked for, else the only one that the table has, else
    forward. Raises Error where no row has it."""
    column = table["variant"] if "variant" in table.columns else None
    found = [] if column is None else sorted({_conv.variant_word(each) for each in column.unique()})
    direction = _conv.variant_word(given or (found[0] if len(found) == 1 else "forward"))
    if not found:
        return direction, table
    rows = table[column.map(_conv.variant_word) == direction].reset_index(drop=True)
    if not len(rows):
        raise Error(f"no row is of the direction {direction}; there are {', '.join(found)}",
                    "not_found")
    return direction, rows


def arch_of(table: Any) -> str:
    """The target that a table says; gfx950 where it says none, or several."""
    found = table["arch"].dropna().unique() if "arch" in table.columns else []
    return str(found[0]) if len(found) == 1 else "gfx950"


def train_original(options: argparse.Namespace, quantities: Sequence[str]) -> int:
    """Trains models of the original's form."""
    word = options.operation
    if word.startswith("grouped_conv"):
        options.operation = "grouped_conv"
    table = build_training_dataset(options.data_dir, op_type=base_operation(options.operation),
                                   dtype=options.dtype)
    if options.operation == "grouped_conv":
        direction, table = of_direction(
            table, options.direction or word.partition("grouped_conv_")[2])
        word = f"grouped_conv_{direction}"
    options.arch = options.arch or arch_of(table)
    known = TARGET_COLUMNS[base_operation(options.operation)]
    for each in quantities:
        if each not in known:
            raise Error(f"{word} has no quantity '{each}' in the original's columns", "not_found")
    given = {name: float(value) if "." in value else int(value)
             for name, value in (each.split("=", 1) for each in options.param)}
    params = {**DEFAULT_PARAMS, "n_estimators": options.n_estimators, **given}
    folder = options.out_dir or default_model(word, options.dtype, options.arch)
    for line in train_folder(table, options, folder, quantities, params):
        print(line)
    print(folder)
    return 0


def main(argv: Optional[Sequence[str]] = None) -> int:
    options = build_arg_parser().parse_args(argv)
    options.data_dir = options.data_dir or str(HEURISTICS / "data")
    quantities: List[str] = options.targets.split(",")
    unknown = [each for each in quantities if each not in QUANTITIES]
    if unknown:
        raise Error(f"--targets knows {', '.join(QUANTITIES)}, got '{unknown[0]}'", "not_found")
    if options.tune:
        print("--tune changes nothing: parameters are given by --param", file=sys.stderr)
    if options.operation != "fmha" and has_original_columns(options.data_dir):
        return train_original(options, quantities)
    op = op_of(options)
    target = _targets.resolve(options.arch)
    folder = options.out_dir or default_model(op, options.dtype, target.name)
    folder.mkdir(parents=True, exist_ok=True)
    print(target)
    results = {each: train_one(options, op, each, folder) for each in quantities}
    manifests = {each: write_quantity(folder, each, results[each]) for each in quantities}
    first = manifests[quantities[0]]
    write(folder, "feature_spec.json", {
        "op_type": op, "dtype": options.dtype, "arch": first["target"],
        "feature_engine": "tessera", "feature_names": first["features"],
        "categorical_features": [], "targets": quantities,
        "log_targets": [each for each in quantities if manifests[each]["transform"] == "log1p"],
        "params": first["params"]})
    before = 0
    if options.warm_start:
        place = options.warm_start / quantities[0]
        before = trees_of(json.loads((place / "manifest.json").read_text()), place)
    total = trees_of(first, folder / quantities[0])
    now = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
    write(folder, "train_manifest.json", {
        "warm_start_from": str(options.warm_start) if options.warm_start else None,
        "prev_n_estimators": before, "new_n_estimators": total - before,
        "total_n_estimators": total, "data_rows": first["rows"], "valid_rows": first["rows"],
        "unique_shapes": first["problems"], "timestamp": now})
    for quantity, result in results.items():
        found = result["out_of_fold"]  # a warm start has no folds
        scores = "" if found is None else (f", mean efficiency {100 * found['mean']:.2f}%, P10 "
                                           f"{100 * found['p10']:.2f}%")
        print(f"{quantity}: {result['rows']} rows of {result['problems']} problems{scores}")
    print(folder)
    return 0


if __name__ == "__main__":
    sys.exit(_scripts.guarded(main))
