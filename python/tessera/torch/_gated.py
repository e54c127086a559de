"""silu_mul and gelu_mul: a function of one half of the last dimension times the other half."""
from __future__ import annotations

from typing import Any, Optional, Sequence, Tuple

import torch

from .. import _norms
from .._gated import gelu_kind, interleaving
from .._problem import Problem
from . import _functions, _ops, _run
from ._operators import Operator, check, register, total

Tensor = torch.Tensor
_ACTIVATIONS = {"silu_mul": "silu", "gelu_mul": "gelu", "gelu_tanh_mul": "gelu_tanh"}


def silu_mul(x: Tensor, *, interleaved: bool = False) -> Tensor:
    """silu(gate) * up. x: (..., 2 * columns), the gates and then what they multiply; interleaved:
    each gate beside what it multiplies."""
    return _call("silu_mul", x, interleaved)


def gelu_mul(x: Tensor, *, approximate: str = "none", interleaved: bool = False) -> Tensor:
    """gelu(gate) * up, with x as in silu_mul(), and gelu as in torch.nn.functional.gelu."""
    return _call(gelu_kind(approximate), x, interleaved)


def _call(kind: str, x: Tensor, interleaved: bool) -> Tensor:
    interleaving(interleaved)
    return _functions.call_anew(torch.ops.tessera.gated, _run_gated, 1, (x,), kind, interleaved)


def _bind(options: Tuple[str, bool], tensors: Sequence[Optional[Tensor]]) -> _run.Bound:
    x, = tensors
    assert x is not None
    copies = [Tensor.contiguous if x.dim() > 0 and not _run._has_rows(x) else None]
    shape = _norms.shape_of(options[0], tuple(x.shape))
    lying = {"in": x if copies[0] is None else copies[0](x), "out": x.new_empty(shape)}
    views = {name: _run.tensor_view(tensor, name) for name, tensor in lying.items()}
    makers = [_run._new_of(shape, x.dtype, x.dtype)]
    asked = (options[0], None, ("interleaved", options[1]))
    problem = Problem("norm", **_norms.fields_of(asked, views))
    if x.numel() == 0:
        return _run.bind(None, [], [], x.device, makers, copies)
    return _run.bind(_run.plan_for(problem, x.device), [0, 1], list(lying.values()), x.device,
                     makers, copies)


def _run_gated(x: Tensor, kind: str, interleaved: bool) -> Tensor:
    return _run.run(_bind, (kind, interleaved), (x,), x)[0]


def halves(x: Tensor, interleaved: bool) -> Tuple[Tensor, Tensor]:
    """The gates, and what they multiply."""
    if interleaved:
        return x[..., ::2], x[..., 1::2]
    columns = x.shape[-1] // 2
    return x[..., :columns], x[..., columns:]


def joined_halves(gate: Tensor, up: Tensor, interleaved: bool) -> Tensor:
    return torch.stack((gate, up), -1).flatten(-2) if interleaved else torch.cat((gate, up), -1)


def applied(kind: str, gate: Tensor) -> Tensor:
    if kind == "silu_mul":
        return torch.nn.functional.silu(gate)
    return torch.nn.functional.gelu(gate, approximate="none" if kind == "gelu_mul" else "tanh")


def _fake(x: Tensor, kind: str, interleaved: bool) -> Tensor:
    check(x.dim() > 0, "x must have at least 1 dimension")
    check(x.shape[-1] % 2 == 0, "x must have an even number of columns")
    return x.new_empty((*x.shape[:-1], x.shape[-1] // 2))


def _setup(ctx: Any, inputs: Tuple[Any, ...], output: Tensor) -> None:
    x, ctx.kind, ctx.interleaved = inputs
    ctx.save_for_backward(x)


def _backward(ctx: Any, grad: Tensor) -> Tuple[Any, ...]:
    """In fp32, because the result was rounded once."""
    x, = ctx.saved_tensors
    gate, up = halves(x.float(), ctx.interleaved)
    wide = grad.float()
    d_gate = _ops.through_activation(wide * up, gate, _ACTIVATIONS[ctx.kind])
    d_up = wide * applied(ctx.kind, gate)
    return joined_halves(d_gate, d_up, ctx.interleaved).to(x.dtype), None, None


def _tangents(inputs: Tuple[Any, ...], tangents: Tuple[Any, ...], results: Tuple[Tensor, ...]
              ) -> Tuple[Tensor, ...]:
    x, kind, interleaved = inputs
    gate, up = halves(x.float(), interleaved)
    of_gate, of_up = halves(tangents[0].float(), interleaved)
    through = _ops.through_activation(of_gate * up, gate, _ACTIVATIONS[kind])
    return (total([through, of_up * applied(kind, gate)]).to(x.dtype),)


register(Operator("gated(Tensor x, str kind, bool interleaved) -> Tensor", _run_gated, _fake,
                  _setup, _backward, _tangents, rows=(0,)))
