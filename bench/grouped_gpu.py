#!/usr/bin/env python3
"""GEMM on groups of unequal sizes, beside PyTorch and a dense product of as many rows, on a GPU.

    python3 bench/grouped_gpu.py [--seed 7] [--most 24] [--seconds 200] [--json FILE]
    python3 bench/grouped_gpu.py --net qwen3_30b_a3b --tokens 4096 128 --routing zipf

For each case the kernels with the least estimated times are built, compared with PyTorch's product
of each group, and timed; the peer is torch._grouped_mm where it takes the case. `dense` is our own
kernel for one product with as many operations. Each round takes a reading of everything in random
order. A reading is a CUDA graph whose calls go from operands to operands, so that the second-level
cache holds none of them. The floor of bytes counts the operands of groups that are not empty once.
With --net the cases are the layers of experts of these nets, with rows from expert_rows.py.
"""
import argparse
import concurrent.futures
import json
import math
import random
import re
import sys
import time

import torch

import expert_rows
import tessera
import tessera.torch
from tessera.torch import _run
from torch_norms import kernels_for, launcher, timed, turns
from torch_peers import graph_of

BETWEEN = 256 << 20  # bytes between two calls on the same operands
PEAK_BYTES = 4.8e12  # of an H200, a second
DTYPES = {"bf16": torch.bfloat16, "fp8": torch.float8_e4m3fn}

# The line, and how rows (or k) go by groups: equal, skewed, or so many rows in each at most.
CASES = (
    ("gemm m=65536 n=1536 k=2048 dtype=bf16 groups=128 grouping=contiguous", "skewed"),
    ("gemm m=65536 n=1536 k=2048 dtype=bf16 groups=128 grouping=contiguous", "equal"),
    ("gemm m=65536 n=2048 k=768 dtype=bf16 groups=128 grouping=contiguous", "skewed"),
    ("gemm m=65536 n=1536 k=2048 dtype=bf16 groups=128 grouping=indexed", "skewed"),
    ("gemm m=8192 n=4096 k=7168 dtype=bf16 groups=8 grouping=contiguous", "skewed"),
    ("gemm m=65536 n=1536 k=2048 dtype=fp8 out=bf16 groups=128 grouping=contiguous", "skewed"),
    ("gemm m=64 n=1536 k=2048 dtype=bf16 groups=128 grouping=masked", "most 64"),
    ("gemm m=64 n=1536 k=2048 dtype=bf16 groups=128 grouping=masked", "most 8"),
    ("gemm m=64 n=4096 k=7168 dtype=fp8 out=bf16 groups=32 grouping=masked", "most 64"),
    ("gemm m=2048 n=1536 k=65536 dtype=bf16 layout=crr groups=128 grouping=along_k", "skewed"),
)


def cases_of(given):
    layers = expert_rows.layers()
    return [(line, f"{name} {tokens} {routing}") for name in given.nets for tokens in given.tokens
            for line in expert_rows.lines_of(layers[name], tokens) for routing in given.routing]


