"""Mixtures of experts: the operators torch.ops.tessera.fused_moe and routed_moe."""
from __future__ import annotations

import warnings
from typing import Any, List, NamedTuple, Optional, Sequence, Tuple, Union

import torch

from .._abi import Error
from .._checks import named
from .._routing import Rule
from . import _moe_plans, _moe_scaled, _routing, _run
from ._functions import ops
from ._moe_plans import Asked
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


def _sizes(x: Tensor, ids: Tensor, w1: Tensor, w2: Tensor, has_scales: bool = False) -> Sizes:
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
        if tensor.dtype != x.dtype and not has_scales:
            raise Error(f"{name} must have x's type, {x.dtype}, got {tensor.dtype}")
    if ids.shape[0] != found.tokens:
        raise Error(f"the routing must have {found.tokens} rows, one for each token, got "
                    f"{ids.shape[0]}")
    return found


def _check_columns(logits: Tensor, sizes: Sizes) -> None:
    if logits.shape[1] != sizes.experts:
        raise Error(f"router_logits must have {sizes.experts} columns, one for each expert, got "
                    f"{logits.shape[1]}")


# ---- The launches --------------------------------------------------------------------------------

class Layer(NamedTuple):
    """The plans of a layer, and where its numbers lie: ids, weights, group_ends, row_index, slots
    and the rows between the products, so many bytes behind the beginning of one memory."""

    route: _run.Bound
    up: _run.Bound
    down: _run.Bound
    offsets: Sequence[int]
    bytes: int


class Copies(NamedTuple):
    """There are no kernels for the layer, and rows are copied by experts."""

    why: str


_UP = ("a", "b", "group_ends", "row_index", "out")
_DOWN = ("a", "b", "d0", "group_ends", "row_index", "out")


def _bind_products(activation: str, x: Tensor, w1: Tensor, w2: Tensor, made: Sequence[Tensor]
                   ) -> Tuple[_run.Bound, _run.Bound]:
    _, weights, ends, tokens, slots, inner = made
    each = x.new_empty((slots.shape[0], x.shape[1]))
    up = {**_moe_plans.product_fields(x, w1, inner, slots.shape[0]), "indexing": "gathered",
          "index_room": x.shape[0], "gate": ACTIVATIONS[activation]}
    down = {**_moe_plans.product_fields(inner, w2, each, slots.shape[0]), "indexing": "scattered",
            "index_room": slots.shape[0], "epilogue": "row_scale", "d": "fp32"}
    return (_moe_plans.bind_product(up, _UP, (x, w1, ends, tokens, inner)),
            _moe_plans.bind_product(down, _DOWN, (inner, w2, weights.view(-1), ends, slots, each)))


def _bind_layer(asked: Asked, tensors: Sequence[Optional[Tensor]]) -> Any:
    """tensors: x, w1, w2, and logits and bias, or ids and weights."""
    x, w1, w2, first, second = tensors
    assert x is not None and w1 is not None and w2 is not None and first is not None
    _moe_plans.check_devices(asked, x, first, second, (("w1", w1), ("w2", w2)))
    made = _moe_plans.new_numbers(asked, x, first, w1.shape[0])
    made.append(x.new_empty((made[-1].shape[0], w2.shape[2])))
    route = _moe_plans.bind_route(asked, first, second, w1.shape[0])
    try:
        up, down = _bind_products(asked.activation, x, w1, w2, made)
    except Error as error:
        if error.code != "unsupported":
            raise
        return _copying(x, str(error))
    return Layer(route, up, down, *_moe_plans.offsets_of(made))


def _copying(x: Tensor, why: str) -> Copies:
    warnings.warn(f"tessera.torch.fused_moe copies rows of {x.dtype} by experts on {x.device}, "
                  f"because no kernel does without: {why}", stacklevel=2)
    return Copies(why)


def _launch_layer(layer: Layer, asked: Asked, x: Tensor, tensors: Sequence[Optional[Tensor]],
                  top_k: int) -> Tensor:
    """The route, both products, and the sum over each token's rows in their order."""
    _, w1, w2, first, second = [0 if t is None else t.data_ptr() for t in tensors]
    memory = x.new_empty(layer.bytes, dtype=torch.uint8)
    base = memory.data_ptr()
    *numbers, inner = [base + offset for offset in layer.offsets]
    _, _, ends, rows, slots = numbers
    new = x.new_empty if asked.rule else x.new_zeros  # ids of no expert add nothing
    each = new((x.shape[0], top_k, x.shape[1]))
    weights = _moe_plans.launch_route(asked, layer.route, (first, second), numbers, x)
    _run.launch(layer.up, (x.data_ptr(), w1, ends, rows, inner), x)
    _run.launch(layer.down, (inner, w2, weights, ends, slots, each.data_ptr()), x)
    return each.sum(1)


