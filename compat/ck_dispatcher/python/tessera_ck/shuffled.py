"""A B that is packed ahead, as programs of the original handle it: they print a part of it and give
it to every product."""
from __future__ import annotations

import time
from typing import Any, Tuple

import numpy

import tessera
from tessera import Error

from . import dtypes


class ShuffledWeight(tessera.PackedWeight):
    """A packed weight whose numbers can be looked at."""

    def __init__(self, packed: tessera.PackedWeight) -> None:
        super().__init__(packed.problem, packed.kernel, packed.signature, packed.view)

    def __getitem__(self, index: Any) -> Any:
        """Of the numbers in the kernel's order, as many as B has, in B's shape; a form with padding
        has more."""
        return self.numbers()[index]

    def numbers(self) -> Any:
        dtype = numpy.dtype(dtypes.numpy_dtype(self.signature["b"]))
        size = self.shape[0] * self.shape[1] * dtype.itemsize
        held = numpy.asarray(self.memory).view(numpy.uint8)[:size]
        return numpy.frombuffer(held.tobytes(), dtype).reshape(self.shape)


def multiply(a: Any, packed: tessera.PackedWeight, config: Any, target: Any
             ) -> Tuple[Any, float, str]:
    """(the product, ms, the kernel). Raises Error where the weight is of another kind than the
    configuration, or its kernel of another target."""
    asked = {"a": config.dtype_a, "b": config.dtype_b, "out": config.dtype_c}
    for name, word in asked.items():
        if packed.signature[name] != word:
            raise Error(f"the weight was packed for {name}={packed.signature[name]}, and the "
                        f"configuration has {name}={word}")
    if not packed.kernel.endswith("_" + target.name):
        raise Error(f"the weight was packed for {packed.kernel}, and the configuration is for "
                    f"{target.name}; give B itself", "unsupported")
    rows = numpy.ascontiguousarray(a, dtypes.numpy_dtype(config.dtype_a))
    tessera.matmul(rows, packed)
    start = time.perf_counter()
    out = tessera.matmul(rows, packed)
    return out, (time.perf_counter() - start) * 1e3, packed.kernel
