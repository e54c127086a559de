#!/usr/bin/env python3
"""Compiles programs that declare convolution kernels.

    compile_grouped_conv_examples.py SOURCE.cpp... [--no-compile] [--output-dir build]

The declarations are read by the program itself when it runs; this script lists them, and compiles
the program against ck_tile/dispatcher/*.hpp and Tessera's library.
"""
from __future__ import annotations

import sys

from _compiling import _scripts, compile_programs


def main() -> int:
    return compile_programs(__doc__, "DECL_GROUPED_CONV_KERNEL_(?:SET|ALL)",
                            "examples/grouped_conv/cpp")


if __name__ == "__main__":
    sys.exit(_scripts.guarded(main))
