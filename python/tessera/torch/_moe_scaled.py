"""Mixtures of experts whose weights have 8 bits, with scales of blocks: the operators
torch.ops.tessera.scaled_moe and routed_scaled_moe."""
from __future__ import annotations

from typing import Any, Dict, NamedTuple, Optional, Sequence, Tuple

import torch

from .. import _scales
from .._abi import Error
from .._checks import named
from .._routing import Rule
from .._scales import Found
from . import _moe_plans, _quantised, _routing, _run, _scaled  # also for operators that this calls
from ._functions import ops
from ._moe_plans import Asked
from ._operators import Operator, register

Tensor = torch.Tensor
BLOCK = 128
FP8 = torch.float8_e4m3fn


def blocks(size: int) -> int:
    return -(-size // BLOCK)


def check_scales(w1: Tensor, w2: Tensor, w1_scale: Tensor, w2_scale: Tensor) -> None:
    for name, weight, scale in (("w1", w1, w1_scale), ("w2", w2, w2_scale)):
        if weight.dtype != FP8:
            raise Error(f"{name} must have the type float8_e4m3fn beside {name}_scale, got "
                        f"{str(weight.dtype).rpartition('.')[2]}")
        wanted = (weight.shape[0], blocks(weight.shape[1]), blocks(weight.shape[2]))
        if tuple(scale.shape) != wanted or scale.dtype != torch.float32:
            raise Error(f"{name}_scale must have the shape {wanted} and the type float32, one for "
                        f"each {BLOCK} x {BLOCK} elements, got {tuple(scale.shape)} of "
                        f"{str(scale.dtype).rpartition('.')[2]}")


def check_x(x: Tensor, x_scale: Optional[Tensor]) -> None:
    shown = str(x.dtype).rpartition(".")[2]
    if x_scale is None:
        if x.dtype not in _scaled._OUTPUTS:
            raise Error("x must have the type bfloat16, float16 or float32 without x_scale, got "
                        f"{shown}")
        return
    if x.dtype != FP8:
        raise Error(f"x must have the type float8_e4m3fn beside x_scale, got {shown}")
    wanted = (x.shape[0], blocks(x.shape[1]))
    if tuple(x_scale.shape) != wanted or x_scale.dtype != torch.float32:
        raise Error(f"x_scale must have the shape {wanted} and the type float32, one for each "
                    f"{BLOCK} elements of a row, got {tuple(x_scale.shape)} of "
                    f"{str(x_scale.dtype).rpartition('.')[2]}")


def type_of_out(x: Tensor, x_scale: Optional[Tensor]) -> torch.dtype:
    return x.dtype if x_scale is None else torch.bfloat16


# ---- On a GPU: rows by index ---------------------------------------------------------------------

class Layer(NamedTuple):
    """The plans of a layer, and where its numbers lie: ids, weights, group_ends, row_index, slots,
    what the gate makes in 8 bits and its scales, the rows before the gate where it is a launch of
    its own, and x in 8 bits and its scales where a launch makes them. What no launch makes has no
    bytes."""

    quantise: Optional[_run.Bound]
    route: _run.Bound
    up: _run.Bound
    gate: Optional[_run.Bound]
    down: _run.Bound
    offsets: Sequence[int]
    bytes: int


# Tiles that write 8 bits have at most so many rows. Where an expert has more, the products of other
# tiles and a launch for the gate take less time.
_MOST_ROWS = 64
_UP = ("a", "b", "scale_a", "scale_b", "group_ends", "row_index", "out", "out_scales")
_DOWN = ("a", "b", "scale_a", "scale_b", "d0", "group_ends", "row_index", "out")


def _scale_fields(a: Tensor, b: Tensor) -> Dict[str, Any]:
    """a: a scale for each 128 elements of a row; b: one for each 128 x 128 of each expert."""
    return {**_scales.block_fields("a", Found("1x128", False), tuple(a.shape), a.stride()),
            **_scales.block_fields("b", Found("128x128", False), tuple(b.shape), b.stride())}


def _bind_up(known: Tuple[Tensor, ...], out: Tensor, more: Dict[str, Any], *out_scales: Tensor
             ) -> _run.Bound:
    """known: x, w1, their scales, group_ends and row_index."""
    x, w1, x_scale, w1_scale, _, tokens = known
    fields = {**_moe_plans.product_fields(x, w1, out, tokens.shape[0]),
              **_scale_fields(x_scale, w1_scale), "indexing": "gathered",
              "index_room": x.shape[0], **more}
    return _moe_plans.bind_product(fields, _UP, (*known, out, *out_scales))


def _quantising(x: Tensor) -> Tuple[_run.Bound, Tuple[Tensor, Tensor]]:
    small = x.new_empty(x.shape, dtype=FP8)
    scale = x.new_empty((x.shape[0], blocks(x.shape[1])), dtype=torch.float32)
    return _quantised.bind(("copy", None, "block", False, False),
                           (x, None, None, None, small, None, None, scale)), (small, scale)


def _bind_layer(options: Tuple[Asked, torch.dtype], tensors: Sequence[Optional[Tensor]]) -> Any:
    """tensors: x, its scales if it has 8 bits, w1, w2 and their scales, and logits and bias, or ids
    and weights."""
    asked, dtype = options
    x, x_scale, w1, w2, w1_scale, w2_scale, first, second = tensors
    assert x is not None and first is not None
    assert w1 is not None and w2 is not None and w1_scale is not None and w2_scale is not None
    _moe_plans.check_devices(asked, x, first, second, (
        ("x_scale", x_scale), ("w1", w1), ("w2", w2), ("w1_scale", w1_scale),
        ("w2_scale", w2_scale)))
    numbers = _moe_plans.new_numbers(asked, x, first, w1.shape[0])
    _, weights, ends, tokens, slots = numbers
    rows = slots.shape[0]
    inner = x.new_empty((rows, w2.shape[2]), dtype=FP8)
    inner_scale = x.new_empty((rows, blocks(w2.shape[2])), dtype=torch.float32)
    each = x.new_empty((rows, x.shape[1]), dtype=dtype)
    quantise, made = None, (x.new_empty(0), x.new_empty(0))
    if x_scale is None:
        quantise, made = _quantising(x)
        x, x_scale = made
    known = (x, w1, x_scale, w1_scale, ends, tokens)
    gate, both = None, x.new_empty(0)
    if rows <= _MOST_ROWS * w1.shape[0]:
        up = _bind_up(known, inner, {"gate": asked.activation, "quant": "block"}, inner_scale)
    else:
        both = x.new_empty((rows, w1.shape[1]), dtype=dtype)
        up = _bind_up(known, both, {})
        gate = _quantised.bind((asked.activation, None, "block", False, False),
                               (both, None, None, None, inner, None, None, inner_scale))
    down = {**_moe_plans.product_fields(inner, w2, each, rows),
            **_scale_fields(inner_scale, w2_scale), "indexing": "scattered", "index_room": rows,
            "epilogue": "row_scale", "d": "fp32"}
    return Layer(
        quantise, _moe_plans.bind_route(asked, first, second, w1.shape[0]), up, gate,
        _moe_plans.bind_product(down, _DOWN, (inner, w2, inner_scale, w2_scale, weights.view(-1),
                                              ends, slots, each)),
        *_moe_plans.offsets_of((*numbers, inner, inner_scale, both, *made)))


def _by_index(asked: Asked, dtype: torch.dtype, x: Tensor, tensors: Sequence[Optional[Tensor]],
              top_k: int) -> Tensor:
    """x in 8 bits, the route, the first product of gathered rows with its gate in 8 bits, the
    second product, which stores each row at its place times its weight, and the sum over each
    token's rows."""
    layer: Any = _run.bound_of(_bind_layer, (asked, dtype), tensors)
    a, a_scale, w1, w2, w1_scale, w2_scale, first, second = [
        0 if tensor is None else tensor.data_ptr() for tensor in tensors]
    memory = x.new_empty(layer.bytes, dtype=torch.uint8)
    base = memory.data_ptr()
    addresses = [base + offset for offset in layer.offsets]
    numbers, (inner, inner_scale, both, *made) = addresses[:5], addresses[5:]
    _, _, ends, rows, slots = numbers
    if layer.quantise is not None:
        small, scale = made
        _run.launch(layer.quantise, (a, 0, 0, 0, small, 0, 0, scale), x)
        a, a_scale = small, scale
    new = x.new_empty if asked.rule else x.new_zeros  # ids of no expert add nothing
    each = new((x.shape[0], top_k, x.shape[1]), dtype=dtype)
    weights = _moe_plans.launch_route(asked, layer.route, (first, second), numbers, x)
    up = (inner, inner_scale) if layer.gate is None else (both,)
    _run.launch(layer.up, (a, w1, a_scale, w1_scale, ends, rows, *up), x)
    if layer.gate is not None:
        _run.launch(layer.gate, (both, 0, 0, 0, inner, 0, 0, inner_scale), x)
    _run.launch(layer.down, (inner, w2, inner_scale, w2_scale, weights, ends, slots,
                             each.data_ptr()), x)
    return each.sum(1)


# ---- On a CPU: copies of rows --------------------------------------------------------------------

def _copied_rows(x: Tensor, rows: Tensor) -> Tensor:
    return x.view(torch.uint8)[rows].view(x.dtype)


def _on_copies(small: Tensor, scale: Tensor, given: Tuple[Tensor, Tensor],
               tensors: Sequence[Tensor], activation: str, dtype: torch.dtype) -> Tensor:
    """Kernels for CPUs have no rows by index beside scales: rows are copied by experts."""
    w1, w2, w1_scale, w2_scale = tensors
    ids, weights = given
    order = _routing.by_expert(ids, w1.shape[0])
    rows, slots = order.rows.long(), order.slots.long()
    both = ops.scaled_grouped_mm(_copied_rows(small, rows), w1.mT, scale[rows], w1_scale.mT,
                                 order.ends, dtype)
    inner, inner_scale, _ = ops.norm_quantised(both, None, None, None, None, activation, 1e-5,
                                               "block", FP8, False, False)
    made = ops.scaled_grouped_mm(inner, w2.mT, inner_scale, w2_scale.mT, order.ends, dtype)
    each = torch.empty_like(made)
    each[slots] = made
    whole = each.view(*ids.shape, -1).float() * weights.float().unsqueeze(2)
    return whole.sum(1).to(dtype)


# ---- The operators -------------------------------------------------------------------------------

def _run_layer(asked: Asked, x: Tensor, x_scale: Optional[Tensor], first: Tensor,
               second: Optional[Tensor], w1: Tensor, w2: Tensor, w1_scale: Tensor,
               w2_scale: Tensor) -> Tensor:
    """Rows of x that have no scales yet are quantised once for each token."""
    dtype = type_of_out(x, x_scale)
    x, weights = _routing.by_rows(x), (_routing.by_rows(w1), _routing.by_rows(w2))
    if x.device.type != "cpu":
        top_k = asked.rule.top_k if asked.rule else first.shape[1]
        tensors = (x, x_scale, *weights, w1_scale, w2_scale, first, second)
        return _by_index(asked, dtype, x, tensors, top_k)
    small, scale = (x, x_scale) if x_scale is not None else _quantised.quantise(x, quant="block")
    given = ops.route(first, second, *asked.rule) if asked.rule else (first, second)
    return _on_copies(small, scale, given, (*weights, w1_scale, w2_scale), asked.activation, dtype)


def _run_scaled(x: Tensor, x_scale: Optional[Tensor], ids: Tensor, weights: Tensor, w1: Tensor,
                w2: Tensor, w1_scale: Tensor, w2_scale: Tensor, activation: str) -> Tensor:
    try:
        return _run_layer(Asked(activation, None), x, x_scale, ids.to(torch.int32).contiguous(),
                          weights.float().contiguous(), w1, w2, w1_scale, w2_scale)
    except Error as error:
        raise named("fused_moe", error) from None


def _run_routed(x: Tensor, x_scale: Optional[Tensor], logits: Tensor, bias: Optional[Tensor],
                w1: Tensor, w2: Tensor, w1_scale: Tensor, w2_scale: Tensor, activation: str,
                *rule: Any) -> Tensor:
    try:
        return _run_layer(Asked(activation, Rule(*rule)), x, x_scale,
                          *_routing.readable(logits, bias), w1, w2, w1_scale, w2_scale)
    except Error as error:
        raise named("fused_moe", error) from None


def _fake(x: Tensor, x_scale: Optional[Tensor], *_: Any) -> Tensor:
    return x.new_empty(x.shape, dtype=type_of_out(x, x_scale))


_WEIGHTS = "Tensor w1, Tensor w2, Tensor w1_scale, Tensor w2_scale, str activation"
_REFUSAL = "layers of 8 bits have no derivatives"
register(Operator("scaled_moe(Tensor x, Tensor? x_scale, Tensor ids, Tensor weights, "
                  f"{_WEIGHTS}) -> Tensor", _run_scaled, _fake, refusal=_REFUSAL))
register(Operator("routed_scaled_moe(Tensor x, Tensor? x_scale, Tensor logits, Tensor? bias, "
                  f"{_WEIGHTS}, int top_k, str scoring, bool renormalize, int num_groups, "
                  "int top_groups, float scaling_factor) -> Tensor", _run_routed, _fake,
                  refusal=_REFUSAL))
