#!/usr/bin/env python3
"""Measures many sizes of GEMM, by `tessera problems wide` and `tessera sweep`; the logs are
wide_coverage_batch_NNN.log, the stores beside them what train.py reads.

    generate_wide_coverage.py [--out_dir data] [--max_shapes 25]
"""
import sys

import _paths  # noqa: F401
from tessera_ck import scripts as _scripts

from sweep_logs import cover

if __name__ == "__main__":
    sys.exit(_scripts.guarded(lambda: cover(__doc__, "wide", "wide_coverage", "data")))
