"""By how wide vectors a GEMM kernel of CK Tile loads A and B and stores C, in elements.

Tessera's kernels choose theirs by themselves; models that were trained on CK's kernels ask for
these numbers.
"""
from __future__ import annotations

import math
from typing import Any, Sequence, Tuple

ELEMENT_BYTES = {"fp64": 8, "fp32": 4, "int32": 4, "fp16": 2, "bf16": 2, "fp8": 1, "bf8": 1,
                 "int8": 1}
VECTOR_BYTES = 16
# A store without a shuffle is as wide as what a lane holds of a column-major C.
_STORES = {"gfx9": 4, "gfx10": 1, "gfx11": 1, "gfx12": 8}
Widths = Tuple[int, int, int]


def _family(arch: str) -> str:
    name = arch.partition(":")[0]
    return "gfx9" if name.startswith("gfx9") else name[:5]


def _most(dtype: str) -> int:
    return VECTOR_BYTES // ELEMENT_BYTES[dtype]


def gemm_contiguous_dims(layout: str) -> Tuple[str, str, str]:
    """The dimension along which each of A, B and C lies in memory; "rcr" is k, k, n."""
    if len(layout) < 3 or set(layout) - set("rc"):
        raise ValueError(f"a layout has three letters, each r or c, got '{layout}'")
    return tuple(dims["rc".index(letter)]  # type: ignore[return-value]
                 for dims, letter in zip(("km", "nk", "nm"), layout))


def gemm_problem_vector_sizes(m: int, n: int, k: int, layout: str, dtype_a: str, dtype_b: str,
                              dtype_c: str) -> Widths:
    """The widest vectors that a problem allows: they divide the extent and are of 16 bytes at
    most."""
    sizes = {"m": int(m), "n": int(n), "k": int(k)}
    return tuple(math.gcd(sizes[axis], _most(dtype))  # type: ignore[return-value]
                 for axis, dtype in zip(gemm_contiguous_dims(layout), (dtype_a, dtype_b, dtype_c)))


def _native_ab_vector_size(element: int, rows: int, along: int, depth: int, threads: int) -> int:
    """The widest of 16 and 8 bytes, of 4 for an element of at least 4, and of one element, that
    divides the tile along memory and what a thread loads."""
    share = rows * depth // threads
    for size in (16, 8, 4, 2):
        width = size // element
        is_step = size >= 8 or element >= size
        if is_step and width and along % width == 0 and share % width == 0:
            return width
    return 1


def gemm_native_vector_sizes(*, dtype_a: str, dtype_b: str, dtype_c: str, layout: str,
                             tile: Sequence[int], waves: Sequence[int], warp_tile: Sequence[int],
                             gfx_arch: str, epilogue: str = "cshuffle", **_: Any) -> Widths:
    """What a kernel takes that fixes no width. tile, waves and warp_tile: (m, n, k)."""
    m, n, k = tile
    family = _family(gfx_arch)
    threads = waves[0] * waves[1] * waves[2] * (64 if family == "gfx9" else 32)
    along = dict(zip("mnk", tile))
    first, second, _last = gemm_contiguous_dims(layout)
    a = _native_ab_vector_size(ELEMENT_BYTES[dtype_a], m, along[first], k, threads)
    b = _native_ab_vector_size(ELEMENT_BYTES[dtype_b], n, along[second], k, threads)
    return a, b, _store_width(dtype_c, layout[2], waves, warp_tile, family, epilogue)


def _store_width(dtype: str, letter: str, waves: Sequence[int], warp_tile: Sequence[int],
                 family: str, epilogue: str) -> int:
    if epilogue == "default":
        is_wide = letter == "c" and ELEMENT_BYTES[dtype] < 8
        return _STORES.get(family, 1) if is_wide else 1
    axis = 1 if letter == "r" else 0
    return math.gcd(waves[axis] * warp_tile[axis], _most(dtype))
