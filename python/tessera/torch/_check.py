"""Runs a model on an example before and after a change, and compares outputs and gradients."""
from __future__ import annotations

import contextlib
import dataclasses
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Tuple

import torch
from torch import nn
from torch.nn.parameter import is_lazy
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
            if buffer is not None and not (is_lazy(buffer) or buffer.is_meta)]
    devices = {tensor.device for tensor in (*model.parameters(), *model.buffers())}
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
        # Numbers need no upstream gradients, for whose shapes PyTorch imports sympy.
        totals = [(tensor * torch.randn_like(tensor)).sum() for tensor in ends]
        totals = [total.real if total.is_complex() else total for total in totals]
        found = torch.autograd.grad(totals, leaves, allow_unused=True)
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


def _pairs(mine: Tensors, theirs: Tensors) -> Optional[List[Tuple[Tensor, Tensor]]]:
    """The differences and the right values, in fp64; None where the shapes or types differ. Equal
    infinities, and what is no number on both sides, differ by 0."""
    if len(mine) != len(theirs):
        return None
    pairs = []
    for left, right in zip(mine, theirs):
        if left is None and right is None:
            continue
        if (left is None or right is None or left.shape != right.shape
                or left.dtype != right.dtype):
            return None
        wide, true = left.double(), right.double()
        same = (wide == true) | (wide.isnan() & true.isnan())
        gap = torch.where(same, 0.0, (wide - true).abs()).nan_to_num(float("inf"), float("inf"))
        pairs.append((gap, true.nan_to_num(0.0, 0.0, 0.0)))
    return [pair for pair in pairs if pair[0].numel()]


def _part(size: float, whole: float) -> float:
    return size / whole if size and whole else size


def distance(mine: Tensors, theirs: Tensors) -> float:
    """The greatest difference of any element, as a part of the greatest element of all."""
    pairs = _pairs(mine, theirs)
    if pairs is None:
        return float("inf")
    return _part(max([float(gap.max()) for gap, _ in pairs], default=0.0),
                 max([float(true.abs().max()) for _, true in pairs], default=0.0))


def distance_of_gradients(mine: Tensors, theirs: Tensors) -> float:
    """The greatest difference of any tensor, by the root of the sum of squares, as a part of that
    tensor. A single element says nothing, because ReLU's derivative jumps: one rounding may turn
    it. A tensor below a hundredth of the greatest counts as that much, because some are 0 but for
    roundings, as the gradient of the bias of keys is."""
    pairs = _pairs(mine, theirs)
    if pairs is None:
        return float("inf")
    sizes = [float(true.norm()) for _, true in pairs]
    least = max(sizes, default=0.0) / 100
    return max([_part(float(gap.norm()), max(size, least))
                for (gap, _), size in zip(pairs, sizes)], default=0.0)


class Distances(NamedTuple):
    """How far two models are from each other, and how far sums in another order may bring them:
    half of the digits of the least exact type for outputs, a quarter for gradients. A wrong layer
    loses all digits."""

    outputs: float
    gradients: float
    unit: float  # the distance of 1 to the next number of that type

    @property
    def are_near(self) -> bool:
        return self.outputs <= self.unit**0.5 and self.gradients <= self.unit**0.25


def _unit_of(tensors: Tensors) -> float:
    kinds = {tensor.dtype for tensor in tensors
             if tensor is not None and tensor.dtype.is_floating_point}
    kinds |= {torch.get_autocast_dtype(device) for device in ("cpu", "cuda")
              if torch.is_autocast_enabled(device)}
    return max(torch.finfo(kind).eps for kind in kinds or {torch.float32})


def distances(mine: Seen, theirs: Seen) -> Distances:
    return Distances(max(distance(mine.outputs, theirs.outputs),
                         distance(mine.trained, theirs.trained)),
                     distance_of_gradients(mine.gradients, theirs.gradients),
                     _unit_of([*theirs.outputs, *theirs.gradients]))
