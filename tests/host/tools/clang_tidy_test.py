#!/usr/bin/env python3
"""Plants findings, and takes the tool away, and looks what tools/clang_tidy.py says."""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[3]


def run(sources, path=None, changed=None):
    """The exit status and lines of the tool over a build that compiles these sources; with a list
    of changed ones, over those that differ from a commit."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(ROOT / ".clang-tidy", folder)
        build = pathlib.Path(folder, "src", "build")
        build.mkdir(parents=True)
        entries = []
        for name, text in sources.items():
            file = pathlib.Path(folder, "src", name)
            file.parent.mkdir(exist_ok=True)
            file.write_text(text, encoding="ascii")
            entries.append({"directory": folder, "file": str(file),
                            "command": f"c++ -std=c++20 -c {file}"})
        (build / "compile_commands.json").write_text(json.dumps(entries), encoding="ascii")
        tool = pathlib.Path(folder, "tools", "clang_tidy.py")
        tool.parent.mkdir()
        shutil.copy(ROOT / "tools/clang_tidy.py", tool)
        command = [sys.executable, tool, build, "2"]
        if changed is not None:
            git = ["git", "-C", folder, "-c", "user.name=test", "-c", "user.email=test@test"]
            for words in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "test"]):
                subprocess.run([*git, *words], check=True)
            for name in changed:
                pathlib.Path(folder, "src", name).open("a", encoding="ascii").write("\n")
            command.append("HEAD")
        answer = subprocess.run(
            command, capture_output=True,
            text=True, check=False, env=os.environ | ({} if path is None else {"PATH": path}))
        return answer.returncode, answer.stdout.replace(folder, "F").splitlines(), answer.stderr


status, _, said = run({}, path="/nowhere/at/all")
assert status == 1 and said.endswith("compiles no file\n"), (status, said)
status, _, said = run({"a.cc": "int f();\n"}, path="/nowhere/at/all")
assert (status, said) == (1, "clang-tidy: there is no 'clang-tidy'\n"), (status, said)
if shutil.which("clang-tidy") is None:
    sys.exit("clang_tidy_test: needs clang-tidy; './dev setup' installs it")

# The headers of others have warnings, which are counted only.
CLEAN = "#include <string>\nstd::string f() { return {}; }\n"
got = run({"a.cc": CLEAN})
assert got == (0, ["clang-tidy: 1 files, 0 with findings"], ""), got
status, lines, _ = run({"a.cc": CLEAN, "b.cc": "double half(int n) { return n / 2; }\n"})
assert status == 1 and lines[-1] == "clang-tidy: 2 files, 1 with findings", lines
assert "F/src/b.cc:1:29: error: result of integer division used in a floating point context; " \
    "possible loss of precision [bugprone-integer-division,-warnings-as-errors]" in lines, lines
# A unity file stands for what it includes; a file that cannot be read is a finding.
status, lines, _ = run({"b.cc": "double half(int n) { return n / 2; }\n",
                        "unity.cc": '#include "b.cc"\n'})
assert status == 1 and lines[-1] == "clang-tidy: 2 files, 2 with findings", lines
# Only folders with changes are read.
BAD = "double half(int n) { return n / 2; }\n"
got = run({"old/a.cc": BAD, "new/b.cc": CLEAN}, changed=["new/b.cc"])
assert got == (0, ["clang-tidy: 1 files, 0 with findings"], ""), got
status, lines, _ = run({"old/a.cc": CLEAN, "new/b.cc": BAD, "new/c.cc": CLEAN},
                       changed=["new/c.cc"])
assert status == 1 and lines[-1] == "clang-tidy: 2 files, 1 with findings", lines
got = run({"old/a.cc": BAD}, changed=[])
assert got == (0, ["clang-tidy: 0 files, 0 with findings"], ""), got
status, lines, _ = run({"a.cc": '#include "no_such.h"\n'})
assert status == 1 and any("'no_such.h' file not found" in line for line in lines), lines
print("clang_tidy: every planted finding was found")
