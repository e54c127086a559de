"""Which experts a token goes to, and the order of rows in which each expert's lie together: the
operators torch.ops.tessera.route, route_in_order and order_by_expert."""
from __future__ import annotations

from typing import Any, List, NamedTuple, Optional, Sequence, Tuple

import torch

from .. import _routing
from .._abi import Error
from .._problem import Problem
from .._routing import Rule
from . import _run
from ._functions import ops
from ._operators import Operator, check, register

Tensor = torch.Tensor
_TYPES = (torch.float32, torch.float16, torch.bfloat16)


def check_rule(logits: Tensor, rule: Rule) -> None:
    if logits.dim() != 2:
        raise Error(f"router_logits must have 2 dimensions, got {logits.dim()}")
    experts, top_k = logits.shape[1], rule.top_k
    if not 1 <= top_k <= experts:
        raise Error(f"top_k must be between 1 and the number of experts, {experts}, got {top_k}")
    if rule.scoring not in _routing.SCORINGS:
        raise Error(f"router must be one of {', '.join(_routing.SCORINGS)}, got {rule.scoring!r}")
    if rule.num_groups < 1 or experts % rule.num_groups != 0:
        raise Error(f"num_groups must divide the number of experts, {experts}, got "
                    f"{rule.num_groups}")
    if not 1 <= rule.top_groups <= rule.num_groups:
        raise Error(f"top_groups must be between 1 and num_groups, {rule.num_groups}, got "
                    f"{rule.top_groups}")
    allowed = experts // rule.num_groups * rule.top_groups
    if top_k > allowed:
        raise Error(f"top_k must be at most {allowed}, the experts of {rule.top_groups} groups, "
                    f"got {top_k}")


def readable(logits: Tensor, bias: Optional[Tensor]) -> Tuple[Tensor, Optional[Tensor]]:
    """As a kernel takes them: a copy only where type or strides ask for it."""
    logits = logits if logits.dtype in _TYPES else logits.float()
    return by_rows(logits), None if bias is None else bias.float().contiguous()


def by_rows(tensor: Tensor) -> Tensor:
    """The tensor, or a copy where its rows are not at one distance, or overlap."""
    bad = tensor.stride(-1) != 1 or (tensor.shape[-2] > 1 and tensor.stride(-2) < tensor.shape[-1])
    return tensor.contiguous() if bad else tensor


def route(router_logits: Tensor, top_k: int, *, router: str = "softmax",
          renormalize: bool = True,
          router_bias: Optional[Tensor] = None, num_groups: int = 1, top_groups: int = 1,
          scaling_factor: float = 1.0) -> Tuple[Tensor, Tensor]:
    """The experts of each token and their weights, both (tokens, top_k), int64 and float32.

    router_logits: (tokens, experts), at most 1,024 experts. A score is the softmax over the
    experts, or the sigmoid of a logit, in float32. router_bias: (experts,), added to scores where
    experts are chosen and not in their weights. num_groups, top_groups: experts are in equal
    groups, and only those of a token's best groups are chosen; a group is as good as its best
    expert, with a bias as the sum of its two best. renormalize: a token's weights are divided by
    their sum. Weights are multiplied by scaling_factor last. Of equal scores the expert with the
    lower number comes first; without a bias logits are compared. Weights have gradients.
    """
    rule = Rule(top_k, router, renormalize, num_groups, top_groups, float(scaling_factor))
    check_rule(router_logits, rule)
    ids, weights = ops.route(*readable(router_logits.detach(), router_bias), *rule)
    ids = ids.long()
    if torch.is_grad_enabled() and router_logits.requires_grad:
        weights = _weights(router_logits.float(), ids, rule)
    return ids, weights


def _weights(logits: Tensor, ids: Tensor, rule: Rule) -> Tensor:
    """Those of given experts, with gradients."""
    scores = logits.softmax(1) if rule.scoring == "softmax" else logits.sigmoid()
    weights = scores.gather(1, ids)
    if rule.renormalize:
        weights = weights / weights.sum(1, keepdim=True).clamp_min(1e-20)
    return weights * rule.scaling_factor


class Order(NamedTuple):
    """See tessera.Order: ends are its group_ends, rows its row_index."""

    ends: Tensor
    rows: Tensor
    slots: Tensor


