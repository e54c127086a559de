"""From shapes and strides of arrays to the fields of a problem of attention. Pure functions."""
from __future__ import annotations

from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

from . import _attention_scales, _dtypes
from ._abi import Error
from ._arrays import View
from ._values import number, shown, whole

Dimension = Tuple[int, int]  # a size and its stride, in elements

# Where a tensor of four dimensions has its heads and its tokens.
_AXES = {"bshd": (2, 1), "bhsd": (1, 2)}
_MASKS = ("top_left", "bottom_right")
_LARGEST = 2**31 - 1  # lengths are int32


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


class Tokens(NamedTuple):
    """q, k, v or out, whatever the order of its dimensions. Packed tokens are one sequence."""

    name: str
    batch: Dimension
    heads: Dimension
    tokens: Dimension
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


def keys_of(options: Options, k: Sequence[int]) -> int:
    """Those of the longest sequence. k: the shape of k."""
    return tokens_in(k, options.layout) if options.longest_k is None else options.longest_k


def check_rank(name: str, rank: int) -> None:
    if rank not in (3, 4):
        raise Error(f"{name} must have 4 dimensions, or 3 where sequences are packed, got {rank}")


def lies_token_first(shape: Sequence[int], strides: Sequence[int], layout: str) -> bool:
    """Whether the heads of a token are neighbours, as in memory of the layout "bshd". A truth value
    also where sizes are torch.compile's, whose comparisons are expressions."""
    heads, tokens = (axis + len(shape) - 4 for axis in _AXES[layout])
    if shape[heads] == 1 or shape[tokens] == 1 or strides[heads] == strides[tokens]:
        return layout == "bshd"
    return bool(strides[heads] < strides[tokens])


def _tokens_of(name: str, view: View, layout: str) -> Tokens:
    pairs = list(zip(view.shape, view.strides))
    batch = pairs.pop(0) if len(pairs) == 4 else (1, 0)
    heads, tokens = pairs[:2] if layout == "bhsd" else pairs[1::-1]
    return Tokens(name, batch, heads, tokens, pairs[2])


def check_equal(what: str, one: Tokens, one_size: int, other: Tokens, size: int) -> None:
    if one_size != size:
        raise Error(f"{one.name} has {one_size} {what} and {other.name} {size}; the two must be "
                    "equal")


def _check_tokens(q: Tokens, k: Tokens, v: Tokens) -> None:
    check_equal("sequences", q, q.batch[0], k, k.batch[0])
    check_equal("sequences", q, q.batch[0], v, v.batch[0])
    check_equal("elements a head", q, q.hdim[0], k, k.hdim[0])
    check_equal("heads", k, k.heads[0], v, v.heads[0])
    check_equal("tokens", k, k.tokens[0], v, v.tokens[0])


def tokens_of(views: Dict[str, View], names: Sequence[str], layout: str) -> Dict[str, Tokens]:
    """Those of the names that are there."""
    for name in (name for name in names if name in views):
        check_rank(name, len(views[name].shape))
    return {name: _tokens_of(name, views[name], layout) for name in names if name in views}


def all_tokens(options: Options, views: Dict[str, View]) -> Dict[str, Tokens]:
    """q, k and v, and out where it is there; all have one rank, and the first three one type."""
    layout = layout_word(options.layout)
    found = tokens_of(views, ("q", "k", "v", "out"), layout)
    rank = len(views["q"].shape)
    for name in found:
        if len(views[name].shape) != rank:
            raise Error(f"q has {rank} dimensions and {name} {len(views[name].shape)}; the two "
                        "must be equal")
        if name != "out" and views[name].dtype != views["q"].dtype:
            raise Error(f"q has the type {_dtypes.NAMES[views['q'].dtype]} and {name} "
                        f"{_dtypes.NAMES[views[name].dtype]}; the two must be equal")
    _check_tokens(found["q"], found["k"], found["v"])
    return found


def result_shapes(q: Sequence[int], v: Sequence[int], layout: str
                  ) -> Tuple[Tuple[int, ...], Tuple[int, ...]]:
    """The shapes of out and lse. v has five dimensions in pages of runs."""
    heads, tokens = (axis + len(q) - 4 for axis in _AXES[layout])
    hdim_v = v[3] if len(v) == 5 else v[-1]
    return (*q[:-1], hdim_v), (*q[:len(q) - 3], q[heads], q[tokens])


def leaves_rows(options: Options, rank: int, lengths: Any) -> bool:
    """Whether some rows of a result may be left as they are."""
    return options.skip_q != 0 or (rank == 4 and lengths is not None)


def leaves_gradients(options: Options, q: Tuple[int, ...], k: Tuple[int, ...], lengths: Any
                     ) -> bool:
    """The same of the gradients, from the shapes of q and k. Where there are no queries or no keys,
    the library sees no scores, and leaves the gradient of what a bias adds to them as it is."""
    return leaves_rows(options, len(q), lengths) or 0 in q or 0 in k


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


# ---- Fields --------------------------------------------------------------------------------------

