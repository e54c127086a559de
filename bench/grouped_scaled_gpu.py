#!/usr/bin/env python3
"""Layers of experts in fp8 with scales of blocks, drawn by a seed, beside DeepGEMM.

    python3 bench/grouped_scaled_gpu.py --seed 7 [--count 24] [--rounds 21] [--layers qwen3]

The layers are the projections of DeepSeek-V3 and of two Qwen3, with all experts or those of one of
eight GPUs; A has a scale for each 1 x 128, B one for each 128 x 128, the output is bf16. Tokens are
spread evenly or skewed, and each kind of groups is drawn in turn:
  contiguous   ours has groups one behind the other by group_ends, and the same rows as DeepGEMM,
               whose groups begin at multiples of 128 rows, by group_index
  masked       a matrix with room for each group, of which up to 64 rows count
Some rows of every result are compared with fp64 before the clock runs. Each call is captured in a
graph; in each round all run once, in random order, with a cold L2. A ratio is the median of a
peer's time by ours in the same round, with its quarters: above 1, ours is faster. TFLOP/s count the
rows of groups.
"""
import argparse
import math
import random
import statistics

import torch

import tessera
from scaled_gpu import by_blocks, by_rows, captured, timed

# n, k and experts: up and down.
LAYERS = {"deepseek-v3": (((4096, 7168), (7168, 2048)), 256),
          "qwen3-30b": (((1536, 2048), (2048, 768)), 128),
          "qwen3-235b": (((3072, 4096), (4096, 1536)), 128)}
GPUS = 8  # that share the experts
KINDS = ("contiguous", "masked")
ALIGNED = 128  # rows at whose multiples DeepGEMM's groups begin
CHECKED = 6  # groups of each result, and rows of each of them


def sizes_of(generator, groups, total, is_skewed):
    weights = [math.exp(generator.gauss(0, 1)) if is_skewed else 1 for _ in range(groups)]
    sizes = [int(total * weight / sum(weights)) for weight in weights]
    for i in range(total - sum(sizes)):
        sizes[i % groups] += 1
    return sizes


