#!/usr/bin/env python3
"""Compiles programs that declare GEMM kernels, and checks and expands declarations.

    compile_gemm_examples.py SOURCE.cpp... [--no-compile] [--output-dir build]

The declarations are read by the program itself when it runs; this script lists them, and compiles
the program against ck_tile/dispatcher/*.hpp and Tessera's library.
"""
from __future__ import annotations

import sys
from typing import Any, Dict, List, Tuple

from _compiling import _scripts, compile_programs
from tessera_ck import declarations as _declarations


def is_wildcard_declaration(decl: Dict[str, Any]) -> bool:
    return _declarations.is_wildcard(decl)


def validate_kernel_config(config: Dict[str, Any], arch: str = "gfx942") -> Tuple[bool, str]:
    """(whether the tables of the target take the declaration, why not)"""
    return _declarations.validate(config, arch, str(config.get("dtype_a", "fp16")))


def expand_declaration_with_arch_filter(decl: Dict[str, Any], arch: str = "gfx942"
                                        ) -> List[Dict[str, Any]]:
    """The legal kernels that a declaration with wildcards stands for."""
    return _declarations.expand(decl, arch, str(decl.get("dtype_a", "fp16")))


def main() -> int:
    return compile_programs(__doc__, "DECL_KERNEL_(?:SET|ALL)", "examples/gemm/cpp")


if __name__ == "__main__":
    sys.exit(_scripts.guarded(main))
