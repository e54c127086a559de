"""The original's JSON of registries, made of lossless names."""
from __future__ import annotations

import collections
import datetime
import json
from typing import Any, Callable, Dict, Sequence

import tessera

from . import gemm
from .targets import Target


def statistics(rows: Sequence[Any], **words: Callable[[Any], str]) -> Dict[str, Dict[str, int]]:
    """How many rows have each word."""
    return {key: dict(collections.Counter(map(word, rows))) for key, word in words.items()}


def gemm_registry_json(kernels: Sequence[str], target: Target) -> str:
    specs = [gemm.spec_of(name, target) for name in kernels]
    count = statistics(
        specs, by_datatype=lambda spec: spec["signature"]["a"],
        by_pipeline=lambda spec: spec["algorithm"]["pipeline"],
        by_scheduler=lambda spec: spec["algorithm"]["scheduler"],
        by_layout=lambda spec: spec["signature"]["layout"],
        by_gfx_arch=lambda spec: spec["target"])
    rows = [{"identifier": spec["name"], "name": gemm.file_name(spec),
             "signature": spec["signature"], "gfx_arch": spec["target"],
             "algorithm": _algorithm(spec["algorithm"], spec["signature"])} for spec in specs]
    return json.dumps({"metadata": metadata(len(rows)), "statistics": count, "kernels": rows},
                      indent=2)


def metadata(total: int) -> Dict[str, Any]:
    now = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
    return {"timestamp": now, "total_kernels": total, "export_version": "1.0",
            "dispatcher_version": "1.0.0", "tessera_version": tessera.__version__}


def shape(word: str) -> Dict[str, int]:
    return dict(zip("mnk", gemm.numbers(word)))


def _algorithm(how: Dict[str, Any], signature: Dict[str, Any]) -> Dict[str, Any]:
    wave = gemm.numbers(how["wave"])
    return {"tile_shape": shape(how["tile"]), "wave_shape": shape(how["wave"]),
            "warp_tile_shape": shape(how["warp_tile"]), "pipeline": how["pipeline"],
            "scheduler": how["scheduler"], "epilogue": how["store"],
            "waves": wave[0] * wave[1] * wave[2], "persistent": how["persistent"],
            "double_buffer": how["pipeline"] == "compv4",
            "preshuffle": signature["preshuffle"], "transpose_c": how["swap_ab"]}
