"""Measurements in the original's files as tables in the original's columns."""
from __future__ import annotations

import importlib.util
import json
import pathlib
import re
from typing import Any, Dict, Iterable, List, Optional

import _paths  # noqa: F401
from tessera import Error

from feature_base import DTYPE_BYTES
from frames import (CANONICAL_COLUMNS, load_parquet, original_files, pandas, read_table,
                    save_parquet)

# What a benchmark's CSV says beside the sizes of a problem.
NOT_OF_A_PROBLEM = ("kernel", "kernel_name", "latency_ms", "tflops", "bandwidth_gb_s", "non_zero",
                    "problem_idx", "run_id", "is_valid", "error_msg")
_PIPELINES = r"basic_v\d+|basic_async_v\d+|comp_async|compv\d+|mem|preshufflev\d+"
_CONV = re.compile(
    r"grouped_conv_(?P<variant>[a-z_]+)_(?P<dtype>[a-z0-9]+)_(?P<ndim_spatial>\d+)d_"
    r"(?P<block_size>\d+)x(?P<gemm_m_per_block>\d+)x(?P<gemm_n_per_block>\d+)_"
    rf"(?P<pipeline>{_PIPELINES})(?:_(?P<wave_mode>intrawave|interwave))?"
    r"(?P<has_dsb>_dsb)?(?P<has_si>_si)?")


def has_tables() -> bool:
    """Whether the caller's Python reads and writes Parquet."""
    return all(importlib.util.find_spec(name) for name in ("pandas", "pyarrow"))


def parse_conv_name(name: str, pattern: Optional[str] = None) -> Dict[str, Any]:
    """The columns of a convolution's kernel; {} for a name of another form. A tile's three numbers
    are called as in the original's data. pattern: a regular expression, whose groups are columns
    """
    if pattern:
        found = re.match(pattern, name)
        return dict(found.groupdict()) if found else {}
    whole = _CONV.fullmatch(name)
    if whole is None:
        return {}
    row: Dict[str, Any] = {key: int(word) if word and word.isdigit() else word
                           for key, word in whole.groupdict().items()}
    row.update(op_type="grouped_conv", wave_mode=row["wave_mode"] or "intrawave",
               has_dsb=int(bool(row["has_dsb"])), has_si=int(bool(row["has_si"])))
    return row


def is_conv_csv(file: Any, pattern: Optional[str] = None) -> bool:
    """Whether each kernel of a CSV has a name that parse_conv_name() knows."""
    columns = pandas().read_csv(file, nrows=0).columns
    if not {"kernel", "latency_ms", "tflops"} <= set(columns):
        return False
    names = pandas().read_csv(file, usecols=["kernel"])["kernel"].unique()
    return len(names) > 0 and all(parse_conv_name(str(name), pattern) for name in names)


def conv_table(file: Any, arch: str, hardware: Dict[str, Any], pattern: Optional[str] = None,
               **given: Any) -> Any:
    """The CSV of a benchmark of convolutions as a table; every row has its own kernel's tile.
    given: columns that the caller knows better than the names."""
    rows = pandas().read_csv(file)
    said = {key: value for key, value in given.items() if value}
    made = []
    for each in rows.to_dict("records"):
        sizes = {key: value for key, value in each.items() if key not in NOT_OF_A_PROBLEM}
        kept = {key: each[key] for key in ("non_zero", "problem_idx") if key in each}
        made.append({"kernel_name": each["kernel"], "latency_ms": float(each["latency_ms"]),
                     "tflops": float(each["tflops"]), **kept, **sizes,
                     **parse_conv_name(str(each["kernel"]), pattern), **said, "arch": arch,
                     **hardware, "is_valid": each["tflops"] > 0, "run_id": 0})
    return pandas().DataFrame(made)


def read_measurements(place: Any, arch: str = "gfx950") -> Any:
    """Tables in the original's columns, or a benchmark's CSV of convolutions. Raises Error where a
    place holds neither."""
    path = pathlib.Path(place)
    if path.suffix == ".csv" and path.is_file() and is_conv_csv(path):
        return conv_table(path, arch, {})
    tables = [read_table(file) for file in original_files(path)]
    if not tables:
        raise Error(f"{place} holds no measurements of the original's kernels", "not_found")
    return pandas().concat(tables, ignore_index=True)


# ---- Nested results of GEMM ----------------------------------------------------------------------

def _json_row(config: Dict[str, Any], run: Dict[str, Any], shared: Dict[str, Any]
              ) -> Dict[str, Any]:
    """One run. The padding that names of mem kernels do not say is what they have."""
    sizes = {axis: int(run[axis]) for axis in "mnk"}
    seconds = float(run["avg_time_ms"]) * 1e-3 if run["is_valid"] else 0.0
    m, n, k = sizes.values()
    moved = (m * k + k * n + m * n) * DTYPE_BYTES[shared["dtype"]]
    row = {**shared, **{key: value for key, value in config.items()
                        if key not in ("name", "dtype", "layout")}, **sizes,
           "kernel_name": config["name"], "split_k": 1, "is_valid": bool(run["is_valid"]),
           "run_id": 0, "latency_ms": seconds * 1e3,
           "measured_tflops": float(run["tflops"]) if run["is_valid"] else 0.0,
           "bandwidth_gb_s": moved / 1e9 / seconds if seconds > 0 else 0.0}
    if row["pipeline"] == "mem":
        row.update(pad_m=True, pad_n=True, pad_k=True)
    return row


def is_original_json(file: Any) -> bool:
    """Whether a file is {"results": [{"kernel_config": ..., "benchmarks": ...}]}."""
    try:
        results = json.loads(pathlib.Path(file).read_text(encoding="utf-8"))["results"]
        return all("tile_m" in each["kernel_config"] and "tflops" in run
                   for each in results for run in each["benchmarks"])
    except (OSError, ValueError, KeyError, TypeError):
        return False


def convert_json_to_parquet(json_file: Any, output_file: Any, arch: str = "gfx950") -> Any:
    """Nested results of benchmarks as a table in the original's columns, which is written and
    returned. Runs that failed are in it, as not valid."""
    whole = json.loads(pathlib.Path(json_file).read_text(encoding="utf-8"))
    said = whole.get("metadata", {})
    shared = {"op_type": "gemm_universal", "dtype": said.get("dtype", "fp16"),
              "layout": said.get("layout", "rcr"), "arch": arch}
    rows = [_json_row(each["kernel_config"], run, shared)
            for each in whole["results"] for run in each["benchmarks"]]
    if not any(row["is_valid"] for row in rows):
        raise Error(f"{json_file} holds no valid measurement", "not_found")
    table = pandas().DataFrame(rows)
    missing = [name for name in CANONICAL_COLUMNS if name not in table.columns]
    table = table.reindex(columns=[*table.columns, *missing])
    save_parquet(table, output_file)
    return table


def merge_datasets(parquet_files: Iterable[Any], output_file: Any) -> Any:
    """All rows of the files that there are, in one; None where there is none."""
    places: List[pathlib.Path] = [pathlib.Path(each) for each in parquet_files]
    tables = [load_parquet(place) for place in places if place.is_file()]
    if not tables:
        return None
    table = pandas().concat(tables, ignore_index=True)
    save_parquet(table, output_file)
    return table
