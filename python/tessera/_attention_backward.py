"""The gradients of attention: from arrays to a problem, its plan and its launch."""
from __future__ import annotations

from typing import Any, Dict, Optional, Tuple

from . import _arrays, _attention, _attention_dropout, _attention_shapes
from ._abi import Error
from ._arrays import Array
from ._checks import refusal
from ._attention_shapes import Options
from ._dispatcher import Dispatcher, check_views, dispatcher_for
from ._problem import Problem
from ._values import flag


def attention_backward(dout: Array, q: Array, k: Array, v: Array, out: Array, lse: Array, *,
                       mask: Optional[str] = None, window: Any = None, sink: int = 0,
                       bias: Optional[Array] = None, slopes: Optional[Array] = None,
                       scale: Optional[float] = None, soft_cap: float = 0.0, seqlens_q: Any = None,
                       seqlens_k: Any = None,
                       max_seqlen_q: Optional[int] = None, max_seqlen_k: Optional[int] = None,
                       skip_q: int = 0, dropout: float = 0.0, seed: Any = None, offset: int = 0,
                       return_dbias: bool = False, layout: str = "bshd",
                       dispatcher: Optional[Dispatcher] = None) -> Tuple[Any, ...]:
    """The gradients of a loss by q, k and v, from its gradient by attention's result.

    out, lse: what attention(..., return_lse=True) returned for the same arrays and options, which
    are those of attention(); dropout needs the same seed and offset. Types: float32, float16,
    bfloat16, one for all. return_dbias: also returns the gradient by bias, in bias's shape, added
    up over what bias is broadcast to.

    Tokens behind a sequence's length and queries of skipped sequences get 0.

    Returns (dq, dk, dv), or (dq, dk, dv, dbias).
    """
    try:
        if bias is not None and slopes is not None:
            raise Error("bias and slopes cannot both be given; add the slopes to the bias")
        return_dbias = flag("return_dbias", return_dbias)
        if return_dbias and bias is None:
            raise Error("return_dbias=True needs a bias")
        lengths, longest = _attention._lengths(q, k, seqlens_q, seqlens_k,
                                               (max_seqlen_q, max_seqlen_k), layout, (None, None))
        ends = tuple(window) if isinstance(window, list) else window
        options = Options(layout, mask, ends, sink, scale, soft_cap, skip_q, None, *longest,
                          dropout)
        words = _attention_dropout.words(dropout, seed, offset, q)
        given = {"q": q, "k": k, "v": v, "out": out, "lse": lse, "dout": dout, "bias": bias,
                 "slopes": slopes, "seqlens_q": lengths[0], "seqlens_k": lengths[1],
                 "dropout_rng": words}
        arrays = {name: array for name, array in given.items() if array is not None}
        return _run(options, arrays, return_dbias, dispatcher)
    except Exception as failure:
        raise refusal(attention_backward, locals(), failure) from None


def _run(options: Options, arrays: Dict[str, Any], has_dbias: bool,
         dispatcher: Optional[Dispatcher]) -> Tuple[Any, ...]:
    for name in ("q", "k", "v", "out", "lse", "dout"):
        if name not in arrays:
            raise Error(f"{name} must be an array, got None")
    views = {name: _attention_dropout.view_of(array, name, None) for name, array in arrays.items()}
    bias = views.get("bias")
    if has_dbias and bias is not None and any(
            size > 1 and step == 0 for size, step in zip(bias.shape, bias.strides)):
        raise Error("bias repeats elements by strides of 0, whose gradients would be one element; "
                    "give it with 1 element in these dimensions, or copy it")
    chosen = dispatcher_for(dispatcher, views["q"])
    check_views(chosen, list(views.items()))
    options = _attention_shapes.plain(options)
    leaves = _attention_shapes.leaves_gradients(options, views["q"].shape, views["k"].shape,
                                                arrays.get("seqlens_q"))
    results = {}
    for name, of in (("dq", "q"), ("dk", "k"), ("dv", "v"), ("dbias", "bias")):
        if name == "dbias" and not has_dbias:
            continue
        made = _arrays.empty(views[of].shape, views[of].dtype, arrays[of], views[of])
        if leaves:
            made[...] = 0
        results[name], views[name] = made, _arrays.view_of(made, name)
    plan = _plan_of(options, views, chosen)
    if plan is not None:
        plan.launch_at([views[operand.name].address for operand in plan.operands])
    return tuple(results.values())


def _plan_of(options: Options, views: Dict[str, _arrays.View], dispatcher: Dispatcher) -> Any:
    """None where the gradients have no elements."""
    key = "attention_backward", options, tuple((name, view[1:4]) for name, view in views.items())
    found = dispatcher._plans.get(key)
    if found is not None:
        return found
    problem = Problem("fmha", **_attention_shapes.gradient_fields(options, views))
    if all(0 in views[name].shape for name in ("dq", "dk", "dv")):
        return None
    return dispatcher._keep(key, dispatcher.plan(problem))
