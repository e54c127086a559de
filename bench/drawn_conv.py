"""Convolutions of published nets, drawn by a seed, beside other libraries.

    python3 bench/drawn_conv.py --seed 7 --list
    python3 bench/drawn_conv.py --seed 7 [--count 24] [--batches 1 16] [--kinds grouped stem]
                                [--domains speech] [--nets yolov8m] [--directions forward]
                                [--target sm90a] [--peers cudnn] [--part 1/4] [--json FILE]
    python3 bench/drawn_conv.py --seed 7 --read FILE...

Draws `count` layers for each direction from data/nets/convolutions.txt, with every batch each. A
net is as likely as any other, and so is each of its layers. The nets are the unseen ones, without
the layers that learned nets have too; --nets and --side draw from others. The same seed draws the
same problems everywhere. --list prints them as a shape file. Otherwise `tessera bench conv`
measures them, and tables say the geometric mean and the least ratio of the best peer's time and
ours, and every loss; above 1, Tessera is faster. --part measures each Nth problem, so that a run
is short; --read prints the tables of all parts, and of what a part that was stopped had measured.
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
LAYERS = ROOT / "data/nets/convolutions.txt"
DIRECTIONS = ("forward", "backward_data", "backward_weight")
KINDS = ("dense", "pointwise", "grouped", "depthwise", "stem")
# Problems that a benchmark need not run: bytes of x, w and y in two bytes an element.
MOST_BYTES = 2.0**32
TOGETHER = 8  # problems that one process measures


class Layer:
    """A layer by the words of a problem's line, less direction and n."""

    def __init__(self, words):
        self.words = words
        self.fields = {key: int(value) for key, value in (w.split("=") for w in words.split())}

    def get(self, key, default=1):
        return self.fields.get(key, default)

    @property
    def kind(self):
        """The word that labels such a problem in reports; see families/conv/facts.cc."""
        groups = self.get("g")
        if groups > 1:
            return "depthwise" if groups == self.get("c") else "grouped"
        steps = ("z", "y", "x", "stride_d", "stride_h", "stride_w")
        pads = [key for key in self.fields if key.startswith("pad_")]
        if all(self.get(key) == 1 for key in steps) and not any(map(self.get, pads)):
            return "pointwise"
        return "stem" if self.get("c") <= 4 else "dense"

    def sizes(self):
        """Elements of x and y of an image, and of w."""
        pixels, results, area = 1, 1, 1
        for size, filter_size in zip("dhw", "zyx"):
            pad = self.get(f"pad_{size}", 0)
            padded = self.get(size) + pad + self.get(f"pad_right_{size}", pad)
            extent = self.get(f"dilation_{size}") * (self.get(filter_size) - 1) + 1
            pixels *= self.get(size)
            results *= (padded - extent) // self.get(f"stride_{size}") + 1
            area *= self.get(filter_size)
        filters = self.get("k") * self.get("c") // self.get("g") * area
        return pixels * self.get("c"), results * self.get("k"), filters, results * filters

    def fits(self, batch, operations):
        x, y, filters, products = self.sizes()
        return (2 * (batch * (x + y) + filters) <= MOST_BYTES
                and 2 * batch * products <= operations)


def read_nets(path):
    """Dictionaries with a net's name, domain, side and layers."""
    nets = []
    for line in path.read_text(encoding="ascii").splitlines():
        words = line.split()
        if not words or words[0] == "#":
            continue
        if words[0] == "net":
            nets.append({"name": words[1], "domain": words[2], "side": words[3], "layers": []})
        else:
            nets[-1]["layers"].append(Layer(line[line.index("c="):]))
    return nets