def _run_layer(asked: Asked, x: Tensor, w1: Tensor, w2: Tensor, first: Tensor,
               second: Optional[Tensor]) -> Tensor:
    top_k = asked.rule.top_k if asked.rule else first.shape[1]
    sizes = _sizes(x, first, w1, w2)._replace(top_k=top_k)
    if asked.rule:
        _check_columns(first, sizes)
    if 0 in (sizes.tokens, sizes.hidden, sizes.inner, top_k):
        return torch.zeros_like(x, memory_format=torch.contiguous_format)
    x, w1, w2 = _routing.by_rows(x), _routing.by_rows(w1), _routing.by_rows(w2)
    tensors = (x, w1, w2, first, second)
    layer: Any = _run.bound_of(_bind_layer, asked, tensors)
    if isinstance(layer, Layer):
        return _launch_layer(layer, asked, x, tensors, top_k)
    if asked.rule:
        first, second = ops.route(first, second, *asked.rule)
    assert second is not None
    return _on_copies(x, first, second, w1, w2, asked.activation, sizes)


def _run_moe(x: Tensor, ids: Tensor, weights: Tensor, w1: Tensor, w2: Tensor, activation: str
             ) -> Tensor:
    try:
        return _run_layer(Asked(activation, None), x, w1, w2, ids.to(torch.int32).contiguous(),
                          weights.float().contiguous())
    except Error as error:
        raise named("fused_moe", error) from None


def _run_routed(x: Tensor, logits: Tensor, bias: Optional[Tensor], w1: Tensor, w2: Tensor,
                activation: str, *rule: Any) -> Tensor:
    try:
        return _run_layer(Asked(activation, Rule(*rule)), x, w1, w2,
                          *_routing.readable(logits, bias))
    except Error as error:
        raise named("fused_moe", error) from None


def _fake(x: Tensor, *_: Any) -> Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


_REFUSAL = ("gradients come from the function tessera.torch.fused_moe(), not from the operator")
register(Operator("fused_moe(Tensor x, Tensor ids, Tensor weights, Tensor w1, Tensor w2, "
                  "str activation) -> Tensor", _run_moe, _fake, refusal=_REFUSAL))
register(Operator("routed_moe(Tensor x, Tensor logits, Tensor? bias, Tensor w1, Tensor w2, "
                  "str activation, int top_k, str scoring, bool renormalize, int num_groups, "
                  "int top_groups, float scaling_factor) -> Tensor", _run_routed, _fake,
                  refusal=_REFUSAL))


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


def fused_moe(x: Tensor, routing: Union[Tensor, Tuple[Tensor, Tensor]], w1: Tensor, w2: Tensor, *,
              top_k: int, activation: str = "silu", router: str = "softmax",
              renormalize: bool = True, router_bias: Optional[Tensor] = None, num_groups: int = 1,
              top_groups: int = 1, scaling_factor: float = 1.0,
              shared: Optional[Tuple[Tensor, Tensor]] = None, w1_scale: Optional[Tensor] = None,
              w2_scale: Optional[Tensor] = None, x_scale: Optional[Tensor] = None) -> Tensor:
    """The sum over a token's experts of weight * (act(x @ w1_gate.T) * (x @ w1_up.T)) @ w2.T.

    x: (tokens, hidden). routing: router_logits (tokens, experts), or (ids, weights), (tokens,
    top_k) each; an id below 0 is of no expert and adds nothing. w1: (experts, 2 * inner, hidden),
    the gate's rows first. w2: (experts, hidden, inner). shared: (w1, w2) of experts that every
    token has, (2 * inner, hidden) and (hidden, inner), added with the weight 1.
    activation: "silu", "gelu" or "gelu_tanh". router, renormalize, router_bias, num_groups,
    top_groups, scaling_factor: how weights follow from logits; see tessera.torch.route.

    x is not copied by experts: rows are gathered by index in the first product, and the second one
    stores each row at its place, so that a token's rows are added in one order, and results repeat
    bit by bit. On a GPU this takes five launches from logits: two for the router (one of few
    tokens), two products and the sum. With gradients, and where a GPU has no such kernels, x is
    copied once for each of a token's experts; of the latter a warning says why, once for each size.
    ids are numbers of 32 bits. w1_scale, w2_scale: those of weights in float8_e4m3fn, in float32,
    one for each 128 x 128 elements, (experts, 2 * inner / 128, hidden / 128) and (experts, hidden /
    128, inner / 128), sizes rounded up. x and what lies between the products are then quantised by
    128 elements of each row. x_scale: x has been quantised so, and is in float8_e4m3fn; (tokens,
    hidden / 128) in float32, as quantise(quant="block") returns both. On a CPU rows are copied by
    experts then; on a GPU there are three to five launches besides the router's: x in 8 bits where
    it comes without scales, the two products, the gate where experts have many rows, and the sum.
    Returns (tokens, hidden) in x's type, or with x_scale in bfloat16. Raises Error where shapes,
    types or numbers do not fit.
    """
    if activation not in ACTIVATIONS:
        raise Error(f"fused_moe: activation must be one of {', '.join(ACTIVATIONS)}, got "
                    f"{activation!r}")
    try:
        rule = Rule(top_k, router, renormalize, num_groups, top_groups, float(scaling_factor))
        given = (x_scale, w1_scale, w2_scale)
        scales = None if all(scale is None for scale in given) else given
        out = _experts(x, routing, router_bias, w1, w2, activation, rule, scales)
        return out if shared is None else out + _shared(x, *shared, activation)
    except Error as error:
        raise named("fused_moe", error) from None


