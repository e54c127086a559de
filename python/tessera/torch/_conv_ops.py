"""The operators torch.ops.tessera.conv*: what they compute, their shapes, their derivatives.

Each direction's derivatives are the other two directions, so that gradients have gradients too.
"""
from __future__ import annotations

from typing import Any, List, Optional, Sequence, Tuple

import torch

from . import _conv_run
from ._conv_run import How, memory_of, new_in
from ._operators import Operator, _library, check, register, total
from ._ops import _RESULTS, _cast_and_call, _needs, through_fused

Tensor = torch.Tensor
_HOW = "int[] stride, int[] padding, int[] dilation, int groups"


# ---- What they compute ---------------------------------------------------------------------------

def _how(stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int], groups: int
         ) -> How:
    return How(tuple(stride), tuple(padding), tuple(dilation), groups)


def run_forward(x: Tensor, weight: Tensor, bias: Optional[Tensor], *others: Any) -> Tensor:
    """others: those of How, and the activation, which may be left out."""
    return _conv_run.run_conv("forward", x, weight, None, bias, _how(*others[:4]), *others[4:])


def run_backward_data(grad: Tensor, weight: Tensor, size: List[int], *how: Any) -> Tensor:
    return _conv_run.run_conv("backward_data", None, weight, grad, None, _how(*how), None,
                              tuple(size))


def run_backward_weight(x: Tensor, grad: Tensor, filter: List[int], *how: Any) -> Tensor:
    return _conv_run.run_conv("backward_weight", x, None, grad, None, _how(*how), None,
                              tuple(filter))


# ---- Shapes, for tensors without memory ----------------------------------------------------------

def _fake_forward(x: Tensor, weight: Tensor, bias: Optional[Tensor], *others: Any) -> Tensor:
    how = _how(*others[:4])
    _conv_run.check_ranks((("x", x), ("w", weight)), how)
    check(x.shape[1] == weight.shape[1] * how.groups,
          "the input's channels must be those of the weight times the groups")
    spatial = [(x.shape[2 + i] + sum(pads) - how.dilation[i] * (weight.shape[2 + i] - 1) - 1) //
               how.stride[i] + 1 for i, pads in enumerate(how.pairs())]
    shape = (x.shape[0], weight.shape[0], *spatial)
    return new_in(memory_of(x, weight), x, shape, _RESULTS.get(x.dtype, x.dtype))


def _fake_backward_data(grad: Tensor, weight: Tensor, size: List[Any], *how: Any) -> Tensor:
    _conv_run.check_ranks((("w", weight), ("grad_out", grad)), _how(*how), size)
    shape = (grad.shape[0], weight.shape[1] * how[3], *size)
    return new_in(memory_of(weight, grad), grad, shape, grad.dtype)


