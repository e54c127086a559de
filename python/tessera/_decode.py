"""Attention of the newest tokens of sequences over a cache of their keys and values."""
from __future__ import annotations

from typing import Any, Optional, Tuple

from . import _append, _arrays, _attention_shapes, _sequences
from ._abi import Error
from ._arrays import Array
from ._attention import attention
from ._attention_shapes import Options
from ._checks import refusal
from ._dispatcher import Dispatcher
from ._extend import Appended, extend
from ._sequences import ARRAYS
from ._values import check_equal, flag, shown


def decode(q: Array, k_cache: Array, v_cache: Array, seqlens_k: Any = None, *,
           k_new: Optional[Array] = None, v_new: Optional[Array] = None,
           cos: Optional[Array] = None, sin: Optional[Array] = None, rotary: Optional[str] = None,
           seqlens_q: Any = None, page_table: Any = None, page_starts: Any = None,
           check_pages: Optional[bool] = None, window: Any = None, sink: int = 0,
           slopes: Optional[Array] = None, scale: Optional[float] = None, soft_cap: float = 0.0,
           max_seqlen_k: Optional[int] = None, num_splits: int = 0, return_lse: bool = False,
           layout: str = "bshd", out: Optional[Array] = None, stream: Any = None,
           dispatcher: Optional[Dispatcher] = None) -> Any:
    """Attention of one query, or of a few that follow each other, over the keys of a cache.

    q: (batch, tokens, heads, hdim), the newest tokens of each sequence, the last of which is its
    last key: a query sees the keys up to its own. k_cache: (batch, room, heads_kv, hdim), v_cache:
    (batch, room, heads_kv, hdim_v); with page_table, page_starts and check_pages caches of pages,
    as in attention(). layout="bhsd": heads before tokens. seqlens_k: (batch,), how many keys each
    sequence has, all of the room without it.
    k_new, v_new: (batch, tokens, heads_kv, hdim) and (batch, tokens, heads_kv, hdim_v) are written
    into the cache first, as append_kv() does; seqlens_k, which must be given, then counts the keys
    before them. rotary, cos, sin: turn the new keys, and q, whose array stays as it is.
    seqlens_q: how many tokens of q, and new keys, each sequence has; all without it.
    window, sink, slopes, scale, soft_cap, max_seqlen_k, num_splits, return_lse, out, stream,
    dispatcher: as in attention().

    Returns out, (batch, tokens, heads, hdim_v), or (out, lse), of one launch.
    """
    try:
        options = Options(layout, None, tuple(window) if isinstance(window, list) else window, sink,
                          scale, soft_cap, 0, None, max_seqlen_k, num_splits=num_splits)
        tokens = _tokens(q, layout)
        _check_new(k_new, v_new, rotary, seqlens_k)
        mask = None if tokens == 1 and window is None else "bottom_right"
        if k_new is None:
            return attention(q, k_cache, v_cache, mask=mask, window=window, sink=sink,
                             slopes=slopes, scale=scale, soft_cap=soft_cap, seqlens_q=seqlens_q,
                             seqlens_k=seqlens_k, max_seqlen_k=max_seqlen_k, num_splits=num_splits,
                             return_lse=return_lse, out=out, page_table=page_table,
                             page_starts=page_starts, check_pages=check_pages, layout=layout,
                             stream=stream, dispatcher=dispatcher)
        check_equal("{} tokens", "q", tokens, "k_new", _tokens(k_new, layout, "k_new"))
        new = Appended(k_new, v_new, rotary, cos, sin, seqlens_q, seqlens_k)
        return _extended((q, k_cache, v_cache), new, options._replace(mask=mask),
                         (page_table, page_starts, check_pages), slopes,
                         (out, True if flag("return_lse", return_lse) else None), stream,
                         dispatcher)
    except Exception as failure:
        raise refusal(decode, locals(), failure) from None


def _extended(arrays: Tuple[Any, Any, Any], new: Appended, options: Options,
              pages: Tuple[Any, Any, Optional[bool]], slopes: Any, results: Tuple[Any, Any],
              stream: Any, dispatcher: Optional[Dispatcher]) -> Any:
    """Checks the lengths of what is appended, and appends and attends."""
    q, k_cache, v_cache = arrays
    _arrays.shape_of(v_cache, "v_cache")
    append = _append.checked(new.rotary, None if new.rotary is None else q, new.cos, new.sin, None,
                             options.layout, None)
    found, report = _sequences.pages_of(ARRAYS, new.keys, *pages)
    (counts, before), _ = _append.lengths_of(ARRAYS, k_cache, new.keys, (new.counts, new.lengths),
                                             new.cos, found, append)
    if counts is None:
        counts = before * 0 + _attention_shapes.tokens_in(_arrays.shape_of(q, "q"), options.layout)
    if found[0] is not None:
        size = _sequences.page_size(_arrays.shape_of(k_cache, "k_cache"), options.layout)
        options = options._replace(longest_k=_sequences.room_of(
            _arrays.shape_of(found[0], "page_table"), size, options.longest_k))
    elif options.longest_k is not None:
        raise Error("max_seqlen_k is for keys in pages, which need page_table")
    new = new._replace(counts=counts, lengths=before + counts)
    out, lse = extend(q, k_cache, v_cache, slopes, new, options, (found, report), results, stream,
                      dispatcher)
    if report is not None:
        _sequences.check_report(report, found, k_cache)
    return out if results[1] is None else (out, lse)


def _tokens(array: Any, layout: Any, name: str = "q") -> int:
    shape = _arrays.shape_of(array, name)
    _attention_shapes.layout_word(layout)
    if len(shape) != 4:
        raise Error(f"{name} must have 4 dimensions, got {len(shape)}; attention() takes "
                    "packed tokens")
    return _attention_shapes.tokens_in(shape, layout)


def _check_new(k_new: Any, v_new: Any, rotary: Optional[str], seqlens_k: Any) -> None:
    if (k_new is None) != (v_new is None):
        given, missing = ("v_new", "k_new") if k_new is None else ("k_new", "v_new")
        raise Error(f"{given} is given without {missing}")
    if k_new is None and rotary is not None:
        raise Error(f"rotary={shown(rotary)} turns new keys; give k_new and v_new")
    if k_new is not None and seqlens_k is None:
        raise Error("k_new needs seqlens_k, how many keys the cache has before it")
