"""Appending new keys and values to a cache: from arrays to a problem, its plan and its launch."""
from __future__ import annotations

import sys
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from . import _arrays, _attention_fields, _attention_shapes, _dtypes, _engine, _paged
from ._abi import Error
from ._arrays import Array
from ._attention_shapes import Tokens
from ._checks import refusal
from ._dispatcher import Dispatcher
from ._engine import Call, New, Row, Views
from ._values import shown

_ROTARY = ("interleaved", "half")


class Options(NamedTuple):
    """What a call says besides its arrays."""

    layout: str
    rotary: Optional[str]
    longest_q: Optional[int]  # of packed sequences
    room: Optional[int]  # of a sequence whose keys lie in pages


def append_kv(k_cache: Array, v_cache: Array, k_new: Array, v_new: Array, seqlens_k: Any, *,
              q: Optional[Array] = None, cos: Optional[Array] = None,
              sin: Optional[Array] = None, rotary: Optional[str] = None,
              seqlens_q: Any = None, max_seqlen_q: Optional[int] = None, page_table: Any = None,
              page_starts: Any = None, check_pages: Optional[bool] = None, layout: str = "bshd",
              out: Optional[Array] = None, stream: Any = None,
              dispatcher: Optional[Dispatcher] = None) -> Any:
    """Writes new keys and values behind those that a cache has, in place.

    k_cache: (batch, room, heads_kv, hdim), v_cache: (batch, room, heads_kv, hdim_v), k_new: (batch,
    tokens, heads_kv, hdim), v_new: (batch, tokens, heads_kv, hdim_v), of one type: float32,
    float16, bfloat16. layout="bhsd": heads before tokens. Any strides cost nothing. seqlens_k:
    (batch,), how many keys each sequence has before the call; new token t of sequence b becomes key
    seqlens_k[b] + t.
    rotary: "half" turns elements i and i + n / 2 of new keys together (NeoX, Llama), "interleaved"
    2 i and 2 i + 1 (GPT-J), by the angles whose cosines and sines are the rows of cos and sin,
    (positions, n / 2) of float32; elements from n on are copied. q: (batch, tokens, heads, hdim),
    turned by the same angles into out, which is returned and may be q.
    seqlens_q: how many new tokens sequences have, all of k_new's without it. With k_new, v_new and
    q of 3 dimensions, (tokens, heads, hdim), sequences lie one behind the other, and these are
    batch + 1 prefix sums. Lists and arrays of whole numbers on a CPU, int32 on a GPU, where their
    values are not read: give max_seqlen_q for speed, the most new tokens of a sequence.
    page_table, page_starts, check_pages: as in attention(), whose caches k_cache and v_cache are
    then. New tokens need pages that no other sequence has.

    A token that does not fit into the room, or has no row in cos and sin, is refused where the
    lengths can be read, and left out where they lie on a GPU. Returns out, None without q.
    """
    try:
        for name, array in (("v_cache", v_cache), ("v_new", v_new)):
            _arrays.shape_of(array, name)
        options = checked(rotary, q, cos, sin, out, layout)
        pages, report = pages_of(k_cache, k_new, page_table, page_starts, check_pages)
        batch, rooms = rooms_of(k_cache, pages, layout)
        lengths, longest = lengths_of((batch, rooms), k_new, seqlens_k, seqlens_q, cos,
                                    max_seqlen_q, layout)
        arrays = (k_cache, v_cache, k_new, v_new, q, cos, sin, out, lengths.get("seqlens_q"),
                  lengths["seqlens_k"], *pages, report)
        room = max(rooms, default=0) if pages[0] is not None else None
        options = options._replace(longest_q=longest, room=room)
        out = _engine.run(_ROW, arrays, options, stream, dispatcher)[7]
        if report is not None:
            _paged.check_report(report, *pages, _arrays.shape_of(k_cache, "k_cache")[0])
        return out
    except Exception as failure:
        raise refusal(append_kv, locals(), failure) from None


