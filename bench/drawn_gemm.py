"""GEMMs drawn by a seed, beside other libraries.

    python3 bench/drawn_gemm.py --seed 7 [--count 36] [--threads 1 0] [--types fp32 bf16 int8]
                                [--peers onednn] [--most-us 50] [--json FILE]
    python3 bench/drawn_gemm.py --seed 7 --target sm90a --threads 0 --types bf16 --peers cublaslt
                                --m 96 1500 --nk 1024 16384 --multiple 64 --layouts rcr

m from 1 to 2048, n and k from 16 to 2048, each log-uniform; rcr and rrr take turns. Prints, for
each number of threads (0: all) and type, the geometric mean and the least ratio of the best peer's
time and ours, over all calls and over calls in which the peer takes up to 50 us; above 1, Tessera
is faster. The same seed draws the same problems everywhere. --most-us draws only problems that
should take no longer than that at half of a Zen 4 core's peak. The second command draws for a GPU:
other sizes, n and k as multiples of 64.
"""
import argparse
import json
import math
import pathlib
import random
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
SHORT_US = 50.0
# Multiply-adds in a nanosecond, of half of the peak of a Zen 4 core.
RATE = {"fp32": 29.0, "bf16": 58.0, "int8": 117.0}


def drawn(generator, dtype, options):
    while True:
        sizes = {}
        for name in "mnk":
            least, most = options.m if name == "m" else options.nk
            size = math.exp(generator.uniform(math.log(least), math.log(most)))
            unit = 1 if name == "m" else options.multiple
            sizes[name] = max(1, round(size / unit)) * unit
        us = math.prod(sizes.values()) / RATE.get(dtype, 1) * 1e-3
        if options.most_us is None or us <= options.most_us:
            return sizes


def problems(dtype, options):
    """Lines as `tessera bench` reads them; each type has its own list."""
    generator = random.Random(f"{options.seed} {dtype}")
    lines = []
    for i in range(options.count):
        sizes = " ".join(f"{k}={v}" for k, v in drawn(generator, dtype, options).items())
        layout = options.layouts[i % len(options.layouts)]
        lines.append(f"gemm {sizes} dtype={dtype} layout={layout}")
    return lines


def measured(options, lines, threads):
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "drawn.txt")
        path.write_text("\n".join(lines) + "\n", encoding="ascii")
        command = [options.program, "bench", "gemm", "--shapes", path, "--threads", str(threads),
                   "--rounds", options.rounds, "--min-seconds", options.min_seconds,
                   "--peers", options.peers, "--json"]
        if options.target:
            command += ["--target", options.target]
        answer = subprocess.run(list(map(str, command)), capture_output=True, text=True,
                                check=False)
    if answer.returncode != 0:
        sys.exit(answer.stderr.strip() or answer.stdout.strip())
    return json.loads(answer.stdout)


def best_peer(case):
    """The fastest way of any peer that gets operands as we do, not packed before."""
    fair = [peer for peer in case["peers"] if not peer["peer"].endswith("_packed")]
    return min(fair, key=lambda peer: peer["seconds"], default=None)


def geomean(values):
    return math.exp(sum(map(math.log, values)) / len(values)) if values else float("nan")


def summary(name, rows):
    ratios = [ratio for _, _, ratio in rows]
    below = sum(ratio < 0.85 for ratio in ratios)
    least = min(rows, key=lambda row: row[2], default=None)
    if least is None:
        return f"| {name} | 0 | - | - | - | - |"
    return (f"| {name} | {len(rows)} | {geomean(ratios):.3f}x | {least[2]:.2f}x | {below} | "
            f"`{least[0]['problem']}` |")


def tables(report, dtype, layouts, slowest):
    rows = [(case, peer, peer["ratio"]) for case in report["cases"]
            if (peer := best_peer(case)) is not None]
    short = [row for row in rows if row[1]["seconds"] <= SHORT_US * 1e-6]
    parts = [(f"{dtype}, up to {SHORT_US:.0f} us", short), (f"{dtype}, all calls", rows)]
    for layout in layouts:
        # A problem's line leaves out the layout where it is rcr.
        with_layout = [row for row in rows if f"layout={layout}" in row[0]["problem"]
                       or (layout == "rcr" and "layout=" not in row[0]["problem"])]
        parts.append((f"{dtype} {layout}", with_layout))
    for name, part in parts:
        print(summary(name, part))
    return sorted(rows, key=lambda row: row[2])[:slowest]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", required=True)
    parser.add_argument("--count", type=int, default=36, help="problems of each type")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 0])
    parser.add_argument("--types", nargs="+", default=["fp32", "bf16", "int8"], 
                        help="element types; --most-us knows the rates of these three")
    parser.add_argument("--layouts", nargs="+", default=["rcr", "rrr"])
    parser.add_argument("--m", type=int, nargs=2, default=[1, 2048], metavar=("LEAST", "MOST"))
    parser.add_argument("--nk", type=int, nargs=2, default=[16, 2048], metavar=("LEAST", "MOST"))
    parser.add_argument("--multiple", type=int, default=1, help="n and k are multiples of it")
    parser.add_argument("--target", help="a machine's row; this machine's CPU if left out")
    parser.add_argument("--peers", default="onednn")
    parser.add_argument("--most-us", type=float)
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--min-seconds", type=float, default=0.002,
                        help="of a reading; where other programs run, shorter than their turns")
    parser.add_argument("--slowest", type=int, default=5, help="how many losses to list")
    parser.add_argument("--program", default=ROOT / "build/release/bin/tessera")
    parser.add_argument("--json", type=pathlib.Path, help="where all reports go")
    options = parser.parse_args()
    reports = []
    for threads in options.threads:
        print(f"\n## {threads or 'all'} thread{'' if threads == 1 else 's'}, seed {options.seed}\n")
        print("| calls | problems | geometric mean | least | below 0.85x | the least |")
        print("| --- | --- | --- | --- | --- | --- |")
        losses = []
        for dtype in options.types:
            lines = problems(dtype, options)
            report = measured(options, lines, threads)
            reports.append({"threads": threads, "dtype": dtype, "seed": options.seed,
                            "report": report})
            losses += tables(report, dtype, options.layouts, options.slowest)
        print("\n| problem | kernel | ours | peer | ratio |\n| --- | --- | --- | --- | --- |")
        for case, peer, ratio in losses:
            print(f"| `{case['problem']}` | `{case['kernel']}` | {case['seconds'] * 1e6:.2f} us | "
                  f"{peer['seconds'] * 1e6:.2f} us ({peer['how']}) | {ratio:.2f}x |")
    if options.json:
        options.json.write_text(json.dumps(reports), encoding="ascii")


if __name__ == "__main__":
    main()
