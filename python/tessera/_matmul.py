"""matmul: from arrays to a GEMM problem, its plan and its launch."""
from __future__ import annotations

import itertools
import sys
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from . import _abi, _arrays, _dtypes, _warm
from ._abi import Error
from ._arrays import Array
from ._checks import refusal
from ._dispatcher import Dispatcher, check_views, default_dispatcher, dispatcher_for
from ._layout import (Matrices, broadcast, check_strides, collapse, gemm_sizes, layout_of,
                      longest_run)
from ._prepack import PackedWeight
from ._problem import Problem
from ._values import number, shown

# The order in which a call's arrays stand in the table of plans.
_SLOTS = ("a", "b", "bias", "residual", "out")


class _Call(NamedTuple):
    """One call's arrays, as they were given."""

    a: Any
    b: Any
    bias: Any
    residual: Any
    out: Any
    activation: Optional[str]
    alpha: float
    beta: float


class _Made(NamedTuple):
    fields: Dict[str, Any]  # of the problem
    slots: Dict[str, int]   # an operand's name -> which array it is


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
        chosen = default_dispatcher() if dispatcher is None else dispatcher
        table = getattr(chosen, "_table", {})  # a wrong dispatcher is refused below
        key: Any = False
        if out is None and beta == 0:
            out = _new_result(a, b)
        if out is not None and stream is None:
            if type(b) is PackedWeight:
                key = _warm.call(table, (a, b.memory, bias, residual, out),
                                 (b.key, activation, alpha, beta))
            else:
                key = _warm.call(table, (a, b, bias, residual, out),
                                 ("matmul", activation, alpha, beta))
            if key is None:
                return out
            if key is not False and not isinstance(key, tuple):
                raise _abi.last_error(key)
        call = _Call(a, b, bias, residual, out, activation, alpha, beta)
        return _first(call, stream, dispatcher, key)
    except Exception as failure:
        raise refusal(matmul, locals(), failure) from None


# (what is known of a and b without reading their memory) -> shape and dtype of a result of NumPy's.
_results: Dict[Any, Tuple[Any, Any]] = {}


def _known(a: Any, b: Any) -> Any:
    return a.shape, a.dtype, b.shape, b.key if type(b) is PackedWeight else b.dtype


def _new_result(a: Any, b: Any) -> Any:
    """A new array where arrays of such types and shapes were multiplied before, else None."""
    try:
        shape, dtype = _results[_known(a, b)]
    except Exception:  # no arrays, new ones, or types without a hash
        return None
    return sys.modules["numpy"].empty(shape, dtype)


def _remember_result(a: Any, b: Any, out: Any) -> None:
    if not hasattr(a, "__array_interface__") or not hasattr(out, "__array_interface__"):
        return
    if len(_results) >= _warm.MOST_ENTRIES:
        _results.clear()
    try:
        _results[_known(a, b)] = out.shape, out.dtype
    except Exception:  # a type has no hash
        pass


def _first(call: _Call, stream: Any, dispatcher: Optional[Dispatcher], key: Any) -> Any:
    """A call whose plan is not in the table, or whose arrays the table cannot know."""
    call = call._replace(alpha=number("alpha", call.alpha), beta=number("beta", call.beta))
    if call.activation is not None and not isinstance(call.activation, str):
        raise Error(f"activation must be a word such as 'relu', got "
                    f"{shown(call.activation)}")
    address = _arrays.stream_address(stream)
    views = {name: _arrays.view_of(array, name, address)
             for name, array in zip(_SLOTS, call)
             if (name in "ab" or array is not None) and
             not (name == "b" and isinstance(array, PackedWeight))}
    packed = call.b if isinstance(call.b, PackedWeight) else None
    if packed is not None:
        views["b"] = packed.view
    chosen = dispatcher_for(dispatcher, views["a"])
    check_views(chosen, list(views.items()))
    shape, word = result_of(views, packed)
    if call.out is None:
        if call.beta != 0:
            raise Error(f"beta is {call.beta}, but there is no out whose contents it multiplies")
        call = call._replace(out=_arrays.empty(shape, word, call.a, views["a"]))
        _remember_result(call.a, call.b, call.out)
        views["out"] = _arrays.view_of(call.out, "out", address)
    _check_out(views["out"], shape)
    views, offsets = _launches_of(views)
    plan, slots = _plan_of(call, views, chosen, packed)
    if plan is None:
        return call.out
    names = [operand.name for operand in plan.operands]
    places = [_SLOTS[slots[name]] for name in names]
    options = _abi.LaunchOptions(stream=address) if address else None
    for offset in offsets:
        plan.launch_at([views[place].address + offset.get(place, 0) for place in places], options)
    if len(offsets) == 1:
        b = call.b if packed is None else packed.memory
        arrays = (call.a, b, call.bias, call.residual, call.out)
        _warm.remember(chosen, key, plan, [slots[name] for name in names], arrays)
    return call.out


# ---- Batches that lie at several distances -------------------------------------------------------

def _launches_of(views: Dict[str, _arrays.View]
                 ) -> Tuple[Dict[str, _arrays.View], List[Dict[str, int]]]:
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


def _check_apart(views: Dict[str, _arrays.View]) -> None:
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