def _stride_fields(prefix: str, dimensions: Sequence[Tuple[str, Dimension]]) -> Dict[str, int]:
    """The strides that do not follow from the sizes. dimensions: innermost first."""
    fields, expected = {}, 1
    for name, (size, stride) in dimensions:
        if size <= 1:
            stride = expected
        if stride != expected:
            fields[prefix + name] = stride
        expected = stride * max(size, 1)
    return fields


def token_strides(t: Tokens) -> Dict[str, int]:
    return _stride_fields(f"{t.name}_stride_",
                          [("d", t.hdim), ("h", t.heads), ("s", t.tokens), ("b", t.batch)])


def mask_fields(mask: Any, window: Any, sink: Any) -> Dict[str, Any]:
    sinks = whole("sink", sink)
    if mask is None:
        if window is not None or sinks != 0:
            what, value = ("window", shown(window)) if window is not None else ("sink", sinks)
            raise Error(f"{what} is for a mask, which is one of {', '.join(_MASKS)}; got mask=None "
                        f"and {what}={value}")
        return {}
    if not isinstance(mask, str) or mask not in _MASKS:
        hint, given = "", shown(mask)
        if " of the shape " in given:
            hint = ('; a triangle is mask="top_left", and any other mask is a bias, such as '
                    "bias=numpy.where(mask, 0, -numpy.inf).astype(q.dtype)")
        raise Error(f"mask must be None or one of {', '.join(_MASKS)}, got {given}{hint}")
    ends = (-1, 0) if window is None else window
    if not isinstance(ends, (tuple, list)) or len(ends) != 2:
        raise Error(f"window must be a pair (left, right), got {shown(window)}")
    return {"mask": mask, "window_left": whole("window", ends[0]),
            "window_right": whole("window", ends[1]), "sink": sinks}


def scalar_fields(scale: Any, soft_cap: Any, skip_q: Any, dropout: Any) -> Dict[str, Any]:
    fields: Dict[str, Any] = {"soft_cap": number("soft_cap", soft_cap),
                              "skip_q": whole("skip_q", skip_q),
                              "p_drop": number("dropout", dropout)}
    if scale is not None:
        fields["scale"] = number("scale", scale)
        if fields["scale"] == 0:
            raise Error("scale must not be 0, which makes all scores equal; None is 1 / sqrt(hdim)")
    return fields


def plain(options: Options) -> Options:
    """The same, each of its kind, before anything else depends on them."""
    layout_word(options.layout)
    mask = mask_fields(options.mask, options.window, options.sink)
    scalars = scalar_fields(options.scale, options.soft_cap, options.skip_q, options.dropout)
    window = None if options.window is None else (mask["window_left"], mask["window_right"])
    blocks = tuple(None if block is None else whole(name, block)
                   for name, block in zip(("scale_block_q", "scale_block_k"), options.blocks))
    return options._replace(window=window, sink=mask.get("sink", 0), scale=scalars.get("scale"),
                            soft_cap=scalars["soft_cap"], skip_q=scalars["skip_q"],
                            dropout=scalars["p_drop"], blocks=blocks,
                            num_splits=whole("num_splits", options.num_splits))


def _broadcast(view: View, shape: Tuple[int, ...]) -> List[Dimension]:
    """NumPy's rule: dimensions that are missing or have one element repeat it."""
    missing = len(shape) - len(view.shape)
    pairs = [(1, 0)] * missing + list(zip(view.shape, view.strides))
    if missing < 0 or any(size not in (1, wanted) for (size, _), wanted in zip(pairs, shape)):
        raise Error(f"bias must have the shape {shape} (batch, heads, queries, keys) or one that "
                    f"is broadcast to it, got {view.shape}")
    return [(wanted, 0 if size == 1 else stride) for (size, stride), wanted in zip(pairs, shape)]


def _bias_fields(view: View, shape: Tuple[int, ...]) -> Dict[str, Any]:
    b, h, q, k = _broadcast(view, shape)
    return {"bias": "elementwise", "dtype_bias": view.dtype,
            **_stride_fields("bias_stride_", [("k", k), ("q", q), ("h", h), ("b", b)])}


def _slope_fields(view: View, heads: int, batch: int) -> Dict[str, Any]:
    if view.dtype != "fp32":
        raise Error(f"slopes must have the type float32, got {_dtypes.NAMES[view.dtype]}")
    if view.shape not in ((heads,), (batch, heads)) or (heads > 1 and view.strides[-1] != 1):
        raise Error(f"slopes must have the shape {(heads,)} or {(batch, heads)} and neighbours "
                    f"along the heads, got {view.shape} and the strides {view.strides}")
    stride = view.strides[0] if len(view.shape) == 2 and batch > 1 else 0
    return {"bias": "alibi", "slope_stride": stride}