def drawn(seed, count, names):
    """(layer, n, k, kind, how, sizes): rows are spread evenly over powers of two."""
    generator = random.Random(f"{seed} grouped scaled")
    for i in range(count):
        name = names[i // len(KINDS) % len(names)]
        shapes, experts = LAYERS[name]
        n, k = generator.choice(shapes)
        groups = experts // generator.choice((1, GPUS))
        kind = KINDS[i % len(KINDS)]
        if kind == "masked":
            most = round(2 ** generator.uniform(0, 6))
            yield name, n, k, kind, f"up to {most}", [generator.randint(0, most)
                                                      for _ in range(groups)]
            continue
        is_skewed = generator.random() < 0.5
        total = groups * max(1, round(2 ** generator.uniform(0, 10)))
        yield (name, n, k, kind, "skewed" if is_skewed else "even",
               sizes_of(generator, groups, total, is_skewed))


def column_major(scale):
    """The same scales with rows side by side, as DeepGEMM reads them: columns begin at multiples
    of 16 bytes."""
    *lead, rows, k = scale.shape
    room = torch.empty(*lead, k, -(-rows // 4) * 4, device=scale.device).mT[..., :rows, :]
    return room.copy_(scale)


class Operands:
    """B and its scales of all groups, and rows of A with theirs: one behind the other, where
    DeepGEMM has them, or in a matrix for each group."""

    def __init__(self, n, k, kind, sizes):
        self.n, self.k, self.kind, self.sizes, self.groups = n, k, kind, sizes, len(sizes)
        self.b = torch.empty(self.groups, n, k, dtype=torch.float8_e4m3fn, device="cuda")
        self.scale_b = torch.empty(self.groups, -(-n // 128), k // 128, device="cuda")
        for i in range(self.groups):
            self.b[i], self.scale_b[i] = by_blocks(torch.randn(n, k, device="cuda") / math.sqrt(k))
        starts = [0]
        for size in sizes:
            starts.append(starts[-1] + -(-size // ALIGNED) * ALIGNED)
        room = max(max(sizes), 1) if kind == "masked" else max(starts[-1], ALIGNED)
        count = self.groups * room if kind == "masked" else room
        # Blocks of unlike sizes, so that a wrong scale shows.
        spread = torch.exp2(4 * torch.rand(count, k // 128, device="cuda"))
        wide = spread.repeat_interleave(128, 1)
        self.a, self.scale_a = by_rows(torch.randn(count, k, device="cuda") * wide)
        self.room = room
        self.places = [i * room for i in range(self.groups)] if kind == "masked" else starts[:-1]
        self.rows = torch.tensor(sizes, dtype=torch.int32, device="cuda")
        if kind == "masked":
            self.a = self.a.view(self.groups, room, k)
            self.scale_a = self.scale_a.view(self.groups, room, -1)
            return
        self.index = torch.full((room,), -1, dtype=torch.int32, device="cuda")
        for i, (place, size) in enumerate(zip(self.places, sizes)):
            self.index[place:place + size] = i
        which = self.index >= 0
        self.packed = self.a[which].contiguous(), self.scale_a[which].contiguous()
        self.ends = self.rows.cumsum(0, dtype=torch.int32)

    def error_of(self, out, places):
        """The greatest error of some groups, whose rows begin at these places of out."""
        worst, generator = 0.0, random.Random(1)
        full = [i for i, size in enumerate(self.sizes) if size > 0]
        for i in generator.sample(full, min(len(full), CHECKED)):
            rows = sorted(generator.sample(range(self.sizes[i]), min(self.sizes[i], CHECKED)))
            own = torch.tensor(rows, device="cuda") + self.places[i]
            a = self.a.view(-1, self.k)[own].double()
            a *= self.scale_a.view(-1, self.k // 128)[own].double().repeat_interleave(128, 1)
            wide = self.scale_b[i].double().repeat_interleave(128, 0)[:self.n]
            right = a @ (self.b[i].double() * wide.repeat_interleave(128, 1)).T
            got = out.view(-1, self.n)[torch.tensor(rows, device="cuda") + places[i]].double()
            error = float((got - right).norm() / right.norm())
            worst = max(worst, error if math.isfinite(error) else math.inf)
        return worst


def ours(x, grouping, a, scale_a, numbers):
    """A call, its output, and the kernel's name."""
    m = a.shape[-2]
    line = (f"gemm m={m} n={x.n} k={x.k} a=fp8 out=bf16 groups={x.groups} grouping={grouping} "
            f"scale_a=1x128 scale_b=128x128 stride_scale_a_m={scale_a.stride(-2)} "
            f"stride_scale_a_k={scale_a.stride(-1)}")
    if grouping == "masked":
        line += f" batch_stride_scale_a={scale_a.stride(0)}"
    name = {"contiguous": "group_ends", "indexed": "group_index", "masked": "group_rows"}[grouping]
    plan = tessera.Dispatcher("sm90a").plan(line)
    out = torch.full((*a.shape[:-1], x.n), float("nan"), dtype=torch.bfloat16, device="cuda")
    room = torch.zeros(max(plan.workspace_bytes, 1), dtype=torch.int8, device="cuda")
    operands = {"a": a, "b": x.b, "scale_a": scale_a, "scale_b": x.scale_b, name: numbers}

    def call():
        plan.launch(**operands, out=out, workspace=room if plan.workspace_bytes else None,
                    stream=torch.cuda.current_stream().cuda_stream)
        return out
    return call, plan.kernel


def by_deep_gemm(x):
    import deep_gemm
    out = torch.empty(*x.a.shape[:-1], x.n, dtype=torch.bfloat16, device="cuda")
    a, b = (x.a, column_major(x.scale_a)), (x.b, x.scale_b)

    def named(new, old):
        return getattr(deep_gemm, new, None) or getattr(deep_gemm, old)
    if x.kind == "masked":
        run = named("m_grouped_fp8_gemm_nt_masked", "m_grouped_gemm_fp8_fp8_bf16_nt_masked")
        numbers = (x.rows, max(1, round(sum(x.sizes) / x.groups)))
    else:
        run = named("m_grouped_fp8_gemm_nt_contiguous",
                    "m_grouped_gemm_fp8_fp8_bf16_nt_contiguous")
        numbers = (x.index,)

    def call():
        run(a, b, out, *numbers)
        return out
    return call


def calls_of(x, missing):
    """name: a captured call of a result that was compared; and the names of our kernels."""
    mine = {}
    if x.kind == "masked":
        mine["ours"] = ours(x, "masked", x.a, x.scale_a, x.rows), x.places
    else:
        starts = [int(end) - size for end, size in zip(x.ends, x.sizes)]
        mine["ours"] = ours(x, "contiguous", *x.packed, x.ends), starts
        mine["ours indexed"] = ours(x, "indexed", x.a, x.scale_a, x.index), x.places
    calls, kernels = {}, []
    for name, ((call, kernel), places) in mine.items():
        error = x.error_of(call(), places)
        if not error < 1e-2:
            raise SystemExit(f"{kernel} is wrong, its error is {error:.2e}")
        calls[name] = captured(call)
        kernels.append(kernel)
    try:
        call = by_deep_gemm(x)
        error = x.error_of(call(), x.places)
        torch.cuda.synchronize()
        if not error < 3e-2:
            raise ValueError(f"its error is {error:.2e}")
        calls["DeepGEMM"] = captured(call)
    except Exception as why:  # it is not here, or has no such product
        missing.setdefault(x.kind, str(why).splitlines()[0][:100])
    return calls, kernels


def quarters(ratios):
    ordered = sorted(ratios)
    return statistics.median(ordered), ordered[len(ordered) // 4], ordered[-1 - len(ordered) // 4]


def floor_of(x):
    """Seconds: bytes at 4.3 TB/s or products at 1.4 PFLOP/s, whichever takes longer."""
    rows, used = sum(x.sizes), sum(size > 0 for size in x.sizes)
    of_a = rows * (x.k + 4 * (x.k // 128))
    of_b = used * (x.n * x.k + 4 * -(-x.n // 128) * (x.k // 128))
    return max((of_a + of_b + 2 * rows * x.n) / 4.3e12, 2 * rows * x.n * x.k / 1.4e15)


def report(problem, x, times, kernels, found):
    name, n, k, kind, how, sizes = problem
    own = times["ours"]
    seconds = statistics.median(own)
    cells = []
    for peer in ("ours indexed", "DeepGEMM"):
        if peer not in times:
            cells.append("-")
            continue
        middle, low, high = quarters([t / mine for t, mine in zip(times[peer], own)])
        found.setdefault((kind, peer), []).append(middle)
        cells.append(f"{middle:.2f}x ({low:.2f} to {high:.2f})")
    rate = 2 * sum(sizes) * n * k / seconds / 1e12
    print(f"| {name} {n} {k} | {kind}, {how} | {len(sizes)} | {sum(sizes)} | {kernels[0]} | "
          f"{seconds * 1e6:.1f} us | {rate:.0f} | {floor_of(x) * 1e6:.1f} us | "
          f"{' | '.join(cells)} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--seed", required=True)
    parser.add_argument("--count", type=int, default=24)
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--layers", nargs="+", default=list(LAYERS), choices=LAYERS)
    given = parser.parse_args()
    torch.manual_seed(1)
    random.seed(given.seed)
    print(f"PyTorch {torch.__version__}, seed {given.seed}\n")
    print("| layer n k | groups' rows | groups | rows | kernel | ours | TFLOP/s | floor | "
          "ours indexed | DeepGEMM |")
    print("| --- " * 10 + "|")
    found, missing = {}, {}
    with torch.no_grad():
        for problem in drawn(given.seed, given.count, given.layers):
            if sum(problem[-1]) == 0:
                continue
            x = Operands(*problem[1:4], problem[-1])
            calls, kernels = calls_of(x, missing)
            report(problem, x, timed(calls, given.rounds), kernels, found)
            del calls, x
            torch.cuda.empty_cache()
    print()
    for (kind, peer), ratios in found.items():
        print(f"{kind}, {peer}: {statistics.geometric_mean(ratios):.3f}x in {len(ratios)}, "
              f"{min(ratios):.2f}x at least")
    for kind, why in missing.items():
        print(f"DeepGEMM is missing for {kind}: {why}")


if __name__ == "__main__":
    main()
