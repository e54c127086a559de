"""The table of plans that a dispatcher has made for calls on arrays, and the way through it.

A call is known by its arrays' types, shapes and strides and by its options. Where the table has its
plan, the extension _fast launches it. Without _fast, which a source checkout may lack, call_slowly
does the same in Python.
"""
from __future__ import annotations

import ctypes
import struct
import sys
from typing import Any, Callable, Dict, Optional, Sequence, Tuple

from . import _abi

try:
    from . import _fast
except ImportError:
    _fast = None  # type: ignore[assignment]

MOST_OPERANDS = 24
MOST_ENTRIES = 4096
Table = Dict[Any, Any]
Arrays = Tuple[Any, ...]
Maker = Tuple[int, Callable[..., Any], Tuple[Any, ...]]  # a place, what makes its array, of what


def has_fast() -> bool:
    return _fast is not None


def call_slowly(table: Table, arrays: Arrays, options: Any) -> Any:
    """_fast.call() in Python; see there for what it returns."""
    try:
        key = tuple([array if array is None else _word_of(array) for array in arrays]), options
        found = table.get(key)
        if found is None:
            return [key]
        if found[1]:
            whole = list(arrays)
            for place, make, arguments in found[1]:
                whole[place] = make(*arguments)
            arrays = tuple(whole)
        addresses = [arrays[i].__array_interface__["data"][0] for i in found[3]]
    except Exception:  # no array of NumPy, or one that only claims to be; an option without a hash
        return False
    pointers = (ctypes.c_void_p * len(addresses))(*addresses)
    status = _abi.function("tsr_launch")(found[2], pointers, len(addresses), None)
    return status or arrays


def _word_of(array: Any) -> Any:
    interface = array.__array_interface__
    return id(array.dtype), interface["shape"], interface.get("strides"), interface["data"][1]


def bind() -> None:
    """Loads the library, and tells the extension where its launch is."""
    launch = _abi.function("tsr_launch")
    _fast.bind(ctypes.cast(launch, ctypes.c_void_p).value or 0)


def _bound() -> Any:
    if _fast is None:
        return call_slowly
    bind()
    return _fast.call


def call(table: Table, arrays: Arrays, options: Any) -> Any:
    """The first call: loads the library, and puts the faster function in this one's place."""
    global call
    call = _bound()
    return call(table, arrays, options)


def remember(owner: Any, found: Any, plan: Any, sources: Sequence[int], arrays: Arrays,
             makers: Sequence[Maker] = ()) -> None:
    """Puts a plan into the table of its owner, a dispatcher or the plan itself. found: what call()
    returned for the arrays. sources: for each operand of the plan, its position among the arrays.
    makers: of the results that the call makes itself."""
    held = plan._held
    if not isinstance(found, list) or len(sources) > MOST_OPERANDS or held is None:
        return
    # The dtypes stay alive in the table, because their addresses are in the key. One that an array
    # makes anew each time cannot be a part of a key.
    given = [array for array in arrays if array is not None]
    if any(array.dtype is not array.dtype for array in given):
        return
    padded = list(sources) + [0] * (MOST_OPERANDS - len(sources))
    entry = struct.pack(f"Pi{MOST_OPERANDS}i", held.value, len(sources), *padded)
    keep = [array.dtype for array in given]
    put(owner, owner._table, found[0], (entry, tuple(makers), held, tuple(sources), keep))


def maker(place: int, array: Any, rest: Optional[float]) -> Maker:
    """How a later call makes an array that lies as a new one of NumPy's, which has no gaps. rest:
    what it holds where no kernel writes; None: anything."""
    numpy = sys.modules["numpy"]
    if array.flags.c_contiguous and not rest:
        return place, numpy.empty if rest is None else numpy.zeros, (array.shape, array.dtype)
    how = array.shape, array.dtype, None, 0, array.strides
    return (place, numpy.ndarray, how) if rest is None else (place, _filled, (rest, *how))


def _filled(rest: float, *how: Any) -> Any:
    made = sys.modules["numpy"].ndarray(*how)
    made[...] = rest
    return made


def put(owner: Any, table: Table, key: Any, value: Any) -> None:
    """Into a table of an object of the library, which has none of it when it is closed, not even by
    a call that another thread's close() overtook."""
    if len(table) >= MOST_ENTRIES:
        table.clear()
    table[key] = value
    if owner._held is None:
        table.clear()
