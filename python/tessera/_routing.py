"""Routers of mixtures of experts: the best experts of each token, and the order by experts."""
from __future__ import annotations

from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from . import _arrays, _engine
from ._abi import Error
from ._arrays import Array
from ._checks import refusal
from ._dispatcher import Dispatcher
from ._engine import Call, New, Row
from ._layout import check_strides
from ._values import number, shown

SCORINGS = ("softmax", "sigmoid")
SLOTS = ("logits", "bias", "ids", "weights", "group_ends", "row_index", "slots")
ORDER_SLOTS = ("ids", "group_ends", "row_index", "slots")


class Order(NamedTuple):
    """Rows by experts, all int32. group_ends: (experts,), where the rows of each expert end.
    row_index: (tokens * top_k,), the token of each row. slots: of each row its place in ids, which
    has token * top_k + j for the j-th expert of a token."""

    group_ends: Any
    row_index: Any
    slots: Any


class Rule(NamedTuple):
    """How experts are chosen: the options of a call."""

    top_k: int
    scoring: str = "softmax"
    renormalize: bool = True
    num_groups: int = 1
    top_groups: int = 1
    scaling_factor: float = 1.0


def route(logits: Array, top_k: int, *, scoring: str = "softmax", bias: Optional[Array] = None,
          renormalize: bool = True, num_groups: int = 1, top_groups: int = 1,
          scaling_factor: float = 1.0, order: bool = False, stream: Any = None,
          dispatcher: Optional[Dispatcher] = None) -> Any:
    """The experts of each token and their weights, both (tokens, top_k), int32 and float32.

    logits: (tokens, experts) of float32, float16 or bfloat16, at most 1,024 experts. A score is the
    softmax over the experts, or the sigmoid of a logit. bias: (experts,) of float32, added to
    scores where experts are chosen and not in their weights. num_groups, top_groups: experts are in
    equal groups, and only those of a token's best groups are chosen. renormalize: a token's weights
    are divided by their sum. Weights are multiplied by scaling_factor last. Of equal scores the
    lower number comes first. stream, dispatcher: as in matmul(). Returns (ids, weights), and with
    order (ids, weights, Order).
    """
    rule = Rule(top_k, scoring, renormalize, num_groups, top_groups, scaling_factor)
    try:
        arrays = (logits, bias, *(None,) * 5)
        whole = _engine.run(_ROW, arrays, (rule, order), stream, dispatcher)
    except Exception as failure:
        given = {"logits": logits, "bias": bias, "dispatcher": dispatcher, **rule._asdict()}
        raise refusal(route, given, failure) from None
    return (*whole[2:4], Order(*whole[4:])) if order else whole[2:4]


def order_by_expert(ids: Array, experts: int, *, stream: Any = None,
                    dispatcher: Optional[Dispatcher] = None) -> Order:
    """The Order of given experts. ids: (tokens, top_k) of int32; those of no expert, below 0 or
    from `experts` on, come behind all others, in no expert's rows."""
    try:
        whole = _engine.run(_GIVEN, (ids, None, None, None), (_NAME, experts), stream, dispatcher)
    except Exception as failure:
        given = {"ids": ids, "experts": experts, "dispatcher": dispatcher}
        raise refusal(order_by_expert, given, failure) from None
    return Order(*whole[1:])


# ---- Problems ------------------------------------------------------------------------------------

def _whole(name: str, value: Any) -> int:
    if type(value) is not int:
        raise Error(f"{name} must be an integer, got {shown(value)}")
    return value


def _truth(name: str, value: Any) -> bool:
    if type(value) is not bool:
        raise Error(f"{name} must be True or False, got {shown(value)}")
    return value


def check_rule(rule: Rule) -> Rule:
    if rule.scoring not in SCORINGS:
        raise Error(f"scoring must be one of {', '.join(SCORINGS)}, got {shown(rule.scoring)}")
    return Rule(_whole("top_k", rule.top_k), rule.scoring, _truth("renormalize", rule.renormalize),
                _whole("num_groups", rule.num_groups), _whole("top_groups", rule.top_groups),
                number("scaling_factor", rule.scaling_factor))


