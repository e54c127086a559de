"""Attention over the pages of a cache: from arrays to the fields of a problem, and what a checked
launch found."""
from __future__ import annotations

import sys
from typing import Any, Dict, List, Optional, Tuple

from . import _arrays, _attention_shapes, _dtypes
from ._abi import Error
from ._arrays import View
from ._attention_shapes import Options, Tokens

_LARGEST = 2**31 - 1
Shape = Tuple[int, ...]


# ---- What a call gives ---------------------------------------------------------------------------

def _rank(name: str, rank: int, wanted: str, right: Tuple[int, ...]) -> None:
    if rank not in right:
        raise Error(f"{name} must have {wanted}, got {rank} dimensions")


def check_rank(name: str, rank: int) -> None:
    """Of a cache of pages: four dimensions, or five where elements lie in runs of 16 bytes."""
    _rank(name, rank, "4 dimensions, or 5 in runs of 16 bytes", (4, 5))


def page_size(shape: Shape, layout: str) -> int:
    """Of k, (pages, ...)."""
    check_rank("k", len(shape))
    if len(shape) == 5:
        return shape[3]
    return _attention_shapes.tokens_in(shape, _attention_shapes.layout_word(layout))


def room_of(table: Shape, size: int, most: Optional[int]) -> int:
    """How many keys a sequence may have."""
    _rank("page_table", len(table), "2 dimensions, or 1 with page_starts", (1, 2))
    room = min(table[-1] * size, _LARGEST)
    if most is None:
        return room
    if not 0 <= most <= room:
        raise Error(f"max_seqlen_k must be at least 0 and at most {room}, which page_table has "
                    f"room for, got {most}")
    return most


def tables(q: Any, table: Any, starts: Any, is_checked: Optional[bool]
           ) -> Tuple[Tuple[Any, Any], Any]:
    """page_table and page_starts in int32, and a new array for what a checked launch finds."""
    on_host = _arrays.is_on_host(table)
    if on_host:
        table = indices("page_table", table)
    if starts is not None and _arrays.is_on_host(starts):
        starts = indices("page_starts", starts)
        check_starts(starts.tolist(), table.shape[-1])
    if starts is None and len(_arrays.view_of(table, "page_table").shape) == 1:
        raise Error("page_table of 1 dimension is a list, which needs page_starts")
    if on_host if is_checked is None else is_checked:
        return (table, starts), new_report(q, _arrays.view_of(table, "page_table"))
    return (table, starts), None


def refuse_without_table(starts: Any, is_checked: Optional[bool]) -> None:
    for name, given in (("page_starts", starts), ("check_pages", is_checked)):
        if given is not None:
            raise Error(f"{name} is for keys in pages, which need page_table")


def indices(name: str, given: Any) -> Any:
    """An array of NumPy's in int32."""
    found = _attention_shapes.whole_numbers(name, given)
    for value in (found.min(), found.max()) if found.size and found.dtype != "int32" else ():
        if not -_LARGEST - 1 <= value <= _LARGEST:
            raise Error(f"{name} must hold numbers of 32 bits, got {value}")
    return sys.modules["numpy"].ascontiguousarray(found, "int32")


def check_starts(starts: List[int], entries: int) -> None:
    """That prefix sums of pages divide the list."""
    if not starts or starts[0] != 0:
        raise Error(f"page_starts must begin with 0, got {starts[0] if starts else 'no number'}")
    for i, (before, after) in enumerate(zip(starts, starts[1:])):
        if after < before:
            raise Error(f"page_starts must not fall, but [{i}] is {before} and [{i + 1}] is "
                        f"{after}")
    if starts[-1] > entries:
        raise Error(f"page_starts ends with {starts[-1]}, but page_table holds {entries} pages")


# ---- Fields --------------------------------------------------------------------------------------

def runs(name: str, view: View) -> Tokens:
    """k (pages, heads, hdim / x, tokens, x) or v (pages, heads, tokens / x, hdim, x) as tokens."""
    run, packed = 16 // _dtypes.BYTES[view.dtype], 1
    if view.shape[4] != run:
        raise Error(f"{name} of 5 dimensions must end with runs of {run} elements, 16 bytes of "
                    f"{_dtypes.NAMES[view.dtype]}, got {view.shape[4]}")
    for size, stride in zip(reversed(view.shape), reversed(view.strides)):
        if size > 1 and stride != packed and 0 not in view.shape:
            raise Error(f"{name} of 5 dimensions must have no gaps, got the strides "
                        f"{view.strides} over {view.shape}")
        packed *= size
    pages, heads, runs, together = view.shape[:4]
    hdim, tokens = (runs * run, together) if name == "k" else (together, runs * run)
    return Tokens(name, (pages, 0), (tokens, 0), (heads, 0), (hdim, 0))


