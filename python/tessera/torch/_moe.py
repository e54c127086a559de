"""Mixtures of experts: the operator torch.ops.tessera.fused_moe."""
from __future__ import annotations

from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple, Union

import torch

from .._abi import Error
from .._checks import named
from .._problem import Problem
from . import _routing, _run
from ._functions import ops
from ._operators import Operator, register

Tensor = torch.Tensor
# What an expert does with its two halves of columns: act(gate) * up.
ACTIVATIONS = {"silu": "silu_mul", "gelu": "gelu_mul", "gelu_tanh": "gelu_tanh_mul"}


class Sizes(NamedTuple):
    tokens: int
    hidden: int
    top_k: int
    experts: int
    inner: int


def _sizes(x: Tensor, ids: Tensor, w1: Tensor, w2: Tensor) -> Sizes:
    if (x.dim(), ids.dim(), w1.dim(), w2.dim()) != (2, 2, 3, 3):
        raise Error("x, ids, w1 and w2 must have 2, 2, 3 and 3 dimensions, got "
                    f"{x.dim()}, {ids.dim()}, {w1.dim()} and {w2.dim()}")
    found = Sizes(*x.shape, ids.shape[1], w2.shape[0], w2.shape[2])
    wanted = {"w1": (found.experts, 2 * found.inner, found.hidden),
              "w2": (found.experts, found.hidden, found.inner)}
    for name, tensor in (("w1", w1), ("w2", w2)):
        if tuple(tensor.shape) != wanted[name]:
            raise Error(f"{name} must have the shape {wanted[name]} beside x {tuple(x.shape)} and "
                        f"w2 {tuple(w2.shape)}, got {tuple(tensor.shape)}")
        if tensor.dtype != x.dtype:
            raise Error(f"{name} must have x's type, {x.dtype}, got {tensor.dtype}")
    if ids.shape[0] != found.tokens:
        raise Error(f"ids must have {found.tokens} rows, one for each token, got {ids.shape[0]}")
    return found


# ---- The two products ----------------------------------------------------------------------------

def _common(a: Tensor, b: Tensor, out: Tensor, rows: int) -> Dict[str, Any]:
    """Rows go by experts; B is (experts, n, k)."""
    words = {name: _run.type_word(tensor, name) for name, tensor in
             (("a", a), ("b", b), ("out", out))}
    return {"m": rows, "n": b.shape[1], "k": b.shape[2], "layout": "rcr", "groups": b.shape[0],
            "grouping": "contiguous", "ld_a": max(a.stride(0), a.shape[1]),
            "ld_b": max(b.stride(1), b.shape[2]), "batch_stride_b": b.stride(0),
            "ld_out": out.stride(0), **words}


def _bind(fields_of: Any, names: Sequence[str], tensors: Sequence[Optional[Tensor]]) -> _run.Bound:
    given = [(name, t) for name, t in zip(names, tensors) if t is not None]
    _run.check_devices(given)
    device = given[0][1].device
    plan = _run.plan_for(Problem("gemm", **fields_of), device)
    return _run.bind(plan, [names.index(x.name) for x in plan.operands], tensors, device)


_UP = ("a", "b", "group_ends", "row_index", "out")
_DOWN = ("a", "b", "d0", "group_ends", "row_index", "out")


def _bind_up(activation: str, tensors: Sequence[Optional[Tensor]]) -> _run.Bound:
    x, w1, _, row_index, out = tensors
    assert x is not None and w1 is not None and row_index is not None and out is not None
    fields = {**_common(x, w1, out, row_index.shape[0]), "indexing": "gathered",
              "index_room": x.shape[0], "gate": ACTIVATIONS[activation]}
    return _bind(fields, _UP, tensors)


def _bind_down(_: None, tensors: Sequence[Optional[Tensor]]) -> _run.Bound:
    inner, w2, _, _, row_index, out = tensors
    assert inner is not None and w2 is not None and row_index is not None and out is not None
    fields = {**_common(inner, w2, out, row_index.shape[0]), "indexing": "scattered",
              "index_room": out.shape[0], "epilogue": "row_scale", "d": "fp32"}
    return _bind(fields, _DOWN, tensors)


def _by_rows(tensor: Tensor) -> Tensor:
    """The tensor, or a copy where its rows are not at one distance, or overlap."""
    bad = tensor.stride(-1) != 1 or (tensor.shape[-2] > 1 and tensor.stride(-2) < tensor.shape[-1])
    return tensor.contiguous() if bad else tensor


def _run_moe(x: Tensor, ids: Tensor, weights: Tensor, w1: Tensor, w2: Tensor, activation: str
             ) -> Tensor:
    try:
        sizes = _sizes(x, ids, w1, w2)
        x, w1, w2 = _by_rows(x), _by_rows(w1), _by_rows(w2)
        if x.is_cuda:  # no kernel of a GPU has gates and rows by index with groups
            return _on_copies(x, ids, weights, w1, w2, activation, sizes)
        order = _routing.by_expert(ids, sizes.experts)
        rows = sizes.tokens * sizes.top_k
        inner = x.new_empty((rows, sizes.inner))
        each = x.new_zeros((rows, sizes.hidden))  # ids of no expert add nothing
        if 0 not in (*inner.shape, *each.shape):
            tokens = torch.div(order.slots, sizes.top_k, rounding_mode="floor")
            _run.run(_bind_up, activation, (x, w1, order.ends, tokens, inner), x)
            scale = weights.reshape(-1).float()
            _run.run(_bind_down, None, (inner, w2, scale, order.ends, order.slots, each), x)
        return each.view(sizes.tokens, sizes.top_k, sizes.hidden).sum(1)
    except Error as error:
        raise named("fused_moe", error) from None