def chosen_nets(options):
    """The nets to draw from, each with the layers that are of the kinds and of its side alone."""
    nets = read_nets(options.layers)
    learned = {layer.words for net in nets if net["side"] == "learned" for layer in net["layers"]}
    known = {net["name"] for net in nets}
    for name in options.nets or []:
        if name not in known:
            sys.exit(f"drawn_conv: there is no net '{name}' in {options.layers}")
    chosen = []
    for net in nets:
        if net["domain"] == "none" or options.domains and net["domain"] not in options.domains:
            continue
        if net["name"] not in options.nets if options.nets else net["side"] != options.side:
            continue
        shared = learned if net["side"] == "unseen" and not options.shared else set()
        layers = [layer for layer in net["layers"]
                  if layer.kind in options.kinds and layer.words not in shared
                  and any(layer.fits(n, options.most_operations) for n in options.batches)]
        if layers:
            chosen.append((net["name"], layers))
    return chosen


def drawn(direction, options):
    """Pairs of a net's name and a layer; no layer comes twice."""
    generator = random.Random(f"{options.seed} {direction}")
    left = {name: list(layers) for name, layers in chosen_nets(options)}
    layers, taken = [], set()
    while left and len(layers) < options.count:
        name = generator.choice(sorted(left))
        layer = left[name].pop(generator.randrange(len(left[name])))
        if not left[name]:
            del left[name]
        if layer.words not in taken:
            taken.add(layer.words)
            layers.append((name, layer))
    return layers


def problems(options):
    """(net, kind, batch, line as `tessera bench` reads it), the directions one after the other."""
    rows = []
    for direction in options.directions:
        for name, layer in drawn(direction, options):
            for batch in options.batches:
                if not layer.fits(batch, options.most_operations):
                    continue
                rows.append({"net": name, "kind": layer.kind, "batch": batch,
                             "direction": direction,
                             "line": f"conv direction={direction} n={batch} {layer.words} "
                                     f"dtype={options.dtype} layout={options.layout}"})
    return rows


def measured(options, rows):
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "drawn.txt")
        path.write_text("".join(row["line"] + "\n" for row in rows), encoding="ascii")
        command = [options.program, "bench", "conv", "--shapes", path, "--peers", *options.peers,
                   "--threads", str(options.threads), "--rounds", options.rounds,
                   "--min-seconds", options.min_seconds,
                   "--peer-seconds", options.peer_seconds, "--json"]
        if options.target:
            command += ["--target", options.target, "--device", options.device]
        answer = subprocess.run(list(map(str, command)), capture_output=True, text=True,
                                check=False)
    if answer.returncode != 0:
        sys.exit(answer.stderr.strip() or answer.stdout.strip())
    cases = json.loads(answer.stdout)["cases"]
    if len(cases) != len(rows):
        sys.exit(f"drawn_conv: {len(rows)} problems, but {len(cases)} were measured")
    return cases


def measure(options, rows):
    """Measures a few problems at a time, so that the file holds what there was time for."""
    part = {"seed": options.seed, "part": options.part, "problems": [], "cases": []}
    for begin in range(0, len(rows), TOGETHER):
        few = rows[begin:begin + TOGETHER]
        part["cases"] += measured(options, few)
        part["problems"] += few
        if options.json:
            options.json.write_text(json.dumps(part), encoding="ascii")
    return part


def best_peer(case):
    """The fastest way of any peer that gets operands as we do, not packed before."""
    fair = [peer for peer in case["peers"] if not peer["peer"].endswith("_packed")]
    return min(fair, key=lambda peer: peer["seconds"], default=None)


def geomean(values):
    return math.exp(sum(map(math.log, values)) / len(values)) if values else float("nan")


def print_row(name, rows):
    if not rows:
        return
    ratios = [row["ratio"] for row in rows]
    least = min(rows, key=lambda row: row["ratio"])
    print(f"| {name} | {len(rows)} | {geomean(ratios):.3f}x | {least['ratio']:.2f}x | "
          f"{sum(ratio < 1 for ratio in ratios)} | {sum(ratio < 0.8 for ratio in ratios)} | "
          f"{least['net']} |")


