"""The C library of GEMM from Python: a file, what it computes, and its calls."""
from __future__ import annotations

import ctypes
import pathlib
from typing import Any, Dict, Optional, Tuple

from tessera import Error

from . import gemm

_TEXTS = ("dispatcher_get_kernel_name", "dispatcher_last_error")


def is_library(path: pathlib.Path) -> bool:
    """Whether a file is a shared library, of whichever functions."""
    try:
        with open(path, "rb") as stream:
            return stream.read(4) == b"\x7fELF"
    except OSError as error:
        raise Error(f"{path} cannot be read: {error.strerror}", "io_error") from None


def opened(path: pathlib.Path) -> Any:
    try:
        return ctypes.CDLL(str(path))
    except OSError as error:
        raise Error(f"{path} cannot be loaded: {error}", "io_error") from None


class CLibrary:
    """The functions of dispatcher_libs.h in a file. It starts the target at the first call of the
    first object of a file."""

    def __init__(self, path: pathlib.Path, library: Any) -> None:
        self.path, self._c = path, library
        for name in _TEXTS:
            getattr(library, name).restype = ctypes.c_char_p
        library.dispatcher_run_gemm.argtypes = [ctypes.c_void_p] * 3 + [ctypes.c_int64] * 3 + [
            ctypes.POINTER(ctypes.c_float)]
        library.dispatcher_select_kernel.argtypes = [ctypes.c_int64] * 3 + [
            ctypes.c_char_p, ctypes.c_int]
        if library.dispatcher_initialize() != 0:
            raise Error(f"{path} does not start: {self.last_error()}", "unsupported")

    def last_error(self) -> str:
        return bytes(self._c.dispatcher_last_error()).decode()

    def fields(self) -> Dict[str, Any]:
        """The types, the layout and the target, as a KernelConfig has them."""
        kernel = bytes(self._c.dispatcher_get_kernel_name()).decode()
        if not kernel:
            raise Error(f"{self.path} has no kernels: {self.last_error()}", "not_found")
        signature = gemm.spec_of(kernel)["signature"]
        letters = {"r": "row", "c": "col"}
        return {"dtype_a": signature["a"], "dtype_b": signature["b"], "dtype_c": signature["out"],
                "dtype_acc": "int32" if signature["a"] == "int8" else "fp32",
                "gfx_arch": kernel.rpartition("_")[2],
                **{f"layout_{each}": letters[letter]
                   for each, letter in zip("abc", signature["layout"])}}

    def select(self, m: int, n: int, k: int) -> Optional[str]:
        name = ctypes.create_string_buffer(1024)
        found = self._c.dispatcher_select_kernel(m, n, k, name, len(name))
        return name.value.decode() if found == 0 else None

    def run(self, a: Any, b: Any, c: Any, m: int, n: int, k: int) -> Tuple[int, float]:
        """(status, ms) of NumPy's arrays, which lie as the kernel reads them."""
        taken = ctypes.c_float(-1.0)
        status = self._c.dispatcher_run_gemm(a.ctypes.data, b.ctypes.data, c.ctypes.data, m, n, k,
                                             ctypes.byref(taken))
        return int(status), taken.value
