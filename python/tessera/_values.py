"""Single values that arguments hold: what they must be, and the sentences for others."""
from __future__ import annotations

import operator
from typing import Any, List

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


def shown(value: Any) -> str:
    """A value in a sentence: as Python writes it where that is short, else its type."""
    shape = getattr(value, "shape", None) if not isinstance(value, type) else None
    if isinstance(shape, tuple) and shape:
        return f"{type(value).__name__} of the shape {tuple(shape)}"
    if value is None or isinstance(value, (bool, int, float, str, bytes, tuple, list, dict)):
        try:
            text = repr(value)
        except Exception:  # an object within, or a number of too many digits
            text = ""
        if text.isprintable() and 0 < len(text) <= _LONGEST:
            return text
    return f"{type(value).__name__}"


def whole(name: str, value: Any, least: int = _LEAST, end: int = _END) -> int:
    """A number of any type of whole numbers, at least `least` and below `end`."""
    try:
        found = operator.index(value)
    except Exception:
        raise Error(f"{name} must be a whole number, got {shown(value)}") from None
    if not least <= found < end:
        raise Error(f"{name} must be at least {least} and at most {end - 1}, got {shown(found)}")
    return found


def whole_int(name: str, value: Any) -> int:
    """One that C's int holds."""
    return whole(name, value, -2**31, 2**31)


def number(name: str, value: Any) -> float:
    """A number of any type that a float can hold; no text."""
    try:
        if isinstance(value, (str, bytes, bytearray)) or getattr(value, "shape", ()) != ():
            raise TypeError
        return float(value)
    except Exception:
        raise Error(f"{name} must be a number, got {shown(value)}") from None


def flag(name: str, value: Any) -> bool:
    """True or False, also those of NumPy, and 1 and 0."""
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
