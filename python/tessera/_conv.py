"""Convolutions: from arrays to a problem, its plan and its launch, in three directions."""
from __future__ import annotations

from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

from . import _arrays, _conv_shapes, _dtypes, _engine, _epilogue
from ._abi import Error
from ._arrays import Array
from ._checks import checked, refusal
from ._conv_shapes import Block, Geometry
from ._dispatcher import Dispatcher
from ._engine import Call, New, Row, Views
from ._problem import Problem
from ._values import check_equal, items

# The order in which a call's arrays stand in the table of plans: images, filters, images, extras.
SLOTS = ("x", "w", "y", "bias", "residual")
RESULT = {"forward": "y", "backward_data": "x", "backward_weight": "w"}
# The operands of the problem, by direction: those of x, w and y.
_OPERANDS = {"forward": ("in", "weight", "out"),
             "backward_data": ("grad_in", "weight", "grad_out"),
             "backward_weight": ("in", "grad_weight", "grad_out")}


class Options(NamedTuple):
    """What a call says besides its arrays."""

    direction: str
    stride: Any
    padding: Any
    dilation: Any
    groups: Any
    activation: Optional[str]
    alpha: Any
    beta: Any
    layout: str
    size: Any  # of the result: of x or of the filter; None: it follows, or out says it

    @property
    def result(self) -> str:
        return RESULT[self.direction]

    def name_of(self, slot: str) -> str:
        """What a sentence calls an array."""
        if slot == self.result:
            return "out"
        return "grad_out" if slot == "y" else slot


def conv(x: Array, w: Array, *, stride: Any = 1, padding: Any = 0, dilation: Any = 1,
         groups: int = 1,
         bias: Optional[Array] = None, residual: Optional[Array] = None,
         activation: Optional[str] = None, alpha: float = 1.0, beta: float = 0.0,
         layout: str = "nhwgc", out: Optional[Array] = None, stream: Any = None,
         dispatcher: Optional[Dispatcher] = None) -> Any:
    """activation(alpha * conv(x, w) + beta * out + bias) + residual, in one to three dimensions.

    layout: "nhwgc": x is (n, height, width, c), w is (k, filter's height, its width, c / groups),
    out is (n, height, width, k). "nchw": (n, c, height, width), (k, c / groups, height, width),
    (n, k, height, width), as PyTorch has them. One dimension has no height, three have a depth
    before it. The filter is not turned over, as in all frameworks. Views cost nothing where the
    channels, or the elements along the width, are neighbours in all arrays.
    stride, dilation: a number, or one for each dimension. padding: a number, one for each
    dimension, or a pair (before, behind) for each.
    Types: float32, float16, bfloat16, int8, float8_e4m3fn, float8_e5m2. bias: (k,). residual: out's
    shape, and its strides. activation, out, beta, stream, dispatcher: as in matmul().

    Returns out.
    """
    options = Options("forward", _fixed(stride), _fixed(padding), _fixed(dilation), groups,
                      activation, alpha, beta, layout, None)
    return _call(options, (x, w, out, bias, residual), stream, dispatcher)


def conv_backward_data(grad_out: Array, w: Array, *, size: Any = None, stride: Any = 1,
                       padding: Any = 0, dilation: Any = 1, groups: int = 1, alpha: float = 1.0,
                       beta: float = 0.0, layout: str = "nhwgc",
                       out: Optional[Array] = None, stream: Any = None,
                       dispatcher: Optional[Dispatcher] = None) -> Any:
    """alpha * the gradient of conv(x, w) by x + beta * out.

    grad_out: the gradient by conv's result. size: the spatial size of x, such as (56, 56); without
    it, and without out, the least that gives such a result. The other arguments are conv's. Returns
    out, in x's shape and of grad_out's type.
    """
    options = Options("backward_data", _fixed(stride), _fixed(padding), _fixed(dilation), groups,
                      None, alpha, beta, layout, _fixed(size))
    return _call(options, (out, w, grad_out, None, None), stream, dispatcher)


def conv_backward_weight(x: Array, grad_out: Array, *, filter: Any = None, stride: Any = 1,
                         padding: Any = 0, dilation: Any = 1, groups: int = 1, alpha: float = 1.0,
                         beta: float = 0.0, layout: str = "nhwgc",
                         out: Optional[Array] = None, stream: Any = None,
                         dispatcher: Optional[Dispatcher] = None) -> Any:
    """alpha * the gradient of conv(x, w) by w + beta * out.

    grad_out: the gradient by conv's result. filter: the spatial size of w, such as (3, 3), needed
    where out is not given. The other arguments are conv's. Returns out, in w's shape and of x's
    type.
    """
    options = Options("backward_weight", _fixed(stride), _fixed(padding), _fixed(dilation), groups,
                      None, alpha, beta, layout, _fixed(filter))
    return _call(options, (x, out, grad_out, None, None), stream, dispatcher)


