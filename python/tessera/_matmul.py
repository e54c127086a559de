"""matmul: from arrays to a GEMM problem, its plan and its launch."""
from __future__ import annotations

import itertools
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from . import _arrays, _dtypes, _engine
from ._abi import Error
from ._arrays import Array
from ._checks import refusal
from ._dispatcher import Dispatcher
from ._engine import Call, New, Row, Views
from ._layout import (Matrices, broadcast, check_strides, collapse, gemm_sizes, layout_of,
                      longest_run)
from ._prepack import PackedWeight
from ._values import number, shown

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
        if type(b) is not PackedWeight:
            return _engine.run(_ROW, (a, b, bias, residual, out),
                               ("matmul", activation, alpha, beta), stream, dispatcher)[4]
        return _engine.run(_ROW, (a, b.memory, bias, residual, out),
                           (b.key, activation, alpha, beta), stream, dispatcher, b)[4]
    except Exception as failure:
        raise refusal(matmul, locals(), failure) from None


def _check(given: Tuple[Any, ...], views: Views) -> Options:
    options = Options(*given)
    options = options._replace(alpha=number("alpha", options.alpha),
                               beta=number("beta", options.beta))
    if options.activation is not None and not isinstance(options.activation, str):
        raise Error(f"activation must be a word such as 'relu', got "
                    f"{shown(options.activation)}")
    return options


def _make(call: Call) -> List[New]:
    shape, word = result_of(call.views, call.packed)
    if "out" in call.views:
        _check_shape(call.views["out"], shape)
        return []
    beta = call.options.beta
    if beta != 0:
        raise Error(f"beta is {beta}, but there is no out whose contents it multiplies")
    return [New("out", _arrays.empty(shape, word, call.given["a"], call.views["a"]))]


# ---- Batches that lie at several distances -------------------------------------------------------

def _launches_of(views: Views
                 ) -> Tuple[Views, List[Dict[str, int]]]:
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
    return shape, {"int8": "int32", "fp8": "fp16", "bf8": "fp16"}.get(a.dtype, a.dtype)


def _check_shape(out: _arrays.View, shape: Tuple[int, ...]) -> None:
    if out.shape != shape:
        raise Error(f"matmul: out must have the shape {shape}, got {out.shape}")


def _matrices(name: str, view: _arrays.View, at: Optional[int]) -> Matrices:
    """at: where a vector lacks the dimension of one element, -1 (a column) or -2 (a row)."""
    shape, strides = view.shape, view.strides
    check_strides(name, shape, strides)
    if at == -1:
        return Matrices(name, (*shape, 1), (*strides, 0))
    if at == -2:
        return Matrices(name, (*shape[:-1], 1, *shape[-1:]), (*strides[:-1], 0, *strides[-1:]))
    return Matrices(name, shape, strides)


def _result_matrices(name: str, view: _arrays.View, views: Views) -> Matrices:
    """out and residual have the result's shape, without the dimensions of vectors."""
    shape, strides = view.shape, view.strides
    if len(views["b"].shape) == 1:
        shape, strides = (*shape, 1), (*strides, 0)
    if len(views["a"].shape) == 1:
        shape = (*shape[:-1], 1, *shape[-1:])
        strides = (*strides[:-1], 0, *strides[-1:])
    check_strides(name, shape, strides)
    return Matrices(name, shape, strides)


def _epilogue(options: Options, views: Views, n: int) -> Tuple[Dict[str, Any], Dict[str, str]]:
    """The epilogue's fields, and the operands that it reads."""
    steps: List[str] = []
    slots: Dict[str, str] = {}
    words = {name: views[name].dtype for name in ("bias", "residual") if name in views}
    if len(set(words.values())) > 1:
        raise Error("matmul: bias and residual must have one type, got " +
                    " and ".join(_dtypes.NAMES[word] for word in words.values()))
    if "bias" in views:
        bias = views["bias"]
        if bias.shape != (n,) or (n > 1 and bias.strides != (1,)):
            raise Error(f"matmul: bias must have the shape {(n,)} and the stride 1, got "
                        f"{bias.shape} and {bias.strides}")
        slots[f"d{len(slots)}"] = "bias"
        steps.append("bias")
    if options.activation is not None:
        steps.append(options.activation)
    if "residual" in views:
        slots[f"d{len(slots)}"] = "residual"
        steps.append("add")
    fields: Dict[str, Any] = {"alpha": options.alpha, "beta": options.beta}
    if steps:
        fields["epilogue"] = "+".join(steps)
    if words:
        fields["d"] = next(iter(words.values()))
    return fields, slots


def problem_of(options: Options, views: Views) -> Tuple[Dict[str, Any], Dict[str, str]]:
    """The problem's fields, and which array each operand is."""
    a = _matrices("a", views["a"], -2 if len(views["a"].shape) == 1 else None)
    b = _matrices("b", views["b"], -1 if len(views["b"].shape) == 1 else None)
    out = _result_matrices("out", views["out"], views)
    residual = None
    if "residual" in views:
        if views["residual"].shape != views["out"].shape:
            raise Error(f"matmul: residual must have the shape {views['out'].shape}, got "
                        f"{views['residual'].shape}")
        residual = _result_matrices("residual", views["residual"], views)
    extras, slots = _epilogue(options, views, b.shape[-1])
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