# ---- Options and lengths -------------------------------------------------------------------------

def checked(rotary: Optional[str], q: Any, cos: Any, sin: Any, out: Any, layout: Any) -> Options:
    _attention_shapes.layout_word(layout)
    if rotary is not None and (not isinstance(rotary, str) or rotary not in _ROTARY):
        raise Error(f"rotary must be None or one of {', '.join(_ROTARY)}, got {shown(rotary)}")
    for name, array in (("cos", cos), ("sin", sin)):
        if (array is None) != (rotary is None):
            raise Error(f"rotary={rotary!r} {'needs' if rotary else 'has no'} {name}")
    if rotary is None and q is not None:
        raise Error("q is for a rotary embedding, which turns it; got rotary=None and q")
    if q is None and out is not None:
        raise Error("out is for q, which is turned into it; got out and no q")
    return Options(layout, rotary, None, None)


def pages_of(k_cache: Any, k_new: Any, table: Any, starts: Any, is_checked: Optional[bool]
             ) -> Tuple[Tuple[Any, Any], Any]:
    if table is not None:
        return _paged.tables(k_new, table, starts, is_checked)
    _paged.refuse_without_table(starts, is_checked)
    return (None, None), None


def rooms_of(k_cache: Any, pages: Tuple[Any, Any], layout: str) -> Tuple[int, List[int]]:
    """How many sequences there are, and how many keys each has room for. Of a list on a GPU, which
    is not read, as many as all entries have."""
    cache = _arrays.shape_of(k_cache, "k_cache")
    table, starts = pages
    if table is None:
        if len(cache) != 4:
            raise Error(f"k_cache must have 4 dimensions, got {len(cache)}")
        return cache[0], [_attention_shapes.tokens_in(cache, layout)] * cache[0]
    size, entries = _paged.page_size(cache, layout), _arrays.shape_of(table, "page_table")
    room = _paged.room_of(entries, size, None)
    if starts is None:
        return entries[0], [room] * entries[0]
    batch = _arrays.shape_of(starts, "page_starts")[0] - 1
    if not _arrays.is_on_host(starts):
        return batch, [room] * batch
    sums = starts.tolist()
    return batch, [(after - before) * size for before, after in zip(sums, sums[1:])]


def lengths_of(cache: Tuple[int, List[int]], k_new: Any, seqlens_k: Any, seqlens_q: Any, cos: Any,
             most: Optional[int], layout: str) -> Tuple[Dict[str, Any], Optional[int]]:
    """seqlens_k, and seqlens_q where it is given, in int32, and how many new tokens packed
    sequences have at most. cache: how many sequences it has, and the room of each."""
    new = _arrays.shape_of(k_new, "k_new")
    _attention_shapes.check_ranks({"k_new": len(new)})
    is_packed = len(new) == 3
    if is_packed and seqlens_q is None:
        raise Error("k_new has 3 dimensions, which are packed tokens; they need seqlens_q, the "
                    "prefix sums of their numbers")
    limit = None if most is None else _attention_shapes.whole("max_seqlen_q", most)
    if most is not None and not is_packed:
        raise Error(f"max_seqlen_q is for packed tokens, k_new of 3 dimensions; got {limit}")
    batch, rooms = cache
    counts, found_q, longest = _counts(seqlens_q, new, layout, batch, is_packed)
    found: Dict[str, Any] = {} if seqlens_q is None else {"seqlens_q": found_q}
    found["seqlens_k"] = seqlens_k
    if _arrays.is_on_host(seqlens_k):
        before = _attention_shapes.row_of_numbers("seqlens_k", seqlens_k)
        _attention_shapes.check_count("seqlens_k", len(before), batch)
        positions = 0 if cos is None else (*_arrays.shape_of(cos, "cos"), 0)[0]
        ends = rooms if cos is None else [min(room, positions) for room in rooms]
        _check_places(before.tolist(), counts, ends)
        found["seqlens_k"] = sys.modules["numpy"].ascontiguousarray(before, "int32")
    if longest is not None:
        limit = _attention_shapes.check_most("q", limit, longest)
    return found, limit