def by_expert(ids: Tensor, experts: int) -> Order:
    """Sorts without reading a number on the host. Ids of no expert come last, in no expert's
    rows. ids: numbers of 32 bits, of any type of integers."""
    return Order(*ops.order_by_expert(ids.to(torch.int32).contiguous(), experts))


# ---- The operators -------------------------------------------------------------------------------

def new_results(like: Tensor, names: Sequence[str], tokens: Any, top_k: Any, experts: Any
                ) -> List[Tensor]:
    shapes = _routing.shapes_of(tokens, top_k, experts)
    return [like.new_empty(shapes[name],
                           dtype=torch.float32 if name == "weights" else torch.int32)
            for name in names]


def _makers(names: Sequence[str], tokens: int, top_k: int, experts: int) -> List[Any]:
    return [lambda like, name=name: new_results(like, (name,), tokens, top_k, experts)[0]
            for name in names]


def bind_route(options: Tuple[Rule, bool], tensors: Sequence[Optional[Tensor]]) -> _run.Bound:
    """options: the rule, and whether the order is wanted. tensors: logits, bias."""
    rule, order = options
    logits, bias = tensors
    assert logits is not None
    _run.check_devices([("router_logits", logits), ("router_bias", bias)])
    (tokens, experts), names = logits.shape, _routing.SLOTS[2:] if order else _routing.SLOTS[2:4]
    fields = _routing.rule_fields(
        rule, _run.lying_view(logits, "router_logits"),
        None if bias is None else _run.lying_view(bias, "router_bias"), order)
    made = new_results(logits, names, tokens, rule.top_k, experts)
    return _bind("route", fields, _routing.SLOTS, [logits, bias, *made],
                 _makers(names, tokens, rule.top_k, experts))


def bind_order(experts: int, tensors: Sequence[Optional[Tensor]]) -> _run.Bound:
    """tensors: ids."""
    (ids,) = tensors
    assert ids is not None
    fields, names = _routing.order_fields(experts, _run.lying_view(ids, "ids")), \
        _routing.ORDER_SLOTS[1:]
    made = new_results(ids, names, *ids.shape, experts)
    return _bind("route", fields, _routing.ORDER_SLOTS, [ids, *made],
                 _makers(names, *ids.shape, experts))


def _bind(op: str, fields: Any, names: Sequence[str], tensors: Sequence[Optional[Tensor]],
          makers: Sequence[Any]) -> _run.Bound:
    device = next(t.device for t in tensors if t is not None)
    plan = _run.plan_for(Problem(op, **fields), device)
    return _run.bind(plan, [names.index(x.name) for x in plan.operands], tensors, device, makers)


def _run_route(order: bool) -> Any:
    def run(logits: Tensor, bias: Optional[Tensor], *rule: Any) -> Tuple[Tensor, ...]:
        return tuple(_run.run(bind_route, (Rule(*rule), order), (logits, bias), logits))
    return run


def _fake_route(order: bool) -> Any:
    def fake(logits: Tensor, bias: Optional[Tensor], top_k: int, *rule: Any) -> Tuple[Tensor, ...]:
        check(logits.dim() == 2, "logits must have 2 dimensions")
        names = _routing.SLOTS[2:] if order else _routing.SLOTS[2:4]
        return tuple(new_results(logits, names, logits.shape[0], top_k, logits.shape[1]))
    return fake


def _run_order(ids: Tensor, experts: int) -> Tuple[Tensor, ...]:
    return tuple(_run.run(bind_order, experts, (ids,), ids))


def _fake_order(ids: Tensor, experts: int) -> Tuple[Tensor, ...]:
    check(ids.dim() == 2, "ids must have 2 dimensions")
    return tuple(new_results(ids, _routing.ORDER_SLOTS[1:], *ids.shape, experts))


_RULE = ("Tensor logits, Tensor? bias, int top_k, str scoring, bool renormalize, int num_groups, "
         "int top_groups, float scaling_factor")
_REFUSAL = "gradients come from the function tessera.torch.route(), not from the operator"
register(Operator(f"route({_RULE}) -> (Tensor, Tensor)", _run_route(False), _fake_route(False),
                  refusal=_REFUSAL, slots=(0, 1)))
register(Operator(f"route_in_order({_RULE}) -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
                  _run_route(True), _fake_route(True), refusal=_REFUSAL, slots=(0, 1)))
register(Operator("order_by_expert(Tensor ids, int experts) -> (Tensor, Tensor, Tensor)",
                  _run_order, _fake_order, refusal="integers have no gradients", slots=(0,)))
