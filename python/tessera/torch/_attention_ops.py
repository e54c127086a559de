"""The operator torch.ops.tessera.attention: what it computes, and its shapes. It is registered with
its derivative, in _attention_backward.py."""
from __future__ import annotations

from typing import Any, List, Optional, Tuple

import torch

from .. import _paged
from .._abi import Error
from .._attention_shapes import Options
from ._attention_run import Pages, new_results, run_attention
from ._operators import check

Tensor = torch.Tensor
SCHEMA = ("attention(Tensor q, Tensor k, Tensor v, Tensor? bias, Tensor? slopes, "
          "Tensor? seqlens_q, Tensor? seqlens_k, Tensor? dropout_rng, Tensor? page_table, "
          "Tensor? page_starts, str layout, str? mask, int[]? window, int sink, "
          "float? scale, float soft_cap, int? max_seqlen_q, int? max_seqlen_k, int skip_q, "
          "float dropout, bool has_lse, bool has_random, bool? check_pages=None, "
          "Tensor? descale_q=None, Tensor? descale_k=None, Tensor? descale_v=None, "
          "Tensor? scale_o=None, int? scale_block_q=None, int? scale_block_k=None, "
          "ScalarType? out_dtype=None, int num_splits=0) -> (Tensor, Tensor, Tensor)")


def run(q: Tensor, k: Tensor, v: Tensor, bias: Optional[Tensor], slopes: Optional[Tensor],
        seqlens_q: Optional[Tensor], seqlens_k: Optional[Tensor], dropout_rng: Optional[Tensor],
        page_table: Optional[Tensor], page_starts: Optional[Tensor], layout: str,
        mask: Optional[str], window: Optional[List[int]], sink: int, scale: Optional[float],
        soft_cap: float, max_seqlen_q: Optional[int], max_seqlen_k: Optional[int], skip_q: int,
        dropout: float, has_lse: bool, has_random: bool, check_pages: Optional[bool] = None,
        descale_q: Optional[Tensor] = None, descale_k: Optional[Tensor] = None,
        descale_v: Optional[Tensor] = None, scale_o: Optional[Tensor] = None,
        scale_block_q: Optional[int] = None, scale_block_k: Optional[int] = None,
        out_dtype: Optional[torch.dtype] = None,
        num_splits: int = 0) -> Tuple[Tensor, Tensor, Tensor]:
    """out, lse and dropout's random values, which are empty where they are not asked for."""
    if bias is not None and slopes is not None:
        raise Error("bias and slopes cannot both be given; add the slopes to the bias")
    options = Options(layout, mask, None if window is None else tuple(window), sink, scale,
                      soft_cap, skip_q, max_seqlen_q, max_seqlen_k, dropout,
                      (scale_block_q, scale_block_k), num_splits, has_lse, has_random)
    try:
        return run_attention(q, k, v, bias, slopes, seqlens_q, seqlens_k, dropout_rng, options,
                             Pages(page_table, page_starts, check_pages),
                             (descale_q, descale_k, descale_v, scale_o), out_dtype)
    except Error as error:
        if str(error).startswith("fmha"):
            raise
        raise Error(f"attention: {error}", error.code, error.details) from None


def fake(q: Tensor, k: Tensor, v: Tensor, bias: Optional[Tensor], slopes: Optional[Tensor],
          seqlens_q: Optional[Tensor], seqlens_k: Optional[Tensor], dropout_rng: Optional[Tensor],
          page_table: Optional[Tensor], page_starts: Optional[Tensor], layout: str,
          mask: Optional[str], window: Optional[List[int]], sink: int, scale: Optional[float],
          soft_cap: float, max_seqlen_q: Optional[int], max_seqlen_k: Optional[int], skip_q: int,
          dropout: float, has_lse: bool, has_random: bool, check_pages: Optional[bool] = None,
          descale_q: Optional[Tensor] = None, descale_k: Optional[Tensor] = None,
          descale_v: Optional[Tensor] = None, scale_o: Optional[Tensor] = None,
          scale_block_q: Optional[int] = None, scale_block_k: Optional[int] = None,
          out_dtype: Optional[torch.dtype] = None,
          num_splits: int = 0) -> Tuple[Tensor, Tensor, Tensor]:
    is_paged, hdim = page_table is not None, k.shape[-1]
    check(q.dim() in (3, 4), "q must have 4 dimensions, or 3")
    for tensor in (k, v):
        is_right = tensor.dim() == (k.dim() if is_paged else q.dim())
        check(is_right and (not is_paged or k.dim() in (4, 5)),
              "q, k and v must all have 4 dimensions, or 3; caches of pages 4, or 5")
    if k.dim() == 5:
        hdim = k.shape[2] * k.shape[4]
    check(q.shape[-1] == hdim, "q and k must have heads of one length")
    if page_table is not None and has_random:
        max_seqlen_k = _paged.room_of(tuple(page_table.shape),
                                      _paged.page_size(tuple(k.shape), layout), max_seqlen_k)
    is_packed = q.dim() == 3 and seqlens_q is not None
    check(not (is_packed and has_random and max_seqlen_k is None),
          "random values of packed tokens need max_seqlen_k here")
    options = Options(layout, mask, None, sink, scale, soft_cap, skip_q, max_seqlen_q,
                      max_seqlen_k, dropout, lse=has_lse, random=has_random)
    return new_results(q, k, v, options, False, out_dtype)


# ---- Mixed precision -----------------------------------------------------------------------------

def cast_and_call(device: str) -> Any:
    """As PyTorch does under torch.autocast: in the smaller type, and the slopes as they are, and
    numbers of 8 bits, too."""
    def call(*arguments: Any) -> Any:
        dtype = torch.get_autocast_dtype(device)
        with torch.autocast(device, enabled=False):
            cast = [t if t is None or not t.is_floating_point() or t.itemsize == 1 else t.to(dtype)
                    for t in arguments[:4]]
            return torch.ops.tessera.attention(*cast, *arguments[4:])
    return call
