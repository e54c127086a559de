#!/usr/bin/env python3
"""Prompts in 8 bits, drawn by a seed, beside cuDNN's: bench/attention_fp8.py --seed 7 [--count 16]

Heads of 64, 128 and 256, 512 to 16384 tokens, groups of query heads, with and without a causal
mask. Both calls are captured in graphs and read in pairs, in random order. The peer is cuDNN's
attention with products of 8 bits, which writes e4m3 (nvidia-cudnn-frontend); ours writes bf16. With
--bf16 ours in bf16 is a peer as well. Before the clock runs, both results are compared with fp64 on
a few queries: the root of the mean square error as a share of the answer's.
"""
import argparse
import random
import statistics

import torch

import cudnn_fp8
import tessera
import tessera.torch
from torch_gradients import in_graph

TOKENS = 16384  # of all sequences together, at most
F8 = torch.float8_e4m3fn


def drawn(seed, count):
    """(batch, heads, heads_kv, tokens, hdim, is_causal), each kind of heads in turn."""
    generator = random.Random(f"{seed} fp8")
    found = []
    for i in range(count):
        hdim = (64, 128, 256)[i % 3]
        tokens = 128 * round(2**generator.uniform(2, 7))
        heads = min(generator.choice((8, 16, 24, 32, 40)), 4096 // hdim)
        heads_kv = heads // generator.choice((1, 1, 2, 4, 8))
        batch = generator.randint(1, max(1, TOKENS // tokens))
        found.append((batch, heads, heads_kv, tokens, hdim, i % 2 == 1))
    return found


def quantised(x):
    factor = x.float().abs().max() / 448
    return (x.float() / factor).to(F8), factor.reshape(1)


def ours(problem, operands, out, how):
    """A function that computes by our kernel, and the kernel's name."""
    batch, heads, heads_kv, tokens, hdim, is_causal = problem
    line = (f"fmha batch={batch} heads={heads} heads_kv={heads_kv} seqlen_q={tokens} "
            f"seqlen_k={tokens} hdim={hdim} mask={'top_left' if is_causal else 'none'} {how}")
    plan = tessera.Dispatcher("sm90a").plan(line)
    room = torch.empty(plan.workspace_bytes, dtype=torch.int8, device="cuda")

    def call():
        plan.launch(**operands, out=out, workspace=room if room.numel() else None,
                    stream=torch.cuda.current_stream().cuda_stream)
    return call, plan.kernel


def error_of(result, problem, real):
    """On the last 64 queries of the last head of the last sequence."""
    tokens, hdim, is_causal = problem[3:]
    q, k, v = (x[-1, :, -1].double() for x in real)
    scores = q[-64:] @ k.T * hdim**-0.5
    if is_causal:
        row = torch.arange(tokens - 64, tokens, device="cuda")[:, None]
        scores.masked_fill_(torch.arange(tokens, device="cuda") > row, float("-inf"))
    right = scores.softmax(-1) @ v
    return float((result[-1, -64:, -1].double() - right).norm() / right.norm())


def measured(problem, given):
    batch, heads, heads_kv, tokens, hdim, is_causal = problem
    real = [torch.randn(batch, tokens, n, hdim, device="cuda") for n in (heads, heads_kv, heads_kv)]
    pairs = [quantised(x) for x in real]
    q, k, v = (pair[0] for pair in pairs)
    factors = [pair[1] for pair in pairs]
    out = torch.full(q.shape, float("nan"), dtype=torch.bfloat16, device="cuda")
    scaled = dict(zip(("descale_q", "descale_k", "descale_v"), factors))
    mine, kernel = ours(problem, {"q": q, "k": k, "v": v} | scaled, out,
                        "dtype=fp8 out=bf16 qscale=per_tensor")
    theirs, result = cudnn_fp8.prepared(q, k, v, factors, is_causal)
    mine(), theirs()
    exact = [x.double() * factor for x, factor in zip((q, k, v), factors)]
    errors = error_of(out, problem, exact), error_of(result(), problem, exact)
    stream = torch.cuda.Stream()
    graphs = [in_graph(call, stream) for call in (mine, theirs)]
    row = tessera.torch.compare(*graphs, rounds=given.rounds, device="cuda")
    row["bf16"] = float("nan")
    if given.bf16:
        halves = dict(zip("qkv", (x.bfloat16() for x in real)))
        wide, _ = ours(problem, halves, torch.empty_like(out), "dtype=bf16")
        found = tessera.torch.compare(graphs[0], in_graph(wide, stream), rounds=given.rounds,
                                      device="cuda")
        row["bf16"] = found["speedup"]
    return row | {"kernel": kernel, "errors": errors}


def print_row(problem, row):
    batch, heads, heads_kv, tokens, hdim, is_causal = problem
    rate = 4 * batch * heads * tokens**2 * hdim / (2 if is_causal else 1) / row["ours"] / 1e12
    print(f"| batch={batch} heads={heads}/{heads_kv} tokens={tokens} hdim={hdim}"
          f"{' causal' if is_causal else ''} | {row['kernel']} | {row['ours'] * 1e6:.1f} us | "
          f"{rate:.0f} | {row['speedup']:.2f}x ({row['spread']:.0%}) | {row['bf16']:.2f}x | "
          f"{row['errors'][0]:.1e} {row['errors'][1]:.1e} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--seed", required=True)
    parser.add_argument("--count", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--bf16", action="store_true", help="ours in bf16, too")
    given = parser.parse_args()
    torch.manual_seed(1)
    print(f"cuDNN {torch.backends.cudnn.version()}, seed {given.seed}\n")
    print("| problem | kernel | ours | TFLOP/s | beside cuDNN (spread) | beside our bf16 | "
          "errors, ours and cuDNN's |\n| --- | --- | --- | --- | --- | --- | --- |")
    ratios = []
    for problem in drawn(given.seed, given.count):
        try:
            row = measured(problem, given)
        except Exception as reason:  # pylint: disable=broad-except
            print(f"| {problem} | skipped: {str(reason)[:200]} |")
            continue
        print_row(problem, row)
        ratios.append(row["speedup"])
    if ratios:
        print(f"\n{len(ratios)} problems, geometric mean {statistics.geometric_mean(ratios):.2f}, "
              f"least {min(ratios):.2f}")


if __name__ == "__main__":
    main()
