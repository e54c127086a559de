"""Normalisations over the last dimension: softmax, rms_norm, layer_norm."""
from __future__ import annotations

import math
from typing import Any, Dict, List, Optional, Tuple

from . import _arrays, _engine
from ._abi import Error
from ._arrays import Array
from ._checks import refusal
from ._dispatcher import Dispatcher
from ._engine import Call, New, Row
from ._layout import check_row, check_strides, collapse
from ._values import number

GATED = ("silu_mul", "gelu_mul", "gelu_tanh_mul")
ELEMENTWISE = (*GATED, "copy")  # kinds without an epsilon
SLOTS = ("in", "residual", "scale", "shift", "sum", "out")
_ROWS = ("in", "residual", "out", "sum")


def softmax(x: Array, *, out: Optional[Array] = None, stream: Any = None,
            dispatcher: Optional[Dispatcher] = None) -> Any:
    """exp(x) / sum(exp(x)) over the last dimension, without overflow.

    x: (..., columns) of float32, float16 or bfloat16. out: the same shape, of x's type or float32;
    it may be x. stream, dispatcher: as in matmul(). Returns out.
    """
    return _norm(softmax, "softmax", (x, None, None, None, None, out), None, stream, dispatcher)


def rms_norm(x: Array, scale: Optional[Array] = None, *, residual: Optional[Array] = None,
             epsilon: float = 1e-5, out: Optional[Array] = None, sum: Optional[Array] = None,
             stream: Any = None, dispatcher: Optional[Dispatcher] = None) -> Any:
    """x / sqrt(mean(x * x) + epsilon) * scale over the last dimension.

    x: (..., columns) of float32, float16 or bfloat16. scale: (columns,) of x's type or float32.
    residual: x's shape and type; x + residual is normalised instead of x, and is stored in `sum`.
    out, sum: x's shape. Returns out, and (out, sum) where there is a residual.
    """
    return _norm(rms_norm, "rmsnorm", (x, residual, scale, None, sum, out), epsilon, stream,
                 dispatcher)


def layer_norm(x: Array, scale: Optional[Array] = None, shift: Optional[Array] = None, *,
               residual: Optional[Array] = None, epsilon: float = 1e-5,
               out: Optional[Array] = None, sum: Optional[Array] = None, stream: Any = None,
               dispatcher: Optional[Dispatcher] = None) -> Any:
    """(x - mean) / sqrt(variance + epsilon) * scale + shift over the last dimension.

    Arrays and results are those of rms_norm(); shift has scale's shape and type.
    """
    return _norm(layer_norm, "layernorm", (x, residual, scale, shift, sum, out), epsilon, stream,
                 dispatcher)


def _norm(function: Any, kind: str, arrays: Tuple[Any, ...], epsilon: Any, stream: Any,
          dispatcher: Optional[Dispatcher]) -> Any:
    try:
        whole = _engine.run(_ROW, arrays, (kind, epsilon), stream, dispatcher)
    except Exception as failure:
        given = dict(zip(("x", *SLOTS[1:]), arrays), epsilon=epsilon, dispatcher=dispatcher)
        raise refusal(function, given, failure) from None
    return whole[5] if whole[4] is None else (whole[5], whole[4])


def _check(options: Tuple[str, Any], views: Dict[str, _arrays.View]
           ) -> Tuple[str, Optional[float]]:
    kind, epsilon = options
    if "sum" in views and "residual" not in views:
        raise Error(f"{kind}: sum is the sum of x and residual, but there is no residual")
    return kind, None if epsilon is None else number("epsilon", epsilon)


def _make(call: Call) -> List[New]:
    like = call.views["in"]
    return [New(name, _arrays.empty(like.shape, like.dtype, call.given["in"], like))
            for name in (("out", "sum") if "residual" in call.given else ("out",))
            if name not in call.given]


def shape_of(kind: str, shape: Tuple[int, ...]) -> Tuple[int, ...]:
    """The shape of the result for x's."""
    if not shape:
        raise Error(f"{kind}: x must have at least 1 dimension, got a single number")
    if kind not in GATED:
        return shape
    if type(shape[-1]) is int and shape[-1] % 2:
        raise Error(f"{kind}: x must have an even number of columns, the gates and what they "
                    f"multiply, got {shape[-1]}")
    return (*shape[:-1], shape[-1] // 2)


def fields_of(options: Tuple[Any, ...], views: Dict[str, _arrays.View]) -> Dict[str, Any]:
    """options: the kind and epsilon, and then the fields that only some problems have."""
    kind, epsilon, *more = options
    x = views["in"]
    shape = shape_of(kind, x.shape)
    columns = shape[-1]
    fields: Dict[str, Any] = {"kind": kind, "columns": columns, "in": x.dtype}
    for name in ("scale", "shift"):
        fields[name] = name in views
        if name in views:
            check_row(f"{kind}: {name}", views[name].shape, views[name].strides, columns)
    words = {views[name].dtype for name in ("scale", "shift") if name in views}
    if len(words) > 1:
        raise Error(f"{kind}: scale and shift must have one type, got {views['scale'].dtype} and "
                    f"{views['shift'].dtype}")
    fields.update(weight=words.pop() if words else x.dtype, out=views["out"].dtype,
                  residual="residual" in views)
    if epsilon is not None:
        fields["epsilon"] = epsilon
    for name in _ROWS:
        if name in views:
            fields["rows"], ld = _rows(kind, name, views[name], x,
                                       x.shape if name == "in" else shape)
            if ld is not None:
                fields[f"ld_{name}"] = ld
    fields.update(more)
    return fields


def _rows(kind: str, name: str, view: _arrays.View, x: _arrays.View, shape: Tuple[int, ...]
          ) -> Tuple[int, Optional[int]]:
    """How many rows an array has, and their distance."""
    if view.shape != shape:
        raise Error(f"{kind}: {name} must have the shape {shape}, got {view.shape}")
    if name in ("residual", "sum") and view.dtype != x.dtype:
        raise Error(f"{kind}: {name} must have the type {x.dtype}, got {view.dtype}")
    if 0 in view.shape:
        return math.prod(view.shape[:-1]), None
    check_strides(name, view.shape, view.strides)
    found = collapse(view.shape[:-1], [view.strides[:-1]])
    if found is None or (view.shape[-1] > 1 and view.strides[-1] != 1):
        raise Error(f"{kind}: the rows of {name} must be at one distance from each other, and the "
                    f"elements of a row neighbours; got the strides {view.strides} over "
                    f"{view.shape}, copy it with numpy.ascontiguousarray()")
    rows, (distance,) = found
    if rows > 1 and distance == 0:
        raise Error(f"{kind}: {name} repeats its rows (it was broadcast); copy it with "
                    "numpy.ascontiguousarray()")
    return rows, distance if rows > 1 and distance != view.shape[-1] else None


_ROW = Row("norm", SLOTS, ("in",), ("out", "sum"), _check, _make, fields_of, sized=("in",),
           labels={"in": "x"})
