"""Plans for attention of tensors, and their launches; see _run.py. No tensor is copied."""
from __future__ import annotations

from typing import Any, NamedTuple, Optional, Tuple

import torch

from .. import (_arrays, _attention_dropout, _attention_fields, _attention_scales,
                _attention_shapes, _paged)
from .._abi import Error
from .._attention_shapes import Options
from . import _run

Tensor = torch.Tensor
_NAMES = ("q", "k", "v", "bias", "slopes", "seqlens_q", "seqlens_k", "dropout_rng", "page_table",
          "page_starts", "bad_page", "out", "lse", "random_values", *_attention_scales.NAMES)


# ---- Lengths -------------------------------------------------------------------------------------

def _int32(name: str, given: Tensor) -> Tensor:
    if given.dtype not in (torch.int32, torch.int64):
        raise Error(f"{name} must have the type int32 or int64, got "
                    f"{str(given.dtype).rpartition('.')[2]}")
    if given.dim() != 1:
        raise Error(f"{name} must have 1 dimension, got {given.dim()}")
    return given.to(torch.int32).contiguous()


def _length(name: str, given: Optional[Tensor], tokens: Tensor, layout: str, most: Optional[int]
            ) -> Tuple[Tensor, Optional[int]]:
    """The lengths or prefix sums as the kernel takes them, and the longest packed sequence where
    it is known. Values are read on a CPU alone, because a GPU would have to be waited for."""
    label = f"seqlens_{name}"
    _attention_shapes.check_ranks({name: tokens.dim()})
    room, is_packed = _attention_shapes.tokens_in(tokens.shape, layout), tokens.dim() == 3
    if given is None:
        if is_packed:
            raise Error(f"{label} must be given beside the other one for packed tokens")
        return tokens.new_full((tokens.shape[0],), room, dtype=torch.int32), None
    found = _int32(label, given)
    if given.is_cpu and is_packed:
        longest = _attention_shapes.check_sums(label, given.tolist(), name, room)
        most = _attention_shapes.check_most(name, most, longest)
    elif given.is_cpu:
        _attention_shapes.check_lengths(label, given.tolist(), name, room)
    return found, most


def _check_most(tokens: Tensor, seqlens: Optional[Tensor], name: str, most: Optional[int]) -> None:
    if most is not None and (tokens.dim() != 3 or seqlens is None):
        raise Error(f"max_seqlen_{name} is for packed tokens, q of 3 dimensions and "
                    f"seqlens_{name}; got {most}")


# ---- Pages ---------------------------------------------------------------------------------------

class Pages(NamedTuple):
    """Where the keys lie in pages, and whether a page out of range is an error; None: on a CPU."""

    table: Optional[Tensor]
    starts: Optional[Tensor]
    is_checked: Optional[bool]


def indices(name: str, given: Tensor) -> Tensor:
    if given.dtype not in (torch.int32, torch.int64):
        raise Error(f"{name} must have the type int32 or int64, got "
                    f"{str(given.dtype).rpartition('.')[2]}")
    if given.dim() == 0:
        raise Error(f"{name} must have at least 1 dimension, got a single number")
    if given.dtype == torch.int64 and given.is_cpu and given.numel():
        _paged.indices(name, [int(given.min()), int(given.max())])
    given = given.to(torch.int32)
    return given if given.stride(-1) == 1 else given.contiguous()


def checked_pages(pages: Pages) -> Tuple[Pages, Optional[Tensor]]:
    """The indices as the kernel takes them, and where a checked launch says what it found."""
    if pages.table is None:
        _paged.refuse_without_table(pages.starts, pages.is_checked)
        return pages, None
    table, starts = indices("page_table", pages.table), pages.starts
    if starts is not None:
        starts = indices("page_starts", starts)
        if starts.dim() != 1:
            raise Error(f"page_starts must have 1 dimension, got {starts.dim()}")
        if starts.is_cpu:
            _paged.check_starts(starts.tolist(), table.shape[-1])
    elif table.dim() == 1:
        raise Error("page_table of 1 dimension is a list, which needs page_starts")
    is_checked = table.is_cpu if pages.is_checked is None else pages.is_checked
    report = table.new_zeros(4) if is_checked else None
    return Pages(table, starts, is_checked), report


