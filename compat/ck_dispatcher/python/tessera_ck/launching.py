"""Launches of plans on NumPy's arrays: in place on a CPU, through copies on a GPU."""
from __future__ import annotations

import contextlib
import ctypes
import time
from typing import Any, Callable, Dict, Iterator, List, Tuple

import tessera
from tessera import Error, _abi, _arrays
from tessera._plan import check_operand

from . import gpu_memory


def launch(plan: tessera.Plan, arrays: Dict[str, Any], *, verify: bool = False) -> float:
    """Runs a plan on arrays by operand's name, and returns the seconds of one launch: the median of
    up to three, 0 for one that adds to its output.

    verify: a launch before the timed ones is compared with the fp64 reference. Raises Error with
    the code "verification_failed" for a wrong result, and any other that the launch raises.
    """
    if plan.device[0] == "cpu":
        return _timed(plan, lambda checks: plan.launch(verify=checks, **arrays), verify,
                      lambda: None)
    with _on_device(plan, arrays) as call:
        return _timed(plan, call, verify, plan.synchronize)


def _timed(plan: tessera.Plan, call: Callable[[bool], None], verify: bool, wait: Any) -> float:
    updated = any(operand.access == "update" for operand in plan.operands)
    if verify:
        call(True)
        if updated:  # a second launch would add to it once more
            return 0.0
    taken = []
    while len(taken) < 3 and sum(taken) < 0.05:
        wait()
        start = time.perf_counter()
        call(False)
        wait()
        taken.append(time.perf_counter() - start)
        if updated:
            break
    return sorted(taken)[len(taken) // 2]


@contextlib.contextmanager
def _on_device(plan: tessera.Plan, arrays: Dict[str, Any]) -> Iterator[Callable[[bool], None]]:
    """The launch on copies of arrays on the plan's GPU; what it wrote is copied back at the end."""
    memory = gpu_memory.memory_of(plan.device)
    copies: List[Tuple[Any, int, int, int]] = []
    try:
        plan.check_names(arrays)
        for operand in plan.operands:
            if operand.name not in arrays:
                raise Error(f"'{plan.problem}' needs the operand {operand.name}")
            view = _arrays.view_of(arrays[operand.name], operand.name)
            check_operand(operand, view)
            size = view.nbytes()  # fewer than the array's where it repeats elements
            if size > arrays[operand.name].nbytes:
                raise Error(f"{operand.name} has gaps; arrays for a GPU must have none")
            copies.append((operand, memory.allocate(max(size, 1)), view.address, size))
            if size:
                memory.to_device(*copies[-1][1:])
        addresses = [there for _, there, _, _ in copies]
        yield lambda checks: plan.launch_at(addresses, plan._options(None, None, checks))
        plan.synchronize()
        for operand, there, here, size in copies:
            if operand.access != "read" and size:
                memory.to_host(here, there, size)
    finally:
        for _, there, _, _ in copies:
            memory.free(there)
        memory.close()


def pack(plan: tessera.Plan, b: Any, place: int) -> Any:
    """B in the order that the plan's kernel reads: bytes of NumPy's. CPU only."""
    import numpy
    packed = numpy.empty(_abi.size("tsr_packed_bytes", plan) + 64, numpy.uint8)
    packed = packed[-packed.ctypes.data % 64:]
    addresses = [0] * len(plan.operands)
    addresses[place] = _arrays.view_of(b, "B").address
    _abi.call("tsr_pack", plan, plan._array_of(addresses), len(addresses),
              ctypes.c_void_p(packed.ctypes.data), None)
    return packed


def _launch_packed_on_device(plan: tessera.Plan, arrays: Dict[str, Any]) -> float:
    memory = gpu_memory.memory_of(plan.device)
    taken: List[int] = []

    def there(size: int) -> int:
        taken.append(memory.allocate(max(size, 1)))
        return taken[-1]

    try:
        names = [operand.name for operand in plan.operands]
        views = {name: _arrays.view_of(arrays[name], name) for name in names}
        places = {name: there(view.nbytes()) for name, view in views.items()}
        for name, view in views.items():
            memory.to_device(places[name], view.address, view.nbytes())
        packed = there(_abi.size("tsr_packed_bytes", plan))
        _abi.call("tsr_pack", plan, plan._array_of([places[name] for name in names]), len(names),
                  ctypes.c_void_p(packed), None)
        addresses = [packed if name == "b" else places[name] for name in names]
        plan.launch_at(addresses)
        plan.synchronize()
        start = time.perf_counter()
        plan.launch_at(addresses)
        plan.synchronize()
        seconds = time.perf_counter() - start
        memory.to_host(views["out"].address, places["out"], views["out"].nbytes())
        return seconds
    finally:
        for place in taken:
            memory.free(place)
        memory.close()


def launch_packed(plan: tessera.Plan, arrays: Dict[str, Any]) -> float:
    """launch() for a problem whose B is packed ahead, which happens here once."""
    if plan.device[0] != "cpu":
        return _launch_packed_on_device(plan, arrays)
    names = [operand.name for operand in plan.operands]
    packed = pack(plan, arrays["b"], names.index("b"))
    addresses = [packed.ctypes.data if name == "b" else
                 _arrays.view_of(arrays[name], name).address for name in names]
    plan.launch_at(addresses)
    start = time.perf_counter()
    plan.launch_at(addresses)
    return time.perf_counter() - start


# Where no model has an opinion: how many kernels are measured (0: all), and for how long at most.
measure_best = 8
measure_seconds = 5.0


def measured_plan(dispatcher: tessera.Dispatcher, problem: tessera.Problem) -> tessera.Plan:
    """A plan of the kernel that a model or a measurement chose. Where there is neither, the
    `measure_best` kernels by estimate are measured, and the fastest right one is taken."""
    decision = dispatcher.select(problem)
    if decision["source"] in ("pinned", "tuned", "learned"):
        return dispatcher.plan(problem)
    legal = [row for row in decision["considered"] if not row["refusal"]]
    if len(legal) < 2:
        return dispatcher.plan(problem)
    rows = dispatcher.autotune(problem, seconds=measure_seconds, top=measure_best or len(legal))
    right = [row["kernel"] for row in rows if row["outcome"] == "ok"]
    return dispatcher.plan(problem, force=right[0] if right else None)
