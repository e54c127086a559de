"""Trains models of the original's form on tables in the original's columns, by the LightGBM of the
caller's Python."""
from __future__ import annotations

import datetime
import gzip
import importlib.util
import inspect
import json
import pathlib
import shutil
from typing import Any, Dict, List, Optional, Sequence

import _paths  # noqa: F401
import numpy

import feature_engine as _engines
import frame_judging
from frames import package, pandas, save_parquet, tflops_column

DEFAULT_PARAMS: Dict[str, Any] = {
    "objective": "regression", "metric": "rmse", "num_leaves": 255, "max_depth": 15,
    "n_estimators": 2000, "learning_rate": 0.02, "min_child_samples": 10, "subsample": 0.85,
    "subsample_freq": 1, "colsample_bytree": 0.85, "reg_alpha": 0.05, "reg_lambda": 0.5,
    "random_state": 42, "verbose": -1}
PATIENCE = 50
TARGET_COLUMNS = {"gemm_universal": {"tflops": "measured_tflops", "latency": "latency_ms",
                                     "bandwidth": "bandwidth_gb_s"},
                  "grouped_conv": {"tflops": "tflops", "latency": "latency_ms",
                                   "bandwidth": "bandwidth_gb_s"}}
_BASES = {"gemm_universal_vec": "gemm_universal", "gemm_streamk": "gemm_universal"}


def base_operation(operation: str) -> str:
    """The operation whose columns a variant has."""
    return _BASES.get(operation, operation)


def get_feature_engine(operation: str, **hardware: Any) -> Any:
    """Raises ValueError for an operation that has no features."""
    name = _engines.OPERATION_ENGINES.get(operation)
    if name is None:
        raise ValueError(f"there are no features of '{operation}'; there are those of "
                         f"{', '.join(_engines.OPERATION_ENGINES)}")
    return _engines.feature_engine_class(name)(**hardware)


def _keys(operation: str) -> Sequence[str]:
    return frame_judging.SHAPE_KEYS[base_operation(operation)]


def compute_group_keys(table: Any, operation: str) -> Any:
    """A text for each row; rows of one problem have the same."""
    used = [key for key in _keys(operation) if key in table.columns]
    return table[used].astype(str).agg("_".join, axis=1).to_numpy()


def compute_tflops_efficiency(table: Any, operation: str, pred_col: str = "pred_tflops") -> Any:
    """A row for each problem: the share of the best that the first by pred_col reaches."""
    found = frame_judging.by_shape(table, pred_col, _keys(operation))
    columns = [key for key in _keys(operation) if key in table.columns]
    columns += ["oracle_best_tflops", "best_tflops", "selected_tflops", "efficiency"]
    return pandas().DataFrame(found, columns=columns)


# ---- What a folder says --------------------------------------------------------------------------

def build_feature_spec(operation: str, engine: Any, dtype: str, arch: str, targets: Sequence[str],
                       log_targets: Sequence[str], params: Dict[str, Any]) -> Dict[str, Any]:
    """What feature_spec.json holds."""
    return {"op_type": operation, "dtype": dtype, "arch": arch,
            "feature_engine": type(engine).__name__,
            "feature_encoding_version": engine.ENCODING_VERSION,
            "feature_names": engine.get_feature_names(),
            "categorical_features": engine.get_categorical_features(),
            "hardware": engine.hardware_config, "targets": list(targets),
            "log_targets": list(log_targets), "params": dict(params)}


def check_feature_compatibility(model_dir: Any, engine: Any) -> None:
    """Raises ValueError where a model that is to be continued sees other features, encodings or
    constants than an engine, and FileNotFoundError where its folder says nothing."""
    file = pathlib.Path(model_dir) / "feature_spec.json"
    if not file.is_file():
        raise FileNotFoundError(f"there is no {file}, a feature_spec.json to compare with")
    spec = json.loads(file.read_text(encoding="utf-8"))
    version, name = spec.get("feature_encoding_version", 0), type(engine).__name__
    if version != engine.ENCODING_VERSION:
        raise ValueError(f"{file} is of feature encoding version {version}, and {name} of version "
                         f"{engine.ENCODING_VERSION}")
    old, new = spec["feature_names"], engine.get_feature_names()
    if old != new:
        raise ValueError(f"Feature schema mismatch: {file} has {len(old)} features and {name} "
                         f"{len(new)}; {sorted(set(old) ^ set(new))[:5]} are in one of them")
    if spec.get("categorical_features", []) != engine.get_categorical_features():
        raise ValueError(f"Categorical feature mismatch: {file} has "
                         f"{spec.get('categorical_features', [])} and {name} "
                         f"{engine.get_categorical_features()}")
    held = spec.get("hardware") or type(engine)().hardware_config
    for key, value in engine.hardware_config.items():
        if key in held and held[key] != value:
            raise ValueError(f"Hardware constant mismatch: {key} is {held[key]} in {file}, and "
                             f"{value} in the data")


