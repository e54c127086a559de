#!/usr/bin/env python3
"""Tokens a second of a model's prompt and of its generated tokens: Tessera beside eager, sdpa and
torch.compile, in rounds that take a reading of each in random order. Prints medians and the
interquartile range as a part of the median."""
from __future__ import annotations

import argparse
import copy
import random
import statistics
import time
from typing import Any, Callable, Dict, List

import torch

import models
import tessera_transformers

SIZES = {"tiny": (64, 112, 2, 4, 2, 97), "small": (512, 1408, 8, 8, 4, 4096),
         "1b": (2048, 5632, 16, 32, 8, 32000)}
WAYS = ("eager", "sdpa", "compile", "tessera-attention", "tessera")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="float32", choices=["float32", "float16", "bfloat16"])
    parser.add_argument("--model", default="llama", choices=sorted(models.TEXT))
    parser.add_argument("--size", default="small", choices=sorted(SIZES))
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--prompt", type=int, default=128)
    parser.add_argument("--tokens", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--ways", nargs="+", default=list(WAYS), choices=WAYS)
    return parser.parse_args()


def made(way: str, model: Any, given: argparse.Namespace) -> Any:
    """A copy of the model that runs in this way."""
    model = copy.deepcopy(model)
    if way in ("eager", "sdpa"):
        model.set_attn_implementation(way)
    elif way == "compile":
        model.set_attn_implementation("sdpa")
        model.forward = torch.compile(model.forward, dynamic=True)
    elif way == "tessera-attention":
        model.set_attn_implementation("tessera")
    else:
        tessera_transformers.use_tessera(model, rows=given.batch)
    return model


def seconds(run: Callable[[], Any], device: str) -> float:
    wait = torch.cuda.synchronize if device.startswith("cuda") else lambda: None
    wait()
    start = time.perf_counter()
    run()
    wait()
    return time.perf_counter() - start


def generate(model: Any, ids: torch.Tensor, tokens: int) -> torch.Tensor:
    return model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=tokens,
                          min_new_tokens=tokens, do_sample=False)


def line(name: str, tokens: int, readings: List[float]) -> str:
    middle = statistics.median(readings)
    quarters = statistics.quantiles(readings, n=4) if len(readings) > 1 else [middle] * 3
    return (f"{name:20} {tokens / middle:10.1f} tokens/s   spread "
            f"{100 * (quarters[2] - quarters[0]) / middle:4.1f}%")


def main() -> None:
    given = arguments()
    if given.threads:
        torch.set_num_threads(given.threads)
    model = models.made(models.TEXT[given.model], 1, getattr(torch, given.dtype),
                        SIZES[given.size]).to(given.device)
    ids = torch.randint(1, SIZES[given.size][-1], (given.batch, given.prompt)).to(given.device)
    ways = {way: made(way, model, given) for way in given.ways}
    readings: Dict[str, Dict[str, List[float]]] = {
        part: {way: [] for way in ways} for part in ("prompt", "new tokens")}
    with torch.no_grad():
        for way in ways.values():  # builds kernels, and compiles for both shapes
            generate(way, ids, 3)
        for number in range(given.rounds):
            for way in random.Random(number).sample(list(ways), len(ways)):
                first = seconds(lambda: generate(ways[way], ids, 1), given.device)
                whole = seconds(lambda: generate(ways[way], ids, given.tokens + 1), given.device)
                readings["prompt"][way].append(first)
                readings["new tokens"][way].append(max(whole - first, 1e-9))
    for part, count in (("prompt", given.prompt), ("new tokens", given.tokens)):
        print(f"{part}: {given.model} {given.size}, {given.dtype}, batch {given.batch}, "
              f"{torch.get_num_threads()} threads, {given.device}")
        for way in ways:
            print("  " + line(way, count * given.batch, readings[part][way]))
    for reason in tessera_transformers.tessera_report():
        print("left to the framework:", reason)


if __name__ == "__main__":
    main()
