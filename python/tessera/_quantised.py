"""Arrays, normalisations and gates in 8 bits, with scales that are given or written."""
from __future__ import annotations

from typing import Any, Dict, List, Optional, Tuple

from . import _arrays, _dtypes, _engine, _norms
from ._abi import Error
from ._arrays import Array
from ._checks import refusal
from ._dispatcher import Dispatcher
from ._engine import Call, New, Row
from ._gated import gelu_kind, interleaving
from ._layout import collapse
from ._values import number, shown

BLOCK = 128
QUANTS = ("tensor", "row", "block")
_SLOTS = (*_norms.SLOTS, "out_scale", "out_scales")


def quantise(x: Array, *, quant: str = "row", out_scale: Optional[Array] = None,
             dtype: Any = "float8_e4m3fn", scales_by_column: bool = False,
             out: Optional[Array] = None, stream: Any = None,
             dispatcher: Optional[Dispatcher] = None) -> Any:
    """x in 8 bits: (out, scales), where out * scales is x but for the rounding.

    x: (..., columns) of float32, float16 or bfloat16. The other arguments and the results are those
    of rms_norm_quantised().
    """
    return _quantised(quantise, ("copy", None, quant, scales_by_column, None),
                      (x, None, None, None, None, out, out_scale, None), dtype, stream, dispatcher)


def rms_norm_quantised(x: Array, scale: Optional[Array] = None, *,
                       residual: Optional[Array] = None, epsilon: float = 1e-5,
                       quant: str = "row", out_scale: Optional[Array] = None,
                       dtype: Any = "float8_e4m3fn", scales_by_column: bool = False,
                       out: Optional[Array] = None, sum: Optional[Array] = None,
                       stream: Any = None, dispatcher: Optional[Dispatcher] = None) -> Any:
    """rms_norm() in 8 bits: (out, scales), and x + residual behind them where there is a residual.

    out * scales is what rms_norm() gives, but for the rounding. quant: what shares a scale, the
    "tensor" (then out_scale is given, one float32, and returned), a "row" or a "block" of 128
    columns. scales: (..., 1) or (..., blocks) in float32; scales_by_column: those of neighbouring
    rows are neighbours in memory. dtype: float8_e4m3fn or float8_e5m2.
    """
    return _quantised(rms_norm_quantised, ("rmsnorm", epsilon, quant, scales_by_column, None),
                      (x, residual, scale, None, sum, out, out_scale, None), dtype, stream,
                      dispatcher)


def layer_norm_quantised(x: Array, scale: Optional[Array] = None, shift: Optional[Array] = None, *,
                         residual: Optional[Array] = None, epsilon: float = 1e-5,
                         quant: str = "row", out_scale: Optional[Array] = None,
                         dtype: Any = "float8_e4m3fn", scales_by_column: bool = False,
                         out: Optional[Array] = None, sum: Optional[Array] = None,
                         stream: Any = None, dispatcher: Optional[Dispatcher] = None) -> Any:
    """layer_norm() in 8 bits; the arguments and results of rms_norm_quantised()."""
    return _quantised(layer_norm_quantised, ("layernorm", epsilon, quant, scales_by_column, None),
                      (x, residual, scale, shift, sum, out, out_scale, None), dtype, stream,
                      dispatcher)


def silu_mul_quantised(x: Array, *, interleaved: bool = False, quant: str = "row",
                       out_scale: Optional[Array] = None, dtype: Any = "float8_e4m3fn",
                       scales_by_column: bool = False, out: Optional[Array] = None,
                       stream: Any = None, dispatcher: Optional[Dispatcher] = None) -> Any:
    """silu_mul() in 8 bits: (out, scales), as in rms_norm_quantised()."""
    return _quantised(silu_mul_quantised, ("silu_mul", None, quant, scales_by_column, interleaved),
                      (x, None, None, None, None, out, out_scale, None), dtype, stream, dispatcher)


