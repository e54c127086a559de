"""grouped_matmul: products of groups of unequal sizes in one launch."""
from __future__ import annotations

from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Tuple

from . import _arrays, _dtypes, _engine, _epilogue, _grouped_lists
from ._abi import Error
from ._arrays import Array, View
from ._checks import refusal
from ._dispatcher import Dispatcher
from ._engine import Call, New, Row
from ._layout import Matrices, check_strides, layout_of
from ._sequences import wide_row

NUMBERS = {"contiguous": "group_ends", "along_k": "group_ends", "indexed": "group_index",
           "masked": "group_rows"}
# The order of a call's arrays, and what a caller calls them.
SLOTS = ("a", "b", "group_ends", "group_index", "group_rows", "bias", "out")
LABELS = {"group_ends": "ends", "group_index": "index", "group_rows": "rows"}


class Options(NamedTuple):
    """What a call says besides its arrays."""

    grouping: str
    activation: Optional[str] = None
    alpha: Any = 1.0
    beta: Any = 0.0
    out: Optional[str] = None  # the type of a new result


def grouped_matmul(a: Any, b: Any, *, ends: Any = None, index: Any = None, rows: Any = None,
                   bias: Any = None, activation: Optional[str] = None, out: Any = None,
                   alpha: float = 1.0, stream: Any = None,
                   dispatcher: Optional[Dispatcher] = None) -> Any:
    """activation(alpha * (a @ b) + bias) of groups of unequal sizes, in one launch.

    Exactly one of these says where the groups lie, in whole numbers. Those of int32 and int64 are
    read as they are:
    ends: (groups,), the sum of a group's size and of those before it.
        a (m, k), b (groups, k, n): rows of a and of the result (m, n) go by groups.
        a (groups, m, k), b (k, n): columns of b and of the result (m, n) go by groups.
        a (m, k), b (k, n): both are cut along k; the result is (groups, m, n).
    index: (m,), the group of each row of a (m, k), ascending; -1: of none. b is (groups, k, n).
    rows: (groups,), how many rows of each matrix count; a is (groups, m, k), b (groups, k, n).
    Rows of no group are 0 in a new result, and left alone in `out`. Numbers on a CPU are checked
    before the launch; those on a GPU are not read.
    a and b may be lists instead, of matrices of sizes of their own: a[i] (m_i, k_i), b[i]
    (k_i, n_i), and bias, out lists of (n_i,), (m_i, n_i). The result is then a list, too.
    bias: (n,) or (groups, n). The other arguments, and types, are those of matmul().

    Returns out. Raises Error where shapes, types or numbers do not fit, before anything is written.
    """
    try:
        if isinstance(a, (list, tuple)):
            numbers = {"ends": ends, "index": index, "rows": rows}
            return _grouped_lists.run(_grouped_lists.Given(a, b, bias, out), numbers, activation,
                                      alpha, stream, dispatcher)
        grouping = grouping_of(_ranks(a, b), {"ends": ends, "index": index, "rows": rows})
        name = NUMBERS[grouping]
        numbers = wide_row(LABELS[name], next(x for x in (ends, index, rows) if x is not None))
        arrays = [a, b, *(numbers if slot == name else None for slot in SLOTS[2:5]), bias, out]
        return _engine.run(_ROW, tuple(arrays), (grouping, activation, alpha), stream,
                           dispatcher)[6]
    except Exception as failure:
        raise refusal(grouped_matmul, locals(), failure) from None


def _ranks(a: Any, b: Any) -> Tuple[int, int]:
    return len(_arrays.shape_of(a, "a")), len(_arrays.shape_of(b, "b"))


def grouping_of(ranks: Tuple[int, int], numbers: Mapping[str, Any]) -> str:
    """The kind of groups that a call has."""
    given = [name for name, value in numbers.items() if value is not None]
    if len(given) != 1:
        raise Error("grouped_matmul needs one of ends, index and rows, got "
                    f"{' and '.join(given) or 'none'}")
    wanted = {"ends": ((2, 3), (3, 2), (2, 2)), "index": ((2, 3),), "rows": ((3, 3),)}[given[0]]
    if ranks not in wanted:
        shown = " or ".join(f"{x} and {y}" for x, y in wanted)
        raise Error(f"grouped_matmul: a and b must have {shown} dimensions with {given[0]}, got "
                    f"{ranks[0]} and {ranks[1]}")
    if given[0] != "ends":
        return "indexed" if given[0] == "index" else "masked"
    return "along_k" if ranks == (2, 2) else "contiguous"


# ---- Shapes and problems -------------------------------------------------------------------------

def _matrices(name: str, view: View) -> Matrices:
    check_strides(name, view.shape, view.strides)
    return Matrices(name, view.shape, view.strides)


def _is_turned(options: Options, views: Mapping[str, View]) -> bool:
    """Whether columns go by groups: the result's transpose is what a problem computes."""
    return options.grouping == "contiguous" and len(views["a"].shape) == 3


def result_shape(options: Options, views: Mapping[str, View]) -> Tuple[int, ...]:
    a, b = views["a"].shape, views["b"].shape
    if a[-1] != b[-2]:
        raise Error(f"grouped_matmul: a has {a[-1]} columns and b has {b[-2]} rows; the two must "
                    "be equal")
    if options.grouping == "along_k":
        return (views["group_ends"].shape[0], a[0], b[1])
    return (*(a[:1] if options.grouping == "masked" else ()), a[-2], b[-1])


