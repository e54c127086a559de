#!/usr/bin/env python3
"""Writes GEMM kernels under the original's file names, by `tessera generate`.

    unified_gemm_codegen.py --output-dir generated_kernels --datatype fp16 --layout rcr
        [--gpu-target gfx942] [--variants standard preshuffle multi_d]
"""
from __future__ import annotations

import argparse
import json
import pathlib
import sys
from typing import Any, Dict, List

import _paths  # noqa: F401
from tessera_ck import gemm as _gemm
from tessera_ck import scripts as _scripts
from tessera_ck import targets as _targets
from tessera_ck.codegen_runner import NAMES, CodegenResult, CodegenRunner, generate

import gemm_utils
import preselected_kernels
from codegen_common import CommonTypeMappings, generate_cpp_compilation_unit, registration
from gemm_generator import (CKTileKernelGenerator, GemmVariant, KernelConfig, TraitConfig,
                            UnifiedGemmCodegen, kernels_of)
from gemm_generator import show_arch_info as _show_arch_info

__all__ = ["CKTileKernelGenerator", "GemmVariant", "HAS_ARCH_FILTER", "KernelConfig",
           "TraitConfig", "UnifiedGemmCodegen", "_show_arch_info"]

HAS_ARCH_FILTER = True


def parse() -> argparse.Namespace:
    parser = _scripts.parser_of(
        __doc__, ("--output-dir", None, "", {"type": pathlib.Path}),
        ("--datatype", "fp16", "", {"choices": list(CommonTypeMappings.ARCH_VALIDATION_DTYPES)}),
        ("--layout", "rcr", "of A, B, C, and D: rcr or rcrr"),
        ("--gpu-target", None, "this machine if left out"),
        ("--variants", ["standard"], "",
         {"nargs": "+", "choices": [each.value for each in GemmVariant]}),
        ("--preselected", None, "a set of preselected_kernels.py"),
        ("--config", None, "tiles and traits as JSON", {"type": pathlib.Path}),
        ("--tile-config-json", None, "the same as a text"), ("--no-parallel", False),
        ("--register", False, "also write registration/dispatcher_registration.{hpp,cpp}"),
        ("--no-arch-filter", False, "accepted; the target's rules hold all the same"),
        ("--show-arch-info", False), ("--kernel-set", None, "a subfolder of this name"))
    options = parser.parse_args()
    if options.output_dir is None and not options.show_arch_info:
        parser.error("--output-dir is required")
    return options


def configured(options: argparse.Namespace, target: _targets.Target, variant: str) -> List[str]:
    """The kernels of --config or --tile-config-json."""
    text = options.tile_config_json or options.config.read_text(encoding="utf-8")
    found: Dict[str, None] = {}
    for config in gemm_utils.expand_sweep(json.loads(text), options.datatype, options.layout,
                                          kernels_of(variant), options.gpu_target):
        for name in _gemm.wish_of(config.to_ctypes_config(), target).kernels:
            found[name] = None
    return list(found)


def produce(options: argparse.Namespace, folder: pathlib.Path) -> List[CodegenResult]:
    target = _targets.resolve(options.gpu_target)
    jobs = 1 if options.no_parallel else None
    if options.preselected:
        names = preselected_kernels.get_preselected_kernels(options.preselected,
                                                            options.gpu_target)
        return [generate(folder, options.preselected, _gemm.file_name, kernel=names,
                         target=target.word, jobs=jobs)]
    if options.config or options.tile_config_json:
        return [generate(folder, variant, _gemm.file_name,
                         kernel=configured(options, target, variant) or ["no_legal_kernel"],
                         target=target.word, jobs=jobs) for variant in options.variants]
    runner = CodegenRunner(None, folder, options.datatype, options.layout, options.gpu_target, jobs)
    return [runner.generate(kernels_of(variant)) for variant in options.variants]


# ---- What lies beside the headers ----------------------------------------------------------------

WRAPPER = """// {kernel}
#pragma once

#include <string>

#include <ck_tile/dispatcher/backends/tessera_gemm.hpp>

namespace ck_tile::dispatcher {{

inline KernelInstancePtr make_{name}(const std::string& gfx_arch = "{target}") {{
  return backends::named_gemm_kernel("{kernel}", gfx_arch);
}}

}}  // namespace ck_tile::dispatcher
"""


def write_wrappers(folder: pathlib.Path, target: str, registers: bool) -> None:
    """NAME.cpp, dispatcher_wrappers/ and, where asked, registration/ for a folder's kernels."""
    table = json.loads((folder / NAMES).read_text(encoding="ascii"))
    wrappers = folder / "dispatcher_wrappers"
    wrappers.mkdir(exist_ok=True)
    for name, kernel in table.items():
        (folder / f"{name}.cpp").write_text(generate_cpp_compilation_unit(name), encoding="ascii")
        (wrappers / f"dispatcher_wrapper_{name}.hpp").write_text(
            WRAPPER.format(name=name, kernel=kernel, target=target), encoding="ascii")
    text = registration("registry", "", {(
        "register_generated_gemm_kernels", "get_generated_gemm_kernel_count"): table.values()},
        target)
    (wrappers / "register_all_kernels.hpp").write_text(text, encoding="ascii")
    if registers:
        place = folder / "registration"
        place.mkdir(exist_ok=True)
        (place / "dispatcher_registration.hpp").write_text(text, encoding="ascii")
        (place / "dispatcher_registration.cpp").write_text(
            '#include "dispatcher_registration.hpp"\n', encoding="ascii")


def main() -> int:
    options = parse()
    target = _targets.resolve(options.gpu_target)
    if options.show_arch_info:
        print(f"tessera targets {target.name}")
        _show_arch_info(target.name, options.datatype)
        return 0
    folder = options.output_dir
    if options.kernel_set:
        folder = folder / options.kernel_set
    failed = False
    results = produce(options, folder)
    for result in results:
        print(result.stdout)
        print(f"{target}: {result.variant}: {result.kernel_count} kernels in {folder}")
        if not result.success:
            failed = True
            print(result.stderr, file=sys.stderr)
    if any(result.kernel_count for result in results):
        write_wrappers(folder, target.name, options.register)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(_scripts.guarded(main))
