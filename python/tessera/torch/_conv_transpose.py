"""Transposed convolutions: the functions and modules of PyTorch over Tessera's kernels. They are
gradients of convolutions by the image."""
from __future__ import annotations

from typing import Any, List, Optional, Sequence, Tuple

import torch
from torch import nn

from .._abi import Error
from .._problem import Problem
from . import _conv_ops, _conv_run, _warm
from ._conv import Numbers, _each, images_of
from ._conv_run import How
from ._fold import Folded, Folding
from ._functions import call_found, check_tensors, ops

Tensor = torch.Tensor


def _how(x: Tensor, weight: Tensor, stride: Numbers, padding: Numbers, output_padding: Numbers,
         groups: int, dilation: Numbers) -> Tuple[List[Any], How]:
    """The result's spatial size, and the convolution of the result that has the size of x."""
    ndim = weight.dim() - 2
    strides, dilations = _each("stride", stride, ndim), _each("dilation", dilation, ndim)
    before, more = _each("padding", padding, ndim), _each("output_padding", output_padding, ndim)
    size, behind = [], []
    for i in range(ndim):
        if not 0 <= more[i] < max(strides[i], dilations[i]):
            raise Error(f"output_padding must be at least 0 and below the stride {strides[i]} or "
                        f"the dilation {dilations[i]}, got {more[i]}")
        size.append((x.shape[i - ndim] - 1) * strides[i] - 2 * before[i] +
                    dilations[i] * (weight.shape[2 + i] - 1) + more[i] + 1)
        # So many steps fit into what the output padding adds: the convolution leaves them out.
        behind.append(before[i] - more[i] // strides[i] * strides[i])
    return size, How(strides, (*before, *behind), dilations, groups)


def _conv_transpose(ndim: int, x: Tensor, weight: Tensor, bias: Optional[Tensor], stride: Numbers,
                    padding: Numbers, output_padding: Numbers, groups: int, dilation: Numbers
                    ) -> Tensor:
    name = f"conv_transpose{ndim}d"
    found = None
    if not torch.compiler.is_dynamo_compiling():
        arguments = x, weight, ndim, stride, padding, output_padding, groups, dilation
        found = _warm.find("conv_transpose", *arguments)
        if bias is None and type(found) in _warm.RESULTS:
            return found  # type: ignore[no-any-return]
        _warm.see(None)
    check_tensors(name, ("input", "weight", "bias"), (x, weight, bias), 2)
    images = images_of(name, ndim, x, weight)
    channels = weight.shape[1] * groups
    if bias is not None and bias.shape != (channels,):
        raise Error(f"{name}: bias must have the shape {(channels,)}, got {tuple(bias.shape)}")
    if type(found) in _warm.RESULTS:
        return _with_bias(found, bias, ndim)
    size, how = _how(x, weight, stride, padding, output_padding, groups, dilation)
    if min(size) < 0:
        raise Error(f"{name}: the result would have the spatial size {tuple(size)}; no size can be "
                    "below 0")
    y = call_found(found, ops.conv_backward_data, _conv_ops.run_backward_data, 2, (images, weight),
                   size, *how)
    if type(found) is list and images is x:
        _warm.keep(found, arguments, (None, 1, 0, None), y)
    y = _with_bias(y, bias, ndim)
    return y if x.dim() == ndim + 2 else y.squeeze(0)


def _with_bias(y: Any, bias: Optional[Tensor], ndim: int) -> Tensor:
    if bias is None:
        return y  # type: ignore[no-any-return]
    return y + bias.to(y.dtype).reshape(-1, *[1] * ndim)  # type: ignore[no-any-return]


def conv_transpose1d(input: Tensor, weight: Tensor, bias: Optional[Tensor] = None,
                     stride: Numbers = 1, padding: Numbers = 0, output_padding: Numbers = 0,
                     groups: int = 1, dilation: Numbers = 1) -> Tensor:
    """torch.nn.functional.conv_transpose1d(...), see conv_transpose2d()."""
    return _conv_transpose(1, input, weight, bias, stride, padding, output_padding, groups,
                           dilation)


def conv_transpose2d(input: Tensor, weight: Tensor, bias: Optional[Tensor] = None,
                     stride: Numbers = 1, padding: Numbers = 0, output_padding: Numbers = 0,
                     groups: int = 1, dilation: Numbers = 1) -> Tensor:
    """torch.nn.functional.conv_transpose2d(...). The bias is added by PyTorch. Types and memory are
    as conv2d() has them."""
    return _conv_transpose(2, input, weight, bias, stride, padding, output_padding, groups,
                           dilation)


def conv_transpose3d(input: Tensor, weight: Tensor, bias: Optional[Tensor] = None,
                     stride: Numbers = 1, padding: Numbers = 0, output_padding: Numbers = 0,
                     groups: int = 1, dilation: Numbers = 1) -> Tensor:
    """torch.nn.functional.conv_transpose3d(...), see conv_transpose2d()."""
    return _conv_transpose(3, input, weight, bias, stride, padding, output_padding, groups,
                           dilation)


class _Transposed(Folding):
    """PyTorch's module, whose forward() calls the function above."""

    def forward(self, input: Tensor, output_size: Optional[Sequence[int]] = None) -> Tensor:
        me: Any = self
        more = me._output_padding(input, output_size, me.stride, me.padding, me.kernel_size,
                                  len(me.stride), me.dilation)
        return self._with(input, me.weight, me.bias, more)

    def _with(self, x: Tensor, weight: Tensor, bias: Optional[Tensor], more: Numbers) -> Tensor:
        me: Any = self
        return _conv_transpose(len(me.stride), x, weight, bias, me.stride, me.padding, more,
                               me.groups, me.dilation)

    def with_folded(self, x: Tensor, fold: Folded, activation: Optional[str]) -> Tensor:
        """The norm behind the module as well. No kernel has an activation behind it."""
        me: Any = self
        assert activation is None
        return self._with(x, fold.weight, fold.bias, me.output_padding)

    def over_results(self, values: Tensor) -> Tensor:
        """A value for each channel of the result, in a shape that multiplies the weight."""
        me: Any = self
        inputs = me.in_channels // me.groups
        each = values.reshape(me.groups, 1, -1).expand(-1, inputs, -1)
        return each.reshape(me.in_channels, -1, *[1] * len(me.stride))

    def problem(self, x: Tensor, activation: Optional[str] = None, folds: bool = False) -> Problem:
        """What forward() asks of the kernels for such an input, whose memory is not read. PyTorch
        adds the bias, so that a folded norm changes nothing."""
        me: Any = self
        x, weight = x.detach().to("meta"), me.weight.detach().to("meta")
        images = images_of(type(self).__name__, len(me.stride), x, weight)
        size, how = _how(x, weight, me.stride, me.padding, me.output_padding, me.groups,
                         me.dilation)
        return _conv_run.gradient_problem("backward_data", (None, weight, images), how, tuple(size))


class ConvTranspose1d(_Transposed, nn.ConvTranspose1d):  # type: ignore[misc]
    """conv_transpose1d(x), with the parameters and the state dict of torch.nn.ConvTranspose1d."""


class ConvTranspose2d(_Transposed, nn.ConvTranspose2d):  # type: ignore[misc]
    """conv_transpose2d(x), with the parameters and the state dict of torch.nn.ConvTranspose2d."""


class ConvTranspose3d(_Transposed, nn.ConvTranspose3d):  # type: ignore[misc]
    """conv_transpose3d(x), with the parameters and the state dict of torch.nn.ConvTranspose3d."""


# PyTorch's modules, and what takes their place.
MODULES = {nn.ConvTranspose1d: ConvTranspose1d, nn.ConvTranspose2d: ConvTranspose2d,
           nn.ConvTranspose3d: ConvTranspose3d}
