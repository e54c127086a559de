"""What arguments must be, and the sentence for one that is something else.

The annotations of a function say what its arguments are. checked() refuses others before the
function's body. A function whose warm call must be short asks refusal() when something has failed.
"""
from __future__ import annotations

import functools
import inspect
import os
import re
from typing import Any, Callable, Dict, List, Tuple, TypeVar

from . import _arrays
from ._values import Error, flag, items, number, shown, whole


def _fits_with(rule: Callable[[str, Any], Any]) -> Callable[[Any], bool]:
    def fits(value: Any) -> bool:
        try:
            rule("", value)
        except Error:
            return False
        return True
    return fits


_RULES: Dict[str, Any] = {
    "int": (_fits_with(whole), "a whole number"),
    "float": (_fits_with(number), "a number"),
    "bool": (_fits_with(flag), "True or False"),
    "str": (lambda value: isinstance(value, (str, bytes, os.PathLike)), "a text"),
    "Dict": (lambda value: isinstance(value, dict), "a dict"),
    "List": (lambda value: isinstance(value, (list, tuple)), "a list"),
    "Sequence": (_fits_with(items), "a list"),
    "None": (lambda value: value is None, "None"),
}


def _parts(annotation: str) -> List[str]:
    """The alternatives of an annotation."""
    found = re.fullmatch(r"(Optional|Union)\[(.*)\]", annotation)
    if not found:
        return [annotation.strip("\"'")]
    parts = re.findall(r"[\w.]+(?:\[[^\]]*\])?", found.group(2))
    return parts + ["None"] * (found.group(1) == "Optional")


def _rule(part: str, names: Dict[str, Any]) -> Any:
    """What a value must be; None where any value is taken, or looked at elsewhere."""
    word = part.partition("[")[0]
    if word in _RULES:
        return _RULES[word]
    place, _, last = word.rpartition(".")
    kind = getattr(names.get(place), last, None) if place else names.get(word)
    if isinstance(kind, type) and kind is not Any:  # which is a class since Python 3.11
        return (lambda value: isinstance(value, kind)), f"a {kind.__name__}"
    return None


@functools.lru_cache(maxsize=None)
def _known(function: Callable[..., Any], name: str) -> Tuple[List[str], List[Any]]:
    """The alternatives of an argument's annotation, and the rule of each."""
    parts = _parts(function.__annotations__.get(name, "Any"))
    return parts, [_rule(part, function.__globals__) for part in parts]


def _refused(function: Callable[..., Any], name: str, value: Any) -> Any:
    """The Error for an argument; None where it is what its annotation says."""
    parts, rules = _known(function, name)
    if "Array" in parts:
        return None if value is None and "None" in parts else _refused_array(name, value)
    if None in rules or any(fits(value) for fits, _ in rules):
        return None
    return Error(f"{name} must be {' or '.join(text for _, text in rules)}, got {shown(value)}")


def _refused_array(name: str, value: Any) -> Any:
    try:
        _arrays.view_of(value, name)
    except Error as error:
        return error
    return None


def refusal(function: Callable[..., Any], arguments: Dict[str, Any], failure: Exception
            ) -> Exception:
    """What a function that failed raises: an Error with its name, about the argument that is not
    what its annotation says, or else the failure itself."""
    if isinstance(failure, Error):
        return named(function.__name__, failure)
    for name, value in arguments.items():
        found = _refused(function, name, value)
        if found is not None:
            return named(function.__name__, found)
    return failure


# A sentence that begins with the name of a function, or of an operation, gets no other before it.
_NAMED = re.compile(r"\w+: |(gemm|norm|conv|fmha|route)\b")


def named(function: str, error: Error) -> Error:
    """The same error, with the function's name before a sentence that has none."""
    text = str(error)
    if _NAMED.match(text):
        return error
    return Error(f"{function}: {text}", error.code, error.details)


_MANY = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
Function = TypeVar("Function", bound=Callable[..., Any])


def checked(function: Function) -> Function:
    """The function, which refuses arguments that are not what its annotations say."""
    signature = inspect.signature(function)
    who = function.__name__
    if who == "__init__":
        who = function.__qualname__.partition(".")[0]

    @functools.wraps(function)
    def checks(*given: Any, **named: Any) -> Any:
        try:
            bound = signature.bind(*given, **named)
        except TypeError:  # the call below says it as Python does
            return function(*given, **named)
        for name, value in bound.arguments.items():
            if signature.parameters[name].kind not in _MANY:
                found = _refused(function, name, value)
                if found is not None:
                    raise Error(f"{who}: {found}", found.code)
        return function(*given, **named)

    return checks
