"""Attention: the function of PyTorch over Tessera's kernels, and one with all that these can."""
from __future__ import annotations

from typing import Any, Optional, Sequence, Tuple, Union

import torch

from .. import _attention_scales
from .._abi import Error
from .._checks import named
from .._layout import broadcast
from . import _attention_backward, _attention_ops, _run, _warm
from ._attention_ops import random_words, words_of
from ._functions import call_found, check_found, check_tensors, ops

Tensor = torch.Tensor
_TENSORS = ("q", "k", "v", "bias", "slopes", "seqlens_q", "seqlens_k", "page_table", "page_starts")



def _needs_gradients(named: Sequence[Tuple[str, Optional[Tensor]]], is_paged: bool = False) -> bool:
    """Whether lse is to be kept for them; refuses those that there are not."""
    if not torch.is_grad_enabled() or not any(tensor is not None and tensor.requires_grad
                                              for _, tensor in named):
        return False
    why = _attention_backward.refusal(named, is_paged)
    if why is not None:
        raise Error(f"attention: {why}", "unsupported")
    return True


def _scales_of(given: Tuple[Any, ...], q: Tensor, out_dtype: Optional[torch.dtype]
               ) -> Tuple[Optional[Tensor], ...]:
    """As tensors beside q. A result of 8 bits has a factor where the inputs have."""
    if given[0] is not None and given[3] is None and (out_dtype or q.dtype).itemsize == 1:
        given = (*given[:3], 1.0 if out_dtype is not None else None)
    return _attention_scales.arrays_of(given, q, None)


def _check_longest(q: Tensor, seqlens_q: Optional[Tensor], longest: Optional[int]) -> None:
    """Short sequences have kernels of their own, and a call does not read lengths on a GPU."""
    is_packed = seqlens_q is not None and q.dim() == 3
    if is_packed and longest is None and q.device.type != "cpu" and \
            _run.are_batch_invariant_kernels_enabled():
        raise Error("attention: max_seqlen_q must be given with packed tokens on a GPU and batch "
                    "invariant kernels, because the bits of a sequence follow from it, got None")


