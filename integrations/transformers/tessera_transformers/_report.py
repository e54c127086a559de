"""What was left to the framework, and why: once for each reason."""
from __future__ import annotations

from typing import Dict, List, NamedTuple, Tuple

import torch


class NotTaken(NamedTuple):
    """A reason. first: the class of the module that met it first. calls: how often it was met;
    calls of compiled code are counted where they are compiled."""

    what: str
    why: str
    first: str
    calls: int


_met: Dict[Tuple[str, str], List] = {}


def leave(what: str, why: str, module: torch.nn.Module) -> None:
    """Remembers that a call went to the framework's own way."""
    key = (what, why)
    if key in _met:
        _met[key][1] += 1
    else:
        _met[key] = [type(module).__name__, 1]


def tessera_report(clear: bool = False) -> List[NotTaken]:
    """What was left to the framework since the import, or since it was last asked for with
    clear=True."""
    found = [NotTaken(what, why, first, calls) for (what, why), (first, calls) in _met.items()]
    if clear:
        _met.clear()
    return found
