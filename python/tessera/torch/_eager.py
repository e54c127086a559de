"""Operators that are called from Python: a call that was seen before is launched at once, without
PyTorch's dispatcher. All other calls take PyTorch's way, and so does everything that looks at a
call: see find() of _warm.py."""
from __future__ import annotations

from typing import Any, Dict, List, Optional, Sequence, Tuple

import torch
from torch._ops import OpOverload, OpOverloadPacket

from . import _warm

Slots = Tuple[Optional[int], ...]
Tensor = torch.Tensor


class Eager:
    """What the object of an operator knows: `what` of find(), the names of its arguments, and the
    slots of keep()."""

    def __init__(self, op: Any, slots: Slots) -> None:
        self.slots = slots
        self.places = {argument.name: i for i, argument in enumerate(op._schema.arguments)}

    def slots_of(self, count: int, names: Sequence[str]) -> Slots:
        """The slots of a call with so many arguments without names, and then these. One that is
        left out is none."""
        at: Dict[int, int] = {i: i for i in range(count)}
        at.update({self.places[name]: count + i for i, name in enumerate(names)})
        return tuple([slot if slot is None or slot < 0 else at.get(slot) for slot in self.slots])

    def anew(self, found: Any, call: Any, arguments: Tuple[Any, ...], named: Dict[str, Any]) -> Any:
        """call: PyTorch's own. found: what find() said of the call."""
        if type(found) is not list:
            return call(*arguments, **named)
        _warm.see(None)
        made = call(*arguments, **named)
        results: List[Any] = [made] if isinstance(made, Tensor) else list(made)
        if all(type(result) is Tensor for result in results):
            _warm.keep(found, _flat(arguments, named), self.slots_of(len(arguments), tuple(named)),
                       made)
        return made


def _flat(arguments: Tuple[Any, ...], named: Dict[str, Any]) -> Tuple[Any, ...]:
    return (*arguments, *named.values(), tuple(named)) if named else arguments


class _Packet(OpOverloadPacket):
    """torch.ops.tessera.NAME."""

    def __call__(self, /, *arguments: Any, **named: Any) -> Any:
        eager = self.tessera_eager
        found = _warm.find(eager, *(_flat(arguments, named) if named else arguments))
        if type(found) in _warm.RESULTS:
            return found
        return eager.anew(found, super().__call__, arguments, named)


class _Overload(OpOverload):
    """torch.ops.tessera.NAME.default."""

    def __call__(self, /, *arguments: Any, **named: Any) -> Any:
        eager = self.tessera_eager
        found = _warm.find(eager, *(_flat(arguments, named) if named else arguments))
        if type(found) in _warm.RESULTS:
            return found
        return eager.anew(found, super().__call__, arguments, named)


def launch_at_once(packet: Any, slots: Slots) -> None:
    """From now on. The objects stay what they are, with another class over PyTorch's."""
    overload = packet.default
    packet.tessera_eager = overload.tessera_eager = Eager(overload, slots)
    packet.__class__, overload.__class__ = _Packet, _Overload
