"""Which experts a token goes to, and the order of rows in which each expert's lie together."""
from __future__ import annotations

from typing import NamedTuple, Optional, Tuple

import torch

from .._abi import Error

Tensor = torch.Tensor
ROUTERS = ("softmax", "sigmoid")


class _Router(NamedTuple):
    kind: str
    num_groups: int
    top_groups: int


def _check(logits: Tensor, top_k: int, router: _Router) -> None:
    if logits.dim() != 2:
        raise Error(f"router_logits must have 2 dimensions, got {logits.dim()}")
    experts = logits.shape[1]
    if not 1 <= top_k <= experts:
        raise Error(f"top_k must be between 1 and the number of experts, {experts}, got {top_k}")
    if router.kind not in ROUTERS:
        raise Error(f"router must be one of {', '.join(ROUTERS)}, got {router.kind!r}")
    if router.num_groups < 1 or experts % router.num_groups != 0:
        raise Error(f"num_groups must divide the number of experts, {experts}, got "
                    f"{router.num_groups}")
    if not 1 <= router.top_groups <= router.num_groups:
        raise Error(f"top_groups must be between 1 and num_groups, {router.num_groups}, got "
                    f"{router.top_groups}")
    allowed = experts // router.num_groups * router.top_groups
    if top_k > allowed:
        raise Error(f"top_k must be at most {allowed}, the experts of {router.top_groups} groups, "
                    f"got {top_k}")


def _of_best_groups(choice: Tensor, router: _Router, has_bias: bool) -> Tensor:
    """The scores, minus infinity outside of a token's best groups. A group is as good as its best
    expert; with a bias, as the sum of its two best, as DeepSeek-V3 has it."""
    tokens, experts = choice.shape
    grouped = choice.view(tokens, router.num_groups, -1)
    best = (grouped.topk(min(2, grouped.shape[2]), dim=2).values.sum(2) if has_bias
            else grouped.amax(2))
    kept = torch.zeros_like(best, dtype=torch.bool)
    kept.scatter_(1, best.topk(router.top_groups, dim=1).indices, True)
    return grouped.masked_fill(~kept.unsqueeze(2), float("-inf")).view(tokens, experts)


def route(router_logits: Tensor, top_k: int, *, router: str = "softmax",
          renormalize: bool = True,
          router_bias: Optional[Tensor] = None, num_groups: int = 1, top_groups: int = 1,
          scaling_factor: float = 1.0) -> Tuple[Tensor, Tensor]:
    """The experts of each token and their weights, both (tokens, top_k), int64 and float32.

    router_logits: (tokens, experts). A score is the softmax over the experts, or the sigmoid of a
    logit, in float32. router_bias: (experts,), added to scores where experts are chosen and not in
    their weights. num_groups, top_groups: experts are in equal groups, and only those of a token's
    best groups are chosen. renormalize: a token's weights are divided by their sum. Weights are
    multiplied by scaling_factor last.
    """
    rule = _Router(router, num_groups, top_groups)
    _check(router_logits, top_k, rule)
    wide = router_logits.float()
    scores = wide.softmax(1) if router == "softmax" else wide.sigmoid()
    choice = scores.detach() if router_bias is None else scores.detach() + router_bias.float()
    if num_groups > 1:
        choice = _of_best_groups(choice, rule, router_bias is not None)
    ids = choice.topk(top_k, dim=1).indices
    weights = scores.gather(1, ids)
    if renormalize:
        weights = weights / weights.sum(1, keepdim=True).clamp_min(1e-20)
    return ids, weights * scaling_factor


class Order(NamedTuple):
    """slots: (tokens * top_k,), the places of ids in the order of their experts. ends: (experts,),
    where each expert's rows end. Both int32."""

    slots: Tensor
    ends: Tensor


def by_expert(ids: Tensor, experts: int) -> Order:
    """Sorts without reading a number on the host. Ids of no expert come last, in no expert's
    rows."""
    flat = ids.reshape(-1)
    flat = torch.where((flat >= 0) & (flat < experts), flat, experts)
    sorted_ids, slots = flat.sort(stable=True)
    each = torch.arange(experts, device=ids.device, dtype=flat.dtype)
    return Order(slots.to(torch.int32),
                 torch.searchsorted(sorted_ids, each, right=True, out_int32=True))
