#!/usr/bin/env python3
"""fp8 products with scales of blocks, drawn by a seed: bench/scaled_gpu.py --seed 7 [--count 36]

The layers are those of DeepSeek-V3 (N x K), with 1 to 8192 rows; A has a scale for each 1 x 128, B
one for each 128 x 128, the output is bf16. The peers are torch._scaled_mm by rows, by tensors and,
where it has them, by blocks; our own fp8 without scales of blocks; and DeepGEMM where it can be
imported. Every result is compared with fp64 on some rows before the clock runs. Each call is
captured in a graph; in each round all run once, in random order, with a cold L2. A ratio is the
median of a peer's time by ours in the same round: above 1, ours is faster.
"""
import argparse
import math
import random
import statistics

import torch

import tessera

LAYERS = [(2112, 7168), (24576, 1536), (32768, 512), (7168, 16384), (4096, 7168), (7168, 2048)]
F8 = torch.float8_e4m3fn
CHECKED = 24  # rows of each result


def drawn(seed, count):
    """(m, n, k): each layer in turn, with rows evenly spread over powers of two."""
    generator = random.Random(f"{seed} scaled")
    found = []
    for i in range(count):
        n, k = LAYERS[i % len(LAYERS)]
        rows = 2 ** generator.uniform(0, 13)
        found.append((max(1, round(rows)) if rows < 64 else 4 * round(rows / 4), n, k))
    return found


def by_rows(x):
    """x in 8 bits with a scale for each 1 x 128."""
    parts = x.view(x.shape[0], -1, 128)
    scale = parts.abs().amax(-1) / 448
    return (parts / scale[..., None]).to(F8).view_as(x), scale


