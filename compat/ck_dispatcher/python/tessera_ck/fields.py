"""Fields of configurations and problems as tables.

A row has names; their default, or a tuple with one for each; and, where the fields are accepted and
change nothing, the reason.
"""
from __future__ import annotations

import dataclasses
import functools
from typing import Any, Callable

from . import checked


def table(*rows: Any, either: str = "", **how: Any) -> Callable[[type], Any]:
    """Makes a dataclass whose fields are the rows, and whose IGNORED has the reasons by name. Each
    field has the type of its default; that of None may be a text, and `either` a number or a text.
    """
    def made(cls: Any) -> Any:
        cls.__annotations__, cls.IGNORED = {}, {}
        for names, usual, *why in rows:
            each = names.split()
            values = usual if isinstance(usual, tuple) else [usual] * len(each)
            for name, value in zip(each, values):
                kind = "Optional[str]" if value is None else type(value).__name__
                cls.__annotations__[name] = "Union[int, str]" if name in either.split() else kind
                setattr(cls, name, value)
                if why:
                    cls.IGNORED[name] = why[0]
        if not hasattr(cls, "__post_init__"):
            cls.__post_init__ = checked.fields
        return dataclasses.dataclass(**how)(cls)
    return made


def spelled(**others: str) -> Callable[[type], Any]:
    """Lets a dataclass be made with other names of its fields: each stands for the fields in its
    text, which all get its value."""
    def made(cls: Any) -> Any:
        plain = cls.__init__

        @functools.wraps(plain)
        def init(self: Any, *values: Any, **given: Any) -> None:
            for name in [name for name in given if name in others]:
                for field in others[name].split():
                    if field in given:
                        raise TypeError(f"{name} is another name of {field}; give one of them")
                    given[field] = given[name]
                del given[name]
            plain(self, *values, **given)

        cls.__init__ = init
        return cls
    return made


def shape(config: Any, prefix: str) -> str:
    """"128x128x32" for the prefix "tile"."""
    return "x".join(str(getattr(config, f"{prefix}_{axis}")) for axis in "mnk")
