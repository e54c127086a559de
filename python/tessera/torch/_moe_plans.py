"""What the plans of mixtures of experts share: how experts are chosen, the products of rows by
experts, and the memory between the launches."""
from __future__ import annotations

from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

import torch

from .._problem import Problem
from .._routing import SLOTS, Rule
from . import _routing, _run

Tensor = torch.Tensor


class Asked(NamedTuple):
    """What is asked of a layer beside its tensors. rule: how experts are chosen; None: they are
    given."""

    activation: str
    rule: Optional[Rule]


def check_devices(asked: Asked, x: Tensor, first: Optional[Tensor], second: Optional[Tensor],
                  others: Sequence[Tuple[str, Optional[Tensor]]]) -> None:
    names = ("router_logits", "router_bias") if asked.rule else ("ids", "weights")
    _run.check_devices([("x", x), *zip(names, (first, second)), *others])


def new_numbers(asked: Asked, x: Tensor, first: Tensor, experts: int) -> List[Tensor]:
    """ids, weights, group_ends, row_index and slots."""
    top_k = asked.rule.top_k if asked.rule else first.shape[1]
    return _routing.new_results(x, SLOTS[2:], x.shape[0], top_k, experts)


def bind_route(asked: Asked, first: Tensor, second: Optional[Tensor], experts: int) -> _run.Bound:
    """The order of rows by experts, from logits and a bias, or from ids and weights."""
    if asked.rule:
        return _routing.bind_route((asked.rule, True), (first, second))
    return _routing.bind_order(experts, (first,))


def launch_route(asked: Asked, route: _run.Bound, given: Tuple[int, int], numbers: Sequence[int],
                 x: Tensor) -> int:
    """given: the addresses of logits and bias, or of ids and weights. Returns that of weights."""
    first, second = given
    if asked.rule:
        _run.launch(route, (first, second, *numbers), x)
        return numbers[1]
    _run.launch(route, (first, *numbers[2:]), x)
    return second


def product_fields(a: Tensor, b: Tensor, out: Tensor, rows: int) -> Dict[str, Any]:
    """Rows go by experts; B is (experts, n, k)."""
    words = {name: _run.type_word(tensor, name) for name, tensor in
             (("a", a), ("b", b), ("out", out))}
    return {"m": rows, "n": b.shape[1], "k": b.shape[2], "layout": "rcr", "groups": b.shape[0],
            "grouping": "contiguous", "ld_a": max(a.stride(0), a.shape[1]),
            "ld_b": max(b.stride(1), b.shape[2]), "batch_stride_b": b.stride(0),
            "ld_out": out.stride(0), **words}


def bind_product(fields: Dict[str, Any], names: Sequence[str], tensors: Sequence[Tensor]
                 ) -> _run.Bound:
    device = tensors[0].device
    plan = _run.plan_for(Problem("gemm", **fields), device)
    return _run.bind(plan, [names.index(x.name) for x in plan.operands], tensors, device)


_ALIGNED = 256  # bytes


def offsets_of(tensors: Sequence[Tensor]) -> Tuple[List[int], int]:
    """Where tensors like these lie in one memory, and how many bytes that has."""
    offsets, end = [], 0
    for tensor in tensors:
        offsets.append(end)
        end += -(-tensor.numel() * tensor.itemsize // _ALIGNED) * _ALIGNED
    return offsets, end
