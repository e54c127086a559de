#!/usr/bin/env python3
"""fp8 products with scales of blocks beside DeepGEMM's: the time of the kernels alone.

    python3 bench/scaled_deep_gemm.py --seed 7 [--count 24] [--rounds 15] [--build I/N]

Problems and operands are those of bench/scaled_gpu.py. A launch of DeepGEMM does not outlive a
capture, so PyTorch's profiler reads the kernels, both in one process, in random order, each with a
cold L2. Scales of A lie as DeepGEMM wants them, along columns that begin at 16 bytes. Both results
are compared with fp64 first. --build compiles DeepGEMM's kernels of a part of the problems only.
"""
import argparse
import math
import random
import statistics

import deep_gemm
import torch

from scaled_gpu import Operands, drawn, error_of, ours


def by_columns(scale):
    """A copy along columns, each of which begins at a multiple of 16 bytes."""
    m, blocks = scale.shape
    room = torch.empty(blocks, -(-m // 4) * 4, device="cuda")
    view = room.T[:m]
    view.copy_(scale)
    return view


def theirs(x):
    out = torch.empty(x.m, x.n, dtype=torch.bfloat16, device="cuda")

    def call():
        deep_gemm.fp8_gemm_nt((x.a, x.scale_a), (x.b, x.scale_b), out)
        return out
    return call


def kernel_times(calls, rounds):
    """For each call the microseconds of its kernels, round by round."""
    cold = torch.empty(256 << 20, dtype=torch.int8, device="cuda")
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as seen:
        for _ in range(rounds):
            for name in random.sample(list(calls), len(calls)):
                cold.zero_()
                calls[name]()
        torch.cuda.synchronize()
    found = {name: [] for name in calls}
    for event in sorted(seen.events(), key=lambda event: event.time_range.start):
        whose = ("ours" if event.name.startswith("gemm_") else
                 "DeepGEMM" if "deep_gemm" in event.name or "fp8_gemm" in event.name else None)
        if whose is not None:
            found[whose].append(event.time_range.elapsed_us())
    return {name: [sum(times[i::rounds]) if len(times) == rounds else
                   sum(times[i * len(times) // rounds:(i + 1) * len(times) // rounds])
                   for i in range(rounds)] for name, times in found.items()}


def measured(problem, rounds):
    x = Operands(*problem)
    right = x.right("blocks")
    x.scale_a = by_columns(x.scale_a)
    mine, kernel = ours(x, "blocks", False)
    calls = {"ours": mine, "DeepGEMM": theirs(x)}
    for name, call in calls.items():
        error = error_of(call(), right, x)
        if not error < 1e-2:
            raise SystemExit(f"{problem}: {name} is wrong, its error is {error:.2e}")
    times = kernel_times(calls, rounds)
    ratio = statistics.median(b / a for a, b in zip(times["ours"], times["DeepGEMM"]))
    return kernel, statistics.median(times["ours"]), ratio


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--seed", required=True)
    parser.add_argument("--count", type=int, default=24)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--build", default="", help="I/N: only build, for every N-th problem")
    given = parser.parse_args()
    torch.manual_seed(1)
    random.seed(given.seed)
    problems = drawn(given.seed, given.count)
    if given.build:
        part, parts = map(int, given.build.split("/"))
        for problem in problems[part::parts]:
            x = Operands(*problem)
            x.scale_a = by_columns(x.scale_a)
            theirs(x)()
        torch.cuda.synchronize()
        return
    print("| m n k | kernel | ours | TFLOP/s | DeepGEMM |\n| --- | --- | --- | --- | --- |")
    ratios = []
    for m, n, k in sorted(problems):
        kernel, microseconds, ratio = measured((m, n, k), given.rounds)
        ratios.append(ratio)
        print(f"| {m} {n} {k} | {kernel} | {microseconds:.1f} us | "
              f"{2e-6 * m * n * k / microseconds:.0f} | {ratio:.2f}x |", flush=True)
    mean = math.exp(statistics.fmean(map(math.log, ratios)))
    print(f"DeepGEMM: {mean:.3f}x in {len(ratios)}, {min(ratios):.2f}x at least")


if __name__ == "__main__":
    main()
