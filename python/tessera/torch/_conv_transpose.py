"""Transposed convolutions: the functions and modules of PyTorch over Tessera's kernels. They are
gradients of convolutions by the image."""
from __future__ import annotations

from typing import Any, List, Optional, Sequence, Tuple

import torch
from torch import nn

from .._abi import Error
from . import _conv_ops
from ._conv import Numbers, _each, images_of
from ._conv_run import How
from ._functions import _call, check_tensors, ops

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
    check_tensors(name, ("input", "weight", "bias"), (x, weight, bias), 2)
    images = images_of(name, ndim, x, weight)
    channels = weight.shape[1] * groups
    if bias is not None and bias.shape != (channels,):
        raise Error(f"{name}: bias must have the shape {(channels,)}, got {tuple(bias.shape)}")
    size, how = _how(x, weight, stride, padding, output_padding, groups, dilation)
    if min(size) < 1:
        raise Error(f"{name}: the result would have the spatial size {tuple(size)}; it must have "
                    "at least 1 element in each dimension")
    y = _call(ops.conv_backward_data, _conv_ops.run_backward_data, 2, (images, weight), size, *how)
    if bias is not None:
        y = y + bias.to(y.dtype).reshape(-1, *[1] * ndim)
    return y if x.dim() == ndim + 2 else y.squeeze(0)


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


class _Transposed:
    """PyTorch's module, whose forward() calls the function above."""

    def forward(self, input: Tensor, output_size: Optional[Sequence[int]] = None) -> Tensor:
        me: Any = self
        ndim = len(me.stride)
        more = me._output_padding(input, output_size, me.stride, me.padding, me.kernel_size, ndim,
                                  me.dilation)
        return _conv_transpose(ndim, input, me.weight, me.bias, me.stride, me.padding, more,
                               me.groups, me.dilation)


class ConvTranspose1d(_Transposed, nn.ConvTranspose1d):  # type: ignore[misc]
    """conv_transpose1d(x), with the parameters and the state dict of torch.nn.ConvTranspose1d."""


class ConvTranspose2d(_Transposed, nn.ConvTranspose2d):  # type: ignore[misc]
    """conv_transpose2d(x), with the parameters and the state dict of torch.nn.ConvTranspose2d."""


class ConvTranspose3d(_Transposed, nn.ConvTranspose3d):  # type: ignore[misc]
    """conv_transpose3d(x), with the parameters and the state dict of torch.nn.ConvTranspose3d."""
