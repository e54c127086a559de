"""From the options and arrays of attention to the fields of its problem. Pure functions."""
from __future__ import annotations

from typing import Any, Dict, List, Tuple

from . import _attention_scales, _dtypes, _sequences
from ._abi import Error
from ._arrays import View, check_packed
from ._attention_shapes import (Dimension, Options, all_tokens, check_ranks, layout_word,
                                results_of, stride_fields, token_fields, tokens_of)
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
    layout = layout_word(options.layout)
    is_paged = "page_table" in views
    check_ranks({name: len(views[name].shape) for name in ("q" if is_paged else "qkv")})
    if is_paged:  # k was looked at with its pages
        _sequences.check_rank("v", len(views["v"].shape))
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

def _broadcast(view: View, shape: Tuple[int, ...]) -> List[Dimension]:
    """NumPy's rule: dimensions that are missing or have one element repeat it."""
    missing = len(shape) - len(view.shape)
    pairs = [(1, 0)] * missing + list(zip(view.shape, view.strides))
    if missing < 0 or any(size not in (1, wanted) for (size, _), wanted in zip(pairs, shape)):
        raise Error(f"bias must have the shape {shape} (batch, heads, queries, keys) or one that "
                    f"is broadcast to it, got {view.shape}")
    return [(wanted, 0 if size == 1 else stride) for (size, stride), wanted in zip(pairs, shape)]


def _check_lse(lse: View, rows: Tuple[int, ...], name: str = "lse") -> None:
    if lse.dtype != "fp32" or lse.shape != rows:
        raise Error(f"{name} must have the shape {rows} and the type float32, got {lse.shape} and "
                    f"{_dtypes.NAMES[lse.dtype]}")
    check_packed(name, lse)


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


# ---- Problems ------------------------------------------------------------------------------------

# What q and k have alike; pages are no sequences.
_EQUAL = (("q", "k", "sequences", "batch"), ("q", "k", "elements a head", "hdim"))


def problem_fields(options: Options, views: Views) -> Dict[str, Any]:
    """The problem's fields, from plain options. views has out, and lse where that is stored."""
    groups, equal = ((("q", "out"), ("k", "v")), _EQUAL[1:]) if "page_table" in views else (
        (("q", "k", "v", "out"),), _EQUAL)
    tokens = all_tokens(views, options.layout, groups, equal, "out")
    results = results_of(options, *views["q"][2:4], views["k"].shape, views["v"].shape,
                         "seqlens_q" in views)
    if views["out"].shape != results.out:
        raise Error(f"out must have the shape {results.out}, got {views['out'].shape}")
    if "lse" in views:
        _check_lse(views["lse"], results.lse)
    fields = {**token_fields(views, tokens),
              **_sequences.fields(views, tokens["q"], tokens["k"], options.longest_q,
                                  options.longest_k),
              "out": views["out"].dtype, "lse": "lse" in views, "random": "random_values" in views,
              "soft_cap": options.soft_cap, "skip_q": options.skip_q, "p_drop": options.dropout,
              "num_splits": options.num_splits}
    if options.scale is not None:
        fields["scale"] = options.scale
    if options.window is not None:
        fields.update(mask=options.mask, window_left=options.window[0],
                      window_right=options.window[1], sink=options.sink)
    if "descale_k" in views or "scale_o" in views or options.blocks != (None, None):
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
    if "dlse" in views:
        _check_lse(views["dlse"], views["lse"].shape, "dlse")
    for name, like in (("dout", "out"), ("dq", "q"), ("dk", "k"), ("dv", "v")):
        if views[name].shape != views[like].shape:
            raise Error(f"{name} must have the shape {views[like].shape} of {like}, got "
                        f"{views[name].shape}")
        if views[name].dtype != views["q"].dtype:
            raise Error(f"{name} must have the type {_dtypes.NAMES[views['q'].dtype]} of q, got "
                        f"{_dtypes.NAMES[views[name].dtype]}")
        part = tokens_of(name, views[name], options.layout)
        fields.update(stride_fields(name, part[1:]))
    return {**fields, "kind": "backward", "lse": False, "dbias": "dbias" in views,
            "dlse": "dlse" in views}
