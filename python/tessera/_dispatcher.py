"""Dispatchers: choosing kernels for problems, and running them."""
from __future__ import annotations

import ctypes
import json
import os
import threading
from typing import Any, Dict, List, Optional, Sequence, Tuple, Union

from . import _abi, _arrays, _commands, _interrupt, _values, _warm
from ._abi import Error
from ._checks import checked, refusal
from ._explain import Explanation
from ._plan import Plan
from ._problem import Operand, Problem, as_problem
from ._range_plan import RangePlan
from ._registry import Registry, build_options

# The target of arrays on such a device, where neither the caller nor TESSERA_TARGET names one.
# Other devices take the first that runs on the machine.
GPU_TARGETS = {"cuda": "sm90a"}


class Dispatcher(_abi.Handle):
    """Chooses, builds, caches and runs kernels for one target.

    target: a row's name ("avx512", "sm90a") or a JSON file; None: TESSERA_TARGET, or this machine.
    threads: the most threads of each launch on a CPU; 0: OpenMP's limit. device: the GPU's number.
    models: a folder of models, asked before the shipped ones. cache: the folder of built kernels;
    None: TESSERA_CACHE_DIR, or the user's. pool: a Registry; only its kernels are chosen.
    deterministic: only kernels whose bits do not depend on threads or order. autotune: measure each
    new problem's best kernels and remember the winner. by_length: choose by the lengths that
    kernels are tuned for, not by predicted times. without_model: what happens where no learned
    model has an opinion: "estimate" chooses, or "measure" measures the legal kernels once, at most
    the without_model_top best by the estimate unless that is 0, and keeps the winner.
    batch_invariant: a row (GEMM, normalisations), an image (convolutions) or a sequence (attention)
    has the same bits whatever else is in the batch. record: a file in which the problems that are
    asked are written down; None: TESSERA_RECORD, or what tessera.record() says. verify_every:
    compares one launch of so many, drawn at random, with the reference in the background, see
    sampling(); 0: TESSERA_VERIFY_EVERY, or none. build: a dict
    of further fields of tsr_build_options_t ("compiler", "nvrtc", "hip_compiler", "worker",
    "packs", "no_shipped_packs", "no_compile", "timeout_seconds", "cache_bytes"). Raises Error for
    an unknown target and for values that break a rule.
    """

    _kind = "dispatcher"

    @checked
    def __init__(self, target: Optional[str] = None, *, threads: int = 0, device: int = 0,
                 models: Optional[str] = None, cache: Optional[str] = None,
                 pool: Optional[Registry] = None, deterministic: bool = False,
                 autotune: bool = False, autotune_seconds: float = 0, autotune_top: int = 0,
                 tuning_store: Optional[str] = None, build: Optional[Dict[str, Any]] = None,
                 by_length: bool = False, without_model: str = "estimate",
                 without_model_top: int = 0, batch_invariant: bool = False,
                 record: Optional[str] = None, verify_every: int = 0) -> None:
        if without_model not in ("estimate", "measure"):
            raise Error(f"without_model must be 'estimate' or 'measure', got "
                        f"{_values.shown(without_model)}")
        build_struct = build_options(cache, build)
        held = None if pool is None else pool._as_parameter_  # until the dispatcher holds it
        options = _abi.DispatcherOptions(
            target=_abi.encode(target), threads=threads, device=device, models=_abi.encode(models),
            deterministic=deterministic, autotune=autotune,
            autotune_seconds=autotune_seconds, autotune_top=autotune_top,
            tuning_store=_abi.encode(tuning_store),
            by_length=by_length, measure_without_model=int(without_model == "measure"),
            without_model_top=without_model_top, batch_invariant=batch_invariant,
            record=_abi.encode(record), verify_every=verify_every, pool=held,
            build=None if build_struct is None else ctypes.pointer(build_struct))
        self._make("tsr_dispatcher_create", ctypes.byref(options))
        self.target: Dict[str, Any] = json.loads(_abi.text("tsr_dispatcher_target", self))
        backend = self.target["backend"]
        self._device_key: Tuple[str, int] = (backend, device if backend != "cpu" else 0)
        self._timing: Tuple[int, int] = (0, 0)
        self._measures = bool(autotune) or without_model == "measure"  # before a plan is made
        self._wrong = 0  # launches that verify_every has found wrong
        self._table: _warm.Table = {}
        self._plans: Dict[Any, Any] = {}  # plans, and what goes with them

    def close(self) -> None:
        """Gives the dispatcher back, when the last call of another thread that uses it has
        returned. Plans that it made stay good."""
        super().close()
        self.__dict__.get("_table", {}).clear()
        self.__dict__.get("_plans", {}).clear()

    @checked
    def select(self, problem: Union[str, Problem], *, threads: int = 0,
               force: Optional[str] = None, **fields: Any) -> Dict[str, Any]:
        """The decision; builds nothing.

        {"problem", "target", "kernel", "source", "predicted_seconds", "threads", "why",
        "considered": [{"kernel", "predicted_seconds", "refusal"}, ...]}, the accepted kernels
        first, best first. force: this kernel, or an Error that says why not.
        """
        options = _choose_options(threads, force)
        return json.loads(_abi.text("tsr_choose", self, as_problem(problem, **fields),
                                    ctypes.byref(options)))

    @checked
    def explain(self, problem: Union[str, Problem], *, threads: int = 0,
                force: Optional[str] = None, everything: bool = False, **fields: Any
                ) -> Explanation:
        """The decision for people: it prints well in a terminal and in a notebook.

        everything: all refused kernels by name.
        """
        whole = as_problem(problem, **fields)
        options = _choose_options(threads, force)
        text = _abi.text("tsr_explain", self, whole, ctypes.byref(options), int(bool(everything)))
        return Explanation(text, self.select(whole, threads=threads, force=force))

    @checked
    def plan(self, problem: Union[str, Problem], *, threads: int = 0, force: Optional[str] = None,
             **fields: Any) -> Plan:
        """Chooses, builds and loads; launches of the plan do none of that."""
        return Plan(self, as_problem(problem, **fields), _choose_options(threads, force))

    @checked
    def preload(self, pack: Union[str, "os.PathLike[str]"]) -> Dict[str, Any]:
        """Loads the kernels of a pack that are for this target, on a GPU onto the device too, so
        that later launches of them load nothing. A kernel that this library makes from another text
        is skipped, with a warning.

        Returns {"kernels": how many, "seconds", "skipped": [names]}.
        """
        return json.loads(_abi.text("tsr_preload", self, _abi.encode(os.fspath(pack))))

    @checked
    def sampling(self) -> Dict[str, int]:
        """What verify_every did so far, when a comparison that is running has ended.

        Returns {"launches", "compared", "wrong"} and why launches that were drawn were not
        compared: "busy", "too_large", "not_comparable", "failed". A kernel that was wrong is set
        aside for its problem. Functions keep their plans, and with them their kernels; this call
        drops such plans where a launch was wrong since the last call, so that functions choose
        again.
        """
        report = json.loads(_abi.text("tsr_sampling", self))
        if report["wrong"] != self._wrong:
            self._wrong = report["wrong"]
            self._table.clear()
            self._plans.clear()
        return report

    @checked
    def plan_range(self, line: str, *, threads: int = 0, force: Optional[str] = None) -> RangePlan:
        """One plan for all values of one field: plan_range("gemm m=1..8192 n=4096 k=4096
        dtype=bf16"). Chooses, builds and loads every kernel that a value needs; launches do none of
        that, and measure nothing."""
        return RangePlan(self, line, _choose_options(threads, force))

    @checked
    def set_timing(self, cold: int = 5, repeat: int = 10) -> None:
        """How plans that are made later are timed by Plan.bench(), where it is not told otherwise:
        `cold` calls before the first reading, then `repeat` readings."""
        if cold < 1 or repeat < 1:
            raise Error(f"set_timing: cold and repeat must be at least 1, got {cold} and {repeat}")
        self._timing = (cold, repeat)

    def run(self, problem: Union[str, Problem], *, stream: Any = None, verify: bool = False,
            **operands: Any) -> Any:
        """Runs a problem on arrays by operand's name, run("norm kind=softmax ...", x=...).

        Outputs that are not given are made, beside the first array. Returns the output, or a tuple
        of them where the problem has several, in the order of Problem.operands.
        """
        try:
            key = problem.line if isinstance(problem, Problem) else problem
            plan = self._plans.get(key)
            if plan is None:
                plan = self._keep(key, self.plan(problem))
            return run_plan(plan, operands, stream, verify)
        except Exception as failure:
            arguments = {"problem": problem, "verify": verify}
            raise refusal(Dispatcher.run, arguments, failure) from None

    def _keep(self, key: Any, plan: Any) -> Any:
        _warm.put(self, self._plans, key, plan)
        return plan

    @checked
    def autotune(self, problem: Union[str, Problem], *, seconds: float = 0, top: int = 0,
                 **fields: Any) -> List[Dict[str, Any]]:
        """Measures the `top` kernels that are predicted to be best for about `seconds`, and
        remembers them in the tuning store, for dispatchers that are made later.

        Returns [{"kernel", "outcome", "seconds", "spread", "note"}, ...], best first. Ctrl-C ends
        it.
        """
        arguments = (as_problem(problem, **fields), _values.number("seconds", seconds),
                     _values.whole_int("top", top))
        text = _interrupt.measured(lambda: _abi.text("tsr_autotune", self, *arguments))
        return json.loads(text)["measurements"]

    def __repr__(self) -> str:
        return f"<tessera.Dispatcher for {self.target['name']}>"


