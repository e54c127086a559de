"""Appending to a cache of keys and values: the operator torch.ops.tessera.append_kv."""
from __future__ import annotations

import functools
from typing import Any, Optional

import torch

from .. import _append, _attention_scales, _sequences
from .._abi import Error
from .._checks import named
from . import _run
from ._attention_ops import TENSORS
from ._functions import call_anew, check_tensors, ops
from ._operators import Operator, register

Tensor = torch.Tensor
_NAMES = ("k_cache", "v_cache", "k_new", "v_new", "seqlens_k", "q", "cos", "sin", "seqlens_q",
          "page_table", "page_starts", "descale_k", "descale_v")
_SCHEMA = ("append_kv(Tensor(a!) k_cache, Tensor(b!) v_cache, Tensor k_new, Tensor v_new, "
           "Tensor seqlens_k, Tensor? q, Tensor? cos, Tensor? sin, Tensor? seqlens_q, "
           "Tensor? page_table, Tensor? page_starts, Tensor(c!)? descale_k, "
           "Tensor(d!)? descale_v, str? rotary, int? max_seqlen_q, bool? check_pages, "
           "str layout) -> Tensor")
_ROW = functools.partial(
    _run.bind_row, ("k", "v", "k_new", "v_new", "q", "cos", "sin", "seqlens_q", "seqlens_k",
                    "page_table", "page_starts", "descale_k", "descale_v", "bad_page", "out"),
    _append.problem_fields, written=("k", "v"))


def run(*arguments: Any) -> Tensor:
    """q as it was turned, in new memory; without q a tensor without elements."""
    try:
        return _run_append(*arguments)
    except Error as error:
        raise named("append_kv", error) from None


def _run_append(k_cache: Tensor, v_cache: Tensor, k_new: Tensor, v_new: Tensor, seqlens_k: Tensor,
                q: Optional[Tensor], cos: Optional[Tensor], sin: Optional[Tensor],
                seqlens_q: Optional[Tensor], page_table: Optional[Tensor],
                page_starts: Optional[Tensor], descale_k: Optional[Tensor],
                descale_v: Optional[Tensor], rotary: Optional[str], max_seqlen_q: Optional[int],
                check_pages: Optional[bool], layout: str) -> Tensor:
    options = _append.checked(rotary, q, cos, sin, None, layout, max_seqlen_q)
    pages, report = _sequences.pages_of(TENSORS, k_new, page_table, page_starts, check_pages)
    lengths, options = _append.lengths_of(TENSORS, k_cache, k_new, (seqlens_q, seqlens_k), cos,
                                          pages, options)
    out = None if q is None else torch.empty_like(q)
    if out is not None and seqlens_q is not None:
        out.zero_()
    tensors = (k_cache, v_cache, k_new, v_new, q, cos, sin, *lengths, *pages, descale_k, descale_v,
               report, out)
    _run.run(_ROW, options, tensors, k_cache)
    if report is not None:
        _sequences.check_report(report, pages, k_cache)
    return k_new.new_empty(0) if out is None else out


def _fake(k_cache: Tensor, v_cache: Tensor, k_new: Tensor, v_new: Tensor, seqlens_k: Tensor,
          q: Optional[Tensor], *others: Any) -> Tensor:
    return k_new.new_empty(0) if q is None else torch.empty_like(q)


register(Operator(_SCHEMA, run, _fake, refusal="a cache has no gradient and no derivative; call it "
                  "under torch.no_grad() and with tensors that carry none"))


def append_kv(k_cache: Tensor, v_cache: Tensor, k_new: Tensor, v_new: Tensor, seqlens_k: Tensor, *,
              q: Optional[Tensor] = None, cos: Optional[Tensor] = None,
              sin: Optional[Tensor] = None, rotary: Optional[str] = None,
              seqlens_q: Optional[Tensor] = None, max_seqlen_q: Optional[int] = None,
              page_table: Optional[Tensor] = None, page_starts: Optional[Tensor] = None,
              check_pages: Optional[bool] = None, descale_k: Any = None, descale_v: Any = None,
              layout: str = "bshd") -> Optional[Tensor]:
    """Writes new keys and values behind those that a cache has, in place, as tessera.append_kv().

    k_cache: (batch, room, heads_kv, hdim), or the pages of a cache with page_table. seqlens_k,
    seqlens_q, page_table, page_starts: int32 or int64, on the device of k_cache. descale_k,
    descale_v: numbers or tensors for caches of float8 beside new keys of another type; factors of
    tokens are written. Returns q as it was turned, in new memory; None without q. No input may
    require a gradient.
    """
    check_tensors("append_kv", _NAMES, (k_cache, v_cache, k_new), 3)
    try:
        scales = _attention_scales.cache_arrays_of((descale_k, descale_v), k_new)
    except Error as error:
        raise named("append_kv", error) from None
    tensors = (k_cache, v_cache, k_new, v_new, seqlens_k, q, cos, sin, seqlens_q, page_table,
               page_starts, *scales)
    check_tensors("append_kv", _NAMES, tensors, 5)
    if torch.is_grad_enabled():
        for name, tensor in zip(_NAMES[:4], tensors):
            if tensor.requires_grad:  # type: ignore[union-attr]
                raise Error(f"append_kv: {name} requires a gradient, which a cache has not; call "
                            "it under torch.no_grad()", "unsupported")
    out = call_anew(ops.append_kv, run, 5, tensors, rotary, max_seqlen_q, check_pages, layout)
    return None if q is None else out