def by_blocks(x):
    """x in 8 bits with a scale for each 128 x 128."""
    rows, k = x.shape
    padded = torch.zeros(-(-rows // 128) * 128, k, device=x.device)
    padded[:rows] = x
    parts = padded.view(-1, 128, k // 128, 128)
    scale = parts.abs().amax((1, 3)) / 448
    scale[scale == 0] = 1
    wide = (parts / scale[:, None, :, None]).to(F8).reshape(-1, k)
    return wide[:rows].contiguous(), scale


class Operands:
    def __init__(self, m, n, k):
        self.m, self.n, self.k = m, n, k
        # Blocks of unlike sizes, so that a wrong scale shows.
        spread = torch.exp2(4 * torch.rand(m, k // 128, device="cuda")).repeat_interleave(128, 1)
        self.a, self.scale_a = by_rows(torch.randn(m, k, device="cuda") * spread)
        self.b, self.scale_b = by_blocks(torch.randn(n, k, device="cuda") / math.sqrt(k))
        self.rows = torch.randperm(m, device="cuda")[:CHECKED]

    def right(self, kind):
        a, b = self.a[self.rows].double(), self.b.double()
        if kind == "blocks":
            a = a * self.scale_a[self.rows].double().repeat_interleave(128, 1)
            wide = self.scale_b.double().repeat_interleave(128, 0)[:self.n]
            b = b * wide.repeat_interleave(128, 1)
        return a @ b.T


def ours(x, kind, by_column):
    line = f"gemm m={x.m} n={x.n} k={x.k} a=fp8 out=bf16 layout=rcr"
    operands = {"a": x.a, "b": x.b}
    if kind == "blocks":
        line += " scale_a=1x128 scale_b=128x128"
        # As the kernel that quantises A left them: along rows of A, or along its columns.
        scale_a = x.scale_a.T.contiguous().T if by_column else x.scale_a
        line += f" stride_scale_a_m={scale_a.stride(0)} stride_scale_a_k={scale_a.stride(1)}"
        operands |= {"scale_a": scale_a, "scale_b": x.scale_b}
    plan = tessera.Dispatcher("sm90a").plan(line)
    out = torch.full((x.m, x.n), float("nan"), dtype=torch.bfloat16, device="cuda")
    room = torch.zeros(max(plan.workspace_bytes, 1), dtype=torch.int8, device="cuda")

    def call():
        plan.launch(**operands, out=out, workspace=room if plan.workspace_bytes else None,
                    stream=torch.cuda.current_stream().cuda_stream)
        return out
    return call, plan.kernel


def by_torch(x, scale_a, scale_b):
    return lambda: torch._scaled_mm(x.a, x.b.T, scale_a=scale_a, scale_b=scale_b,
                                    out_dtype=torch.bfloat16)


def by_deep_gemm(x):
    import deep_gemm
    out = torch.empty(x.m, x.n, dtype=torch.bfloat16, device="cuda")
    # Columns of A's scales begin at multiples of 16 bytes.
    scale_a = torch.empty(x.k // 128, -(-x.m // 4) * 4, device="cuda").T[:x.m]
    scale_a.copy_(x.scale_a)
    run = getattr(deep_gemm, "fp8_gemm_nt", None) or deep_gemm.gemm_fp8_fp8_bf16_nt

    def call():
        run((x.a, scale_a), (x.b, x.scale_b), out)
        return out
    return call


def peers_of(x):
    """name: (what its result is compared with, a function that makes the call)."""
    def ones(*shape):
        return torch.ones(*shape, device="cuda")
    return {"torch rows": ("plain", lambda: by_torch(x, ones(x.m, 1), ones(1, x.n))),
            "torch tensor": ("plain", lambda: by_torch(x, ones(()), ones(()))),
            "torch blocks": ("blocks", lambda: by_torch(x, x.scale_a.T.contiguous().T,
                                                        x.scale_b.T)),
            "our tensor": ("plain", lambda: ours(x, "plain", False)[0]),
            "DeepGEMM": ("blocks", lambda: by_deep_gemm(x))}


def error_of(result, right, x):
    got = result[x.rows].double()
    return float((got - right).norm() / right.norm())


def captured(call):
    """A replay of the call, which keeps the call's plan: its kernel must outlive the graph."""
    call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return lambda: (graph.replay(), call)[0]


def timed(calls, rounds):
    """For each call its times of all rounds in seconds."""
    cold = torch.empty(256 << 20, dtype=torch.int8, device="cuda")
    times = {name: [] for name in calls}
    for _ in range(rounds):
        for name in random.sample(list(calls), len(calls)):
            began, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            cold.zero_()
            began.record()
            calls[name]()
            ended.record()
            ended.synchronize()
            times[name].append(began.elapsed_time(ended) / 1e3)
    return times


def measured(problem, given, missing):
    x = Operands(*problem)
    right = {kind: x.right(kind) for kind in ("blocks", "plain")}
    mine, kernel = ours(x, "blocks", given.by_column)
    error = error_of(mine(), right["blocks"], x)
    if not error < 1e-2:
        raise SystemExit(f"{problem}: {kernel} is wrong, its error is {error:.2e}")
    calls = {"ours": captured(mine)}
    for name, (kind, make) in peers_of(x).items():
        try:
            call = make()
            found = error_of(call(), right[kind], x)
            torch.cuda.synchronize()
        except Exception as why:  # a peer that is not here, or has no such product
            missing.setdefault(name, str(why).splitlines()[0][:100])
            continue
        if not found < 3e-2:
            missing.setdefault(name, f"its error is {found:.2e} on {problem}")
            continue
        calls[name] = captured(call)
    times = timed(calls, given.rounds)
    ratios = {name: statistics.median(t / own for t, own in zip(found, times["ours"]))
              for name, found in times.items() if name != "ours"}
    return kernel, statistics.median(times["ours"]), error, ratios


def floor_of(m, n, k):
    """Seconds: bytes at 4.3 TB/s or products at 1.4 PFLOP/s, whichever takes longer."""
    scales = 4 * (m * -(-k // 128) + -(-n // 128) * -(-k // 128))
    return max((m * k + n * k + 2 * m * n + scales) / 4.3e12, 2 * m * n * k / 1.4e15)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--seed", required=True)
    parser.add_argument("--count", type=int, default=36)
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--by-column", action="store_true",
                        help="scales of A lie along its columns, as DeepGEMM wants them")
    given = parser.parse_args()
    torch.manual_seed(1)
    random.seed(given.seed)
    names = ["torch rows", "torch tensor", "torch blocks", "our tensor", "DeepGEMM"]
    print(f"PyTorch {torch.__version__}, seed {given.seed}\n")
    print(f"| m n k | kernel | ours | TFLOP/s | floor | error | {' | '.join(names)} |")
    print("| --- " * (6 + len(names)) + "|")
    all_ratios, missing = {name: [] for name in names}, {}
    for problem in drawn(given.seed, given.count):
        kernel, seconds, error, ratios = measured(problem, given, missing)
        for name, ratio in ratios.items():
            all_ratios[name].append(ratio)
        shown = [f"{ratios[name]:.2f}x" if name in ratios else "-" for name in names]
        m, n, k = problem
        print(f"| {m} {n} {k} | {kernel} | {seconds * 1e6:.1f} us | "
              f"{2 * m * n * k / seconds / 1e12:.0f} | {floor_of(*problem) * 1e6:.1f} us | "
              f"{error:.1e} | {' | '.join(shown)} |", flush=True)
    print()
    for name, found in all_ratios.items():
        if found:
            print(f"{name}: {statistics.geometric_mean(found):.3f}x in {len(found)}, "
                  f"{min(found):.2f}x at least")
    for name, why in missing.items():
        print(f"{name} is missing somewhere: {why}")


if __name__ == "__main__":
    main()
