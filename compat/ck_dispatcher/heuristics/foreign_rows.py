"""Measurements in the original's files, as rows that `tessera data import` takes."""
from __future__ import annotations

import csv
import json
import pathlib
import re
import tempfile
from typing import Any, Dict, Iterable, List, Optional, Tuple

import _paths  # noqa: F401
from tessera import Error
from tessera_ck import conv as _conv
from tessera_ck import scripts as _scripts
from tessera_ck import targets as _targets

from gemm_utils import GemmKernelConfig

SHAPE = re.compile(r"^Shape\s+\d+:.*$", re.MULTILINE)
CONFIG = ("pipeline", "scheduler", "persistent", "tile_m", "tile_n", "tile_k", "warp_m", "warp_n",
          "warp_k", "warp_tile_m", "warp_tile_n", "warp_tile_k")
# Of a generated file's name, behind type and layout.
NAME = re.compile(r"(?P<pipeline>mem|compv3|compv4|compv5)_(?P<epilogue>\w+?)_"
                  r"(?P<scheduler>intrawave|interwave|default)_(?:True|False)_(?:True|False)_"
                  r"(?:True|False)_(?P<persistent>True|False)_(?P<tile>\d+x\d+x\d+)_"
                  r"(?P<warp>\d+x\d+x\d+)_(?P<warp_tile>\d+x\d+x\d+)")


def read_text(file: Any) -> str:
    try:
        return pathlib.Path(file).read_text(encoding="utf-8")
    except OSError as error:
        raise Error(f"{file} cannot be read: {error.strerror}", "io_error") from None


def kernel_of(config: Dict[str, Any], dtype: str, layout: str, arch: str) -> str:
    """Tessera's name for the original's fields. Padding is not part of it: every kernel takes every
    size, as the original's mem kernels do."""
    given = {key: config[key] for key in CONFIG if key in config}
    return GemmKernelConfig(dtype=dtype, layout=layout, gfx_arch=arch, **given).name


def config_of_name(name: str) -> Dict[str, Any]:
    """The fields of a generated file's name. Raises Error for another one."""
    found = NAME.search(name)
    if found is None:
        raise Error(f"'{name}' is no name of a kernel of the original", "parse_error")
    config: Dict[str, Any] = {"pipeline": found["pipeline"], "scheduler": found["scheduler"],
                              "persistent": found["persistent"] == "True"}
    for part in ("tile", "warp", "warp_tile"):
        config.update(zip((f"{part}_{axis}" for axis in "mnk"),
                          map(int, found[part].split("x"))))
    return config


def _name_of(given: str, config: Optional[Dict[str, Any]], dtype: str, layout: str, arch: str
             ) -> str:
    """A name of Tessera's stays as it is."""
    if given.endswith("_" + arch):
        return given
    return kernel_of(config or config_of_name(given), dtype, layout, arch)


def nested_rows(text: str, arch: str) -> List[Dict[str, Any]]:
    """Of {"metadata", "problem_sizes", "results": [{"kernel_config", "benchmarks"}]}."""
    try:
        whole = json.loads(text)
        rows = []
        for result in whole["results"]:
            config = result["kernel_config"]
            dtype = config.get("dtype", whole["metadata"]["dtype"])
            layout = config.get("layout", whole["metadata"]["layout"])
            kernel = _name_of(config.get("name", ""), config, dtype, layout, arch)
            for one in result["benchmarks"]:
                if one.get("is_valid", True) and one["avg_time_ms"] > 0:
                    rows.append({"m": one["m"], "n": one["n"], "k": one["k"], "dtype": dtype,
                                 "layout": layout, "kernel": kernel,
                                 "latency_ms": one["avg_time_ms"]})
        return rows
    except (ValueError, KeyError, TypeError) as error:
        raise Error(f"no benchmark results of the original: {error!r}", "parse_error") from None