_Scales = Tuple[Optional[Tensor], Optional[Tensor], Optional[Tensor]]


def _experts(x: Tensor, routing: Union[Tensor, Tuple[Tensor, Tensor]], bias: Optional[Tensor],
             w1: Tensor, w2: Tensor, activation: str, rule: Rule, scales: Optional[_Scales] = None
             ) -> Tensor:
    """With gradients on copies of rows. scales: those of x, w1 and w2, of which x needs none."""
    given = routing if isinstance(routing, tuple) else (routing,)
    has_gradients = _needs_gradients([x, *given, w1, w2])
    if len(given) == 1:
        _routing.check_rule(given[0], rule)
        if scales is not None:
            return _scaled(x, (given[0], bias), w1, w2, activation, scales, rule)
        if not has_gradients:
            return ops.routed_moe(x, given[0], bias, w1, w2, activation, *rule)
        given = _routing.route(given[0], rule.top_k, router=rule.scoring, router_bias=bias,
                               **{name: getattr(rule, name) for name in Rule._fields[2:]})
    ids, weights = given
    if ids.shape != weights.shape or ids.dim() != 2 or ids.shape[1] != rule.top_k:
        raise Error(f"ids and weights must have the shape (tokens, top_k={rule.top_k}), got "
                    f"{tuple(ids.shape)} and {tuple(weights.shape)}")
    if scales is not None:
        return _scaled(x, (ids, weights), w1, w2, activation, scales, None)
    if has_gradients:
        return _on_copies(x, ids, weights, w1, w2, activation, _sizes(x, ids, w1, w2))
    return ops.fused_moe(x, ids, weights, w1, w2, activation)


def _scaled(x: Tensor, given: Tuple[Tensor, Optional[Tensor]], w1: Tensor, w2: Tensor,
            activation: str, scales: _Scales, rule: Optional[Rule]) -> Tensor:
    """given: logits and bias with a rule, else ids and weights."""
    x_scale, w1_scale, w2_scale = scales
    if w1_scale is None or w2_scale is None:
        raise Error("w1_scale and w2_scale must be given together" +
                    (", and beside x_scale" if x_scale is not None else ""))
    sizes = _sizes(x, given[0], w1, w2, True)
    if rule is not None:
        _check_columns(given[0], sizes)
    _moe_scaled.check_scales(w1, w2, w1_scale, w2_scale)
    _moe_scaled.check_x(x, x_scale)
    if 0 in (*x.shape, *given[0].shape, w2.shape[2]):
        return x.new_zeros(x.shape, dtype=_moe_scaled.type_of_out(x, x_scale))
    call = ops.scaled_moe if rule is None else ops.routed_scaled_moe
    return call(x, x_scale, *given, w1, w2, w1_scale, w2_scale, ACTIVATIONS[activation],
                *(rule or ()))


def _shared(x: Tensor, w1: Tensor, w2: Tensor, activation: str) -> Tensor:
    """The experts of all tokens: one group."""
    one = torch.zeros((x.shape[0], 1), dtype=torch.int32, device=x.device)
    weights = torch.ones((x.shape[0], 1), dtype=torch.float32, device=x.device)
    return _experts(x, (one, weights), None, w1.unsqueeze(0), w2.unsqueeze(0), activation, Rule(1))