def matrix(view: _arrays.View, name: str) -> Tuple[int, int, Optional[int]]:
    """Rows, columns and the distance of rows, None where that follows."""
    if len(view.shape) != 2:
        raise Error(f"{name} must have 2 dimensions, got {len(view.shape)}")
    rows, columns = view.shape
    if 0 in view.shape:
        return rows, columns, None
    check_strides(name, view.shape, view.strides)
    if columns > 1 and view.strides[1] != 1:
        raise Error(f"the elements of a row of {name} must be neighbours; got the strides "
                    f"{view.strides} over {view.shape}")
    return rows, columns, view.strides[0] if rows > 1 else None


def rule_fields(rule: Rule, logits: _arrays.View, bias: Optional[_arrays.View], order: bool
                ) -> Dict[str, Any]:
    tokens, experts, ld = matrix(logits, "logits")
    fields: Dict[str, Any] = {
        "tokens": tokens, "experts": experts, "in": logits.dtype, "order": order,
        "bias": bias is not None, **rule._asdict()}
    if ld is not None:
        fields["ld_logits"] = ld
    if bias is not None and (bias.shape != (experts,) or bias.dtype != "fp32" or
                             (experts > 1 and bias.strides != (1,))):
        raise Error(f"bias must have the shape {(experts,)}, the type float32 and no gaps, got "
                    f"{bias.shape} of {bias.dtype} and the strides {bias.strides}")
    return fields


def order_fields(experts: int, ids: _arrays.View) -> Dict[str, Any]:
    if _whole("experts", experts) < 1:
        raise Error(f"experts must be at least 1, got {experts}")
    tokens, top_k, ld = matrix(ids, "ids")
    if ids.dtype != "int32":
        raise Error(f"ids must have the type int32, got {ids.dtype}")
    if ld not in (None, top_k):
        raise Error(f"ids must have no gaps between rows, got the strides {ids.strides} over "
                    f"{ids.shape}")
    return {"scoring": "given", "tokens": tokens, "experts": experts,
            "top_k": top_k, "order": True}


def shapes_of(tokens: int, top_k: int, experts: int) -> Dict[str, Tuple[int, ...]]:
    """Of the results of routers."""
    slots = (tokens * top_k,)
    return {"ids": (tokens, top_k), "weights": (tokens, top_k), "group_ends": (experts,),
            "row_index": slots, "slots": slots}


# ---- Rows of the engine --------------------------------------------------------------------------

def _check(options: Tuple[Rule, Any], views: Dict[str, _arrays.View]) -> Tuple[Rule, bool]:
    matrix(views["logits"], "logits")
    return check_rule(options[0]), _truth("order", options[1])


def _new(call: Call, like: str, names: Tuple[str, ...], shapes: Dict[str, Tuple[int, ...]]
         ) -> List[New]:
    return [New(name, _arrays.empty(shapes[name], "fp32" if name == "weights" else "int32",
                                    call.given[like], call.views[like])) for name in names]


def _make(call: Call) -> List[New]:
    rule, order = call.options
    tokens, experts = call.views["logits"].shape
    if rule.top_k < 0:
        raise Error(f"top_k must be at least 1, got {rule.top_k}")
    return _new(call, "logits", SLOTS[2:] if order else SLOTS[2:4],
                shapes_of(tokens, rule.top_k, experts))


def _ask(options: Tuple[Rule, bool], views: Dict[str, _arrays.View]) -> Dict[str, Any]:
    return rule_fields(options[0], views["logits"], views.get("bias"), options[1])


def _check_given(options: Tuple[str, Any], views: Dict[str, _arrays.View]) -> Tuple[str, Any]:
    order_fields(options[1], views["ids"])
    return options


def _make_given(call: Call) -> List[New]:
    tokens, top_k = call.views["ids"].shape
    return _new(call, "ids", ORDER_SLOTS[1:], shapes_of(tokens, top_k, call.options[1]))


def _ask_given(options: Tuple[str, int], views: Dict[str, _arrays.View]) -> Dict[str, Any]:
    return order_fields(options[1], views["ids"])


_NAME = "order_by_expert"  # options differ from those of other functions
_ROW = Row("route", SLOTS, ("logits",), SLOTS[2:], _check, _make, _ask)
_GIVEN = Row("route", ORDER_SLOTS, ("ids",), ORDER_SLOTS[1:], _check_given, _make_given,
             _ask_given)
