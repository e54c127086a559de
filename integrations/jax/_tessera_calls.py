"""A problem as a call of XLA's, and what was left to JAX."""
from __future__ import annotations

import functools
import hashlib
import os
import pathlib
import sys
import threading
from typing import Any, Callable, List, NamedTuple, Sequence

import jax
import jax_tvm_ffi
import numpy
import tessera
import tvm_ffi
from tvm_ffi import libinfo

_HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(_HERE.parent / "native"))
import build  # noqa: E402

_SPEC = ["attrs.id", "args", "rets"]


class Refusal(NamedTuple):
    """A call that JAX computed instead."""

    function: str
    why: str


_report: List[Refusal] = []


def report() -> List[Refusal]:
    """What JAX computed instead since the import, in order; one entry for each traced call."""
    return list(_report)


def leave(function: str, why: str) -> None:
    _report.append(Refusal(function, why))


@functools.lru_cache(maxsize=None)
def module() -> Any:
    """tvm-ffi's module of tessera_know() and tessera_launch(), see tessera_tvm_ffi.cc. They take
    tensors of any package that tvm-ffi knows."""
    folders = [libinfo.find_include_path(), libinfo.find_dlpack_include_path()]
    return tvm_ffi.load_module(str(build.build([_HERE / "tessera_tvm_ffi.cc"], folders)))


def _dispatcher(platform: str) -> tessera.Dispatcher:
    with _lock:  # JAX refuses a second registration
        return _make_dispatcher(platform)


_lock = threading.Lock()


@functools.lru_cache(maxsize=None)
def _make_dispatcher(platform: str) -> tessera.Dispatcher:
    """Registers the function for the platform of JAX's, too."""
    jax_tvm_ffi.register_ffi_target("tessera_launch", module().tessera_launch, _SPEC,
                                    platform=platform)
    if platform == "cpu":
        return tessera.Dispatcher()
    return tessera.Dispatcher(os.environ.get("TESSERA_TARGET") or _gpu_target())


def _gpu_target() -> str:
    rows = [row for row in tessera.targets()["targets"] if row["backend"] == "cuda"]
    for row in rows:
        if row["runs_here"]:
            return str(row["name"])
    raise tessera.Error(rows[0]["why_not"] if rows else "Tessera launches nothing on CUDA")


def _platform() -> str:
    name = jax.default_backend()
    if name not in ("cpu", "gpu", "cuda"):
        raise tessera.Error(f"JAX computes on {name}, where Tessera has no kernels")
    return "cpu" if name == "cpu" else "gpu"


@functools.lru_cache(maxsize=4096)
def _check(platform: str, line: str) -> None:
    _dispatcher(platform).plan(line)


def plan(problem: tessera.Problem) -> None:
    """Chooses and builds the kernel while JAX traces, or raises tessera.Error."""
    _check(_platform(), problem.line)


def call(problem: tessera.Problem, results: Sequence[Any], **operands: Any) -> Any:
    """The problem as XLA's call. results: a ShapeDtypeStruct for each operand that is written, in
    the order of the problem's; operands: the arrays of all others, by name."""
    platform = _platform()
    plan(problem)
    written = [one.name for one in problem.operands if one.access != "read"]
    named = jax.ffi.ffi_call("tessera_launch", tuple(results), vmap_method="sequential")
    target = "" if platform == "cpu" else str(_dispatcher(platform).target["name"])
    return named(*operands.values(), id=know(target, problem.line, " ".join([*operands, *written])))


@functools.lru_cache(maxsize=4096)
def know(target: str, line: str, names: str) -> Any:
    """The problem's number, the same in every process."""
    digest = hashlib.sha256("\n".join((target, line, names)).encode()).digest()
    number = int.from_bytes(digest[:8], "little") >> 1
    module().tessera_know(number, target, line, names)
    return numpy.int64(number)


def or_else(function: str, ours: Callable[[], Any], theirs: Callable[[], Any]) -> Any:
    """ours(), or where Tessera refuses, theirs(), and an entry of the report."""
    try:
        return ours()
    except tessera.Error as refusal:
        leave(function, str(refusal))
        return theirs()
