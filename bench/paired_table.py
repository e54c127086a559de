"""Tables of what `tessera bench --json` measured.

    python3 bench/paired_table.py REPORT.json... [--csv]

Prints a Markdown section for each report: the geometric mean and the least ratio to each group of
peers' ways, and every case. With --csv all cases as one table, with the quartiles of the ratios.
A ratio is a peer's time by ours; above 1, Tessera is faster.
"""
import argparse
import csv
import json
import pathlib
import sys


def time_text(seconds):
    return f"{seconds * 1e3:.3g} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.3g} us"


def ratio_text(peer):
    return "-" if peer is None else f"{peer['ratio']:.2f}x" + (" tie" if peer["tie"] else "")


def peers_of(case):
    return {peer["peer"]: peer for peer in case["peers"]}


def print_markdown(name, report):
    means, least = report["summary"]["geomean_vs"], report["summary"]["min_vs"]
    versions = ", ".join(f"{peer} {version}" for peer, version in report["peers"].items())
    print(f"## {name}\n\n{report['machine']}, {versions or 'no peers'}.", end=" ")
    for group in means:
        count = sum(group in peers_of(case) for case in report["cases"])
        print(f"{group}: {means[group]:.3f}x in {count} of {len(report['cases'])} cases, "
              f"{least[group]:.2f}x at least.", end=" ")
    print("\n\n" + " | ".join(["| problem", "kernel", "time", "TFLOP/s", *means]) + " |")
    print("| --- " * (4 + len(means)) + "|")
    for case in report["cases"]:
        ratios = [ratio_text(peers_of(case).get(group)) for group in means]
        print(" | ".join([f"| `{case['problem']}`", f"`{case['kernel']}`",
                          time_text(case["seconds"]), f"{case['gflops'] * 1e-3:.3g}", *ratios])
              + " |")
    for case in report["cases"]:
        for note in case["notes"]:
            print(f"\nNote: `{case['problem']}`: {note}.")
    print()


def print_csv(reports):
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(["report", "problem", "kernel", "chosen_by", "seconds", "spread", "peer", "how",
                     "peer_seconds", "ratio", "ratio_low", "ratio_high"])
    for name, report in reports:
        for case in report["cases"]:
            ours = [name, case["problem"], case["kernel"], case["source"], case["seconds"],
                    case["spread"]]
            for peer in case["peers"] or [None]:
                keys = ("peer", "how", "seconds", "ratio", "ratio_low", "ratio_high")
                writer.writerow(ours + [peer[key] if peer else "" for key in keys])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("reports", nargs="+", type=pathlib.Path)
    parser.add_argument("--csv", action="store_true")
    options = parser.parse_args()
    reports = [(path.stem, json.loads(path.read_text())) for path in options.reports]
    if options.csv:
        print_csv(reports)
        return
    for name, report in reports:
        print_markdown(name, report)


if __name__ == "__main__":
    main()
