#!/usr/bin/env python3
"""Makes a wheel of a build that is there already: make_wheel.py BUILD OUTPUT

Installs the component `python` of the build, adds python/tessera, and packs both. `pip wheel .`
makes the same wheel, but compiles the whole library in a build of its own first.
"""
import base64
import hashlib
import pathlib
import re
import subprocess
import sys
import sysconfig
import tempfile
import zipfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
NEEDED = ("_fast.abi3.so", "lib/libtessera.so.0", "lib/tessera-worker", "lib/essential.pack")


def field(name):
    """A field of pyproject.toml's table [project]; Python 3.9 cannot read TOML by itself."""
    text = (ROOT / "pyproject.toml").read_text(encoding="ascii")
    return re.search(rf'^{name} = "([^"]*)"', text, re.MULTILINE).group(1)


def metadata():
    lines = ["Metadata-Version: 2.1", f"Name: {field('name')}", f"Version: {field('version')}",
             f"Summary: {field('description')}", f"Requires-Python: {field('requires-python')}",
             "Requires-Dist: numpy", "Provides-Extra: ray",
             "Requires-Dist: ray>=2.52; extra == 'ray'"]
    return "\n".join(lines) + "\n"


def contents(build, folder):
    """{the name in the wheel: (bytes, whether it is a program)}"""
    subprocess.run(["cmake", "--install", build, "--component", "python", "--strip", "--prefix",
                    folder], check=True, stdout=subprocess.DEVNULL)
    files = {path.relative_to(folder).as_posix(): path
             for path in sorted(pathlib.Path(folder).rglob("*")) if path.is_file()}
    missing = [name for name in NEEDED if f"tessera/{name}" not in files]
    if missing:
        sys.exit(f"wheel: {build} has no {', '.join(missing)}; './dev build' makes the library and "
                 "the packs, the extension needs Python's headers (python3-dev)")
    for path in sorted((ROOT / "python/tessera").rglob("*")):
        if path.suffix in (".py", ".pyi") or path.name == "py.typed":
            files[path.relative_to(ROOT / "python").as_posix()] = path
    return {name: (path.read_bytes(), path.stat().st_mode & 0o111 != 0)
            for name, path in files.items()}


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    build, output = sys.argv[1:]
    platform = re.sub(r"[-.]", "_", sysconfig.get_platform())
    tag, stem = f"cp39-abi3-{platform}", f"{field('name')}-{field('version')}"
    with tempfile.TemporaryDirectory() as folder:
        files = contents(build, folder)
    info = f"{stem}.dist-info"
    files[f"{info}/METADATA"] = metadata().encode(), False
    files[f"{info}/WHEEL"] = (f"Wheel-Version: 1.0\nGenerator: make_wheel\n"
                              f"Root-Is-Purelib: false\nTag: {tag}\n").encode(), False
    record = []
    for name, (data, _) in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        record.append(f"{name},sha256={digest},{len(data)}\n")
    record.append(f"{info}/RECORD,,\n")
    files[f"{info}/RECORD"] = "".join(record).encode(), False
    pathlib.Path(output).mkdir(parents=True, exist_ok=True)
    path = pathlib.Path(output) / f"{stem}-{tag}.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as wheel:
        for name, (data, is_program) in files.items():
            entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (0o100755 if is_program else 0o100644) << 16
            wheel.writestr(entry, data)
    print(f"wheel: {path}, {path.stat().st_size / 2**20:.1f} MB")


if __name__ == "__main__":
    main()
