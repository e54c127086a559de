"""The operators torch.ops.tessera.conv*: what they compute, their shapes, their derivatives.

Each direction's derivatives are the other two directions, so that gradients have gradients too.
"""
from __future__ import annotations

from typing import Any, List, Optional, Tuple

import torch

from . import _conv_run
from ._conv_run import How, memory_of, new_in
from ._ops import _RESULTS, _cast_and_call, _library, _needs, through_activation

Tensor = torch.Tensor
_HOW = "int[] stride, int[] padding, int[] dilation, int groups"
_library.define(f"conv(Tensor x, Tensor weight, Tensor? bias, {_HOW}, str? activation=None) "
                "-> Tensor", tags=torch.Tag.pt2_compliant_tag)
_library.define(f"conv_backward_data(Tensor grad, Tensor weight, SymInt[] size, {_HOW}) -> Tensor",
                tags=torch.Tag.pt2_compliant_tag)
_library.define(f"conv_backward_weight(Tensor x, Tensor grad, SymInt[] filter, {_HOW}) -> Tensor",
                tags=torch.Tag.pt2_compliant_tag)


# ---- What they compute ---------------------------------------------------------------------------

def _how(stride: List[int], padding: List[int], dilation: List[int], groups: int) -> How:
    return How(tuple(stride), tuple(padding), tuple(dilation), groups)


def run_forward(x: Tensor, weight: Tensor, bias: Optional[Tensor], stride: List[int],
                padding: List[int], dilation: List[int], groups: int,
                activation: Optional[str] = None) -> Tensor:
    return _conv_run.run_conv("forward", x, weight, None, bias,
                              _how(stride, padding, dilation, groups), activation)


def run_backward_data(grad: Tensor, weight: Tensor, size: List[int], stride: List[int],
                      padding: List[int], dilation: List[int], groups: int) -> Tensor:
    return _conv_run.run_conv("backward_data", None, weight, grad, None,
                              _how(stride, padding, dilation, groups), None, tuple(size))


def run_backward_weight(x: Tensor, grad: Tensor, filter: List[int], stride: List[int],
                        padding: List[int], dilation: List[int], groups: int) -> Tensor:
    return _conv_run.run_conv("backward_weight", x, None, grad, None,
                              _how(stride, padding, dilation, groups), None, tuple(filter))


# ---- Shapes, for tensors without memory ----------------------------------------------------------

def _fake_forward(x: Tensor, weight: Tensor, bias: Optional[Tensor], stride: List[int],
                  padding: List[int], dilation: List[int], groups: int,
                  activation: Optional[str] = None) -> Tensor:
    ndim = len(stride)
    torch._check(x.dim() == ndim + 2 and weight.dim() == ndim + 2,
                 lambda: f"the input and the weight must have {ndim + 2} dimensions")
    torch._check(x.shape[1] == weight.shape[1] * groups,
                 lambda: "the input's channels must be those of the weight times the groups")
    spatial = [(x.shape[2 + i] + padding[i] + padding[ndim + i] -
                dilation[i] * (weight.shape[2 + i] - 1) - 1) // stride[i] + 1 for i in range(ndim)]
    shape = (x.shape[0], weight.shape[0], *spatial)
    return new_in(memory_of(x, weight), x, shape, _RESULTS.get(x.dtype, x.dtype))


def _fake_backward_data(grad: Tensor, weight: Tensor, size: List[Any], stride: List[int],
                        padding: List[int], dilation: List[int], groups: int) -> Tensor:
    shape = (grad.shape[0], weight.shape[1] * groups, *size)
    return new_in(memory_of(weight, grad), grad, shape, grad.dtype)


def _fake_backward_weight(x: Tensor, grad: Tensor, filter: List[Any], stride: List[int],
                          padding: List[int], dilation: List[int], groups: int) -> Tensor:
    shape = (grad.shape[1], x.shape[1] // groups, *filter)
    return new_in(memory_of(x, grad), x, shape, x.dtype)


# ---- Derivatives ---------------------------------------------------------------------------------

def _save_how(ctx: Any, how: Tuple[Any, ...]) -> None:
    ctx.how = how
    ctx.set_materialize_grads(True)


def _forward_setup(ctx: Any, inputs: Tuple[Any, ...], output: Tensor) -> None:
    x, weight, bias = inputs[:3]
    _save_how(ctx, inputs[3:7])
    ctx.activation = inputs[7] if len(inputs) > 7 else None
    ctx.save_for_backward(x, weight, *([] if bias is None else [bias]))


def _forward_backward(ctx: Any, grad: Tensor) -> Tuple[Any, ...]:
    """With an activation the convolution is done again, because the forward pass fuses the
    activation and keeps only its result."""
    x, weight, *bias = ctx.saved_tensors
    ops = torch.ops.tessera
    if ctx.activation is not None:
        before = ops.conv(x, weight, bias[0] if bias else None, *ctx.how)
        grad = through_activation(grad, before, ctx.activation)
    d_x = d_weight = d_bias = None
    if _needs(ctx, 0):
        d_x = ops.conv_backward_data(grad, weight, x.shape[2:], *ctx.how)
    if _needs(ctx, 1):
        d_weight = ops.conv_backward_weight(x, grad, weight.shape[2:], *ctx.how)
    if _needs(ctx, 2):
        others = [0, *range(2, grad.dim())]
        d_bias = grad.sum(others, dtype=torch.float32).to(bias[0].dtype)
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


for _name, _function, _fake, _backward, _setup in (
        ("conv", run_forward, _fake_forward, _forward_backward, _forward_setup),
        ("conv_backward_data", run_backward_data, _fake_backward_data, _data_backward,
         _pair_setup),
        ("conv_backward_weight", run_backward_weight, _fake_backward_weight, _weight_backward,
         _pair_setup)):
    for _device in ("CPU", "CUDA"):
        _library.impl(_name, _function, _device)
    torch.library.register_fake(f"tessera::{_name}", _fake, lib=_library)
    torch.library.register_autograd(f"tessera::{_name}", _backward, setup_context=_setup,
                                    lib=_library)

for _key, _device in (("AutocastCPU", "cpu"), ("AutocastCUDA", "cuda")):
    _library.impl("conv", _cast_and_call(torch.ops.tessera.conv.default, _device), _key)
