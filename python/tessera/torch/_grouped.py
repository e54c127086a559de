"""Products of groups of unequal sizes: the operator torch.ops.tessera.grouped_mm."""
from __future__ import annotations

from typing import Any, Optional, Sequence, Tuple

import torch

from .. import _arrays, _grouped
from .._abi import Error
from .._checks import named
from .._problem import Problem
from . import _ops, _run
from ._attention_ops import TENSORS
from ._functions import ops
from ._operators import Operator, check, register

Tensor = torch.Tensor
_NAMES = ("a", "b", "group_ends", "out")


def _bind(options: _grouped.Options, tensors: Sequence[Optional[Tensor]]) -> _run.Bound:
    given = [(name, tensor) for name, tensor in zip(_NAMES, tensors) if tensor is not None]
    _run.check_devices([("offs" if name == "group_ends" else name, t) for name, t in given])
    views = {name: _view(tensor, name) for name, tensor in given}
    fields, slots = _grouped.problem_of(options, views)
    device = given[0][1].device
    if 0 in views["out"].shape:
        return _run.bind(None, [], tensors, device)
    plan = _run.plan_for(Problem("gemm", **fields), device)
    sources = [_NAMES.index(slots.get(x.name, x.name)) for x in plan.operands]
    return _run.bind(plan, sources, tensors, device)


def _view(tensor: Tensor, name: str) -> _arrays.View:
    """Ends of 64 bits are rows of two words."""
    if name == "group_ends" and tensor.dtype == torch.int64:
        return _run.tensor_view(tensor.view(torch.int32).view(-1, 2), name)
    return _run.tensor_view(tensor, name)


def _ends(offs: Tensor) -> Tensor:
    """Numbers of 32 or 64 bits as they are."""
    if offs.dim() != 1:
        raise Error(f"offs must have 1 dimension, got {offs.dim()}")
    return offs.contiguous() if offs.dtype == torch.int64 else TENSORS.row("offs", offs)[0]


def _grouping(a: Tensor, b: Tensor) -> str:
    return _grouped.grouping_of((a.dim(), b.dim()), {"ends": True, "index": None, "rows": None})


def _out(a: Tensor, b: Tensor, offs: Tensor) -> Tensor:
    """A new result. Rows and columns of no group are 0."""
    check(a.shape[-1] == b.shape[-2], "a's columns must be as many as b's rows")
    dtype = _ops._RESULTS.get(a.dtype, a.dtype)
    if a.dim() == b.dim() == 2:
        return a.new_empty((offs.shape[0], a.shape[0], b.shape[1]), dtype=dtype)
    shape = a.shape[-2], b.shape[-1]
    return _run.new_in_order(a, shape, (1, 0) if a.dim() == 3 else (), dtype)


def run(a: Tensor, b: Tensor, offs: Tensor) -> Tensor:
    try:
        options = _grouped.Options(_grouping(a, b))
        ends, out = _ends(offs), _out(a, b, offs)
        if options.grouping != "along_k":
            out.zero_()
        tensors = tuple(laid(x) for x in (a, b))
        _run.run(_bind, options, (*tensors, ends, out), a)
        return out
    except Error as error:
        raise named("grouped_mm", error) from None


def laid(tensor: Tensor) -> Tensor:
    """The tensor, or a copy where no problem says its strides."""
    return tensor.contiguous() if _run._lies_badly(tensor) else tensor


def _setup(ctx: Any, inputs: Tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _backward(ctx: Any, grad: Tensor) -> Tuple[Any, ...]:
    """Both are products of groups again, of another kind each."""
    a, b, offs = ctx.saved_tensors
    d_a = ops.grouped_mm(grad, b.mT, offs) if _ops._needs(ctx, 0) else None
    d_b = ops.grouped_mm(a.mT, grad, offs) if _ops._needs(ctx, 1) else None
    return d_a, d_b, None


def _fake(a: Tensor, b: Tensor, offs: Tensor) -> Tensor:
    return _out(a, b, offs)


register(Operator("grouped_mm(Tensor a, Tensor b, Tensor offs) -> Tensor", run, _fake, _setup,
                  _backward, refusal="the product of groups has no forward-mode derivative"))


def grouped_mm(mat_a: Any, mat_b: Any, *, offs: Optional[Tensor] = None,
               bias: Optional[Tensor] = None, out_dtype: Optional[torch.dtype] = None) -> Any:
    """The products of groups, with the shapes and the meaning of torch._grouped_mm.

    offs: (groups,), where each group ends; whole numbers of any type.
    mat_a (m, k), mat_b (groups, k, n): groups of rows; the result is (m, n).
    mat_a (groups, m, k), mat_b (k, n): groups of columns; the result is (m, n).
    mat_a (m, k), mat_b (k, n): groups along k; the result is (groups, m, n).
    Both of 3 dimensions: without offs, as torch.bmm.
    Both lists of as many matrices: a list of the products mat_a[i] @ mat_b[i] of any sizes, in one
    launch. torch.compile leaves such a call as it is.
    Rows and columns of no group are 0. Gradients are products of groups too. bias must be None, as
    in PyTorch. out_dtype: None or the type that the result has.
    """
    if bias is not None:
        raise Error("grouped_mm: bias must be None, as torch._grouped_mm has it; "
                    "tessera.grouped_matmul takes one")
    if isinstance(mat_a, (list, tuple)) and isinstance(mat_b, (list, tuple)):
        if offs is not None or out_dtype is not None:
            raise Error("grouped_mm: offs and out_dtype must be None with lists")
        from . import _lists  # brings PyTorch's compiler along, which other calls do without
        return _lists.multiply(mat_a, mat_b)
    if offs is None and mat_a.dim() == mat_b.dim() == 3:
        out = ops.matmul(mat_a, mat_b)
    elif offs is None:
        raise Error(f"grouped_mm: offs must be given where mat_a and mat_b have {mat_a.dim()} and "
                    f"{mat_b.dim()} dimensions; only 3 and 3 go without")
    else:
        out = ops.grouped_mm(mat_a, mat_b, offs)
    if out_dtype not in (None, out.dtype):
        raise Error(f"grouped_mm: out_dtype must be {out.dtype} or None, got {out_dtype}")
    return out
