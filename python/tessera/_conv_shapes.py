"""From shapes and strides of arrays to the sizes and strides of a convolution. Pure functions."""
from __future__ import annotations

from typing import Any, Dict, List, NamedTuple, Sequence, Tuple

from ._abi import Error
from ._layout import check_strides
from ._values import at_least, shown

Dimension = Tuple[int, int]  # a size and its stride, in elements

# The word of a problem for each order of dimensions that a caller may name.
LAYOUTS = {"nhwgc": "nhwgc", "nwc": "nhwgc", "nhwc": "nhwgc", "ndhwc": "nhwgc",
           "nchw": "nchw", "ncw": "nchw", "ncdhw": "nchw"}
_OTHER = {"nhwgc": "nchw", "nchw": "nhwgc"}
_SIZES, _FILTER = ("d", "h", "w"), ("z", "y", "x")
_MOST_PADDING = 2**31 - 1


class Geometry(NamedTuple):
    """How the filter moves over the image, by spatial dimension."""

    stride: Tuple[int, ...]
    dilation: Tuple[int, ...]
    before: Tuple[int, ...]  # padding
    behind: Tuple[int, ...]
    groups: int


class Block(NamedTuple):
    """An image (n, channels) or filters (k, channels of a group), whatever the order in memory."""

    name: str
    outer: Dimension
    channels: Dimension
    spatial: Tuple[Dimension, ...]


def layout_word(layout: Any) -> str:
    if not isinstance(layout, str) or layout not in LAYOUTS:
        raise Error(f"layout must be one of {', '.join(LAYOUTS)}, got {shown(layout)}")
    return LAYOUTS[layout]


def _each(name: str, value: Any, ndim: int, kinds: str = "") -> Tuple[Any, ...]:
    values = tuple(value) if isinstance(value, (tuple, list)) else (value,) * ndim
    if len(values) != ndim:
        raise Error(f"{name} must be 1 number, or {ndim} {kinds}because there are {ndim} spatial "
                    f"dimensions, got {len(values)}")
    return values


def for_each(name: str, value: Any, ndim: int, least: int = 1) -> Tuple[int, ...]:
    """One number for every spatial dimension, or a number for each."""
    return tuple(at_least(name, number, least) for number in _each(name, value, ndim))


def _pads(value: Any, ndim: int) -> List[Tuple[int, ...]]:
    """(before, behind) of each dimension. A number of a pair that is negative behind leaves out so
    many of the last elements."""
    pairs = [tuple(pad) if isinstance(pad, (tuple, list)) else (pad, pad)
             for pad in _each("padding", value, ndim, "numbers or pairs ")]
    for pair in pairs:
        if len(pair) != 2:
            raise Error("padding of one dimension must be a number or a pair (before, behind), got "
                        f"{len(pair)} numbers")
    return [(at_least("padding", before, 0), at_least("padding", behind, -_MOST_PADDING))
            for before, behind in pairs]


def geometry_of(ndim: int, stride: Any, padding: Any, dilation: Any, groups: Any) -> Geometry:
    if not 1 <= ndim <= 3:
        raise Error(f"a convolution has 1 to 3 spatial dimensions, got {ndim}")
    pads = _pads(padding, ndim)
    return Geometry(for_each("stride", stride, ndim), for_each("dilation", dilation, ndim),
                    tuple(pad[0] for pad in pads), tuple(pad[1] for pad in pads),
                    at_least("groups", groups, 1))


def block_of(name: str, shape: Sequence[int], strides: Sequence[int], layout: str) -> Block:
    check_strides(name, shape, strides)
    outer, *others = zip(shape, strides)
    channels = others.pop(-1 if layout == "nhwgc" else 0)
    return Block(name, outer, channels, tuple(others))


def shape_of(outer: int, channels: int, spatial: Sequence[int], layout: str) -> Tuple[int, ...]:
    if layout == "nhwgc":
        return (outer, *spatial, channels)
    return (outer, channels, *spatial)


