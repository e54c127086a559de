#!/usr/bin/env python3
"""Normalisations drawn by a seed, beside PyTorch and a copy of the same bytes, on a GPU.

    python3 bench/torch_norms.py --seed 7 [--count 64] [--every 8] [--seconds 200] [--json FILE]

Half of the problems move from 8 MB to 512 MB; the others are drawn by rows and columns. Every
result is compared with fp64 before anything is timed. Each round takes a reading of ours, of
PyTorch and of the copy in random order. A reading is a CUDA graph whose calls go from operands to
operands, so that the second-level cache holds none of them. --every N: of each N-th problem all
kernels that serve it are verified and timed. The floor is an addition to one element.
"""
import argparse
import concurrent.futures
import json
import math
import random
import statistics
import sys
import time

import torch

import tessera
import tessera.torch
from tessera.torch import _run
from torch_peers import DTYPES, graph_of, norm_peer, tensors_of

KINDS = (("layernorm", "scale=1 shift=1"), ("rmsnorm", "scale=1"), ("softmax", ""),
         ("rmsnorm", "scale=1 residual=1"), ("layernorm", "scale=1 shift=1 residual=1"))
WIDTHS = (64, 128, 256, 432, 768, 1024, 2048, 4096, 5120, 7168, 8192, 16384)
BETWEEN = 256 << 20  # bytes between two calls on the same operands


def drawn(seed, count):
    """Problem lines; the same seed draws the same ones."""
    numbers, lines = random.Random(seed), []
    while len(lines) < count:
        kind, rest = KINDS[len(lines) % len(KINDS)]
        dtype = numbers.choice(("bf16", "bf16", "fp16", "fp32"))
        columns = round(math.exp(numbers.uniform(0, math.log(131072))))
        if len(lines) % 3 == 1:
            columns = numbers.choice(WIDTHS)
        elif columns > 64 and len(lines) % 3 == 2:
            columns = columns // 64 * 64
        size = columns * 2 * (4 if dtype == "fp32" else 2)
        if numbers.random() < 0.5:
            rows = round(math.exp(numbers.uniform(math.log(8e6), math.log(512e6))) / size)
        else:
            rows = round(math.exp(numbers.uniform(0, math.log(1e6))))
        if not 1 <= rows <= 1_000_000 or rows * size > 5e8:
            continue
        lines.append(f"norm kind={kind} rows={rows} columns={columns} dtype={dtype} {rest}".strip())
    return lines


def moved(problem):
    return sum(math.prod(o.shape) * DTYPES[o.dtype].itemsize for o in problem.operands)


def launcher(plan, made, device):
    names = [operand.name for operand in plan.operands]
    bound = _run.bind(plan, range(len(names)), [made[name] for name in names], device)
    addresses = [made[name].data_ptr() for name in names]
    return lambda: _run.launch(bound, addresses, made[names[0]])


def turns(functions):
    """A function that calls the given ones in turns."""
    state = [0]

    def call():
        functions[state[0] % len(functions)]()
        state[0] += 1
    return call


