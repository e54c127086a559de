"""Plans for convolutions of tensors, and their launches; see _run.py.

Tensors have the channels second, as PyTorch says their shapes. Their memory has them second or
last. The result lies as the operands do.
"""
from __future__ import annotations

import functools
from typing import Any, Dict, NamedTuple, Optional, Sequence, Tuple

import torch

from .. import _conv, _dtypes
from .._abi import Error
from .._conv_shapes import inverse, to_memory
from .._problem import Problem
from . import _run

Tensor = torch.Tensor


class How(NamedTuple):
    """How the filter moves over the image. padding: before each dimension, then behind each."""

    stride: Tuple[int, ...]
    padding: Tuple[int, ...]
    dilation: Tuple[int, ...]
    groups: int

    def pairs(self) -> Tuple[Tuple[int, int], ...]:
        ndim = len(self.stride)
        return tuple(zip(self.padding[:ndim], self.padding[ndim:]))


def lies_last(tensor: Tensor) -> bool:
    """Whether the channels are innermost in memory, and nothing else is. The stride of a
    single channel says it, as for PyTorch."""
    if tensor.dim() < 3 or tensor.stride(1) != 1:
        return False
    if tensor.shape[1] == 1:
        return tensor.stride(-1) == 1 and any(size != 1 for size in tensor.shape[2:])
    return not tensor.is_contiguous()


def memory_of(first: Tensor, second: Tensor) -> str:
    """The memory of a result: channels last where one of the operands has them last."""
    return "nhwgc" if lies_last(first) or lies_last(second) else "nchw"


def new_in(memory: str, like: Tensor, shape: Sequence[Any], dtype: torch.dtype) -> Tensor:
    """A tensor of such a shape without gaps in such a memory."""
    if memory == "nchw":
        return like.new_empty(tuple(shape), dtype=dtype)
    return _run.new_in_order(like, shape, to_memory(len(shape), "nchw", memory), dtype)


def laid_last(tensor: Tensor) -> Tensor:
    """A copy with the channels innermost in memory, also by the stride of a single one."""
    return new_in("nhwgc", tensor, tensor.shape, tensor.dtype).copy_(tensor)


def _zeros_in(memory: str, like: Tensor, shape: Sequence[Any], dtype: torch.dtype) -> Tensor:
    return new_in(memory, like, shape, dtype).zero_()


def _in_memory(tensor: Tensor, memory: str) -> Tensor:
    """The tensor without gaps in such a memory."""
    order = to_memory(tensor.dim(), "nchw", memory)
    return tensor.permute(order).contiguous().permute(inverse(order))


def _fits(tensor: Tensor, memory: str) -> bool:
    axis = 1 if memory == "nhwgc" else -1
    return tensor.shape[axis] <= 1 or tensor.stride(axis) == 1


class _Asked(NamedTuple):
    """What a call asks for."""

    fields: Dict[str, Any]       # of the problem; none where no sum has a product
    slots: Dict[str, str]        # an operand's name -> which tensor it is
    memory: str
    copied: Tuple[bool, ...]
    shape: Tuple[int, ...]
    dtype: torch.dtype
    lying: Dict[str, Tensor]     # tensors that lie as those of a launch do
    make: Any                    # what makes the result of memory, a tensor, shape and type


def check_ranks(named: Sequence[Tuple[str, Tensor]], how: How,
                size: Optional[Sequence[Any]] = None) -> None:
    """How many dimensions there are, which the numbers of the stride say."""
    ndim = len(how.stride)
    if not 1 <= ndim <= 3:
        raise Error(f"a convolution has 1 to 3 spatial dimensions, got a stride of {ndim} numbers")
    for what, wanted, got in (("padding", 2 * ndim, how.padding), ("dilation", ndim, how.dilation),
                              ("size", ndim, size)):
        if got is not None and len(got) != wanted:
            raise Error(f"the {what} must have {wanted} numbers with {ndim} spatial dimensions, "
                        f"got {len(got)}")
    for name, tensor in named:
        if tensor.dim() != ndim + 2:
            raise Error(f"{name} must have {ndim + 2} dimensions, {ndim} of them spatial, got "
                        f"{tensor.dim()}")


