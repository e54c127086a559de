"""Plans for appending tensors to a cache, and their launches; see _run.py. No tensor is copied."""
from __future__ import annotations

from typing import Optional, Tuple

import torch

from .. import _append, _paged
from .._abi import Error
from .._append import Options
from . import _run
from ._attention_run import Pages, checked_pages, indices

Tensor = torch.Tensor
_NAMES = ("k", "v", "k_new", "v_new", "seqlens_k", "q", "cos", "sin", "seqlens_q", "page_table",
          "page_starts", "bad_page", "out")
_ROW = _run.row(_NAMES, _append.problem_fields, written=("k", "v"))


def _checked_lengths(k_cache: Tensor, k_new: Tensor, seqlens_k: Tensor,
                     seqlens_q: Optional[Tensor], cos: Optional[Tensor], pages: Pages,
                     options: Options) -> Tuple[Tensor, Optional[Tensor], Options]:
    """The lengths as the kernel takes them. Values are read on a CPU alone."""
    batch, rooms = _append.rooms_of(k_cache, (pages.table, pages.starts), options.layout)
    seqlens_k = indices("seqlens_k", seqlens_k)
    seqlens_q = None if seqlens_q is None else indices("seqlens_q", seqlens_q)
    _, longest = _append.lengths_of((batch, rooms), k_new, seqlens_k, seqlens_q, cos,
                                    options.longest_q, options.layout)
    room = max(rooms, default=0) if pages.table is not None else None
    return seqlens_k, seqlens_q, options._replace(longest_q=longest, room=room)


def run_append(k_cache: Tensor, v_cache: Tensor, k_new: Tensor, v_new: Tensor, seqlens_k: Tensor,
               q: Optional[Tensor], cos: Optional[Tensor], sin: Optional[Tensor],
               seqlens_q: Optional[Tensor], options: Options, pages: Pages) -> Tensor:
    """q as it was turned, in new memory; without q a tensor without elements."""
    for name, tensor in (("cos", cos), ("sin", sin)):
        if tensor is not None and tensor.dim() != 2:
            raise Error(f"{name} must have 2 dimensions, got {tensor.dim()}")
    pages, report = checked_pages(pages)
    seqlens_k, seqlens_q, options = _checked_lengths(k_cache, k_new, seqlens_k, seqlens_q, cos,
                                                     pages, options)
    out = None if q is None else torch.empty_like(q)
    if out is not None and seqlens_q is not None:
        out.zero_()
    tensors = (k_cache, v_cache, k_new, v_new, seqlens_k, q, cos, sin, seqlens_q, pages.table,
               pages.starts, report, out)
    _run.run(_ROW, options, tensors, k_cache)
    if report is not None:
        _paged.check_report(report, pages.table, pages.starts, k_cache.shape[0])
    return k_new.new_empty(0) if out is None else out
