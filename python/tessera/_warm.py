"""The table of plans that a dispatcher has made for calls on arrays, and the way through it.

A call is known by its arrays' types, shapes and strides and by its options. Where the table has its
plan, the extension _fast launches it. Without _fast, which a source checkout may lack, call_slowly
does the same in Python.
"""
from __future__ import annotations

import ctypes
import struct
from typing import Any, Dict, List, Sequence, Tuple

from . import _abi

try:
    from . import _fast
except ImportError:
    _fast = None  # type: ignore[assignment]

MOST_OPERANDS = 24
MOST_ENTRIES = 4096
Table = Dict[Any, Any]


def has_fast() -> bool:
    return _fast is not None


def call_slowly(table: Table, operands: Tuple[Any, ...], options: Tuple[Any, ...]) -> Any:
    """_fast.call() in Python; see there for what it returns."""
    words: List[Any] = []
    addresses: List[int] = []
    for array in operands:
        if array is None:
            words.append(None)
            addresses.append(0)
            continue
        interface = getattr(array, "__array_interface__", None)
        dtype = getattr(array, "dtype", None)
        if interface is None or dtype is None:
            return False
        words.append((id(dtype), interface["shape"], interface.get("strides"),
                      interface["data"][1]))
        addresses.append(interface["data"][0])
    key = (tuple(words), options)
    try:
        entry = table.get(key)
    except TypeError:  # an option has no hash
        return False
    if entry is None:
        return key
    plan, sources = entry[1:3]
    pointers = (ctypes.c_void_p * len(sources))(*[addresses[i] for i in sources])
    status = _abi.function("tsr_launch")(plan, pointers, len(sources), None)
    return status or None


def _bound() -> Any:
    if _fast is None:
        return call_slowly
    launch = _abi.function("tsr_launch")
    _fast.bind(ctypes.cast(launch, ctypes.c_void_p).value or 0)
    return _fast.call


def call(table: Table, operands: Tuple[Any, ...], options: Tuple[Any, ...]) -> Any:
    """The first call: loads the library, and puts the faster function in this one's place."""
    global call
    call = _bound()
    return call(table, operands, options)


def remember(table: Table, key: Any, plan: Any, sources: Sequence[int],
             operands: Tuple[Any, ...]) -> None:
    """sources: for each operand of the plan, its position among the call's operands. The table
    keeps the plan, unless it is the plan's own."""
    if not isinstance(key, tuple) or len(sources) > MOST_OPERANDS:
        return
    # The dtypes stay alive in the table, because their addresses are in the key. One that an array
    # makes anew each time cannot be a part of a key.
    arrays = [array for array in operands if array is not None]
    if any(array.dtype is not array.dtype for array in arrays):
        return
    if len(table) >= MOST_ENTRIES:
        table.clear()
    padded = list(sources) + [0] * (MOST_OPERANDS - len(sources))
    entry = struct.pack(f"Pi{MOST_OPERANDS}i", plan._address, len(sources), *padded)
    keep = [array.dtype for array in arrays]
    holder = None if table is plan._table else plan
    table[key] = (entry, plan._address, tuple(sources), keep, holder)
