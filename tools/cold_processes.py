#!/usr/bin/env python3
"""Starts many processes at once on one empty cache, and counts what they compile.

    cold_processes.py TESSERA [--processes 64] [--kernels 8] [--kill 0] [--without-locks]

TESSERA is the command line. Each process runs one of the kernels on a problem and compares the
result with the reference. TESSERA_CXX is a script that notes what each compiler run compiles. With
--kill, so many processes, drawn at random, are killed at random moments. With --without-locks the
processes see a disk whose locks fail, as some file servers' do (flock gives ENOLCK).

Fails where a process that was not killed fails, and where something was compiled more often than it
may be: once, and once more for each process that was killed; without locks, once by each process.
Prints one line of figures.
"""
import argparse
import collections
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

PROBLEM = "gemm m=65 n=49 k=37 dtype=fp32 layout=rcr".split()
TARGET = ["--target", "generic", "--threads", "1"]
NO_LOCKS = """
#include <errno.h>
int flock(int file, int operation) { (void)file; (void)operation; errno = ENOLCK; return -1; }
"""


def compiler_that_notes(folder):
    """A script that notes the hash of what a compiler run compiles. Questions are no runs."""
    real = shutil.which("g++") or shutil.which("c++") or shutil.which("clang++")
    script = folder / "noting-c++"
    script.write_text(f"""#!/bin/sh
case "$1" in
  --version|-print-prog-name=*|-v|'') exec {real} "$@" ;;
esac
cat kernel.cc object.cc objects.h 2>/dev/null | sha1sum >> {folder}/compiled
exec {real} "$@"
""", encoding="ascii")
    script.chmod(0o755)
    return str(script)


def library_without_locks(folder):
    (folder / "locks.c").write_text(NO_LOCKS, encoding="ascii")
    library = folder / "no_locks.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, folder / "locks.c"], check=True)
    return str(library)


def kernels_of(program, count, environment):
    said = subprocess.run([program, "explain", *PROBLEM, *TARGET, "--json"], env=environment,
                          check=True, capture_output=True, text=True).stdout
    considered = json.loads(said)["decisions"][0]["considered"]
    return [row["kernel"] for row in considered if not row.get("refusal")][:count]


def start(program, kernel, environment, folder, number):
    out = open(folder / f"{number}.out", "wb")
    return subprocess.Popen([program, "run", *PROBLEM, *TARGET, "--force", kernel, "--verify",
                             "--repeat", "1", "--json"],
                            env=environment, stdout=out, stderr=subprocess.STDOUT,
                            start_new_session=True)


def start_all(program, kernels, environment, folder, wanted):
    """The processes, and the numbers of those that are killed with what they started, at random
    moments."""
    randomly = random.Random(wanted.seed)
    victims = set(randomly.sample(range(wanted.processes), wanted.kill))
    processes, killed, timers = [], set(), []

    def kill(number):
        if processes[number].poll() is None:
            killed.add(number)
            os.killpg(processes[number].pid, signal.SIGKILL)

    for number in range(wanted.processes):
        kernel = kernels[number % len(kernels)]
        processes.append(start(program, kernel, environment, folder, number))
        if number in victims:
            timers.append(threading.Timer(randomly.uniform(0, 1), kill, [number]))
            timers[-1].start()
    for timer in timers:
        timer.join()
    return processes, killed


def failures(processes, killed, folder):
    for number, process in enumerate(processes):
        status = process.wait(timeout=600)
        said = (folder / f"{number}.out").read_text(encoding="utf-8", errors="replace")
        if number not in killed and (status != 0 or '"ok":true' not in said):
            yield f"process {number} ended with {status}: {said[:600]}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("program")
    parser.add_argument("--processes", type=int, default=64)
    parser.add_argument("--kernels", type=int, default=8)
    parser.add_argument("--kill", type=int, default=0)
    parser.add_argument("--without-locks", action="store_true")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**31))
    wanted = parser.parse_args()
    program = str(pathlib.Path(wanted.program).resolve())
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name).resolve()
        environment = {key: value for key, value in os.environ.items()
                       if not key.startswith("TESSERA_")}
        environment |= {"TESSERA_CACHE_DIR": str(folder / "cache"),
                        "TESSERA_CXX": compiler_that_notes(folder)}
        kernels = kernels_of(program, wanted.kernels, environment)
        shutil.rmtree(folder / "cache", ignore_errors=True)
        if wanted.without_locks:
            environment["LD_PRELOAD"] = library_without_locks(folder)
        began = time.monotonic()
        processes, killed = start_all(program, kernels, environment, folder, wanted)
        wrong = list(failures(processes, killed, folder))
        seconds = time.monotonic() - began
        counts = collections.Counter((folder / "compiled").read_text(encoding="ascii").split("\n"))
        counts.pop("", None)
        most = max(counts.values())
        entries = [entry for entry in (folder / "cache").iterdir()
                   if (entry / "meta.json").is_file()]
        if len(entries) != len(counts):
            wrong.append(f"{len(counts)} things were compiled, the cache holds {len(entries)}")
        may = wanted.processes if wanted.without_locks else 1 + len(killed)
        if most > may:
            wrong.append(f"one thing was compiled {most} times, at most {may} are right")
        print(f"cold processes (seed {wanted.seed}): {wanted.processes} processes, {len(killed)} "
              f"killed, {len(kernels)} kernels of {len(counts)} parts, {sum(counts.values())} "
              f"compilations, one part at most {most} times, {seconds:.1f} s"
              f"{', without locks' if wanted.without_locks else ''}")
        for sentence in wrong:
            print(sentence, file=sys.stderr)
        return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