def _choose_options(threads: int, force: Optional[str]) -> _abi.ChooseOptions:
    return _abi.ChooseOptions(threads=threads, force=_abi.encode(force))


def run_plan(plan: Plan, operands: Dict[str, Any], stream: Any, verify: bool = False) -> Any:
    plan.check_names(operands)
    given = {name: array for name, array in operands.items() if array is not None}
    outputs = [op for op in plan.operands if op.access != "read"]
    missing = [op for op in outputs if op.name not in given]
    for op in missing:
        if op.access == "update":
            raise Error(f"'{plan.problem}' needs the operand {op.name}")
    if missing:
        first = next((op.name for op in plan.operands if op.name in given), None)
        if first is None:
            raise Error(f"'{plan.problem}' needs the operand {plan.operands[0].name}")
        like = given[first]
        view = _arrays.view_of(like, first, _arrays.stream_address(stream))
        for op in missing:
            given[op.name] = _make_output(op, like, view)
    plan.launch(stream=stream, verify=verify, **given)
    results = tuple(given[op.name] for op in outputs)
    return results[0] if len(results) == 1 else results


def _make_output(op: Operand, like: Any, view: _arrays.View) -> Any:
    """A new array without gaps, whatever the order of its dimensions in memory."""
    order = sorted(range(len(op.shape)), key=lambda i: -op.strides[i])
    packed = _arrays.packed_strides(tuple(op.shape[i] for i in order))
    if tuple(op.strides[i] for i in order) != packed:
        raise Error(f"{op.name} has the strides {op.strides}; give the array, because only arrays "
                    "without gaps are made")
    return _arrays.empty_in(order, op.shape, op.dtype, like, view)


