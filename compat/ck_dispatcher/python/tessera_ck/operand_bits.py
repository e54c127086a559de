"""GEMM's operands as bytes, and what kernels' names say of them, under the original's names."""
from __future__ import annotations

from typing import Any, Optional

import numpy

from . import float_bits as _bits
from . import gemm as _gemm

_C_NP = {"fp16": numpy.float16, "bf16": numpy.uint16, "fp32": numpy.float32, "int32": numpy.int32}
_PLAIN = {"fp16": numpy.float16, "fp32": numpy.float32, "int8": numpy.int8}
_output_dtype, _use_ocp_fp8 = _gemm.default_output, _bits.uses_ocp
_fp32_to_bf16_u16, _bf16_u16_to_fp32 = _bits.bf16_bits, _bits.bf16_values
_fp8_decode_table, _fp8_encode = _bits.decoded, _bits.encoded


def _fnuz_decode_table(exponent_bits: int, fraction_bits: int) -> Any:
    return _bits.decoded(exponent_bits, fraction_bits, False)


def _fp32_to_fp8_u8(values: Any, use_ocp: Optional[bool] = None) -> Any:
    return _bits.bytes_of(values, "fp8", use_ocp)


def _fp8_u8_to_fp32(bits: Any, use_ocp: Optional[bool] = None) -> Any:
    return _bits.values_of(bits, "fp8", use_ocp)


def _fp32_to_bf8_u8(values: Any, use_ocp: Optional[bool] = None) -> Any:
    return _bits.bytes_of(values, "bf8", use_ocp)


def _bf8_u8_to_fp32(bits: Any, use_ocp: Optional[bool] = None) -> Any:
    return _bits.values_of(bits, "bf8", use_ocp)


def _fp32_to_fp8_ocp_u8(values: Any) -> Any:
    return _bits.bytes_of(values, "fp8", True)


def _fp32_to_bf8_ocp_u8(values: Any) -> Any:
    return _bits.bytes_of(values, "bf8", True)


def _dtype_from_kernel_name(name: str) -> str:
    """fp16 where the name says nothing."""
    return (name.split("_") + ["fp16"])[1]


def _layout_from_kernel_name(name: str) -> str:
    """rcr where the name says nothing."""
    word = (name.split("_") + ["", ""])[2]
    return word if len(word) == 3 and set(word) <= {"r", "c"} else "rcr"


def _cshuffle_store_ok(m_repeat: int, n_repeat: int, warp_tile_m: int, warp_tile_n: int) -> bool:
    """Whether CK's own store through shared memory is right for a shape; Tessera's kernels have no
    such limit. It is not where a wave repeats a tile of 32 an odd number of times."""
    return not any(repeat > 1 and repeat % 2 and tile == 32
                   for repeat, tile in ((m_repeat, warp_tile_m), (n_repeat, warp_tile_n)))


def _encode_operand(values: Any, dtype: str, use_ocp: Optional[bool] = None) -> Any:
    """A dense array of an operand's bits; bf16 as uint16, fp8 and bf8 as uint8."""
    if dtype == "bf16":
        return _bits.bf16_bits(values)
    if dtype in _bits.PARTS:
        return numpy.ascontiguousarray(_bits.bytes_of(values, dtype, use_ocp))
    if dtype not in _PLAIN:
        raise ValueError(f"operands are of fp16, bf16, fp32, fp8, bf8 or int8, got '{dtype}'")
    return numpy.ascontiguousarray(values, _PLAIN[dtype])


def _c_numpy_dtype(dtype: str) -> Any:
    """(C's word, the type of its bits) for a type of the operands."""
    if dtype not in _PLAIN and dtype not in _bits.PARTS and dtype != "bf16":
        raise ValueError(f"operands are of fp16, bf16, fp32, fp8, bf8 or int8, got '{dtype}'")
    word = _gemm.default_output(dtype)
    return word, _C_NP[word]


def _decode_c(values: Any, dtype: str) -> Any:
    """C's values from its bits."""
    if dtype not in _C_NP:
        raise ValueError(f"results are of {', '.join(_C_NP)}, got '{dtype}'")
    return _bits.bf16_values(values) if dtype == "bf16" else values
