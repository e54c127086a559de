#!/usr/bin/env python3
"""Turns the CSV of grouped_conv_full_benchmark.py into what `tessera train` and train.py read.

    convert_csv_to_parquet.py --input train.csv --output train.parquet --arch avx512 --dtype bf16
        --variant forward

Where the kernels have the original's names, a .parquet output has the original's columns, by the
caller's pandas and pyarrow; the tiles may be mixed, and --kernel-pattern is a regular expression
whose named groups are columns. With --op-type gemm_universal the CSV of a GEMM sweep becomes such a
table, too. Else the output has Tessera's columns, and may also end in .csv or .sqlite;
--kernel-pattern is then a part of the kernels' names. --dtype and --variant say what neither
columns nor kernels' names do; short names of kernels then need --wave and --warp-tile. Several of
these stand in pairs, and a kernel has the first pair over which its tile divides.
"""
from __future__ import annotations

import csv
import pathlib
import re
import sys
import tempfile
from typing import Any, Dict, List, Optional, Tuple

import _paths  # noqa: F401
from tessera import Error
from tessera_ck import conv as _conv
from tessera_ck import scripts as _scripts

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "codegen"))

from arch_specs_generated import LDS_TOTAL_CAPACITY_BY_ARCH  # noqa: E402

import foreign_rows  # noqa: E402
from frame_converting import conv_table, has_tables, is_conv_csv  # noqa: E402
from frames import (CANONICAL_COLUMNS, pandas, parse_kernel_name,  # noqa: E402
                    save_parquet)

_CDNA = {"hw_simds_per_cu": 4, "hw_shader_engines": 32, "hw_max_waves_per_cu": 32,
         "hw_wavefront_size": 64, "hw_l1_cache_kb": 32, "hw_l2_cache_kb": 4096,
         "hw_l3_cache_kb": 262144, "hw_num_xcd": 8}
_MACHINES = {"gfx90a": {**_CDNA, "hw_num_cus": 110, "hw_max_clock_mhz": 1700, "hw_num_xcd": 1,
                        "hw_shader_engines": 8, "hw_l1_cache_kb": 16, "hw_l2_cache_kb": 8192,
                        "hw_l3_cache_kb": 131072},
             "gfx942": {**_CDNA, "hw_num_cus": 228, "hw_max_clock_mhz": 2100,
                        "hw_shader_engines": 28},
             "gfx950": {**_CDNA, "hw_num_cus": 256, "hw_max_clock_mhz": 2400},
             "gfx1250": {"hw_num_cus": 256, "hw_simds_per_cu": 4, "hw_max_clock_mhz": 2400,
                         "hw_wavefront_size": 32}}
# The numbers of the original's machines; others are not guessed.
HW_PROFILES = {arch: {**numbers, "hw_lds_capacity": LDS_TOTAL_CAPACITY_BY_ARCH[arch]}
               for arch, numbers in _MACHINES.items()}


def convert_csv_to_parquet(csv_file: Any, output_file: Any, arch: str = "gfx950",
                           dtype: Optional[str] = None, variant: Optional[str] = None,
                           op_type: Optional[str] = None, kernel_pattern: Optional[str] = None
                           ) -> Any:
    """The CSV of a benchmark as a table with the original's columns and the machine's numbers,
    which is written and returned. The names of the kernels say which operation it is."""
    if op_type != "gemm_universal" and is_conv_csv(csv_file, kernel_pattern):
        table = conv_table(csv_file, arch, hardware_of(arch), kernel_pattern, dtype=dtype,
                           variant=variant, op_type=op_type)
    else:
        table = _gemm_table(csv_file, arch, op_type or "gemm_universal")
    save_parquet(table, output_file)
    return table


def hardware_of(arch: str) -> Dict[str, Any]:
    return HW_PROFILES.get(arch.partition(":")[0], {})