@checked
def conv_problem(direction: str = "forward", *, n: int, c: int, k: int, size: Sequence[int],
                 filter: Any, stride: Any = 1, padding: Any = 0, dilation: Any = 1,
                 groups: int = 1, dtype: Any = "fp32", layout: str = "nhwgc", **fields: Any
                 ) -> Problem:
    """A convolution's Problem, with a value for each spatial dimension of `size`.

    conv_problem(n=32, c=64, k=64, size=(56, 56), filter=3, padding=1, dtype="bf16")

    fields: any other of the problem's, such as epilogue="bias+relu".
    """
    given = tuple(items("size", size))
    sizes = _conv_shapes.for_each("size", given, len(given), 0)
    how = _conv_shapes.geometry_of(len(sizes), stride, padding, dilation, groups)
    filters = _conv_shapes.for_each("filter", filter, len(sizes))
    return Problem("conv", direction=direction, n=n, c=c, k=k, g=groups,
                   dtype=_dtypes.word_of(dtype, "dtype"), layout=_conv_shapes.layout_word(layout),
                   **_conv_shapes.size_fields(sizes, filters, how), **fields)


# ---- Calls ---------------------------------------------------------------------------------------

def _fixed(value: Any) -> Any:
    """A list as a tuple, which has a hash, and the lists in it."""
    if not isinstance(value, (list, tuple)):
        return value
    return tuple(tuple(item) if isinstance(item, list) else item for item in value)


def _call(options: Options, arrays: Tuple[Any, ...], stream: Any,
          dispatcher: Optional[Dispatcher]) -> Any:
    row, place = _ROWS[options.direction]
    try:
        return _engine.run(row, arrays, options, stream, dispatcher)[place]
    except Exception as failure:
        function = {"forward": conv, "backward_data": conv_backward_data,
                    "backward_weight": conv_backward_weight}[options.direction]
        given = {options.name_of(slot): array for slot, array in zip(SLOTS, arrays)}
        raise refusal(function, {**options._asdict(), **given}, failure) from None


def _check(options: Options, views: Views) -> Options:
    """The same options with plain numbers and tuples of them."""
    options = _epilogue.plain(options)._replace(layout=_conv_shapes.layout_word(options.layout))
    _blocks(options, views)
    how = _geometry(options, views)
    name = "size" if options.result == "x" else "filter"
    size = (None if options.size is None
            else _conv_shapes.for_each(name, options.size, len(how.stride)))
    return options._replace(stride=how.stride, padding=tuple(zip(how.before, how.behind)),
                            dilation=how.dilation, groups=how.groups, size=size)


def _make(call: Call) -> List[New]:
    """A new array without gaps, whose dimensions lie in memory as those of the others do."""
    options, views = call.options, call.views
    if options.result in views:
        return []
    _epilogue.check_new(options)
    shape, word, memory = result_of(options, views)
    order = _conv_shapes.to_memory(len(shape), options.layout, memory)
    first = next(iter(views))
    return [New(options.result,
                _arrays.empty_in(order, shape, word, call.given[first], views[first]))]


def _row(direction: str) -> Tuple[Row, int]:
    """And where the result stands."""
    result = RESULT[direction]
    labels = {"y": "grad_out", result: "out"}
    return Row("conv", SLOTS, tuple(slot for slot in "xwy" if slot != result), (result,), _check,
               _make, problem_of, labels=labels), SLOTS.index(result)


# ---- Problems ------------------------------------------------------------------------------------

def _blocks(options: Options, views: Views) -> Dict[str, Block]:
    """The arrays x, w and y that there are, as blocks of equal rank."""
    given = [slot for slot in "xwy" if slot in views]
    first = views[given[0]]
    for slot in given:
        name, rank = options.name_of(slot), len(views[slot].shape)
        if not 3 <= rank <= 5:
            raise Error(f"{name} must have 3 to 5 dimensions, got {rank}")
        check_equal("{} dimensions", options.name_of(given[0]), len(first.shape), name, rank)
    return {slot: _conv_shapes.block_of(options.name_of(slot), *views[slot][2:4], options.layout)
            for slot in given}


def _geometry(options: Options, views: Views) -> Geometry:
    ndim = len(next(iter(views.values())).shape) - 2
    return _conv_shapes.geometry_of(ndim, options.stride, options.padding, options.dilation,
                                    options.groups)


def _sizes(block: Block) -> Tuple[int, ...]:
    return tuple(size for size, _ in block.spatial)


def _check_channels(blocks: Dict[str, Block], groups: int) -> None:
    if "x" in blocks and "w" in blocks:
        x, w = blocks["x"], blocks["w"]
        if x.channels[0] != w.channels[0] * groups:
            raise Error(f"{x.name} has {x.channels[0]} channels, and {w.name} has {w.channels[0]} "
                        f"in each of {groups} groups, which are {w.channels[0] * groups}; the two "
                        "must be equal")
    if "w" in blocks and "y" in blocks and blocks["w"].outer[0] != blocks["y"].channels[0]:
        raise Error(f"{blocks['w'].name} has {blocks['w'].outer[0]} filters, and "
                    f"{blocks['y'].name} has {blocks['y'].channels[0]} channels; the two must be "
                    "equal")
    for slot, what in (("x", "channels"), ("y", "channels"), ("w", "filters")):
        if slot not in blocks:
            continue
        block = blocks[slot]
        size = (block.outer if slot == "w" else block.channels)[0]
        if size % groups != 0:
            raise Error(f"groups must divide the {size} {what} of {block.name}, got {groups}")