def _fake(x: Tensor, ids: Tensor, weights: Tensor, w1: Tensor, w2: Tensor, activation: str
          ) -> Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


register(Operator("fused_moe(Tensor x, Tensor ids, Tensor weights, Tensor w1, Tensor w2, "
                  "str activation) -> Tensor", _run_moe, _fake,
                  refusal="gradients come from the function tessera.torch.fused_moe(), not from "
                          "the operator"))


# ---- On copies of rows ---------------------------------------------------------------------------

def _on_copies(x: Tensor, ids: Tensor, weights: Tensor, w1: Tensor, w2: Tensor, activation: str,
               sizes: Sizes) -> Tensor:
    """The same sums from operators that have gradients; x is copied for each expert."""
    order = _routing.by_expert(ids, sizes.experts)
    slots = order.slots.long()
    spread = x.unsqueeze(1).expand(-1, sizes.top_k, -1).reshape(-1, sizes.hidden)[slots]
    both = ops.grouped_mm(spread, w1.mT, order.ends)
    inner = ops.gated(both, ACTIVATIONS[activation], False)
    sorted_rows = ops.grouped_mm(inner, w2.mT, order.ends)
    back = torch.empty_like(slots)
    back[slots] = torch.arange(slots.shape[0], device=slots.device)
    each = sorted_rows[back].view(sizes.tokens, sizes.top_k, sizes.hidden)
    return (each * weights.unsqueeze(2)).sum(1).to(x.dtype)


def _needs_gradients(tensors: List[Optional[Tensor]]) -> bool:
    return torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors)


def _experts(x: Tensor, ids: Tensor, weights: Tensor, w1: Tensor, w2: Tensor, activation: str
             ) -> Tensor:
    if _needs_gradients([x, weights, w1, w2]):
        return _on_copies(x, ids, weights, w1, w2, activation, _sizes(x, ids, w1, w2))
    return ops.fused_moe(x, ids, weights, w1, w2, activation)


def fused_moe(x: Tensor, routing: Union[Tensor, Tuple[Tensor, Tensor]], w1: Tensor, w2: Tensor, *,
              top_k: int, activation: str = "silu", router: str = "softmax",
              renormalize: bool = True, router_bias: Optional[Tensor] = None, num_groups: int = 1,
              top_groups: int = 1, scaling_factor: float = 1.0,
              shared: Optional[Tuple[Tensor, Tensor]] = None) -> Tensor:
    """The sum over a token's experts of weight * (act(x @ w1_gate.T) * (x @ w1_up.T)) @ w2.T.

    x: (tokens, hidden). routing: router_logits (tokens, experts), or (ids, weights), (tokens,
    top_k) each; an id below 0 is of no expert and adds nothing. w1: (experts, 2 * inner, hidden),
    the gate's rows first. w2: (experts, hidden, inner). shared: (w1, w2) of experts that every
    token has, (2 * inner, hidden) and (hidden, inner), added with the weight 1.
    activation: "silu", "gelu" or "gelu_tanh". router, renormalize, router_bias, num_groups,
    top_groups, scaling_factor: how weights follow from logits; see tessera.torch.route.

    x is not copied by experts: rows are gathered by index in the first product, and the second one
    stores each row at its place, so that a token's rows are added in one order, and results repeat
    bit by bit. With gradients and on GPUs x is copied once for each of a token's experts. Returns
    (tokens, hidden) in x's type. Raises Error where shapes, types or numbers do not fit.
    """
    if activation not in ACTIVATIONS:
        raise Error(f"fused_moe: activation must be one of {', '.join(ACTIVATIONS)}, got "
                    f"{activation!r}")
    try:
        if isinstance(routing, tuple):
            ids, weights = routing
        else:
            ids, weights = _routing.route(routing, top_k, router=router, renormalize=renormalize,
                                          router_bias=router_bias, num_groups=num_groups,
                                          top_groups=top_groups, scaling_factor=scaling_factor)
        if tuple(ids.shape) != tuple(weights.shape) or ids.dim() != 2 or ids.shape[1] != top_k:
            raise Error(f"ids and weights must have the shape (tokens, top_k={top_k}), got "
                        f"{tuple(ids.shape)} and {tuple(weights.shape)}")
        out = _experts(x, ids, weights, w1, w2, activation)
        return out if shared is None else out + _shared(x, *shared, activation)
    except Error as error:
        raise named("fused_moe", error) from None


def _shared(x: Tensor, w1: Tensor, w2: Tensor, activation: str) -> Tensor:
    """The experts of all tokens: one group."""
    one = torch.zeros((x.shape[0], 1), dtype=torch.int32, device=x.device)
    weights = torch.ones((x.shape[0], 1), dtype=torch.float32, device=x.device)
    return _experts(x, one, weights, w1.unsqueeze(0), w2.unsqueeze(0), activation)
