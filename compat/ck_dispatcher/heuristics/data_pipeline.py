#!/usr/bin/env python3
"""Turns a log of GEMM benchmarks into what `tessera train` and train.py read.

    data_pipeline.py LOG -o data.parquet --arch gfx950 --capture_hw

A .parquet output has the original's columns, by the caller's pandas and pyarrow, and --capture_hw
adds the machine's numbers, hw_*. Without the two packages, and where the output ends in .csv or
.sqlite, it has Tessera's columns; --capture_hw then writes the target's row beside it, as
FILE.hw.json.
"""
from __future__ import annotations

import importlib.util
import json
import pathlib
import re
import subprocess
import sys
import tempfile
from typing import Any, Dict, Optional, Sequence

import _paths  # noqa: F401
from tessera_ck import scripts as _scripts
from tessera_ck import targets as _targets

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "codegen"))

from arch_specs_generated import LDS_TOTAL_CAPACITY_BY_ARCH  # noqa: E402

import foreign_rows  # noqa: E402
from frames import (CANONICAL_COLUMNS, _layout_from_problem, build_training_dataset,  # noqa: E402
                    load_parquet, parse_kernel_name, parse_streaming_log, save_parquet,
                    well_formed)

__all__ = ["CANONICAL_COLUMNS", "_layout_from_problem", "build_training_dataset",
           "check_capture_hw_arch", "get_hardware_profile", "load_parquet", "parse_kernel_name",
           "parse_streaming_log", "save_parquet"]

_GFX = re.compile(r"gfx[0-9a-f]+")
# What rocminfo says of a GPU, and the original's name of it.
_FACTS = {"Compute Unit": "num_cus", "SIMDs per CU": "simds_per_cu",
          "Shader Engines": "shader_engines", "Max Clock Freq. (MHz)": "max_clock_mhz",
          "Max Waves Per CU": "max_waves_per_cu", "Wavefront Size": "wavefront_size"}


def get_hardware_profile() -> Dict[str, Any]:
    """What rocminfo says of this machine's first GPU; {} where there is no rocminfo or no GPU."""
    try:
        text = subprocess.run(["rocminfo"], capture_output=True, text=True, timeout=60).stdout
    except (OSError, subprocess.SubprocessError):
        return {}
    for agent in re.split(r"^Agent \d+", text, flags=re.MULTILINE):
        facts: Dict[str, str] = {}
        for line in agent.splitlines():
            name, _, value = line.partition(":")
            facts.setdefault(name.strip(), value.strip())
        if facts.get("Device Type") == "GPU":
            return _profile_of(facts)
    return {}


def _profile_of(facts: Dict[str, str]) -> Dict[str, Any]:
    found: Dict[str, Any] = {"gfx_name": facts.get("Name", "")}
    for theirs, ours in _FACTS.items():
        number = re.match(r"\d+", facts.get(theirs, ""))
        if number:
            found[ours] = int(number[0])
    name = _gfx_of(found["gfx_name"])
    if name in LDS_TOTAL_CAPACITY_BY_ARCH:
        found["lds_capacity"] = LDS_TOTAL_CAPACITY_BY_ARCH[name]
    return found


def _gfx_of(text: str) -> str:
    found = _GFX.search(text)
    return found[0] if found else ""


def check_capture_hw_arch(profile: Dict[str, Any], arch: str) -> None:
    """Ends the script where the numbers are of another GPU than `arch`, which was measured."""
    here = _gfx_of(str(profile.get("gfx_name", "")))
    if here and here != _gfx_of(arch):
        raise SystemExit(f"--capture_hw would say of {arch} what this machine's {here} is; run it "
                         "where the log was written, or leave --capture_hw out")


def hardware_of(arch: str) -> Dict[str, Any]:
    """hw_* of a target's row; what a row does not say is left out."""
    row = _targets.dispatcher_of(_targets.resolve(arch).word).target
    found: Dict[str, Any] = {"hw_num_cus": row.get("units"),
                             "hw_max_clock_mhz": row.get("clock_ghz", 0) * 1000,
                             "hw_wavefront_size": row.get("warp_size"),
                             "hw_lds_capacity": row.get("shared_memory_bytes"),
                             "hw_num_xcd": row.get("xcds")}
    for cache in row.get("caches", []):
        found[f"hw_{cache['name']}_cache_kb"] = cache["bytes"] // 1024
    return {key: value for key, value in found.items() if value}


def _write_canonical(options: Any) -> int:
    profile = get_hardware_profile() if options.capture_hw else {}
    check_capture_hw_arch(profile, options.arch)
    table = parse_streaming_log(options.log, options.arch, options.op_type)
    if not len(table):
        raise ValueError(f"'{options.log}': no measurements were found")
    numbers = {f"hw_{name}": value for name, value in profile.items() if name != "gfx_name"}
    if options.capture_hw and not numbers:
        numbers = hardware_of(options.arch)
    for name, value in numbers.items():
        table[name] = value
    save_parquet(table, options.output)
    print(f"{len(table)} measurements in {options.output}, {table.attrs['skipped']} blocks skipped")
    return 0


def main(argv: Optional[Sequence[str]] = None) -> int:
    options = _scripts.parser_of(
        __doc__, ("log", str), ("-o --output", str), ("--arch", "gfx950"),
        ("--op_type", "gemm_universal", "", {"choices": ["gemm_universal", "gemm_streamk"]}),
        ("--capture_hw", False)).parse_args(argv)
    if options.output.endswith(".parquet") and all(
            importlib.util.find_spec(name) for name in ("pandas", "pyarrow")):
        return _write_canonical(options)
    with tempfile.TemporaryDirectory() as folder:
        log, skipped = well_formed(options.log, pathlib.Path(folder))
        place = foreign_rows.convert(log, options.arch, options.output)
    if skipped:
        print(f"{skipped} blocks skipped")
    if options.capture_hw:
        file = pathlib.Path(f"{place}.hw.json")
        file.write_text(json.dumps(hardware_of(options.arch), indent=2) + "\n", encoding="ascii")
        print(file)
    return 0


if __name__ == "__main__":
    sys.exit(_scripts.guarded(main))
