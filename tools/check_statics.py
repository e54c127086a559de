#!/usr/bin/env python3
"""Checks that no static of the library has a destructor: check_statics.py BUILD

Threads of a program may use the library while the program ends. libtessera.so drops what would
destroy a static (src/tessera/never_destroyed.cc), for the sake of headers of other libraries; the
static library drops nothing. So the objects are looked at. Prints one line per finding and exits 1
if there is any.
"""
import pathlib
import subprocess
import sys

# CLI11's header defines constants with destructors in every file that includes it. Nothing uses
# them.
ALLOWED = {"tessera_commands.dir"}


def main():
    folder = pathlib.Path(sys.argv[1]) / "src/CMakeFiles"
    objects = sorted(path for path in folder.glob("tessera_*.dir/**/*.o")
                     if not ALLOWED.intersection(path.parts))
    findings = []
    for path in objects:
        undefined = subprocess.run(["nm", "--undefined-only", path], check=True,
                                   capture_output=True, text=True).stdout.split()
        if "__cxa_atexit" in undefined:
            findings.append(f"{path.relative_to(folder)}: has a static with a destructor; see "
                            "base/forever.h")
    for finding in findings:
        print(finding)
    print(f"statics: {len(objects)} objects, {len(findings)} findings")
    sys.exit(1 if findings or not objects else 0)


if __name__ == "__main__":
    main()
