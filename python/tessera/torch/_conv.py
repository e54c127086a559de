"""Convolutions: the functions and modules of PyTorch over Tessera's kernels."""
from __future__ import annotations

import copy
from typing import Any, List, Optional, Sequence, Tuple, Union

import torch
import torch.nn.functional as functional
from torch import nn
from torch.nn.utils import parametrize
from torch.nn.utils.weight_norm import WeightNorm

from .._abi import Error
from .._problem import Problem
from . import _conv_ops, _conv_run, _ops, _warm
from ._conv_run import How
from ._fold import Folded, Folding
from ._functions import call_found, check_found, ops

Tensor = torch.Tensor
Numbers = Union[int, Sequence[int]]


def _each(name: str, value: Any, ndim: int) -> Tuple[int, ...]:
    values = (value,) * ndim if isinstance(value, int) else tuple(value)
    # A tensor is not a part of a key, because its number may change.
    values = tuple([v.item() if isinstance(v, Tensor) else v for v in values])
    if len(values) == 1:
        values *= ndim
    if len(values) != ndim:
        raise Error(f"{name} must be 1 number or {ndim}, got {len(values)}")
    return values


def _paddings(padding: Union[str, Numbers], stride: Tuple[int, ...], dilation: Tuple[int, ...],
              weight: Tensor) -> Tuple[int, ...]:
    """Before each dimension, then behind each."""
    ndim = len(stride)
    if not isinstance(padding, str):
        return _each("padding", padding, ndim) * 2
    if padding == "valid":
        return (0,) * (2 * ndim)
    if padding != "same":
        raise Error(f"padding must be numbers, 'same' or 'valid', got '{padding}'")
    if max(stride) > 1:
        raise Error(f"padding 'same' is for a stride of 1, got {max(stride)}")
    total = [d * (size - 1) for d, size in zip(dilation, weight.shape[2:])]
    return (*[t // 2 for t in total], *[t - t // 2 for t in total])


def images_of(name: str, ndim: int, x: Tensor, weight: Tensor) -> Tensor:
    """The input, which may be a single image, with a dimension of images."""
    if x.dim() not in (ndim + 1, ndim + 2) or weight.dim() != ndim + 2:
        raise Error(f"{name}: the input must have {ndim + 1} or {ndim + 2} dimensions and the "
                    f"weight {ndim + 2}, got {x.dim()} and {weight.dim()}")
    return x if x.dim() == ndim + 2 else x.unsqueeze(0)


def _how(weight: Tensor, stride: Numbers, padding: Union[str, Numbers], dilation: Numbers,
         groups: int) -> How:
    ndim = weight.dim() - 2
    strides, dilations = _each("stride", stride, ndim), _each("dilation", dilation, ndim)
    return How(strides, _paddings(padding, strides, dilations, weight), dilations, groups)


def _conv(ndim: int, x: Tensor, weight: Tensor, bias: Optional[Tensor], stride: Numbers,
          padding: Union[str, Numbers], dilation: Numbers, groups: int,
          activation: Optional[str]) -> Tensor:
    found = None
    if not torch.compiler.is_dynamo_compiling():
        arguments = x, weight, bias, ndim, stride, padding, dilation, groups, activation
        found = _warm.find("conv", *arguments)
        if type(found) in _warm.RESULTS:
            return found  # type: ignore[no-any-return]
        _warm.see(None)
    check_found(found, f"conv{ndim}d", ("input", "weight", "bias"), (x, weight, bias), 2)
    images = images_of(f"conv{ndim}d", ndim, x, weight)
    how = _how(weight, stride, padding, dilation, groups)
    y = call_found(found, ops.conv, _conv_ops.run_forward, 2, (images, weight, bias), *how,
                   activation)
    if x.dim() < ndim + 2:
        return y.squeeze(0)
    if type(found) is list:
        _warm.keep(found, arguments, (0, 1, None, 2), y)
    return y


def conv1d(input: Tensor, weight: Tensor, bias: Optional[Tensor] = None, stride: Numbers = 1,
           padding: Union[str, Numbers] = 0, dilation: Numbers = 1, groups: int = 1, *,
           activation: Optional[str] = None) -> Tensor:
    """activation(torch.nn.functional.conv1d(...)), see conv2d()."""
    return _conv(1, input, weight, bias, stride, padding, dilation, groups, activation)


def conv2d(input: Tensor, weight: Tensor, bias: Optional[Tensor] = None, stride: Numbers = 1,
           padding: Union[str, Numbers] = 0, dilation: Numbers = 1, groups: int = 1, *,
           activation: Optional[str] = None) -> Tensor:
    """activation(torch.nn.functional.conv2d(...)) in one pass.

    Types: float32, float16, bfloat16. bias: of that type or float32. activation: "relu", "gelu",
    "gelu_tanh", "silu", "sigmoid", "tanh". Contiguous tensors and those of torch.channels_last are
    taken as they lie. The result is channels last where the input or the weight is; the other one
    is then copied if it is not. Tensors of other strides are copied.
    """
    return _conv(2, input, weight, bias, stride, padding, dilation, groups, activation)


def conv3d(input: Tensor, weight: Tensor, bias: Optional[Tensor] = None, stride: Numbers = 1,
           padding: Union[str, Numbers] = 0, dilation: Numbers = 1, groups: int = 1, *,
           activation: Optional[str] = None) -> Tensor:
    """activation(torch.nn.functional.conv3d(...)), see conv2d()."""
    return _conv(3, input, weight, bias, stride, padding, dilation, groups, activation)


def channels_last(value: Any) -> Any:
    """A tensor as it is with its channels innermost in memory, in any number of dimensions; or a
    model, the weights of whose convolutions lie so from now on.

    What to(memory_format=) does, and for 1-D as well, and by the stride of a single channel, which
    PyTorch leaves as it is. A convolution of such a weight returns such a result. Where the weight
    is computed by a parametrization, what it is made of is laid so; Error where that is not enough.
    """
    if isinstance(value, Tensor):
        return value if _is_last(value) else _conv_run.laid_last(value)
    lost = []
    for name, module in value.named_modules():
        if isinstance(module, nn.modules.conv._ConvNd):
            for tensor in _weights_of(module):
                tensor.data = channels_last(tensor.data)
            if not _is_last(_weight_for_call(module)):
                lost.append(name or type(module).__name__)
    if lost:
        raise Error(f"channels_last: the weight of {', '.join(lost)} is computed anew for each "
                    "call and gets other strides, whatever it is computed of; take the computation "
                    "away, as by torch.nn.utils.parametrize.remove_parametrizations(), and call "
                    "this again; all other weights have their channels last now")
    return value


def _is_last(x: Tensor) -> bool:
    return x.dim() < 3 or x.movedim(1, -1).is_contiguous() and x.stride(1) == 1


def _weights_of(module: nn.Module) -> List[Tensor]:
    """The weight, or what it is computed of: by torch.nn.utils.parametrize, or before each call by
    the older weight_norm, spectral_norm and prune, whose tensors are called weight_*."""
    own = module._parameters.get("weight")
    if own is not None:
        return [own]
    if parametrize.is_parametrized(module, "weight"):
        return list(module.parametrizations.weight.parameters())  # type: ignore[union-attr]
    tables = (*module._parameters.items(), *module._buffers.items())
    found = [t for name, t in tables if name.startswith("weight_") and t is not None]
    return [*found, module.weight]  # type: ignore[list-item]


def _weight_for_call(module: Any) -> Tensor:
    """The weight as the next call has it, as far as that is known without a call."""
    with torch.no_grad():
        for hook in module._forward_pre_hooks.values():
            if isinstance(hook, WeightNorm) and hook.name == "weight":
                weight: Tensor = hook.compute_weight(module)
                return weight
        if parametrize.is_parametrized(module, "weight"):  # a copy, because it may count its calls
            return copy.deepcopy(module.parametrizations.weight)()  # type: ignore[no-any-return]
        return module.weight  # type: ignore[no-any-return]


class _Fused(Folding):
    """What the three modules add to PyTorch's: an activation, which the kernel applies."""

    # The class has it, so that a torch.nn.Conv2d becomes ours by its class alone.
    activation: Optional[str] = None

    def __init__(self, *arguments: Any, activation: Optional[str] = None, **named: Any) -> None:
        if activation is not None and activation not in _ops.ACTIVATIONS:
            raise Error(f"the activation must be one of {', '.join(_ops.ACTIVATIONS)}, got "
                        f"{activation!r}")
        super().__init__(*arguments, **named)
        self.activation = activation

    def _padded(self, x: Tensor) -> Tuple[Tensor, Union[str, Numbers]]:
        """The input and the padding that is left to the kernel, which pads with zeros."""
        me: Any = self
        if me.padding_mode == "zeros":
            return x, me.padding
        return functional.pad(x, me._reversed_padding_repeated_twice, mode=me.padding_mode), 0

    def _conv_forward(self, x: Tensor, weight: Tensor, bias: Optional[Tensor]) -> Tensor:
        return self._conv_with(x, weight, bias, self.activation)

    def _conv_with(self, x: Tensor, weight: Tensor, bias: Optional[Tensor],
                   activation: Optional[str]) -> Tensor:
        me: Any = self
        x, padding = self._padded(x)
        return _conv(len(me.stride), x, weight, bias, me.stride, padding, me.dilation, me.groups,
                     activation)

    def with_activation(self, x: Tensor, activation: Optional[str]) -> Tensor:
        """forward() with that activation in the kernel."""
        me: Any = self
        return self._conv_with(x, me.weight, me.bias, activation)

    def with_folded(self, x: Tensor, fold: Folded, activation: Optional[str]) -> Tensor:
        """The norm behind the module as well, and an activation behind that."""
        return self._conv_with(x, fold.weight, fold.bias, activation)

    def over_results(self, values: Tensor) -> Tensor:
        """A value for each channel of the result, in a shape that multiplies the weight."""
        me: Any = self
        return values.reshape(-1, *[1] * (me.weight.dim() - 1))

    def problem(self, x: Tensor, activation: Optional[str] = None, folds: bool = False) -> Problem:
        """What forward() asks for such an input, whose memory is not read, or with_activation(), or
        with_folded()."""
        me: Any = self
        x, padding = self._padded(x.detach().to("meta"))
        ndim = len(me.stride)
        images = images_of(f"conv{ndim}d", ndim, x, me.weight)
        how = _how(me.weight, me.stride, padding, me.dilation, me.groups)
        weight, bias = (None if t is None else t.detach().to("meta") for t in (me.weight, me.bias))
        if folds:
            bias = torch.empty(me.out_channels, device="meta")
        return _conv_run.forward_problem(images, weight, bias, how, activation or self.activation)


class Conv1d(_Fused, nn.Conv1d):  # type: ignore[misc]
    """activation(conv1d(x)), with the parameters and the state dict of torch.nn.Conv1d."""


class Conv2d(_Fused, nn.Conv2d):  # type: ignore[misc]
    """activation(conv2d(x)), with the parameters and the state dict of torch.nn.Conv2d."""


class Conv3d(_Fused, nn.Conv3d):  # type: ignore[misc]
    """activation(conv3d(x)), with the parameters and the state dict of torch.nn.Conv3d."""


# PyTorch's modules, and what takes their place.
MODULES = {nn.Conv1d: Conv1d, nn.Conv2d: Conv2d, nn.Conv3d: Conv3d}
# The images that a report assumes where there is no example.
EXAMPLE_SIZES: Tuple[Tuple[int, ...], ...] = ((1024,), (56, 56), (16, 56, 56))