def _fake_backward_weight(x: Tensor, grad: Tensor, filter: List[Any], *how: Any) -> Tensor:
    _conv_run.check_ranks((("x", x), ("grad_out", grad)), _how(*how), filter)
    shape = (grad.shape[1], x.shape[1] // how[3], *filter)
    return new_in(memory_of(x, grad), x, shape, x.dtype)


# ---- Derivatives ---------------------------------------------------------------------------------

def _save_how(ctx: Any, how: Tuple[Any, ...]) -> None:
    ctx.how = how
    ctx.set_materialize_grads(True)


def _forward_setup(ctx: Any, inputs: Tuple[Any, ...], output: Tensor) -> None:
    _save_how(ctx, inputs[3:7])
    ctx.activation = inputs[7] if len(inputs) > 7 else None
    ctx.save_for_backward(*inputs[:3])


def _forward_backward(ctx: Any, grad: Tensor) -> Tuple[Any, ...]:
    x, weight, bias = ctx.saved_tensors
    ops = torch.ops.tessera
    grad = through_fused(grad, ctx.activation, ops.conv, x, weight, bias, *ctx.how)
    d_x = d_weight = d_bias = None
    if _needs(ctx, 0):
        d_x = ops.conv_backward_data(grad, weight, x.shape[2:], *ctx.how)
    if _needs(ctx, 1):
        d_weight = ops.conv_backward_weight(x, grad, weight.shape[2:], *ctx.how)
    if _needs(ctx, 2):
        others = [0, *range(2, grad.dim())]
        d_bias = grad.sum(others, dtype=torch.float32).to(bias.dtype)
    return (d_x, d_weight, d_bias, *[None] * 5)


def _pair_setup(ctx: Any, inputs: Tuple[Any, ...], output: Tensor) -> None:
    _save_how(ctx, inputs[3:])
    ctx.save_for_backward(*inputs[:2])


def _data_backward(ctx: Any, of_x: Tensor) -> Tuple[Any, ...]:
    grad, weight = ctx.saved_tensors
    ops = torch.ops.tessera
    d_grad = ops.conv(of_x, weight, None, *ctx.how) if _needs(ctx, 0) else None
    d_weight = None
    if _needs(ctx, 1):
        d_weight = ops.conv_backward_weight(of_x, grad, weight.shape[2:], *ctx.how)
    return (d_grad, d_weight, *[None] * 5)


def _weight_backward(ctx: Any, of_weight: Tensor) -> Tuple[Any, ...]:
    x, grad = ctx.saved_tensors
    ops = torch.ops.tessera
    d_x = None
    if _needs(ctx, 0):
        d_x = ops.conv_backward_data(grad, of_weight, x.shape[2:], *ctx.how)
    d_grad = ops.conv(x, of_weight, None, *ctx.how) if _needs(ctx, 1) else None
    return (d_x, d_grad, *[None] * 5)


def _forward_tangents(inputs: Tuple[Any, ...], tangents: Tuple[Any, ...],
                      results: Tuple[Tensor, ...]) -> Tuple[Tensor, ...]:
    (x, weight, bias, *how, activation), (of_x, of_weight, of_bias) = inputs, tangents[:3]
    conv = torch.ops.tessera.conv
    found = total([conv(of_x, weight, None, *how) if of_x is not None else None,
                   conv(x, of_weight, None, *how) if of_weight is not None else None,
                   of_bias[:, None][(...,) + (None,) * (x.dim() - 3)].to(x.dtype)
                   if of_bias is not None else None]).expand(results[0].shape)
    return (through_fused(found, activation, conv, x, weight, bias, *how),)


def _pair_tangents(op: str) -> Any:
    """Of an operator that is linear in each of its first two inputs."""
    def found(inputs: Tuple[Any, ...], tangents: Tuple[Any, ...], results: Tuple[Tensor, ...]
              ) -> Tuple[Tensor, ...]:
        call = getattr(torch.ops.tessera, op)
        (one, other, *how), (of_one, of_other) = inputs, tangents[:2]
        return (total([call(of_one, other, *how) if of_one is not None else None,
                       call(one, of_other, *how) if of_other is not None else None]),)
    return found


for _operator in (
        Operator(f"conv(Tensor x, Tensor weight, Tensor? bias, {_HOW}, str? activation=None) "
                 "-> Tensor", run_forward, _fake_forward, _forward_setup, _forward_backward,
                 _forward_tangents, slots=(0, 1, None, 2)),
        Operator(f"conv_backward_data(Tensor grad, Tensor weight, SymInt[] size, {_HOW}) "
                 "-> Tensor", run_backward_data, _fake_backward_data, _pair_setup, _data_backward,
                 _pair_tangents("conv_backward_data"), slots=(None, 1, 0, None)),
        Operator(f"conv_backward_weight(Tensor x, Tensor grad, SymInt[] filter, {_HOW}) "
                 "-> Tensor", run_backward_weight, _fake_backward_weight, _pair_setup,
                 _weight_backward, _pair_tangents("conv_backward_weight"),
                 slots=(0, None, 1, None))):
    register(_operator)

for _key, _device in (("AutocastCPU", "cpu"), ("AutocastCUDA", "cuda")):
    for _op in (torch.ops.tessera.conv, torch.ops.tessera.conv_backward_data):
        _library.impl(_op.default._opname, _cast_and_call(_op.default, _device), _key)
