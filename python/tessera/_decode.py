"""Attention of the newest tokens of sequences over a cache of their keys and values."""
from __future__ import annotations

from typing import Any, Optional

from . import _arrays, _attention_shapes
from ._abi import Error
from ._arrays import Array
from ._attention import attention
from ._attention_shapes import Options
from ._checks import refusal
from ._dispatcher import Dispatcher
from ._extend import Appended, extend
from ._values import check_equal, flag, shown


def decode(q: Array, k_cache: Array, v_cache: Array, seqlens_k: Any = None, *,
           k_new: Optional[Array] = None, v_new: Optional[Array] = None,
           cos: Optional[Array] = None, sin: Optional[Array] = None, rotary: Optional[str] = None,
           seqlens_q: Any = None, page_table: Any = None, page_starts: Any = None,
           check_pages: Optional[bool] = None, window: Any = None, sink: int = 0,
           slopes: Optional[Array] = None, scale: Optional[float] = None, soft_cap: float = 0.0,
           max_seqlen_k: Optional[int] = None, descale_k: Any = None, descale_v: Any = None,
           num_splits: int = 0, return_lse: bool = False, layout: str = "bshd",
           out: Optional[Array] = None, stream: Any = None,
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
    descale_k, descale_v: of caches of float8 beside q, k_new and v_new of another type, as in
    attention() and append_kv(); factors of tokens are written where new keys are.
    window, sink, slopes, scale, soft_cap, max_seqlen_k, num_splits, return_lse, out, stream,
    dispatcher: as in attention().

    Returns out, (batch, tokens, heads, hdim_v), or (out, lse), of one launch.
    """
    try:
        tokens = _tokens(q, layout)
        _check_new(k_new, v_new, rotary, seqlens_k)
        mask = None if tokens == 1 and window is None else "bottom_right"
        if k_new is None:
            return attention(q, k_cache, v_cache, mask=mask, window=window, sink=sink,
                             slopes=slopes, scale=scale, soft_cap=soft_cap, seqlens_q=seqlens_q,
                             seqlens_k=seqlens_k, max_seqlen_k=max_seqlen_k,
                             descale_k=descale_k, descale_v=descale_v, num_splits=num_splits,
                             return_lse=return_lse, out=out, page_table=page_table,
                             page_starts=page_starts, check_pages=check_pages, layout=layout,
                             stream=stream, dispatcher=dispatcher)
        check_equal("{} tokens", "q", tokens, "k_new", _tokens(k_new, layout, "k_new"))
        options = Options(layout, mask, tuple(window) if isinstance(window, list) else window, sink,
                          scale, soft_cap, 0, None, max_seqlen_k, num_splits=num_splits,
                          lse=flag("return_lse", return_lse))
        new = Appended(k_new, v_new, rotary, cos, sin, seqlens_q, seqlens_k)
        return extend((q, k_cache, v_cache), new, options, (page_table, page_starts, check_pages),
                      slopes, (descale_k, descale_v), out, stream, dispatcher)
    except Exception as failure:
        raise refusal(decode, locals(), failure) from None


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