def load_warm_start_model(model_dir: Any, target: str) -> Optional[str]:
    """The file of the model for a quantity, which is unpacked beside a .gz; None where there is
    none."""
    file = pathlib.Path(model_dir) / f"model_{target}.lgbm"
    packed = file.with_name(file.name + ".gz")
    if not file.is_file() and packed.is_file():
        with gzip.open(packed) as source, open(file, "wb") as sink:
            shutil.copyfileobj(source, sink)
    return str(file) if file.is_file() else None


# ---- What a table says ---------------------------------------------------------------------------

def check_arch_matches_data(table: Any, arch: str) -> None:
    """Raises ValueError where the table's column arch has another target."""
    if "arch" not in table.columns:
        return
    found = sorted({str(each).partition(":")[0] for each in table["arch"].dropna().unique()})
    if found and found != [arch.partition(":")[0]]:
        raise ValueError(f"--arch is {arch}, but the data carries {', '.join(found)}")


def build_hw_kwargs(table: Any, operation: str) -> Dict[str, int]:
    """The machine's numbers that a table says, for the engine of an operation. Raises ValueError
    for a column that says several, or none that is positive."""
    kind = _engines.feature_engine_class(_engines.OPERATION_ENGINES[operation])
    found = {}
    for name in inspect.signature(kind.__init__).parameters:
        column = f"hw_{name}"
        if name == "self" or column not in table.columns:
            continue
        values = list(dict.fromkeys(table[column].dropna().tolist()))
        if len(values) > 1:
            raise ValueError(f"{column} has {len(values)} distinct values, {values[0]!r} and "
                             f"{values[1]!r} among them; a model is of one machine")
        if values:
            found[name] = _positive(column, values[0])
    return found


def _positive(column: str, value: Any) -> int:
    try:
        number = int(value)
    except (TypeError, ValueError):
        raise ValueError(f"{column} is {value!r}, which is no number") from None
    if number <= 0:
        raise ValueError(f"{column} is {number}, which is non-positive")
    return number


# ---- Training ------------------------------------------------------------------------------------

def _valid(table: Any) -> Any:
    if "is_valid" in table.columns:
        table = table[table["is_valid"].astype(bool)]
    return table.reset_index(drop=True)


def _measured(table: Any, target: str, operation: str) -> Any:
    column = TARGET_COLUMNS[base_operation(operation)][target]
    return table[tflops_column(table.columns) if target == "tflops" else column].to_numpy(float)


def _values(table: Any, target: str, operation: str, log_transform: bool) -> Any:
    values = _measured(table, target, operation)
    return numpy.log1p(values) if log_transform else values


def _fitted(rows: Any, values: Any, params: Dict[str, Any], init_model: Any = None,
            held_out: Any = None) -> Any:
    lightgbm = package("lightgbm", "a model of the original's form")
    model = lightgbm.LGBMRegressor(**params)
    how: Dict[str, Any] = {"init_model": init_model}
    if held_out is not None:
        how["callbacks"] = [lightgbm.early_stopping(PATIENCE, verbose=False)]
        if "eval_X" in inspect.signature(model.fit).parameters:  # the newer name
            how.update(eval_X=held_out[0], eval_y=held_out[1])
        else:
            how["eval_set"] = [held_out]
    model.fit(rows, values, **how)
    return model


def train_final_model(table: Any, engine: Any, target: str, params: Dict[str, Any],
                      operation: str, init_model: Optional[str] = None,
                      log_transform: bool = False) -> Any:
    """A LGBMRegressor of all valid rows. init_model: a file whose trees it adds to."""
    valid = _valid(table)
    return _fitted(engine.extract_batch(valid), _values(valid, target, operation, log_transform),
                   params, init_model)


