"""Batch norms that the convolution before them computes, by a weight and a bias of its own.

The module keeps its parameters and the norm its own. Both are compared at each call with what the
folded weight was made of, so that changes are seen.
"""
from __future__ import annotations

import threading
import weakref
from typing import Any, Dict, List, Optional

import torch
from torch import nn
from torch.autograd import forward_ad
from torch.multiprocessing.reductions import StorageWeakRef

Tensor = torch.Tensor
_C: Any = torch._C

# The norms that can be folded, and their spatial dimensions.
NORMS = {nn.BatchNorm1d: 1, nn.BatchNorm2d: 2, nn.BatchNorm3d: 3}
_KINDS = (Tensor, nn.Parameter)
# Held while a weight is folded: two threads would write one tensor.
_LOCK = threading.RLock()


def _of(module: Any, table: Any, name: str) -> Optional[Tensor]:
    """A tensor by the table that it lies in, which takes half of an attribute's time. One that is a
    plain attribute, as in a replica of DataParallel, has no place there."""
    return table[name] if name in table else getattr(module, name)


def _tensors(layer: Any, norm: Any) -> List[Optional[Tensor]]:
    own, others, buffers = layer._parameters, norm._parameters, norm._buffers
    return [_of(layer, own, "weight"), _of(layer, own, "bias"), _of(norm, others, "weight"),
            _of(norm, others, "bias"), _of(norm, buffers, "running_mean"),
            _of(norm, buffers, "running_var")]


def _watched(layer: Any, norm: Any) -> List[Optional[Tensor]]:
    """The tensors and the norm's count of batches: functional.batch_norm() writes the statistics in
    training without PyTorch's counting it, and the norm counts the batch."""
    return [*_tensors(layer, norm), _of(norm, norm._buffers, "num_batches_tracked")]


def _states(layer: Any, norm: Any) -> List[Any]:
    """What differs after each change that PyTorch counts, and after each batch in training."""
    states = [norm.eps]
    for t in _watched(layer, norm):
        if t is None:
            states.append(None)
        elif type(t) not in _KINDS or t.is_inference():  # changes are not counted
            states.append(object())  # equals nothing
        else:
            states += (t._cdata, t._version, t.untyped_storage()._cdata, t.data_ptr(), t.dtype,
                       t.stride())
    return states


def _nothing() -> None:
    """What a copy or a file of a module has in the place of its Folds."""


class Folded:
    """The weight and the bias of a convolution that computes the norm behind it as well."""

    def __init__(self, norm: Any) -> None:
        self.norm = weakref.ref(norm)
        self.states: Optional[List[Any]] = None  # None where it must be made anew
        self.storages: List[StorageWeakRef] = []
        self.weight: Tensor
        self.bias: Tensor

    def is_of(self, layer: Any, norm: Any) -> bool:
        return self.states == _states(layer, norm)

    def make(self, layer: Any, norm: Any) -> None:
        """Into the tensors that are there where they fit, because a CUDA graph may read them."""
        self.states = None
        states = _states(layer, norm)
        # No other storage gets the number of one of these as long as the references live.
        self.storages = [StorageWeakRef(t.untyped_storage()) for t in _watched(layer, norm)
                         if t is not None]
        # What is made in inference mode could not be written outside it.
        with torch.inference_mode(False), torch.no_grad():
            scale = (norm.running_var.float() + norm.eps).rsqrt()
            if norm.weight is not None:
                scale = scale * norm.weight.float()
            shift = -norm.running_mean.float() * scale
            if norm.bias is not None:
                shift = shift + norm.bias.float()
            if layer.bias is not None:
                shift = shift + layer.bias.float() * scale
            if not self._fits(layer.weight, shift):
                # Empty, with the weight's strides: a product could have others where a size is 1.
                self.weight = torch.empty_like(layer.weight, requires_grad=False)
                self.bias = torch.empty_like(shift)
            self.weight.copy_(layer.weight.float() * layer.over_results(scale))
            self.bias.copy_(shift)
        if self.weight.is_cuda:  # another stream may take it at the next call
            torch.cuda.current_stream(self.weight.device).synchronize()
        self.states = states

    def _fits(self, weight: Tensor, bias: Tensor) -> bool:
        return hasattr(self, "weight") and all(
            mine.shape == other.shape and mine.dtype == other.dtype and mine.device == other.device
            and mine.stride() == torch.empty_like(other, device="meta").stride()
            for mine, other in ((self.weight, weight), (self.bias, bias)))


class Folds:
    """What a layer has folded, for each norm that is behind it somewhere."""

    def __init__(self, layer: Any) -> None:
        self.layer = weakref.ref(layer)
        self.by_norm: Dict[int, Folded] = {}

    def of(self, norm: Any) -> Optional[Folded]:
        found = self.by_norm.get(id(norm))
        return found if found is not None and found.norm() is norm else None

    def add(self, norm: Any) -> Folded:
        self.by_norm = {key: fold for key, fold in self.by_norm.items()
                        if fold.norm() is not None}
        made = self.by_norm[id(norm)] = Folded(norm)
        return made

    def __reduce__(self) -> Any:
        return _nothing, ()


class Folding:
    """What a convolution's module adds for this."""

    # The class has it, so that a module of PyTorch becomes ours by its class alone.
    _folded: Optional[Folds] = None

    def unfold(self) -> None:
        """Makes the next call fold anew, into the same memory."""
        with _LOCK:
            for fold in self._folded.by_norm.values() if self._folded is not None else ():
                fold.states = None


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
    if getattr(layer, "_is_replica", False):
        return "its layer is a replica, which lives for one call"
    if _of(norm, norm._buffers, "num_batches_tracked") is None:
        return "it counts no batches, so that a change of its statistics could not be seen"
    device, kinds = layer.weight.device, (layer.weight.dtype, torch.float32)
    for tensor in _watched(layer, norm):
        if tensor is None:
            continue
        if type(tensor) not in _KINDS or tensor.is_inference():
            return "a tensor of it or of its layer was made in a way that hides changes"
        if tensor.device.type == "cpu" and tensor.is_shared():
            return ("a tensor of it or of its layer lies in shared memory, and what another "
                    "process writes there is not counted")
    for tensor in _tensors(layer, norm):
        if tensor is None:
            continue
        if tensor.device != device or tensor.dtype not in kinds:
            return "its tensors lie elsewhere than those of its layer, or have another type"
    return ""


def _is_capturing(device: torch.device) -> bool:
    with torch.cuda.device(device):
        return torch.cuda.is_current_stream_capturing()


def folded(layer: Any, norm: Any) -> Optional[Folded]:
    """The weight and the bias as they are now. None while a CUDA graph is captured that nothing was
    folded for: the weight would lie in the graph's memory."""
    with _LOCK:
        folds = layer._folded
        found = folds.of(norm) if folds is not None else None
        if found is not None and found.is_of(layer, norm):
            return found
        if layer.weight.is_cuda and _is_capturing(layer.weight.device):
            return None
        # A replica and a shallow copy have the table of another layer, whose tensors these are.
        if folds is None or folds.layer() is not layer:
            folds, found = Folds(layer), None
        if found is None:
            found = folds.add(norm)
        found.make(layer, norm)
        layer._folded = folds
        return found


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
    found = layer._folded.of(norm) if layer._folded is not None else None
    is_bare = getattr(layer, "activation", None) is None
    if found is not None and is_bare and found.is_of(layer, norm):
        return found
    return None if why_not(layer, norm) else folded(layer, norm)
