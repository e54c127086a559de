#!/usr/bin/env python3
"""Attention on a GPU where the scores of every query grow from block to block of the keys.

bench/growing_scores.py [--hdim 128] [--tokens 8192] [--dtype bf16] [--json FILE]

Kernels of prompts take no maxima as long as scores stay near the scores of a tile's first block.
Scores that grow by some nats with every 128 keys are the hardest case. The time of each growth, in
either order of the keys, is compared with the time of equal keys in pairs, and the result with
fp64.
"""
import argparse
import json

import torch

import tessera.torch

BLOCK = 128  # keys


def tensors_of(given, nats, is_reversed):
    """q, k and v; nats: how much the scores of a block are above the block's before."""
    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}[given.dtype]
    q, k, v = (torch.randn(1, given.heads, given.tokens, given.hdim, device="cuda")
               for _ in range(3))
    blocks = torch.arange(given.tokens, device="cuda") // BLOCK
    blocks = blocks.flip(0) if is_reversed else blocks
    # All queries have one element in common, which multiplies the scale away.
    q[..., 0] = given.hdim**0.5
    k[..., 0] = blocks * nats
    return [x.to(dtype) for x in (q, k, v)]


def attend(made):
    return tessera.torch.attention(*made, layout="bhsd")


def error_of(q, k, v, out):
    """The worst error of the last queries beside fp64."""
    rows = slice(-BLOCK, None)
    weights = (q[:, :, rows].double() @ k.double().mT / q.shape[-1]**0.5).softmax(-1)
    return tessera.torch.worst_error(out[:, :, rows], weights @ v.double())


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--heads", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=8192)
    parser.add_argument("--hdim", type=int, default=128)
    parser.add_argument("--dtype", default="bf16", choices=("bf16", "fp16"))
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--json", default="", help="write the rows into this file")
    given = parser.parse_args()
    torch.manual_seed(1)
    plain = tensors_of(given, 0, False)
    rows = []
    for nats in (0, 20, 70):
        for is_reversed in (False, True):
            made = tensors_of(given, nats, is_reversed)
            error = error_of(*made, attend(made))
            row = tessera.torch.compare(lambda: attend(made), lambda: attend(plain),
                                        rounds=given.rounds, device="cuda")
            order = "falling" if is_reversed else "rising"
            rows.append({"nats": nats, "order": order, "error": error, **row})
            print(f"{nats:3} nats a block, {order:7}: {row['ours'] * 1e6:8.1f} us, "
                  f"{1 / row['speedup']:.2f} of the time of equal keys ({row['spread']:.0%}), "
                  f"error {error:.1e}", flush=True)
    if given.json:
        with open(given.json, "w", encoding="utf-8") as file:
            json.dump(rows, file, indent=1)


if __name__ == "__main__":
    main()
