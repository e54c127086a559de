"""matmul: from arrays to a GEMM problem, its plan and its launch."""
from __future__ import annotations

import itertools
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from . import _arrays, _dtypes, _engine, _epilogue
from ._abi import Error
from ._arrays import Array
from ._checks import refusal
from ._dispatcher import Dispatcher
from ._engine import Call, New, Row, Views
from ._layout import (Matrices, broadcast, check_strides, collapse, gemm_sizes, layout_of,
                      longest_run)
from ._prepack import PackedWeight

# The order of a call's arrays.
SLOTS = ("a", "b", "bias", "residual", "out")


class Options(NamedTuple):
    """What a call says besides its arrays. form: "matmul", or what a packed weight is known by."""

    form: Any
    activation: Optional[str]
    alpha: Any
    beta: Any


def matmul(a: Array, b: Any, *, bias: Optional[Array] = None, activation: Optional[str] = None,
           residual: Optional[Array] = None, out: Optional[Array] = None,
           alpha: float = 1.0, beta: float = 0.0, stream: Any = None,
           dispatcher: Optional[Dispatcher] = None) -> Any:
    """activation(alpha * (a @ b) + beta * out + bias) + residual

    a: (..., m, k) or (k,); b: (..., k, n), (k,), or what prepack() returned. Shapes are those of
    numpy.matmul: leading dimensions broadcast, and a vector's dimension is left out of the result.
    Views cost nothing where the elements of rows or of columns are neighbours: b may be weight.T.
    Types: float32, float16, bfloat16, int8, or float8_e4m3fn and float8_e5m2 in any pair.
    bias: (n,). residual: the result's shape. Both are float32 or of the result's type, and alike.
    activation: "relu", "gelu", "gelu_tanh", "silu", "sigmoid", "tanh".
    out: where the result goes, in the result's shape; it may not overlap another array, but may be
    `residual` itself. Without it a new array is made: of a's type, int32 for int8, float16 for
    float8. beta other than 0 needs out, which is read too.
    stream: for arrays on a GPU, the stream on which they are used, see Plan.launch(). The result
    is then not awaited. dispatcher: None means the default one of the arrays' device.

    Returns out. Raises Error where types, shapes, devices or strides do not fit, before anything is
    written.
    """
    try:
        if not isinstance(b, PackedWeight):
            return _engine.run(_ROW, (a, b, bias, residual, out),
                               ("matmul", activation, alpha, beta), stream, dispatcher)[4]
        return _engine.run(_ROW, (a, b.memory, bias, residual, out),
                           (b.key, activation, alpha, beta), stream, dispatcher, b)[4]
    except Exception as failure:
        raise refusal(matmul, locals(), failure) from None


def _check(given: Tuple[Any, ...], views: Views) -> Options:
    return _epilogue.plain(Options(*given))


def _make(call: Call) -> List[New]:
    shape, word = result_of(call.views, call.packed)
    if "out" in call.views:
        if call.views["out"].shape != shape:
            raise Error(f"matmul: out must have the shape {shape}, got {call.views['out'].shape}")
        return []
    _epilogue.check_new(call.options)
    return [New("out", _arrays.empty(shape, word, call.given["a"], call.views["a"]))]


# ---- Batches that lie at several distances -------------------------------------------------------

def _launches_of(views: Views) -> Tuple[Views, List[Dict[str, int]]]:
    """The views of one launch, and how many bytes further on those of each launch lie. A problem
    has one distance from batch to batch; where both a and b repeat their batches, there are
    several, and as many launches as the smaller dimensions have elements."""
    rank = max(len(views["a"].shape), len(views["b"].shape)) - 2
    if rank < 2:  # one dimension has one distance
        return views, [{}]
    own = {name: max(len(views[name].shape) - 2, 0) for name in "ab"}
    own.update((name, rank) for name in ("out", "residual") if name in views)
    if "residual" in views and views["residual"].shape != views["out"].shape:
        return views, [{}]  # is refused later
    lead = views["out"].shape[:rank]
    over = {name: _over(rank, views[name], own[name]) for name in own}
    if collapse(lead, [strides for _, strides in over.values()]) is not None:
        return views, [{}]
    first, end = longest_run(lead, [strides for _, strides in over.values()])
    for name in over:
        check_strides(name, views[name].shape, views[name].strides)
    _check_apart(views)
    inner = dict(views)
    for name, (sizes, strides) in over.items():
        if own[name] > 0:
            view = views[name]
            inner[name] = view._replace(
                shape=(*sizes[first:end], *view.shape[own[name]:]),
                strides=(*strides[first:end], *view.strides[own[name]:]))
    others = [i for i in range(rank) if not first <= i < end]
    return inner, [
        {name: _dtypes.BYTES[views[name].dtype] * sum(strides[i] * at for i, at in
                                                      zip(others, place))
         for name, (_, strides) in over.items()}
        for place in itertools.product(*(range(lead[i]) for i in others))]


