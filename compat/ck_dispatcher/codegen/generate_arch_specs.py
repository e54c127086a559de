#!/usr/bin/env python3
"""Writes the limits of targets as tables: arch_specs_generated.py and arch_specs_generated.hpp.

    generate_arch_specs.py [--json arch_specs.json] [--output-dir DIR] [--cpp-output-dir DIR]

--json takes the original's arch_specs.json instead of Tessera's rows, and so does a file of this
name beside the script. Left out, the folders are those that the modules and the headers read: this
script's, and ../include/ck_tile/dispatcher. Without a JSON the module of this folder reads the rows
when it runs, so that nothing has to be generated anew; elsewhere it holds them as tables.
`tessera targets import arch_specs.json` makes rows of a JSON, which all commands take. The header
has the original's targets alone.
"""
from __future__ import annotations

import inspect
import json
import pathlib
import pprint
import shutil
import sys
from typing import Any, Dict, Optional

import _paths  # noqa: F401
from tessera import Error
from tessera_ck import scripts as _scripts

import arch_specs_rows as rows

HERE = pathlib.Path(__file__).resolve().parent
HEADER = HERE.parent / "include/ck_tile/dispatcher/arch_specs_generated.hpp"
LIVE = '''"""The limits of targets, which arch_specs_rows.py reads from Tessera's rows."""
from arch_specs_rows import *  # noqa: F401,F403
'''
TABLES = '''"""The limits of targets, written by generate_arch_specs.py."""
from __future__ import annotations

from typing import Dict, List, Optional, Tuple

'''


def tables_of_rows() -> Dict[str, Any]:
    return {name: getattr(rows, name) for name in rows.TABLES}


def _plain(table: Dict[str, Any]) -> Dict[str, Any]:
    """Without what a JSON says to people."""
    return {name: value for name, value in table.items() if not name.startswith("_")}


def tables_of_json(file: pathlib.Path) -> Dict[str, Any]:
    """All tables; a JSON says most of them. Raises Error for a file that is not the original's."""
    try:
        whole = json.loads(file.read_text(encoding="utf-8"))
        archs = whole["architectures"]
        sizes = {name: 1024 * row.get("lds_capacity_kb", 64) for name, row in archs.items()}
        warp_tiles = {name: row.get("warp_tile_combos", {}) for name, row in archs.items()}
        traits = whole.get("unsupported_trait_combos", {}).get("combinations", [])
        pairs = _plain(whole.get("dtype_combinations", {}))
        found = {"ARCH_FAMILY_MAP": {name: row["family"] for name, row in archs.items()},
                 "WARP_SUPPORTED_COMBINATIONS": {
                     name: row["warp_configs"] for name, row in archs.items()},
                 "WARP_TILE_SUPPORTED_COMBINATIONS": warp_tiles,
                 "PRESHUFFLE_WARP_TILE_SUPPORTED_COMBINATIONS": {
                     **warp_tiles, **_plain(whole.get("preshuffle_warp_tile_combos", {}))},
                 "LDS_CAPACITY_LIMITS": sizes, "LDS_TOTAL_CAPACITY_BY_ARCH": sizes,
                 "LDS_CAPACITY_LIMITS_BY_ARCH": rows.limits_of(sizes), "LDS_FRACTIONS": {},
                 "TRAIT_UNSUPPORTED_COMBINATIONS": {tuple(trait) for trait in traits}}
        if pairs:
            found["DTYPE_COMBINATIONS"] = {
                pair: {**rows.DTYPE_COMBINATIONS.get(pair, {}), "acc": each["acc"]}
                for pair, each in pairs.items()}
        if "element_sizes" in whole:
            found["ELEMENT_SIZE_MAP"] = _plain(whole["element_sizes"])
        return {**tables_of_rows(), **found}
    except OSError as error:
        raise Error(f"{file} cannot be read: {error.strerror}", "io_error") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Error(f"{file} is no arch_specs.json: {error!r}", "parse_error") from None


def module_of(tables: Dict[str, Any]) -> str:
    """A module that needs no other: the tables, and the functions over them."""
    literals = (f"{name} = {pprint.pformat(tables[name], width=96)}" for name in rows.TABLES)
    functions = (inspect.getsource(getattr(rows, name)) for name in rows.FUNCTIONS)
    return TABLES + "\n\n".join(literals) + "\n\n\n" + "\n\n".join(functions)


def given_json(options: Any) -> Optional[pathlib.Path]:
    beside = HERE / "arch_specs.json"
    return options.json or (beside if beside.is_file() else None)


def main() -> int:
    options = _scripts.parsed(
        __doc__, ("--json", None, "", {"type": pathlib.Path}), ("--output-dir", HERE),
        ("--cpp-output-dir", None, "", {"type": pathlib.Path}))
    print("tessera targets")
    source, folder = given_json(options), options.output_dir
    folder.mkdir(parents=True, exist_ok=True)
    is_here = folder.resolve() == HERE
    tables = tables_of_json(source) if source else tables_of_rows()
    text = LIVE if is_here and not source else module_of(tables)
    (folder / "arch_specs_generated.py").write_text(text, encoding="ascii")
    cpp = options.cpp_output_dir or (
        HEADER.parent if is_here else folder / "include/ck_tile/dispatcher")
    cpp.mkdir(parents=True, exist_ok=True)
    if (cpp / HEADER.name).resolve() != HEADER:
        shutil.copyfile(HEADER, cpp / HEADER.name)
    print(f"{len(tables['ARCH_FAMILY_MAP'])} targets of {source or 'Tessera'} in {folder}, "
          f"header in {cpp}")
    return 0


if __name__ == "__main__":
    sys.exit(_scripts.guarded(main))