def out_sizes(size: Sequence[int], filters: Sequence[int], how: Geometry) -> Tuple[int, ...]:
    """The spatial size of y. Raises Error where the filter does not fit into the padded image."""
    found = []
    for i, (length, places) in enumerate(zip(size, filters)):
        padded = length + how.before[i] + how.behind[i]
        extent = how.dilation[i] * (places - 1) + 1
        if padded < extent:
            raise Error(f"the filter spans {extent} elements of {_SIZES[i - len(size)]}, but the "
                        f"padded image has {padded}")
        found.append((padded - extent) // how.stride[i] + 1)
    return tuple(found)


def least_sizes(out: Sequence[int], filters: Sequence[int], how: Geometry) -> Tuple[int, ...]:
    """The least spatial size of x of which such a y comes."""
    return tuple((length - 1) * how.stride[i] + how.dilation[i] * (places - 1) + 1 -
                 how.before[i] - how.behind[i]
                 for i, (length, places) in enumerate(zip(out, filters)))


# ---- The order of dimensions in memory -----------------------------------------------------------

def _fits(block: Block, memory: str) -> bool:
    size, stride = block.channels if memory == "nhwgc" else block.spatial[-1]
    return size <= 1 or stride == 1


def memory_of(layout: str, blocks: Sequence[Block]) -> str:
    """The layout of the problem: that of the arrays' memory, in which the elements of all of them
    are neighbours, whatever order `layout` gives to their dimensions."""
    for memory in (layout, _OTHER[layout]):
        if all(_fits(block, memory) for block in blocks):
            return memory
    shown = " and ".join(f"{block.name} {block.channels[1]} and {block.spatial[-1][1]}"
                         for block in blocks)
    raise Error("the elements along the channels, or those along the width, must be neighbours in "
                f"all arrays alike; along the two, the strides of {shown}; copy what differs with "
                "numpy.ascontiguousarray()")


def to_memory(rank: int, layout: str, memory: str) -> Tuple[int, ...]:
    """Where each dimension of the memory stands in the layout."""
    if layout == memory:
        return tuple(range(rank))
    if memory == "nhwgc":
        return (0, *range(2, rank), 1)
    return (0, rank - 1, *range(1, rank - 1))


def inverse(order: Sequence[int]) -> Tuple[int, ...]:
    return tuple(order.index(i) for i in range(len(order)))


def _given_strides(prefix: str, dimensions: Sequence[Tuple[str, Dimension]]) -> Dict[str, int]:
    """The strides that do not follow from the sizes. dimensions: innermost first."""
    fields: Dict[str, int] = {}
    packed = 1
    for name, (size, stride) in dimensions:
        if size > 1 and stride != packed:
            fields[prefix + name] = packed = stride
        packed *= max(size, 1)
    return fields


def _split(dimension: Dimension, groups: int) -> Tuple[Dimension, Dimension]:
    """The groups, and what is in one of them."""
    size, stride = dimension
    inner = size // groups
    return (groups, stride * inner), (inner, stride)


def image_strides(prefix: str, channel: str, block: Block, groups: int, memory: str
                  ) -> Dict[str, int]:
    """The fields of an image. channel: how the problem calls its channels, "c" or "k"."""
    group, channels = _split(block.channels, groups)
    inner = [(channel, channels), ("g", group)]
    spatial = list(zip(reversed(_SIZES), reversed(block.spatial)))
    order = inner + spatial if memory == "nhwgc" else spatial + inner
    return _given_strides(prefix, [*order, ("n", block.outer)])


def filter_strides(block: Block, groups: int, memory: str) -> Dict[str, int]:
    group, filters = _split(block.outer, groups)
    spatial = list(zip(reversed(_FILTER), reversed(block.spatial)))
    channels = [("c", block.channels)]
    order = channels + spatial if memory == "nhwgc" else spatial + channels
    return _given_strides("weight_stride_", [*order, ("k", filters), ("g", group)])


def size_fields(size: Sequence[int], filters: Sequence[int], how: Geometry) -> Dict[str, int]:
    """The fields of the spatial dimensions, without those at their default."""
    ndim = len(size)
    fields: Dict[str, int] = {"ndim": ndim} if ndim != 2 else {}
    for i in range(ndim):
        name, place = _SIZES[i - ndim], _FILTER[i - ndim]
        fields.update({name: size[i], place: filters[i]})
        for key, value, standard in (("stride_", how.stride[i], 1),
                                     ("dilation_", how.dilation[i], 1),
                                     ("pad_", how.before[i], 0),
                                     ("pad_right_", how.behind[i], how.before[i])):
            if value != standard:
                fields[key + name] = value
    return fields
