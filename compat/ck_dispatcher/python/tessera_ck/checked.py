"""Arguments that are not what they should be get a sentence, not an exception from within."""
from __future__ import annotations

import dataclasses
import numbers
from typing import Any

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
        wanted, words = _KINDS[str(field.type)]
        value = getattr(made, field.name)
        if not isinstance(value, wanted):
            raise Error(f"{field.name} of a {type(made).__name__} must be {words}, got a "
                        f"{type(value).__name__}")


def sizes(**given: Any) -> None:
    for name, value in given.items():
        if not isinstance(value, numbers.Integral):
            raise Error(f"{name} must be a whole number, got a {type(value).__name__}")


def texts(**given: Any) -> None:
    for name, value in given.items():
        if not isinstance(value, str):
            raise Error(f"{name} must be a text, got a {type(value).__name__}")


def as_numbers(array: Any, dtype: Any, what: str) -> Any:
    """The array in a type, copied only where it differs."""
    try:
        return numpy.asarray(numpy.asarray(array), dtype)
    except (TypeError, ValueError):
        raise Error(f"{what} must hold numbers, got a {type(array).__name__}") from None
