"""Sequences of a call: their lengths, the pages in which their keys lie, and the fields that a
problem has of both.

Numbers on a CPU are checked before the call, and become the int32 that kernels take. Those on a GPU
are not read, because the host would have to wait for them.
"""
from __future__ import annotations

import sys
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from . import _arrays, _dtypes
from ._abi import Error
from ._arrays import View
from ._attention_shapes import Tokens, check_ranks, layout_word, tokens_in
from ._values import check_equal, shown, whole

_LARGEST = 2**31 - 1
Shape = Tuple[int, ...]
Pair = Tuple[Any, Any]  # of q and k, or page_table and page_starts; None: not given
NONE: Pair = (None, None)


class Reader(NamedTuple):
    """How whole numbers are read in arrays of a package."""

    is_on_host: Callable[[Any], bool]
    # An array of one dimension as kernels take it, and its values; None: they are not read.
    row: Callable[[str, Any], Tuple[Any, Optional[List[int]]]]
    table: Callable[[str, Any], Any]  # an array of any dimensions as kernels take it
    # A new array beside another one: so many times a number; and what is said where none is made.
    full: Callable[[Any, int, int, str], Any]


# ---- Numbers in arrays ---------------------------------------------------------------------------

def _whole_numbers(name: str, given: Any) -> Any:
    """An array of NumPy's, of any type of whole numbers."""
    import numpy
    try:
        found = numpy.asarray(given)
    except Exception:
        raise Error(f"{name} must hold whole numbers, got {shown(given)}") from None
    if found.dtype.kind not in "iu":
        raise Error(f"{name} must hold whole numbers, got the type {found.dtype}")
    return found


def _row(name: str, given: Any) -> Tuple[Any, Optional[List[int]]]:
    if not _arrays.is_on_host(given):
        return given, None
    found = _whole_numbers(name, given)
    if found.ndim != 1:
        raise Error(f"{name} must have 1 dimension, got {found.ndim}")
    return sys.modules["numpy"].ascontiguousarray(found, "int32"), found.tolist()


def wide_row(name: str, given: Any) -> Any:
    """An array of one dimension, of int32 or int64. One that is of these is taken as it is."""
    if not _arrays.is_on_host(given):
        return given
    found = _whole_numbers(name, given)
    if found.ndim != 1:
        raise Error(f"{name} must have 1 dimension, got {found.ndim}")
    numpy = sys.modules["numpy"]
    word = "int32" if numpy.can_cast(found.dtype, "int32") else "int64"
    return numpy.ascontiguousarray(found, word)


def check_bounds(name: str, least: int, most: int) -> None:
    """That int32 holds the numbers of a table."""
    for value in (least, most):
        if not -_LARGEST - 1 <= value <= _LARGEST:
            raise Error(f"{name} must hold numbers of 32 bits, got {value}")


def _table(name: str, given: Any) -> Any:
    if not _arrays.is_on_host(given):
        return given
    found = _whole_numbers(name, given)
    if found.size and found.dtype != "int32":
        check_bounds(name, found.min(), found.max())
    return sys.modules["numpy"].ascontiguousarray(found, "int32")


def _full(like: Any, count: int, number: int, refusal: str) -> Any:
    return _arrays.full((count,), number, "int32", like, f"{refusal} on a GPU")


ARRAYS = Reader(_arrays.is_on_host, _row, _table, _full)


# ---- Lengths -------------------------------------------------------------------------------------

def _longest(name: str, sums: List[int]) -> int:
    """The greatest difference of prefix sums."""
    if not sums:
        raise Error(f"{name} must hold at least 1 prefix sum, got 0")
    if sums[0] != 0:
        raise Error(f"{name} must begin with 0, got {sums[0]}")
    longest = 0
    for i, (before, after) in enumerate(zip(sums, sums[1:])):
        if after < before:
            raise Error(f"{name} must not fall, but [{i}] is {before} and [{i + 1}] is {after}")
        longest = max(longest, after - before)
    return longest


def check_sums(name: str, sums: List[int], array: str, tokens: int) -> int:
    """The longest of packed sequences, from the prefix sums of their lengths."""
    longest = _longest(name, sums)
    if sums[-1] != tokens:
        raise Error(f"{name} ends with {sums[-1]}, but {array} has {tokens} tokens; the two must "
                    "be equal")
    return longest


def check_lengths(name: str, lengths: List[int], array: str, room: int) -> None:
    for i, length in enumerate(lengths):
        if not 0 <= length <= room:
            raise Error(f"{name}[{i}] must be at least 0 and at most {room}, the tokens of "
                        f"{array}, got {length}")


def check_most(name: str, given: Optional[int], longest: int) -> int:
    """max_seqlen_q or max_seqlen_k beside the longest sequence that there is."""
    if given is None:
        return longest
    if given < longest:
        raise Error(f"max_seqlen_{name} must be at least {longest}, the longest of "
                    f"seqlens_{name}, got {given}")
    return given


