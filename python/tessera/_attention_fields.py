"""From the options and arrays of attention to the fields of its problem. Pure functions."""
from __future__ import annotations

from typing import Any, Dict, List, Sequence, Tuple

from . import _attention_scales, _attention_shapes, _dtypes, _paged
from ._abi import Error
from ._arrays import View
from ._attention_shapes import Dimension, Options, Tokens, check_count
from ._values import number, shown, whole

Views = Dict[str, View]
_MASKS = ("top_left", "bottom_right")


# ---- Options -------------------------------------------------------------------------------------

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


def plain(options: Options, views: Views) -> Options:
    """The same, each of its kind, before anything else depends on them, or on the ranks."""
    layout = _attention_shapes.layout_word(options.layout)
    ranked = "q" if "page_table" in views else "qkv"  # caches are looked at with their pages
    _attention_shapes.check_ranks({name: len(views[name].shape) for name in ranked})
    mask = {}
    if not (options.mask is options.window is None and type(options.sink) is int and
            options.sink == 0):
        mask = mask_fields(options.mask, options.window, options.sink)
    scale = None if options.scale is None else number("scale", options.scale)
    if scale == 0:
        raise Error("scale must not be 0, which makes all scores equal; None is 1 / sqrt(hdim)")
    blocks = tuple(None if block is None else whole(name, block)
                   for name, block in zip(("scale_block_q", "scale_block_k"), options.blocks))
    return options._replace(
        layout=layout, window=(mask["window_left"], mask["window_right"]) if mask else None,
        sink=mask.get("sink", 0), scale=scale, soft_cap=number("soft_cap", options.soft_cap),
        skip_q=whole("skip_q", options.skip_q), dropout=number("dropout", options.dropout),
        blocks=blocks, num_splits=whole("num_splits", options.num_splits))


# ---- Arrays --------------------------------------------------------------------------------------

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


def _broadcast(view: View, shape: Tuple[int, ...]) -> List[Dimension]:
    """NumPy's rule: dimensions that are missing or have one element repeat it."""
    missing = len(shape) - len(view.shape)
    pairs = [(1, 0)] * missing + list(zip(view.shape, view.strides))
    if missing < 0 or any(size not in (1, wanted) for (size, _), wanted in zip(pairs, shape)):
        raise Error(f"bias must have the shape {shape} (batch, heads, queries, keys) or one that "
                    f"is broadcast to it, got {view.shape}")
    return [(wanted, 0 if size == 1 else stride) for (size, stride), wanted in zip(pairs, shape)]


def _bias_fields(view: View, shape: Tuple[int, ...]) -> Dict[str, Any]:
    return {"bias": "elementwise", "dtype_bias": view.dtype,
            **stride_fields("bias", _broadcast(view, shape), "bhqk")}


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
    """Of sequences of several lengths."""
    is_packed = len(views["q"].shape) == 3
    if "seqlens_q" not in views:
        raise Error("q has 3 dimensions, which are packed tokens; they need seqlens_q and "
                    "seqlens_k, the prefix sums of the lengths")
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


def _check_lse(lse: View, rows: Tuple[int, ...]) -> None:
    if lse.dtype != "fp32" or lse.shape != rows:
        raise Error(f"lse must have the shape {rows} and the type float32, got {lse.shape} and "
                    f"{_dtypes.NAMES[lse.dtype]}")
    packed = 1
    for size, stride in zip(reversed(lse.shape), reversed(lse.strides)):
        if size > 1 and stride != packed and 0 not in lse.shape:
            raise Error(f"lse must have no gaps, got the strides {lse.strides} over {lse.shape}")
        packed *= size


# ---- Problems ------------------------------------------------------------------------------------

def problem_fields(options: Options, views: Views) -> Dict[str, Any]:
    """The problem's fields, from plain options. views has out, and lse where that is stored."""
    is_paged = "page_table" in views
    tokens = (_paged if is_paged else _attention_shapes).all_tokens(options, views)
    q, k, v = (tokens[name] for name in "qkv")
    if is_paged:
        fields = _paged.sequence_fields(options, views, tokens)
    elif "seqlens_q" in views or len(views["q"].shape) == 3:
        fields = _length_fields(options, views, q, k)
    else:
        fields = {"batch": q.batch[0], "seqlen_q": q.tokens[0], "seqlen_k": k.tokens[0]}
    results = _attention_shapes.results_of(options, *views["q"][2:4], views["k"].shape,
                                           views["v"].shape, "seqlens_q" in views)
    if views["out"].shape != results.out:
        raise Error(f"out must have the shape {results.out}, got {views['out'].shape}")
    if "lse" in views:
        _check_lse(views["lse"], results.lse)
    word = views["q"].dtype
    fields.update({"heads": q.heads[0], "hdim": q.hdim[0], "in": word, "out": views["out"].dtype,
                   "dtype_bias": word, "lse": "lse" in views, "random": "random_values" in views,
                   "soft_cap": options.soft_cap, "skip_q": options.skip_q,
                   "p_drop": options.dropout, "num_splits": options.num_splits})
    if k.heads[0] != q.heads[0]:
        fields["heads_kv"] = k.heads[0]
    if v.hdim[0] != q.hdim[0]:
        fields["hdim_v"] = v.hdim[0]
    if options.scale is not None:
        fields["scale"] = options.scale
    if options.window is not None:
        fields.update(mask=options.mask, window_left=options.window[0],
                      window_right=options.window[1], sink=options.sink)
    for part in tokens.values():
        if len(views[part.name].shape) != 5:  # a cache in runs has no strides
            fields.update(stride_fields(part.name, part[1:]))
    if "descale_q" in views or "scale_o" in views or options.blocks != (None, None):
        fields.update(_attention_scales.fields(options.blocks, views, fields))
    if "bias" in views:
        sizes = (fields["batch"], fields["heads"], fields["seqlen_q"], fields["seqlen_k"])
        fields.update(_bias_fields(views["bias"], sizes))
    if "slopes" in views:
        fields.update(_slope_fields(views["slopes"], fields["heads"], fields["batch"]))
    return fields


def gradient_fields(options: Options, views: Views) -> Dict[str, Any]:
    """The same of gradients; views has out and lse, which are read, and dout, dq, dk and dv."""
    fields = problem_fields(options, views)
    for name, like in (("dout", "out"), ("dq", "q"), ("dk", "k"), ("dv", "v")):
        if views[name].shape != views[like].shape:
            raise Error(f"{name} must have the shape {views[like].shape} of {like}, got "
                        f"{views[name].shape}")
        if views[name].dtype != views["q"].dtype:
            raise Error(f"{name} must have the type {_dtypes.NAMES[views['q'].dtype]} of q, got "
                        f"{_dtypes.NAMES[views[name].dtype]}")
        part = _attention_shapes.tokens_of(name, views[name], options.layout)
        fields.update(stride_fields(name, part[1:]))
    return {**fields, "kind": "backward", "lse": False, "dbias": "dbias" in views}
