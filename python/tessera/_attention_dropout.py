"""Dropout of attention: the two words of its random numbers, and arrays of whose types Tessera's
problems know nothing."""
from __future__ import annotations

from typing import Any, List, Optional, Sequence

from . import _arrays, _values
from ._abi import Error

NAMES = ("dropout_rng", "random_values")
_HALF = 2**63  # of the numbers that a word of 64 bits holds


def numbers_of(seed: Any, offset: Any) -> List[int]:
    """Both in two's complement; unsigned words of 64 bits are taken, too."""
    return [(_values.whole(name, value, -_HALF, 2 * _HALF) + _HALF) % (2 * _HALF) - _HALF
            for name, value in (("seed", seed), ("offset", offset))]


def is_array(seed: Any) -> bool:
    return bool(_values.shape_of(seed))


def check_array(seed: Any, offset: Any, shape: Sequence[int], dtype: Any) -> None:
    """A seed that is an array has the offset in it."""
    name = str(dtype).rpartition(".")[2]
    if tuple(shape) != (2,) or name not in ("int64", "uint64"):
        raise Error("seed must be a whole number, or an array of seed and offset: the shape (2,) "
                    f"and the type int64 or uint64, got {tuple(shape)} and {name}")
    if not isinstance(offset, int) or offset != 0:
        raise Error(f"offset must be 0 where seed is an array, which has the offset in it, got "
                    f"{_values.shown(offset)}")


def words(dropout: Any, seed: Any, offset: Any, q: Any) -> Optional[Any]:
    """The array of both words beside q; None without dropout."""
    if (dropout if type(dropout) is float else _values.number("dropout", dropout)) == 0:
        return None
    if seed is None:
        raise Error("seed must be given with dropout: a whole number, or an array of seed and "
                    "offset")
    if is_array(seed):
        check_array(seed, offset, seed.shape, seed.dtype)
        return seed
    import numpy
    return _arrays.from_host(numpy.array(numbers_of(seed, offset), "int64"), q,
                             "seed must be an array of seed and offset on the GPU")


def view_of(array: Any, name: str, stream: Optional[int]) -> _arrays.View:
    """The View of one of NAMES, by a type of a problem that stands for its own."""
    word = {"dropout_rng": "int32", "random_values": "int8"}[name]
    given = str(getattr(array, "dtype", type(array).__name__)).rpartition(".")[2]
    if name == "random_values" and given != "uint8":
        raise Error(f"random_values must have the type uint8, got {given}")
    return _arrays.view_as(array, word, name, stream)