def print_tables(rows):
    print("| direction | kind | n | problems | geometric mean | least | losses | below 0.80x | "
          "the least is of |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    for direction in DIRECTIONS:
        of_direction = [row for row in rows if row["direction"] == direction]
        batches = sorted({row["batch"] for row in of_direction})
        for kind in ("all", *KINDS):
            of_kind = [row for row in of_direction if kind in ("all", row["kind"])]
            for batch in batches:
                print_row(f"{direction} | {kind} | {batch}",
                          [row for row in of_kind if row["batch"] == batch])
            if len(batches) > 1:
                print_row(f"{direction} | {kind} | all", of_kind)
    losses = sorted((row for row in rows if row["ratio"] < 1), key=lambda row: row["ratio"])
    print(f"\n{len(losses)} losses:\n")
    print("| net | problem | kernel | ours | peer | ratio |\n| --- | --- | --- | --- | --- | --- |")
    for row in losses:
        print(f"| {row['net']} | `{row['line']}` | `{row['kernel']}` | "
              f"{row['seconds'] * 1e6:.2f} us | {row['peer_seconds'] * 1e6:.2f} us "
              f"({row['how']}) | {row['ratio']:.2f}x |")


def results_of(parts):
    """A row for each problem that a peer ran; says which problems none ran."""
    results = []
    for part in parts:
        for row, case in zip(part["problems"], part["cases"]):
            peer = best_peer(case)
            if peer is None:
                print(f"No peer ran `{row['line']}`.")
                continue
            results.append({**row, "kernel": case["kernel"], "seconds": case["seconds"],
                            "peer_seconds": peer["seconds"], "how": peer["how"],
                            "ratio": peer["ratio"]})
    return results


def part_of(rows, part):
    number, _, count = part.partition("/")
    number, count = (int(word) if word.isdigit() else 0 for word in (number, count))
    if not 1 <= number <= count:
        sys.exit(f"drawn_conv: --part must be 1/N to N/N, got {part}")
    return rows[number - 1::count]


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", required=True)
    parser.add_argument("--count", type=int, default=24, help="layers of each direction")
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 16])
    parser.add_argument("--directions", nargs="+", default=DIRECTIONS, choices=DIRECTIONS)
    parser.add_argument("--kinds", nargs="+", default=KINDS, choices=KINDS)
    parser.add_argument("--side", default="unseen", choices=["learned", "unseen"])
    parser.add_argument("--shared", action="store_true",
                        help="layers of unseen nets that learned nets have too")
    parser.add_argument("--domains", nargs="+", help="such as speech; left out: all")
    parser.add_argument("--nets", nargs="+", help="these nets alone, of either side")
    parser.add_argument("--layers", type=pathlib.Path, default=LAYERS)
    parser.add_argument("--most-operations", type=float, default=2.0**42,
                        help="problems of more are left out, such as 4e9 on a CPU")
    parser.add_argument("--dtype", default="bf16")
    parser.add_argument("--layout", default="nhwgc")
    parser.add_argument("--list", action="store_true", help="print the problems, measure nothing")
    parser.add_argument("--read", type=pathlib.Path, nargs="+", help="files of --json")
    parser.add_argument("--part", default="1/1")
    parser.add_argument("--target", help="a machine's row; this machine's CPU if left out")
    parser.add_argument("--device", type=int, default=0, help="which GPU")
    parser.add_argument("--peers", nargs="+", default=["onednn"])
    parser.add_argument("--peer-seconds", type=float, default=0)
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--min-seconds", type=float, default=0.002)
    parser.add_argument("--program", default=ROOT / "build/release/bin/tessera")
    parser.add_argument("--json", type=pathlib.Path, help="where the part's report goes")
    return parser.parse_args()


def main():
    options = arguments()
    if options.read:
        parts = [json.loads(path.read_text(encoding="ascii")) for path in options.read]
        return print_tables(results_of(parts))
    rows = part_of(problems(options), options.part)
    if options.list:
        print(f"# {len(rows)} problems of nets' layers, seed {options.seed}")
        for row in rows:
            print(f"{row['line']}  # {row['kind']} of {row['net']}")
        return None
    return print_tables(results_of([measure(options, rows)]))


if __name__ == "__main__":
    main()
