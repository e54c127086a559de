"""Scales of products of 8-bit floats: what shares a scale, read from the shapes of the scales."""
from __future__ import annotations

from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

from ._abi import Error

Shape = Tuple[int, ...]
# Rows of A (columns of B) by elements along k, in the order in which a shape is compared.
BLOCKS = {"1x128": (1, 128), "128x128": (128, 128), "1x32": (1, 32)}
WHOLE = ("tensor", "row")


class Side(NamedTuple):
    """An operand whose scales are looked at. lead: (groups,) where it has a matrix for each."""

    label: str
    rows: int  # of B: columns
    k: int
    lead: Shape
    is_b: bool
    is_byte: bool  # e8m0, else fp32


class Found(NamedTuple):
    """kind: a word of BLOCKS or of WHOLE. is_turned: k comes before the rows in the shape."""

    kind: str
    is_turned: bool


def _parts(size: int, part: int) -> int:
    return -(-size // part)


def _blocks(side: Side, kind: str) -> Shape:
    rows, k = BLOCKS[kind]
    return _parts(side.rows, rows), _parts(side.k, k)


def _shapes(side: Side) -> List[Tuple[Shape, Found]]:
    """Every shape that scales of the side may have. Those of B in fp32 lie as B does, k first;
    those in e8m0 have a row for each column, as PyTorch takes them, or lie as B does."""
    found: List[Tuple[Shape, Found]] = []
    if not side.is_byte:
        row = Found("row", False)
        found += [((*side.lead, side.rows), row),
                  ((*side.lead, *((1, side.rows) if side.is_b else (side.rows, 1))), row)]
    order = ("1x32", "1x128", "128x128") if side.is_byte else tuple(BLOCKS)
    orders = (False, True) if side.is_byte and side.is_b else (side.is_b,)
    for is_turned in orders:
        for kind in order:
            rows, k = _blocks(side, kind)
            shape = (k, rows) if is_turned else (rows, k)
            found.append(((*side.lead, *shape), Found(kind, is_turned)))
    return found


def _candidates(side: Side, shape: Shape) -> List[Found]:
    is_one = all(size == 1 for size in shape) and not side.is_byte
    found = [Found("tensor", False)] if is_one else []
    found += [row for wanted, row in _shapes(side) if wanted == shape]
    if found:
        return found
    wanted = list(dict.fromkeys(str(x) for x, _ in _shapes(side)))
    raise Error(f"{side.label} must have {'' if side.is_byte else '1 number or '}one of the shapes "
                f"{', '.join(wanted)} for {side.rows} {'columns' if side.is_b else 'rows'} and "
                f"{side.k} elements along k, got {shape}")


def pair(sides: Sequence[Side], shapes: Sequence[Shape]) -> Tuple[Found, Found]:
    """What the scales of A and of B are: blocks both, or whole rows, columns or matrices."""
    a, b = (_candidates(side, shape) for side, shape in zip(sides, shapes))
    for is_whole in (True, False):
        pairs = [(x, y) for x in a for y in b
                 if (x.kind in WHOLE) == (y.kind in WHOLE) == is_whole]
        if pairs:
            return pairs[0]
    raise Error(f"{sides[0].label} and {sides[1].label} must both be for blocks, or for whole "
                f"rows, columns or matrices, got the shapes {shapes[0]} and {shapes[1]}")


def check_types(sides: Sequence[Side]) -> None:
    if sides[0].is_byte != sides[1].is_byte:
        shown = ["float8_e8m0fnu" if side.is_byte else "float32" for side in sides]
        raise Error(f"{sides[0].label} and {sides[1].label} must have one type, got {shown[0]} and "
                    f"{shown[1]}")


def swizzled_blocks(side: Side) -> Tuple[int, int]:
    """How many tiles of 128 rows by 4 blocks of 32 along k cuBLAS's order has, along both."""
    return _parts(side.rows, 128), _parts(_parts(side.k, 32), 4)


def block_fields(name: str, found: Found, shape: Shape, strides: Shape) -> Dict[str, Any]:
    """A problem's fields. shape, strides: of the scales, rows before k. name: a or b."""
    rows, k = [stride if size > 1 else 1 for size, stride in zip(shape[-2:], strides[-2:])]
    fields: Dict[str, Any] = {f"scale_{name}": found.kind, f"stride_scale_{name}_k": k,
                              f"stride_scale_{name}_{'m' if name == 'a' else 'n'}": rows}
    if len(shape) == 3 and shape[0] > 1:
        fields[f"batch_stride_scale_{name}"] = strides[0]
    return fields


def whole_epilogue(bias: Optional[Any]) -> Dict[str, Any]:
    """A vector for rows and one for columns, and the bias as fp32 behind them."""
    return {"epilogue": "row_scale+col_scale" + "+bias" * (bias is not None), "d": "fp32"}
