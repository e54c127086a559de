"""Mixtures of experts whose weights have 8 bits, with scales of blocks: the operator
torch.ops.tessera.scaled_moe."""
from __future__ import annotations

from typing import Tuple

import torch

from .._abi import Error
from .._checks import named
from . import _quantised, _routing, _scaled  # the operators that this one calls
from ._functions import ops
from ._operators import Operator, register

Tensor = torch.Tensor
BLOCK = 128
FP8 = torch.float8_e4m3fn
_LARGEST = torch.finfo(FP8).max
_TINY = 2.0**-100  # magnitudes below it have the scale 1, as everywhere


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


def by_blocks(x: Tensor) -> Tuple[Tensor, Tensor]:
    """x in 8 bits, and a scale for each 128 elements of a row: the greatest magnitude over the
    type's largest number."""
    tokens, hidden = x.shape
    wide = torch.nn.functional.pad(x.float(), (0, -hidden % BLOCK)).view(tokens, -1, BLOCK)
    most = wide.abs().amax(2)
    scale = torch.where(most < _TINY, 1.0, most / _LARGEST)
    small = (wide / scale.unsqueeze(2)).clamp(-_LARGEST, _LARGEST)
    return small.view(tokens, -1)[:, :hidden].to(FP8).contiguous(), scale


def _gathered(x: Tensor, rows: Tensor) -> Tensor:
    return x.view(torch.uint8)[rows].view(x.dtype)


def run_scaled(x: Tensor, ids: Tensor, weights: Tensor, w1: Tensor, w2: Tensor, w1_scale: Tensor,
               w2_scale: Tensor, activation: str) -> Tensor:
    """The rows of x are quantised once for each token and copied by experts; the results of the
    gate are quantised by the kernel that makes them."""
    try:
        order = _routing.by_expert(ids, w1.shape[0])
        rows, slots = order.rows.long(), order.slots.long()
        small, scale = by_blocks(x)
        both = ops.scaled_grouped_mm(_gathered(small, rows), w1.mT, scale[rows], w1_scale.mT,
                                     order.ends, x.dtype)
        inner, inner_scale, _ = ops.norm_quantised(both, None, None, None, None, activation, 1e-5,
                                                   "block", FP8, False, False)
        made = ops.scaled_grouped_mm(inner, w2.mT, inner_scale, w2_scale.mT, order.ends, x.dtype)
        each = torch.empty_like(made)
        each[slots] = made
        whole = each.view(*ids.shape, -1).float() * weights.float().unsqueeze(2)
        return whole.sum(1).to(x.dtype)
    except Error as error:
        raise named("fused_moe", error) from None


register(Operator("scaled_moe(Tensor x, Tensor ids, Tensor weights, Tensor w1, Tensor w2, "
                  "Tensor w1_scale, Tensor w2_scale, str activation) -> Tensor", run_scaled,
                  lambda x, *_: torch.empty_like(x, memory_format=torch.contiguous_format),
                  refusal="layers of 8 bits have no derivatives"))
