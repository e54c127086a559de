#!/usr/bin/env python3
"""The older name of compile_grouped_conv_examples.py; it also checks and expands declarations.

    compile_conv_examples.py SOURCE.cpp... [--no-compile] [--output-dir build]
"""
from __future__ import annotations

import sys
from typing import Any, Dict, List, Tuple

from _compiling import _scripts, compile_programs
from tessera_ck import declarations as _declarations


def is_conv_wildcard_declaration(decl: Dict[str, Any]) -> bool:
    return _declarations.is_wildcard(decl)


def validate_conv_kernel_config(config: Dict[str, Any], arch: str = "gfx942"
                                ) -> Tuple[bool, str]:
    """(whether the tables of the target take the declaration, why not)"""
    return _declarations.validate(config, arch, str(config.get("dtype", "fp16")))


def expand_conv_declaration_with_arch_filter(decl: Dict[str, Any], arch: str = "gfx942"
                                             ) -> List[Dict[str, Any]]:
    """The legal kernels that a declaration with wildcards stands for."""
    return _declarations.expand(decl, arch, str(decl.get("dtype", "fp16")))


def main() -> int:
    return compile_programs(__doc__, "DECL_(?:GROUPED_)?CONV_KERNEL_(?:SET|ALL)",
                            "examples/conv/cpp")


if __name__ == "__main__":
    sys.exit(_scripts.guarded(main))
