#!/usr/bin/env python3
"""Measures many sizes of GEMM, by `tessera problems wide` and `tessera sweep`; the logs are
wide_coverage_batch_NNN.log, the stores beside them what train.py reads.

    generate_wide_coverage.py [--out_dir data] [--max_shapes 25]
"""
from __future__ import annotations

import argparse
import pathlib
import sys

import _paths  # noqa: F401
from tessera_ck import scripts as _scripts

from sweep_logs import cover

USUAL = {"warmup": 3, "repeat": 10}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin_dir", default=None, help="accepted; kernels lie in the cache")
    parser.add_argument("--out_dir", type=pathlib.Path, default=pathlib.Path("data"))
    parser.add_argument("--batch_size", type=int, default=25)
    parser.add_argument("--warmup", type=int, default=3)
    parser.add_argument("--repeat", type=int, default=10)
    parser.add_argument("--max_shapes", type=int, default=0)
    parser.add_argument("--dtype", default="fp16")
    parser.add_argument("--layout", default="rcr")
    parser.add_argument("--gpu-target", default=None, help="this machine if left out")
    parser.add_argument("--kernels", nargs="*", default=[], help="names and wildcards; all legal")
    parser.add_argument("--budget", default=None, help="of each batch: 30m")
    options = parser.parse_args()
    _scripts.worse_options(USUAL, "a sweep measures until a median is known to 1%", options, USUAL)
    return cover("wide", "wide_coverage", options.out_dir, options.batch_size, options.max_shapes,
                 options.dtype, options.layout, options.gpu_target, options.kernels,
                 options.budget)


if __name__ == "__main__":
    sys.exit(_scripts.guarded(main))