def result_type(options: Options, views: Mapping[str, View]) -> str:
    word = views["a"].dtype
    return options.out or _dtypes.RESULTS.get(word, word)


def look_at_numbers(array: Any, name: str, stream: Optional[int]) -> View:
    """Numbers of 64 bits are rows of two words."""
    if len(array.shape) != 1:
        raise Error(f"{name} must have 1 dimension, got {len(array.shape)}")
    if str(array.dtype).rpartition(".")[2] != "int64":
        return _arrays.view_of(array, name, stream)
    words = _arrays.view_as(array, "int32", name, stream)
    return words._replace(shape=(array.shape[0], 2), strides=(2, 1))


def is_wide(view: View) -> bool:
    return len(view.shape) == 2 and view.shape[1] == 2 and view.strides == (2, 1)


def _count(options: Options, views: Mapping[str, View]) -> int:
    """The number of groups, which the numbers and the matrices must agree on."""
    name = NUMBERS[options.grouping]
    view, label = views[name], LABELS[name]
    if view.dtype != "int32":
        raise Error(f"{label} must have the type int32 or int64, got {_dtypes.NAMES[view.dtype]}")
    if not is_wide(view) and view.shape[0] > 1 and view.strides != (1,):
        raise Error(f"{label} must have the stride 1, got {view.strides}")
    if options.grouping == "along_k":
        return view.shape[0]
    stacked = "a" if _is_turned(options, views) else "b"
    groups = views[stacked].shape[0]
    wanted, what = (views["a"].shape[0], "rows of a") if options.grouping == "indexed" else (
        groups, f"matrices of {stacked}")
    if view.shape[0] != wanted:
        raise Error(f"{label} must hold {wanted} numbers, the {what}, got {view.shape[0]}")
    if options.grouping == "masked" and views["a"].shape[0] != groups:
        raise Error(f"a has {views['a'].shape[0]} matrices and b has {groups}; the two must be "
                    "equal with rows")
    return groups


def _bias_fields(options: Options, views: Mapping[str, View], n: int, groups: int
                 ) -> Dict[str, Any]:
    """The epilogue, its operand's type and the distance between the groups' vectors."""
    steps = ["bias"] * ("bias" in views) + [options.activation] * (options.activation is not None)
    found: Dict[str, Any] = {"epilogue": "+".join(steps)} if steps else {}
    if "bias" not in views:
        return found
    bias = views["bias"]
    if bias.shape not in ((n,), (groups, n)) or (n > 1 and bias.strides[-1] != 1):
        raise Error(f"bias must have the shape {(n,)} or {(groups, n)} and the last stride 1, got "
                    f"{bias.shape} and {bias.strides}")
    if _is_turned(options, views):
        raise Error("grouped_matmul: a bias is for groups of rows, got groups of columns, b of 2 "
                    "dimensions")
    return {**found, "d": bias.dtype,
            "batch_stride_d0": bias.strides[0] if len(bias.shape) == 2 else 0}


def problem_of(options: Options, views: Mapping[str, View]) -> Tuple[Dict[str, Any],
                                                                     Dict[str, str]]:
    """The problem's fields, and which array each operand is."""
    shape = result_shape(options, views)
    if views["out"].shape != shape:
        raise Error(f"grouped_matmul: out must have the shape {shape}, got {views['out'].shape}")
    groups = _count(options, views)
    a, b, out = (_matrices(name, views[name]) for name in ("a", "b", "out"))
    slots = {"a": "a", "b": "b", "out": "out", "d0": "bias"}
    if _is_turned(options, views):
        a, b, out = b.transposed(), a.transposed(), out.transposed()
        slots.update(a="b", b="a")
    layouts = {name: layout_of(x) for name, x in (("a", a), ("b", b), ("out", out))}
    if layouts["out"][0] != "r":
        raise Error("grouped_matmul: out must lie by "
                    f"{'columns' if _is_turned(options, views) else 'rows'}, got the strides "
                    f"{views['out'].strides} over {shape}")
    fields: Dict[str, Any] = {
        "m": a.shape[-2], "k": a.shape[-1], "n": b.shape[-1], "groups": groups,
        "grouping": options.grouping, "layout": layouts["a"][0] + layouts["b"][0] + "r",
        "alpha": options.alpha, **_bias_fields(options, views, b.shape[-1], groups)}
    if is_wide(views[NUMBERS[options.grouping]]):
        fields["group_int64"] = 1
    for name, x in (("a", a), ("b", b), ("out", out)):
        fields[name] = views[slots[name]].dtype
        if layouts[name][1] is not None:
            fields[f"ld_{name}"] = layouts[name][1]
        if x.lead and x.lead[0] > 1 and 0 not in x.shape:
            fields[f"batch_stride_{name}"] = x.strides[0]
    return fields, slots


# ---- Calls ---------------------------------------------------------------------------------------

def _check(given: Tuple[Any, ...], views: Mapping[str, View]) -> Options:
    return _epilogue.plain(Options(*given))


def _make(call: Call) -> List[New]:
    shape = result_shape(call.options, call.views)
    if "out" in call.views:
        return []
    turned = _is_turned(call.options, call.views)
    rest = None if call.options.grouping == "along_k" else 0.0
    made = _arrays.empty_in((1, 0) if turned else (), shape,
                            result_type(call.options, call.views), call.given["a"],
                            call.views["a"])
    return [New("out", made, rest)]


_ROW = Row("gemm", SLOTS, ("a", "b"), ("out",), _check, _make, problem_of, sized=("out",),
           labels=LABELS, looks=dict.fromkeys(LABELS, look_at_numbers))
