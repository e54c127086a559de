"""From shapes and strides of arrays to the fields of a problem of attention. Pure functions."""
from __future__ import annotations

from typing import Any, Dict, Mapping, NamedTuple, Optional, Sequence, Tuple

from . import _attention_scales, _dtypes
from ._abi import Error
from ._arrays import View, check_packed
from ._values import check_equal, shown

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
        check_equal("{} dimensions", first, ranks[first], name, rank)


def tokens_of(name: str, view: View, layout: str) -> Tokens:
    if len(view.shape) == 5:
        return _in_runs(name, view)
    pairs = list(zip(view.shape, view.strides))
    batch = pairs.pop(0) if len(pairs) == 4 else (1, 0)
    tokens, heads = pairs[:2] if layout == "bshd" else pairs[1::-1]
    return Tokens(name, batch, tokens, heads, pairs[2])


def _in_runs(name: str, view: View) -> Tokens:
    """k (pages, heads, hdim / x, tokens, x) or v (pages, heads, tokens / x, hdim, x) as tokens."""
    run = 16 // _dtypes.BYTES[view.dtype]
    if view.shape[4] != run:
        raise Error(f"{name} of 5 dimensions must end with runs of {run} elements, 16 bytes of "
                    f"{_dtypes.NAMES[view.dtype]}, got {view.shape[4]}")
    check_packed(f"{name} of 5 dimensions", view)
    pages, heads, runs, together = view.shape[:4]
    hdim, tokens = (runs * run, together) if name == "k" else (together, runs * run)
    return Tokens(name, (pages, 0), (tokens, 0), (heads, 0), (hdim, 0))


# Pairs of arrays, and what is equal in both.
Equal = Tuple[Tuple[str, str, str, str], ...]
_CACHES: Equal = (("k", "v", "sequences", "batch"), ("k", "v", "heads", "heads"),
                  ("k", "v", "tokens", "tokens"))
_PAGES: Equal = (("k", "v", "pages", "batch"), ("k", "v", "heads", "heads"),
                 ("k", "v", "tokens a page", "tokens"))


def has_own_keys(views: Mapping[str, View]) -> bool:
    """Whether keys and values have 8 bits beside queries, or new keys, that have more."""
    other = views.get("k_new", views.get("q"))
    return (other is not None and _dtypes.BYTES[views["k"].dtype] == 1 and
            _dtypes.BYTES[other.dtype] > 1)


def all_tokens(views: Mapping[str, View], layout: str, groups: Sequence[Sequence[str]],
               equal: Equal, untyped: str = "") -> Dict[str, Tokens]:
    """The arrays of tokens that there are, which fit together. groups: names of arrays that have
    as many dimensions as each other. All have the type of the first, but for `untyped`, and but
    for keys and values of 8 bits beside other queries."""
    first = groups[0][0]
    own = has_own_keys(views)
    if own and first == "k":
        first = "k_new"
    for group in groups:
        for name in [name for name in group if name in views]:
            check_equal("{} dimensions", group[0], len(views[group[0]].shape), name,
                        len(views[name].shape))
            if name != untyped:
                like = "k" if own and name in ("k", "v") else first
                check_equal("the type {}", like, _dtypes.NAMES[views[like].dtype], name,
                            _dtypes.NAMES[views[name].dtype])
    found = {name: tokens_of(name, views[name], layout)
             for group in groups for name in group if name in views}
    for one, other, what, field in (*equal, *(_PAGES if "page_table" in views else _CACHES)):
        if one in found and other in found:
            check_equal("{} " + what, one, getattr(found[one], field)[0], other,
                        getattr(found[other], field)[0])
    return found


def stride_fields(name: str, dimensions: Sequence[Dimension], ends: str = "bshd"
                  ) -> Dict[str, int]:
    """The strides that do not follow from the sizes. dimensions: outermost first, as are the ends
    of the fields' names."""
    fields, expected = {}, 1
    for end, (size, stride) in zip(reversed(ends), reversed(dimensions)):
        if size <= 1:
            stride = expected
        if stride != expected:
            fields[f"{name}_stride_{end}"] = stride
        expected = stride * max(size, 1)
    return fields


def token_fields(views: Mapping[str, View], tokens: Mapping[str, Tokens]) -> Dict[str, Any]:
    """The types, the heads and the strides. A cache in runs has no strides."""
    k, v = tokens["k"], tokens["v"]
    q, word = tokens.get("q", k), views["k"].dtype
    own = {}
    if has_own_keys(views):
        own, word = {"kv": word}, views["k_new" if "k_new" in views else "q"].dtype
    fields = {"in": word, "dtype_bias": word, "heads": q.heads[0], "hdim": k.hdim[0], **own}
    if k.heads[0] != q.heads[0]:
        fields["heads_kv"] = k.heads[0]
    if v.hdim[0] != k.hdim[0]:
        fields["hdim_v"] = v.hdim[0]
    for part in tokens.values():
        if len(views[part.name].shape) != 5:
            fields.update(stride_fields(part.name, part[1:]))
    return fields


# ---- Results -------------------------------------------------------------------------------------

class Results(NamedTuple):
    """What new results are like."""

    out: Tuple[int, ...]     # its shape
    lse: Tuple[int, ...]
    random: Tuple[Any, ...]  # no shape where the call stores none
    order: Tuple[int, ...]   # of out's dimensions in memory, as q's lie; (): as they are
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
    order: Tuple[int, ...] = ()
    if not (q[heads] == 1 or q[tokens] == 1 or strides[heads] == strides[tokens]):
        if bool(strides[heads] < strides[tokens]) != (options.layout == "bshd"):
            lead = len(q) - 3
            order = (*range(lead), lead + 1, lead, lead + 2)
    return Results((*q[:-1], v[3] if len(v) == 5 else v[-1]), rows, (*rows, keys), order,
                   options.skip_q != 0 or (len(q) == 4 and has_lengths))


def leaves_gradients(options: Options, q: Tuple[int, ...], k: Tuple[int, ...], has_lengths: bool
                     ) -> bool:
    """Whether some rows of gradients may be left as they are, from the shapes of q and k. Where
    there are no queries or no keys, the library sees no scores, and leaves the gradient of what a
    bias adds to them as it is."""
    return options.skip_q != 0 or (len(q) == 4 and has_lengths) or 0 in q or 0 in k