def _paged_lengths(q: Tensor, k: Tensor, seqlens: Tuple[Optional[Tensor], Optional[Tensor]],
                   pages: Pages, options: Options
                   ) -> Tuple[Tuple[Optional[Tensor], Optional[Tensor]], Options]:
    table, starts = pages.table, pages.starts
    assert table is not None
    room = _paged.room_of(tuple(table.shape), _paged.page_size(tuple(k.shape), options.layout),
                          options.longest_k)
    if options.longest_q is not None and q.dim() != 3:
        raise Error(f"max_seqlen_q is for packed tokens, q of 3 dimensions and seqlens_q; got "
                    f"{options.longest_q}")
    if seqlens[1] is None and table.dim() == 1:
        raise Error("seqlens_k must be given with a list of pages, which may end within a page")
    if seqlens[0] is None and seqlens[1] is None:
        return seqlens, options._replace(longest_k=room)
    of_q, longest_q = _length("q", seqlens[0], q, options.layout, options.longest_q)
    batch = table.shape[0] if starts is None else starts.shape[0] - 1
    of_k = seqlens[1]
    if of_k is None:
        of_k = q.new_full((batch,), room, dtype=torch.int32)
    elif of_k.is_cpu and of_k.dim() == 1:
        _attention_shapes.check_lengths("seqlens_k", of_k.tolist(), "k", room)
    return (of_q, _int32("seqlens_k", of_k)), options._replace(longest_q=longest_q, longest_k=room)


# ---- Dropout -------------------------------------------------------------------------------------

def random_words(like: Tensor) -> Tensor:
    """Seed and offset from PyTorch's generator of the tensor's device, which a captured graph draws
    anew at each replay."""
    return torch.randint(2**63 - 1, (2,), dtype=torch.int64, device=like.device)


def words_of(dropout: float, seed: Any, offset: int, like: Tensor) -> Optional[Tensor]:
    """None without dropout."""
    if dropout == 0:
        return None
    if seed is None and offset == 0:
        return random_words(like)
    if isinstance(seed, Tensor):
        _attention_dropout.check_array(seed, offset, seed.shape, seed.dtype)
        return seed
    numbers = [_attention_dropout.signed(_attention_dropout.whole_word(name, value))
               for name, value in (("seed", seed), ("offset", offset))]
    return torch.tensor(numbers, dtype=torch.int64, device=like.device)


# ---- Factors -------------------------------------------------------------------------------------

Scales = Tuple[Optional[Tensor], ...]  # in the order of _attention_scales.NAMES


def scales_of(given: Tuple[Any, ...], like: Tensor, out_dtype: Optional[torch.dtype]) -> Scales:
    """As tensors beside q. A result of 8 bits has a factor where the inputs have."""
    if given[0] is not None and given[3] is None and (out_dtype or like.dtype).itemsize == 1:
        given = (*given[:3], 1.0 if out_dtype is not None else None)
    return _attention_scales.arrays_of(given, like, None)


# ---- Results -------------------------------------------------------------------------------------

def new_results(q: Tensor, k: Tensor, v: Tensor, options: Options, has_lengths: bool,
                dtype: Optional[torch.dtype] = None) -> Tuple[Tensor, Tensor, Tensor]:
    """out, whose heads and tokens lie in memory as those of q do, and lse and random values, which
    are empty where they are not asked for. Rows that no kernel writes are 0, and minus infinity in
    lse."""
    found = _attention_shapes.results_of(options, tuple(q.shape), q.stride(), tuple(k.shape),
                                         tuple(v.shape), has_lengths)
    lse = q.new_empty(found.lse if options.lse else (0,), dtype=torch.float32)
    random = q.new_zeros(found.random if options.random else (0,), dtype=torch.uint8)
    dtype = dtype or (torch.float16 if q.itemsize == 1 else q.dtype)
    if found.swapped:
        lead = len(found.out) - 3
        order = (*range(lead), lead + 1, lead, lead + 2)
        out = _run.new_in_order(q, found.out, order, dtype)
    else:
        out = q.new_empty(found.out, dtype=dtype)
    if found.leaves:
        out.zero_()
        lse.fill_(float("-inf"))
    return out, lse, random