def _counts(seqlens_q: Any, new: Tuple[int, ...], layout: str, batch: int, is_packed: bool
            ) -> Tuple[Optional[List[int]], Any, Optional[int]]:
    """How many new tokens each sequence has, where that can be read; the array that the kernel
    takes; the most of a packed sequence."""
    tokens = _attention_shapes.tokens_in(new, layout)
    if seqlens_q is None:
        return [tokens] * batch, None, None
    if not _arrays.is_on_host(seqlens_q):
        return None, seqlens_q, None
    array = _attention_shapes.row_of_numbers("seqlens_q", seqlens_q)
    numbers = array.tolist()
    as_int32 = sys.modules["numpy"].ascontiguousarray(array, "int32")
    _attention_shapes.check_count("seqlens_q", len(numbers), batch + int(is_packed))
    if not is_packed:
        _attention_shapes.check_lengths("seqlens_q", numbers, "k_new", tokens)
        return numbers, as_int32, None
    longest = _attention_shapes.check_sums("seqlens_q", numbers, "k_new", tokens)
    return [after - first for first, after in zip(numbers, numbers[1:])], as_int32, longest


def _check_places(before: List[int], counts: Optional[List[int]], ends: List[int]) -> None:
    for i, (length, end) in enumerate(zip(before, ends)):
        count = 0 if counts is None else counts[i]
        if length < 0 or length + count > end:
            raise Error(f"seqlens_k[{i}] must be at least 0 and at most {end - count}, because "
                        f"{count} new tokens need places below {end}, got {length}")


# ---- Calls ---------------------------------------------------------------------------------------

_SLOTS = ("k", "v", "k_new", "v_new", "q", "cos", "sin", "out", "seqlens_q", "seqlens_k",
          "page_table", "page_starts", "bad_page")


def _make(call: Call) -> List[New]:
    like = call.views.get("q")
    if like is None or "out" in call.views:
        return []
    made = _arrays.empty(like.shape, like.dtype, call.given["q"], like)
    return [New("out", made, 0.0 if "seqlens_q" in call.views else None)]


def problem_fields(options: Options, views: Views) -> Dict[str, Any]:
    found = _tokens(options, views)
    k, new = found["k"], found["k_new"]
    is_packed = len(views["k_new"].shape) == 3
    word = views["k"].dtype
    heads = found["q"].heads[0] if "q" in found else k.heads[0]
    pages: Dict[str, Any] = {}
    if "page_table" in views:
        pages = _paged.page_fields(views, k, "bad_page" in views)
    batch = pages.get("batch", k.batch[0])
    if not is_packed and new.batch[0] != batch:
        raise Error(f"k_new has {new.batch[0]} sequences and page_table {batch}; the two must be "
                    "equal")
    fields: Dict[str, Any] = {
        "kind": "append", "in": word, "out": word, "dtype_bias": word, "batch": batch,
        "heads": heads, "seqlen_q": new.tokens[0], "hdim": k.hdim[0],
        "seqlen_k": k.tokens[0] if options.room is None else options.room, **pages}
    if k.heads[0] != heads:
        fields["heads_kv"] = k.heads[0]
    if found["v"].hdim[0] != k.hdim[0]:
        fields["hdim_v"] = found["v"].hdim[0]
    if is_packed:
        fields.update(lengths="packed", tokens_q=new.tokens[0])
        if options.longest_q is not None:
            fields["seqlen_q"] = options.longest_q
    elif "seqlens_q" in views:
        fields["lengths"] = "padded"
    in_runs = len(views["k"].shape) == 5
    for part in found.values():
        if not in_runs or part.name not in ("k", "v"):
            fields.update(_attention_fields.stride_fields(part.name, part[1:]))
    fields.update(_rotary_fields(options, views))
    _check_lengths(views, batch, is_packed)
    return fields