def log_rows(text: str, arch: str) -> List[Dict[str, Any]]:
    """Of 'Shape N: M= N= K= dtype= layout=' and blocks of JSON behind it."""
    rows = []
    decoder = json.JSONDecoder()
    heads = list(SHAPE.finditer(text))
    if not heads:
        raise Error("the log has no line 'Shape N: M= N= K= dtype= layout='", "parse_error")
    for head, end in zip(heads, [*(each.start() for each in heads[1:]), len(text)]):
        fields = dict(re.findall(r"(\w+)=\s*(\w+)", head[0]))
        at = text.find("{", head.end(), end)
        while at >= 0:
            try:
                block, at = decoder.raw_decode(text, at)
                found = block["perf_result"]
                kernel = _name_of(block["name"], None, fields["dtype"], fields["layout"], arch)
                rows.append({**{axis: block["problem"][axis] for axis in "mnk"},
                             "dtype": fields["dtype"], "layout": fields["layout"],
                             "kernel": kernel, "latency_ms": found["latency(ms)"]})
            except (ValueError, KeyError, TypeError) as error:
                raise Error(f"a block of '{head[0]}' cannot be read: {error!r}",
                            "parse_error") from None
            at = text.find("{", at, end)
    return rows


def conv_rows(text: str, variant: str, dtype: str, pattern: str = "") -> List[Dict[str, Any]]:
    """Of the CSV of grouped_conv_full_benchmark.py; pattern: part of the kernels' names."""
    direction = _conv.DIRECTIONS[_conv.variant_word(variant)][0]
    rows = []
    for number, row in enumerate(csv.DictReader(text.splitlines()), 2):
        try:
            if pattern not in row["kernel"] or float(row["latency_ms"]) <= 0:
                continue
            size = {name: int(row[name]) for name in ("N", "C", "K", "G", "Y", "X", "stride_h",
                                                      "stride_w", "pad_h", "pad_w")}
            rows.append({**size, "h": int(row["Hi"]), "w": int(row["Wi"]), "dtype": dtype,
                         "direction": direction, "layout": "nhwgc", "kernel": row["kernel"],
                         "latency_ms": float(row["latency_ms"])})
        except (KeyError, ValueError, TypeError) as error:
            raise Error(f"line {number} is no measurement of a convolution: {error!r}",
                        "parse_error") from None
    return rows


def store_rows(rows: List[Dict[str, Any]], op: str, arch: str, output: Any,
               merged: Iterable[Any] = ()) -> Tuple[int, pathlib.Path]:
    """Imports rows, checks them, and writes `output`: a store, .csv or .parquet file. With
    `merged`, files of Tessera's, all together lie in {stem}_merged beside it."""
    if not rows:
        raise Error("there is no valid measurement", "not_found")
    target = _targets.resolve(arch)
    place = pathlib.Path(output)
    place.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        flat, store = pathlib.Path(folder) / "rows.json", pathlib.Path(folder) / "rows.sqlite"
        flat.write_text(json.dumps(rows), encoding="utf-8")
        _scripts.run("data", what="import", files=[str(store), str(flat)],
                     device_name=target.name, target=target.name, op=op)
        checked = _scripts.run("data", what="check", files=[str(store)])
        for finding in checked.get("findings", []):
            if finding["count"]:
                print(f"{finding['what']}: {finding['count']}, {finding['rule']}")
        _write(store, place)
        others = [str(each) for each in merged]
        if others:
            together = pathlib.Path(folder) / "all.sqlite"
            _scripts.run("data", what="merge", files=[str(together), str(store), *others])
            _write(together, place.with_name(f"{place.stem}_merged{place.suffix}"))
    print(f"{len(rows)} measurements in {place}")
    return len(rows), place


def _write(store: pathlib.Path, place: pathlib.Path) -> None:
    if place.suffix in (".csv", ".parquet"):
        _scripts.run("data", what="export", files=[str(store), str(place)])
    else:
        _scripts.run("data", what="merge", files=[str(place), str(store)])