# ---- Calls ---------------------------------------------------------------------------------------

def view_of(tensor: Tensor, what: str) -> _arrays.View:
    """Of a tensor whose memory is not read."""
    if what == "dropout_rng":
        _attention_dropout.check_array(tensor, 0, tensor.shape, tensor.dtype)
        return _run.lying_view(tensor.contiguous().view(torch.int32), "the seed")
    if what == "random_values":
        return _run.lying_view(tensor.view(torch.int8), "the random values")
    return _run.lying_view(tensor, what)


_ROW = _run.row(_NAMES, _attention_fields.problem_fields, sized=("out",), view=view_of,
                check=_attention_fields.plain)


def check_ranks(q: Tensor, k: Tensor, v: Tensor, is_paged: bool) -> None:
    """What new_results() relies on; caches are looked at with their pages."""
    if is_paged:
        _paged.check_rank("v", v.dim())
        return _attention_shapes.check_ranks({"q": q.dim()})
    return _attention_shapes.check_ranks({"q": q.dim(), "k": k.dim(), "v": v.dim()})


def checked_lengths(q: Tensor, k: Tensor, seqlens: Tuple[Optional[Tensor], Optional[Tensor]],
                    options: Options
                    ) -> Tuple[Tuple[Optional[Tensor], Optional[Tensor]], Options]:
    """The lengths as the kernel takes them, of keys that lie in no pages."""
    _check_most(q, seqlens[0], "q", options.longest_q)
    _check_most(k, seqlens[1], "k", options.longest_k)
    if seqlens[0] is None and seqlens[1] is None:
        return seqlens, options
    of_q, longest_q = _length("q", seqlens[0], q, options.layout, options.longest_q)
    of_k, longest_k = _length("k", seqlens[1], k, options.layout, options.longest_k)
    return (of_q, of_k), options._replace(longest_q=longest_q, longest_k=longest_k)


def run_attention(q: Tensor, k: Tensor, v: Tensor, bias: Optional[Tensor],
                  slopes: Optional[Tensor], seqlens_q: Optional[Tensor],
                  seqlens_k: Optional[Tensor], dropout_rng: Optional[Tensor], options: Options,
                  pages: Pages, scales: Scales = (None,) * 4,
                  out_dtype: Optional[torch.dtype] = None) -> Tuple[Tensor, Tensor, Tensor]:
    _attention_shapes.layout_word(options.layout)
    check_ranks(q, k, v, pages.table is not None)
    pages, report = checked_pages(pages)
    if pages.table is not None:
        (seqlens_q, seqlens_k), options = _paged_lengths(q, k, (seqlens_q, seqlens_k), pages,
                                                         options)
    else:
        (seqlens_q, seqlens_k), options = checked_lengths(q, k, (seqlens_q, seqlens_k), options)
    if options.dropout != 0 and dropout_rng is None:
        raise Error("dropout needs dropout_rng, the two words of its random numbers")
    if dropout_rng is not None:
        dropout_rng = dropout_rng.contiguous() if options.dropout != 0 else None
    out, lse, random = new_results(q, k, v, options, seqlens_q is not None, out_dtype)
    tensors = (q, k, v, bias, slopes, seqlens_q, seqlens_k, dropout_rng, pages.table, pages.starts,
               report, out, lse if options.lse else None, random if options.random else None,
               *scales)
    _run.run(_ROW, options, tensors, out)
    if report is not None:
        _paged.check_report(report, pages.table, pages.starts, k.shape[0])
    return out, lse, random
