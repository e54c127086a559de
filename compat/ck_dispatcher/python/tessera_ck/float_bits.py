"""Short floats as bits: bf16 in 16, and fp8 (E4M3) and bf8 (E5M2) in 8 in both of their forms, that
of OCP and that of gfx940 to gfx942 (FNUZ: one more in the bias, one NaN, no infinity). No package
is needed for them."""
from __future__ import annotations

import functools
from typing import Any, Optional

import numpy

from . import targets as _targets

PARTS = {"fp8": (4, 3), "bf8": (5, 2)}  # bits of the exponent and of the fraction


def uses_ocp(arch: Optional[str] = None) -> bool:
    """Whether a target's matrix units read OCP's form; None: this machine."""
    row = _targets.dispatcher_of(_targets.resolve(arch).word).target
    return row.get("fp8_encoding", "ocp") == "ocp"


def bf16_bits(values: Any) -> Any:
    """Rounded to nearest, ties to even."""
    bits = numpy.ascontiguousarray(values, numpy.float32).view(numpy.uint32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    quiet = (bits >> 16) | 0x40
    return numpy.where(numpy.isnan(values), quiet, rounded).astype(numpy.uint16)


def bf16_values(bits: Any) -> Any:
    return (numpy.ascontiguousarray(bits, numpy.uint16).astype(numpy.uint32) << 16).view(
        numpy.float32)


def decoded(exponent_bits: int, fraction_bits: int, use_ocp: bool) -> Any:
    """The value of each of the 256 bytes. The answer is shared, and cannot be written."""
    return _decoded(exponent_bits, fraction_bits, bool(use_ocp))


@functools.lru_cache(maxsize=None)
def _decoded(exponent_bits: int, fraction_bits: int, ocp: bool) -> Any:
    byte = numpy.arange(256)
    exponent = (byte >> fraction_bits) & ((1 << exponent_bits) - 1)
    fraction = (byte & ((1 << fraction_bits) - 1)) / (1 << fraction_bits)
    bias = (1 << (exponent_bits - 1)) - (1 if ocp else 0)
    values = numpy.where(exponent > 0, (1 + fraction) * 2.0 ** (exponent - bias),
                         fraction * 2.0 ** (1 - bias))
    if ocp:
        last = exponent == (1 << exponent_bits) - 1
        if exponent_bits == 5:
            values[last] = numpy.where(fraction[last] == 0, numpy.inf, numpy.nan)
        else:
            values[last & (byte & 7 == 7)] = numpy.nan
    values = numpy.where(byte < 128, values, -values)
    if not ocp:
        values[128] = numpy.nan
    values = values.astype(numpy.float32)
    values.flags.writeable = False
    return values


def encoded(values: Any, exponent_bits: int, fraction_bits: int, use_ocp: bool) -> Any:
    """The nearest bytes, ties to the even one. What is too large becomes the largest finite value,
    as in the conversions of matrix units."""
    table = decoded(exponent_bits, fraction_bits, use_ocp)
    ladder = table[:128]
    ladder = ladder[numpy.isfinite(ladder)].astype(numpy.float64)
    given = numpy.asarray(values, numpy.float64)
    size = numpy.abs(given)
    above = numpy.minimum(numpy.searchsorted(ladder, size), len(ladder) - 1)
    below = numpy.maximum(above - 1, 0)
    up, down = ladder[above] - size, size - ladder[below]
    found = numpy.where((up < down) | ((up == down) & (above % 2 == 0)), above, below)
    negative = numpy.signbit(given) & ((found > 0) | use_ocp)
    found = numpy.where(negative, found + 128, found)
    nan = numpy.flatnonzero(numpy.isnan(table))[0]
    return numpy.where(numpy.isnan(given), nan, found).astype(numpy.uint8)


def bytes_of(values: Any, word: str, ocp: Optional[bool] = None) -> Any:
    """ocp: None: as this machine's target reads them."""
    return encoded(values, *PARTS[word], uses_ocp() if ocp is None else ocp)


def values_of(bits: Any, word: str, ocp: Optional[bool] = None) -> Any:
    table = decoded(*PARTS[word], uses_ocp() if ocp is None else ocp)
    return table[numpy.asarray(bits, numpy.uint8).astype(numpy.intp)]