def sizes_of(how, groups, room, numbers):
    name, *drawn = how.split()
    if name in expert_rows.layers():
        rows = expert_rows.rows_of_experts(expert_rows.layers()[name], int(drawn[0]), drawn[1],
                                           numbers.randrange(2**31))
        return rows.tolist()
    if how.startswith("most"):
        return [numbers.randint(1, int(how.split()[1])) for _ in range(groups)]
    if how == "equal":
        return [room // groups] * groups
    weights = [math.exp(numbers.gauss(0, 1)) for _ in range(groups)]
    sizes = [int(room * weight / sum(weights)) for weight in weights]
    sizes[-1] += room - sum(sizes)
    return sizes


def filled(operand, device):
    span = sum((n - 1) * s for n, s in zip(operand.shape, operand.strides)) + 1
    memory = torch.randn(max(span, 1), device=device) * 0.1
    return memory.to(DTYPES[operand.dtype]).as_strided(operand.shape, operand.strides)


def varied(kernels, most):
    """The first kernels, of those that differ in their stages only the first one, and always the
    first one for few rows and the first general one."""
    found = {}
    for kernel in kernels:
        found.setdefault(re.sub(r"_s\d+", "", kernel), kernel)
    picked = list(found.values())[:most]
    for part in ("tmaws_64x16x", "tmaws_64x32x", "_cpasync_"):
        picked += [kernel for kernel in kernels if part in kernel and kernel not in picked][:1]
    return picked


class Case:
    """Operands of a case, as many sets as the cache must not hold."""

    def __init__(self, line, how, numbers, device):
        self.problem, self.device = tessera.Problem(line), device
        self.grouping = self.problem.get("grouping")
        self.groups = int(self.problem.get("groups"))
        self.swaps = [letter == "c" for letter in self.problem.get("layout")[:2]]
        m, n, k = (int(self.problem.get(x)) for x in "mnk")
        room = k if self.grouping == "along_k" else m
        self.sizes = sizes_of(how, self.groups, room, numbers)
        total, used = sum(self.sizes), sum(size > 0 for size in self.sizes)
        self.ends = [sum(self.sizes[:i + 1]) for i in range(self.groups)]
        rows, depth = (m, total) if self.grouping == "along_k" else (total, k)
        self.flops = 2 * rows * n * depth
        size = {o.name: DTYPES[o.dtype].itemsize for o in self.problem.operands
                if o.dtype in DTYPES}
        per_group = used if self.grouping != "along_k" else 0
        self.bytes = rows * depth * size["a"] + (per_group * n * k or n * depth) * size["b"] + \
            (self.groups if self.grouping == "along_k" else 1) * rows * n * size["out"]
        self.dense = (f"gemm m={rows} n={n} k={depth} dtype={self.problem.get('a')} "
                      f"out={self.problem.get('out')} layout={self.problem.get('layout')}")
        self.sets = max(1, min(8, math.ceil(BETWEEN / self.bytes)))
        self.made = [self.operands() for _ in range(self.sets)]
        self.calls = self.sets * max(1, 4 // self.sets)

    def operands(self):
        made = {}
        for operand in self.problem.operands:
            if operand.name.startswith("group_"):
                made[operand.name] = self.numbers(operand.name)
            else:
                made[operand.name] = filled(operand, self.device)
        return made

    def numbers(self, name):
        values = self.ends if name == "group_ends" else self.sizes
        if name == "group_index":
            values = [i for i, size in enumerate(self.sizes) for _ in range(size)]
            values += [-1] * (int(self.problem.get("m")) - len(values))
        return torch.tensor(values, dtype=torch.int32, device=self.device)

    def two_sides(self, made):
        """A and B as matrices of m x k and k x n, or of groups of them."""
        return [made[x].mT if swap else made[x] for x, swap in zip("ab", self.swaps)]

    def parts(self, made):
        """(a, b, out) of each group that is not empty, as views."""
        (a, b), out = self.two_sides(made), made["out"]
        for i, size in enumerate(self.sizes):
            begin, end = self.ends[i] - size, self.ends[i]
            if size == 0:
                continue
            if self.grouping == "along_k":
                yield a[:, begin:end], b[begin:end], out[i]
            else:
                rows = (i, slice(0, size)) if self.grouping == "masked" else slice(begin, end)
                yield a[rows], b[i], out[rows]

    def wrong(self, made):
        """The greatest difference from PyTorch's products in fp32, over the greatest element."""
        worst = 0.0
        for a, b, out in list(self.parts(made))[::max(1, self.groups // 16)]:
            exact = a.float() @ b.float()
            difference = (out.float() - exact).abs().max() / exact.abs().max()
            worst = max(worst, float(difference.nan_to_num(nan=math.inf)))
        return worst

    def graph(self, functions):
        return graph_of(turns(functions), self.calls)

    def ours(self, plan):
        for made in self.made:
            made["out"].fill_(math.nan)
        functions = [launcher(plan, made, self.device) for made in self.made]
        functions[0]()
        error = self.wrong(self.made[0])
        return (self.graph(functions) if error < 0.02 else None), error

    def peer(self):
        """torch._grouped_mm, or None with a reason."""
        takes = self.problem.get("a") == "bf16" and self.grouping in ("contiguous", "along_k")
        if not takes or not hasattr(torch, "_grouped_mm"):
            return None

        def call(made):
            a, b = self.two_sides(made)
            return lambda: torch._grouped_mm(a, b, offs=made["group_ends"],
                                             out_dtype=torch.bfloat16)
        try:
            functions = [call(made) for made in self.made]
            functions[0]()
            return self.graph(functions)
        except RuntimeError as reason:
            print(f"  torch._grouped_mm: {str(reason).splitlines()[0]}")
            return None

    def dense_graph(self, plan):
        problem = tessera.Problem(self.dense)
        made = {operand.name: filled(operand, self.device) for operand in problem.operands}
        return self.graph([launcher(plan, made, self.device)])


def report(case, how, found, names):
    print(f"{case.problem}  {how}: {case.flops / 1e9:.0f} GFLOP, {case.bytes / 1e6:.0f} MB",
          flush=True)
    floor = case.bytes / PEAK_BYTES
    for name in sorted(found, key=found.get):
        seconds = found[name]
        print(f"{seconds * 1e6:10.2f} us  {case.flops / seconds / 1e12:6.1f} TFLOP/s  "
              f"{floor / seconds * 100:5.1f}% of the bytes' floor  {names.get(name, '')}{name}",
              flush=True)


def measure(line, how, given, pool, device, numbers):
    case = Case(line, how, numbers, device)
    wanted = [kernel for kernel in kernels_for(line) if given.kernel in kernel]
    kernels = varied(wanted, given.most)

    def plan_for(text, force=None):
        return _run.plan_for(tessera.Problem(text), device, force=force)
    builds = {kernel: pool.submit(plan_for, line, kernel) for kernel in kernels}
    dense = pool.submit(plan_for, case.dense)
    graphs, wrong = {}, {}
    for kernel, build in builds.items():
        try:
            graph, error = case.ours(build.result())
        except tessera.Error as reason:
            wrong[kernel] = str(reason)
            continue
        if graph is None:
            wrong[kernel] = f"wrong by {error:.2g}"
        else:
            graphs[kernel] = graph
    peer = case.peer()
    if peer is not None:
        graphs["torch._grouped_mm"] = peer
    graphs["dense"] = case.dense_graph(dense.result())
    found = timed(graphs, case.calls, given.rounds, numbers)
    report(case, how, found, {kernels[0]: "(chosen) "} if kernels else {})
    for kernel, reason in wrong.items():
        print(f"  WRONG {kernel}: {reason}", flush=True)
    return {"problem": line, "sizes": how, "flops": case.flops, "bytes": case.bytes,
            "seconds": found, "wrong": wrong}


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seed", type=int, default=int(time.strftime("%Y%m%d")))
    parser.add_argument("--net", dest="nets", nargs="*", choices=list(expert_rows.layers()))
    parser.add_argument("--tokens", nargs="*", type=int, default=[4096, 128])
    parser.add_argument("--routing", nargs="*", choices=expert_rows.ROUTINGS,
                        default=expert_rows.ROUTINGS)
    parser.add_argument("--most", type=int, default=24, help="kernels of a case")
    parser.add_argument("--kernel", default="", help="only kernels whose name has this")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=200, help="start no case past this time")
    parser.add_argument("--jobs", type=int, default=16, help="kernels that are built at a time")
    parser.add_argument("--json", default="", help="write the rows into this file")
    given = parser.parse_args()
    start, numbers = time.monotonic(), random.Random(given.seed)
    torch.manual_seed(given.seed)
    device, rows = torch.device("cuda", 0), []
    pool = concurrent.futures.ThreadPoolExecutor(given.jobs)
    with torch.no_grad():
        cases = CASES if given.nets is None else cases_of(given)
        for line, how in cases:
            if time.monotonic() - start > given.seconds:
                print(f"no time is left for {len(cases) - len(rows)} of {len(cases)} cases")
                break
            rows.append(measure(line, how, given, pool, device, numbers))
    if given.json:
        with open(given.json, "w", encoding="utf-8") as file:
            json.dump({"pytorch": torch.__version__, "gpu": torch.cuda.get_device_name(0),
                       "seed": given.seed, "rows": rows}, file, indent=1)
    pool.shutdown(wait=False, cancel_futures=True)
    return 1 if any(row["wrong"] for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