def check_count(name: str, count: int, wanted: int) -> None:
    if count != wanted:
        raise Error(f"{name} must hold {wanted} numbers, got {count}")


def lengths(reader: Reader, q: Any, k: Any, given: Pair, most: Pair, layout: Any,
            pages: Pair = NONE) -> Tuple[Pair, Tuple[Optional[int], Optional[int]]]:
    """seqlens_q and seqlens_k as kernels take them, and how long packed sequences are at most, or
    for how many keys a sequence has room in its pages. most: max_seqlen_q and max_seqlen_k."""
    has_lengths, is_paged = not (given[0] is given[1] is None), pages[0] is not None
    if not has_lengths and not is_paged and most[0] is most[1] is None:
        return NONE, NONE
    layout_word(layout)
    of_q, of_k = _arrays.shape_of(q, "q"), _arrays.shape_of(k, "k")
    check_ranks({"q": len(of_q)})
    is_packed, batch_q = has_lengths and len(of_q) == 3, of_q[0]
    most_q = None if most[0] is None else _limit("q", most[0], is_packed)
    most_k = None if most[1] is None else _limit("k", most[1], is_packed or is_paged)
    if is_paged:
        batch_k, room_k = _paged_room(of_k, given[1], most_k, layout, pages)
        batch_q, most_k = batch_k, room_k
        if not has_lengths:
            return NONE, (None, room_k)
    else:
        check_ranks({"k": len(of_k)})
        batch_k, room_k = of_k[0], tokens_in(of_k, layout)
    found_q, longest_q = _length(reader, "q", given[0], q, batch_q, tokens_in(of_q, layout),
                                 most_q, is_packed)
    found_k, longest_k = _length(reader, "k", given[1], k, batch_k, room_k, most_k,
                                 is_packed and not is_paged)
    return (found_q, found_k), (longest_q, longest_k)


def _limit(name: str, most: Any, is_taken: bool) -> int:
    limit = whole(f"max_seqlen_{name}", most)
    if not is_taken:
        raise Error(f"max_seqlen_{name} is for packed tokens, q of 3 dimensions and "
                    f"seqlens_{name}; got {limit}")
    return limit


def _length(reader: Reader, name: str, given: Any, like: Any, batch: int, room: int,
            most: Optional[int], is_packed: bool) -> Tuple[Any, Optional[int]]:
    """The lengths or prefix sums of q or k, and the longest packed sequence."""
    label = f"seqlens_{name}"
    if given is None:
        if is_packed:
            raise Error(f"{label} must be given beside the other one for packed tokens")
        return reader.full(like, batch, room, f"{label} must be given beside the other one"), most
    found, values = reader.row(label, given)
    if values is not None and is_packed:
        return found, check_most(name, most, check_sums(label, values, name, room))
    if values is not None:
        check_lengths(label, values, name, room)
    return found, most


# ---- Pages ---------------------------------------------------------------------------------------

def check_rank(name: str, rank: int) -> None:
    """A cache of pages has four dimensions, or five where elements lie in runs of 16 bytes."""
    if rank not in (4, 5):
        raise Error(f"{name} must have 4 dimensions, or 5 in runs of 16 bytes, got {rank}")


def page_size(shape: Shape, layout: str) -> int:
    """How many tokens a page of k, (pages, ...), holds."""
    check_rank("k", len(shape))
    return shape[3] if len(shape) == 5 else tokens_in(shape, layout_word(layout))


def room_of(table: Shape, size: int, most: Optional[int]) -> int:
    """How many keys a sequence may have."""
    room = min(table[-1] * size, _LARGEST)
    if most is None:
        return room
    if not 0 <= most <= room:
        raise Error(f"max_seqlen_k must be at least 0 and at most {room}, which page_table has "
                    f"room for, got {most}")
    return most


def _paged_room(k: Shape, seqlens_k: Any, most: Optional[int], layout: str, pages: Pair
                ) -> Tuple[int, int]:
    """How many sequences there are, and how many keys each has room for."""
    table = _arrays.shape_of(pages[0], "page_table")
    room = room_of(table, page_size(k, layout), most)
    if seqlens_k is None and len(table) == 1:
        raise Error("seqlens_k must be given with a list of pages, which may end within a page")
    return (table[0] if len(table) == 2
            else _arrays.shape_of(pages[1], "page_starts")[0] - 1), room