def _gemm_table(csv_path: Any, arch: str, op_type: str) -> Any:
    """The CSV of a GEMM sweep (kernel, M, N, K, latency_ms, tflops, verified). A row whose kernel's
    name says no tile is left out."""
    given = pandas().read_csv(csv_path)
    lacks = [name for name in ("kernel", "M", "N", "K", "latency_ms", "tflops")
             if name not in given.columns]
    if lacks:
        raise Error(f"{csv_path} has no column '{lacks[0]}'", "parse_error")
    rows = []
    for each in given.to_dict("records"):
        row = parse_kernel_name(str(each["kernel"]))
        if "tile_m" not in row:
            continue
        seconds = float(each["latency_ms"]) * 1e-3
        is_valid = seconds > 0 and bool(each.get("verified", True))
        rows.append({**row, "op_type": op_type, "arch": arch, "kernel_name": each["kernel"],
                     **{axis.lower(): int(each[axis]) for axis in "MNK"}, "split_k": 1,
                     "measured_tflops": float(each["tflops"]), "is_valid": is_valid,
                     "latency_ms": float(each["latency_ms"]), "run_id": pathlib.Path(csv_path).stem,
                     **hardware_of(arch)})
    if not rows:
        raise Error(f"{csv_path} holds no measurement of a GEMM kernel", "not_found")
    table = pandas().DataFrame(rows)
    for name in CANONICAL_COLUMNS:
        if name not in table.columns:
            table[name] = None
    return table


def _has_original_names(options: Any) -> bool:
    if options.op_type == "gemm_universal":
        return True
    if options.wave or options.warp_tile or not options.output.endswith(".parquet"):
        return False
    return has_tables() and is_conv_csv(options.input, options.kernel_pattern or None)


def main() -> int:
    options = _scripts.parsed(
        __doc__, ("--input", str), ("--output", str), ("--arch", None, "this machine if left out"),
        ("--dtype", None), ("--variant", None, "forward, bwd_data or bwd_weight"),
        ("--wave", [], "2x2x1 ..."), ("--warp-tile", [], "32x32x16 ..."),
        ("--op-type", "grouped_conv", "", {"choices": ["grouped_conv", "gemm_universal"]}),
        ("--kernel-pattern", "", "part of the kernels' names, or an expression with columns"))
    if _has_original_names(options):
        table = convert_csv_to_parquet(
            options.input, options.output, options.arch or "gfx950", options.dtype,
            options.variant, options.op_type, options.kernel_pattern or None)
        print(f"{len(table)} measurements in {options.output}")
        return 0
    given = [] if not options.variant else [
        f"direction={_conv.DIRECTIONS[_conv.variant_word(options.variant)][0]}"]
    if len(options.wave) != len(options.warp_tile):
        raise Error(f"--wave and --warp-tile stand in pairs, got {len(options.wave)} and "
                    f"{len(options.warp_tile)}", "invalid_argument")
    with tempfile.TemporaryDirectory() as folder:
        foreign_rows.convert(
            options.input, options.arch, options.output, op="conv", dtype=options.dtype,
            field=given or None, parts=_parts(options, pathlib.Path(folder)),
            kernels=f"*{options.kernel_pattern}*" if options.kernel_pattern else None)
    return 0


def _parts(options: Any, folder: pathlib.Path) -> List[Tuple[Any, List[str]]]:
    """The rows of the input by the pair that their kernels' tiles divide over, each in a file."""
    pairs = list(zip(options.wave, options.warp_tile))
    said = [[f"wave={wave}", f"warp_tile={warp}"] for wave, warp in pairs]
    if len(pairs) < 2:
        return [(options.input, said[0] if said else [])]
    with open(options.input, newline="", encoding="utf-8") as stream:
        head, *rows = csv.reader(stream)
    place = head.index("kernel")
    found: Dict[int, List[List[str]]] = {}
    for row in rows:
        tile = re.search(r"_(\d+)x(\d+)x(\d+)", row[place])
        sizes = [int(size) for size in tile.groups()] if tile else []
        fits = [at for at, pair in enumerate(pairs) if sizes and _divides(sizes, *pair)]
        if not fits:
            raise Error(f"the tile of '{row[place]}' divides over none of the {len(pairs)} pairs "
                        "of --wave and --warp-tile", "illegal_spec")
        found.setdefault(fits[0], []).append(row)
    parts = []
    for at, kept in sorted(found.items()):
        file = folder / f"part{at}.csv"
        with open(file, "w", newline="", encoding="utf-8") as stream:
            csv.writer(stream).writerows([head, *kept])
        parts.append((file, said[at]))
    return parts


def _divides(sizes: List[int], wave: str, warp: str) -> bool:
    steps = [int(a) * int(b) for a, b in zip(wave.split("x"), warp.split("x"))]
    return all(step > 0 and size % step == 0 for size, step in zip(sizes, steps))


if __name__ == "__main__":
    sys.exit(_scripts.guarded(main))
