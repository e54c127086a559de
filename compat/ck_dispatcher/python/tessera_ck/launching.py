"""Launches of plans on NumPy's arrays: in place on a CPU, through copies on a GPU."""
from __future__ import annotations

import ctypes
import os
import time
from typing import Any, Dict, Optional

import tessera
from tessera import Error, _abi, _arrays


def launch(plan: tessera.Plan, arrays: Dict[str, Any], *, verify: bool = True) -> float:
    """Runs a plan on arrays by operand's name, and returns the seconds of one launch: the median of
    up to three, 0 for one that adds to its output.

    verify: a launch before the timed ones is compared with the fp64 reference. Raises Error with
    the code "verification_failed" for a wrong result, and any other that the launch raises.
    """
    if plan.device[0] == "cpu":
        return _timed(plan, arrays, verify, lambda: None)
    with _DeviceCopies(plan, arrays) as copies:
        return _timed(plan, copies.arrays, verify, plan.synchronize)


def _timed(plan: tessera.Plan, arrays: Dict[str, Any], verify: bool, wait: Any) -> float:
    updated = any(operand.access == "update" for operand in plan.operands)
    if verify:
        plan.launch(verify=True, **arrays)
        if updated:  # a second launch would add to it once more
            return 0.0
    taken = []
    while len(taken) < 3 and sum(taken) < 0.05:
        wait()
        start = time.perf_counter()
        plan.launch(**arrays)
        wait()
        taken.append(time.perf_counter() - start)
        if updated:
            break
    return sorted(taken)[len(taken) // 2]


class _OnDevice:
    """An array in a GPU's memory, as tessera reads it through DLPack's device."""

    def __init__(self, driver: ctypes.CDLL, array: Any, device: int) -> None:
        self.array, self.device, self._driver = array, device, driver
        self.address = ctypes.c_void_p()
        _check(driver.cuMemAlloc_v2(ctypes.byref(self.address), _size(array)), "cuMemAlloc")

    def release(self) -> None:
        self._driver.cuMemFree_v2(self.address)


def _size(array: Any) -> ctypes.c_size_t:
    return ctypes.c_size_t(max(array.nbytes, 1))


def _check(result: int, what: str) -> None:
    if result != 0:
        raise Error(f"NVIDIA's driver refused {what} with the number {result}", "launch_failed")


def _driver() -> ctypes.CDLL:
    name = os.environ.get("TESSERA_CUDA_DRIVER") or "libcuda.so.1"
    try:
        return ctypes.CDLL(name)
    except OSError as error:
        raise Error(f"NVIDIA's driver {name} cannot be loaded: {error}", "load_failed") from None


class _DeviceCopies:
    """Copies of arrays on a plan's GPU; what the launch wrote is copied back at the end."""

    def __init__(self, plan: tessera.Plan, arrays: Dict[str, Any]) -> None:
        self._plan, self._given = plan, arrays
        self.arrays: Dict[str, Any] = {}

    def __enter__(self) -> "_DeviceCopies":
        driver, number = _driver(), self._plan.device[1]
        self._driver, context = driver, ctypes.c_void_p()
        _check(driver.cuInit(0), "cuInit")
        _check(driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), number),
               "cuDevicePrimaryCtxRetain")
        _check(driver.cuCtxPushCurrent_v2(context), "cuCtxPushCurrent")
        self._held: Dict[str, Any] = {}
        try:
            for name, array in self._given.items():
                self._held[name] = _OnDevice(driver, array, number)
                self._copy(driver.cuMemcpyHtoDAsync_v2, self._held[name].address, array, name)
                self.arrays[name] = _lent(array, self._held[name])
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, kind: Optional[type], *_: Any) -> None:
        try:
            if kind is None:
                self._plan.synchronize()
                for operand in self._plan.operands:
                    if operand.access != "read":
                        held = self._held[operand.name]
                        self._copy(lambda to, at, n, s: self._driver.cuMemcpyDtoHAsync_v2(
                            at, to, n, s), held.address, held.array, operand.name)
        finally:
            self._end()

    def _copy(self, function: Any, address: ctypes.c_void_p, array: Any, name: str) -> None:
        view = _arrays.view_of(array, name)
        if view.nbytes() != array.nbytes:
            raise Error(f"{name} has gaps; arrays for a GPU must have none")
        if array.nbytes:
            default = ctypes.c_void_p(None)
            _check(function(address, ctypes.c_void_p(view.address), _size(array), default),
                   "a copy")
            _check(self._driver.cuStreamSynchronize(default), "cuStreamSynchronize")

    def _end(self) -> None:
        for held in self._held.values():
            held.release()
        self._driver.cuCtxPopCurrent_v2(ctypes.byref(ctypes.c_void_p()))


class _Lent:
    """DLPack's view of a copy on a GPU: the array's shape and strides at the copy's address."""

    def __init__(self, tensor: Any, device: int, keep: Any) -> None:
        self._tensor, self._device, self._keep = tensor, device, keep

    def __dlpack_device__(self) -> Any:
        return 2, self._device

    def __dlpack__(self, stream: Any = None) -> Any:
        make = ctypes.pythonapi.PyCapsule_New
        make.restype, make.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p,
                                                         ctypes.c_void_p]
        return make(ctypes.addressof(self._tensor), b"dltensor", None)


def _lent(array: Any, held: _OnDevice) -> _Lent:
    view = _arrays.view_of(array, "an array")
    count = len(view.shape)
    shape, strides = (ctypes.c_int64 * count)(*view.shape), (ctypes.c_int64 * count)(*view.strides)
    code, bits = next(key for key, word in _arrays._dtypes.DLPACK.items() if word == view.dtype)
    tensor = _arrays._Tensor(
        data=held.address.value, device=_arrays._Device(2, held.device), ndim=count,
        dtype=_arrays._DataType(code, bits, 1), byte_offset=0,
        shape=ctypes.cast(shape, ctypes.POINTER(ctypes.c_int64)),
        strides=ctypes.cast(strides, ctypes.POINTER(ctypes.c_int64)))
    return _Lent(tensor, held.device, (shape, strides))


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


def launch_packed(plan: tessera.Plan, arrays: Dict[str, Any]) -> float:
    """launch() for a problem whose B is packed ahead, which happens here once."""
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
