#!/usr/bin/env python3
"""Checks budgets, what users of the API may include, ASCII, and words that do not belong.

Prints one line per finding and exits 1 if there is any. Takes no arguments.
"""
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
CODE = {".h", ".hpp", ".cc", ".cpp", ".py", ".cmake"}
MAX_FILE, MAX_HEADER, MAX_DEVICE_FILE = 600, 250, 400
MAX_FUNCTION, MAX_LINE = 80, 100

# What holds on one machine only: absolute paths that not every system has, and names of hosts.
# Tests make up the paths that are nowhere; the one host is that of an XML namespace.
SYSTEM = "usr|etc|tmp|dev|proc|sys|opt|lib|lib64|bin|var|run"
MADE_UP = "no|nowhere|elsewhere"
FOREIGN = re.compile(rf"(?<![\w.)}}*$>/-])/(?!(?:{SYSTEM}|{MADE_UP})/)[a-z][\w.-]*/"
                     r"|(?<![\w.-])(?!www\.w3\.org\b)(?:[a-z0-9-]+\.)+(?:org|com|net|io)\b")

findings = []


def report(path, line, text):
    findings.append(f"{path}:{line}: {text}")


def check_public_only(path, lines):
    """The command line, the peers and the examples know the public headers only."""
    if not path.startswith(("cli/", "peers/", "examples/")):
        return
    for number, line in enumerate(lines, 1):
        match = re.match(r'#include [<"](tessera/[^">]+)[">]', line)
        if match and match.group(1) not in ("tessera/tessera.hpp", "tessera/tessera.h"):
            report(path, number, f"may include tessera/tessera.hpp only, got {match.group(1)}")


def check_functions(path, lines):
    """A definition starts on a line that ends in '{' and ends at the brace of the same indent."""
    no_definition = (r"\}|\{|\[|:|if|for|while|switch|namespace|struct|class|enum|union|else|do\b|"
                     r"extern|return|case|#|//")
    start = re.compile(rf"^( *)(?=\S)(?!{no_definition})[^;=]*\)[^;=]*\{{$")
    number = 0
    while number < len(lines):
        match = start.match(lines[number])
        if match and len(match.group(1)) <= 4:
            close = match.group(1) + "}"
            end = number + 1
            while end < len(lines) and not lines[end].startswith(close):
                end += 1
            if end - number + 1 > MAX_FUNCTION:
                report(path, number + 1,
                       f"function of {end - number + 1} lines, the limit is {MAX_FUNCTION}")
        number += 1


def check_file(path):
    text = (ROOT / path).read_bytes()
    name = pathlib.PurePosixPath(path)
    if name.suffix in (".png", ".gz", ".npy", ".parquet"):
        return
    try:
        lines = text.decode("ascii").split("\n")
    except UnicodeDecodeError as error:
        report(path, text[:error.start].count(b"\n") + 1, "is not ASCII")
        return
    for number, line in enumerate(lines if name.name != ".gitignore" else [], 1):
        match = FOREIGN.search(line)
        if match:
            report(path, number, f"'{match.group(0)}' does not belong in the project")
    if name.suffix not in CODE:
        return
    limit = MAX_FILE
    if name.suffix in (".h", ".hpp"):
        limit = MAX_DEVICE_FILE if path.startswith("src/tessera/device/") else MAX_HEADER
    count = len(lines) - 1
    if count > limit:
        report(path, count, f"file of {count} lines, the limit is {limit}")
    for number, line in enumerate(lines, 1):
        if len(line) > MAX_LINE:
            report(path, number, f"line of {len(line)} columns, the limit is {MAX_LINE}")
    if name.suffix in (".h", ".hpp", ".cc", ".cpp"):
        check_public_only(path, lines)
        check_functions(path, lines)


def main():
    listed = subprocess.run(["git", "-C", str(ROOT), "ls-files", "-co", "--exclude-standard"],
                            check=True, capture_output=True, text=True).stdout.split("\n")
    paths = [p for p in listed if p and (ROOT / p).is_file()]
    for path in paths:
        check_file(path)
    for finding in findings:
        print(finding)
    print(f"style: {len(paths)} files, {len(findings)} findings")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