def run_cv(table: Any, engine: Any, target: str, params: Dict[str, Any], operation: str,
           n_splits: int = 5, log_transform: bool = False) -> Dict[str, Any]:
    """Folds that share no problem. {"folds": a dict for each, "predictions": of each valid row by
    the fold that did not see it}"""
    valid = _valid(table)
    rows = engine.extract_batch(valid)
    values = _values(valid, target, operation, log_transform)
    groups = compute_group_keys(valid, operation)
    names = list(dict.fromkeys(groups))
    if len(names) < 2:
        raise ValueError(f"the table has {len(names)} problem; folds need two at least")
    count = min(n_splits, len(names))
    fold_of = numpy.array([names.index(each) % count for each in groups])
    guessed, folds = numpy.zeros(len(valid)), []
    for fold in range(count):
        held = fold_of == fold
        model = _fitted(rows[~held], values[~held], params, held_out=(rows[held], values[held]))
        found = model.predict(rows[held])
        guessed[held] = numpy.expm1(found) if log_transform else found
        folds.append(_metrics(valid[held], guessed[held], fold, target, operation,
                              int((~held).sum())))
    return {"folds": folds, "predictions": guessed}


def _metrics(table: Any, guessed: Any, fold: int, target: str, operation: str, trained: int
             ) -> Dict[str, Any]:
    measured = _measured(table, target, operation)
    r2, rmse = frame_judging._errors(measured, guessed)
    ranks = -guessed if target == "latency" else guessed
    found = compute_tflops_efficiency(table.assign(pred_tflops=ranks), operation)["efficiency"]
    values = found.tolist() or [0.0]
    return {"fold": fold, "rmse": rmse, "r2": r2, "mean_efficiency": sum(values) / len(values),
            "p10_efficiency": frame_judging.percentile(values, 0.1), "train_size": trained,
            "val_size": len(table), "val_groups": len(found)}


def write(folder: pathlib.Path, name: str, whole: Any) -> None:
    (folder / name).write_text(json.dumps(whole, indent=2) + "\n", encoding="utf-8")


def _save(folder: pathlib.Path, target: str, model: Any, names: Sequence[str]) -> None:
    file = folder / f"model_{target}.lgbm"
    model.booster_.save_model(str(file))
    with open(file, "rb") as source, gzip.open(f"{file}.gz", "wb") as sink:
        shutil.copyfileobj(source, sink)
    gains = model.booster_.feature_importance("gain").tolist()
    write(folder, f"feature_importances_{target}.json",
          dict(sorted(zip(names, gains), key=lambda pair: -pair[1])))


def train_folder(table: Any, options: Any, folder: pathlib.Path, targets: Sequence[str],
                 params: Dict[str, Any]) -> List[str]:
    """Trains a model of each quantity and writes the original's files; what to print of each."""
    operation, arch = options.operation, options.arch or "gfx950"
    check_arch_matches_data(table, arch)
    engine = get_feature_engine(operation, **build_hw_kwargs(table, operation))
    if options.warm_start:
        check_feature_compatibility(options.warm_start, engine)
        params = {**params, "n_estimators": options.warm_start_n_estimators}
    logged = [] if options.no_log_transform else [each for each in targets if each != "latency"]
    folder.mkdir(parents=True, exist_ok=True)
    names, told, before, total = engine.get_feature_names(), [], 0, 0
    for target in targets:
        first = load_warm_start_model(options.warm_start, target) if options.warm_start else None
        found = run_cv(table, engine, target, params, operation, options.n_splits,
                       target in logged)
        model = train_final_model(table, engine, target, params, operation, first, target in logged)
        _save(folder, target, model, names)
        write(folder, f"cv_metrics_{target}.json", found["folds"])
        if target == "tflops" and importlib.util.find_spec("pyarrow"):
            save_parquet(_valid(table).assign(oof_pred_tflops=found["predictions"]),
                         folder / "oof_predictions.parquet")
        total = model.booster_.num_trees()
        before = total - int(params["n_estimators"]) if first else 0
        mean = sum(each["mean_efficiency"] for each in found["folds"]) / len(found["folds"])
        told.append(f"{target}: {len(table)} rows, {total} trees, mean efficiency "
                    f"{100 * mean:.2f}%")
    write(folder, "feature_spec.json", build_feature_spec(operation, engine, options.dtype, arch,
                                                          targets, logged, params))
    write(folder, "train_manifest.json", {
        "warm_start_from": str(options.warm_start) if options.warm_start else None,
        "prev_n_estimators": before, "new_n_estimators": total - before,
        "total_n_estimators": total, "data_rows": len(table), "valid_rows": len(_valid(table)),
        "unique_shapes": len(set(compute_group_keys(table, operation))),
        "timestamp": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")})
    return told
