"""GEMM's features with the widths of the vectors by which a kernel of CK Tile loads and stores.

vec_a, vec_b, vec_c are the widths that a kernel fixes, 0 for none; vec_frac_* is the width that it
then takes over the widest that the problem allows, which may be more than 1.
"""
from __future__ import annotations

import pathlib
import re
import sys
from typing import Any, Dict, List, Sequence, Tuple

import _paths  # noqa: F401

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "codegen"))

from codegen_common import CommonTypeMappings, normalize_gfx_arch  # noqa: E402
from vector_sizes import (gemm_native_vector_sizes,  # noqa: E402
                          gemm_problem_vector_sizes)

from feature_engine import LAYOUT_MAP, GemmUniversalFeatureEngine  # noqa: E402

OPERANDS = ("a", "b", "c")
VEC_FEATURES = [f"{word}_{operand}" for word in ("vec", "vec_frac") for operand in OPERANDS]
_LAYOUTS = frozenset(LAYOUT_MAP)
_EPILOGUES = ("default", "cshuffle", "tdm")
_ARCH = re.compile(r"gfx(?:9[0-9][0-9a-f]|1[0-2][0-9]{2})")
_GEOMETRY = tuple(tuple(f"{prefix}_{axis}" for axis in "mnk")
                  for prefix in ("tile", "warp", "warp_tile"))


def _out_dtype(dtype: str) -> str:
    return CommonTypeMappings.get_output_dtype(dtype)


def _width(value: Any) -> int:
    """A stored width: a number or its text."""
    if value is None or value == "" or value != value:
        raise ValueError(f"a width of a vector is missing, got {value!r}; a kernel's native width "
                         "is 0")
    width = int(float(value))
    if width < 0:
        raise ValueError(f"a width of a vector must be >= 0, got {width}")
    return width


def _is_missing(value: Any) -> bool:
    return value is None or value != value


def _find(name: str, *rows: Dict[str, Any]) -> Any:
    """The value of the first row that has one. Raises KeyError where none has."""
    for row in rows:
        if not _is_missing(row.get(name)):
            return row[name]
    raise KeyError(f"'{name}' is required to compute vector-width features")


def _extent(axis: str, *rows: Dict[str, Any]) -> int:
    for row in rows:
        for name in (axis, axis.upper()):
            if not _is_missing(row.get(name)):
                if int(row[name]) < 1:
                    raise ValueError(f"the size {axis} must be >= 1, got {row[name]}")
                return int(row[name])
    raise KeyError(f"'{axis}' is required to compute vector-width features")


def _one_of(what: str, word: str, known: Sequence[str]) -> str:
    if word not in known:
        raise ValueError(f"{what} must be one of {', '.join(sorted(known))}, got '{word}'")
    return word


def _arch_of(word: str) -> str:
    name = normalize_gfx_arch(word)
    if not _ARCH.fullmatch(name):
        raise ValueError(f"'{word}' is no architecture such as gfx942; how many threads a wave has "
                         "follows from its family")
    return name


class GemmUniversalVecFeatureEngine(GemmUniversalFeatureEngine):
    """72 features and six of widths. Sizes, layout, type and arch are the problem's, and else the
    kernel's; all others the kernel's, and else the problem's."""

    ENCODING_VERSION = 1
    _N_BASE = len(GemmUniversalFeatureEngine().get_feature_names())
    _REQUIRED = ("m", "n", "k", "layout", "dtype", "arch", "epilogue",
                 *(f"vec_{operand}" for operand in OPERANDS),
                 *(name for group in _GEOMETRY for name in group))

    def get_feature_names(self) -> List[str]:
        return [*super().get_feature_names(), *VEC_FEATURES]

    def compute(self, problem: Dict[str, Any], kernel: Dict[str, Any]) -> Dict[str, float]:
        widths = self._widths(problem, kernel)
        return {**super().compute(problem, kernel), **dict(zip(VEC_FEATURES, widths))}

    def _widths(self, problem: Dict[str, Any], kernel: Dict[str, Any]) -> List[float]:
        layout = _one_of("layout", str(_find("layout", problem, kernel)), sorted(_LAYOUTS))
        dtype, arch = (str(_find(name, problem, kernel)) for name in ("dtype", "arch"))
        epilogue = _one_of("epilogue", str(_find("epilogue", kernel, problem)), _EPILOGUES)
        for operand in OPERANDS:
            if f"vec_{operand}" not in kernel and f"vec_{operand}" not in problem:
                raise KeyError(f"'vec_{operand}' is absent from both the problem and the kernel")
        raw = [_width((kernel if f"vec_{operand}" in kernel else problem)[f"vec_{operand}"])
               for operand in OPERANDS]
        sizes = [_extent(axis, problem, kernel) for axis in "mnk"]
        legal = gemm_problem_vector_sizes(*sizes, layout, dtype, dtype, _out_dtype(dtype))
        tile, waves, warp_tile = (tuple(int(_find(name, kernel, problem)) for name in group)
                                  for group in _GEOMETRY)
        native = gemm_native_vector_sizes(
            dtype_a=dtype, dtype_b=dtype, dtype_c=_out_dtype(dtype), layout=layout, tile=tile,
            waves=waves, warp_tile=warp_tile, gfx_arch=_arch_of(arch), epilogue=epilogue)
        return [*map(float, raw), *((width or own) / most
                                    for width, own, most in zip(raw, native, legal))]

    def extract_batch(self, rows: Any, names: Any = None) -> Any:
        """As extract() for each row; a column that is not there, or not filled, is named."""
        columns = list(rows.columns) if hasattr(rows, "columns") else list(rows[0]) if rows else []
        widths = [f"vec_{operand}" for operand in OPERANDS if f"vec_{operand}" not in columns]
        if columns and widths:
            raise KeyError(f"{', '.join(widths)}: {type(self).__name__} needs the fixed vector "
                           "widths, which parse_kernel_name() of data_pipeline finds")
        for name in self._REQUIRED if columns else ():
            if name not in columns:
                raise KeyError(f"'{name}' is required to compute vector-width features")
        records = rows.to_dict("records") if hasattr(rows, "to_dict") else rows
        for name in self._REQUIRED:
            if any(_is_missing(row[name]) for row in records):
                raise ValueError(f"the column '{name}' contains null; a native width is 0")
        return super().extract_batch(records, names)


def legal_widths(m: int, n: int, k: int, layout: str, dtype: str) -> Tuple[int, int, int]:
    """The widest vectors of A, B and C that a problem allows."""
    return gemm_problem_vector_sizes(m, n, k, layout, dtype, dtype, _out_dtype(dtype))


