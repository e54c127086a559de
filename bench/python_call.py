#!/usr/bin/env python3
"""What a warm call costs in Python over the C call: matmul with out= on NumPy's arrays.

    python3 bench/python_call.py [--check]

Prints microseconds for each way of calling, the median of interleaved rounds. --check: exits 1 if
matmul costs more than 2 us over the C call. The C call is timed by a loop in C where a compiler is
found, else through ctypes.
"""
import ctypes
import os
import statistics
import subprocess
import sys
import tempfile
import time
import types

import numpy

import tessera
from tessera import _abi, _warm

MOST = 2.0  # microseconds over the C call
CALLS, ROUNDS = 5000, 15
LOOP = """
int loop(int (*launch)(const void*, const void* const*, unsigned long, const void*),
         const void* plan, const void* const* operands, unsigned long count, int calls) {
  int status = 0;
  for (int i = 0; i < calls; ++i) status |= launch(plan, operands, count, 0);
  return status;
}
int loop_range(int (*launch)(const void*, long, const void* const*, unsigned long, const void*),
               const void* plan, const void* const* operands, unsigned long count, int calls) {
  int status = 0;
  for (int i = 0; i < calls; ++i) status |= launch(plan, 1, operands, count, 0);
  return status;
}
"""


def c_loops():
    """The loops in C, over plans and over plans over a range, as functions of (launch, plan,
    operands, count, calls); None: no compiler."""
    with tempfile.TemporaryDirectory() as folder:
        library = os.path.join(folder, "loop.so")
        try:
            subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-x", "c", "-", "-o", library],
                           input=LOOP.encode(), check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError):
            return None
        made = ctypes.CDLL(library)
    for found in made.loop, made.loop_range:
        found.argtypes = [ctypes.c_void_p] * 3 + [ctypes.c_ulong, ctypes.c_int]
    return made.loop, made.loop_range


def repeated(function):
    def work():
        for _ in range(CALLS):
            function()
    return work


def c_calls(launch, plan, ranged, operands):
    loops = c_loops()
    if loops is None:
        return {}
    one, over_range = (ctypes.cast(function, ctypes.c_void_p)
                       for function in (launch, _abi.function("tsr_range_launch")))
    return {"C call": lambda: loops[0](one, plan, operands, 3, CALLS),
            "C call, a plan over a range": lambda: loops[1](over_range, ranged, operands, 3, CALLS)}


def ways():
    dispatcher = tessera.Dispatcher(threads=1)
    a, b, out = (numpy.ones((1, 1), numpy.float32) for _ in range(3))
    plan = dispatcher.plan("gemm m=1 n=1 k=1 layout=rrr")
    operands = plan._array_of([x.ctypes.data for x in (a, b, out)])
    launch, address = _abi.function("tsr_launch"), plan._as_parameter_
    table, warm, options = {}, (a, b, None, None, out), ("matmul", None, 1.0, 0.0)
    bias, residual = numpy.ones(1, numpy.float32), numpy.ones((1, 1), numpy.float32)

    def call():
        tessera.matmul(a, b, out=out, dispatcher=dispatcher)

    call()
    ranged = dispatcher.plan_range("gemm m=1..64 n=1 k=1 layout=rrr")
    found = c_calls(launch, address, ranged._as_parameter_, operands)
    found.update({
        "ctypes, address and operands ready": repeated(lambda: launch(address, operands, 3, None)),
        "Plan.launch(a=, b=, out=)": repeated(lambda: plan.launch(a=a, b=b, out=out)),
        "RangePlan.launch(a=, b=, out=)": repeated(lambda: ranged.launch(a=a, b=b, out=out)),
        "matmul": repeated(call),
        "matmul, a new result": repeated(lambda: tessera.matmul(a, b, dispatcher=dispatcher)),
        "matmul with bias, relu, residual": repeated(
            lambda: tessera.matmul(a, b, bias=bias, activation="relu", residual=residual, out=out,
                                   dispatcher=dispatcher)),
    })
    owner = types.SimpleNamespace(_table=table, _held=plan._held)
    _warm.remember(owner, _warm.call_slowly(table, warm, options), plan, (0, 1, 4), warm)
    found["matmul's table through ctypes alone"] = repeated(
        lambda: _warm.call_slowly(table, warm, options))
    return found


def main():
    found = ways()
    times = {name: [] for name in found}
    for _ in range(ROUNDS):
        for name, work in found.items():
            began = time.thread_time()
            work()
            times[name].append((time.thread_time() - began) / CALLS * 1e6)
    medians = {name: statistics.median(seconds) for name, seconds in times.items()}
    for name, median in medians.items():
        print(f"{name:36} {median:7.3f} us")
    base = medians.get("C call", medians["ctypes, address and operands ready"])
    over = medians["matmul"] - base
    print(f"matmul costs {over:.3f} us over the C call; the limit is {MOST} us")
    return 1 if "--check" in sys.argv[1:] and over > MOST else 0


if __name__ == "__main__":
    sys.exit(main())
