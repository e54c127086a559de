"""The original's JSON of registries, made of lossless names."""
from __future__ import annotations

import collections
import datetime
import json
from typing import Any, Dict, List, Sequence

import tessera

from . import gemm
from .targets import Target


def gemm_registry_json(kernels: Sequence[str], target: Target) -> str:
    specs = [gemm.spec_of(name, target) for name in kernels]
    count: Dict[str, Any] = {key: collections.Counter() for key in
                             ("by_datatype", "by_pipeline", "by_scheduler", "by_layout",
                              "by_gfx_arch")}
    rows: List[Dict[str, Any]] = []
    for spec in specs:
        signature, how = spec["signature"], spec["algorithm"]
        for key, word in (("by_datatype", signature["a"]), ("by_pipeline", how["pipeline"]),
                          ("by_scheduler", how["scheduler"]), ("by_layout", signature["layout"]),
                          ("by_gfx_arch", spec["target"])):
            count[key][word] += 1
        rows.append({"identifier": spec["name"], "name": gemm.file_name(spec),
                     "signature": signature, "algorithm": _algorithm(how, signature),
                     "gfx_arch": spec["target"]})
    return json.dumps({"metadata": metadata(len(rows)),
                       "statistics": {key: dict(counter) for key, counter in count.items()},
                       "kernels": rows}, indent=2)


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
