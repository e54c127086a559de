#!/usr/bin/env python3
"""What equal bits in every batch cost: a table of times without and with --batch-invariant.

    tools/batch_invariant_price.py --target sm90a              # by the predictions of explain
    tools/batch_invariant_price.py --target sm90a --measure    # by bench, on such a machine
    tools/batch_invariant_price.py --problems FILE             # other problems, a line each
"""
import argparse
import json
import math
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LAYERS = [(4096, 4096), (14336, 4096), (4096, 14336), (28672, 8192)]
HEADS = "fmha heads=32 heads_kv=8 hdim=128 dtype=bf16 mask=bottom_right"
IMAGE = "conv direction=forward dtype=bf16"


def usual_problems():
    """Layers of language models and of a network for images, in batches from one to a prefill."""
    for n, k in LAYERS:
        for m in (1, 16, 64, 256, 1024, 8192):
            yield f"gemm m={m} n={n} k={k} dtype=bf16"
    for m in (16, 256, 4096):
        yield f"gemm m={m} n=4096 k=4096 dtype=fp8"
    for rows in (1, 64, 4096):
        yield f"norm kind=rmsnorm rows={rows} columns=4096 dtype=bf16"
    for batch, keys in ((1, 4096), (1, 65536), (16, 4096), (64, 4096), (64, 32768)):
        yield f"{HEADS} batch={batch} seqlen_q=1 seqlen_k={keys}"
    yield f"{HEADS} batch=4 seqlen_q=2048 seqlen_k=2048"
    for n in (1, 8, 64):
        yield f"{IMAGE} n={n} c=64 k=64 h=56 w=56 y=3 x=3 pad_h=1 pad_w=1"
        yield f"{IMAGE} n={n} c=256 k=512 h=28 w=28 y=1 x=1"


def output_of(arguments, more):
    made = subprocess.run([arguments.tessera, *more, "--json"], capture_output=True, text=True,
                          check=False)
    if made.returncode != 0:
        raise SystemExit(made.stderr.strip() or made.stdout.strip())
    return json.loads(made.stdout)


def predicted(arguments, line):
    """Seconds without and with the wish, and the kernel with it."""
    words = ["explain", *line.split(), *arguments.of_target]
    without, wished = (output_of(arguments, words + wish)["decisions"][0]
                       for wish in ([], ["--batch-invariant"]))
    return without["predicted_seconds"], wished["predicted_seconds"], wished["kernel"]


def measured(arguments, line):
    operation, *fields = line.split()
    words = ["bench", operation, *fields, *arguments.of_target, "--beside", "batch-invariant"]
    case = output_of(arguments, words)["cases"][0]
    beside = next(peer for peer in case["peers"] if peer["peer"] == "batch-invariant")
    return case["seconds"], beside["seconds"], beside["how"]


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tessera", default=str(ROOT / "build/release/bin/tessera"))
    parser.add_argument("--target")
    parser.add_argument("--measure", action="store_true")
    parser.add_argument("--problems", type=Path)
    arguments = parser.parse_args()
    arguments.of_target = ["--target", arguments.target] if arguments.target else []
    lines = (arguments.problems.read_text().splitlines() if arguments.problems
             else list(usual_problems()))
    times = measured if arguments.measure else predicted
    prices = []
    print("| problem | us | us in every batch alike | price | kernel |\n"
          "| --- | ---: | ---: | ---: | --- |")
    for line in filter(None, lines):
        without, wished, kernel = times(arguments, line)
        prices.append(wished / without)
        print(f"| `{line}` | {without * 1e6:.1f} | {wished * 1e6:.1f} | {prices[-1]:.2f} "
              f"| `{kernel}` |", flush=True)
    mean = math.exp(sum(map(math.log, prices)) / len(prices))
    print(f"\nGeometric mean of {len(prices)} prices: {mean:.2f}, the highest {max(prices):.2f}.")


if __name__ == "__main__":
    main()
