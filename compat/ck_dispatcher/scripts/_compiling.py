"""What the scripts that compile programs share."""
from __future__ import annotations

import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
from typing import Any, List

HERE = pathlib.Path(__file__).resolve().parents[1]
for folder in ("python", "codegen"):
    sys.path.insert(0, str(HERE / folder))

from tessera import Error, _abi  # noqa: E402
from tessera_ck import scripts as _scripts  # noqa: E402


def command_of(source: pathlib.Path, output: pathlib.Path) -> List[str]:
    library = _abi.find_library()
    checkout = HERE.parents[1]
    compiler = shlex.split(os.environ.get("CXX") or shutil.which("c++") or "c++")
    return [*compiler, "-std=c++17", "-O2", f"-I{HERE / 'include'}", *_host_hip(),
            f"-I{checkout / 'include'}", str(source), "-o", str(output), str(library), "-ldl",
            f"-Wl,-rpath,{library.parent}"]


def _host_hip() -> List[str]:
    """The small <hip/hip_runtime.h> of this folder, where there is no ROCm."""
    places = (os.environ.get("ROCM_PATH", "/opt/rocm"), "/usr")
    if any(pathlib.Path(place, "include/hip/hip_runtime.h").is_file() for place in places):
        return []
    return [f"-I{HERE / 'include_host'}"]


def compile_programs(doc: Any, macro: str, folder: str) -> int:
    """A script that lists the kernel sets of programs, and compiles them. macro: a part of a
    regular expression, for the macros that declare a set; folder: of the programs where none is
    given."""
    declared = re.compile(macro + r"\s*\(\s*(\w+)")
    options = _scripts.parsed(
        doc, ("sources", [], f"left out: {folder}/*.cpp", {"type": pathlib.Path}),
        ("--no-compile", False), ("--output-dir", pathlib.Path("build")))
    sources = options.sources or sorted(pathlib.Path(folder).glob("*.cpp"))
    if not sources:
        raise Error(f"no source is given, and {folder} has none", "not_found")
    failed = 0
    for source in sources:
        if not source.is_file():
            raise Error(f"there is no file {source}", "not_found")
        names = declared.findall(source.read_text(encoding="utf-8"))
        print(f"{source}: declares {', '.join(names) or 'no kernel set'}")
        if options.no_compile:
            continue
        options.output_dir.mkdir(parents=True, exist_ok=True)
        command = command_of(source, options.output_dir / source.stem)
        print(shlex.join(command), flush=True)
        failed += subprocess.run(command).returncode != 0
    return 1 if failed else 0
