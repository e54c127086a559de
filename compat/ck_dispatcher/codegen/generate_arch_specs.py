#!/usr/bin/env python3
"""Writes the limits of targets as tables: arch_specs_generated.py and arch_specs_generated.hpp.

Tessera reads its rows when it runs, and so do the modules of this folder; the tables are for
programs that want files. --json takes the original's arch_specs.json instead of Tessera's rows;
`tessera targets import arch_specs.json` makes rows of it, which all commands take.
"""
from __future__ import annotations

import json
import pathlib
import pprint
import shutil
import sys
from typing import Any, Dict

import _paths  # noqa: F401
from tessera import Error
from tessera_ck import scripts as _scripts

HEADER = pathlib.Path(__file__).resolve().parents[1] / \
    "include/ck_tile/dispatcher/arch_specs_generated.hpp"


def tables_of_rows() -> Dict[str, Any]:
    import arch_specs_generated as live
    return {"ARCH_FAMILY_MAP": live.ARCH_FAMILY_MAP, "ELEMENT_SIZE_MAP": live.ELEMENT_SIZE_MAP,
            "WARP_SUPPORTED_COMBINATIONS": live.WARP_SUPPORTED_COMBINATIONS,
            "WARP_TILE_SUPPORTED_COMBINATIONS": live.WARP_TILE_SUPPORTED_COMBINATIONS,
            "LDS_CAPACITY_LIMITS": live.LDS_CAPACITY_LIMITS,
            "TRAIT_UNSUPPORTED_COMBINATIONS": sorted(live.TRAIT_UNSUPPORTED_COMBINATIONS)}


def tables_of_json(file: pathlib.Path) -> Dict[str, Any]:
    """Raises Error for a file that is not the original's."""
    try:
        whole = json.loads(file.read_text(encoding="utf-8"))
        archs = whole["architectures"]
        traits = whole.get("unsupported_trait_combos", {}).get("combinations", [])
        return {"ARCH_FAMILY_MAP": {name: row["family"] for name, row in archs.items()},
                "ELEMENT_SIZE_MAP": whole.get("element_sizes", {}),
                "WARP_SUPPORTED_COMBINATIONS": {
                    name: row["warp_configs"] for name, row in archs.items()},
                "WARP_TILE_SUPPORTED_COMBINATIONS": {
                    name: row.get("warp_tile_combos", {}) for name, row in archs.items()},
                "LDS_CAPACITY_LIMITS": {name: 1024 * row.get("lds_capacity_kb", 64)
                                        for name, row in archs.items()},
                "TRAIT_UNSUPPORTED_COMBINATIONS": [tuple(trait) for trait in traits]}
    except OSError as error:
        raise Error(f"{file} cannot be read: {error.strerror}", "io_error") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Error(f"{file} is no arch_specs.json: {error!r}", "parse_error") from None


def main() -> int:
    options = _scripts.parsed(
        __doc__, ("--json", None, "", {"type": pathlib.Path}), ("--output-dir", pathlib.Path(".")),
        ("--cpp-output-dir", None, "", {"type": pathlib.Path}))
    print("tessera targets")
    tables = tables_of_json(options.json) if options.json else tables_of_rows()
    options.output_dir.mkdir(parents=True, exist_ok=True)
    text = '"""Limits of targets, written by generate_arch_specs.py."""\n\n' + "\n\n".join(
        f"{name} = {pprint.pformat(table, width=96)}" for name, table in tables.items())
    (options.output_dir / "arch_specs_generated.py").write_text(text + "\n", encoding="ascii")
    cpp = options.cpp_output_dir or options.output_dir / "include/ck_tile/dispatcher"
    cpp.mkdir(parents=True, exist_ok=True)
    if (cpp / HEADER.name).resolve() != HEADER:
        shutil.copyfile(HEADER, cpp / HEADER.name)
    print(f"{len(tables['ARCH_FAMILY_MAP'])} targets in {options.output_dir} and {cpp}")
    return 0


if __name__ == "__main__":
    sys.exit(_scripts.guarded(main))
