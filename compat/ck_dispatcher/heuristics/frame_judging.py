"""How good a model of the original's form is on a table in the original's columns."""
from __future__ import annotations

import math
from typing import Any, Callable, Dict, List, Sequence, Tuple

import _paths  # noqa: F401
import numpy

from frames import tflops_column
from judging import Choice, percentile

# The keys of one problem's rows, by the operation.
SHAPE_KEYS = {"gemm_universal": ("m", "n", "k"),
              "grouped_conv": ("N", "C", "K", "G", "Hi", "Wi", "Y", "X", "Di", "Z", "stride_h",
                               "stride_w", "stride_d", "pad_h", "pad_w", "pad_d", "dilation_h",
                               "dilation_w", "dilation_d")}


def keys_of(columns: Any) -> Sequence[str]:
    """The keys of a table's problems: those of a convolution where it has channels."""
    return SHAPE_KEYS["grouped_conv" if {"C", "Hi"} <= set(columns) else "gemm_universal"]


def classify_shape_family(m: int, n: int, k: int) -> str:
    for limit, word in ((32, "tiny_m"), (256, "small_m"), (4096, "medium_m")):
        if m < limit:
            return word
    return "large_m"


def classify_k_regime(k: int) -> str:
    return "shallow_k" if k < 512 else "medium_k" if k < 4096 else "deep_k"


def predicted(predictor: Any, table: Any, engine: Any = None) -> Any:
    """The model's TFLOPS of each row."""
    used = predictor.feature_engine if engine is None else engine
    rows = predictor.select_features(used.extract_batch(table))
    values = numpy.asarray(predictor._load_model("tflops").predict(rows), numpy.float64)
    return numpy.expm1(values) if "tflops" in predictor._log_targets else values


def by_shape(table: Any, column: str, keys: Sequence[str]) -> List[Dict[str, Any]]:
    """For each problem with a measured kernel: the best, the one that the column ranks first (of
    equal ones the first row), and the share of the best that it reaches."""
    used = [key for key in keys if key in table.columns]
    measured = tflops_column(table.columns)
    made = []
    for shape, rows in table.groupby(used, sort=True):
        best = float(rows[measured].max())
        if best <= 0:
            continue
        chosen = rows.loc[rows[column].idxmax()]
        reached = float(chosen[measured])
        made.append({**dict(zip(used, shape)), "best_tflops": best, "oracle_best_tflops": best,
                     "selected_tflops": reached, "efficiency": reached / best, "row": chosen.name,
                     "best_row": rows[measured].idxmax()})
    return made


def summary(values: Sequence[float]) -> Dict[str, float]:
    return {"count": len(values), "mean": sum(values) / len(values),
            "p10": percentile(values, 0.1), "p50": percentile(values, 0.5), "min": min(values)}


def _slices(found: List[Dict[str, Any]], word_of: Callable[[Dict[str, Any]], str]
            ) -> Dict[str, Dict[str, float]]:
    groups: Dict[str, List[float]] = {}
    for each in found:
        groups.setdefault(word_of(each), []).append(each["efficiency"])
    return {word: summary(values) for word, values in sorted(groups.items())}


def _errors(measured: Any, guessed: Any) -> Tuple[float, float]:
    """(R2, RMSE)"""
    left = float(((measured - guessed) ** 2).sum())
    spread = float(((measured - measured.mean()) ** 2).sum())
    return (1 - left / spread if spread > 0 else float(left == 0),
            math.sqrt(left / len(measured)))


def evaluate_model(predictor: Any, table: Any, feature_engine: Any = None) -> Dict[str, Any]:
    """The errors of all rows that are valid, the shares of the best that the choices reach, and
    these by the families of shapes, by depths, and by the best kernel's pipeline."""
    valid = valid_rows(table)
    guessed = predicted(predictor, valid, feature_engine)
    r2, rmse = _errors(valid[tflops_column(valid.columns)].to_numpy(float), guessed)
    keys = keys_of(valid.columns)
    found = by_shape(valid.assign(pred_tflops=guessed), "pred_tflops", keys)
    values = [each["efficiency"] for each in found]
    whole = summary(values)
    pipelines = valid["pipeline"] if "pipeline" in valid.columns else None
    return {
        "global_metrics": {
            "num_shapes": len(found), "num_valid_rows": len(valid), "r2": r2, "rmse": rmse,
            "ndcg_at_1": sum(value == 1.0 for value in values) / len(values),
            **{f"efficiency_{name}": whole[name] for name in ("mean", "p10", "p50", "min")}},
        "per_shape_efficiency": [{key: value for key, value in each.items()
                                  if key not in ("row", "best_row")} for each in found],
        **_slices_of_gemm(found if keys == SHAPE_KEYS["gemm_universal"] else []),
        "pipeline_metrics": {} if pipelines is None else _slices(
            found, lambda each: str(pipelines[each["best_row"]]))}


def _slices_of_gemm(found: List[Dict[str, Any]]) -> Dict[str, Any]:
    return {"shape_family_metrics": _slices(found, lambda each: classify_shape_family(
                each["m"], each["n"], each["k"])),
            "k_regime_metrics": _slices(found, lambda each: classify_k_regime(each["k"]))}


def valid_rows(table: Any) -> Any:
    """Raises ValueError where no row of a table is a valid measurement."""
    valid = table
    if "is_valid" in table.columns:
        valid = table[table["is_valid"].astype(bool)]
    valid = valid[valid[tflops_column(valid.columns)] > 0].reset_index(drop=True)
    if not len(valid):
        raise ValueError("the table has no valid measurement")
    return valid


def choices(predictor: Any, table: Any) -> List[Choice]:
    """What a model chooses for each problem of a table, among the kernels that the table names."""
    valid = valid_rows(table)
    guessed = predicted(predictor, valid)
    used = [key for key in keys_of(valid.columns) if key in valid.columns]
    made = []
    for each in by_shape(valid.assign(pred_tflops=guessed), "pred_tflops", used):
        chosen, best = valid.loc[each["row"]], valid.loc[each["best_row"]]
        made.append(Choice(" ".join(f"{key}={int(each[key])}" for key in used),
                           chosen["kernel_name"], each["selected_tflops"], best["kernel_name"],
                           each["best_tflops"], float(guessed[each["row"]])))
    return made


def lines_of(report: Dict[str, Any]) -> List[str]:
    """What a script prints of evaluate_model()."""
    whole = report["global_metrics"]
    made = [f"R2 {whole['r2']:.4f}  RMSE {whole['rmse']:.6g} TFLOPS  of {whole['num_valid_rows']} "
            "rows",
            f"{'model':24} mean {100 * whole['efficiency_mean']:6.2f}%  P10 "
            f"{100 * whole['efficiency_p10']:6.2f}%  P50 {100 * whole['efficiency_p50']:6.2f}%  "
            f"min {100 * whole['efficiency_min']:6.2f}%  NDCG@1 {100 * whole['ndcg_at_1']:6.2f}%  "
            f"of {whole['num_shapes']}"]
    for key in ("shape_family_metrics", "k_regime_metrics", "pipeline_metrics"):
        for word, found in report[key].items():
            made.append(f"{word:24} mean {100 * found['mean']:6.2f}%  P10 "
                        f"{100 * found['p10']:6.2f}%  P50 {100 * found['p50']:6.2f}%  min "
                        f"{100 * found['min']:6.2f}%  of {found['count']}")
    return made
