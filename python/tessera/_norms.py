"""Normalisations over the last dimension: softmax, rms_norm, layer_norm."""
from __future__ import annotations

import math
import sys
from typing import Any, Dict, Optional, Tuple

from . import _abi, _arrays, _warm
from ._abi import Error
from ._arrays import Array
from ._checks import refusal
from ._dispatcher import Dispatcher, check_views, default_dispatcher, dispatcher_for
from ._layout import check_strides, collapse
from ._problem import Problem
from ._values import number

_SLOTS = ("in", "residual", "scale", "shift", "out", "sum")
_ROWS = ("in", "residual", "out", "sum")


def softmax(x: Array, *, out: Optional[Array] = None, stream: Any = None,
            dispatcher: Optional[Dispatcher] = None) -> Any:
    """exp(x) / sum(exp(x)) over the last dimension, without overflow.

    x: (..., columns) of float32, float16 or bfloat16. out: the same shape, of x's type or float32;
    it may be x. stream, dispatcher: as in matmul(). Returns out.
    """
    try:
        return _norm("softmax", (x, None, None, None, out, None), None, stream, dispatcher)
    except Exception as failure:
        raise refusal(softmax, locals(), failure) from None


def rms_norm(x: Array, scale: Optional[Array] = None, *, residual: Optional[Array] = None,
             epsilon: float = 1e-5, out: Optional[Array] = None, sum: Optional[Array] = None,
             stream: Any = None, dispatcher: Optional[Dispatcher] = None) -> Any:
    """x / sqrt(mean(x * x) + epsilon) * scale over the last dimension.

    x: (..., columns) of float32, float16 or bfloat16. scale: (columns,) of x's type or float32.
    residual: x's shape and type; x + residual is normalised instead of x, and is stored in `sum`.
    out, sum: x's shape. Returns out, and (out, sum) where there is a residual.
    """
    try:
        return _norm("rmsnorm", (x, residual, scale, None, out, sum), epsilon, stream, dispatcher)
    except Exception as failure:
        raise refusal(rms_norm, locals(), failure) from None


def layer_norm(x: Array, scale: Optional[Array] = None, shift: Optional[Array] = None, *,
               residual: Optional[Array] = None, epsilon: float = 1e-5,
               out: Optional[Array] = None, sum: Optional[Array] = None, stream: Any = None,
               dispatcher: Optional[Dispatcher] = None) -> Any:
    """(x - mean) / sqrt(variance + epsilon) * scale + shift over the last dimension.

    Arrays and results are those of rms_norm(); shift has scale's shape and type.
    """
    try:
        return _norm("layernorm", (x, residual, scale, shift, out, sum), epsilon, stream,
                     dispatcher)
    except Exception as failure:
        raise refusal(layer_norm, locals(), failure) from None


def _norm(kind: str, arrays: Tuple[Any, ...], epsilon: Optional[float], stream: Any,
          dispatcher: Optional[Dispatcher]) -> Any:
    key: Any = False
    chosen = default_dispatcher() if dispatcher is None else dispatcher
    if type(arrays[0]) is sys.modules["numpy"].ndarray and arrays[0].dtype.itemsize <= 4:
        arrays = _with_results(arrays)
    if arrays[4] is not None and stream is None and isinstance(chosen, Dispatcher):
        key = _warm.call(chosen._table, arrays, ("norm", kind, epsilon))
        if key is None:
            return arrays[4] if arrays[1] is None else (arrays[4], arrays[5])
        if key is not False and not isinstance(key, tuple):
            raise _abi.last_error(key)
    if epsilon is not None:
        epsilon = number("epsilon", epsilon)
    address = _arrays.stream_address(stream)
    given = {name: array for name, array in zip(_SLOTS, arrays)
             if array is not None or name == "in"}
    views = {name: _arrays.view_of(array, "x" if name == "in" else name, address)
             for name, array in given.items()}
    chosen = dispatcher_for(dispatcher, views["in"])
    check_views(chosen, list(views.items()))
    for name in ("out", "sum") if "residual" in given else ("out",):
        if name not in given:
            like = views["in"]
            given[name] = _arrays.empty(like.shape, like.dtype, arrays[0], like)
            views[name] = _arrays.view_of(given[name], name, address)
    if "sum" in given and "residual" not in given:
        raise Error(f"{kind}: sum is the sum of x and residual, but there is no residual")
    _launch(chosen, kind, views, epsilon, address, key, arrays)
    return (given["out"], given["sum"]) if "sum" in given else given["out"]


def _with_results(arrays: Tuple[Any, ...]) -> Tuple[Any, ...]:
    """The arrays of a call, and new ones of NumPy's for the results that were not given."""
    x, residual, scale, shift, out, total = arrays
    empty = sys.modules["numpy"].empty
    if out is None:
        out = empty(x.shape, x.dtype)
    if total is None and residual is not None:
        total = empty(x.shape, x.dtype)
    return x, residual, scale, shift, out, total


def _launch(dispatcher: Dispatcher, kind: str, views: Dict[str, _arrays.View],
            epsilon: Optional[float], address: Optional[int], key: Any,
            arrays: Tuple[Any, ...]) -> None:
    known = ("norm", kind, epsilon, tuple((name, v[1:4]) for name, v in views.items()))
    for name in ("out", "sum"):
        if name in views:
            _arrays.check_output(views[name], name)
    plan = dispatcher._plans.get(known)
    if plan is None:
        problem = problem_of(kind, views, epsilon)
        if 0 in views["in"].shape:
            return
        plan = dispatcher._keep(known, dispatcher.plan(problem))
    names = [operand.name for operand in plan.operands]
    plan.launch_at([views[name].address for name in names],
                   _abi.LaunchOptions(stream=address) if address else None)
    if all(array is not None for name, array in zip(_SLOTS, arrays) if name in names):
        _warm.remember(dispatcher, key, plan, [_SLOTS.index(name) for name in names],
                       arrays)


def problem_of(kind: str, views: Dict[str, _arrays.View], epsilon: Optional[float]) -> Problem:
    x = views["in"]
    if not x.shape:
        raise Error(f"{kind}: x must have at least 1 dimension, got a single number")
    columns = x.shape[-1]
    fields: Dict[str, Any] = {"kind": kind, "columns": columns, "in": x.dtype}
    for name in ("scale", "shift"):
        fields[name] = name in views
        if name in views and (views[name].shape != (columns,) or
                              (columns > 1 and views[name].strides != (1,))):
            raise Error(f"{kind}: {name} must have the shape {(columns,)} and the stride 1, got "
                        f"{views[name].shape} and {views[name].strides}")
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
            fields["rows"], ld = _rows(kind, name, views[name], x)
            if ld is not None:
                fields[f"ld_{name}"] = ld
    return Problem("norm", **fields)


def _rows(kind: str, name: str, view: _arrays.View, x: _arrays.View) -> Tuple[int, Optional[int]]:
    """How many rows an array has, and their distance."""
    if view.shape != x.shape:
        raise Error(f"{kind}: {name} must have the shape {x.shape}, got {view.shape}")
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
