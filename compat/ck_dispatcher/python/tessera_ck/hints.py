"""What is accepted and changes nothing here. Who asks for it gets a warning, once for each; the
README of this folder lists it all."""
from __future__ import annotations

import dataclasses
import threading
import warnings
from typing import Any, Dict, List, Set

OWN = "Tessera's kernels decide it by themselves"
ANY_SIZE = "every kernel takes every size"
SUMS = "sums have the type that goes with the operands'"
CACHE = "the cache knows by content what must be compiled"

# Fields of configurations.
GEMM = {"block_size": OWN, "epilogue": OWN, "dtype_acc": SUMS, "pad_m": ANY_SIZE,
        "pad_n": ANY_SIZE, "pad_k": ANY_SIZE}
CONV = {"vector_size_a": OWN, "vector_size_b": OWN, "vector_size_c": OWN, "epilogue": OWN,
        "block_per_cu": OWN, "num_wave_groups": OWN, "num_groups_to_merge": OWN,
        "double_smem_buffer": OWN, "split_image": OWN, "explicit_gemm": OWN, "two_stage": OWN,
        "pad_m": ANY_SIZE, "pad_n": ANY_SIZE, "pad_k": ANY_SIZE}
FMHA = {**{f"{what}_{axis}{i}": OWN for what in ("wave", "warp") for axis in "mnk"
           for i in range(3)},
        "tile_k0": OWN, "tile_n1": OWN, "tile_k1": OWN, "block_per_cu": OWN,
        "num_wave_groups": OWN, "use_trload": OWN, "pad_s": ANY_SIZE, "pad_sk": ANY_SIZE,
        "pad_d": ANY_SIZE, "pad_dv": ANY_SIZE}
# Arguments of functions, and fields of problems.
ARGUMENTS = {"recompile": CACHE, "codegen_path": "the package tessera holds the generator",
             "hipcc": "the flags are those of Tessera's own compiler", "split_k": OWN,
             "executor": "the library has threads of its own", "warp_tile_n": OWN,
             "warp_tile_k": OWN}

_told: Set[str] = set()
_lock = threading.Lock()


def _tell(sentence: str) -> str:
    with _lock:
        is_new = sentence not in _told
        _told.add(sentence)
    if is_new:
        warnings.warn(sentence, stacklevel=4)
    return sentence


def of_config(config: Any, table: Dict[str, str]) -> List[str]:
    """A sentence for each field of the table that is not at its default."""
    sums = "int32" if getattr(config, "dtype_a", "") == "int8" else None
    return [_tell(f"{field.name}={getattr(config, field.name)} changes nothing: "
                  f"{table[field.name]}")
            for field in dataclasses.fields(config) if field.name in table and
            getattr(config, field.name) not in (field.default, sums)]


def of_argument(name: str, value: Any, usual: Any = None) -> None:
    if value != usual:
        _tell(f"{name} changes nothing: {ARGUMENTS[name]}")
