#!/usr/bin/env python3
"""Writes kernels of attention under the original's file names, by `tessera generate`.

    codegen.py --output-dir generated --gpu-target gfx942 --config-json '{"arch": "gfx942",
        "signature": {...}, "algorithm": {...}}'

A configuration is checked by the original's rules (validation.py). Its file holds the kernel that
the target's dispatcher chooses for what it computes; kernel_names.json has that kernel's own name.
"""
from __future__ import annotations

import json
import pathlib
import sys
from typing import Any, Dict, List

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import _paths  # noqa: E402,F401
import tessera  # noqa: E402
from tessera import Error  # noqa: E402
from tessera_ck import fmha as _fmha  # noqa: E402
from tessera_ck import fmha_configs as _configs  # noqa: E402
from tessera_ck import scripts as _scripts  # noqa: E402
from tessera_ck.codegen_runner import NAMES  # noqa: E402

from fmha.symbol_map import kernel_name_from_config  # noqa: E402
from fmha.validation import profile_allows, validate_config  # noqa: E402
from fmha_utils import FmhaDispatcherLib, FmhaKernelConfig, FmhaProblem  # noqa: E402

# The stages of an operation that one of Tessera's kernels computes whole.
_FAMILIES = {"bwd_dot_do_o": "bwd", "bwd_dq_dk_dv": "bwd", "bwd_convert_dq": "bwd",
             "fwd_splitkv_combine": "fwd_splitkv"}

WRAPPER = """// Registers {kernel}, whose source is {file}.
#pragma once

#include <string>

#include <ck_tile/dispatcher/fmha_kernels.hpp>

namespace ck_tile::dispatcher {{
inline FmhaKernelInstancePtr make_{name}(const std::string& gfx_arch = "{arch}") {{
  return backends::named_fmha_kernel("{kernel}", gfx_arch);
}}
}}  // namespace ck_tile::dispatcher
"""


def kernel_of(config: Dict[str, Any]) -> str:
    """Tessera's name of the kernel that the target's dispatcher chooses for what a configuration
    computes, with the configuration's heads and 1,024 tokens. Needs no such machine."""
    asked = dict(_configs.fields_of(config))
    family = _FAMILIES.get(asked["family"], asked["family"])
    wanted = FmhaKernelConfig(**{**asked, "family": family})
    sizes = FmhaProblem(1, 8, 8, 1024, 1024, wanted.hdim_q, wanted.hdim_v)
    problem = _fmha.builder_of(
        sizes, family, wanted.data_type, mask_type=wanted.mask, bias_type=wanted.bias,
        lse=wanted.lse, dropout=_fmha.P_DROP if wanted.dropout else 0,
        soft_cap=_fmha.SOFT_CAP if wanted.logits else 0, rope=wanted.rope, dbias=wanted.dbias,
        page_size=max(wanted.page_size, 1)).build()
    return str(FmhaDispatcherLib(wanted)._select(problem)["kernel"])


def write_one(folder: pathlib.Path, config: Dict[str, Any]) -> pathlib.Path:
    """The header of a configuration and the wrapper that registers it."""
    name, kernel = kernel_name_from_config(config), kernel_of(config)
    source = tessera.command("show", kernel=kernel, target=config["arch"], source=True)["source"]
    header = folder / f"{name}.hpp"
    header.write_text(f"// {kernel}\n#pragma once\n\n{source}\n", encoding="utf-8")
    wrappers = folder / "dispatcher_wrappers"
    wrappers.mkdir(exist_ok=True)
    (wrappers / f"dispatcher_wrapper_{name}.hpp").write_text(WRAPPER.format(
        kernel=kernel, file=header.name, name=name, arch=config["arch"]), encoding="ascii")
    table = folder / NAMES
    names = json.loads(table.read_text(encoding="ascii")) if table.is_file() else {}
    names[name] = kernel
    table.write_text(json.dumps(names, indent=2, sort_keys=True) + "\n", encoding="ascii")
    return header


def configs_of(options: Any) -> List[Dict[str, Any]]:
    """One configuration or a list, from the option or from a file."""
    if bool(options.config_json) == bool(options.config_file):
        raise Error("one of --config-json and --config-file must be given", "invalid_argument")
    text = options.config_json or options.config_file.read_text(encoding="utf-8")
    try:
        found = json.loads(text)
    except ValueError as error:
        raise Error(f"the configuration is no JSON: {error}", "parse_error") from None
    return found if isinstance(found, list) else [found]


def main() -> int:
    options = _scripts.parsed(
        __doc__, ("--output-dir", pathlib.Path("build/generated_kernels")),
        ("--gpu-target", None, "where a configuration names no arch"), ("--config-json", None),
        ("--config-file", None, "", {"type": pathlib.Path}), ("--profile", None),
        ("--receipt", None, "the number of a profile"), ("--verbose", False))
    written, failed = 0, 0
    options.output_dir.mkdir(parents=True, exist_ok=True)
    for config in configs_of(options):
        config.setdefault("arch", options.gpu_target)
        if (options.profile or options.receipt) and not profile_allows(
                config, options.profile, options.receipt):
            continue
        found = validate_config(config)
        for sentence in [*found.errors, *(found.warnings if options.verbose else [])]:
            print(sentence, file=sys.stderr)
        failed += not found.valid
        if found.valid:
            print(write_one(options.output_dir, config))
            written += 1
    return 0 if written and not failed else 1


if __name__ == "__main__":
    sys.exit(_scripts.guarded(main))