def _plan_of(call: _Call, views: Dict[str, _arrays.View], dispatcher: Dispatcher,
             packed: Optional[PackedWeight]) -> Tuple[Any, Dict[str, int]]:
    """The plan, which is looked for by what the views say of the arrays; None where the result has
    no elements, but must be right all the same."""
    key = (tuple((name, v[1:4]) for name, v in views.items()), call[5:],
           None if packed is None else packed.key)
    found = dispatcher._plans.get(key)
    if found is not None:
        return found
    made = problem_of(call, views)
    fields, force = made.fields, None
    if packed is not None:
        if made.slots["b"] != 1:
            raise Error("matmul: out must lie by rows where b is a packed weight, got the strides "
                        f"{views['out'].strides} over {views['out'].shape}")
        fields, force = packed.fit(made.fields), packed.kernel
    problem = Problem("gemm", **fields)
    if 0 in views["out"].shape:
        return None, made.slots
    return dispatcher._keep(key, (dispatcher.plan(problem, force=force), made.slots))


def result_of(views: Dict[str, _arrays.View], packed: Any = None) -> Tuple[Tuple[int, ...], str]:
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


def _check_out(out: _arrays.View, shape: Tuple[int, ...]) -> None:
    if out.shape != shape:
        raise Error(f"matmul: out must have the shape {shape}, got {out.shape}")
    _arrays.check_output(out, "out")


def _matrices(name: str, view: _arrays.View, at: Optional[int]) -> Matrices:
    """at: where a vector lacks the dimension of one element, -1 (a column) or -2 (a row)."""
    shape, strides = view.shape, view.strides
    check_strides(name, shape, strides)
    if at == -1:
        return Matrices(name, (*shape, 1), (*strides, 0))
    if at == -2:
        return Matrices(name, (*shape[:-1], 1, *shape[-1:]), (*strides[:-1], 0, *strides[-1:]))
    return Matrices(name, shape, strides)


def _result_matrices(name: str, view: _arrays.View, views: Dict[str, _arrays.View]) -> Matrices:
    """out and residual have the result's shape, without the dimensions of vectors."""
    shape, strides = view.shape, view.strides
    if len(views["b"].shape) == 1:
        shape, strides = (*shape, 1), (*strides, 0)
    if len(views["a"].shape) == 1:
        shape = (*shape[:-1], 1, *shape[-1:])
        strides = (*strides[:-1], 0, *strides[-1:])
    check_strides(name, shape, strides)
    return Matrices(name, shape, strides)


def _extras(call: _Call, views: Dict[str, _arrays.View], n: int
            ) -> Tuple[Dict[str, Any], Dict[str, int]]:
    """The epilogue's fields, and the operands that it and beta read."""
    steps: List[str] = []
    slots: Dict[str, int] = {}
    words = {name: views[name].dtype for name in ("bias", "residual") if name in views}
    if len(set(words.values())) > 1:
        raise Error("matmul: bias and residual must have one type, got " +
                    " and ".join(_dtypes.NAMES[word] for word in words.values()))
    if "bias" in views:
        bias = views["bias"]
        if bias.shape != (n,) or (n > 1 and bias.strides != (1,)):
            raise Error(f"matmul: bias must have the shape {(n,)} and the stride 1, got "
                        f"{bias.shape} and {bias.strides}")
        slots[f"d{len(slots)}"] = 2
        steps.append("bias")
    if call.activation is not None:
        steps.append(call.activation)
    if "residual" in views:
        slots[f"d{len(slots)}"] = 3
        steps.append("add")
    fields: Dict[str, Any] = {"alpha": call.alpha, "beta": call.beta}
    if steps:
        fields["epilogue"] = "+".join(steps)
    if words:
        fields["d"] = next(iter(words.values()))
    return fields, slots


def problem_of(call: _Call, views: Dict[str, _arrays.View]) -> _Made:
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
    extras, slots = _extras(call, views, b.shape[-1])
    slots.update(a=0, b=1, out=4, **({"c": 4} if call.beta != 0 else {}))
    if layout_of(out)[0] == "c":  # out.T = b.T @ a.T
        if call.bias is not None:
            raise Error("matmul: out must lie by rows where there is a bias, got the strides "
                        f"{out.strides} over {out.shape}")
        a, b, out = b.transposed(), a.transposed(), out.transposed()
        residual = None if residual is None else residual.transposed()
        slots.update(a=1, b=0)
    if residual is not None and layout_of(residual)[0] != "r":
        raise Error(f"matmul: residual must lie as out does, got the strides {residual.strides} "
                    f"and {out.strides}")
    d = next((name for name, slot in slots.items() if slot == 3), None)
    fields = gemm_sizes(a, b, out, residual, out.lead, d)
    for name in [x for x in slots if x[0] == "d" and slots[x] == 2]:
        if "batch" in fields:
            fields[f"batch_stride_{name}"] = 0  # all batches share the bias
    if "c" in slots:
        fields.update({f"{key}_c": fields[f"{key}_out"] for key in ("ld", "batch_stride")
                       if f"{key}_out" in fields})
    names = ("a", "b") if slots["a"] == 0 else ("b", "a")
    fields.update(a=views[names[0]].dtype, b=views[names[1]].dtype, out=views["out"].dtype)
    return _Made({**fields, **extras}, slots)
