"""Appending new keys and values to a cache: from arrays to a problem, its plan and its launch."""
from __future__ import annotations

from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from . import _arrays, _attention_scales, _attention_shapes, _dtypes, _engine, _sequences
from ._abi import Error
from ._arrays import Array
from ._checks import refusal
from ._dispatcher import Dispatcher
from ._engine import Call, New, Row, Views
from ._sequences import ARRAYS, Pair
from ._values import shown, whole

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
              page_starts: Any = None, check_pages: Optional[bool] = None, descale_k: Any = None,
              descale_v: Any = None, layout: str = "bshd", out: Optional[Array] = None,
              stream: Any = None,
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
    k_cache and v_cache may have float8_e4m3fn or float8_e5m2 beside new keys and values of another
    type, which are then divided by descale_k and descale_v and rounded: numbers, or float32
    (heads_kv,). Of the shape (batch, heads_kv, room), with page_table (pages, heads_kv, tokens of a
    page), they are written, a factor for each new token and head, from its largest element.

    A token that does not fit into the room, or has no row in cos and sin, is refused where the
    lengths can be read, and left out where they lie on a GPU. Returns out, None without q.
    """
    try:
        for name, array in (("v_cache", v_cache), ("v_new", v_new)):
            _arrays.shape_of(array, name)
        options = checked(rotary, q, cos, sin, out, layout, max_seqlen_q)
        pages, report = _sequences.pages_of(ARRAYS, k_new, page_table, page_starts, check_pages)
        lengths, options = lengths_of(ARRAYS, k_cache, k_new, (seqlens_q, seqlens_k), cos, pages,
                                      options)
        scales = _attention_scales.cache_arrays_of((descale_k, descale_v), k_new)
        arrays = (k_cache, v_cache, k_new, v_new, q, cos, sin, out, *lengths, *pages, report,
                  *scales)
        out = _engine.run(_ROW, arrays, options, stream, dispatcher)[7]
        if report is not None:
            _sequences.check_report(report, pages, k_cache)
        return out
    except Exception as failure:
        raise refusal(append_kv, locals(), failure) from None


# ---- Options and lengths -------------------------------------------------------------------------

def checked(rotary: Optional[str], q: Any, cos: Any, sin: Any, out: Any, layout: Any,
            most: Optional[int]) -> Options:
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
    return Options(layout, rotary, None if most is None else whole("max_seqlen_q", most), None)


def _rooms_of(cache: Tuple[int, ...], pages: Pair, layout: str) -> Tuple[int, List[int]]:
    """How many sequences there are, and how many keys each has room for. A list on a GPU is not
    read, so that each has room for what all entries hold."""
    table, starts = pages
    if table is None:
        if len(cache) != 4:
            raise Error(f"k_cache must have 4 dimensions, got {len(cache)}")
        return cache[0], [_attention_shapes.tokens_in(cache, layout)] * cache[0]
    size, entries = _sequences.page_size(cache, layout), _arrays.shape_of(table, "page_table")
    room = _sequences.room_of(entries, size, None)
    if starts is None:
        return entries[0], [room] * entries[0]
    batch = _arrays.shape_of(starts, "page_starts")[0] - 1
    if not _arrays.is_on_host(starts):
        return batch, [room] * batch
    sums = starts.tolist()
    return batch, [(after - before) * size for before, after in zip(sums, sums[1:])]


def lengths_of(reader: _sequences.Reader, k_cache: Any, k_new: Any, seqlens: Pair, cos: Any,
               pages: Pair, options: Options) -> Tuple[Pair, Options]:
    """seqlens_q and seqlens_k as kernels take them, and the options with what they and the pages
    say: how many new tokens packed sequences have at most, and how many keys have room."""
    new = _arrays.shape_of(k_new, "k_new")
    _attention_shapes.check_ranks({"k_new": len(new)})
    is_packed, most = len(new) == 3, options.longest_q
    if is_packed and seqlens[0] is None:
        raise Error("k_new has 3 dimensions, which are packed tokens; they need seqlens_q, the "
                    "prefix sums of their numbers")
    if most is not None and not is_packed:
        raise Error(f"max_seqlen_q is for packed tokens, k_new of 3 dimensions; got {most}")
    cache = _arrays.shape_of(k_cache, "k_cache")
    batch, rooms = _rooms_of(cache, pages, options.layout)
    tokens = _attention_shapes.tokens_in(new, options.layout)
    counts: Optional[List[int]] = [tokens] * batch
    of_q = None
    if seqlens[0] is not None:
        of_q, counts = reader.row("seqlens_q", seqlens[0])
        if counts is not None:
            _sequences.check_count("seqlens_q", len(counts), batch + is_packed)
            if is_packed:
                longest = _sequences.check_sums("seqlens_q", counts, "k_new", tokens)
                most = _sequences.check_most("q", most, longest)
                counts = [after - before for before, after in zip(counts, counts[1:])]
            else:
                _sequences.check_lengths("seqlens_q", counts, "k_new", tokens)
    of_k, before = reader.row("seqlens_k", seqlens[1])
    if before is not None:
        _sequences.check_count("seqlens_k", len(before), batch)
        positions = None if cos is None else (*_arrays.shape_of(cos, "cos"), 0)[0]
        _check_places(before, counts, rooms if positions is None else
                      [min(room, positions) for room in rooms])
    room = None if pages[0] is None else max(rooms, default=0)
    return (of_q, of_k), Options(options.layout, options.rotary, most, room)


def _check_places(before: List[int], counts: Optional[List[int]], ends: List[int]) -> None:
    for i, (length, end) in enumerate(zip(before, ends)):
        count = 0 if counts is None else counts[i]
        if length < 0 or length + count > end:
            raise Error(f"seqlens_k[{i}] must be at least 0 and at most {end - count}, because "
                        f"{count} new tokens need places below {end}, got {length}")


# ---- Calls ---------------------------------------------------------------------------------------

_SLOTS = ("k", "v", "k_new", "v_new", "q", "cos", "sin", "out", "seqlens_q", "seqlens_k",
          "page_table", "page_starts", "bad_page", "descale_k", "descale_v")


def _make(call: Call) -> List[New]:
    like = call.views.get("q")
    if like is None or "out" in call.views:
        return []
    made = _arrays.empty(like.shape, like.dtype, call.given["q"], like)
    return [New("out", made, 0.0 if "seqlens_q" in call.views else None)]


# Pairs of arrays, and what is equal in both.
_EQUAL = (("k", "k_new", "heads", "heads"), ("k", "k_new", "elements a head", "hdim"),
          ("k_new", "v_new", "sequences", "batch"), ("k_new", "v_new", "tokens", "tokens"),
          ("v", "v_new", "heads", "heads"), ("v", "v_new", "elements a head", "hdim"),
          ("k_new", "q", "sequences", "batch"), ("k_new", "q", "tokens", "tokens"),
          ("k_new", "q", "elements a head", "hdim"))


def problem_fields(options: Options, views: Views) -> Dict[str, Any]:
    tokens = _attention_shapes.all_tokens(
        views, options.layout, (("k", "v"), ("k_new", "v_new", "q", "out")), _EQUAL)
    if "out" in views and views["out"].shape != views["q"].shape:
        raise Error(f"out must have the shape {views['q'].shape}, got {views['out'].shape}")
    fields = {"kind": "append", "out": views["k_new"].dtype,
              **_attention_shapes.token_fields(views, tokens),
              **_sequences.fields(views, tokens["k_new"], tokens["k"], options.longest_q,
                                  options.room),
              **_rotary_fields(options, views)}
    return {**fields, **_attention_scales.cache_fields(views, fields)}


def _rotary_fields(options: Options, views: Views) -> Dict[str, Any]:
    if options.rotary is None:
        return {}
    for name in ("cos", "sin"):
        view = views[name]
        if view.dtype != "fp32" or len(view.shape) != 2 or view.shape != views["cos"].shape:
            raise Error(f"{name} must have the type float32 and 2 dimensions, those of cos, got "
                        f"{_dtypes.NAMES[view.dtype]} and {view.shape}")
        _arrays.check_packed(name, view)
    positions, pairs = views["cos"].shape
    if pairs == 0:
        raise Error("cos and sin must have at least 1 column, got 0")
    return {"rotary": options.rotary, "rotary_dim": 2 * pairs, "rotary_positions": positions,
            "rotate_q": "q" in views}


_ROW = Row("fmha", _SLOTS, ("k", "v", "k_new", "v_new"), ("k", "v", "out"),
           lambda options, views: options, _make, problem_fields)
