"""The gradients of attention: from arrays to a problem, its plan and its launch."""
from __future__ import annotations

from typing import Any, List, Optional, Tuple

from . import (_arrays, _attention, _attention_dropout, _attention_fields, _attention_shapes,
               _engine, _sequences)
from ._abi import Error
from ._arrays import Array
from ._checks import refusal
from ._attention_shapes import Options
from ._dispatcher import Dispatcher
from ._engine import Call, New, Row, Views
from ._values import flag


def attention_backward(dout: Array, q: Array, k: Array, v: Array, out: Array, lse: Array, *,
                       dlse: Optional[Array] = None,
                       mask: Optional[str] = None, window: Any = None, sink: int = 0,
                       bias: Optional[Array] = None, slopes: Optional[Array] = None,
                       scale: Optional[float] = None, soft_cap: float = 0.0, seqlens_q: Any = None,
                       seqlens_k: Any = None,
                       max_seqlen_q: Optional[int] = None, max_seqlen_k: Optional[int] = None,
                       skip_q: int = 0, dropout: float = 0.0, seed: Any = None, offset: int = 0,
                       return_dbias: bool = False, return_dslopes: bool = False,
                       layout: str = "bshd",
                       dispatcher: Optional[Dispatcher] = None) -> Tuple[Any, ...]:
    """The gradients of a loss by q, k and v, from its gradient by attention's result, and with dlse
    by attention's lse.

    out, lse: what attention(..., return_lse=True) returned for the same arrays and options, which
    are those of attention(); dropout needs the same seed and offset. Types: float32, float16,
    bfloat16, one for all. dlse: float32, as lse. return_dbias: also returns the gradient by bias,
    in bias's shape, added up over what bias is broadcast to. return_dslopes: the same of slopes.

    Tokens behind a sequence's length and queries of skipped sequences get 0.

    Returns (dq, dk, dv), or (dq, dk, dv, dbias), or (dq, dk, dv, dslopes).
    """
    try:
        if bias is not None and slopes is not None:
            raise Error("bias and slopes cannot both be given; add the slopes to the bias")
        return_dbias = flag("return_dbias", return_dbias)
        return_dslopes = flag("return_dslopes", return_dslopes)
        if return_dbias and bias is None:
            raise Error("return_dbias=True needs a bias")
        if return_dslopes and slopes is None:
            raise Error("return_dslopes=True needs slopes")
        lengths, longest = _sequences.lengths(_sequences.ARRAYS, q, k, (seqlens_q, seqlens_k),
                                              (max_seqlen_q, max_seqlen_k), layout)
        ends = tuple(window) if isinstance(window, list) else window
        options = Options(layout, mask, ends, sink, scale, soft_cap, skip_q, *longest, dropout)
        words = _attention_dropout.words(dropout, seed, offset, q)
        given = (q, k, v, out, lse, dout, dlse, bias, slopes, *lengths, words)
        for name, array in zip(_SLOTS[:6], given):
            if array is None:
                raise Error(f"{name} must be an array, got None")
        count = 4 if return_dbias or return_dslopes else 3
        results = _engine.run(_ROW, (*given, *[None] * 4), ("backward", options, count), None,
                              dispatcher)
        return results[len(given):len(given) + count]
    except Exception as failure:
        raise refusal(attention_backward, locals(), failure) from None


_SLOTS = ("q", "k", "v", "out", "lse", "dout", "dlse", "bias", "slopes", "seqlens_q", "seqlens_k",
          "dropout_rng", "dq", "dk", "dv", "dbias")
_GRADIENTS = (("dq", "q"), ("dk", "k"), ("dv", "v"))


def _gradients(count: int, views: Views) -> Tuple[Tuple[str, str], ...]:
    """The names of `count` gradients, and of the arrays that they belong to."""
    added = ("dbias", "bias" if "bias" in views else "slopes")
    return (*_GRADIENTS, added)[:count]


def _check(given: Tuple[str, Options, int], views: Views) -> Tuple[str, Options, int]:
    name, options, count = given
    for _, added in _gradients(count, views)[3:]:
        view = views[added]
        if any(size > 1 and step == 0 for size, step in zip(view.shape, view.strides)):
            raise Error(f"{added} repeats elements by strides of 0, whose gradients would be one "
                        "element; give it with 1 element in these dimensions, or copy it")
    return name, _attention_fields.plain(options, views), count


def _make(call: Call) -> List[New]:
    _, options, count = call.options
    views, given = call.views, call.given
    leaves = _attention_shapes.leaves_gradients(options, views["q"].shape, views["k"].shape,
                                                "seqlens_q" in given)
    return [New(name, _arrays.empty(views[of].shape, views[of].dtype, given[of], views[of]),
                0.0 if leaves else None) for name, of in _gradients(count, views)]


_ROW = Row("fmha", _SLOTS, ("q", "k", "v"), (), _check, _make,
           lambda given, views: _attention_fields.gradient_fields(given[1], views),
           sized=("dq", "dk", "dv"), looks=_attention.LOOKS)
