#!/usr/bin/env python3
"""Measures the steps of docs/ladder/ and fills the tables of all its pages: one command.

It takes two minutes where nothing else runs, as it should be. It also writes the
date and the commit, and says what of the pages to read again. With SAVED, a file that holds what
the programs printed earlier, nothing is measured.

usage: ladder_tables.py BUILD [SAVED]      such as: bench/ladder_tables.py build/release
"""
import datetime
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGES = sorted((ROOT / "docs/ladder").glob("*.md"))
RUNS = (("9", "96", "384", "768"), ("5", "1001"), ("5", "1536"))  # rounds, sizes
SIZES = [size for run in RUNS for size in run[1:]]


def measured(build):
    """What the programs print, shown as it comes."""
    text = ""
    for run in RUNS:
        found = subprocess.run([build / "examples/example_ladder_measure", *run], text=True,
                               stdout=subprocess.PIPE, check=True)
        print(found.stdout, flush=True)
        text += found.stdout
    return text


def rows_of(text):
    """{name of a step: {size: figures}}."""
    rows = {}
    for block in text.split("\n| size ")[1:]:
        size = block.split()[0]
        for name, figures in re.findall(r"^\| ([^|-]+?) \| ([\d.]+ \([^|]+\)) \|$", block,
                                        re.MULTILINE):
            rows.setdefault(name.replace("_", " "), {})[size] = figures
    return rows


def filled(page, rows, date, commit):
    """A page with the figures of `rows`, and the date where a line says how they were taken."""
    lines = []
    for line in page.splitlines():
        name = re.match(r"\| ([^|]+?) \|", line)
        if name and name[1] in rows:
            line = f"| {name[1]} | " + " | ".join(rows[name[1]].get(s, "-") for s in SIZES) + " |"
        if line.startswith("GFLOP/s, medians"):
            line = re.sub(r"\d{4}-\d\d-\d\d(, [0-9a-f]{7,})?",
                          lambda found: date + (f", {commit}" if found[1] else ""), line)
        lines.append(line)
    return "\n".join(lines) + "\n"


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    text = pathlib.Path(sys.argv[2]).read_text() if sys.argv[2:] else measured(
        pathlib.Path(sys.argv[1]).resolve())
    rows = rows_of(text)
    if len(rows) < 10 or any(size not in rows["01 naive"] for size in SIZES):
        sys.exit(f"ladder_tables: 10 rows with {len(SIZES)} sizes are wanted, got {len(rows)}")
    commit = subprocess.run(["git", "rev-parse", "--short=8", "HEAD"], cwd=ROOT, text=True,
                            capture_output=True, check=True).stdout.strip()
    for page in PAGES:
        page.write_text(filled(page.read_text(), rows, str(datetime.date.today()), commit))
    print(f"The pages have the figures of {len(rows)} rows. Read again what they say about them: "
          "docs/ladder/README.md names the processor, its peak (tessera bench peak --threads 1) "
          f"and what else ran (the load is {os.getloadavg()[0]:.1f} now); steps 4, 5, 6 and 7 "
          "compare rows in words.")


if __name__ == "__main__":
    main()
