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
        try:
            interface, dtype = array.__array_interface__, array.dtype
            address, is_readonly = interface["data"]
            words.append((id(dtype), interface["shape"], interface.get("strides"), is_readonly))
        except Exception:  # no array of NumPy, or one that only claims to be
            return False
        addresses.append(address)
    key = (tuple(words), options)
    try:
        entry = table.get(key)
    except Exception:  # an option has no hash
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


def remember(owner: Any, key: Any, plan: Any, sources: Sequence[int], operands: Tuple[Any, ...]
             ) -> None:
    """Puts a plan into the table of its owner, a dispatcher or the plan itself. sources: for each
    operand of the plan, its position among the call's operands."""
    held = plan._held
    if not isinstance(key, tuple) or len(sources) > MOST_OPERANDS or held is None:
        return
    # The dtypes stay alive in the table, because their addresses are in the key. One that an array
    # makes anew each time cannot be a part of a key.
    arrays = [array for array in operands if array is not None]
    if any(array.dtype is not array.dtype for array in arrays):
        return
    padded = list(sources) + [0] * (MOST_OPERANDS - len(sources))
    entry = struct.pack(f"Pi{MOST_OPERANDS}i", held.value, len(sources), *padded)
    keep = [array.dtype for array in arrays]
    put(owner, owner._table, key, (entry, held, tuple(sources), keep))


def put(owner: Any, table: Table, key: Any, value: Any) -> None:
    """Into a table of an object of the library, which has none of it when it is closed, not even by
    a call that another thread's close() overtook."""
    if len(table) >= MOST_ENTRIES:
        table.clear()
    table[key] = value
    if owner._held is None:
        table.clear()
