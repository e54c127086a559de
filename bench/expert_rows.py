#!/usr/bin/env python3
"""Rows that the experts of a mixture-of-experts layer get, and the products that they make.

    python3 bench/expert_rows.py [--net qwen3_30b_a3b] [--tokens 4096] [--seed 1]
                                 [--routing balanced random zipf] [--ends] [--shapes] [--scaled]

Nets are those of data/nets/experts.txt. A token goes to top_k experts. balanced: to the next ones
in turn. random: to any, each as likely. zipf: the expert of rank r is drawn with a weight of
1 / r^1.2, and ranks are shuffled. Equal seeds give equal rows.

Prints, for each routing, the number of rows, the most that one expert has, and how many have none.
--ends adds group_ends as a list. --shapes prints a shape file instead: the two products of each net
for so many tokens, in the room of all their rows; with --scaled in fp8 with scales of 1x128 and
128x128.
"""
import argparse
import json
import pathlib
from typing import Dict, List, NamedTuple

import numpy as np

NETS = pathlib.Path(__file__).resolve().parents[1] / "data" / "nets" / "experts.txt"
ROUTINGS = ("balanced", "random", "zipf")
POWER = 1.2


class Layer(NamedTuple):
    experts: int
    top_k: int
    hidden: int
    intermediate: int


def layers() -> Dict[str, Layer]:
    lines = [line.split() for line in NETS.read_text().splitlines() if not line.startswith("#")]
    return {name: Layer(*map(int, sizes)) for name, *sizes in lines}


def rows_of_experts(layer: Layer, tokens: int, routing: str, seed: int) -> np.ndarray:
    """How many rows each expert gets. Drawn without replacement: keys of an exponential race."""
    random = np.random.default_rng(seed)
    if routing == "balanced":
        turns = np.arange(tokens * layer.top_k) % layer.experts
        return np.bincount(turns, minlength=layer.experts)
    weights = np.ones(layer.experts)
    if routing == "zipf":
        weights = random.permutation(np.arange(1, layer.experts + 1) ** -POWER)
    keys = random.exponential(size=(tokens, layer.experts)) / weights
    chosen = np.argpartition(keys, layer.top_k - 1, axis=1)[:, :layer.top_k]
    return np.bincount(chosen.ravel(), minlength=layer.experts)


def lines_of(layer: Layer, tokens: int, scaled: bool = False) -> List[str]:
    """Gate and up as one product, and down."""
    head = f"gemm m={tokens * layer.top_k}"
    types = "dtype=fp8 out=bf16 scale_a=1x128 scale_b=128x128" if scaled else "dtype=bf16"
    tail = f"{types} groups={layer.experts} grouping=contiguous"
    return [f"{head} n={2 * layer.intermediate} k={layer.hidden} {tail}",
            f"{head} n={layer.hidden} k={layer.intermediate} {tail}"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    known = list(layers())
    parser.add_argument("--net", dest="nets", nargs="*", default=known, choices=known)
    parser.add_argument("--tokens", type=int, default=4096)
    parser.add_argument("--routing", nargs="*", default=ROUTINGS, choices=ROUTINGS)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--ends", action="store_true")
    parser.add_argument("--shapes", action="store_true")
    parser.add_argument("--scaled", action="store_true")
    options = parser.parse_args()
    for name in options.nets:
        layer = layers()[name]
        if options.shapes:
            lines = lines_of(layer, options.tokens, options.scaled)
            print(f"# {name}, {options.tokens} tokens", *lines, sep="\n")
            continue
        for routing in options.routing:
            rows = rows_of_experts(layer, options.tokens, routing, options.seed)
            print(f"{name} {routing} seed={options.seed}: {rows.sum()} rows, at most {rows.max()} "
                  f"beside {rows.mean():.0f} on average, {np.count_nonzero(rows == 0)} experts "
                  "have none")
            if options.ends:
                print(json.dumps(np.cumsum(rows).tolist()))


if __name__ == "__main__":
    main()