def result_of(options: Options, views: Views, least: int = 1) -> Tuple[Tuple[int, ...], str, str]:
    """The shape of a result that was not given, its type, and the layout of its memory. least: what
    the size of an image must have."""
    blocks, how = _blocks(options, views), _geometry(options, views)
    _check_channels(blocks, how.groups)
    memory = _conv_shapes.memory_of(options.layout, list(blocks.values()))
    if options.direction == "forward":
        x, w = blocks["x"], blocks["w"]
        outer, channels, like = x.outer[0], w.outer[0], "x"
        spatial = _conv_shapes.out_sizes(_sizes(x), _sizes(w), how)
    elif options.direction == "backward_data":
        y, w = blocks["y"], blocks["w"]
        outer, channels, like = y.outer[0], w.channels[0] * how.groups, "y"
        spatial = (_conv_shapes.least_sizes(_sizes(y), _sizes(w), how) if options.size is None
                   else _conv_shapes.for_each("size", options.size, len(how.stride), least))
    elif options.size is None:
        raise Error("give the filter's size, such as filter=(3, 3), or out")
    else:
        outer, channels = blocks["y"].channels[0], blocks["x"].channels[0] // how.groups
        spatial = _conv_shapes.for_each("filter", options.size, len(how.stride))
        like = "x"
    word = views[like].dtype
    return (_conv_shapes.shape_of(outer, channels, spatial, options.layout),
            _dtypes.RESULTS.get(word, word) if options.direction == "forward" else word, memory)


def _check_sizes(blocks: Dict[str, Block], how: Geometry) -> None:
    x, w, y = blocks["x"], blocks["w"], blocks["y"]
    check_equal("{} images", x.name, x.outer[0], y.name, y.outer[0])
    wanted = _conv_shapes.out_sizes(_sizes(x), _sizes(w), how)
    if _sizes(y) != wanted:
        raise Error(f"{y.name} must have the spatial size {wanted}, which a filter of {_sizes(w)} "
                    f"on an image of {_sizes(x)} gives, got {_sizes(y)}")


def _check_asked(options: Options, blocks: Dict[str, Block]) -> None:
    """size= or filter= beside out= must say the same."""
    if options.size is None:
        return
    name = "size" if options.result == "x" else "filter"
    found = _sizes(blocks[options.result])
    if options.size != found:
        raise Error(f"{name} is {options.size}, but out has the spatial size {found}")


def _check_residual(views: Views) -> None:
    if "residual" in views:
        y, residual = views["y"], views["residual"]
        if residual.shape != y.shape:
            raise Error(f"residual must have the shape {y.shape}, got {residual.shape}")
        if any(size > 1 and a != b for size, a, b in zip(y.shape, residual.strides, y.strides)):
            raise Error(f"residual must lie as out does, got the strides {residual.strides} and "
                        f"{y.strides}")


def problem_of(options: Options, views: Views) -> Tuple[Dict[str, Any], Dict[str, str]]:
    """The problem's fields, and which array each operand is."""
    blocks, how = _blocks(options, views), _geometry(options, views)
    x, w, y = blocks["x"], blocks["w"], blocks["y"]
    _check_channels(blocks, how.groups)
    _check_sizes(blocks, how)
    _check_asked(options, blocks)
    _check_residual(views)
    # Channels last where the arrays lie as both layouts say: more kernels know it.
    memory = _conv_shapes.memory_of("nhwgc", [x, w, y])
    fields: Dict[str, Any] = {"direction": options.direction, "layout": memory, "n": x.outer[0],
                              "c": x.channels[0], "k": w.outer[0]}
    if how.groups != 1:
        fields["g"] = how.groups
    fields.update(_conv_shapes.size_fields(_sizes(x), _sizes(w), how))
    fields.update({"in": views["x"].dtype, "weight": views["w"].dtype, "out": views["y"].dtype})
    fields.update(_conv_shapes.image_strides("in_stride_", "c", x, how.groups, memory))
    fields.update(_conv_shapes.filter_strides(w, how.groups, memory))
    fields.update(_conv_shapes.image_strides("out_stride_", "k", y, how.groups, memory))
    extras, slots = _epilogue.fields(options, views, w.outer[0], "dtype_d")
    slots.update(zip(_OPERANDS[options.direction], "xwy"))
    if options.beta != 0:
        slots["c"] = options.result
    return {**fields, **extras}, slots


_ROWS = {direction: _row(direction) for direction in RESULT}
