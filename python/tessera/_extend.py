"""Appending new keys and values to a cache and attending to it, in one launch."""
from __future__ import annotations

from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from . import _abi, _append, _arrays, _attention_shapes, _paged
from ._dispatcher import Dispatcher, check_views, dispatcher_for
from ._problem import Problem


class New(NamedTuple):
    """What is appended, and how many keys and new tokens each sequence has then."""

    keys: Any
    values: Any
    rotary: Optional[str]
    cos: Any
    sin: Any
    counts: Any
    lengths: Any


def extend(q: Any, k_cache: Any, v_cache: Any, slopes: Any, new: New,
           options: _attention_shapes.Options, pages: Tuple[Tuple[Any, Any], Any],
           results: Tuple[Any, Any], stream: Any, dispatcher: Optional[Dispatcher]
           ) -> Tuple[Any, Any]:
    """out and lse of a call of decode(). The lengths were checked. pages: the table, its starts,
    and the report of a checked launch; results: out or None, lse or None, or True for a new one."""
    (table, starts), report = pages
    out, lse = results
    given = {"q": q, "k": k_cache, "v": v_cache, "k_new": new.keys, "v_new": new.values,
             "cos": new.cos, "sin": new.sin, "slopes": slopes, "seqlens_q": new.counts,
             "seqlens_k": new.lengths, "page_table": table, "page_starts": starts,
             "bad_page": report, "out": out, "lse": None if lse is True else lse}
    given = {name: array for name, array in given.items()
             if array is not None or name in ("q", "k", "v", "k_new", "v_new")}
    return _launch(given, options, new.rotary, lse is not None, stream, dispatcher)


def _launch(given: Dict[str, Any], options: _attention_shapes.Options, rotary: Optional[str],
            wants_lse: bool, stream: Any, dispatcher: Optional[Dispatcher]) -> Tuple[Any, Any]:
    address = _arrays.stream_address(stream)
    views = {name: _arrays.view_of(array, name, address) for name, array in given.items()}
    chosen = dispatcher_for(dispatcher, views["q"])
    check_views(chosen, list(views.items()))
    options = _attention_shapes.plain(options)
    shapes = _paged if "page_table" in views else _attention_shapes
    shapes.all_tokens(options, views)
    for name, made in _new_results(given, views, options, rotary, wants_lse):
        given[name], views[name] = made, _arrays.view_of(made, name, address)
    for name in ("k", "v", "out", "lse"):
        if name in views:
            _arrays.check_output(views[name], name)
    key = "extend", options, rotary, tuple((name, view[1:4]) for name, view in views.items())
    plan = chosen._plans.get(key)
    if plan is None:
        problem = Problem("fmha", **_fields(options, rotary, views))
        if 0 in views["q"].shape:
            return given["out"], given.get("lse")
        plan = chosen._keep(key, chosen.plan(problem))
    plan.launch_at([views[operand.name].address for operand in plan.operands],
                   _abi.LaunchOptions(stream=address) if address else None)
    if "bad_page" in views and views["q"].device[0] != "cpu":
        plan.synchronize(address)
    return given["out"], given.get("lse")


def _new_results(given: Dict[str, Any], views: Dict[str, _arrays.View],
                 options: _attention_shapes.Options, rotary: Optional[str], wants_lse: bool
                 ) -> List[Tuple[str, Any]]:
    """Arrays for what the caller gave none for. Rows that no query has are zeros, and minus
    infinity in lse."""
    q = views["q"]
    shapes = _attention_shapes.result_shapes(q.shape, views["v"].shape, options.layout)
    made = []
    if rotary is not None:
        made.append(("q_turned", _arrays.empty(q.shape, q.dtype, given["q"], q)))
    if "out" not in views:
        made.append(("out", _arrays.empty(shapes[0], q.dtype, given["q"], q)))
    if wants_lse and "lse" not in views:
        made.append(("lse", _arrays.empty(shapes[1], "fp32", given["q"], q)))
    for name, array in made:
        array[...] = float("-inf") if name == "lse" else 0
    return made


def _fields(options: _attention_shapes.Options, rotary: Optional[str],
            views: Dict[str, _arrays.View]) -> Dict[str, Any]:
    """Those of attention, and those of appending that it does not have."""
    shapes = _paged if "page_table" in views else _attention_shapes
    fields = shapes.problem_fields(options, {name: view for name, view in views.items()
                                             if name not in _NEW})
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
        fields.update(_shortened(options, views), seqlen_k=append["rotary_positions"])
    return {**fields, "kind": "extend"}


def _shortened(options: _attention_shapes.Options, views: Dict[str, _arrays.View]
               ) -> Dict[str, int]:
    """The strides of caches whose last keys do not count, because cos has no rows for them. Keys
    there were refused, or are left out."""
    if "page_table" in views:
        return {}
    fields = {}
    for name in ("k", "v"):
        tokens = _attention_shapes._tokens_of(name, views[name], options.layout)
        for end, size in zip("bhsd", (tokens.batch, tokens.heads, tokens.tokens, tokens.hdim)):
            fields[f"{name}_stride_{end}"] = size[1]
    return fields


_NEW = ("k_new", "v_new", "cos", "sin", "q_turned")
