"""Dropout of attention: the two words of its random numbers, and arrays of whose types Tessera's
problems know nothing."""
from __future__ import annotations

import sys
from typing import Any, Optional, Sequence

from . import _arrays, _values
from ._abi import Error

NAMES = ("dropout_rng", "random_values")
_WORDS = 2**64


def whole_word(name: str, value: Any) -> int:
    """A number that two's complement or an unsigned word of 64 bits holds, as the latter."""
    return _values.whole(name, value, -_WORDS // 2, _WORDS) % _WORDS


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
    numbers = [whole_word("seed", seed), whole_word("offset", offset)]
    if _arrays.is_on_host(q):
        import numpy
        return numpy.array(numbers, "uint64")
    package = type(q).__module__.partition(".")[0]
    if package == "torch":
        torch = sys.modules["torch"]
        return torch.tensor([signed(number) for number in numbers], device=q.device)
    if package == "cupy":
        return sys.modules["cupy"].array(numbers, "uint64")
    raise Error(f"seed must be an array of seed and offset on the GPU for an array of {package}, "
                f"got {_values.shown(seed)}")


def signed(word: int) -> int:
    return word - _WORDS if word >= _WORDS // 2 else word


def view_of(array: Any, name: str, stream: Optional[int]) -> _arrays.View:
    """The View of one of NAMES, by a type of a problem that stands for its own."""
    word = {"dropout_rng": "int32", "random_values": "int8"}[name]
    given = str(getattr(array, "dtype", type(array).__name__)).rpartition(".")[2]
    if name == "random_values" and given != "uint8":
        raise Error(f"random_values must have the type uint8, got {given}")
    package = type(array).__module__.partition(".")[0]
    dtype = getattr(sys.modules["torch"], word) if package == "torch" else word
    try:
        same = array.view(dtype)
    except Exception:
        raise Error(f"{name} must have no gaps, got {_values.shown(array)}") from None
    return _arrays.view_of(same, name, stream)


def random_values(shape: Sequence[int], q: Any) -> Any:
    """A new array beside q, where the values of keys that a query does not see must become 0."""
    package = type(q).__module__.partition(".")[0]
    if package == "torch":
        return q.new_empty(shape, dtype=sys.modules["torch"].uint8)
    if _arrays.is_on_host(q):
        import numpy
        return numpy.empty(shape, "uint8")
    if package == "cupy":
        return sys.modules["cupy"].empty(shape, "uint8")
    raise Error(f"random values on a GPU cannot be made for an array of {package}")