def _over(rank: int, view: _arrays.View, own: int) -> Tuple[Tuple[int, ...], Tuple[int, ...]]:
    """Sizes and strides of an operand's `own` leading dimensions, with those that it lacks."""
    sizes = (1,) * (rank - own) + view.shape[:own]
    strides = (0,) * (rank - own) + view.strides[:own]
    return sizes, tuple(0 if size == 1 else stride for size, stride in zip(sizes, strides))


def _check_apart(views: Views) -> None:
    """What several launches read, none of them may write; each launch looks at its own alone."""
    out = views["out"]
    for name, view in views.items():
        is_same = name == "out" or (name == "residual" and view[:4] == out[:4])
        if not is_same and (view.address < out.address + out.nbytes() and
                            out.address < view.address + view.nbytes()):
            raise Error(f"matmul: out and {name} overlap in memory, where the leading dimensions "
                        "of a and b take several launches; give out memory of its own")
    span = 1
    for stride, size in sorted((s, n) for n, s in zip(out.shape, out.strides) if n > 1):
        if stride < span:
            raise Error(f"matmul: out has the strides {out.strides} over {out.shape}, so that "
                        "results would overlap")
        span += stride * (size - 1)


def result_of(views: Views, packed: Any = None) -> Tuple[Tuple[int, ...], str]:
    """The result's shape, and its type where out= does not say it."""
    a, b = views["a"], views["b"]
    for name, view in (("a", a), ("b", b)):
        if not view.shape:
            raise Error(f"matmul: {name} must have at least 1 dimension, got a single number")
    k_a, k_b = a.shape[-1], b.shape[-2] if len(b.shape) > 1 else b.shape[0]
    if k_a != k_b:
        raise Error(f"matmul: a has {k_a} columns and b has {k_b} rows; the two must be equal")
    lead = broadcast(("a", "b"), (a.shape[:-2], b.shape[:-2]))
    shape = (*lead, *(a.shape[-2:-1] if len(a.shape) > 1 else ()),
             *(b.shape[-1:] if len(b.shape) > 1 else ()))
    if "out" in views:
        return shape, views["out"].dtype
    if packed is not None:
        return shape, packed.out
    return shape, _dtypes.RESULTS.get(a.dtype, a.dtype)


def _matrices(name: str, view: _arrays.View, lacks_row: bool, lacks_column: bool) -> Matrices:
    """With the dimensions of one element that vectors, and results of vectors, lack."""
    shape, strides = view.shape, view.strides
    if lacks_column:
        shape, strides = (*shape, 1), (*strides, 0)
    if lacks_row:
        shape = (*shape[:-1], 1, *shape[-1:])
        strides = (*strides[:-1], 0, *strides[-1:])
    check_strides(name, shape, strides)
    return Matrices(name, shape, strides)


def problem_of(options: Options, views: Views) -> Tuple[Dict[str, Any], Dict[str, str]]:
    """The problem's fields, and which array each operand is."""
    lacks = len(views["a"].shape) == 1, len(views["b"].shape) == 1
    a, b = _matrices("a", views["a"], lacks[0], False), _matrices("b", views["b"], False, lacks[1])
    out = _matrices("out", views["out"], *lacks)
    residual = None
    if "residual" in views:
        if views["residual"].shape != views["out"].shape:
            raise Error(f"matmul: residual must have the shape {views['out'].shape}, got "
                        f"{views['residual'].shape}")
        residual = _matrices("residual", views["residual"], *lacks)
    extras, slots = _epilogue.fields(options, views, b.shape[-1], "d", "matmul: ")
    slots.update(a="a", b="b", out="out", **({"c": "out"} if options.beta != 0 else {}))
    if layout_of(out)[0] == "c":  # out.T = b.T @ a.T
        if "bias" in views:
            raise Error("matmul: out must lie by rows where there is a bias, got the strides "
                        f"{out.strides} over {out.shape}")
        if options.form != "matmul":
            raise Error("matmul: out must lie by rows where b is a packed weight, got the strides "
                        f"{views['out'].strides} over {views['out'].shape}")
        a, b, out = b.transposed(), a.transposed(), out.transposed()
        residual = None if residual is None else residual.transposed()
        slots.update(a="b", b="a")
    if residual is not None and layout_of(residual)[0] != "r":
        raise Error(f"matmul: residual must lie as out does, got the strides {residual.strides} "
                    f"and {out.strides}")
    d = next((name for name, slot in slots.items() if slot == "residual"), None)
    fields = gemm_sizes(a, b, out, residual, out.lead, d)
    for name in [x for x in slots if x[0] == "d" and slots[x] == "bias"]:
        if "batch" in fields:
            fields[f"batch_stride_{name}"] = 0  # all batches share the bias
    if "c" in slots:
        fields.update({f"{key}_c": fields[f"{key}_out"] for key in ("ld", "batch_stride")
                       if f"{key}_out" in fields})
    fields.update((name, views[slots[name]].dtype) for name in ("a", "b", "out"))
    return {**fields, **extras}, slots


_ROW = Row("gemm", SLOTS, ("a", "b"), ("out",), _check, _make, problem_of, sized=("out",),
           parts=_launches_of)
