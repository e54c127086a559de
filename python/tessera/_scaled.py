"""scaled_matmul: products of 8-bit floats with scales."""
from __future__ import annotations

from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Tuple

from . import _arrays, _dtypes, _engine, _scales
from ._abi import Error
from ._arrays import Array, View
from ._checks import refusal
from ._dispatcher import Dispatcher
from ._engine import Call, New, Row
from ._layout import Matrices, check_strides, gemm_sizes
from ._scales import Found, Side

_E8M0 = "float8_e8m0fnu"


class Options(NamedTuple):
    """What a call says besides its arrays, whose scales have rows before k."""

    of_a: Found
    of_b: Found
    is_byte: bool
    out: str


def scaled_matmul(a: Array, b: Array, *, scale_a: Any, scale_b: Any, bias: Optional[Array] = None,
                  out_dtype: Any = "bfloat16", out: Optional[Array] = None, stream: Any = None,
                  dispatcher: Optional[Dispatcher] = None) -> Any:
    """(scale_a * a) @ (scale_b * b) + bias for a (m, k) and b (k, n) of 8-bit floats.

    The shapes of the scales say what shares one:
    float32: 1 number for a matrix; (m, 1) and (1, n) for rows of a and columns of b;
        (m, k / 128) and (k / 128, n) for 128 elements along k;
        (m / 128, k / 128) and (k / 128, n / 128) for blocks of 128 by 128; k / 32 likewise.
    float8_e8m0fnu of ml_dtypes: (m, k / 32) and (n, k / 32), which is mxfp8.
    Sizes are rounded up where a block is short. Both operands have blocks, or neither; their
    blocks may differ. Scales may have any strides. bias: (n,), of the result's type or float32.
    out_dtype: float32, float16 or bfloat16, where there is no `out`.

    Returns out. Raises Error where shapes or types do not fit, before anything is written.
    """
    try:
        scales, found = _canonical(a, b, scale_a, scale_b)
        word = _dtypes.word_of(out_dtype, "out_dtype") if out is None else "out"
        if bias is not None and found[0].kind in _scales.WHOLE:
            bias = bias.astype("float32", copy=False)
        options = Options(*found, _is_byte(scale_a), word)
        return _engine.run(_ROW, (a, b, *scales, bias, out), options, stream, dispatcher)[5]
    except Exception as failure:
        raise refusal(scaled_matmul, locals(), failure) from None


# ---- Scales --------------------------------------------------------------------------------------

def _is_byte(scale: Any) -> bool:
    return getattr(getattr(scale, "dtype", None), "name", "") == _E8M0


def _canonical(a: Any, b: Any, scale_a: Any, scale_b: Any) -> Tuple[List[Any], Tuple[Found, Found]]:
    """The scales with rows before k, as vectors where they are whole, and what they are."""
    import numpy
    shapes = [_arrays.shape_of(x, name) for name, x in (("a", a), ("b", b))]
    if len(shapes[0]) != 2 or len(shapes[1]) != 2:
        raise Error(f"scaled_matmul: a and b must have 2 dimensions, got {len(shapes[0])} and "
                    f"{len(shapes[1])}")
    (m, k), (inner, n) = shapes
    if k != inner:
        raise Error(f"scaled_matmul: a has {k} columns and b has {inner} rows; the two must be "
                    "equal")
    given = [numpy.asarray(scale) for scale in (scale_a, scale_b)]
    sides = [Side("scale_a", m, k, (), False, _is_byte(given[0])),
             Side("scale_b", n, k, (), True, _is_byte(given[1]))]
    _scales.check_types(sides)
    found = _scales.pair(sides, [scale.shape for scale in given])
    return [_laid(*row) for row in zip(sides, given, found)], found


def _laid(side: Side, scale: Any, found: Found) -> Any:
    import numpy
    if side.is_byte:
        scale = scale.view("int8")
    elif scale.dtype != "float32":
        raise Error(f"{side.label} must have the type float32 or {_E8M0}, got {scale.dtype}")
    if found.kind == "tensor":
        return numpy.full(side.rows, scale.reshape(()), "float32")
    if found.kind == "row":
        return numpy.ascontiguousarray(scale.reshape(side.rows))
    return scale.T if found.is_turned else scale


# ---- Problems ------------------------------------------------------------------------------------

def _check(options: Options, views: Mapping[str, View]) -> Options:
    for name in ("a", "b"):
        if views[name].dtype not in ("fp8", "bf8"):
            raise Error(f"{name} must have the type float8_e4m3fn or float8_e5m2, got "
                        f"{_dtypes.NAMES[views[name].dtype]}")
    return options


def problem_of(options: Options, views: Mapping[str, View]) -> Tuple[Dict[str, Any],
                                                                     Dict[str, str]]:
    """The problem's fields, and which array each operand is."""
    m, n = views["a"].shape[0], views["b"].shape[1]
    if views["out"].shape != (m, n):
        raise Error(f"scaled_matmul: out must have the shape {(m, n)}, got {views['out'].shape}")
    matrices = {}
    for name in ("a", "b", "out"):
        view = views[name]
        check_strides(name, view.shape, view.strides)
        matrices[name] = Matrices(name, view.shape, view.strides)
    fields = gemm_sizes(matrices["a"], matrices["b"], matrices["out"], None, (), None)
    fields.update((name, views[name].dtype) for name in ("a", "b", "out"))
    bias = views.get("bias")
    if bias is not None and (bias.shape != (n,) or (n > 1 and bias.strides != (1,))):
        raise Error(f"bias must have the shape {(n,)} and the stride 1, got {bias.shape} and "
                    f"{bias.strides}")
    if options.of_a.kind in _scales.WHOLE:
        fields.update(_scales.whole_epilogue(bias))
        return fields, {"d0": "scale_a", "d1": "scale_b", "d2": "bias"}
    for name, found in (("a", options.of_a), ("b", options.of_b)):
        scale = views[f"scale_{name}"]
        check_strides(f"scale_{name}", scale.shape, scale.strides)
        fields.update(_scales.block_fields(name, found, scale.shape, scale.strides))
    fields["scale_type"] = "e8m0" if options.is_byte else "fp32"
    if bias is not None:
        fields.update(epilogue="bias", d=bias.dtype)
    return fields, {"d0": "bias"}


def _make(call: Call) -> List[New]:
    if "out" in call.views:
        return []
    shape = call.views["a"].shape[0], call.views["b"].shape[1]
    return [New("out", _arrays.empty(shape, call.options.out, call.given["a"], call.views["a"]))]


_ROW = Row("gemm", ("a", "b", "scale_a", "scale_b", "bias", "out"),
           ("a", "b", "scale_a", "scale_b"), ("out",), _check, _make, problem_of, sized=("out",))
