"""grouped_matmul of lists: matrices of any sizes, one product each, in one launch.

Operands are arrays of pointers, and the sizes and the distances of rows of each group are arrays of
their own. All of these are made for a call, on the device that the matrices lie on.
"""
from __future__ import annotations

from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from . import _abi, _arrays, _dtypes, _epilogue
from ._abi import Error
from ._arrays import View
from ._dispatcher import Dispatcher, check_views, dispatcher_for
from ._layout import Matrices, check_strides, layout_of
from ._problem import Problem

_REFUSAL = "pointers and sizes of lists cannot be sent to a GPU"


class Given(NamedTuple):
    """The arrays of a call."""

    a: Sequence[Any]
    b: Sequence[Any]
    bias: Optional[Sequence[Any]]
    out: Optional[Sequence[Any]]


class _Wish(NamedTuple):
    """What a call says besides, as other functions have it."""

    activation: Optional[str]
    alpha: Any
    beta: Any = 0.0


class _Operand(NamedTuple):
    """The matrices of an operand, their common layout, and the distance of rows of each."""

    layout: str
    lds: List[int]


def run(given: Given, numbers: Mapping[str, Any], activation: Optional[str], alpha: Any,
        stream: Any, dispatcher: Optional[Dispatcher]) -> List[Any]:
    """The results of a call, in a new list or those of `out`."""
    _check_lists(given, numbers)
    stream = _arrays.stream_address(stream)
    views = {name: [_arrays.view_of(x, f"{name}[{i}]", stream) for i, x in enumerate(arrays)]
             for name, arrays in zip(given._fields, given) if arrays is not None}
    if not given.a:
        return [] if given.out is None else list(given.out)
    chosen = dispatcher_for(dispatcher, views["a"][0])
    check_views(chosen, [(f"{name}[{i}]", view) for name, some in views.items()
                         for i, view in enumerate(some)])
    wish = _epilogue.plain(_Wish(activation, alpha))
    _check_shapes(views)
    results = _results(given, views, stream)
    fields, arrays = _problem_of(wish, views)
    if fields["m"] > 0 and fields["n"] > 0:
        _launch(chosen, fields, arrays, given.a[0], stream)
    return results


# ---- What fits together --------------------------------------------------------------------------

def _check_lists(given: Given, numbers: Mapping[str, Any]) -> None:
    beside = [name for name, value in numbers.items() if value is not None]
    if beside:
        raise Error("grouped_matmul: lists have sizes of their own, so that ends, index and rows "
                    f"must be left out, got {' and '.join(beside)}")
    for name, arrays in zip(given._fields, given):
        if arrays is None:
            continue
        if not isinstance(arrays, (list, tuple)):
            raise Error(f"grouped_matmul: {name} must be a list as a is, got "
                        f"{type(arrays).__name__}")
        if len(arrays) != len(given.a):
            raise Error(f"grouped_matmul: {name} must have {len(given.a)} arrays, as many as a, "
                        f"got {len(arrays)}")


def _check_type(name: str, views: Sequence[View]) -> None:
    for i, view in enumerate(views):
        if view.dtype != views[0].dtype:
            raise Error(f"grouped_matmul: all of {name} must have one type, got "
                        f"{_dtypes.NAMES[views[0].dtype]} and, at {name}[{i}], "
                        f"{_dtypes.NAMES[view.dtype]}")


def _check_shapes(views: Mapping[str, List[View]]) -> None:
    for name, some in views.items():
        _check_type(name, some)
    for i, (a, b) in enumerate(zip(views["a"], views["b"])):
        if (len(a.shape), len(b.shape)) != (2, 2):
            raise Error(f"grouped_matmul: a[{i}] and b[{i}] must have 2 dimensions, got "
                        f"{len(a.shape)} and {len(b.shape)}")
        if a.shape[1] != b.shape[0]:
            raise Error(f"grouped_matmul: a[{i}] has {a.shape[1]} columns and b[{i}] has "
                        f"{b.shape[0]} rows; the two must be equal")
        for name, shape in (("bias", (b.shape[1],)), ("out", (a.shape[0], b.shape[1]))):
            if name in views and views[name][i].shape != shape:
                raise Error(f"grouped_matmul: {name}[{i}] must have the shape {shape}, got "
                            f"{views[name][i].shape}")
    for i, view in enumerate(views.get("bias", ())):
        if view.shape[0] > 1 and view.strides != (1,):
            raise Error(f"grouped_matmul: bias[{i}] must have the stride 1, got {view.strides}")


