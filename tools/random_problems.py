#!/usr/bin/env python3
"""Emulates random problems of every operation on AMD's GPUs for a number of minutes.

    random_problems.py BUILD [--minutes N] [--times N] [--targets gfx90a,gfx942,gfx950]
                       [--operations gemm,norm,conv,fmha,route] [--jobs N]

Each round runs the tests of BUILD that draw problems, in an order and with seeds that are new each
time, for every target. At the end it prints what was computed as a table of Markdown, and every
test that failed with its seed. The output of a failed test stays in BUILD/random_problems.
"""
import argparse
import collections
import concurrent.futures
import os
import pathlib
import random
import subprocess
import sys
import time

# The tests that draw problems, by program. What a test counts or refuses needs no second run.
TESTS = {
    "gemm": ["PipelinesOfGemm.TakeBatches", "PipelinesOfGemm.ShareStepsOfK",
             "EmulatedGemm.EveryEssentialKernelIsLeanAndCorrect",
             "EmulatedGemm.OtherKernelsOfFewRowsAreLeanAndCorrect"],
    "norm": ["EmulatedNorm.KernelsAreLeanAndCorrect", "EmulatedNorm.RowsWhoseSquaresFp32Lacks"],
    "route": ["EmulatedRoute.KernelsAreLeanAndCorrect", "EmulatedRoute.SpecialValues"],
    "conv": ["DepthwiseHip.EssentialKernelsAreLeanAndCorrect",
             "DepthwiseHip.OtherLegalKernelsAreLeanAndCorrect",
             "EmulatedConv.DirectIsLeanAndCorrect",
             "MfmaConv.EveryEssentialKernelByMfmaIsLeanAndCorrect",
             "MfmaConv.OtherLegalKernelsAreLeanAndCorrect", "PointwiseConv.*",
             "RepackConv.EssentialKernelsAreLeanAndCorrect",
             "RepackConv.OtherKernelsAreLeanAndCorrect"],
    "fmha": ["AppendFmha.*", "BackwardFmha.*", "DirectFmha.*",
             "MfmaBackward.EveryKernelIsLeanAndCorrect", "MfmaPages.ReadsPagesOfAnySize",
             "MfmaPages.AppendsAndAttends", "MfmaPages.AnyNumbersLeadIntoTheCache",
             "MfmaSplit.EveryKernelIsLeanAndCorrect", "MfmaFmha.EveryKernelIsLeanAndCorrect"],
}
# Those that compile a kernel for each problem: more problems of a kernel cost less.
OF_THEIR_OWN_KERNELS = ("AppendFmha.*", "BackwardFmha.*", "DirectFmha.*")
MOST_SECONDS = 1800  # of one test


class Runner:
    def __init__(self, build, times):
        self.build, self.times = build, times
        self.folder = build / "random_problems"
        self.folder.mkdir(exist_ok=True)
        self.tally = self.folder / f"tally_{os.getpid()}.txt"
        self.failures, self.runs = [], 0

    def run(self, program, test, target, end):
        """Runs one test in a process of its own; one that the end of time stops is no failure."""
        left = end - time.monotonic()
        if left <= 0:
            return
        self.runs += 1
        log = self.folder / f"{os.getpid()}_{self.runs}_{program}_{target}.log"
        times = min(self.times, 2) if test in OF_THEIR_OWN_KERNELS else self.times
        environment = {**os.environ, "TESSERA_TEST_TALLY": str(self.tally),
                       "TESSERA_TEST_TIMES": str(times)}
        command = [str(self.build / "tests" / f"hip_{program}_test"),
                   f"--gtest_filter=Targets/{test}/{target}"]
        with open(log, "w", encoding="utf-8") as out:
            try:
                status = subprocess.run(command, stdout=out, stderr=out, env=environment,
                                        check=False, timeout=min(left, MOST_SECONDS)).returncode
            except subprocess.TimeoutExpired:
                status = 0 if left < MOST_SECONDS else -1
        if status == 0:
            log.unlink()
        else:
            self.failures.append(f"{test} of {target} ended with {status}: {log}")
            print(self.failures[-1], flush=True)

    def lines(self):
        if not self.tally.exists():
            return []
        return self.tally.read_text(encoding="utf-8").splitlines()


def counts_of(lines, targets):
    """Problems by operation, direction and type, then by target."""
    counts = collections.defaultdict(collections.Counter)
    for line in lines:
        if line.startswith("failed "):
            continue
        operation, direction, dtype, target, count = line.split()
        counts[operation, direction, dtype][target] += int(count)
    order = {name: at for at, name in enumerate(targets)}
    return {key: [row[target] for target in order] for key, row in sorted(counts.items())}


def table_of(counts, targets):
    rows = [f"| operation | direction or kind | type | {' | '.join(targets)} |",
            "| --- | --- | --- |" + " --- |" * len(targets)]
    for (operation, direction, dtype), row in counts.items():
        words = [operation, "" if direction == "-" else direction, dtype, *map(str, row)]
        rows.append("| " + " | ".join(words) + " |")
    sums = [str(sum(column)) for column in zip(*counts.values())] or ["0"] * len(targets)
    rows.append("| all | | | " + " | ".join(sums) + " |")
    return "\n".join(rows)


def jobs_of_round(operations, targets):
    jobs = [(program, test, target) for program in operations for test in TESTS[program]
            for target in targets]
    random.shuffle(jobs)
    return jobs


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--times", type=int, default=8, help="runs of each kernel in a test")
    parser.add_argument("--targets", default="gfx90a,gfx942,gfx950")
    parser.add_argument("--operations", default=",".join(TESTS))
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args()
    targets = options.targets.split(",")
    runner = Runner(options.build.resolve(), options.times)
    end = time.monotonic() + 60 * options.minutes
    while time.monotonic() < end:
        with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
            for job in jobs_of_round(options.operations.split(","), targets):
                pool.submit(runner.run, *job, end)
    lines = runner.lines()
    print(table_of(counts_of(lines, targets), targets))
    failed = sorted(line for line in lines if line.startswith("failed "))
    print(f"{runner.runs} runs of tests; {len(failed)} with failures")
    print("\n".join(failed))
    return 1 if failed or runner.failures else 0


if __name__ == "__main__":
    sys.exit(main())
