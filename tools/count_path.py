#!/usr/bin/env python3
"""Counts the project's files and lines that run between a public call and its return.

    count_path.py BUILD [--lines]    builds BUILD's target path_call, with gcov's counters

A cold call is a dispatcher's first one: a model chooses the kernel, which is emitted, loaded and
run. A warm call is its second one. tests/path/call.cc makes both and sets the counters to zero just
before, so that static initialisation and the dispatcher's constructor do not count. Nothing is
optimised: a header counts as soon as one inline function of it ran. The kernel is compiled with
counters too, so that device headers count in the same way.

The compiler is excluded by a pack: it was compiled into one beforehand, and a dispatcher looks into
packs before it looks for a compiler. So these files of jit/ do not run and are not counted: what
finds a compiler (toolchain*, compilers, worker_program), what runs it (compile, load_check,
subprocess and spawn of base/), and what keeps its results (cache, entry, folder, lock).

The model is a shipped one whose manifest says that it was trained on this machine, because models
have no opinion on cores of other kinds.

Prints the lists of both calls, with --lines the numbers of the lines too, and exits with 1 when a
call runs more than LIMITS allows, or anything that is there for GPUs.
"""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
LIMITS = {
    "cold": {"files": 125, "lines": 4410},
    "warm": {"files": 23, "lines": 430},
}
MODEL = "gemm_avx512_fp32"
OF_GPUS = re.compile("cuda|hip|gpu|tmaws|wgmma|mfma")  # in names of files


def run(command, **environment):
    """What the command prints."""
    answer = subprocess.run(command, env=os.environ | environment, check=False,
                            capture_output=True, text=True)
    if answer.returncode != 0:
        sys.exit(f"path: {command[0]} failed\n{answer.stdout}{answer.stderr}")
    return answer.stdout


def build_program(build):
    """The program, and the gcov that reads its counters."""
    run(["cmake", "--build", build, "--target", "path_call", "--", "--quiet"])
    cache = (build / "CMakeCache.txt").read_text(encoding="utf-8")
    path = re.search(r"^CMAKE_CXX_COMPILER:\w+=(.+)$", cache, re.MULTILINE)[1]
    return build / "src/path_call", "gcov" + re.search(r"(-\d+)?$", path)[0]


def plant_model(program, models):
    """A shipped model as if it were trained on this machine."""
    row = run([program, "row", ""])
    target = json.loads(row)["name"]
    own = models / MODEL.replace("avx512", target)
    shutil.copytree(ROOT / "models" / MODEL, own)
    manifest = json.loads((own / "manifest.json").read_text(encoding="ascii"))
    manifest |= {"target": target, "machine": row}
    (own / "manifest.json").write_text(json.dumps(manifest), encoding="ascii")


def counting_compiler(folder, counters):
    """A compiler of kernels with counters. gcov's notes go to where the counters will lie."""
    script = folder / "counting-c++"
    real = shutil.which("g++")
    script.write_text(f"""#!/bin/sh
case " $* " in *" -o "*) ;; *) exec {real} "$@" ;; esac
{real} "$@" --coverage -lgcov -lc || exit $?
mkdir -p "{counters}$PWD" && cp -- *.gcno "{counters}$PWD/"
""", encoding="ascii")
    script.chmod(0o755)
    return str(script)


def lines_run(gcov, counters):
    """The files of ours, as paths in src/tessera/, and the numbers of the lines that ran."""
    found = {}
    for data in counters.rglob("*.gcda"):
        notes = data.with_suffix(".gcno")
        if not notes.exists():
            notes.symlink_to("/" / notes.relative_to(counters))
        text = run([gcov, "--json-format", "--stdout", "--object-directory", data.parent, data])
        for file in (file for report in text.splitlines() for file in json.loads(report)["files"]):
            name = re.search(r"(?:^|\bsrc/)tessera/(.+)", file["file"])
            lines = {line["line_number"] for line in file["lines"] if line["count"] > 0}
            if name and lines:
                found.setdefault(name[1], set()).update(lines)
    return dict(sorted(found.items()))


def main():
    build = pathlib.Path(sys.argv[1]).resolve()
    program, gcov = build_program(build)
    status = 0
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name).resolve()
        counters, pack = folder / "counters", folder / "kernel.pack"
        plant_model(program, folder / "models")
        environment = {
            "GCOV_PREFIX": str(counters), "TESSERA_MODELS": str(folder / "models"),
            "TESSERA_CACHE_DIR": str(folder / "cache"),
            "TESSERA_CXX": counting_compiler(folder, counters)}
        run([program, "pack", pack], **environment)
        for kind, limits in LIMITS.items():
            for data in counters.rglob("*.gcda"):
                data.unlink()
            said = run([program, kind, pack], **environment)
            if ", learned, result right:" not in said:
                sys.exit(f"path: a {kind} call was to run a model's choice, but: {said}")
            files = lines_run(gcov, counters)
            for file, lines in files.items():
                numbers = f": {', '.join(map(str, sorted(lines)))}" if "--lines" in sys.argv else ""
                print(f"  {file}: {len(lines)} lines{numbers}")
            counts = {"files": len(files), "lines": sum(map(len, files.values()))}
            templates = [len(lines) for file, lines in files.items() if file.startswith("device/")]
            print(f"path: a {kind} call runs {counts['lines']} lines of {counts['files']} files, "
                  f"the limits are {limits['lines']} and {limits['files']}; {sum(templates)} lines "
                  f"of {len(templates)} files are templates of kernels")
            status |= any(counts[name] > limit for name, limit in limits.items())
            for file in filter(OF_GPUS.search, files):
                print(f"path: a {kind} call on a CPU must not run {file}")
                status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