def attention(q: Tensor, k: Tensor, v: Tensor, *, mask: Optional[str] = None, window: Any = None,
              sink: int = 0, bias: Optional[Tensor] = None, slopes: Optional[Tensor] = None,
              scale: Optional[float] = None, soft_cap: float = 0.0,
              seqlens_q: Optional[Tensor] = None, seqlens_k: Optional[Tensor] = None,
              max_seqlen_q: Optional[int] = None, max_seqlen_k: Optional[int] = None,
              skip_q: int = 0, page_table: Optional[Tensor] = None,
              page_starts: Optional[Tensor] = None, check_pages: Optional[bool] = None,
              dropout: float = 0.0, seed: Union[None, int, Tensor] = None,
              offset: int = 0, descale_q: Any = None, descale_k: Any = None, descale_v: Any = None,
              scale_o: Any = None, scale_block_q: Optional[int] = None,
              scale_block_k: Optional[int] = None, out_dtype: Optional[torch.dtype] = None,
              num_splits: int = 0, return_lse: bool = False, return_random: bool = False,
              layout: str = "bshd") -> Union[Tensor, Tuple[Tensor, ...]]:
    """softmax(scale * q @ k.T + bias) @ v of each sequence and head, as tessera.attention() has it.

    q: (batch, queries, heads, hdim), or (batch, heads, queries, hdim) with layout="bhsd". Tensors
    are taken as they lie. seqlens_q, seqlens_k: int32 or int64, on q's device. page_table,
    page_starts: of the same types there; k and v are then caches of pages, (pages, tokens,
    heads_kv, hdim) or in runs of 16 bytes. check_pages=True refuses a page out of range, as calls
    on a CPU do; on a GPU it waits for the launch. seed, offset: of
    dropout; PyTorch's generator draws them where they are left out, and seed may be a tensor of
    both, int64, on q's device. descale_q, descale_k, descale_v, scale_o: of tensors of float8,
    numbers or float32 tensors on q's device. out_dtype: float16, bfloat16, float32 or one of
    float8; None is q's, and float16 for float8. num_splits: as in tessera.attention(). The results
    of queries that are left out hold 0, and minus infinity in lse. Gradients of q, k, v, bias and
    slopes are computed, except with 8 bits or pages.
    """
    scale = None if scale is None else float(scale)
    found = None
    if not torch.compiler.is_dynamo_compiling() and dropout == 0 and not return_random and \
            seqlens_q is seqlens_k is page_table is page_starts is descale_q is None and \
            descale_k is descale_v is scale_o is None:
        arguments = (q, k, v, bias, slopes, mask, window, sink, scale, soft_cap, max_seqlen_q,
                     max_seqlen_k, skip_q, check_pages, scale_block_q, scale_block_k, out_dtype,
                     num_splits, return_lse, layout)
        found = _warm.find("attention", *arguments)
        if type(found) in _warm.RESULTS:
            return found  # type: ignore[no-any-return]
        _warm.see(None)
    check_found(found, "attention", _TENSORS, (q, k, v, bias, slopes, seqlens_q, seqlens_k,
                                                page_table, page_starts), 3)
    _check_longest(q, seqlens_q, max_seqlen_q)
    has_lse = return_lse or _needs_gradients(
        (("q", q), ("k", k), ("v", v), ("bias", bias), ("slopes", slopes)), page_table is not None)
    ends = window
    if window is not None:
        if not isinstance(window, (tuple, list)) or len(window) != 2:
            raise Error(f"attention: window must be a pair (left, right), got {window!r}")
        ends = list(window)
    try:
        words = words_of(dropout, seed, offset, q)
        scales = _scales_of((descale_q, descale_k, descale_v, scale_o), q, out_dtype)
    except Error as error:
        raise named("attention", error) from None
    check_tensors("attention", _attention_scales.NAMES, scales, 0)
    tensors = (q, k, v, bias, slopes, seqlens_q, seqlens_k, words, page_table, page_starts)
    out, lse, random = call_found(
        found, ops.attention, _attention_ops.run, 3, tensors, layout, mask, ends, sink, scale,
        float(soft_cap), max_seqlen_q, max_seqlen_k, skip_q, float(dropout), has_lse, return_random,
        check_pages, *scales, scale_block_q, scale_block_k, out_dtype, num_splits)
    asked = (out,) + (lse,) * return_lse + (random,) * return_random
    results = asked if len(asked) > 1 else out
    if type(found) is list:
        _warm.keep(found, arguments, _attention_ops.SLOTS, results)
    return results


# ---- PyTorch's function --------------------------------------------------------------------------

_NAME = "scaled_dot_product_attention"


def _lead(tensors: Sequence[Tensor]) -> Tuple[int, ...]:
    """The common dimensions before the heads."""
    return broadcast(("query", "key", "value"), [tuple(tensor.shape[:-3]) for tensor in tensors],
                     _NAME)


def _four_dimensions(query: Tensor, key: Tensor, value: Tensor, mask: Optional[Tensor]
                     ) -> Tuple[Tensor, Tensor, Tensor, Optional[Tensor]]:
    """(batch, heads, tokens, hdim); more dimensions before the heads are one, and what is repeated
    along them has no memory of its own."""
    tensors = []
    for name, tensor in (("query", query), ("key", key), ("value", value)):
        if tensor.dim() < 2:
            raise Error(f"{_NAME}: {name} must have at least 2 dimensions, got {tensor.dim()}")
        tensors.append(tensor[(None,) * max(0, 4 - tensor.dim())])
    lead = _lead(tensors)
    query, key, value = (tensor.expand(*lead, *tensor.shape[-3:]).flatten(0, -4)
                         for tensor in tensors)
    if mask is not None and mask.dim() > 3:
        mask = mask.expand(*lead, *mask.shape[-3:]).flatten(0, -4)
    return query, key, value, mask