_defaults: Dict[Any, Dispatcher] = {}
_lock = threading.Lock()


def default_dispatcher(device: Tuple[str, int] = ("cpu", 0), deterministic: bool = False,
                       batch_invariant: bool = False) -> Dispatcher:
    """The dispatcher of the functions that take none: one for each device and wish."""
    key = device, deterministic, batch_invariant
    found = _defaults.get(key)
    if found is not None:
        return found
    with _lock:
        if key not in _defaults:
            _defaults[key] = _make_default(device, deterministic=deterministic,
                                           batch_invariant=batch_invariant)
        return _defaults[key]


def _make_default(device: Tuple[str, int], **wishes: bool) -> Dispatcher:
    backend, number = device
    if backend == "cpu":
        return Dispatcher(**wishes)  # type: ignore[arg-type]
    wanted = os.environ.get("TESSERA_TARGET") or GPU_TARGETS.get(backend) or _target_here(backend)
    return Dispatcher(wanted, device=number, **wishes)  # type: ignore[arg-type]


def _target_here(backend: str) -> str:
    """The first target of a backend that runs on this machine."""
    targets = _commands.targets()["targets"]
    rows = [row for row in targets if row["backend"] == backend]
    if not rows:
        raise Error(f"Tessera launches nothing on {backend}", "unsupported")
    for row in rows:
        if row["runs_here"]:
            return str(row["name"])
    raise Error(rows[0]["why_not"], "unsupported")


def dispatcher_for(given: Optional[Dispatcher], view: _arrays.View) -> Dispatcher:
    """The caller's dispatcher, or the default one of the device where an array lies."""
    if given is None:
        return default_dispatcher(view.device)
    if not isinstance(given, Dispatcher):
        raise Error(f"dispatcher must be a Dispatcher, got {type(given).__name__}")
    given._as_parameter_  # says that it was closed, also to calls that launch nothing
    return given


def check_views(dispatcher: Dispatcher, views: Sequence[Tuple[str, _arrays.View]]) -> None:
    """All arrays must lie where the dispatcher's kernels run."""
    for name, view in views:
        if view.device != views[0][1].device:
            first, other = views[0][1].device, view.device
            raise Error(f"{views[0][0]} lies on {first[0]}:{first[1]} and {name} on "
                        f"{other[0]}:{other[1]}; all arrays must lie on one device")
        if view.device != dispatcher._device_key:
            here = dispatcher._device_key
            raise Error(f"{name} lies on {view.device[0]}:{view.device[1]}, but the dispatcher's "
                        f"kernels run on {here[0]}:{here[1]}")
