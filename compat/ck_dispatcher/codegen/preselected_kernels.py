#!/usr/bin/env python3
"""The sets of kernels that are shipped, under the original's names.

    preselected_kernels.py [--set fp16_rcr_essential] [--count-only] [--gpu-target G]
"""
from __future__ import annotations

import sys
from typing import List, Optional

import _paths  # noqa: F401
import tessera
from tessera_ck import gemm as _gemm
from tessera_ck import scripts as _scripts
from tessera_ck import targets as _targets

from codegen_common import KernelConfig, config_of

# Sets that Tessera has no list for; see _made().
MADE = ("fp16_rcr_multi_d", "fp16_rcr_preshuffle", "fp16_rcr_all", "mixed_precision")


def list_preselected_sets(arch: Optional[str] = None) -> List[str]:
    target = _targets.resolve(arch)
    shipped = tessera.command("list", sets=True, target=target.word)
    return sorted([*shipped["sets"], *MADE])


def get_preselected_kernels(name: str, arch: Optional[str] = None) -> List[str]:
    """The lossless names of a set's kernels. Raises ValueError, which lists the sets."""
    target = _targets.resolve(arch)
    if name in MADE:
        return _made(name, target)
    known = list_preselected_sets(arch)
    if name not in known:
        raise ValueError(f"there is no set '{name}'; there are {', '.join(known)}")
    return tessera.KernelSet("", target.word).preselected(name).kernels


def get_preselected_set(name: str, arch: Optional[str] = None) -> List[KernelConfig]:
    """The kernels of a set; arch: None means this machine. Raises ValueError, which lists the
    sets."""
    return [config_of(kernel) for kernel in get_preselected_kernels(name, arch)]


def default_kernel(arch: Optional[str] = None) -> KernelConfig:
    """The kernel that is taken for a fp16 product of 1024 by 1024 by 1024."""
    target = _targets.resolve(arch)
    problem = tessera.Problem("gemm m=1024 n=1024 k=1024 dtype=fp16")
    return config_of(_targets.dispatcher_of(target.word).select(problem)["kernel"])


def _made(name: str, target: _targets.Target) -> List[str]:
    """multi_d and preshuffle: the best by estimate for three sizes. all: everything of fp16 rcr.
    mixed_precision: fp16 and bf16 operands with a fp32 output."""
    if name == "fp16_rcr_all":
        kernels = tessera.KernelSet("", target.word)
        for part in ("essential", "compute", "memory", "latency"):
            kernels.preselected(f"fp16_rcr_{part}")
        names = set(kernels.kernels) | set(_made("fp16_rcr_multi_d", target))
        return sorted(names | set(_made("fp16_rcr_preshuffle", target)))
    if name != "mixed_precision":
        return _gemm.variant_kernels(target, "fp16", "rcr", name.partition("rcr_")[2])
    return _gemm.best_for(target, [
        lambda size, dtype=dtype: f"gemm m={size} n={size} k={size} dtype={dtype} out=fp32"
        for dtype in ("fp16", "bf16")])


def main() -> int:
    options = _scripts.parsed(
        __doc__, ("--set", "fp16_rcr_essential"), ("--count-only", False), ("--gpu-target", None))
    target = _targets.resolve(options.gpu_target)
    extra = f" --target {target.word}" if target.word else ""
    print(f"tessera list --preselected {options.set}{extra}")
    print(target)
    try:
        kernels = get_preselected_set(options.set, options.gpu_target)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 1
    print(f"{options.set}: {len(kernels)} kernels")
    if not options.count_only:
        for kernel in kernels:
            print(f"  {kernel.file_name}  {kernel.name}")
    return 0


if __name__ == "__main__":
    sys.exit(_scripts.guarded(main))
