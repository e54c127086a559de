"""einsum: products of arrays of any number of dimensions, as equations."""
from __future__ import annotations

import functools
import json
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

from . import _arrays, _dtypes, _engine
from ._abi import Error
from ._arrays import Array, View
from ._checks import refusal
from ._dispatcher import Dispatcher
from ._engine import Call, New, Row, Views
from ._layout import check_strides
from ._problem import Problem


class Options(NamedTuple):
    equation: str
    alpha: float
    beta: float


def einsum(equation: str, a: Array, b: Array, *, out: Optional[Array] = None, alpha: float = 1.0,
           beta: float = 0.0, stream: Any = None, dispatcher: Optional[Dispatcher] = None) -> Any:
    """alpha * (the product of a and b that the equation says) + beta * out

    equation: the letters of a, of b and of the result, as numpy.einsum has them:
    "bqhd,bkhd->bhqk". A letter of both that the result lacks is summed over. "..." stands for
    leading dimensions that broadcast. Without "->..." the result has the letters that occur once,
    in the alphabet's order. Each letter is once in an operand; one that only one operand has is in
    the result.
    Arrays may have any strides of at least 0. Neighbouring dimensions become one where their
    strides allow it; where that leaves matrices, a call costs what matmul() costs. Other operands
    are copied before the product, and the result behind it, by the kernel's own launches.
    Types, out, alpha, beta, stream and dispatcher: as for matmul().

    Returns out. Raises Error where letters, sizes, types or strides do not fit, before anything is
    written.
    """
    try:
        shapes = [_arrays.shape_of(x, name) for name, x in (("a", a), ("b", b))]
        letters = spelled(equation, len(shapes[0]), len(shapes[1]))
        return _engine.run(_ROW, (a, b, out), ("einsum", letters, alpha, beta), stream,
                           dispatcher)[2]
    except Exception as failure:
        raise refusal(einsum, locals(), failure) from None


# ---- Equations -----------------------------------------------------------------------------------

@functools.lru_cache(maxsize=4096)
def spelled(equation: str, rank_a: int, rank_b: int) -> str:
    """The equation without blanks and dots, and with its result."""
    if not isinstance(equation, str):
        raise Error(f"einsum: an equation is a text such as 'mk,kn->mn', got "
                    f"{type(equation).__name__}")
    left, arrow, out = equation.replace(" ", "").partition("->")
    operands = left.split(",")
    if len(operands) != 2:
        raise Error(f"einsum: an equation has 2 operands, as in 'mk,kn->mn', got {len(operands)} "
                    f"in '{equation}'")
    a, b = operands
    known = set(equation)
    free = [x for x in "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz" if x not in known]
    lead = [_dots(name, letters, rank) for name, letters, rank in
            (("a", a, rank_a), ("b", b, rank_b))]
    dots = free[:max(lead)]
    a, b = (letters.replace("...", "".join(dots[len(dots) - n:])) for letters, n in
            zip((a, b), lead))
    for name, letters in (("a", a), ("b", b), ("out", out)):
        twice = [x for x in letters if x != "." and letters.count(x) > 1]
        if twice:
            raise Error(f"einsum: {name} has {twice[0]} twice, and a diagonal is no product")
    if arrow:
        if "." in out and out.count("...") != 1:
            raise Error(f"einsum: the result has one '...', got '{out}'")
        out = out.replace("...", "".join(dots))
    else:
        once = sorted(x for x in set(a + b) if (a + b).count(x) == 1 and x not in dots)
        out = "".join(dots) + "".join(once)
    return f"{a},{b}->{out}"


def _dots(name: str, letters: str, rank: int) -> int:
    """How many dimensions "..." stands for."""
    dots = letters.count("...")
    plain = letters.replace("...", "")
    if dots > 1 or "." in plain:
        raise Error(f"einsum: {name} has one '...' at most, got '{letters}'")
    if len(plain) > rank or (dots == 0 and len(plain) != rank):
        raise Error(f"einsum: {name} has {rank} dimensions, and '{letters}' names {len(plain)}")
    return rank - len(plain) if dots else 0