# Pairs of arrays, and what is equal in both.
_EQUAL = (("q", "k", "elements a head", "hdim"), ("k", "v", "pages", "batch"),
          ("k", "v", "heads", "heads"), ("k", "v", "tokens a page", "tokens"))


def all_tokens(options: Options, views: Dict[str, View]) -> Dict[str, Tokens]:
    """q, and out where it is there, and k and v, whose sequences are the pages of the cache."""
    for name in "kv":
        check_rank(name, len(views[name].shape))
        if views[name].dtype != views["q"].dtype:
            raise Error(f"q has the type {_dtypes.NAMES[views['q'].dtype]} and {name} "
                        f"{_dtypes.NAMES[views[name].dtype]}; the two must be equal")
    if len(views["k"].shape) != len(views["v"].shape):
        raise Error(f"k has {len(views['k'].shape)} dimensions and v {len(views['v'].shape)}; the "
                    "two must be equal")
    if "out" in views:
        _attention_shapes.check_ranks({"out": len(views["out"].shape)})
    found = {name: runs(name, views[name]) if len(views[name].shape) == 5
             else _attention_shapes.tokens_of(name, views[name], options.layout)
             for name in ("q", "k", "v", "out") if name in views}
    _attention_shapes.check_equal(found, _EQUAL)
    return found


def _index_view(views: Dict[str, View], name: str, ranks: Tuple[int, ...]) -> View:
    view = views[name]
    _rank(name, len(view.shape), " or ".join(map(str, ranks)) + " dimensions", ranks)
    if view.dtype != "int32":
        raise Error(f"{name} must have the type int32, got {_dtypes.NAMES[view.dtype]}")
    if view.shape[-1] > 1 and view.strides[-1] != 1:
        raise Error(f"{name} must have neighbours along its last dimension, got the strides "
                    f"{view.strides}")
    return view


def page_fields(views: Dict[str, View], k: Tokens, is_checked: bool) -> Dict[str, Any]:
    fields = {"page_size": k.tokens[0], "num_pages": k.batch[0], "check_pages": is_checked,
              "cache_layout": "vectorized" if len(views["k"].shape) == 5 else "linear"}
    table = _index_view(views, "page_table", (1, 2))
    if len(table.shape) == 1:
        if "page_starts" not in views:
            raise Error("page_table of 1 dimension is a list, which needs page_starts")
        starts = _index_view(views, "page_starts", (1,))
        return {**fields, "pages": "list", "batch": starts.shape[0] - 1,
                "page_entries": table.shape[0]}
    if "page_starts" in views:
        raise Error("page_starts is for a page_table of 1 dimension, got 2")
    stride = {"table_stride": table.strides[0]} if table.shape[0] > 1 else {}
    return {**fields, **stride, "pages": "table", "batch": table.shape[0],
            "max_pages": table.shape[1]}


def sequence_fields(options: Options, views: Dict[str, View], tokens: Dict[str, Tokens]
                    ) -> Dict[str, Any]:
    """What a problem says of its pages and its sequences' lengths."""
    pages = page_fields(views, tokens["k"], "bad_page" in views)
    return {**_length_fields(options, views, tokens["q"], pages["batch"]), **pages}


def _length_fields(options: Options, views: Dict[str, View], q: Tokens, batch: int
                   ) -> Dict[str, Any]:
    is_packed = len(views["q"].shape) == 3
    fields = {"seqlen_q": q.tokens[0], "seqlen_k": options.longest_k}
    if not is_packed and q.batch[0] != batch:
        raise Error(f"q has {q.batch[0]} sequences and page_table {batch}; the two must be equal")
    if "seqlens_q" not in views:
        if is_packed:
            raise Error("q has 3 dimensions, which are packed tokens; they need seqlens_q, the "
                        "prefix sums of the lengths")
        return fields
    for name, wanted in (("seqlens_q", batch + is_packed), ("seqlens_k", batch)):
        _attention_shapes.check_count(name, _index_view(views, name, (1,)).shape[0], wanted)
    if not is_packed:
        return {**fields, "lengths": "padded"}
    if options.longest_q is not None:
        fields["seqlen_q"] = options.longest_q
    return {**fields, "lengths": "packed", "tokens_q": q.tokens[0]}


# ---- The check -----------------------------------------------------------------------------------

def new_report(like: Any, table: View) -> Any:
    """Where a checked launch says what it found; nothing, where there is nothing to launch."""
    report = _arrays.empty((4,), "int32", like, table)
    report[...] = 0
    return report


def check_report(report: Any, table: Any, starts: Any, pages: int) -> None:
    """Refuses what a checked launch found, which has written nothing then."""
    found, sequence, entry, index = report.tolist()
    if not found:
        return
    place = f"{sequence}, {entry}"
    if len(table.shape) == 1:
        place = str(entry if sequence == 0 else int(starts[sequence]) + entry)
    raise Error(f"page_table[{place}] must be from 0 to {pages - 1}, got {index}")
