"""GEMMs drawn by a seed, beside other libraries.

    python3 bench/drawn_gemm.py --seed 7 [--count 36] [--threads 1 0] [--types fp32 bf16 int8]
                                [--peers onednn] [--most-us 50] [--json FILE]

m from 1 to 2048, n and k from 16 to 2048, each log-uniform; rcr and rrr take turns. Prints, for
each number of threads (0: all) and type, the geometric mean and the least ratio of the best peer's
time and ours, over all calls and over calls in which the peer takes up to 50 us; above 1, Tessera
is faster. The same seed draws the same problems everywhere. --most-us draws only problems that
should take no longer than that at half of a Zen 4 core's peak.
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
LEAST, MOST = {"m": 1, "n": 16, "k": 16}, 2048
# Multiply-adds in a nanosecond, of half of the peak of a Zen 4 core.
RATE = {"fp32": 29.0, "bf16": 58.0, "int8": 117.0}


def drawn(generator, dtype, most_us):
    while True:
        sizes = {name: round(math.exp(generator.uniform(math.log(least), math.log(MOST))))
                 for name, least in LEAST.items()}
        us = math.prod(sizes.values()) / RATE[dtype] * 1e-3
        if most_us is None or us <= most_us:
            return sizes


def problems(seed, dtype, count, most_us):
    """Lines as `tessera bench` reads them; each type has its own list."""
    generator = random.Random(f"{seed} {dtype}")
    lines = []
    for i in range(count):
        sizes = " ".join(f"{k}={v}" for k, v in drawn(generator, dtype, most_us).items())
        lines.append(f"gemm {sizes} dtype={dtype} layout={('rcr', 'rrr')[i % 2]}")
    return lines


def measured(options, lines, threads):
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "drawn.txt")
        path.write_text("\n".join(lines) + "\n", encoding="ascii")
        command = [options.program, "bench", "gemm", "--shapes", path, "--threads", str(threads),
                   "--rounds", options.rounds, "--min-seconds", options.min_seconds,
                   "--peers", options.peers, "--json"]
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


def tables(report, dtype, slowest):
    rows = [(case, peer, peer["ratio"]) for case in report["cases"]
            if (peer := best_peer(case)) is not None]
    short = [row for row in rows if row[1]["seconds"] <= SHORT_US * 1e-6]
    parts = [(f"{dtype}, up to {SHORT_US:.0f} us", short), (f"{dtype}, all calls", rows)]
    for layout in ("rcr", "rrr"):
        # A problem's line leaves out the layout where it is the usual one.
        with_layout = [row for row in rows if ("layout=rrr" in row[0]["problem"])
                       == (layout == "rrr")]
        parts.append((f"{dtype} {layout}", with_layout))
    for name, part in parts:
        print(summary(name, part))
    return sorted(rows, key=lambda row: row[2])[:slowest]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", required=True)
    parser.add_argument("--count", type=int, default=36, help="problems of each type")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 0])
    parser.add_argument("--types", nargs="+", default=["fp32", "bf16", "int8"], choices=RATE)
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
            lines = problems(options.seed, dtype, options.count, options.most_us)
            report = measured(options, lines, threads)
            reports.append({"threads": threads, "dtype": dtype, "seed": options.seed,
                            "report": report})
            losses += tables(report, dtype, options.slowest)
        print("\n| problem | kernel | ours | peer | ratio |\n| --- | --- | --- | --- | --- |")
        for case, peer, ratio in losses:
            print(f"| `{case['problem']}` | `{case['kernel']}` | {case['seconds'] * 1e6:.2f} us | "
                  f"{peer['seconds'] * 1e6:.2f} us ({peer['how']}) | {ratio:.2f}x |")
    if options.json:
        options.json.write_text(json.dumps(reports), encoding="ascii")


if __name__ == "__main__":
    main()
