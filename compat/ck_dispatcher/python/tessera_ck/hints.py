"""What is accepted and changes nothing here. Who asks for it gets a warning, once for each; the
README of this folder lists it all."""
from __future__ import annotations

import threading
import warnings
from typing import Any, List, Set

OWN = "Tessera's kernels decide it by themselves"
ANY_SIZE = "every kernel takes every size"
SUMS = "sums have the type that goes with the operands'"
IN_ORDER = "stream-K kernels add up the parts of a tile in their order"
CACHE = "the cache knows by content what must be compiled"

# Arguments of functions, and fields of problems.
ARGUMENTS = {"recompile": CACHE, "codegen_path": "the package tessera holds the generator",
             "hipcc": "the flags are those of Tessera's own compiler", "split_k": OWN,
             "variant": "without D tensors it is a plain product, as in the original",
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


def of_config(config: Any) -> List[str]:
    """A sentence for each field that changes nothing and is not at its default."""
    sums = "int32" if getattr(config, "dtype_a", "") == "int8" else None
    return [_tell(f"{name}={getattr(config, name)} changes nothing: {why}")
            for name, why in config.IGNORED.items()
            if getattr(config, name) not in (getattr(type(config), name), sums)]


def of_argument(name: str, value: Any, usual: Any = None) -> None:
    if value != usual:
        _tell(f"{name} changes nothing: {ARGUMENTS[name]}")
