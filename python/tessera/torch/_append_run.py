"""Plans for appending tensors to a cache, and their launches; see _run.py. No tensor is copied."""
from __future__ import annotations

from typing import Any, Dict, Optional, Sequence, Tuple

import torch

from .. import _append, _arrays, _paged
from .._abi import Error
from .._append import Options
from .._problem import Problem
from . import _run
from ._attention_run import Pages, checked_pages, indices

Tensor = torch.Tensor
_NAMES = ("k", "v", "k_new", "v_new", "seqlens_k", "q", "cos", "sin", "seqlens_q", "page_table",
          "page_starts", "bad_page", "out")
_ways: Dict[Any, _run.Bound] = {}


def _bind(key: Any, options: Options, tensors: Sequence[Optional[Tensor]]) -> _run.Bound:
    """tensors: in the order of _NAMES."""
    given = [(name, tensor) for name, tensor in zip(_NAMES, tensors) if tensor is not None]
    _run.check_devices(given)
    views = {name: _run.tensor_view(tensor, name) for name, tensor in given}
    for name in ("k", "v"):
        _arrays.check_output(views[name], name)
    device = given[0][1].device
    plan = _run.plan_for(Problem("fmha", **_append.problem_fields(options, views)), device)
    sources = [_NAMES.index(operand.name) for operand in plan.operands]
    if len(_ways) >= _run.MOST_ENTRIES:
        _ways.clear()
    _ways[key] = bound = _run.bind(plan, sources, tensors, [], [], device)
    return bound


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
    key = (options, *map(_run._key_of, tensors), _run.settings())
    bound = _ways.get(key) or _bind(key, options, tensors)
    _run.launch(bound, [0 if t is None else t.data_ptr() for t in tensors], k_cache)
    if report is not None:
        _paged.check_report(report, pages.table, pages.starts, k_cache.shape[0])
    return k_new.new_empty(0) if out is None else out
