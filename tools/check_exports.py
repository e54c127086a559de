#!/usr/bin/env python3
"""Checks that libtessera.so exports what tessera.hpp declares, and nothing else.

    check_exports.py LIBRARY           compares it with tests/golden/exported_symbols.txt
    check_exports.py LIBRARY --write   writes the lists anew

tests/golden/public_headers.txt lists the headers that tessera.hpp brings along. They give their
namespaces the visibility "default", and no other header does.
Weak symbols are looked at only where they describe types, by which exceptions are caught: compilers
keep as they like what is inline, of a template or of std.
Prints one line per finding and exits 1 if there is any.
"""
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
LIST = "tests/golden/exported_symbols.txt"
HEADERS = "tests/golden/public_headers.txt"
PUSH = "#pragma GCC visibility push(default)\nnamespace tessera"
POP = "#pragma GCC visibility pop\n"
# Shorter names of types: those that change with every operation, and those that everybody knows.
SHORTER = [
    (re.compile(r"std::variant<tessera::Gemm(\w+)[^<>]*>"), r"tessera::\1"),
    (re.compile(r"std::basic_string_view<char, std::char_traits<char> ?>"), "std::string_view"),
    (re.compile(r"std::(__cxx11::)?basic_string<char, std::char_traits<char>, "
                r"std::allocator<char> ?>"), "std::string"),
    (re.compile(r", 18446744073709551615ul>"), ">"),
    (re.compile(r"\[abi:cxx11\]|__cxx11::"), ""),
    (re.compile(r" >"), ">"),
]


def public_headers(root):
    """tessera.hpp and the headers that it includes, directly and through others."""
    found, left = set(), [root / "include/tessera/tessera.hpp"]
    while left:
        header = left.pop()
        if header in found:
            continue
        found.add(header)
        for name in re.findall(r'^#include "(tessera/[^"]+)"$', header.read_text(encoding="ascii"),
                               re.MULTILINE):
            left.append(root / "src" / name)
    return found


def check_headers(root):
    """Sentences on headers whose namespaces are exported and should not be, and the reverse."""
    public, findings = public_headers(root), []
    for header in sorted(root.glob("src/tessera/**/*.h")):
        path = header.relative_to(root)
        text = header.read_text(encoding="ascii")
        exports = text.count(PUSH) == 1 and text.endswith(POP)
        if header in public and not exports:
            findings.append(f"{path}: tessera.hpp brings it along, so that its namespace stands "
                            f"between '{PUSH.split(chr(10))[0]}' and '{POP.strip()}'")
        if header not in public and PUSH in text:
            findings.append(f"{path}: tessera.hpp does not bring it along, so that it changes no "
                            "visibility")
    return findings


def exported(library):
    """The names that a library exports, as in the list."""
    lines = subprocess.run(["nm", "-D", "-C", "--defined-only", library], check=True,
                           capture_output=True, text=True).stdout.splitlines()
    names = set()
    for line in lines:
        _, kind, name = line.split(" ", 2)
        if kind in "WVu" and not re.fullmatch(r"typeinfo for tessera::[\w:]+", name):
            continue
        for pattern, shorter in SHORTER:
            name = pattern.sub(shorter, name)
        names.add(name)
    return names


def listed_headers(root):
    """The headers that tessera.hpp brings along, as includes name them."""
    return {str(header.relative_to(root / ("include" if header.suffix == ".hpp" else "src")))
            for header in public_headers(root)}


def compare_headers(headers, listed):
    """Sentences on headers that come with tessera.hpp and are not listed, and the reverse."""
    return ([f"{header}: tessera.hpp brings it along, but {HEADERS} does not list it"
             for header in sorted(headers - listed)]
            + [f"{header}: {HEADERS} lists it, but tessera.hpp does not bring it along"
               for header in sorted(listed - headers)])


def compare(names, listed):
    """Sentences on names that are exported and not listed, and the reverse."""
    return ([f"{name}: is exported, but {LIST} does not list it" for name in sorted(names - listed)]
            + [f"{name}: {LIST} lists it, but it is not exported" for name in
               sorted(listed - names)])


def main():
    found = {LIST: exported(sys.argv[1]), HEADERS: listed_headers(ROOT)}
    listed = {}
    for path, names in found.items():
        if sys.argv[2:] == ["--write"]:
            (ROOT / path).write_text("".join(f"{name}\n" for name in sorted(names)),
                                     encoding="ascii")
        listed[path] = set((ROOT / path).read_text(encoding="ascii").splitlines())
    findings = (check_headers(ROOT) + compare(found[LIST], listed[LIST])
                + compare_headers(found[HEADERS], listed[HEADERS]))
    for finding in findings:
        print(finding)
    print(f"exports: {len(found[LIST])} names, {len(found[HEADERS])} headers, "
          f"{len(findings)} findings")
    sys.exit(1 if findings else 0)


if __name__ == "__main__":
    main()
