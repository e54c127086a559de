#!/usr/bin/env python3
"""Layers of experts beside what PyTorch's users have, paired in one process.

    python3 bench/torch_moe.py [--device cuda] [--seed N] [--experts 128] [--logits] [--scaled x]

The peers: on a CPU a loop over experts, as models of transformers have it; on a GPU the same by
torch._grouped_mm on a copy of x sorted by experts. Routing is random, skewed as 1 / rank^1.2 over a
random order of the experts. --logits: layers begin with the router's logits, and the peer's router
is PyTorch's softmax and topk. --processor-time: of a CPU, the time of the process on processors,
which other programs disturb less. --scaled: our weights have 8 bits and scales of blocks, the
peer's stay as they are; with "weights" our call quantises x, with "x" it gets x quantised. A result
is compared before it is timed. Prints tokens, the ratio (the peer's time over ours) with its
spread, a quarter to three quarters, and microseconds of both.
"""
import argparse
import random
import statistics
import time

import torch

import tessera.torch as tt

# hidden, inner, experts, top_k
LAYERS = {"Qwen3-30B-A3B": (2048, 768, 128, 8), "DeepSeek-V3": (7168, 2048, 256, 8),
          "Mixtral-8x7B": (4096, 14336, 8, 2)}


def loop(x, ids, weights, w1, w2):
    out = torch.zeros_like(x)
    for expert in ids.unique().tolist():
        rows, slots = (ids == expert).nonzero(as_tuple=True)
        gate, up = torch.nn.functional.linear(x[rows], w1[expert]).chunk(2, -1)
        made = torch.nn.functional.linear(torch.nn.functional.silu(gate) * up, w2[expert])
        out.index_add_(0, rows, made * weights[rows, slots].unsqueeze(1).to(x.dtype))
    return out


def grouped(x, ids, weights, w1, w2):
    top_k = ids.shape[1]
    flat, order = ids.reshape(-1).sort(stable=True)
    ends = torch.searchsorted(flat, torch.arange(w1.shape[0], device=x.device), right=True,
                              out_int32=True)
    gate, up = torch._grouped_mm(x[order // top_k], w1.mT, offs=ends).chunk(2, -1)
    made = torch._grouped_mm(torch.nn.functional.silu(gate) * up, w2.mT, offs=ends)
    each = torch.empty_like(made)
    each[order] = made
    return (each.view(*ids.shape, -1) * weights.unsqueeze(2).to(x.dtype)).sum(1)


def routing(tokens, experts, top_k, device):
    chance = 1 / torch.arange(1, experts + 1, dtype=torch.float64)**1.2
    chance = chance[torch.randperm(experts)].expand(tokens, -1)
    ids = torch.multinomial(chance, top_k)
    return ids.to(device), torch.rand(tokens, top_k).to(device)


def routed(logits, top_k):
    weights, ids = logits.float().softmax(1).topk(top_k)
    return ids, weights / weights.sum(1, keepdim=True)


def quantised(weights):
    """In 8 bits, with a scale for each 128 x 128."""
    experts, rows, columns = weights.shape
    tiles = weights.view(experts, rows // 128, 128, columns // 128, 128)
    scale = tiles.abs().amax((2, 4)).float() / 448
    small = tiles / scale.view(experts, rows // 128, 1, columns // 128, 1)
    return small.view(weights.shape).to(torch.float8_e4m3fn), scale


def our_layer(scaled, w1, w2, top_k):
    """Makes calls of our layer from x and the routing."""
    if scaled is None:
        return lambda x, given: lambda: tt.fused_moe(x, given, w1, w2, top_k=top_k)
    (w1, w1_scale), (w2, w2_scale) = quantised(w1), quantised(w2)
    scales = {"w1_scale": w1_scale, "w2_scale": w2_scale}

    def made(x, given):
        x_scale = None
        if scaled == "x":
            x, x_scale = tt.quantise(x, quant="block")
        return lambda: tt.fused_moe(x, given, w1, w2, top_k=top_k, x_scale=x_scale, **scales)
    return made


CLOCK = time.perf_counter


def seconds(call, device):
    if device == "cpu":
        start = CLOCK()
        call()
        return CLOCK() - start
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    call()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / 1e3


def paired(ours, theirs, device, rounds):
    pairs = []
    for _ in range(rounds):
        calls = [(0, ours), (1, theirs)]
        random.shuffle(calls)
        times = {which: seconds(call, device) for which, call in calls}
        pairs.append((times[0], times[1]))
    ratios = sorted(b / a for a, b in pairs)
    quarter = len(ratios) // 4
    return (statistics.median(ratios), ratios[quarter], ratios[-1 - quarter],
            *(1e6 * statistics.median(side) for side in zip(*pairs)))


def measure(name, arguments):
    hidden, inner, experts, top_k = LAYERS[name]
    experts = min(experts, arguments.experts or experts)
    dtype, device = torch.bfloat16, arguments.device
    w1, w2 = (torch.randn(experts, rows, columns, device=device, dtype=dtype) / columns**0.5
              for rows, columns in ((2 * inner, hidden), (hidden, inner)))
    peer = loop if device == "cpu" else grouped
    layer = our_layer(arguments.scaled, w1, w2, top_k)
    for tokens in sorted({1, arguments.most} | {int(arguments.most**random.random())
                                               for _ in range(arguments.draws)}):
        x = torch.randn(tokens, hidden, device=device, dtype=dtype)
        given = ids, weights = routing(tokens, experts, top_k, device)
        if arguments.logits:
            given = torch.randn(tokens, experts, device=device)  # in fp32 no two are equal
        ours = layer(x, given)
        theirs = (lambda: peer(x, *routed(given, top_k), w1, w2)) if arguments.logits else (
            lambda: peer(x, ids, weights, w1, w2))
        worst = tt.worst_error(ours(), theirs())
        ratio, low, high, mine, other = paired(ours, theirs, device, arguments.rounds)
        print(f"{name}\ttokens={tokens}\tratio {ratio:.2f} ({low:.2f} to {high:.2f})\t"
              f"ours {mine:.0f} us\tthe peer {other:.0f} us\tworst error {worst}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--draws", type=int, default=4)
    parser.add_argument("--most", type=int, default=4096, help="tokens")
    parser.add_argument("--experts", type=int, help="at most so many")
    parser.add_argument("--logits", action="store_true")
    parser.add_argument("--scaled", choices=("weights", "x"))
    parser.add_argument("--processor-time", action="store_true")
    parser.add_argument("--layers", nargs="+", default=["Qwen3-30B-A3B"], choices=LAYERS)
    arguments = parser.parse_args()
    if arguments.processor_time:
        global CLOCK
        CLOCK = time.process_time
    random.seed(arguments.seed), torch.manual_seed(arguments.seed)
    print(f"seed {arguments.seed}, PyTorch {torch.__version__}, {torch.get_num_threads()} threads")
    with torch.no_grad():
        for name in arguments.layers:
            measure(name, arguments)


if __name__ == "__main__":
    main()
