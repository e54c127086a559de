"""The functions that need no object: they use the default dispatcher of this machine."""
from __future__ import annotations

import os
import traceback
from typing import Any, Callable, Dict, List, Optional, Union

from . import _abi
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


@checked
def preload(pack: Union[str, "os.PathLike[str]"], *, target: Optional[str] = None
            ) -> Dict[str, Any]:
    """Loads the kernels of a pack for this machine's functions, see Dispatcher.preload()."""
    return _for(target).preload(pack)


_hooks: List[Any] = []  # what the library may call; the last one is set


def on_compile(hook: Optional[Callable[[str, str], Any]]) -> None:
    """Calls hook(kernel, why) before anything is compiled in this process.

    kernel: the name of the kernel, or of an object that kernels share. why: "for '<problem>'", "a
    part of <kernel>", or "". Where the hook returns False, or raises, nothing is compiled, and the
    best kernel that is ready runs instead. Any other result, None too, lets the compiler start.
    Threads of the library call it; it must not run problems. None: no hook.
    """
    if hook is not None and not callable(hook):
        raise Error(f"on_compile: hook must be callable, got {type(hook).__name__}")
    held = _abi.COMPILE_HOOK() if hook is None else _abi.COMPILE_HOOK(_asked(hook))
    _abi.call("tsr_set_compile_hook", held, None)
    # A compilation that has begun may still call the hook before.
    _hooks.append(held)


def _asked(hook: Callable[[str, str], Any]) -> Callable[..., int]:
    def ask(_: Any, kernel: bytes, why: bytes) -> int:
        try:
            return int(hook(kernel.decode(), why.decode()) is False)
        except BaseException:
            traceback.print_exc()
            return 1
    return ask


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
