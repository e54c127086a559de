"""Tables of measurements in the original's columns, as pandas has them, and the names of kernels.

pandas, and pyarrow for Parquet, are those of the caller's Python; they are imported when a table is
asked for.
"""
from __future__ import annotations

import importlib
import json
import pathlib
import re
import uuid
from typing import Any, Dict, Iterator, List, Optional, Tuple

import _paths  # noqa: F401
from tessera import Error

_SHAPES = tuple(f"{prefix}_{axis}" for prefix in ("tile", "warp", "warp_tile") for axis in "mnk")
_PADS = ("pad_m", "pad_n", "pad_k", "persistent")
VECTORS = ("vec_a", "vec_b", "vec_c")
CANONICAL_COLUMNS = ["op_type", "dtype", "layout", "arch", "kernel_name", "m", "n", "k", "split_k",
                     "measured_tflops", "latency_ms", "bandwidth_gb_s", "is_valid", *_SHAPES,
                     "pipeline", "scheduler", "epilogue", *_PADS, *VECTORS, "run_id"]


def package(name: str, what: str) -> Any:
    """A package of the caller's Python. Raises Error where it is not installed."""
    try:
        return importlib.import_module(name)
    except ImportError:
        raise Error(f"{what} needs the package {name}, which this Python has not", "unsupported"
                    ) from None


def pandas() -> Any:
    return package("pandas", "a table of measurements")


# ---- Names of kernels ----------------------------------------------------------------------------

_TYPES = "fp64|fp32|fp16|bf16|fp8|bf8|int8|int4|pk_fp4"
_HEAD = re.compile(rf"gemm_(?:universal_)?({_TYPES})_(rcr|rrr|crr|ccr)(?:_([a-z0-9_]+?))?(?=_|$)")
_WHOLE = re.compile(
    rf"gemm_(?:universal_)?({_TYPES})_(rcr|rrr|crr|ccr)_([a-z0-9_]+?)_([a-z]+)_([a-z]+)"
    r"_(True|False|[01])_(True|False|[01])_(True|False|[01])_(True|False|[01])"
    r"_(\d+)x(\d+)x(\d+)_(\d+)x(\d+)x(\d+)_(\d+)x(\d+)x(\d+)(?=_|$)")
_VECTOR = re.compile(r"_vec(\d+)_(\d+)_(\d+)(?=_|$)")


def parse_kernel_name(name: str) -> Dict[str, Any]:
    """The fields that a kernel's name says. {} for a name that is none, or whose widths of vectors
    are not three numbers; type, layout and pipeline alone for one that ends before its tile."""
    widths = _VECTOR.search(name)
    if widths is None and re.search(r"_vec\d", name):
        return {}
    plain = _VECTOR.sub("", name)
    whole = _WHOLE.match(plain)
    if whole is None:
        return _parse_head(plain)
    words = whole.groups()
    found: Dict[str, Any] = dict(zip(("dtype", "layout", "pipeline", "epilogue", "scheduler"),
                                     words))
    found.update(zip(_PADS, (word in ("True", "1") for word in words[5:9])))
    found.update(zip(_SHAPES, map(int, words[9:])))
    found.update(zip(VECTORS, map(int, widths.groups()) if widths else (0, 0, 0)))
    return found


def _parse_head(name: str) -> Dict[str, Any]:
    head = _HEAD.match(name)
    if head is None:
        return {}
    return {key: word for key, word in zip(("dtype", "layout", "pipeline"), head.groups()) if word}


# ---- Logs ----------------------------------------------------------------------------------------

_SHAPE = re.compile(r"Shape\s+\d+:\s*M=(\d+)\s+N=(\d+)\s+K=(\d+)(?:\s+dtype=(\S+))?"
                    r"(?:\s+layout=(\S+))?")
_LETTERS = {"rowmajor": "r", "columnmajor": "c", "colmajor": "c", "r": "r", "c": "c"}


def _layout_from_problem(problem: Dict[str, Any]) -> str:
    """"rcr", with "?" for what is not said."""
    return "".join(_LETTERS.get(str(problem.get(f"layout_{operand}", "")).lower(), "?")
                   for operand in "abc")


def _blocks(text: str) -> Iterator[Tuple[Optional["re.Match[str]"], str]]:
    """Each block of braces that begins a line, and the last shape before it."""
    shape: Optional["re.Match[str]"] = None
    block, depth = "", 0
    for line in text.splitlines():
        found = _SHAPE.match(line.strip())
        if found or line.startswith("{"):
            if depth:
                yield shape, block  # was not closed
            block, depth = "", 0
        if found:
            shape = found
        elif depth or line.startswith("{"):
            block += line + "\n"
            depth += line.count("{") - line.count("}")
            if depth <= 0:
                yield shape, block
                block, depth = "", 0
    if depth:
        yield shape, block


def _row_of(shape: Optional["re.Match[str]"], block: Dict[str, Any]) -> Dict[str, Any]:
    """One measurement. Raises KeyError or TypeError where it lacks a part."""
    problem, result = block.get("problem", {}), block["perf_result"]
    row: Dict[str, Any] = parse_kernel_name(block["name"])
    sizes = dict(zip("mnk", map(int, shape.groups()[:3]))) if shape else {}
    row.update({axis: int(problem.get(axis, sizes.get(axis, 0))) for axis in "mnk"})
    layout = _layout_from_problem(problem)
    for name, given in (("dtype", (problem.get("dtype_a"), shape and shape[4])),
                        ("layout", (layout if "?" not in layout else None, shape and shape[5]))):
        row[name] = next((word for word in given if word), row.get(name))
    row.update(kernel_name=block["name"], split_k=int(problem.get("split_k", 1)),
               latency_ms=float(result["latency(ms)"]),
               measured_tflops=float(result["tflops(TFlops)"]),
               bandwidth_gb_s=float(result["bandwidth(GB/s)"]))
    row["is_valid"] = row["measured_tflops"] > 0 and row["latency_ms"] > 0
    return row


