"""Arguments that are not what they should be get a sentence, not an exception from within."""
from __future__ import annotations

import dataclasses
import numbers
from typing import Any, Dict, Tuple

import numpy

from tessera import Error

# The annotations of fields, what stands for each, and its name.
_KINDS = {"int": (numbers.Integral, "a whole number"), "str": (str, "a text"),
          "bool": ((numbers.Integral, numpy.bool_), "True or False"),
          "Optional[str]": ((str, type(None)), "a text or None"),
          "Union[int, str]": ((numbers.Integral, str), "a text or a number")}


def fields(made: Any) -> None:
    """For __post_init__ of a dataclass: every field has the type that it is annotated with."""
    for field in dataclasses.fields(made):
        _all(*_KINDS[str(field.type)],
             {f"{field.name} of a {type(made).__name__}": getattr(made, field.name)})


def _all(kind: Any, words: str, given: Dict[str, Any]) -> None:
    for name, value in given.items():
        if not isinstance(value, kind):
            raise Error(f"{name} must be {words}, got a {type(value).__name__}")


def sizes(**given: Any) -> None:
    _all(numbers.Integral, "a whole number", given)


def texts(**given: Any) -> None:
    _all(str, "a text", given)


def as_numbers(array: Any, dtype: Any, what: str) -> Any:
    """The array in a type, copied only where it differs."""
    try:
        return numpy.asarray(numpy.asarray(array), dtype)
    except (TypeError, ValueError):
        raise Error(f"{what} must hold numbers, got a {type(array).__name__}") from None


class ElementValidator:
    """Compares a result with a reference, element by element: one wrong element fails."""

    def __init__(self, rtol: float, atol: float) -> None:
        self.rtol, self.atol = rtol, atol

    def check(self, result: Any, reference: Any) -> Tuple[bool, float, float]:
        got = as_numbers(result, numpy.float64, "the result")
        wanted = as_numbers(reference, numpy.float64, "the reference")
        if got.shape != wanted.shape:
            raise Error(f"the result has the shape {got.shape} and the reference {wanted.shape}; "
                        "the two must be equal")
        if not got.size:
            return True, 0.0, 0.0
        difference = abs(got - wanted)
        near = difference <= self.atol + self.rtol * abs(wanted)
        return bool(near.all()), float(difference.max()), float(self._further(difference, wanted))

    def _further(self, difference: Any, wanted: Any) -> Any:
        """The last number of check()."""
        raise NotImplementedError
