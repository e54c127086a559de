"""Single values that arguments hold: what they must be, and the sentences for others."""
from __future__ import annotations

import operator
from typing import Any, List, Optional, Tuple

_LEAST, _END = -2**63, 2**64  # of whole numbers, signed and unsigned
_LONGEST = 80  # of a value in a sentence


class Error(RuntimeError):
    """What the library refuses or fails at, as a sentence.

    code: one word of _abi.CODES, such as "invalid_argument". details: longer evidence, such as a
    compiler's output; may be "".
    """

    __module__ = "tessera"

    def __init__(self, sentence: str, code: str = "invalid_argument", details: str = "") -> None:
        super().__init__(sentence)
        self.code = code
        self.details = details

    def __reduce__(self) -> Any:  # an exception of a worker process arrives whole
        return Error, (str(self), self.code, self.details)


def shape_of(value: Any) -> Optional[Tuple[Any, ...]]:
    """That of an array; None of anything else."""
    try:
        shape = value.shape if hasattr(value, "dtype") else None
    except Exception:  # an object whose attributes fail
        return None
    return tuple(shape) if isinstance(shape, tuple) else None


def shown(value: Any) -> str:
    """A value in a sentence: as Python writes it where that is short, else its type."""
    if shape_of(value):
        return f"{type(value).__name__} of the shape {shape_of(value)}"
    if value is None or isinstance(value, (bool, int, float, str, bytes, tuple, list, dict)):
        try:
            text = repr(value)
        except Exception:  # of an object within, or a number of too many digits
            text = ""
        if text.isprintable() and 0 < len(text) <= _LONGEST:
            return text
    return type(value).__name__


def whole(name: str, value: Any, least: int = _LEAST, end: int = _END) -> int:
    """A number of any type of whole numbers, at least `least` and below `end`."""
    try:
        found = operator.index(value)
    except Exception:
        raise Error(f"{name} must be a whole number, got {shown(value)}") from None
    if not least <= found < end:
        raise Error(f"{name} must be at least {_power(least)} and below {_power(end)}, got "
                    f"{shown(found)}")
    return found


def at_least(name: str, value: Any, least: int) -> int:
    found = whole(name, value)
    if found < least:
        raise Error(f"{name} must be at least {least}, got {found}")
    return found


def _power(bound: int) -> str:
    size = abs(bound)
    if size < 2**16 or size & (size - 1):
        return str(bound)
    return f"{'-' if bound < 0 else ''}2^{size.bit_length() - 1}"


def whole_int(name: str, value: Any) -> int:
    """One that C's int holds."""
    return whole(name, value, -2**31, 2**31)


def number(name: str, value: Any) -> float:
    """A number of any type that a float can hold; no text."""
    try:
        if isinstance(value, (str, bytes, bytearray)) or shape_of(value):
            raise TypeError
        return float(value)
    except Exception:
        raise Error(f"{name} must be a number, got {shown(value)}") from None


def check_equal(what: str, one: str, size: Any, other: str, wanted: Any) -> None:
    """what: how the sentence says it, such as "{} heads"."""
    if size != wanted:
        raise Error(f"{one} has {what.format(size)} and {other} {wanted}; the two must be equal")


def flag(name: str, value: Any) -> bool:
    """True or False, also those of NumPy, and 1 and 0."""
    if value is True or value is False:
        return value
    is_number = isinstance(value, int) and value in (0, 1)
    if is_number or type(value).__name__ in ("bool", "bool_"):
        return bool(value)
    raise Error(f"{name} must be True or False, got {shown(value)}")


def items(name: str, value: Any) -> List[Any]:
    """A list, from anything that has one item after the other; no text."""
    try:
        if isinstance(value, (str, bytes, dict)):
            raise TypeError
        return list(value)
    except Exception:
        raise Error(f"{name} must be a list, got {shown(value)}") from None
