"""Products of tensors of any number of dimensions: the operator torch.ops.tessera.einsum."""
from __future__ import annotations

from typing import Any, Optional, Sequence, Tuple

import torch

from .. import _einsum
from .._abi import Error
from .._checks import named
from .._problem import Problem
from . import _ops, _run
from ._functions import ops
from ._operators import Operator, register

Tensor = torch.Tensor
_NAMES = ("a", "b", "out")


def _bind(options: _einsum.Options, tensors: Sequence[Optional[Tensor]]) -> _run.Bound:
    given = [(name, tensor) for name, tensor in zip(_NAMES, tensors) if tensor is not None]
    _run.check_devices(given)
    views = {name: _run.tensor_view(tensor, name) for name, tensor in given}
    device = given[0][1].device
    if 0 in views["out"].shape:
        return _run.bind(None, [], tensors, device)
    fields, slots = _einsum.problem_of(options, views)
    plan = _run.plan_for(Problem("gemm", **fields), device)
    sources = [_NAMES.index(slots.get(x.name, x.name)) for x in plan.operands]
    return _run.bind(plan, sources, tensors, device)


def _out(a: Tensor, b: Tensor, equation: str) -> Tensor:
    sizes = _sizes(a, b, equation)
    out = equation.split("->")[1]
    missing = [x for x in out if x not in sizes]
    if missing:
        raise Error(f"out has {missing[0]}, which neither a nor b has")
    return a.new_empty(tuple(sizes[x] for x in out), dtype=_ops._RESULTS.get(a.dtype, a.dtype))


def _sizes(a: Tensor, b: Tensor, equation: str) -> Any:
    """The size of each letter, where dimensions of one element fit any."""
    sizes: Any = {}
    for tensor, letters in zip((a, b), equation.split("->")[0].split(",")):
        for letter, size in zip(letters, tensor.shape):
            known = sizes.get(letter, 1)
            sizes[letter] = size if type(known) is int and known == 1 else known
    return sizes


def run(a: Tensor, b: Tensor, equation: str) -> Tensor:
    try:
        out = _out(a, b, equation)
        _run.run(_bind, _einsum.Options(equation, 1.0, 0.0), (a, b, out), a)
        return out
    except Error as error:
        raise named("einsum", error) from None


def _setup(ctx: Any, inputs: Tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs[:2])
    ctx.equation = inputs[2]


def _backward(ctx: Any, grad: Tensor) -> Tuple[Any, ...]:
    """Both are contractions of the result's gradient with the other operand."""
    a, b = ctx.saved_tensors
    of_a, of_b, of_out = ctx.equation.replace("->", ",").split(",")
    d_a = d_b = None
    if _ops._needs(ctx, 0):
        d_a = _gradient(grad, b, f"{of_out},{of_b}->{of_a}", a)
    if _ops._needs(ctx, 1):
        d_b = _gradient(grad, a, f"{of_out},{of_a}->{of_b}", b)
    return d_a, d_b, None


def _gradient(grad: Tensor, other: Tensor, equation: str, of: Tensor) -> Tensor:
    """Added up where the operand had one element for many."""
    return ops.einsum(grad, other, equation).sum_to_size(of.shape)


register(Operator("einsum(Tensor a, Tensor b, str equation) -> Tensor", run, _out, _setup,
                  _backward, refusal="einsum has no forward-mode derivative"))


def einsum(equation: str, a: Tensor, b: Tensor) -> Tensor:
    """torch.einsum of two operands, in their type.

    Letters as tessera.einsum has them: "bqhd,bkhd->bhqk", "...mk,kn->...mn". Each letter is once in
    an operand, and one that only one operand has is in the result. Tensors may have any strides.
    Where neighbouring dimensions become matrices, a call costs what matmul() costs; otherwise the
    kernel copies operands before the product. Gradients are contractions too. Results have a's
    type: int32 for int8, float16 for 8-bit floats.
    """
    try:
        spelled = _einsum.spelled(equation, a.dim(), b.dim())
    except Error as error:
        raise named("einsum", error) from None
    return ops.einsum(a, b, spelled)