def well_formed(path: Any, folder: pathlib.Path) -> Tuple[Any, int]:
    """(a copy of a log in the folder without its malformed blocks, how many these are); the log
    itself where no block is left, or none is malformed."""
    kept: List[str] = []
    skipped = 0
    for shape, text in _blocks(pathlib.Path(path).read_text(encoding="utf-8", errors="replace")):
        try:
            _row_of(shape, json.loads(text))
            kept += [shape[0]] if shape else []
            kept.append(text.rstrip("\n"))
        except (ValueError, KeyError, TypeError, AttributeError):
            skipped += 1
    if not kept or not skipped:
        return path, 0
    file = folder / pathlib.Path(path).name
    file.write_text("\n".join(kept) + "\n", encoding="utf-8")
    return file, skipped


def parse_streaming_log(path: Any, arch: str = "gfx950", op_type: str = "gemm_universal",
                        run_id: Optional[str] = None) -> Any:
    """The measurements of a log, one a row, in CANONICAL_COLUMNS. A block that is no measurement is
    left out, and attrs["skipped"] of the table counts them."""
    rows: List[Dict[str, Any]] = []
    skipped = 0
    shared = {"arch": arch, "op_type": op_type, "run_id": run_id or uuid.uuid4().hex[:12]}
    for shape, text in _blocks(pathlib.Path(path).read_text(encoding="utf-8", errors="replace")):
        try:
            rows.append({**_row_of(shape, json.loads(text)), **shared})
        except (ValueError, KeyError, TypeError, AttributeError):
            skipped += 1
    table = pandas().DataFrame(rows, columns=CANONICAL_COLUMNS)
    table.attrs["skipped"] = skipped
    return table


# ---- Files ---------------------------------------------------------------------------------------

def save_parquet(table: Any, path: Any) -> None:
    """Makes the folder where it is not there."""
    package("pyarrow", "a Parquet file")
    place = pathlib.Path(path)
    place.parent.mkdir(parents=True, exist_ok=True)
    table.to_parquet(place, index=False)


def load_parquet(path: Any) -> Any:
    package("pyarrow", "a Parquet file")
    return pandas().read_parquet(path)


def _columns_of(file: pathlib.Path) -> List[str]:
    """The names of a table's columns; [] where this Python cannot read it."""
    try:
        if file.suffix == ".csv":
            with open(file, encoding="utf-8") as stream:
                return stream.readline().strip().split(",")
        return list(importlib.import_module("pyarrow.parquet").read_schema(file).names)
    except (ImportError, OSError, ValueError):
        return []


def read_table(file: pathlib.Path) -> Any:
    return pandas().read_csv(file) if file.suffix == ".csv" else load_parquet(file)


def tflops_column(columns: Any) -> str:
    """The column of the measured TFLOPS: tables of GEMM and of convolutions call it otherwise."""
    return "measured_tflops" if "measured_tflops" in columns else "tflops"


def original_files(place: Any) -> List[pathlib.Path]:
    """The tables in a folder and its folders, or the file itself, that have the original's columns.
    """
    path = pathlib.Path(place)
    files = [path] if path.is_file() else sorted(path.rglob("*")) if path.is_dir() else []
    found = []
    for file in files:
        if file.suffix in (".csv", ".parquet"):
            columns = _columns_of(file)
            if {"kernel_name", tflops_column(columns)} <= set(columns):
                found.append(file)
    return found


def _is_of(table: Any, op_type: str) -> Any:
    """Which rows of a file are of an operation: by op_type, or where a row says none by the column
    of the measured TFLOPS."""
    is_conv = op_type.startswith("grouped_conv")
    silent = "grouped_conv" if tflops_column(table.columns) == "tflops" else "gemm_universal"
    if "op_type" not in table.columns:
        said = pandas().Series(silent, index=table.index)
    else:
        said = table["op_type"].fillna("").replace("", silent)
    return said.str.startswith("grouped_conv") if is_conv else said == op_type


def _with_one_type(table: Any) -> Any:
    """Columns that hold numbers in one file and texts in another, such as run_id, hold texts."""
    for column in table.columns:
        kinds = {isinstance(value, str) for value in table[column].dropna()
                 } if table[column].dtype == object else set()
        if len(kinds) == 2:
            table[column] = table[column].map(str, na_action="ignore")
    return table


def build_training_dataset(data_dir: Any, op_type: Optional[str] = None,
                           dtype: Optional[str] = None) -> Any:
    """All measurements of a folder in the original's columns, of an operation and a type where a
    table says them. Raises FileNotFoundError where there is none."""
    files = original_files(data_dir)
    if not files:
        raise FileNotFoundError(f"{data_dir} holds no measurements: no .parquet or .csv file with "
                                "the columns kernel_name, and measured_tflops or tflops")
    tables = [read_table(file) for file in files]
    if op_type:
        tables = [table[_is_of(table, op_type)] for table in tables]
    found = [table for table in tables if len(table)]
    table = pandas().concat(found or tables, ignore_index=True)
    if dtype and "dtype" in table.columns:
        table = table[table["dtype"] == dtype]
    if not len(table):
        raise FileNotFoundError(f"{data_dir} holds no measurements of {op_type} with {dtype}")
    return _with_one_type(table.reset_index(drop=True))