def _results(given: Given, views: Dict[str, List[View]], stream: Optional[int]) -> List[Any]:
    if given.out is not None:
        for i, view in enumerate(views["out"]):
            _arrays.check_output(view, f"out[{i}]")
        return list(given.out)
    word = _dtypes.RESULTS.get(views["a"][0].dtype, views["a"][0].dtype)
    made = [_arrays.empty((a.shape[0], b.shape[1]), word, array, a)
            for array, a, b in zip(given.a, views["a"], views["b"])]
    views["out"] = [_arrays.view_of(x, "out", stream) for x in made]
    return made


# ---- The problem and its operands ----------------------------------------------------------------

def _operand(name: str, views: Sequence[View]) -> _Operand:
    """A matrix that is one row or one column lies in either order."""
    found = []
    for i, view in enumerate(views):
        check_strides(f"{name}[{i}]", view.shape, view.strides)
        found.append(Matrices(f"{name}[{i}]", view.shape, view.strides))
    turned = [x.transposed() for x in found]
    by_rows = [layout_of(x)[0] == "r" for x in found]
    if all(by_rows):
        return _Operand("r", [_distance(x) for x in found])
    by_columns = [layout_of(x)[0] == "r" for x in turned]
    if all(by_columns):
        return _Operand("c", [_distance(x) for x in turned])
    raise Error(f"grouped_matmul: all of {name} must lie by rows, or all by columns, got "
                f"{name}[{by_rows.index(True)}] by rows and {name}[{by_rows.index(False)}] by "
                "columns; copy one of them")


def _distance(matrices: Matrices) -> int:
    ld = layout_of(matrices)[1]
    return max(matrices.shape[1], 1) if ld is None else ld


def _problem_of(wish: Any, views: Mapping[str, List[View]]
                ) -> Tuple[Dict[str, Any], Dict[str, Any]]:
    """The fields of a problem with the greatest sizes, and its arrays of numbers by name."""
    import numpy
    operands = {name: _operand(name, views[name]) for name in ("a", "b", "out")}
    if operands["out"].layout != "r":
        raise Error("grouped_matmul: out must lie by rows, got columns")
    sizes = {"m": [x.shape[0] for x in views["a"]], "n": [x.shape[1] for x in views["b"]],
             "k": [x.shape[1] for x in views["a"]]}
    steps = ["bias"] * ("bias" in views) + [wish.activation] * (wish.activation is not None)
    fields: Dict[str, Any] = {
        **{name: max(some) for name, some in sizes.items()}, "groups": len(views["a"]),
        "grouping": "lists", "group_strides": 1, "alpha": wish.alpha,
        "layout": operands["a"].layout + operands["b"].layout + "r",
        **({"epilogue": "+".join(steps)} if steps else {}),
        **({"d": views["bias"][0].dtype} if "bias" in views else {})}
    arrays: Dict[str, Any] = {f"group_{name}": some for name, some in sizes.items()}
    for name, x in operands.items():
        fields[name], fields[f"ld_{name}"] = views[name][0].dtype, max(x.lds)
        arrays[f"group_ld_{name}"] = x.lds
    arrays = {name: numpy.array(some, "int32") for name, some in arrays.items()}
    for name, operand in (("a", "a"), ("b", "b"), ("bias", "d0"), ("out", "out")):
        if name in views:
            arrays[operand] = numpy.array([x.address for x in views[name]], "uint64")
    return fields, arrays


def _launch(dispatcher: Dispatcher, fields: Dict[str, Any], arrays: Dict[str, Any], like: Any,
            stream: Optional[int]) -> None:
    key = "grouped_lists", tuple(fields.items())
    plan = dispatcher._plans.get(key)
    if plan is None:
        plan = dispatcher._keep(key, dispatcher.plan(Problem("gemm", **fields)))
    launch = _abi.LaunchOptions(stream=stream) if stream else None
    with _arrays.on_stream(like, stream):
        placed = {name: _arrays.from_host(x.view("int32"), like, _REFUSAL)
                  for name, x in arrays.items()}
        plan.launch_at([_arrays.view_of(placed[x.name], x.name, stream).address
                        for x in plan.operands], launch)
