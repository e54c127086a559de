"""From shapes and strides of arrays to the fields of a problem of attention. Pure functions."""
from __future__ import annotations

from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from . import _attention_scales, _dtypes
from ._abi import Error
from ._arrays import View
from ._values import shown, whole

Dimension = Tuple[int, int]  # a size and its stride, in elements

# Where a tensor of four dimensions has its heads and its tokens.
_AXES = {"bshd": (2, 1), "bhsd": (1, 2)}


class Options(NamedTuple):
    """What a call says besides its arrays."""

    layout: str
    mask: Optional[str]
    window: Any  # (left, right); None: the mask's own
    sink: Any
    scale: Any  # None: 1 / sqrt(hdim)
    soft_cap: Any
    skip_q: Any
    longest_q: Optional[int]  # of packed sequences
    longest_k: Optional[int]  # of packed sequences, and of those in pages
    dropout: Any = 0.0
    blocks: _attention_scales.Blocks = (None, None)  # of factors
    num_splits: Any = 0  # 0: as suits the machine
    lse: bool = False     # whether the call stores lse
    random: bool = False  # whether it stores the random values


class Tokens(NamedTuple):
    """q, k, v or out, whatever the order of its dimensions. Packed tokens are one sequence."""

    name: str
    batch: Dimension
    tokens: Dimension
    heads: Dimension
    hdim: Dimension


def layout_word(layout: Any) -> str:
    if not isinstance(layout, str) or layout not in _AXES:
        raise Error(f"layout must be one of {', '.join(_AXES)}, got {shown(layout)}")
    return layout


def whole_numbers(name: str, given: Any) -> Any:
    """An array of NumPy's, of any type of whole numbers."""
    import numpy
    try:
        found = numpy.asarray(given)
    except Exception:
        raise Error(f"{name} must hold whole numbers, got {shown(given)}") from None
    if found.dtype.kind not in "iu":
        raise Error(f"{name} must hold whole numbers, got the type {found.dtype}")
    return found


def row_of_numbers(name: str, given: Any) -> Any:
    """The same of one dimension, whose values fit into int32 once they were checked."""
    found = whole_numbers(name, given)
    if found.ndim != 1:
        raise Error(f"{name} must have 1 dimension, got {found.ndim}")
    return found


# ---- Tokens --------------------------------------------------------------------------------------

def tokens_in(shape: Sequence[int], layout: str) -> int:
    """How many tokens a sequence has room for."""
    return shape[_AXES[layout][1] + len(shape) - 4]


def check_ranks(ranks: Mapping[str, int]) -> None:
    """All arrays have as many dimensions as the first."""
    first = next(iter(ranks))
    for name, rank in ranks.items():
        if rank not in (3, 4):
            raise Error(f"{name} must have 4 dimensions, or 3 where sequences are packed, got "
                        f"{rank}")
        if rank != ranks[first]:
            raise Error(f"{first} has {ranks[first]} dimensions and {name} {rank}; the two must be "
                        "equal")


def tokens_of(name: str, view: View, layout: str) -> Tokens:
    pairs = list(zip(view.shape, view.strides))
    batch = pairs.pop(0) if len(pairs) == 4 else (1, 0)
    tokens, heads = pairs[:2] if layout == "bshd" else pairs[1::-1]
    return Tokens(name, batch, tokens, heads, pairs[2])


# Pairs of arrays, and what is equal in both.
_EQUAL = (("q", "k", "sequences", "batch"), ("q", "v", "sequences", "batch"),
          ("q", "k", "elements a head", "hdim"), ("k", "v", "heads", "heads"),
          ("k", "v", "tokens", "tokens"))


def check_equal(tokens: Mapping[str, Tokens], rows: Sequence[Tuple[str, str, str, str]]) -> None:
    """rows: those of a table such as _EQUAL."""
    for one, other, what, field in rows:
        if one in tokens and other in tokens:
            size, wanted = getattr(tokens[one], field)[0], getattr(tokens[other], field)[0]
            if size != wanted:
                raise Error(f"{tokens[one].name} has {size} {what} and {tokens[other].name} "
                            f"{wanted}; the two must be equal")


def all_tokens(options: Options, views: Dict[str, View]) -> Dict[str, Tokens]:
    """q, k and v, and out where it is there; all have one rank, and the first three one type."""
    rank, found = len(views["q"].shape), {}
    for name in ("q", "k", "v", "out"):
        if name not in views:
            continue
        if len(views[name].shape) != rank:
            raise Error(f"q has {rank} dimensions and {name} {len(views[name].shape)}; the two "
                        "must be equal")
        if name != "out" and views[name].dtype != views["q"].dtype:
            raise Error(f"q has the type {_dtypes.NAMES[views['q'].dtype]} and {name} "
                        f"{_dtypes.NAMES[views[name].dtype]}; the two must be equal")
        found[name] = tokens_of(name, views[name], options.layout)
    check_equal(found, _EQUAL)
    return found


class Results(NamedTuple):
    """What new results are like."""

    out: Tuple[int, ...]     # its shape
    lse: Tuple[int, ...]
    random: Tuple[Any, ...]  # no shape where the call stores none
    swapped: bool            # out lies as in memory of the other layout, as q does
    leaves: bool             # some rows may be left as they are


def results_of(options: Options, q: Sequence[int], strides: Sequence[int], k: Sequence[int],
               v: Sequence[int], has_lengths: bool) -> Results:
    """From the shapes of q, k and v, and q's strides. v has five dimensions in pages of runs. Sizes
    may be torch.compile's, whose comparisons are expressions."""
    heads, tokens = [axis + len(q) - 4 for axis in _AXES[options.layout]]
    rows = (*q[:len(q) - 3], q[heads], q[tokens])
    keys = options.longest_k
    if keys is None and options.random:
        keys = tokens_in(k, options.layout)
    swapped = False
    if not (q[heads] == 1 or q[tokens] == 1 or strides[heads] == strides[tokens]):
        swapped = bool(strides[heads] < strides[tokens]) != (options.layout == "bshd")
    return Results((*q[:-1], v[3] if len(v) == 5 else v[-1]), rows, (*rows, keys), swapped,
                   options.skip_q != 0 or (len(q) == 4 and has_lengths))


def leaves_gradients(options: Options, q: Tuple[int, ...], k: Tuple[int, ...], has_lengths: bool
                     ) -> bool:
    """Whether some rows of gradients may be left as they are, from the shapes of q and k. Where
    there are no queries or no keys, the library sees no scores, and leaves the gradient of what a
    bias adds to them as it is."""
    return options.skip_q != 0 or (len(q) == 4 and has_lengths) or 0 in q or 0 in k


# ---- Lengths -------------------------------------------------------------------------------------

def check_sums(name: str, sums: List[int], array: str, tokens: int) -> int:
    """The longest of packed sequences, from the prefix sums of their lengths."""
    if not sums:
        raise Error(f"{name} must hold at least 1 prefix sum, got 0")
    if sums[0] != 0:
        raise Error(f"{name} must begin with 0, got {sums[0]}")
    longest = 0
    for i, (before, after) in enumerate(zip(sums, sums[1:])):
        if after < before:
            raise Error(f"{name} must not fall, but [{i}] is {before} and [{i + 1}] is {after}")
        longest = max(longest, after - before)
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
