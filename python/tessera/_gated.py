"""A function of one half of the last dimension times the other half: silu_mul, gelu_mul."""
from __future__ import annotations

from typing import Any, Dict, List, Optional

from . import _arrays, _engine, _norms
from ._abi import Error
from ._arrays import Array
from ._checks import refusal
from ._dispatcher import Dispatcher
from ._engine import Call, New, Row
from ._values import shown

KINDS = {"none": "gelu_mul", "tanh": "gelu_tanh_mul"}


def silu_mul(x: Array, *, interleaved: bool = False, out: Optional[Array] = None,
             stream: Any = None, dispatcher: Optional[Dispatcher] = None) -> Any:
    """silu(gate) * up, where silu(g) = g / (1 + exp(-g)).

    x: (..., 2 * columns) of float32, float16 or bfloat16: the gates and then what they multiply;
    interleaved: each gate beside what it multiplies. out: (..., columns) of x's type or another of
    these. stream, dispatcher: as in matmul(). Returns out.
    """
    return _gated(silu_mul, "silu_mul", x, interleaved, out, stream, dispatcher)


def gelu_mul(x: Array, *, approximate: str = "none", interleaved: bool = False,
             out: Optional[Array] = None, stream: Any = None,
             dispatcher: Optional[Dispatcher] = None) -> Any:
    """gelu(gate) * up, with arrays as in silu_mul(). approximate: "none", or "tanh" for the usual
    formula with tanh."""
    return _gated(gelu_mul, gelu_kind(approximate), x, interleaved, out, stream, dispatcher)


def gelu_kind(approximate: str) -> str:
    if approximate not in KINDS:
        raise Error(f"approximate must be 'none' or 'tanh', got {shown(approximate)}")
    return KINDS[approximate]


def interleaving(interleaved: bool) -> Any:
    """The field of a problem."""
    if type(interleaved) is not bool:
        raise Error(f"interleaved must be True or False, got {shown(interleaved)}")
    return "interleaved", interleaved


def _gated(function: Any, kind: str, x: Any, interleaved: bool, out: Any, stream: Any,
           dispatcher: Optional[Dispatcher]) -> Any:
    try:
        return _engine.run(_ROW, (x, out), (kind, None, interleaving(interleaved)), stream,
                           dispatcher)[1]
    except Exception as failure:
        given = {"x": x, "interleaved": interleaved, "out": out, "dispatcher": dispatcher}
        raise refusal(function, given, failure) from None


def _check(options: Any, views: Dict[str, _arrays.View]) -> Any:
    return options


def _make(call: Call) -> List[New]:
    if "out" in call.given:
        return []
    like = call.views["in"]
    shape = _norms.shape_of(call.options[0], like.shape)
    return [New("out", _arrays.empty(shape, like.dtype, call.given["in"], like))]


_ROW = Row("norm", ("in", "out"), ("in",), ("out",), _check, _make, _norms.fields_of,
           sized=("in",), labels={"in": "x"})
