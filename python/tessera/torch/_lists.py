"""Products of lists of matrices with gradients, which torch.compile leaves alone."""
from __future__ import annotations

from typing import Any, List, Sequence, Tuple

import torch

from .. import _grouped_lists
from .._abi import Error
from .._checks import named
from . import _grouped

Tensor = torch.Tensor


def _multiply_lists(a: Sequence[Tensor], b: Sequence[Tensor]) -> Tuple[Tensor, ...]:
    laid = [[_grouped.laid(x.detach()) for x in some] for some in (a, b)]
    given = _grouped_lists.Given(laid[0], laid[1], None, None)
    stream = None if a[0].is_cpu else torch.cuda.current_stream(a[0].device)
    return tuple(_grouped_lists.run(given, {}, None, 1.0, stream, None))


class _Lists(torch.autograd.Function):
    """All of a, then all of b. The gradients are two products of lists."""

    @staticmethod
    def forward(ctx: Any, count: int, *tensors: Tensor) -> Tuple[Tensor, ...]:
        ctx.count = count
        ctx.save_for_backward(*tensors)
        return _multiply_lists(tensors[:count], tensors[count:])

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> Tuple[Any, ...]:
        tensors, count = ctx.saved_tensors, ctx.count
        a, b = tensors[:count], tensors[count:]
        needs = ctx.needs_input_grad[1:]
        none = (None,) * count
        rows = [grad.contiguous() for grad in grads]
        d_a = _multiply_lists(rows, _turned(b)) if any(needs[:count]) else none
        d_b = _multiply_lists(_turned(a), rows) if any(needs[count:]) else none
        return (None, *d_a, *d_b)


def _turned(tensors: Sequence[Tensor]) -> Sequence[Tensor]:
    return [x.contiguous().mT for x in tensors]


@torch.compiler.disable  # type: ignore[untyped-decorator]
def multiply(a: Sequence[Tensor], b: Sequence[Tensor]) -> List[Tensor]:
    if len(a) != len(b):
        raise Error(f"grouped_mm: mat_a and mat_b must be lists of one length, got {len(a)} and "
                    f"{len(b)}")
    try:
        return list(_Lists.apply(len(a), *a, *b)) if a else []
    except Error as error:
        raise named("grouped_mm", error) from None
