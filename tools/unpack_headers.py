#!/usr/bin/env python3
"""Unpacks include/ck_tile and the licence of a package's folder: unpack_headers.py WHEEL FOLDER TO.

Files are written under TO as they lie under FOLDER in the wheel. Exits 1 if there are none.
"""
import pathlib
import sys
import zipfile


def main(wheel, folder, to):
    prefixes = (f"{folder}/include/ck_tile/", f"{folder}/LICENSE")
    written = 0
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            if not name.startswith(prefixes) or name.endswith("/"):
                continue
            path = pathlib.Path(to) / pathlib.PurePosixPath(name).relative_to(folder)
            if ".." in path.parts:
                sys.exit(f"unpack_headers: {wheel} names a file outside of its folder: {name}")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(archive.read(name))
            written += 1
    if written == 0:
        sys.exit(f"unpack_headers: {wheel} has no headers in {folder}/include/ck_tile")
    print(f"unpack_headers: {written} files in {to}")


if __name__ == "__main__":
    main(*sys.argv[1:])