def _ask(direction: str, tensors: Sequence[Optional[Tensor]], bias: Optional[Tensor], how: How,
         activation: Optional[str], size: Optional[Tuple[int, ...]]) -> _Asked:
    options = _conv.Options(direction, how.stride, how.pairs(), how.dilation, how.groups,
                            activation, 1.0, 0.0, "nchw", size)
    named = [(options.name_of(slot), t) for slot, t in zip("xwy", tensors) if t is not None]
    check_ranks(named, how, size)
    _run.check_devices([*named, ("bias", bias)])
    memory = memory_of(*[tensor for _, tensor in named])
    copied = tuple(tensor is not None and not _fits(tensor, memory) for tensor in tensors)
    lying = {slot: new_in(memory, tensor.to("meta"), tensor.shape, tensor.dtype) if copy else tensor
             for slot, tensor, copy in zip("xwy", tensors, copied) if tensor is not None}
    views = {slot: _run.lying_view(tensor, options.name_of(slot)) for slot, tensor in lying.items()}
    if bias is not None:
        lying["bias"] = bias.to("meta").contiguous()
        views["bias"] = _run.lying_view(lying["bias"], "bias")
    shape, word, _ = _conv.result_of(options, views, 0)
    dtype = getattr(torch, _dtypes.NAMES[word])
    lying[options.result] = new_in(memory, named[0][1].to("meta"), shape, dtype)
    views[options.result] = _run.lying_view(lying[options.result], "out")
    fields, slots = _conv.problem_of(options, views)
    make = new_in
    # An image without pixels comes of a transposed convolution; its sums are of nothing.
    if bias is None and activation is None and any(0 in t.shape[2:] for _, t in named):
        fields, make = {}, _zeros_in
    if 0 in shape:
        fields = {}
    return _Asked(fields, slots, memory, copied, shape, dtype, lying, make)


def forward_problem(x: Tensor, w: Tensor, bias: Optional[Tensor], how: How,
                    activation: Optional[str]) -> Problem:
    """What run_conv() asks for; the tensors may be without memory."""
    return Problem("conv", **_ask("forward", (x, w, None), bias, how, activation, None).fields)


def gradient_problem(direction: str, tensors: Sequence[Optional[Tensor]], how: How,
                     size: Tuple[int, ...]) -> Problem:
    """What run_conv() asks for as a gradient. tensors: x, w and y without the one that results."""
    return Problem("conv", **_ask(direction, tensors, None, how, None, size).fields)


def _bind(options: Tuple[str, How, Optional[str], Any], tensors: Sequence[Optional[Tensor]]
          ) -> _run.Bound:
    """tensors: x, w, y and the bias; of the first three the result is None."""
    direction, how, activation, size = options
    *given, bias = tensors
    asked = _ask(direction, given, bias, how, activation, size)
    device = next(tensor for tensor in tensors if tensor is not None).device
    copies = [functools.partial(_in_memory, memory=asked.memory) if copy else None
              for copy in asked.copied]
    copies.append(None if bias is None or bias.is_contiguous() else Tensor.contiguous)
    makers = [functools.partial(asked.make, asked.memory, shape=asked.shape, dtype=asked.dtype)]
    if not asked.fields:
        return _run.bind(None, [], [], device, makers, copies)
    plan = _run.plan_for(Problem("conv", **asked.fields), device)
    result = _conv.RESULT[direction]
    names = ["x", "w", "y", "bias", result]
    names[names.index(result)] = ""  # the new tensor is behind the others
    sources = [names.index(asked.slots[operand.name]) for operand in plan.operands]
    return _run.bind(plan, sources, [asked.lying.get(name) for name in names], device, makers,
                     copies)


def run_conv(direction: str, x: Optional[Tensor], w: Optional[Tensor], y: Optional[Tensor],
             bias: Optional[Tensor], how: How, activation: Optional[str] = None,
             size: Optional[Tuple[int, ...]] = None) -> Tensor:
    """The one of x, w and y that is None."""
    like = x if x is not None else y
    assert like is not None
    return _run.run(_bind, (direction, how, activation, size), (x, w, y, bias), like)[0]