def wrong_by(problem, made, peer):
    """The greatest difference from fp64 in steps of the type, of all rows or of 4096 of them."""
    rows = made["out"].shape[0]
    pick = torch.arange(rows, device=made["out"].device)
    if rows * made["out"].shape[1] > 1 << 24:
        pick = torch.randint(rows, (max(1, min(4096, (1 << 24) // made["out"].shape[1])),),
                             device=pick.device)
    part = {name: tensor[pick] if tensor.dim() == 2 else tensor for name, tensor in made.items()}
    if "sum" in part:  # what was stored is what is normalised
        stored = part["in"].float() + part["residual"].float()
        worst = float((part["sum"].double() - stored.double()).abs().max())
        if worst > 2 * torch.finfo(part["sum"].dtype).eps * float(stored.abs().max()):
            return math.inf
        part = {**part, "in": part["sum"]}
        part.pop("residual")
    wide = {name: tensor.double() for name, tensor in part.items()}
    exact = peer(wide)
    unit = torch.finfo(part["out"].dtype).eps
    scale = exact.abs() * unit + exact.abs().amax(-1, keepdim=True) * (4e-6 + unit / 64) + 1e-30
    difference = (part["out"].double() - exact).abs() / scale
    return float(difference.nan_to_num(nan=math.inf).max())


def seconds_of(replay, calls, repeat):
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    for _ in range(repeat):
        replay()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) * 1e-3 / (calls * repeat)


class Case:
    """Operands of a problem, as many sets as the cache must not hold."""

    def __init__(self, line, device):
        self.problem = tessera.Problem(line)
        self.device, self.bytes = device, moved(self.problem)
        self.sets = max(1, min(24, math.ceil(BETWEEN / self.bytes)))
        self.made = [tensors_of(self.problem, device) for _ in range(self.sets)]
        self.peer = norm_peer(self.problem, self.made[0])
        self.calls = self.sets * max(1, math.ceil(20 / self.sets)) if self.bytes < 64 << 20 \
            else 2 * self.sets

    def graph(self, functions):
        return graph_of(turns(functions), self.calls)

    def ours(self, plan):
        for made in self.made:
            made["out"].fill_(math.nan)
        functions = [launcher(plan, made, self.device) for made in self.made]
        functions[0]()
        error = wrong_by(self.problem, self.made[0], self.peer)
        return (None if error > 4 else self.graph(functions)), error

    def theirs(self):
        return self.graph([lambda made=made: self.peer(made) for made in self.made])

    def copy(self):
        half = max(16, self.bytes // 32 * 16)
        pairs = [[torch.zeros(half, dtype=torch.uint8, device=self.device) for _ in range(2)]
                 for _ in range(self.sets)]
        return self.graph([lambda pair=pair: pair[0].copy_(pair[1]) for pair in pairs])


def timed(graphs, calls, rounds, numbers):
    """The median of each graph's readings, which take turns."""
    readings = {name: [] for name in graphs}
    repeat = {}
    for name, replay in graphs.items():
        replay()
        once = seconds_of(replay, calls, 1) * calls
        repeat[name] = max(1, min(50, round(8e-4 / once)))
    for _ in range(rounds):
        for name in numbers.sample(list(graphs), len(graphs)):
            readings[name].append(seconds_of(graphs[name], calls, repeat[name]))
    return {name: statistics.median(values) for name, values in readings.items()}


def floor_of(device):
    one = torch.zeros(1, device=device)
    return timed({"floor": graph_of(lambda: one.add_(1), 50)}, 50, 9, random.Random(1))["floor"]


def measure(line, plans, device, numbers):
    case = Case(line, device)
    plan = plans[line]
    ours, error = case.ours(plan)
    row = {"problem": line, "kernel": plan.kernel, "bytes": case.bytes, "error": error}
    if ours is None:
        return {**row, "wrong": True}, case
    row.update(timed({"ours": ours, "theirs": case.theirs(), "copy": case.copy()}, case.calls, 7,
                     numbers))
    return row, case


def measure_all(case, built, seconds, numbers):
    """{kernel: seconds}; one that is wrong or was not built in time has a text."""
    found, end = {}, time.monotonic() + seconds
    for kernel, plan in built.items():
        try:
            graph, error = case.ours(plan.result(max(0.0, end - time.monotonic())))
        except (tessera.Error, concurrent.futures.TimeoutError) as reason:
            found[kernel] = f"{type(reason).__name__} {reason}"
            continue
        found[kernel] = f"wrong by {error}" if graph is None else \
            timed({"ours": graph}, case.calls, 3, numbers)["ours"]
    return found


def kernels_for(line):
    """All kernels that serve the problem, the best by the estimate first."""
    considered = tessera.explain(line, target="sm90a", everything=True).decision["considered"]
    return [row["kernel"] for row in considered if not row["refusal"]]


def summary(rows, floor):
    right = [row for row in rows if not row.get("wrong")]
    speedups = [row["theirs"] / row["ours"] for row in right]
    large = [row["copy"] / row["ours"] for row in right if row["bytes"] >= 8e6]
    small = [row["ours"] / floor for row in right if row["bytes"] < 8e6]
    text = f"{len(right)} right, {len(rows) - len(right)} wrong; floor {floor * 1e6:.2f} us"
    if speedups:
        text += (f"; beside PyTorch: mean {statistics.geometric_mean(speedups):.3f}, least "
                 f"{min(speedups):.3f}, below 0.95: {sum(s < 0.95 for s in speedups)}")
    if large:
        text += (f"; from 8 MB on, shares of the copy: median {statistics.median(large):.3f}, "
                 f"least {min(large):.3f}, below 0.85: {sum(s < 0.85 for s in large)} of "
                 f"{len(large)}")
    if small:
        text += f"; below 8 MB, times the floor: median {statistics.median(small):.2f}"
    return text


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seed", type=int, default=int(time.strftime("%Y%m%d")))
    parser.add_argument("--count", type=int, default=64)
    parser.add_argument("--every", type=int, default=8, help="all kernels of each N-th; 0: of none")
    parser.add_argument("--most", type=int, default=32, help="kernels of such a problem")
    parser.add_argument("--seconds", type=float, default=200,
                        help="start no problem past this time")
    parser.add_argument("--jobs", type=int, default=16, help="kernels that are built at a time")
    parser.add_argument("--json", default="", help="write the rows into this file")
    parser.add_argument("--list", action="store_true", help="print the problems and stop")
    given = parser.parse_args()
    lines = drawn(given.seed, given.count)
    if given.list:
        print("\n".join(lines))
        return 0
    return run(given, lines, torch.device("cuda", 0))


def run(given, lines, device):
    start, numbers = time.monotonic(), random.Random(given.seed)
    torch.manual_seed(given.seed)

    def plan_for(line, force=None):
        return _run.plan_for(tessera.Problem(line), device, force=force)

    wanted = [(line, None) for line in lines]
    every = lines[::given.every] if given.every else []
    lists = {line: kernels_for(line)[:given.most] for line in every}
    wanted += [(line, kernel) for line in every for kernel in lists[line]]
    torch.zeros(1, device=device)
    pool = concurrent.futures.ThreadPoolExecutor(given.jobs)
    builds = {key: pool.submit(plan_for, *key) for key in wanted}
    plans = {line: builds[line, None].result() for line in lines}
    print(f"{len(lines)} plans after {time.monotonic() - start:.0f} s", flush=True)
    floor, rows = floor_of(device), []
    for line in lines:
        if time.monotonic() - start > given.seconds:
            print(f"no time is left for {len(lines) - len(rows)} of {len(lines)} problems")
            break
        with torch.no_grad():
            row, case = measure(line, plans, device, numbers)
            if line in lists:
                left = given.seconds - time.monotonic() + start
                built = {kernel: builds[line, kernel] for kernel in lists[line]}
                row["all"] = measure_all(case, built, left, numbers)
        rows.append(row)
        report(row, floor)
        del case
    print(summary(rows, floor))
    if given.json:
        with open(given.json, "w", encoding="utf-8") as file:
            json.dump({"pytorch": torch.__version__, "gpu": torch.cuda.get_device_name(0),
                       "seed": given.seed, "floor": floor, "rows": rows}, file, indent=1)
    pool.shutdown(wait=False, cancel_futures=True)
    return 1 if any(row.get("wrong") for row in rows) else 0


def report(row, floor):
    if row.get("wrong"):
        print(f"WRONG by {row['error']:.1e} steps: {row['problem']}  {row['kernel']}", flush=True)
        return
    print(f"{row['ours'] * 1e6:9.2f} us  peer {row['theirs'] / row['ours']:5.2f}  copy "
          f"{row['copy'] / row['ours']:5.2f}  {row['bytes'] / row['ours'] / 1e9:6.0f} GB/s  floor "
          f"x{row['ours'] / floor:6.1f}  {row['problem'][5:]}  {row['kernel']}", flush=True)
    seconds = {k: s for k, s in row.get("all", {}).items() if isinstance(s, float)}
    if seconds:
        best = min(seconds, key=seconds.get)
        print(f"  best of {len(seconds)}: {row['ours'] / seconds[best]:.2f} times as fast, {best}")
    for kernel, seconds in row.get("all", {}).items():
        if isinstance(seconds, str):
            print(f"  {kernel}: {seconds}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
