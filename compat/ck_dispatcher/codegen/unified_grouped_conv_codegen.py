#!/usr/bin/env python3
"""Writes convolution kernels under the original's file names, by `tessera generate`.

    unified_grouped_conv_codegen.py --output-dir generated_kernels --datatype fp16
        --variant forward --ndim-spatial 2
"""
from __future__ import annotations

import argparse
import json
import pathlib
import sys
from typing import Dict, List

import _paths  # noqa: F401
from tessera_ck import conv as _conv
from tessera_ck import scripts as _scripts
from tessera_ck import targets as _targets
from tessera_ck.codegen_runner import NAMES, generate

from codegen_common import registration
from grouped_conv_generators import (CKTileGroupedConvKernelGenerator,
                                     GroupedConvDispatcherWrapperGenerator,
                                     GroupedConvKernelConfig, GroupedConvLayout,
                                     GroupedConvTraitConfig, GroupedConvTypeMappings,
                                     GroupedConvVariant, UnifiedGroupedConvCodegen,
                                     get_default_configs)
from grouped_conv_utils import GroupedConvKernelConfig as Wanted

__all__ = ["CKTileGroupedConvKernelGenerator", "GroupedConvDispatcherWrapperGenerator",
           "GroupedConvKernelConfig", "GroupedConvLayout", "GroupedConvTraitConfig",
           "GroupedConvTypeMappings", "GroupedConvVariant", "UnifiedGroupedConvCodegen",
           "get_default_configs"]

SIZES = {"tile_m": 128, "tile_n": 128, "tile_k": 64, "warp_m": 2, "warp_n": 2, "warp_k": 1,
         "warp_tile_m": 32, "warp_tile_n": 32, "warp_tile_k": 16}
# What Tessera's kernels decide by themselves.
OWN = {"vector_a": 4, "vector_b": 8, "vector_c": 8, "block_per_cu": 1, "num_wave_groups": 1,
       "num_groups_to_merge": 1}


def _flag(word: str) -> bool:
    if word.lower() not in ("true", "false"):
        raise argparse.ArgumentTypeError(f"true or false, got '{word}'")
    return word.lower() == "true"


def parse() -> argparse.Namespace:
    return _scripts.parsed(
        __doc__, ("--output-dir --output -o", pathlib.Path("build/generated_kernels")),
        ("--datatype -d", ["fp16"], "", {"nargs": "+"}),
        ("--variant -v", ["forward"], "forward, backward_data (bwd_data), backward_weight "
         "(bwd_weight)", {"nargs": "+"}),
        ("--ndim-spatial --ndim -n", [2], "", {"nargs": "+", "type": int, "choices": [1, 2, 3]}),
        ("--arch -a --gpu-target", None, "this machine if left out"), ("--verbose", False),
        ("--list-configs", False),
        *(("--" + name.replace("_", "-"), usual) for name, usual in {**SIZES, **OWN}.items()),
        ("--pipeline", None, "one kernel, by the sizes above"),
        ("--scheduler", "intrawave", "", {"choices": ["intrawave", "interwave"]}),
        ("--epilogue", "cshuffle", "", {"choices": ["cshuffle", "default"]}),
        *((f"--pad-{axis}", True, "", {"type": _flag}) for axis in "mnk"),
        ("--double-smem-buffer", None, "", {"type": _flag}), ("--split-image", False),
        ("--two-stage", False))


def configs_of(options: argparse.Namespace) -> List[Wanted]:
    how = dict(arch=options.arch, scheduler=options.scheduler, epilogue=options.epilogue)
    if options.pipeline:
        how.update(pipeline=options.pipeline)
        for prefix, theirs in (("tile", "tile"), ("wave", "warp"), ("warp_tile", "warp_tile")):
            how.update({f"{prefix}_{axis}": getattr(options, f"{theirs}_{axis}")
                        for axis in "mnk"})
    return [Wanted(variant=variant, ndim_spatial=ndim, dtype=dtype, **how)
            for dtype in options.datatype for variant in options.variant
            for ndim in options.ndim_spatial]


def write_registration(folder: pathlib.Path, target: str) -> None:
    """register_all_grouped_conv_kernels.hpp for all kernels of a folder."""
    table = json.loads((folder / NAMES).read_text(encoding="ascii"))
    functions = {}
    for short in ("fwd", "bwd_data", "bwd_weight"):
        functions[f"register_all_grouped_conv_{short}_kernels",
                  f"get_grouped_conv_{short}_kernel_count"] = [
            kernel for name, kernel in table.items()
            if name.startswith(f"grouped_conv_{short}_")]
    (folder / "register_all_grouped_conv_kernels.hpp").write_text(
        registration("grouped_conv_registry", "GroupedConv", functions, target), encoding="ascii")


def main() -> int:
    options = parse()
    target = _targets.resolve(options.arch)
    _scripts.worse_options(OWN, "kernels decide it by themselves", options, OWN)
    wanted: Dict[str, None] = {}
    failed = False
    for config in configs_of(options):
        wish = _conv.wish_of(config, target)
        for sentence in wish.corrections if options.verbose or not wish.kernels else []:
            print(sentence, file=sys.stderr)
        failed = failed or not wish.kernels
        wanted.update(dict.fromkeys(wish.kernels))
    if options.list_configs:
        print(_scripts.line_of("list", {"op": "conv", "target": target.word}))
        print("\n".join(wanted))
        return 1 if failed else 0
    if not wanted:
        return 1
    result = generate(options.output_dir, "grouped_conv", _conv.file_name, op="conv",
                      kernel=list(wanted), target=target.word)
    print(result.stdout)
    print(f"{target}: {result.kernel_count} kernels in {options.output_dir}")
    if options.verbose:
        result.print_instances()
    if not result.success:
        print(result.stderr, file=sys.stderr)
    if result.kernel_count:
        write_registration(options.output_dir, target.name)
    return 1 if failed or not result.success else 0


if __name__ == "__main__":
    sys.exit(_scripts.guarded(main))