def gelu_mul_quantised(x: Array, *, approximate: str = "none", interleaved: bool = False,
                       quant: str = "row", out_scale: Optional[Array] = None,
                       dtype: Any = "float8_e4m3fn", scales_by_column: bool = False,
                       out: Optional[Array] = None, stream: Any = None,
                       dispatcher: Optional[Dispatcher] = None) -> Any:
    """gelu_mul() in 8 bits: (out, scales), as in rms_norm_quantised()."""
    return _quantised(gelu_mul_quantised, (gelu_kind(approximate), None, quant, scales_by_column,
                                           interleaved),
                      (x, None, None, None, None, out, out_scale, None), dtype, stream, dispatcher)


def check_quant(quant: str, scales_by_column: bool, given: bool) -> None:
    """given: whether there is an out_scale."""
    if quant not in QUANTS:
        raise Error(f"quant must be one of {', '.join(QUANTS)}, got {shown(quant)}")
    if type(scales_by_column) is not bool:
        raise Error(f"scales_by_column must be True or False, got {shown(scales_by_column)}")
    if given != (quant == "tensor"):
        raise Error("out_scale is given with quant='tensor' and not otherwise, got "
                    f"{'one' if given else 'none'} with quant={quant!r}")


def _quantised(function: Any, options: Tuple[Any, ...], arrays: Tuple[Any, ...], dtype: Any,
               stream: Any, dispatcher: Optional[Dispatcher]) -> Any:
    try:
        check_quant(options[2], options[3], arrays[6] is not None)
        whole = _engine.run(_ROW, arrays, (*options, _dtypes.word_of(dtype, "dtype")), stream,
                            dispatcher)
    except Exception as failure:
        given = dict(zip(("x", *_SLOTS[1:7]), arrays), epsilon=options[1], dispatcher=dispatcher)
        raise refusal(function, given, failure) from None
    scales = whole[7] if whole[6] is None else whole[6]
    return (whole[5], scales) if whole[4] is None else (whole[5], scales, whole[4])


def _check(options: Tuple[Any, ...], views: Dict[str, _arrays.View]) -> Tuple[Any, ...]:
    kind, epsilon, quant, by_column, interleaved, word = options
    if "sum" in views and "residual" not in views:
        raise Error(f"{kind}: sum is the sum of x and residual, but there is no residual")
    if word not in ("fp8", "bf8"):
        raise Error(f"{kind}: dtype must be float8_e4m3fn or float8_e5m2, got "
                    f"{_dtypes.NAMES[word]}")
    if interleaved is not None:
        interleaving(interleaved)
    given = views.get("out_scale")
    if given is not None and (given.dtype != "fp32" or set(given.shape) - {1}):
        raise Error(f"{kind}: out_scale must be one float32, got {given.shape} of "
                    f"{_dtypes.NAMES[given.dtype]}")
    return (kind, None if epsilon is None else number("epsilon", epsilon), quant, by_column,
            interleaved, word)


def _make(call: Call) -> List[New]:
    kind, _, quant, by_column, _, word = call.options
    like, beside = call.views["in"], call.given["in"]
    shape = _norms.shape_of(kind, like.shape)
    made = []
    if "out" not in call.given:
        made.append(New("out", _arrays.empty(shape, word, beside, like)))
    if "residual" in call.given and "sum" not in call.given:
        made.append(New("sum", _arrays.empty(shape, like.dtype, beside, like)))
    if quant != "tensor":
        blocks = -(-shape[-1] // BLOCK) if quant == "block" else 1
        last = len(shape) - 1
        order = [last, *range(last)] if by_column else list(range(last + 1))
        made.append(New("out_scales", _arrays.empty_in(order, (*shape[:-1], blocks), "fp32", beside,
                                                       like)))
    return made


def _fields(options: Tuple[Any, ...], views: Dict[str, _arrays.View]) -> Dict[str, Any]:
    kind, epsilon, quant, by_column, interleaved, _ = options
    more = [("quant", quant), ("scales_by_column", by_column)]
    if interleaved is not None:
        more.append(("interleaved", interleaved))
    if by_column and collapse(views["in"].shape[:-1], [views["in"].strides[:-1]]) is None:
        raise Error(f"{kind}: the rows of x must be at one distance with scales_by_column=True")
    return _norms.fields_of((kind, epsilon, *more), views)


_ROW = Row("norm", _SLOTS, ("in",), ("out", "sum", "out_scales"), _check, _make, _fields,
           sized=("in",), labels={"in": "x"})
