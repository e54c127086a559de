"""Appending new keys and values to a cache and attending to it, in one launch."""
from __future__ import annotations

from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from . import (_append, _arrays, _attention_fields, _attention_scales, _attention_shapes, _engine,
               _sequences)
from ._abi import Error
from ._dispatcher import Dispatcher
from ._engine import Call, New, Row, Views
from ._sequences import ARRAYS


class Appended(NamedTuple):
    """What is appended, and how many new tokens and, before them, keys each sequence has."""

    keys: Any
    values: Any
    rotary: Optional[str]
    cos: Any
    sin: Any
    counts: Any
    lengths: Any


def extend(caches: Tuple[Any, Any, Any], new: Appended, options: _attention_shapes.Options,
           pages: Tuple[Any, Any, Optional[bool]], slopes: Any, scales: Tuple[Any, Any],
           out: Any, stream: Any, dispatcher: Optional[Dispatcher]) -> Any:
    """What a call of decode() with new keys returns. caches: q, k and v. pages: the table, its
    starts, and whether they are checked."""
    q, k_cache, v_cache = caches
    _arrays.shape_of(v_cache, "v_cache")
    append = _append.checked(new.rotary, None if new.rotary is None else q, new.cos, new.sin, None,
                             options.layout, None)
    tables, report = _sequences.pages_of(ARRAYS, new.keys, *pages)
    (counts, before), _ = _append.lengths_of(ARRAYS, k_cache, new.keys, (new.counts, new.lengths),
                                             new.cos, tables, append)
    if counts is None:
        counts = before * 0 + _attention_shapes.tokens_in(_arrays.shape_of(q, "q"), options.layout)
    if tables[0] is not None:
        size = _sequences.page_size(_arrays.shape_of(k_cache, "k_cache"), options.layout)
        options = options._replace(longest_k=_sequences.room_of(
            _arrays.shape_of(tables[0], "page_table"), size, options.longest_k))
    elif options.longest_k is not None:
        raise Error("max_seqlen_k is for keys in pages, which need page_table")
    scales = _attention_scales.cache_arrays_of(scales, new.keys)
    arrays = (*caches, new.keys, new.values, new.cos, new.sin, slopes, counts, before + counts,
              *tables, report, *scales, None, out, None)
    found = _engine.run(_ROW, arrays, _Asked(options, new.rotary), stream, dispatcher)
    if report is not None:
        _sequences.check_report(report, tables, k_cache)
    return found[-2:] if options.lse else found[-2]


class _Asked(NamedTuple):
    options: _attention_shapes.Options
    rotary: Optional[str]


_SLOTS = ("q", "k", "v", "k_new", "v_new", "cos", "sin", "slopes", "seqlens_q", "seqlens_k",
          "page_table", "page_starts", "bad_page", "descale_k", "descale_v", "q_turned", "out",
          "lse")


def _check(asked: _Asked, views: Views) -> _Asked:
    return asked._replace(options=_attention_fields.plain(asked.options, views))


def _make(call: Call) -> List[New]:
    """Rows that no query has are zeros, and minus infinity in lse."""
    options, rotary = call.options
    like, q = call.given["q"], call.views["q"]
    found = _attention_shapes.results_of(options, q.shape, q.strides, call.views["k"].shape,
                                         call.views["v"].shape, True)
    made = []
    if rotary is not None:
        made.append(New("q_turned", _arrays.empty(q.shape, q.dtype, like, q), 0.0))
    if "out" not in call.views:
        made.append(New("out", _arrays.empty(found.out, q.dtype, like, q), 0.0))
    if options.lse:
        made.append(New("lse", _arrays.empty(found.lse, "fp32", like, q), float("-inf")))
    return made


def _fields(asked: _Asked, views: Views) -> Dict[str, Any]:
    """Those of attention, and those of appending that it does not have."""
    options, rotary = asked
    fields = _attention_fields.problem_fields(
        options, {name: view for name, view in views.items() if name not in _NEW})
    appended = dict(views)
    if rotary is not None:
        appended["out"] = appended.pop("q_turned")
    else:
        del appended["q"], appended["out"]
    append = _append.problem_fields(
        _append.Options(options.layout, rotary, None, fields["seqlen_k"]), appended)
    for name, value in append.items():
        if name.startswith(("k_new_stride", "v_new_stride", "rotary", "rotate_q")):
            fields[name] = value
        if rotary is not None and name.startswith("out_stride"):
            fields[name.replace("out", "q_turned")] = value
    if rotary is not None and append["rotary_positions"] < fields["seqlen_k"]:
        if fields.get("qscale") == "per_token" and "page_table" not in views:
            raise Error(f"cos must have a row for each of the {fields['seqlen_k']} tokens of a "
                        f"cache whose tokens have factors, got {append['rotary_positions']}")
        fields.update(_shortened(options, views), seqlen_k=append["rotary_positions"])
    return {**fields, "kind": "extend"}


def _shortened(options: _attention_shapes.Options, views: Views) -> Dict[str, int]:
    """The strides of caches whose last keys do not count, because cos has no rows for them. Keys
    there were refused, or are left out."""
    if "page_table" in views:
        return {}
    return {f"{name}_stride_{end}": stride for name in ("k", "v") for end, (_, stride) in
            zip("bshd", _attention_shapes.tokens_of(name, views[name], options.layout)[1:])}


_NEW = ("k_new", "v_new", "cos", "sin", "q_turned")

_ROW = Row("fmha", _SLOTS, ("q", "k", "v", "k_new", "v_new"), ("k", "v", "out", "lse"), _check,
           _make, _fields, sized=("q",))