def _tokens(options: Options, views: Views) -> Dict[str, Tokens]:
    """All arrays of tokens, which fit together."""
    names = [name for name in ("k", "v", "k_new", "v_new", "q", "out") if name in views]
    rank, is_paged = len(views["k_new"].shape), "page_table" in views
    in_runs = is_paged and len(views["k"].shape) == 5
    for name in names:
        wanted = (5 if in_runs else 4) if name in ("k", "v") else rank
        if len(views[name].shape) != wanted:
            raise Error(f"{name} must have {wanted} dimensions, got {len(views[name].shape)}")
        if views[name].dtype != views["k"].dtype:
            raise Error(f"k has the type {_dtypes.NAMES[views['k'].dtype]} and {name} "
                        f"{_dtypes.NAMES[views[name].dtype]}; the two must be equal")
    found = {name: _paged.runs(name, views[name]) if in_runs and name in ("k", "v")
             else _attention_shapes.tokens_of(name, views[name], options.layout)
             for name in names}
    rows = _EQUAL_IN_PAGES if is_paged else _EQUAL
    # Packed tokens have no sequences of their own, which caches have.
    _attention_shapes.check_equal(found, [row for row in rows if rank == 4 or
                                          row[2] != "sequences" or row[1] == "v"])
    if "out" in views and views["out"].shape != views["q"].shape:
        raise Error(f"out must have the shape {views['q'].shape}, got {views['out'].shape}")
    return found


# Pairs of arrays, and what is equal in both.
_EQUAL = (("k", "v", "sequences", "batch"), ("k", "v", "heads", "heads"),
          ("k", "v", "tokens", "tokens"), ("k", "k_new", "sequences", "batch"),
          ("k", "k_new", "heads", "heads"), ("k", "k_new", "elements a head", "hdim"),
          ("k_new", "v_new", "sequences", "batch"), ("k_new", "v_new", "tokens", "tokens"),
          ("v", "v_new", "heads", "heads"), ("v", "v_new", "elements a head", "hdim"),
          ("k_new", "q", "sequences", "batch"), ("k_new", "q", "tokens", "tokens"),
          ("k_new", "q", "elements a head", "hdim"))
_EQUAL_IN_PAGES = (("k", "v", "pages", "batch"), ("k", "v", "heads", "heads"),
                   ("k", "v", "tokens a page", "tokens"), *_EQUAL[4:])


def _rotary_fields(options: Options, views: Views) -> Dict[str, Any]:
    if options.rotary is None:
        return {}
    for name in ("cos", "sin"):
        view = views[name]
        if view.dtype != "fp32" or len(view.shape) != 2 or view.shape != views["cos"].shape:
            raise Error(f"{name} must have the type float32 and 2 dimensions, those of cos, got "
                        f"{_dtypes.NAMES[view.dtype]} and {view.shape}")
        if 0 not in view.shape and view.strides != _arrays.packed_strides(view.shape):
            raise Error(f"{name} must have no gaps, got the strides {view.strides} over "
                        f"{view.shape}")
    positions, pairs = views["cos"].shape
    if pairs == 0:
        raise Error("cos and sin must have at least 1 column, got 0")
    return {"rotary": options.rotary, "rotary_dim": 2 * pairs, "rotary_positions": positions,
            "rotate_q": "q" in views}


def _check_lengths(views: Views, batch: int, is_packed: bool) -> None:
    for name, wanted in (("seqlens_k", batch), ("seqlens_q", batch + int(is_packed))):
        if name not in views:
            continue
        if views[name].dtype != "int32" or len(views[name].shape) != 1:
            raise Error(f"{name} must have the type int32 and 1 dimension, got "
                        f"{_dtypes.NAMES[views[name].dtype]} and {views[name].shape}")
        _attention_shapes.check_count(name, views[name].shape[0], wanted)


_ROW = Row("fmha", _SLOTS, ("k", "v", "k_new", "v_new"), ("k", "v", "out"),
           lambda options, views: options, _make, problem_fields)
