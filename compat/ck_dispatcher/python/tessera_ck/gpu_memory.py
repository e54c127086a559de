"""Memory of a GPU, by NVIDIA's driver or AMD's HIP: one class for each, with the same functions.
What gives back does not complain, since it also runs after a failure that has its own sentence."""
from __future__ import annotations

import ctypes
import os
from typing import Any, List, Tuple

from tessera import Error

_HIP_NAMES = ("libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5", "libamdhip64.so")


def _load(vendor: str, names: List[str]) -> ctypes.CDLL:
    why: Any = None
    for name in names:
        try:
            return ctypes.CDLL(name)
        except OSError as error:
            why = why or error
    raise Error(f"{vendor} {names[0]} cannot be loaded: {why}", "load_failed")


class Cuda:
    """The device's primary context, which Tessera launches in, from the start until close()."""

    def __init__(self, device: int) -> None:
        self._driver = _load("NVIDIA's driver",
                             [os.environ.get("TESSERA_CUDA_DRIVER") or "libcuda.so.1"])
        self._context = ctypes.c_void_p()
        self._call("cuInit", 0)
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(self._context), device)
        self._call("cuCtxPushCurrent_v2", self._context)

    def _call(self, name: str, *arguments: Any) -> None:
        result = getattr(self._driver, name)(*arguments)
        if result != 0:
            raise Error(f"NVIDIA's driver refused {name} with the number {result}", "launch_failed")

    def _copy(self, name: str, to: int, source: int, size: int) -> None:
        default = ctypes.c_void_p(None)
        self._call(name, ctypes.c_void_p(to), ctypes.c_void_p(source), ctypes.c_size_t(size),
                   default)
        self._call("cuStreamSynchronize", default)

    def allocate(self, size: int) -> int:
        there = ctypes.c_void_p()
        self._call("cuMemAlloc_v2", ctypes.byref(there), ctypes.c_size_t(size))
        return there.value or 0

    def free(self, there: int) -> None:
        self._driver.cuMemFree_v2(ctypes.c_void_p(there))

    def to_device(self, there: int, here: int, size: int) -> None:
        self._copy("cuMemcpyHtoDAsync_v2", there, here, size)

    def to_host(self, here: int, there: int, size: int) -> None:
        self._copy("cuMemcpyDtoHAsync_v2", here, there, size)

    def close(self) -> None:
        self._driver.cuCtxPopCurrent_v2(ctypes.byref(self._context))


class Hip:
    """The device, which is the calling thread's from the start until close()."""

    def __init__(self, device: int) -> None:
        wanted = os.environ.get("TESSERA_HIP")
        self._driver = _load("AMD's HIP runtime", [wanted] if wanted else _places())
        before = ctypes.c_int()
        self._call("hipGetDevice", ctypes.byref(before))
        self._before = before.value
        self._call("hipSetDevice", device)

    def _call(self, name: str, *arguments: Any) -> None:
        result = getattr(self._driver, name)(*arguments)
        if result != 0:
            raise Error(f"AMD's HIP runtime refused {name} with the number {result}",
                        "launch_failed")

    def allocate(self, size: int) -> int:
        there = ctypes.c_void_p()
        self._call("hipMalloc", ctypes.byref(there), ctypes.c_size_t(size))
        return there.value or 0

    def free(self, there: int) -> None:
        self._driver.hipFree(ctypes.c_void_p(there))

    def _copy(self, name: str, to: int, source: int, size: int) -> None:
        default = ctypes.c_void_p(None)
        self._call(name, ctypes.c_void_p(to), ctypes.c_void_p(source), ctypes.c_size_t(size),
                   default)
        self._call("hipStreamSynchronize", default)

    def to_device(self, there: int, here: int, size: int) -> None:
        self._copy("hipMemcpyHtoDAsync", there, here, size)

    def to_host(self, here: int, there: int, size: int) -> None:
        self._copy("hipMemcpyDtoHAsync", here, there, size)

    def close(self) -> None:
        self._driver.hipSetDevice(self._before)


def _places() -> List[str]:
    """As the library itself looks for HIP: by the loader, in $ROCM_PATH, in /opt/rocm."""
    folders = [os.environ.get("ROCM_PATH"), "/opt/rocm"]
    return [place for name in _HIP_NAMES
            for place in (name, *(f"{folder}/lib/{name}" for folder in folders if folder))]


def memory_of(device: Tuple[str, int]) -> Any:
    """The memory of a plan's device, such as ("cuda", 0)."""
    backend, number = device
    return Hip(number) if backend == "hip" else Cuda(number)
