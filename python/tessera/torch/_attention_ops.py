"""The operator torch.ops.tessera.attention: what it computes, and its shapes. It is registered with
its derivative, in _attention_backward.py. No tensor is copied; see _run.py."""
from __future__ import annotations

import functools
from typing import Any, List, Optional, Sequence, Tuple

import torch

from .. import (_arrays, _attention_dropout, _attention_fields, _attention_scales,
                _attention_shapes, _sequences)
from .._abi import Error
from .._attention_shapes import Options
from .._checks import named
from . import _run, _warm
from ._operators import check

Tensor = torch.Tensor
Results = Tuple[Tensor, Tensor, Tensor]
SCHEMA = ("attention(Tensor q, Tensor k, Tensor v, Tensor? bias, Tensor? slopes, "
          "Tensor? seqlens_q, Tensor? seqlens_k, Tensor? dropout_rng, Tensor? page_table, "
          "Tensor? page_starts, str layout, str? mask, int[]? window, int sink, "
          "float? scale, float soft_cap, int? max_seqlen_q, int? max_seqlen_k, int skip_q, "
          "float dropout, bool has_lse, bool has_random, bool? check_pages=None, "
          "Tensor? descale_q=None, Tensor? descale_k=None, Tensor? descale_v=None, "
          "Tensor? scale_o=None, int? scale_block_q=None, int? scale_block_k=None, "
          "ScalarType? out_dtype=None, int num_splits=0) -> (Tensor, Tensor, Tensor)")
NAMES = ("q", "k", "v", "bias", "slopes", "seqlens_q", "seqlens_k", "dropout_rng", "page_table",
          "page_starts", "bad_page", "out", "lse", "random_values", *_attention_scales.NAMES)
# Where a call that was seen before has these: its first five arguments, and its results.
_PLACES = {"q": 0, "k": 1, "v": 2, "bias": 3, "slopes": 4, "out": -1, "lse": -2}
SLOTS = tuple(_PLACES.get(name) for name in NAMES)


def options_of(layout: str, mask: Optional[str], window: Optional[Sequence[int]], sink: int,
               scale: Optional[float], soft_cap: float, max_seqlen_q: Optional[int],
               max_seqlen_k: Optional[int], skip_q: int, dropout: float, has_lse: bool = False,
               has_random: bool = False, check_pages: Optional[bool] = None,
               descale_q: Optional[Tensor] = None, descale_k: Optional[Tensor] = None,
               descale_v: Optional[Tensor] = None, scale_o: Optional[Tensor] = None,
               scale_block_q: Optional[int] = None, scale_block_k: Optional[int] = None,
               out_dtype: Optional[torch.dtype] = None, num_splits: int = 0
               ) -> Tuple[Options, Optional[bool], Tuple[Any, ...], Optional[torch.dtype]]:
    """What the operators' schemas have behind the tensors, in their order and with their defaults,
    as options; and check_pages, the factors and out_dtype. The schema of gradients ends with
    dropout."""
    return (Options(layout, mask, None if window is None else tuple(window), sink, scale, soft_cap,
                    skip_q, max_seqlen_q, max_seqlen_k, dropout, (scale_block_q, scale_block_k),
                    num_splits, has_lse, has_random), check_pages,
            (descale_q, descale_k, descale_v, scale_o), out_dtype)


# ---- Numbers in tensors --------------------------------------------------------------------------

def _check_whole(name: str, given: Tensor) -> None:
    if given.dtype not in (torch.int32, torch.int64):
        raise Error(f"{name} must have the type int32 or int64, got "
                    f"{str(given.dtype).rpartition('.')[2]}")


def _row(name: str, given: Tensor) -> Tuple[Tensor, Optional[List[int]]]:
    _check_whole(name, given)
    if given.dim() != 1:
        raise Error(f"{name} must have 1 dimension, got {given.dim()}")
    return given.to(torch.int32).contiguous(), given.tolist() if given.is_cpu else None


def _table(name: str, given: Tensor) -> Tensor:
    _check_whole(name, given)
    if given.dtype == torch.int64 and given.is_cpu and given.numel():
        _sequences.check_bounds(name, int(given.min()), int(given.max()))
    given = given.to(torch.int32)
    return given if given.dim() == 0 or given.stride(-1) == 1 else given.contiguous()


def _full(like: Tensor, count: int, number: int, _: str) -> Tensor:
    return like.new_full((count,), number, dtype=torch.int32)


TENSORS = _sequences.Reader(lambda tensor: tensor.is_cpu, _row, _table, _full)


def lengths_of(q: Tensor, k: Tensor, seqlens: _sequences.Pair, options: Options,
               pages: _sequences.Pair = _sequences.NONE) -> Tuple[_sequences.Pair, Options]:
    """The lengths as kernels take them, and the options with the longest ones."""
    found, longest = _sequences.lengths(TENSORS, q, k, seqlens, options[7:9], options.layout, pages)
    if longest is _sequences.NONE:
        return found, options
    return found, options._replace(longest_q=longest[0], longest_k=longest[1])


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
    return torch.tensor(_attention_dropout.numbers_of(seed, offset), dtype=torch.int64,
                        device=like.device)


def needed_words(words: Optional[Tensor], dropout: float) -> Optional[Tensor]:
    """What the operators are given, as kernels take it."""
    if dropout == 0:
        return None
    if words is None:
        raise Error("dropout needs dropout_rng, the two words of its random numbers")
    return words.contiguous()


