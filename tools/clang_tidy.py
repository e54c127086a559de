#!/usr/bin/env python3
"""Runs clang-tidy over a configured build folder, without its tests: BUILD [JOBS [COMMIT]].

In a unity build one run reads a whole folder of sources and parses their headers once. With a
commit, only folders are read that have files which differ from it. Exits 1 if any file has a
finding or cannot be read.
"""
import concurrent.futures
import json
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
# The folder was configured for GCC, some of whose flags Clang does not know.
FLAGS = "--extra-arg=-Wno-unused-command-line-argument"
# clang-tidy counts findings in other projects' headers on stderr. Other lines of stderr are shown.
COUNTS = re.compile(r"\d+ warnings?( and \d+ errors?)? generated\.|")
LEFT_OUT = ("tests", "examples")


def part_of(path, build):
    """The first folder of the path below the build folder (unity files) or the project's folder."""
    for top in (build, ROOT):
        if pathlib.Path(path).is_relative_to(top):
            return pathlib.Path(path).relative_to(top).parts[0]
    return ""


def sources(path):
    """What a unity file includes, or the file itself."""
    text = pathlib.Path(path).read_text(encoding="utf-8")
    return re.findall(r'^#include "(.*\.cc)"$', text, re.MULTILINE) or [path]


def changed_folders(commit):
    """Folders of the files that differ from the commit or that git does not know."""
    git = ["git", "-C", ROOT]
    names = subprocess.run([*git, "diff", "--name-only", commit, "--"], check=True,
                           capture_output=True, text=True).stdout
    names += subprocess.run([*git, "ls-files", "--others", "--exclude-standard"], check=True,
                            capture_output=True, text=True).stdout
    return {(ROOT / name).parent for name in names.splitlines()}


def weight(path):
    """Bytes of the sources that a unity file includes, to start the longest runs first."""
    return sum(os.path.getsize(part) for part in sources(path) if os.path.exists(part))


def tidy(build, path):
    answer = subprocess.run(["clang-tidy", "--quiet", "-p", build, FLAGS, path],
                            capture_output=True, text=True, check=False)
    said = [line for line in answer.stderr.splitlines() if not COUNTS.fullmatch(line)]
    return answer.returncode, answer.stdout.splitlines() + said


def main(build, jobs=os.cpu_count(), commit=None):
    folder = pathlib.Path(build).resolve()
    entries = json.loads((folder / "compile_commands.json").read_text(encoding="utf-8"))
    paths = {entry["file"] for entry in entries if part_of(entry["file"], folder) not in LEFT_OUT}
    if not paths:
        sys.exit(f"clang-tidy: '{build}' compiles no file")
    if commit is not None:
        changed = changed_folders(commit)
        paths = {path for path in paths
                 if any(pathlib.Path(part).parent in changed for part in sources(path))}
    paths = sorted(paths, key=weight, reverse=True)
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(int(jobs)) as pool:
        for path, (status, lines) in zip(paths, pool.map(lambda path: tidy(build, path), paths)):
            print(*lines, sep="\n", end="\n" if lines else "", flush=True)
            if status != 0 or lines:
                failed += 1
                print(f"clang-tidy: {path}: exit status {status}", flush=True)
    print(f"clang-tidy: {len(paths)} files, {failed} with findings")
    return 1 if failed else 0


if __name__ == "__main__":
    try:
        sys.exit(main(*sys.argv[1:]))
    except FileNotFoundError as error:
        sys.exit(f"clang-tidy: there is no '{error.filename}'")
