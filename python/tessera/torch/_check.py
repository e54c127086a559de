"""Runs a model on an example before and after a change, and compares outputs and gradients."""
from __future__ import annotations

import contextlib
import dataclasses
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Tuple

import torch
from torch import nn
from torch.utils import _pytree

Tensor = torch.Tensor


Tensors = List[Optional[Tensor]]


class Seen(NamedTuple):
    """What a model gives for an example."""

    outputs: Tensors              # where no gradient is asked for
    trained: Tensors              # the same where gradients are asked for
    gradients: Tensors            # of the example's tensors and of the parameters
    why_none: str                 # why there are no gradients


def arguments_of(example: Any) -> Tuple[Tuple[Any, ...], Dict[str, Any]]:
    """A tuple has the arguments in their order, a dictionary by their names; all else is one."""
    if isinstance(example, dict):
        return (), example
    return (example if isinstance(example, tuple) else (example,)), {}


def tensors_in(value: Any) -> List[Tensor]:
    """All tensors of a result, in their order."""
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, dict):
        return [tensor for item in value.values() for tensor in tensors_in(item)]
    if isinstance(value, (list, tuple)):
        return [tensor for item in value for tensor in tensors_in(item)]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return [tensor for field in dataclasses.fields(value)
                for tensor in tensors_in(getattr(value, field.name))]
    return []


@contextlib.contextmanager
def _unchanged(model: nn.Module) -> Iterator[None]:
    """Puts buffers and PyTorch's random numbers back, so that each run starts from the same."""
    kept = [(module, name, buffer, buffer.clone()) for module in model.modules()
            for name, buffer in module._buffers.items()
            if buffer is not None and not buffer.is_meta]
    devices = {buffer.device for *_, buffer in kept} | {p.device for p in model.parameters()}
    gpus = [device for device in devices if device.type == "cuda"]
    with torch.random.fork_rng(gpus):
        try:
            yield
        finally:
            with torch.no_grad():
                for module, name, buffer, copy in kept:
                    module._buffers[name] = buffer
                    if not torch.equal(buffer, copy):
                        buffer.copy_(copy)


def outputs_of(model: nn.Module, example: Any) -> Tensors:
    """What the model gives where no gradient is asked for."""
    arguments, named = arguments_of(example)
    with _unchanged(model), torch.no_grad():
        return [tensor.detach() for tensor in tensors_in(model(*arguments, **named))]


def _gradients_of(model: nn.Module, example: Any) -> Tuple[Tensors, Tensors]:
    leaves = [parameter for parameter in model.parameters() if parameter.requires_grad]

    def with_gradient(value: Any) -> Any:
        if not isinstance(value, Tensor) or not value.is_floating_point():
            return value
        leaves.append(value.detach().requires_grad_(True))
        return leaves[-1].clone()  # the model may write to its input
    arguments, named = _pytree.tree_map(with_gradient, arguments_of(example))
    with _unchanged(model):
        outputs = tensors_in(model(*arguments, **named))
        ends = [tensor for tensor in outputs if tensor.requires_grad]
        if not ends or not leaves:
            return [tensor.detach() for tensor in outputs], []
        torch.manual_seed(1)
        upstream = [torch.randn_like(tensor) for tensor in ends]
        found = torch.autograd.grad(ends, leaves, upstream, allow_unused=True)
        return [tensor.detach() for tensor in outputs], list(found)


def look(model: nn.Module, example: Any) -> Seen:
    outputs = outputs_of(model, example)
    if not torch.is_grad_enabled() or torch.is_inference_mode_enabled():
        return Seen(outputs, [], [], "gradients are switched off")
    try:
        trained, gradients = _gradients_of(model, example)
    except Exception as error:  # whatever the model's own code raises
        return Seen(outputs, [], [], f"the model raised {type(error).__name__}: {error}")
    return Seen(outputs, trained, gradients, "" if gradients else "no output has one")


def distance(mine: Tensors, theirs: Tensors) -> float:
    """The greatest difference of any element, as a part of the greatest element of all; infinity
    where the shapes or the elements that are no numbers differ."""
    if len(mine) != len(theirs):
        return float("inf")
    most = worst = 0.0
    for left, right in zip(mine, theirs):
        if left is None or right is None:
            if left is not right:
                return float("inf")
            continue
        if left.shape != right.shape or left.dtype != right.dtype:
            return float("inf")
        if left.numel() == 0:
            continue
        wide_left, wide_right = left.double(), right.double()
        same = (wide_left == wide_right) | (wide_left.isnan() & wide_right.isnan())
        gap = torch.where(same, 0.0, (wide_left - wide_right).abs())
        size = wide_right.abs()
        worst = max(worst, float(gap.nan_to_num(float("inf"), float("inf")).max()))
        most = max(most, float(size[size.isfinite()].max()) if size.isfinite().any() else 0.0)
    return worst / most if most and worst else worst


def limit_of(tensors: Tensors) -> float:
    """Half of the digits of the least exact type: sums in another order lose a few of the last,
    and a wrong layer loses all."""
    kinds = {tensor.dtype for tensor in tensors if tensor is not None and
             tensor.dtype.is_floating_point}
    kinds |= {torch.get_autocast_dtype(device) for device in ("cpu", "cuda")
              if torch.is_autocast_enabled(device)}
    return max([torch.finfo(kind).eps**0.5 for kind in kinds], default=0.0)


class Distances(NamedTuple):
    outputs: float
    gradients: float

    @property
    def most(self) -> float:
        return max(self.outputs, self.gradients)


def distances(mine: Seen, theirs: Seen) -> Distances:
    return Distances(max(distance(mine.outputs, theirs.outputs),
                         distance(mine.trained, theirs.trained)),
                     distance(mine.gradients, theirs.gradients))