# ---- What it computes ----------------------------------------------------------------------------

def _new_results(q: Tensor, k: Tensor, v: Tensor, options: Options, has_lengths: bool,
                 dtype: Optional[torch.dtype]) -> Tuple[Results, bool]:
    """out, whose heads and tokens lie in memory as those of q do, and lse and random values, which
    are empty where they are not asked for. Rows that no kernel writes are 0, and minus infinity in
    lse; whether there may be such rows."""
    found = _attention_shapes.results_of(options, tuple(q.shape), q.stride(), tuple(k.shape),
                                         tuple(v.shape), has_lengths)
    lse = q.new_empty(found.lse if options.lse else (0,), dtype=torch.float32)
    random = q.new_zeros(found.random if options.random else (0,), dtype=torch.uint8)
    dtype = dtype or (torch.float16 if q.itemsize == 1 else q.dtype)
    out = _run.new_in_order(q, found.out, found.order, dtype)
    if found.leaves:
        out.zero_()
        lse.fill_(float("-inf"))
    return (out, lse, random), bool(found.leaves)


def view_of(tensor: Tensor, what: str) -> _arrays.View:
    """The View of a tensor whose memory is not read."""
    if what == "dropout_rng":
        _attention_dropout.check_array(tensor, 0, tensor.shape, tensor.dtype)
        return _run.lying_view(tensor.contiguous().view(torch.int32), "the seed")
    if what == "random_values":
        return _run.lying_view(tensor.view(torch.int8), "the random values")
    return _run.lying_view(tensor, what)


_ROW = functools.partial(_run.bind_row, NAMES, _attention_fields.problem_fields, sized=("out",),
                         view=view_of, check=_attention_fields.plain)


def check_ranks(q: Tensor, k: Tensor, v: Tensor, layout: str, is_paged: bool) -> None:
    """What new results rely on; caches are looked at with their pages."""
    _attention_shapes.layout_word(layout)
    if is_paged:
        _sequences.check_rank("v", v.dim())
        return _attention_shapes.check_ranks({"q": q.dim()})
    return _attention_shapes.check_ranks({"q": q.dim(), "k": k.dim(), "v": v.dim()})


def run(*arguments: Any) -> Results:
    """out, lse and dropout's random values, which are empty where they are not asked for."""
    return run_keeping(*arguments)[0]


def run_keeping(*arguments: Any) -> Tuple[Results, Optional[_run.Bound]]:
    """The same, and the plan where it takes the tensors as they were given."""
    try:
        return _run_attention(*arguments)
    except Error as error:
        raise named("attention", error) from None


def _run_attention(q: Tensor, k: Tensor, v: Tensor, bias: Optional[Tensor],
                   slopes: Optional[Tensor], seqlens_q: Optional[Tensor],
                   seqlens_k: Optional[Tensor], dropout_rng: Optional[Tensor],
                   page_table: Optional[Tensor], page_starts: Optional[Tensor], *how: Any
                   ) -> Tuple[Results, Optional[_run.Bound]]:
    options, check_pages, scales, out_dtype = options_of(*how)
    if bias is not None and slopes is not None:
        raise Error("bias and slopes cannot both be given; add the slopes to the bias")
    check_ranks(q, k, v, options.layout, page_table is not None)
    pages, report = _sequences.pages_of(TENSORS, q, page_table, page_starts, check_pages)
    lengths, options = lengths_of(q, k, (seqlens_q, seqlens_k), options, pages)
    words = needed_words(dropout_rng, options.dropout)
    results, leaves = _new_results(q, k, v, options, lengths[0] is not None, out_dtype)
    out, lse, random = results
    tensors = (q, k, v, bias, slopes, *lengths, words, *pages, report, out,
               lse if options.lse else None, random if options.random else None, *scales)
    bound = _run.bound_of(_ROW, options, tensors)
    _run.launch_on(bound, tensors, out)
    if report is not None:
        _sequences.check_report(report, pages, k)
    as_given = lengths[0] is seqlens_q and lengths[1] is seqlens_k and words is dropout_rng
    if as_given and not leaves and report is None:
        _warm.see(bound)
    return results, bound if as_given else None


# ---- Shapes, for tensors without memory ----------------------------------------------------------

def fake(q: Tensor, k: Tensor, v: Tensor, *others: Any) -> Tuple[Tensor, Tensor, Tensor]:
    _, _, seqlens_q, _, _, page_table, _, *how = others
    options, _, _, out_dtype = options_of(*how)
    is_paged, hdim = page_table is not None, k.shape[-1]
    check(q.dim() in (3, 4), "q must have 4 dimensions, or 3")
    for tensor in (k, v):
        is_right = tensor.dim() == (k.dim() if is_paged else q.dim())
        check(is_right and (not is_paged or k.dim() in (4, 5)),
              "q, k and v must all have 4 dimensions, or 3; caches of pages 4, or 5")
    if k.dim() == 5:
        hdim = k.shape[2] * k.shape[4]
    check(q.shape[-1] == hdim, "q and k must have heads of one length")
    if is_paged and options.random:
        size = _sequences.page_size(tuple(k.shape), options.layout)
        options = options._replace(longest_k=_sequences.room_of(tuple(page_table.shape), size,
                                                                options.longest_k))
    is_packed = q.dim() == 3 and seqlens_q is not None
    check(not (is_packed and options.random and options.longest_k is None),
          "random values of packed tokens need max_seqlen_k here")
    return _new_results(q, k, v, options, False, out_dtype)[0]


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
