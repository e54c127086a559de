"""The table of calls that were seen before, and the way through it: the extension's call_tensors()
finds a call's plan, makes the results and launches, without Python code between.

A function whose call is one launch leaves what it launched (`seen`), and `keep` puts it into the
table. What the table lacks, tensors that ask for a gradient, tracing, autocast and all else that is
more than computing take the way that there is without the extension.
"""
from __future__ import annotations

import struct
import threading
from typing import Any, Callable, Dict, Optional, Sequence, Tuple

import torch
from torch.autograd import forward_ad

from .. import _abi, _warm

Tensor = torch.Tensor
_C: Any = torch._C
_table: Dict[Any, Any] = {}
_seen = threading.local()


def _nothing(table: Any, tensors: Any, options: Any) -> bool:
    return False


def _bound_call() -> Callable[[Any, Any, Any], Any]:
    fast = _warm._fast
    if fast is None:
        return _nothing
    _warm.bind()
    idle = (_C._is_any_autocast_enabled, _C._len_torch_dispatch_stack, _C._len_torch_function_stack,
            _C._get_tracing_state, _C._functorch.peek_interpreter_stack,
            _C._autograd._profiler_enabled)
    settings = (_C.get_num_threads, _C._get_deterministic_algorithms)
    fast.bind_tensors((Tensor, torch.nn.Parameter, torch.strided, idle, settings,
                       torch.is_grad_enabled, forward_ad,
                       getattr(_C, "_cuda_getCurrentRawStream", None)))
    return fast.call_tensors


def _first(table: Any, tensors: Any, options: Any) -> Any:
    """Loads the library, and puts the extension's function in this one's place."""
    global _call
    _call = _bound_call()
    return _call(table, tensors, options)


_call: Callable[[Any, Any, Any], Any] = _first


def find(tensors: Tuple[Optional[Tensor], ...], options: Any) -> Any:
    """The tuple of results of a call that was seen before; a list, for keep(), of one that may be
    kept; False for others. The first tensor must be given."""
    return _call(_table, tensors, options)


def see(bound: Any) -> None:
    """What a call launches, if all of it is one launch of tensors as they were given."""
    _seen.bound = bound


def keep(found: Any, slots: Sequence[Optional[int]], count: int,
         makers: Optional[Sequence[Callable[[Tensor], Tensor]]] = None) -> None:
    """Puts what the call has launched since find() into the table. found: what that returned.
    slots: for each tensor that the plan's call names, its position among the `count` tensors of
    this one; results follow. makers: of the results, where the plan's call does not have them."""
    bound = _seen.__dict__.pop("bound", None)
    if bound is None or bound.plan is None or bound.copies or bound.plan._held is None:
        return
    makers = tuple(bound.makers if makers is None else makers)
    places = (*slots, *range(count, count + len(makers)))
    sources = [places[source] for source in bound.sources]
    if None in sources or len(sources) > _warm.MOST_OPERANDS:
        return
    padded = sources + [0] * (_warm.MOST_OPERANDS - len(sources))
    entry = struct.pack(f"Pi{_warm.MOST_OPERANDS}i", bound.address, len(sources), *padded)
    room = bound.workspace_bytes
    workspace = (room, lambda like: like.new_empty(room, dtype=torch.uint8)) if room else None
    if len(_table) >= _warm.MOST_ENTRIES:
        _table.clear()
    _table[found[0]] = (entry, makers, workspace, bound)


def forget() -> None:
    """Forgets all calls."""
    _table.clear()