def _sizes(letters: str, views: Views) -> Tuple[Dict[str, int], Dict[str, View]]:
    """The size of each letter, and the operands with dimensions of one element spread."""
    left, out = letters.split("->")
    sizes: Dict[str, int] = {}
    for name, own in zip("ab", left.split(",")):
        for letter, size in zip(own, views[name].shape):
            known = sizes.get(letter, 1)
            if size != 1 and known != 1 and size != known:
                raise Error(f"einsum: {letter} must be of one size in a and b, got {known} and "
                            f"{size}")
            sizes[letter] = size if known == 1 else known
    spread = {}
    for name, own in zip("ab", left.split(",")):
        view = views[name]
        strides = tuple(0 if size == 1 else stride
                        for size, stride in zip(view.shape, view.strides))
        check_strides(name, view.shape, strides)
        spread[name] = view._replace(shape=tuple(sizes[x] for x in own), strides=strides)
    return sizes, spread


def result_of(letters: str, views: Views) -> Tuple[Tuple[int, ...], str]:
    """The result's shape, and its type where no out= says it."""
    sizes, _ = _sizes(letters, views)
    out = letters.split("->")[1]
    unknown = [x for x in out if x not in sizes]
    if unknown:
        raise Error(f"einsum: out has {unknown[0]}, which neither a nor b has")
    dtype = views["a"].dtype
    return tuple(sizes[x] for x in out), _dtypes.RESULTS.get(dtype, dtype)


# ---- Problems ------------------------------------------------------------------------------------

def _line(letters: str, sizes: Dict[str, int], views: Views, beta: bool) -> str:
    def strides(view: View) -> str:
        return ",".join(str(s if n != 1 else 0) for n, s in zip(view.shape, view.strides))
    words = ["einsum", letters, "sizes=" + ",".join(f"{x}:{n}" for x, n in sizes.items())]
    for name, view in views.items():
        if view.shape:
            words.append(f"strides_{name}={strides(view)}")
    words += [f"{name}={view.dtype}" for name, view in views.items()]
    return " ".join(words + (["beta=1"] if beta else []))


def _swapped(letters: str) -> str:
    a, b, out = letters.replace("->", ",").split(",")
    return f"{b},{a}->{out}"


def problem_of(options: Any, views: Views) -> Tuple[Dict[str, Any], Dict[str, str]]:
    """The problem's fields, and which array each operand is. a and b change places where that
    leaves nothing to be copied."""
    if not views["a"].shape and not views["b"].shape:
        raise Error("einsum: a or b must have a dimension, got two numbers")
    sizes, spread = _sizes(options.equation, views)
    out = views["out"]
    wanted = tuple(sizes[x] for x in options.equation.split("->")[1])
    if out.shape != wanted:
        raise Error(f"einsum: out must have the shape {wanted}, got {out.shape}")
    check_strides("out", out.shape, out.strides)
    ways = [({"a": spread["a"], "b": spread["b"], "out": out}, options.equation, "ab"),
            ({"a": spread["b"], "b": spread["a"], "out": out}, _swapped(options.equation), "ba")]
    found: List[Tuple[Dict[str, Any], str]] = []
    for own, letters, order in ways:
        line = _line(letters, sizes, own, options.beta != 0)
        fields = json.loads(Problem(line).to_json())
        found.append((fields, order))
        if fields["dims"] == "none":
            break
    fields, order = next(((f, o) for f, o in found if f["dims"] == "none"), found[0])
    fields.pop("op")
    fields.update(alpha=options.alpha, beta=options.beta)
    slots = {"a": order[0], "b": order[1], **({"c": "out"} if options.beta != 0 else {})}
    return fields, slots


def _check(given: Sequence[Any], views: Views) -> Options:
    _, letters, alpha, beta = given
    for name in ("alpha", "beta"):
        value = alpha if name == "alpha" else beta
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise Error(f"einsum: {name} must be a number, got {value!r}")
    if beta != 0 and "out" not in views:
        raise Error(f"einsum: beta={beta} reads out, which is not given")
    return Options(letters, float(alpha), float(beta))


def _make(call: Call) -> List[New]:
    if "out" in call.views:
        return []
    shape, word = result_of(call.options.equation, call.views)
    return [New("out", _arrays.empty(shape, word, call.given["a"], call.views["a"]))]


_ROW = Row("gemm", ("a", "b", "out"), ("a", "b"), ("out",), _check, _make, problem_of,
           sized=("out",))
