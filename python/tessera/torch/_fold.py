"""Batch norms that the convolution before them computes, by a weight and a bias of its own.

The module keeps its parameters and the norm its own. Both are compared at each call with what the
folded weight was made of, so that changes are seen.
"""
from __future__ import annotations

from typing import Any, List, Optional

import torch
from torch import nn
from torch.autograd import forward_ad
from torch.multiprocessing.reductions import StorageWeakRef

Tensor = torch.Tensor
_C: Any = torch._C

# The norms that can be folded, and their spatial dimensions.
NORMS = {nn.BatchNorm1d: 1, nn.BatchNorm2d: 2, nn.BatchNorm3d: 3}
_KINDS = (Tensor, nn.Parameter)


def _tensors(layer: Any, norm: Any) -> List[Optional[Tensor]]:
    """Parameters by the tables that they lie in, which takes half of an attribute's time; a weight
    that is no parameter has no place there."""
    own, others, buffers = layer._parameters, norm._parameters, norm._buffers
    return [own["weight"] if "weight" in own else layer.weight, own.get("bias"),
            others.get("weight"), others.get("bias"), buffers.get("running_mean"),
            buffers.get("running_var")]


def _states(layer: Any, norm: Any) -> List[Any]:
    """What differs after each change that PyTorch counts."""
    states = [norm.eps]
    for t in _tensors(layer, norm):
        if t is None or type(t) not in _KINDS or t.is_inference():  # changes are not counted
            states.append(None)
        else:
            states += (t._cdata, t._version, t.untyped_storage()._cdata, t.data_ptr(), t.dtype,
                       t.stride())
    return states


def _nothing() -> None:
    """What a copy or a file of a module has in the place of its Folded."""


class Folded:
    """The weight and the bias of a convolution that computes the norm behind it as well."""

    def __init__(self, layer: Any, norm: Any) -> None:
        self.states = _states(layer, norm)
        # No other storage gets the number of one of these as long as the references live.
        self.storages = [StorageWeakRef(t.untyped_storage()) for t in _tensors(layer, norm)
                         if t is not None]
        with torch.no_grad():
            scale = (norm.running_var.float() + norm.eps).rsqrt()
            if norm.weight is not None:
                scale = scale * norm.weight.float()
            shift = -norm.running_mean.float() * scale
            if norm.bias is not None:
                shift = shift + norm.bias.float()
            if layer.bias is not None:
                shift = shift + layer.bias.float() * scale
            # Empty, with the weight's strides: a product could have others where a size is 1.
            self.weight = torch.empty_like(layer.weight).copy_(
                layer.weight.float() * layer.over_results(scale))
            self.bias = shift

    def is_of(self, layer: Any, norm: Any) -> bool:
        return self.states == _states(layer, norm)

    def __reduce__(self) -> Any:
        return _nothing, ()


class Folding:
    """What a convolution's module adds for this."""

    # The class has it, so that a module of PyTorch becomes ours by its class alone.
    _folded: Optional[Folded] = None

    def unfold(self) -> None:
        """Forgets the folded weight, so that the next call makes it anew."""
        self._folded = None


def why_not(layer: Any, norm: Any) -> str:
    """Why the norm behind the layer cannot be folded into it; "" where nothing is in the way."""
    ndim = len(layer.stride)
    if NORMS.get(type(norm)) != ndim or norm.num_features != layer.out_channels:
        return f"it is no norm of {layer.out_channels} channels in {ndim} dimensions"
    if getattr(layer, "activation", None) is not None:
        return f"its layer has {layer.activation}, which comes first"
    if norm.running_mean is None or norm.running_var is None:
        return "it keeps no running statistics"
    if norm.training:
        return "it is in training mode"
    device, kinds = layer.weight.device, (layer.weight.dtype, torch.float32)
    for tensor in _tensors(layer, norm):
        if tensor is None:
            continue
        if type(tensor) not in _KINDS or tensor.is_inference():
            return "a tensor of it or of its layer was made in a way that hides changes"
        if tensor.device != device or tensor.dtype not in kinds:
            return "its tensors lie elsewhere than those of its layer, or have another type"
    return ""


def folded(layer: Any, norm: Any) -> Optional[Folded]:
    """The weight and the bias as they are now. None while a CUDA graph is captured that nothing was
    folded for: the weight would lie in the graph's memory."""
    found = layer._folded
    if found is not None and found.is_of(layer, norm):
        return found
    if layer.weight.is_cuda and torch.cuda.is_current_stream_capturing():
        return None
    layer._folded = Folded(layer, norm)
    return layer._folded


def folded_for(layer: Any, norm: Any, x: Tensor) -> Optional[Folded]:
    """What a call on x can take, or None. Where a gradient will be asked for that is nothing,
    because it is one of the parameters as they are."""
    if norm.training or torch.compiler.is_compiling() or x.dim() != len(layer.stride) + 2:
        return None
    if forward_ad._current_level >= 0 or _C._functorch.peek_interpreter_stack() is not None:
        return None
    if torch.is_grad_enabled() and any(t is not None and t.requires_grad
                                       for t in (x, *_tensors(layer, norm))):
        return None
    found = layer._folded
    is_bare = getattr(layer, "activation", None) is None
    if found is not None and is_bare and found.is_of(layer, norm):
        return found
    return None if why_not(layer, norm) else folded(layer, norm)
