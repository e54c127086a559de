#!/usr/bin/env python3
"""Compiles programs that declare convolution kernels.

    compile_grouped_conv_examples.py SOURCE.cpp... [--no-compile] [--output-dir build]

The declarations are read by the program itself when it runs; this script lists them, and compiles
the program against ck_tile/dispatcher/*.hpp and Tessera's library.
"""
from __future__ import annotations

import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
from typing import List

HERE = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(HERE / "python"))

from tessera import Error, _abi  # noqa: E402
from tessera_ck import scripts as _scripts  # noqa: E402

SET = re.compile(r"DECL_GROUPED_CONV_KERNEL_(?:SET|ALL)\s*\(\s*(\w+)")


def command_of(source: pathlib.Path, output: pathlib.Path) -> List[str]:
    library = _abi.find_library()
    checkout = HERE.parents[1]
    compiler = shlex.split(os.environ.get("CXX") or shutil.which("c++") or "c++")
    return [*compiler, "-std=c++20", "-O2", f"-I{HERE / 'include'}", f"-I{checkout / 'include'}",
            f"-I{checkout / 'src'}", str(source), "-o", str(output), str(library),
            f"-Wl,-rpath,{library.parent}"]


def main() -> int:
    options = _scripts.parsed(
        __doc__,
        ("sources", [], "left out: examples/grouped_conv/cpp/*.cpp", {"type": pathlib.Path}),
        ("--no-compile", False), ("--output-dir", pathlib.Path("build")))
    sources = options.sources or sorted(pathlib.Path("examples/grouped_conv/cpp").glob("*.cpp"))
    if not sources:
        raise Error("no source is given, and examples/grouped_conv/cpp has none", "not_found")
    failed = 0
    for source in sources:
        if not source.is_file():
            raise Error(f"there is no file {source}", "not_found")
        names = SET.findall(source.read_text(encoding="utf-8"))
        print(f"{source}: declares {', '.join(names) or 'no kernel set'}")
        if options.no_compile:
            continue
        options.output_dir.mkdir(parents=True, exist_ok=True)
        command = command_of(source, options.output_dir / source.stem)
        print(shlex.join(command), flush=True)
        failed += subprocess.run(command).returncode != 0
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(_scripts.guarded(main))
