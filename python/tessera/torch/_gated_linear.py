"""Linear layers whose output is gated: the operator torch.ops.tessera.gated_linear."""
from __future__ import annotations

from typing import Any, Dict, NamedTuple, Optional, Sequence, Tuple

import torch

from .._abi import Error
from .._checks import named
from .._problem import Problem
from . import _ops, _run
from ._gated import applied, halves, joined_halves
from ._functions import ops
from ._operators import Operator, check, register

Tensor = torch.Tensor
GATES = {"silu": "silu_mul", "gelu": "gelu_mul", "gelu_tanh": "gelu_tanh_mul"}
_NAMES = ("a", "b", "d0", "out")
_LABELS = {"a": "x", "b": "weight", "d0": "bias", "out": "out"}


class _Options(NamedTuple):
    activation: str
    interleaved: bool


def _gate(activation: str) -> str:
    if activation not in GATES:
        raise Error(f"activation must be one of {', '.join(GATES)}, got {activation!r}")
    return GATES[activation]


def _bind(options: _Options, tensors: Sequence[Optional[Tensor]]) -> _run.Bound:
    given = [(name, tensor) for name, tensor in zip(_NAMES, tensors) if tensor is not None]
    _run.check_devices([(_LABELS[name], tensor) for name, tensor in given])
    made = dict(given)
    x, weight = made["a"], made["b"]
    if 0 in made["out"].shape:
        return _run.bind(None, [], tensors, x.device)
    fields: Dict[str, Any] = {
        "m": x.shape[0], "n": weight.shape[0], "k": x.shape[1], "layout": "rcr",
        "gate": _gate(options.activation), "gate_interleaved": int(options.interleaved)}
    for name in ("a", "b", "out"):
        fields[name] = _run.type_word(made[name], _LABELS[name])
    if "d0" in made:
        fields.update(epilogue="bias", d=_run.type_word(made["d0"], "bias"))
    plan = _run.plan_for(Problem("gemm", **fields), x.device)
    return _run.bind(plan, [_NAMES.index(operand.name) for operand in plan.operands], tensors,
                     x.device)


def _out(x: Tensor, weight: Tensor, bias: Optional[Tensor]) -> Tensor:
    check(weight.dim() == 2, f"weight must have 2 dimensions, got {weight.dim()}")
    check(x.dim() > 0 and x.shape[-1] == weight.shape[1],
          "x's last dimension must be as long as weight's rows")
    check(weight.shape[0] % 2 == 0, "weight must have an even number of rows, two for each column")
    if bias is not None:
        check(bias.dim() == 1 and bias.shape[0] == weight.shape[0],
              "bias must have an element for each row of weight")
    dtype = _ops._RESULTS.get(x.dtype, x.dtype)
    return x.new_empty((*x.shape[:-1], weight.shape[0] // 2), dtype=dtype)


def run(x: Tensor, weight: Tensor, bias: Optional[Tensor], activation: str,
        interleaved: bool) -> Tensor:
    try:
        _gate(activation)
        out = _out(x, weight, bias)
        rows = x.reshape(-1, x.shape[-1]).contiguous()
        flat = out.view(rows.shape[0], out.shape[-1])
        tensors = (rows, weight.contiguous(), None if bias is None else bias.contiguous(), flat)
        _run.run(_bind, _Options(activation, interleaved), tensors, x)
        return out
    except Error as error:
        raise named("gated_linear", error) from None


def _fake(x: Tensor, weight: Tensor, bias: Optional[Tensor], activation: str,
          interleaved: bool) -> Tensor:
    return _out(x, weight, bias)


def _setup(ctx: Any, inputs: Tuple[Any, ...], output: Tensor) -> None:
    x, weight, bias, ctx.activation, ctx.interleaved = inputs
    ctx.has_bias = bias is not None
    ctx.save_for_backward(x, weight, *(() if bias is None else (bias,)))


def _backward(ctx: Any, grad: Tensor) -> Tuple[Any, ...]:
    """The product is computed again, which costs less than to keep it."""
    x, weight, *rest = ctx.saved_tensors
    z = ops.matmul(x, weight.mT) + (rest[0] if ctx.has_bias else 0)
    u, v = halves(z, ctx.interleaved)
    joined = joined_halves(_ops.through_activation(grad * v, u, ctx.activation),
                           grad * applied(GATES[ctx.activation], u), ctx.interleaved)
    flat = joined.reshape(-1, joined.shape[-1])
    d_x = ops.matmul(joined, weight) if _ops._needs(ctx, 0) else None
    d_weight = (ops.matmul(flat.mT, x.reshape(-1, x.shape[-1])) if _ops._needs(ctx, 1) else None)
    d_bias = flat.sum(0).to(rest[0].dtype) if ctx.has_bias and _ops._needs(ctx, 2) else None
    return d_x, d_weight, d_bias, None, None


register(Operator("gated_linear(Tensor x, Tensor weight, Tensor? bias, str activation, "
                  "bool interleaved) -> Tensor", run, _fake, _setup, _backward,
                  refusal="the gated linear layer has no forward-mode derivative"))


def gated_linear(x: Tensor, weight: Tensor, bias: Optional[Tensor] = None, *,
                 activation: str = "silu", interleaved: bool = False) -> Tensor:
    """activation(u) * v, where u and v are the halves of x @ weight.mT + bias, in one launch.

    x: (..., k). weight: (2 * f, k): the first f rows make u, the others v; interleaved: rows 2 i
    make u, rows 2 i + 1 v. bias: (2 * f,). activation: "silu", "gelu" or "gelu_tanh". The result is
    (..., f). Gradients compute the product again.
    """
    return ops.gated_linear(x, weight, bias, activation, interleaved)
