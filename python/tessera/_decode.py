"""Attention of the newest tokens of sequences over a cache of their keys and values."""
from __future__ import annotations

import sys
from typing import Any, Optional, Tuple

from . import _arrays, _attention_shapes
from ._abi import Error
from ._append import append_kv
from ._attention import attention
from ._dispatcher import Dispatcher


def decode(q: Any, k_cache: Any, v_cache: Any, seqlens_k: Any = None, *, k_new: Any = None,
           v_new: Any = None, cos: Any = None, sin: Any = None, rotary: Optional[str] = None,
           seqlens_q: Any = None, page_table: Any = None, page_starts: Any = None,
           check_pages: Optional[bool] = None, window: Any = None, sink: int = 0,
           slopes: Any = None, scale: Optional[float] = None, soft_cap: float = 0.0,
           max_seqlen_k: Optional[int] = None, num_splits: int = 0, return_lse: bool = False,
           layout: str = "bshd",
           out: Any = None, stream: Any = None, dispatcher: Optional[Dispatcher] = None) -> Any:
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

    Returns out, (batch, tokens, heads, hdim_v), or (out, lse). Two launches with k_new, one
    without.
    """
    tokens = _tokens(q, layout)
    _check_new(k_new, v_new, rotary, seqlens_k)
    pages = {"page_table": page_table, "page_starts": page_starts, "check_pages": check_pages}
    where = {"layout": layout, "stream": stream, "dispatcher": dispatcher}
    if k_new is not None:
        if _tokens(k_new, layout, "k_new") != tokens:
            raise Error(f"decode: q has {tokens} tokens and k_new "
                        f"{_tokens(k_new, layout, 'k_new')}; the two must be equal")
        turned = append_kv(k_cache, v_cache, k_new, v_new, seqlens_k, q=q if rotary else None,
                           cos=cos, sin=sin, rotary=rotary, seqlens_q=seqlens_q, **pages, **where)
        q = turned if rotary else q
        seqlens_k = _sum(seqlens_k, tokens if seqlens_q is None else seqlens_q)
        if page_table is not None:
            pages["check_pages"] = False  # its pages were looked at
    mask = None if tokens == 1 and window is None else "bottom_right"
    return attention(q, k_cache, v_cache, mask=mask, window=window, sink=sink, slopes=slopes,
                     scale=scale, soft_cap=soft_cap, seqlens_q=seqlens_q, seqlens_k=seqlens_k,
                     max_seqlen_k=max_seqlen_k, num_splits=num_splits, return_lse=return_lse,
                     out=out, **pages, **where)


def _shape_of(array: Any, name: str) -> Tuple[int, ...]:
    shape = getattr(array, "shape", None)
    return _arrays.view_of(array, name).shape if shape is None else tuple(shape)


def _tokens(array: Any, layout: Any, name: str = "q") -> int:
    shape = _shape_of(array, name)
    try:
        _attention_shapes.layout_word(layout)
    except Error as error:
        raise Error(f"decode: {error}", error.code, error.details) from None
    if len(shape) != 4:
        raise Error(f"decode: {name} must have 4 dimensions, got {len(shape)}; attention() takes "
                    "packed tokens")
    return _attention_shapes.tokens_in(shape, layout)


def _check_new(k_new: Any, v_new: Any, rotary: Optional[str], seqlens_k: Any) -> None:
    if (k_new is None) != (v_new is None):
        given, missing = ("v_new", "k_new") if k_new is None else ("k_new", "v_new")
        raise Error(f"decode: {given} is given without {missing}")
    if k_new is None and rotary is not None:
        raise Error(f"decode: rotary={rotary!r} turns new keys; give k_new and v_new")
    if k_new is not None and seqlens_k is None:
        raise Error("decode: k_new needs seqlens_k, how many keys the cache has before it")


def _sum(before: Any, count: Any) -> Any:
    """How many keys there are behind the new ones, of lists and of arrays of any package."""
    if not _arrays.is_on_host(before):
        return before + count
    numpy = sys.modules["numpy"]
    return numpy.add(before, count).astype("int32")
