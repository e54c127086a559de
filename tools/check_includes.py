#!/usr/bin/env python3
"""Checks the include table against the files that the compiler read for each object.

    check_includes.py BUILD                       every object of a build folder made with Ninja
    check_includes.py BUILD --depfile LIBRARY F   the objects of one file that g++ -MD wrote

BUILD/include_table.txt, which CMake writes, says which folders of src/tessera/ each library may
read: its own, the folders after DEPENDS, and what those depend on. Prints one line per finding and
exits 1 if there is any.
"""
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
SOURCE = str(ROOT / "src/tessera") + "/"
# The one file that may name every family, and the folder that holds the families.
FAMILY_LIST, FAMILIES = "families/families.cc", "families/"


def read_table(build):
    table = {}
    for line in (build / "include_table.txt").read_text(encoding="ascii").splitlines():
        library, folders = line.split(":")
        table[library] = folders.split()
    return table


def folder_of(path, folders):
    """The longest folder of the table that the path below src/tessera/ lies in."""
    return max((f for f in folders if path.startswith(f + "/")), key=len, default=None)


def depfile_rules(text):
    """{object: [files]} from the text that -MD writes."""
    rules = {}
    for line in text.replace("\\\n", " ").splitlines():
        target, colon, files = line.partition(":")
        if colon:
            rules[target.strip()] = files.split()
    return rules


def ninja_rules(build):
    """The same for every object that Ninja has compiled."""
    text = subprocess.run(["ninja", "-C", str(build), "-t", "deps"], check=True,
                          capture_output=True, text=True).stdout
    rules, current = {}, None
    for line in text.splitlines():
        if not line.startswith(" "):
            target, colon, _ = line.partition(": #deps")
            current = rules.setdefault(target, []) if colon else None
        elif current is not None:
            current.append(line.strip())
    return rules


def findings_of(library, files, allowed, folders):
    """A sentence for each file of src/tessera/ that the library's object read but may not read."""
    own = [f[len(SOURCE):] for f in files if f.startswith(SOURCE)]
    lists_families = FAMILY_LIST in own
    for path in own:
        folder = folder_of(path, folders)
        if folder in allowed or (lists_families and path.startswith(FAMILIES)):
            continue
        yield (f"{library} reads {path}: it may read {', '.join(sorted(allowed))} only; "
               "DEPENDS in src/CMakeLists.txt says so")


def check(build, rules):
    table = read_table(build)
    folders = {folder for allowed in table.values() for folder in allowed}
    found, objects = set(), 0
    for target, files in rules.items():
        library = re.match(r"src/CMakeFiles/(\w+)\.dir/", target)
        if library is None or library.group(1) not in table:
            continue
        objects += 1
        found.update(findings_of(library.group(1), files, table[library.group(1)], folders))
    return sorted(found), objects


def main(arguments):
    if len(arguments) not in (1, 4) or (len(arguments) == 4 and arguments[1] != "--depfile"):
        print(__doc__, file=sys.stderr)
        return 2
    build = pathlib.Path(arguments[0]).resolve()
    if len(arguments) == 4:
        text = pathlib.Path(arguments[3]).read_text(encoding="ascii")
        rules = {f"src/CMakeFiles/{arguments[2]}.dir/{target}": files
                 for target, files in depfile_rules(text).items()}
    else:
        rules = ninja_rules(build)
    findings, objects = check(build, rules)
    print(*findings, sep="\n", end="\n" if findings else "")
    print(f"includes: {objects} objects, {len(findings)} findings")
    return 1 if findings or objects == 0 else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
