#!/usr/bin/env python3
"""A table of family.h that leaves out a member does not compile, whichever it is: COMPILER."""
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[3]
COMPILER = sys.argv[1]


def members():
    """The members of struct Family that every table has, in their order."""
    text = (ROOT / "src/tessera/families/family.h").read_text(encoding="ascii")
    body = text.split("\nstruct Family {\n")[1].split("\n};\n")[0]
    body = re.sub(r"//[^\n]*", "", body)
    declared = [one.strip() for one in body.split(";")]
    return [one.split()[-1] for one in declared if one.startswith("Required<")]


def lines_refused(lines):
    """Line numbers, from 0, of a source's lines at which the compiler finds errors."""
    with tempfile.TemporaryDirectory() as folder:
        source = pathlib.Path(folder, "tables.cc")
        source.write_text("\n".join(lines) + "\n", encoding="ascii")
        limit = ["-ferror-limit=0"] if "clang" in pathlib.Path(COMPILER).name else []
        answer = subprocess.run([COMPILER, "-std=c++20", "-fsyntax-only", f"-I{ROOT}/src", *limit,
                                 source], capture_output=True, text=True, check=False)
    return {int(line) - 1 for line in re.findall(r"tables\.cc:(\d+):\d+: error", answer.stderr)}


def main():
    names = members()
    assert names[0] == "op" and "bytes" in names and len(names) > 20, names
    head = ['#include "tessera/families/family.h"', "const tessera::Family& known();"]
    tables = [[name for name in names if name != left_out] for left_out in names] + [names]
    lines = head + ["tessera::Family t%d{%s};" % (i, ", ".join(
        f".{name} = known().{name}" for name in table)) for i, table in enumerate(tables)]
    refused = lines_refused(lines)
    wanted = {len(head) + i for i in range(len(names))}
    for line in sorted(wanted - refused):
        print(f"a table without {names[line - len(head)]} compiles")
    for line in sorted(refused - wanted):
        print(f"this does not compile: {lines[line]}")
    print(f"families: {len(names)} members, {len(wanted ^ refused)} findings")
    return 1 if wanted ^ refused else 0


sys.exit(main())
