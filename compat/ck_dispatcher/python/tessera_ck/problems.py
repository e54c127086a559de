"""Problems and rows of data as the original has them: dicts."""
from __future__ import annotations

import json
import pathlib
import re
import types
from typing import Any, Dict, Optional

import tessera
from tessera import Error

from . import conv, gemm

_CONV = dict(G=1, Di=1, Z=1, stride_h=1, stride_w=1, stride_d=1, pad_h=0, pad_w=0, pad_d=0,
             dilation_h=1, dilation_w=1, dilation_d=1, direction="forward")


def problem_of(op_type: str, given: Dict[str, Any], spec: Optional[Dict[str, Any]] = None
               ) -> tessera.Problem:
    """{"M", "N", "K", "dtype", "layout"} or {"N", "C", "K", ..., "dtype", "direction"}. spec: a
    model's, which says the type where the problem does not."""
    dtype = given.get("dtype") or (spec or {}).get("dtype") or "fp16"
    if op_type.startswith("gemm"):
        sizes = {axis: int(given.get(axis.upper(), given.get(axis, 0))) for axis in "mnk"}
        layout = str(given.get("layout", "rcr"))[:3]
        return tessera.Problem("gemm", **sizes, dtype=dtype, layout=layout)
    if op_type.startswith("grouped_conv"):
        fields = types.SimpleNamespace(**{**_CONV, **given})
        if "direction" not in given and op_type.partition("grouped_conv_")[2]:
            fields.direction = op_type.partition("grouped_conv_")[2]
        missing = [name for name in ("N", "C", "K", "Hi", "Wi", "Y", "X")
                   if not hasattr(fields, name)]
        if missing:
            raise Error(f"a problem has no '{missing[0]}'", "not_found")
        for name, value in list(vars(fields).items()):
            if name not in ("direction", "dtype", "layout") and isinstance(value, float):
                setattr(fields, name, int(value))
        fields.is_3d = conv.is_3d(fields.Di, fields.Z, fields.pad_d)
        return conv.problem_of(fields, dtype, str(given.get("layout", "nhwgc")))
    raise Error(f"there is no operation '{op_type}' with a model; there are gemm_universal and "
                "grouped_conv", "not_found")


def row_of(spec: Dict[str, Any]) -> Dict[str, Any]:
    """The original's columns of a GEMM kernel."""
    signature, how = spec["signature"], spec["algorithm"]
    row: Dict[str, Any] = {"kernel_name": spec["name"], "dtype": signature["a"],
                           "layout": signature["layout"], "pipeline": how["pipeline"],
                           "scheduler": "intrawave" if how["scheduler"] == "standard"
                           else how["scheduler"],
                           "epilogue": "cshuffle" if how["store"] == "cshuffle" else "default",
                           "pad_m": True, "pad_n": True, "pad_k": True,
                           "persistent": how["persistent"]}
    for prefix, word in (("tile", "tile"), ("warp", "wave"), ("warp_tile", "warp_tile")):
        row.update(zip((f"{prefix}_{axis}" for axis in "mnk"), gemm.numbers(how[word])))
    return row


_SHAPE = re.compile(r"\d+x\d+x\d+")


def row_of_name(name: str) -> Dict[str, Any]:
    """The same of a kernel's name, without asking its target for the whole kernel."""
    words = name.split("_")
    shapes = [gemm.numbers(word) for word in words if _SHAPE.fullmatch(word)]
    row: Dict[str, Any] = {"kernel_name": name, "dtype": words[1], "layout": words[2],
                           "pipeline": words[3], "scheduler": "interwave" if "interwave" in words
                           else "intrawave",
                           "epilogue": "cshuffle" if "storecshuffle" in words else "default",
                           "pad_m": True, "pad_n": True, "pad_k": True,
                           "persistent": "persistent" in words}
    for prefix, shape in zip(("tile", "warp", "warp_tile"), shapes):
        row.update(zip((f"{prefix}_{axis}" for axis in "mnk"), shape))
    return row


def manifest_of(folder: pathlib.Path) -> Dict[str, Any]:
    """The manifest of a folder of Tessera's; {} where there is none."""
    file = folder / "manifest.json"
    return json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}


def op_type_of(spec: Dict[str, Any], folder: pathlib.Path) -> str:
    """A model's operation in the original's words: "grouped_conv_bwd_data"."""
    if spec.get("op_type"):
        return str(spec["op_type"])
    manifest = manifest_of(folder)
    if manifest.get("op") == "conv":
        for word, (direction, _) in conv.DIRECTIONS.items():
            if manifest["dtypes"][0].startswith(direction):
                return f"grouped_conv_{word}"
    return "gemm_universal"


def dtype_of(spec: Dict[str, Any], folder: pathlib.Path) -> Optional[str]:
    """A model's type, from the original's file or from Tessera's."""
    if spec.get("dtype"):
        return str(spec["dtype"])
    dtypes = manifest_of(folder).get("dtypes")
    return str(dtypes[0]).rpartition("_")[2] if dtypes else None
