#!/usr/bin/env python3
"""Measures edge sizes of GEMM, such as N=1 and K=1, by `tessera problems edge` and
`tessera sweep`; the logs are edge_dims_batch_NNN.log in data/edge_dims, the stores beside them what
train.py reads.

    generate_edge_dims.py
"""
import sys

import _paths  # noqa: F401
from tessera_ck import scripts as _scripts

from sweep_logs import cover

if __name__ == "__main__":
    sys.exit(_scripts.guarded(lambda: cover(__doc__, "edge", "edge_dims", "data/edge_dims")))
