"""The functions that need no object: they use the default dispatcher of this machine."""
from __future__ import annotations

from typing import Any, Dict, List, Optional, Union

from ._abi import Error
from ._checks import checked
from ._dispatcher import Dispatcher, default_dispatcher
from ._explain import Explanation
from ._problem import Problem


@checked
def select(problem: Union[str, Problem], *, target: Optional[str] = None, threads: int = 0,
           force: Optional[str] = None, **fields: Any) -> Dict[str, Any]:
    """The decision for a problem, see Dispatcher.select(). target: a row's name or a JSON file;
    choosing needs no such machine."""
    return _for(target).select(problem, threads=threads, force=force, **fields)


@checked
def explain(problem: Union[str, Problem], *, target: Optional[str] = None, threads: int = 0,
            force: Optional[str] = None, everything: bool = False, **fields: Any) -> Explanation:
    """Why a kernel is chosen, see Dispatcher.explain()."""
    return _for(target).explain(problem, threads=threads, force=force, everything=everything,
                                **fields)


@checked
def autotune(problem: Union[str, Problem], *, seconds: float = 0, top: int = 0, **fields: Any
             ) -> List[Dict[str, Any]]:
    """Measures a problem's best kernels on this machine, see Dispatcher.autotune()."""
    return default_dispatcher().autotune(problem, seconds=seconds, top=top, **fields)


def run(problem: Union[str, Problem], *, dispatcher: Optional[Dispatcher] = None,
        stream: Any = None, verify: bool = False, **operands: Any) -> Any:
    """Runs a problem on arrays by operand's name, see Dispatcher.run().

    run("norm kind=softmax rows=4 columns=8", **{"in": x}); run("gemm m=4 n=4 k=4", a=a, b=b)
    """
    if dispatcher is not None and not isinstance(dispatcher, Dispatcher):
        raise Error(f"run: dispatcher must be a Dispatcher, got {type(dispatcher).__name__}")
    chosen = default_dispatcher() if dispatcher is None else dispatcher
    return chosen.run(problem, stream=stream, verify=verify, **operands)


@checked
def gemm(problem: Union[str, Problem, None] = None, *, a: Any, b: Any, c: Any = None,
         d0: Any = None, d1: Any = None, d2: Any = None, d3: Any = None, out: Any = None,
         dispatcher: Optional[Dispatcher] = None, stream: Any = None, verify: bool = False,
         **fields: Any) -> Any:
    """A whole GEMM problem, as a line, a Problem, or keyword fields, on arrays in memory as the
    problem says.

    gemm("gemm m=8 n=4 k=16 dtype=bf16 layout=rcr", a=a, b=b)
    gemm(m=8, n=4, k=16, layout="rrr", a=a, b=b, epilogue="bias+clamp", clamp_lo=0, d0=bias)

    The operands are those of Problem.operands: an array's dimensions may have any order, its sizes
    and strides must be the problem's. The types of operands are words of the problem, dtype="bf16".
    out: made where it is not given. Returns out.
    """
    if problem is None:
        problem = Problem("gemm", **fields)
    elif fields:
        problem = Problem(problem.line if isinstance(problem, Problem) else problem, **fields)
    whole = problem if isinstance(problem, Problem) else Problem(problem)
    if whole.op != "gemm":
        raise Error(f"gemm needs a problem of the operation gemm, got '{whole}'")
    operands = {name: array for name, array in
                dict(a=a, b=b, c=c, d0=d0, d1=d1, d2=d2, d3=d3, out=out).items()
                if array is not None}
    return run(whole, dispatcher=dispatcher, stream=stream, verify=verify, **operands)


def _for(target: Optional[str]) -> Dispatcher:
    if target is None:
        return default_dispatcher()
    if target not in _by_target:
        _by_target[target] = Dispatcher(target)
    return _by_target[target]


_by_target: Dict[str, Dispatcher] = {}