def _heads(query: Tensor, key: Tensor, value: Tensor, enable_gqa: bool
           ) -> Tuple[Tensor, Tensor, Tensor]:
    """One head is repeated as PyTorch does, several only where groups are asked for."""
    of_q, of_k, of_v = (tensor.shape[-3] for tensor in (query, key, value))
    of_kv = max(of_k, of_v)
    key, value = (tensor.expand(-1, of_kv, -1, -1) if tensor.shape[-3] == 1 else tensor
                  for tensor in (key, value))
    if not enable_gqa and of_q == 1:
        query, of_q = query.expand(-1, of_kv, -1, -1), of_kv
    if not enable_gqa and of_kv not in (1, of_q):
        raise Error(f"{_NAME}: query has {of_q} heads and key {of_kv}; the two must be equal where "
                    "enable_gqa is False")
    return query, key, value


def _added(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """What is added to the scores: of a mask of truth values 0 and minus infinity."""
    if mask.dtype != torch.bool:
        return mask
    return torch.zeros_like(mask, dtype=dtype).masked_fill(~mask, float("-inf"))


def _forward(found: Any, q: Tensor, k: Tensor, v: Tensor, mask: Optional[Tensor], is_causal: bool,
             scale: Optional[float], dropout: float, has_lse: bool) -> Tensor:
    """found: what find() said."""
    bias = None if mask is None else _added(mask, q.dtype)
    words = random_words(q) if dropout != 0 else None
    tensors = (q, k, v, bias, None, None, None, words, None, None)
    return call_found(found, ops.attention, _attention_ops.run, 3, tensors, "bhsd",
                      "top_left" if is_causal else None, None, 0, scale, 0.0, None, None, 0,
                      float(dropout), has_lse, False, None)[0]


def scaled_dot_product_attention(query: Tensor, key: Tensor, value: Tensor,
                                 attn_mask: Optional[Tensor] = None, dropout_p: float = 0.0,
                                 is_causal: bool = False, scale: Optional[float] = None,
                                 enable_gqa: bool = False) -> Tensor:
    """torch.nn.functional.scaled_dot_product_attention, with gradients.

    Types: float32, float16, bfloat16. query: (..., heads, queries, hdim); any strides, and heads or
    leading dimensions that are repeated, cost nothing. attn_mask: truth values, or what is added to
    the scores. dropout_p: below 1; PyTorch's generator says which weights become 0, and they are
    others than PyTorch's own.
    """
    scale = None if scale is None else float(scale)
    found = None
    if not torch.compiler.is_dynamo_compiling() and dropout_p == 0:
        arguments = query, key, value, attn_mask, is_causal, scale, enable_gqa
        found = _warm.find(_NAME, *arguments)
        if type(found) in _warm.RESULTS:
            return found  # type: ignore[no-any-return]
        _warm.see(None)
    check_found(found, _NAME, ("query", "key", "value", "attn_mask"),
                (query, key, value, attn_mask), 3)
    if not 0 <= dropout_p < 1:
        raise Error(f"{_NAME}: dropout_p must be at least 0 and below 1, got {dropout_p}")
    if attn_mask is not None and is_causal:
        raise Error(f"{_NAME}: attn_mask and is_causal cannot both be given")
    has_lse = _needs_gradients((("query", query), ("key", key), ("value", value),
                                ("attn_mask", attn_mask)))
    is_plain = query.dim() == key.dim() == value.dim() == 4
    if is_plain and query.shape[:2] == key.shape[:2] == value.shape[:2]:
        out = _forward(found, query, key, value, attn_mask, is_causal, scale, dropout_p, has_lse)
        if type(found) is list and (attn_mask is None or attn_mask.dtype != torch.bool):
            _warm.keep(found, arguments, _attention_ops.SLOTS, out)
        return out
    q, k, v, mask = _four_dimensions(query, key, value, attn_mask)
    q, k, v = _heads(q, k, v, enable_gqa)
    out = _forward(found, q, k, v, mask, is_causal, scale, dropout_p, has_lse)
    rank = max(query.dim(), key.dim(), value.dim())
    if rank > 4:
        return out.unflatten(0, _lead((query, key, value)))
    return out[(0,) * (4 - rank)]
