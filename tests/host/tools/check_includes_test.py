#!/usr/bin/env python3
"""Plants includes in a library and looks what tools/check_includes.py says: BUILD COMPILER."""
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[3]
BUILD, COMPILER = sys.argv[1:3]


def findings(library, include):
    """The check's lines on an object of the library that includes one header."""
    with tempfile.TemporaryDirectory() as folder:
        source, rules = pathlib.Path(folder, "planted.cc"), pathlib.Path(folder, "planted.d")
        source.write_text(f'#include "{include}"\n', encoding="ascii")
        subprocess.run([COMPILER, "-std=c++20", "-fsyntax-only", "-MD", "-MF", rules,
                        "-MT", "planted.o", f"-I{ROOT}/src", source], check=True)
        check = ROOT / "tools/check_includes.py"
        command = [sys.executable, check, BUILD, "--depfile", library, rules]
        answer = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = answer.stdout.splitlines()
    assert answer.returncode == (1 if len(lines) > 1 else 0), answer
    assert lines[-1] == f"includes: 1 objects, {len(lines) - 1} findings", lines
    return lines[:-1]


def allowed(library):
    for line in pathlib.Path(BUILD, "include_table.txt").read_text(encoding="ascii").splitlines():
        name, folders = line.split(":")
        if name == library:
            return ", ".join(sorted(folders.split()))
    raise AssertionError(f"{library} is not in the table")


def sentence(library, path):
    return (f"{library} reads {path}: it may read {allowed(library)} only; "
            "DEPENDS in src/CMakeLists.txt says so")


# What the table allows, directly and through others, is no finding.
assert findings("tessera_spec", "tessera/base/error.h") == []
assert findings("tessera_dispatch", "tessera/select/select.h") == []
# A header of a folder above, and every header that comes with it.
got = findings("tessera_base", "tessera/spec/dtype.h")
assert sentence("tessera_base", "spec/dtype.h") in got, got
got = findings("tessera_learn", "tessera/runtime/runtime.h")
assert sentence("tessera_learn", "runtime/runtime.h") in got, got
assert sentence("tessera_learn", "jit/cache.h") in got, got
# A stage that reaches into a family.
got = findings("tessera_select", "tessera/families/gemm/gemm.h")
assert got == [sentence("tessera_select", "families/gemm/gemm.h")], got
print("check_includes: every planted include was found")