def _length_fields(options: Options, views: Dict[str, View], q: Tokens, k: Tokens
                   ) -> Dict[str, Any]:
    is_packed = len(views["q"].shape) == 3
    if "seqlens_q" not in views:
        if is_packed:
            raise Error("q has 3 dimensions, which are packed tokens; they need seqlens_q and "
                        "seqlens_k, the prefix sums of the lengths")
        return {"batch": q.batch[0], "seqlen_q": q.tokens[0], "seqlen_k": k.tokens[0]}
    for name in ("seqlens_q", "seqlens_k"):
        if views[name].dtype != "int32":
            raise Error(f"{name} must have the type int32, got {_dtypes.NAMES[views[name].dtype]}")
        if len(views[name].shape) != 1:
            raise Error(f"{name} must have 1 dimension, got {len(views[name].shape)}")
    counts = views["seqlens_q"].shape[0], views["seqlens_k"].shape[0]
    if not is_packed:
        check_count("seqlens_q", counts[0], q.batch[0])
        check_count("seqlens_k", counts[1], q.batch[0])
        return {"lengths": "padded", "batch": q.batch[0], "seqlen_q": q.tokens[0],
                "seqlen_k": k.tokens[0]}
    if counts[0] != counts[1]:
        raise Error(f"seqlens_q holds {counts[0]} prefix sums and seqlens_k {counts[1]}; the two "
                    "must be equal")
    longest = [tokens.tokens[0] if given is None else given
               for tokens, given in ((q, options.longest_q), (k, options.longest_k))]
    return {"lengths": "packed", "batch": counts[0] - 1, "seqlen_q": longest[0],
            "seqlen_k": longest[1], "tokens_q": q.tokens[0], "tokens_k": k.tokens[0]}


def _check_results(views: Dict[str, View], layout: str) -> None:
    shape, rows = result_shapes(views["q"].shape, views["v"].shape, layout)
    if views["out"].shape != shape:
        raise Error(f"out must have the shape {shape}, got {views['out'].shape}")
    if "lse" not in views:
        return
    lse, packed = views["lse"], 1
    if lse.dtype != "fp32" or lse.shape != rows:
        raise Error(f"lse must have the shape {rows} and the type float32, got {lse.shape} and "
                    f"{_dtypes.NAMES[lse.dtype]}")
    for size, stride in zip(reversed(lse.shape), reversed(lse.strides)):
        if size > 1 and stride != packed and 0 not in lse.shape:
            raise Error(f"lse must have no gaps, got the strides {lse.strides} over {lse.shape}")
        packed *= size


def problem_fields(options: Options, views: Dict[str, View]) -> Dict[str, Any]:
    """The problem's fields; views has out, and lse where that is stored."""
    tokens = all_tokens(options, views)
    lengths = _length_fields(options, views, tokens["q"], tokens["k"])
    return fields_of(options, views, tokens, lengths, tuple(tokens))


def gradient_fields(options: Options, views: Dict[str, View]) -> Dict[str, Any]:
    """The same of gradients; views has out and lse, which are read, and dout, dq, dk and dv."""
    fields = problem_fields(options, views)
    for name, like in (("dout", "out"), ("dq", "q"), ("dk", "k"), ("dv", "v")):
        if views[name].shape != views[like].shape:
            raise Error(f"{name} must have the shape {views[like].shape} of {like}, got "
                        f"{views[name].shape}")
        if views[name].dtype != views["q"].dtype:
            raise Error(f"{name} must have the type {_dtypes.NAMES[views['q'].dtype]} of q, got "
                        f"{_dtypes.NAMES[views[name].dtype]}")
        fields.update(token_strides(_tokens_of(name, views[name], options.layout)))
    return {**fields, "kind": "backward", "lse": False, "dbias": "dbias" in views}


def fields_of(options: Options, views: Dict[str, View], tokens: Dict[str, Tokens],
              lengths: Dict[str, Any], moved: Sequence[str]) -> Dict[str, Any]:
    """lengths: with sequences and what the problem says of them; moved: what has strides."""
    _check_results(views, options.layout)
    q, k, v = (tokens[name] for name in "qkv")
    fields = {"heads": q.heads[0], "heads_kv": k.heads[0], "hdim": q.hdim[0], "hdim_v": v.hdim[0],
              **lengths}
    for name, same in (("heads_kv", "heads"), ("hdim_v", "hdim")):
        if fields[name] == fields[same]:
            del fields[name]
    word = views["q"].dtype
    fields.update({"in": word, "out": views["out"].dtype, "dtype_bias": word,
                   "lse": "lse" in views, "random": "random_values" in views})
    for name in moved:
        fields.update(token_strides(tokens[name]))
    fields.update(mask_fields(options.mask, options.window, options.sink))
    fields.update(scalar_fields(options.scale, options.soft_cap, options.skip_q, options.dropout))
    fields["num_splits"] = whole("num_splits", options.num_splits)
    if "bias" in views:
        sizes = (fields["batch"], fields["heads"], fields["seqlen_q"], fields["seqlen_k"])
        fields.update(_bias_fields(views["bias"], sizes))
    fields.update(_attention_scales.fields(options.blocks, views, fields))
    if "slopes" in views:
        fields.update(_slope_fields(views["slopes"], fields["heads"], fields["batch"]))
    return fields
