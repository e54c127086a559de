"""From shapes and strides of arrays to the sizes and strides of a GEMM problem. Pure functions."""
from __future__ import annotations

from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

from ._abi import Error

Pair = Tuple[Tuple[int, ...], Tuple[int, ...]]  # a shape and its strides, in elements


class Matrices(NamedTuple):
    """An operand as matrices: the leading dimensions, then rows and columns."""

    name: str
    shape: Tuple[int, ...]
    strides: Tuple[int, ...]

    @property
    def lead(self) -> Tuple[int, ...]:
        return self.shape[:-2]

    def transposed(self) -> "Matrices":
        return Matrices(self.name, (*self.lead, self.shape[-1], self.shape[-2]),
                        (*self.strides[:-2], self.strides[-1], self.strides[-2]))


def check_strides(name: str, shape: Sequence[int], strides: Sequence[int]) -> None:
    for size, stride in zip(shape, strides):
        if stride < 0 and size > 1 and 0 not in shape:
            raise Error(f"{name} has the stride {stride} over {size} elements; a problem's strides "
                        "are at least 0, copy it with numpy.ascontiguousarray()")


def check_row(name: str, shape: Tuple[int, ...], strides: Tuple[int, ...], columns: int) -> None:
    if shape != (columns,) or (columns > 1 and strides != (1,)):
        raise Error(f"{name} must have the shape {(columns,)} and the stride 1, got {shape} and "
                    f"{strides}")


def _is_rows(size: Tuple[int, int], stride: Tuple[int, int]) -> bool:
    (rows, columns), (down, along) = size, stride
    return (columns <= 1 or along == 1) and (rows <= 1 or down >= max(columns, 1))


def layout_of(matrices: Matrices) -> Tuple[str, Optional[int]]:
    """("r" or "c", the distance between rows or columns; None: it follows from the sizes)."""
    (rows, columns), (down, along) = matrices.shape[-2:], matrices.strides[-2:]
    if 0 in matrices.shape:
        return "r", None
    if _is_rows((rows, columns), (down, along)):
        return "r", down if rows > 1 and down != columns else None
    if _is_rows((columns, rows), (along, down)):
        return "c", along if columns > 1 and along != rows else None
    if min(down if rows > 1 else 1, along if columns > 1 else 1) == 0:
        raise Error(f"{matrices.name} repeats elements (it was broadcast): its shape is "
                    f"{(rows, columns)} and its strides are {(down, along)}; copy it with "
                    "numpy.ascontiguousarray()")
    raise Error(f"{matrices.name} has the strides {(down, along)} over {(rows, columns)} elements; "
                f"one of them must be 1 and the other at least {columns} (by rows) or {rows} (by "
                "columns), copy it with numpy.ascontiguousarray()")


def broadcast(names: Sequence[str], leads: Sequence[Tuple[int, ...]], function: str = "matmul"
              ) -> Tuple[int, ...]:
    """The common leading dimensions, as NumPy broadcasts them."""
    rank = max([0, *[len(lead) for lead in leads]])
    common = [1] * rank
    for lead in leads:
        for i, size in enumerate(lead, rank - len(lead)):
            if size != 1 and common[i] not in (1, size):
                shown = " and ".join(f"{n} {tuple(x)}" for n, x in zip(names, leads))
                raise Error(f"{function}: the leading dimensions of {shown} do not go together")
            common[i] = size if size != 1 else common[i]
    return tuple(common)


def spread(lead: Tuple[int, ...], matrices: Matrices) -> Tuple[int, ...]:
    """The strides over the common leading dimensions; 0 where all share the same matrix, or where
    the matrices have no elements."""
    if 0 in matrices.shape:
        return (0,) * len(lead)
    missing = len(lead) - len(matrices.lead)
    own = [0 if size == 1 else stride
           for size, stride in zip(matrices.lead, matrices.strides[:-2])]
    return (0,) * missing + tuple(own)


