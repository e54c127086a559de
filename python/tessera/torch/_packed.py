"""Which weight a packed one is a copy of, and whether that weight is still what it was."""
from __future__ import annotations

import ctypes
import struct
from typing import Optional

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from .. import _warm

Tensor = torch.Tensor
# Elements that are compared at each call, for writes that PyTorch does not count.
SAMPLES = 8


def _read_slowly(addresses: bytes, size: int) -> bytes:
    """The memory at these addresses, of so many bytes at each."""
    return b"".join([ctypes.string_at(address, size) for address, in
                     struct.iter_unpack("P", addresses)])


_read = _read_slowly if _warm._fast is None else _warm._fast.read


class Source:
    """A weight's identity and state when it was packed. It keeps no memory alive, and the weight
    has no weak reference, with which PyTorch would refuse to swap it.

    PyTorch counts writes through a tensor and its views. It does not count those through
    `weight.data`, NumPy or DLPack; samples tell such a write where it reaches one of them.
    """

    def __init__(self, weight: Tensor) -> None:
        self.tensor, self.version = weight._cdata, weight._version
        # No other storage gets this number as long as the reference to it lives.
        self.storage = StorageWeakRef(weight.untyped_storage())
        self.place = (weight.data_ptr(), weight.shape, weight.stride(), weight.dtype)
        rows, columns = weight.shape
        self.size = weight.element_size()
        self.samples = struct.pack(f"{SAMPLES}P", *[
            weight.data_ptr() + self.size * sum(
                (extent - 1) * i // (SAMPLES - 1) * stride
                for extent, stride in zip((rows, columns), weight.stride()))
            for i in range(SAMPLES)]) if rows and columns else b""
        self.values = _read(self.samples, self.size)

    def is_still(self, weight: Tensor) -> bool:
        # The memory of the samples is read last, because it is there if all before is true.
        return (self.tensor == weight._cdata and self.version == weight._version
                and self.storage.cdata == weight.untyped_storage()._cdata
                and self.place == (weight.data_ptr(), weight.shape, weight.stride(), weight.dtype)
                and self.values == _read(self.samples, self.size))


def mark(packed: Tensor, source: Source) -> Tensor:
    """The packed weight, which knows from now on what it is a copy of."""
    packed.tessera_source = source  # type: ignore[attr-defined]
    return packed


def source_of(packed: Tensor) -> Optional[Source]:
    return getattr(packed, "tessera_source", None)


def is_copy_of(packed: Tensor, weight: Tensor) -> bool:
    """Whether the packed weight holds what the weight holds now."""
    source = source_of(packed)
    return source is not None and source.is_still(weight)


class Copy:
    """What a Linear keeps: the packed weight, and for how many rows and which activation it is
    packed. A copied or loaded module has the wish alone, because the memory belongs to one weight
    and one machine's kernel."""

    def __init__(self, rows: int, activation: Optional[str]) -> None:
        self.rows, self.activation = rows, activation
        self.memory: Optional[Tensor] = None
        self.kernel: Optional[str] = None
        self.seen: Optional[Source] = None  # the weight of the last call that found no copy of it

    def __reduce__(self) -> tuple:
        return Copy, (self.rows, self.activation)

    def is_of(self, weight: Tensor) -> bool:
        return self.memory is not None and is_copy_of(self.memory, weight)

    def was_seen(self, weight: Tensor) -> bool:
        """Whether the call before had this weight, too. A weight that changes at each call is not
        worth packing."""
        if self.seen is not None and self.seen.is_still(weight):
            return True
        self.seen = Source(weight)
        return False
