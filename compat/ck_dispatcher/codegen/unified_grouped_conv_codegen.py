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

from grouped_conv_utils import GroupedConvKernelConfig

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
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output-dir", "--output", "-o", type=pathlib.Path,
                        default=pathlib.Path("build/generated_kernels"))
    parser.add_argument("--datatype", "-d", nargs="+", default=["fp16"])
    parser.add_argument("--variant", "-v", nargs="+", default=["forward"],
                        help="forward, backward_data (bwd_data), backward_weight (bwd_weight)")
    parser.add_argument("--ndim-spatial", "--ndim", "-n", nargs="+", type=int, default=[2],
                        choices=[1, 2, 3])
    parser.add_argument("--arch", "-a", "--gpu-target", default=None,
                        help="this machine if left out")
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--list-configs", action="store_true")
    for name, usual in {**SIZES, **OWN}.items():
        parser.add_argument("--" + name.replace("_", "-"), type=int, default=usual)
    parser.add_argument("--pipeline", default=None, help="one kernel, by the sizes above")
    parser.add_argument("--scheduler", choices=["intrawave", "interwave"], default="intrawave")
    parser.add_argument("--epilogue", choices=["cshuffle", "default"], default="cshuffle")
    for name in ("pad-m", "pad-n", "pad-k"):
        parser.add_argument("--" + name, type=_flag, default=True)
    parser.add_argument("--double-smem-buffer", type=_flag, default=None)
    parser.add_argument("--split-image", action="store_true")
    parser.add_argument("--two-stage", action="store_true")
    return parser.parse_args()


def configs_of(options: argparse.Namespace) -> List[GroupedConvKernelConfig]:
    made = []
    for dtype in options.datatype:
        for variant in options.variant:
            for ndim in options.ndim_spatial:
                fields = dict(variant=variant, ndim_spatial=ndim, dtype=dtype, arch=options.arch,
                              scheduler=options.scheduler, epilogue=options.epilogue)
                if options.pipeline:
                    fields.update(
                        pipeline=options.pipeline, tile_m=options.tile_m, tile_n=options.tile_n,
                        tile_k=options.tile_k, wave_m=options.warp_m, wave_n=options.warp_n,
                        wave_k=options.warp_k, warp_tile_m=options.warp_tile_m,
                        warp_tile_n=options.warp_tile_n, warp_tile_k=options.warp_tile_k)
                made.append(GroupedConvKernelConfig(**fields))
    return made


def write_registration(folder: pathlib.Path, target: str) -> None:
    """register_all_grouped_conv_kernels.hpp for all kernels of a folder."""
    table = json.loads((folder / NAMES).read_text(encoding="ascii"))
    text = ["// Registers the kernels of this folder.", "#pragma once", "",
            "#include <cstddef>", "#include <memory>", "#include <string>", "",
            "#include <ck_tile/dispatcher/grouped_conv_registry.hpp>", "",
            "namespace ck_tile::dispatcher {"]
    for short in ("fwd", "bwd_data", "bwd_weight"):
        kernels = sorted(kernel for name, kernel in table.items()
                         if name.startswith(f"grouped_conv_{short}_"))
        text += ["", f"inline std::size_t register_all_grouped_conv_{short}_kernels(",
                 f'    const std::string& gfx_arch = "{target}", '
                 "Priority priority = Priority::Normal,",
                 "    GroupedConvRegistry& registry = GroupedConvRegistry::instance()) {",
                 "  std::size_t count = 0;"]
        for kernel in kernels:
            text += ["  {", "    auto made = std::make_shared<GroupedConvKernelInstance>(",
                     f'        tessera::parse_name("{kernel}"), machine_for(gfx_arch));',
                     "    count += registry.register_kernel(made->key(), made, priority);", "  }"]
        if not kernels:
            text += ["  (void)gfx_arch, (void)priority, (void)registry;"]
        text += ["  return count;", "}",
                 f"inline std::size_t get_grouped_conv_{short}_kernel_count() "
                 f"{{ return {len(kernels)}; }}"]
    text += ["", "}  // namespace ck_tile::dispatcher", ""]
    (folder / "register_all_grouped_conv_kernels.hpp").write_text("\n".join(text),
                                                                  encoding="ascii")


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