def pages_of(reader: Reader, q: Any, table: Any, starts: Any, is_checked: Optional[bool]
             ) -> Tuple[Pair, Any]:
    """page_table and page_starts as kernels take them, and a new array for what a checked launch
    finds. is_checked: None: where the table can be read."""
    if table is None:
        for name, given in (("page_starts", starts), ("check_pages", is_checked)):
            if given is not None:
                raise Error(f"{name} is for keys in pages, which need page_table")
        return NONE, None
    table = reader.table("page_table", table)
    shape = _arrays.shape_of(table, "page_table")
    if len(shape) not in (1, 2):
        raise Error("page_table must have 2 dimensions, or 1 with page_starts, got "
                    f"{len(shape)}")
    if starts is not None:
        starts, sums = reader.row("page_starts", starts)
        if sums is not None:
            _longest("page_starts", sums)
            if sums[-1] > shape[-1]:
                raise Error(f"page_starts ends with {sums[-1]}, but page_table holds {shape[-1]} "
                            "pages")
    elif len(shape) == 1:
        raise Error("page_table of 1 dimension is a list, which needs page_starts")
    if reader.is_on_host(table) if is_checked is None else is_checked:
        return (table, starts), reader.full(q, 4, 0, "page_table cannot be checked")
    return (table, starts), None


def check_report(report: Any, pages: Pair, k: Any) -> None:
    """Refuses what a checked launch found, which has written nothing then."""
    found, sequence, entry, index = report.tolist()
    if not found:
        return
    table, starts = pages
    place = f"{sequence}, {entry}"
    if len(table.shape) == 1:
        place = str(entry if sequence == 0 else int(starts[sequence]) + entry)
    raise Error(f"page_table[{place}] must be from 0 to {_arrays.shape_of(k, 'k')[0] - 1}, got "
                f"{index}")


# ---- Fields --------------------------------------------------------------------------------------

def _numbers_in(views: Mapping[str, View], name: str, ranks: Sequence[int] = (1,)) -> View:
    view = views[name]
    if view.dtype != "int32":
        raise Error(f"{name} must have the type int32, got {_dtypes.NAMES[view.dtype]}")
    if len(view.shape) not in ranks:
        raise Error(f"{name} must have {' or '.join(map(str, ranks))} dimension"
                    f"{'s' * (len(ranks) > 1)}, got {len(view.shape)}")
    if view.shape[-1] > 1 and view.strides[-1] != 1:
        raise Error(f"{name} must have neighbours along its last dimension, got the strides "
                    f"{view.strides}")
    return view


def _page_fields(views: Mapping[str, View], k: Tokens) -> Dict[str, Any]:
    fields = {"page_size": k.tokens[0], "num_pages": k.batch[0],
              "check_pages": "bad_page" in views,
              "cache_layout": "vectorized" if len(views["k"].shape) == 5 else "linear"}
    table = _numbers_in(views, "page_table", (1, 2))
    if len(table.shape) == 1:
        if "page_starts" not in views:
            raise Error("page_table of 1 dimension is a list, which needs page_starts")
        starts = _numbers_in(views, "page_starts")
        return {**fields, "pages": "list", "batch": starts.shape[0] - 1,
                "page_entries": table.shape[0]}
    if "page_starts" in views:
        raise Error("page_starts is for a page_table of 1 dimension, got 2")
    stride = {"table_stride": table.strides[0]} if table.shape[0] > 1 else {}
    return {**fields, **stride, "pages": "table", "batch": table.shape[0],
            "max_pages": table.shape[1]}


def fields(views: Mapping[str, View], q: Tokens, k: Tokens, longest_q: Optional[int],
           longest_k: Optional[int]) -> Dict[str, Any]:
    """What a problem says of its sequences. q: the tokens whose numbers seqlens_q holds."""
    found: Dict[str, Any] = {"seqlen_q": q.tokens[0],
                             "seqlen_k": k.tokens[0] if longest_k is None else longest_k}
    is_packed, own_k = len(views[q.name].shape) == 3, len(views["k"].shape) == 3
    counts = {name: _numbers_in(views, name).shape[0] for name in ("seqlens_q", "seqlens_k")
              if name in views}
    if is_packed and "seqlens_q" not in counts:
        raise Error(f"{q.name} has 3 dimensions, which are packed tokens; they need seqlens_q"
                    f"{' and seqlens_k' * own_k}, the prefix sums of the lengths")
    found["batch"] = counts["seqlens_q"] - 1 if own_k else k.batch[0]
    if "page_table" in views:
        found.update(_page_fields(views, k))
    if not is_packed:
        check_equal("{} sequences", q.name, q.batch[0],
                    "page_table" if "page_table" in views else "k", found["batch"])
    if own_k and counts["seqlens_k"] != counts["seqlens_q"]:
        raise Error(f"seqlens_q holds {counts['seqlens_q']} prefix sums and seqlens_k "
                    f"{counts['seqlens_k']}; the two must be equal")
    for name, has_sums in (("seqlens_q", is_packed), ("seqlens_k", own_k)):
        if name in counts:
            check_count(name, counts[name], found["batch"] + has_sums)
    if is_packed:
        found.update(lengths="packed", tokens_q=q.tokens[0])
        found["seqlen_q"] = q.tokens[0] if longest_q is None else longest_q
    elif "seqlens_q" in counts:
        found["lengths"] = "padded"
    if own_k:
        found["tokens_k"] = k.tokens[0]
    return found