def collapse(shape: Tuple[int, ...], strides: Sequence[Tuple[int, ...]]
             ) -> Optional[Tuple[int, List[int]]]:
    """Several dimensions as a single one: its size, and each operand's stride. None: no single
    stride reaches all elements of some operand."""
    if 0 in shape:
        return 0, [0] * len(strides)
    kept = [i for i, size in enumerate(shape) if size != 1]
    if not kept:
        return 1, [0] * len(strides)
    for outer, inner in zip(kept, kept[1:]):
        if any(s[outer] != s[inner] * shape[inner] for s in strides):
            return None
    size = 1
    for i in kept:
        size *= shape[i]
    return size, [s[kept[-1]] for s in strides]


def longest_run(shape: Tuple[int, ...], strides: Sequence[Tuple[int, ...]]) -> Tuple[int, int]:
    """The first and the end of neighbouring dimensions that are a single one for every operand,
    of those that hold the most elements."""
    best, most = (0, 0), 0
    for first in range(len(shape)):
        for end in range(first + 1, len(shape) + 1):
            found = collapse(shape[first:end], [s[first:end] for s in strides])
            if found is not None and found[0] > most:
                best, most = (first, end), found[0]
    return best


def folded(lead: Tuple[int, ...], m: int, operands: Sequence[Matrices]
           ) -> Optional[Tuple[int, List[int]]]:
    """All batches as more rows of one matrix, where they share B: m, and the row strides."""
    strides = [(*spread(lead, x), x.strides[-2]) for x in operands]
    found = collapse((*lead, m), strides)
    if found is None or any(layout != "r" for layout, _ in map(layout_of, operands)):
        return None
    rows, downs = found
    if rows > 1 and any(down < x.shape[-1] for down, x in zip(downs, operands)):
        return None
    return found


def gemm_sizes(a: Matrices, b: Matrices, out: Matrices, residual: Optional[Matrices],
               lead: Tuple[int, ...], d: Optional[str]) -> Dict[str, Any]:
    """The problem's sizes, layout and strides. d: the residual's field, such as "d1"."""
    (m, k), n = a.shape[-2:], b.shape[-1]
    by_rows = {"a": a, "out": out, **({} if residual is None else {d: residual})}
    fields: Dict[str, Any] = {"m": m, "n": n, "k": k}
    layouts = {name: layout_of(x) for name, x in (("a", a), ("b", b), ("out", out))}
    fields["layout"] = layouts["a"][0] + layouts["b"][0] + "r"
    if residual is not None:
        layouts[str(d)] = layout_of(residual)
    lds = {name: ld for name, (_, ld) in layouts.items()}
    is_shared = all(size == 1 for size in b.lead)
    rows = folded(lead, m, list(by_rows.values())) if is_shared and lead else None
    if rows is not None:
        fields["m"] = rows[0]
        for (name, x), down in zip(by_rows.items(), rows[1]):
            lds[str(name)] = down if rows[0] > 1 and down != x.shape[-1] else None
    elif lead:
        fields.update(_batches(lead, {**by_rows, "b": b}))
    fields.update({f"ld_{name}": ld for name, ld in lds.items() if ld is not None})
    return fields


def _without_gap(matrices: Matrices) -> int:
    """The distance between batches that a problem assumes where it says none."""
    layout, ld = layout_of(matrices)
    outer, inner = matrices.shape[-2:] if layout == "r" else matrices.shape[:-3:-1]
    return outer * (inner if ld is None else ld)


def _batches(lead: Tuple[int, ...], operands: Dict[Any, Matrices]) -> Dict[str, Any]:
    """The number of batches and their distances; nothing where there is one."""
    found = collapse(lead, [spread(lead, x) for x in operands.values()])
    if found is None:
        shown = ", ".join(f"{x.name} {x.shape} with the strides {x.strides}"
                          for x in operands.values())
        raise Error(f"matmul: the leading dimensions {lead} are not at one distance from each "
                    f"other in every operand: {shown}; copy what is not contiguous")
    size, strides = found
    if size == 1:
        return {}
    return {"batch": size, **{f"batch_stride_{name}": stride
                              for (name, x), stride in zip(operands.items(), strides)
                              if stride != _without_gap(x)}}
