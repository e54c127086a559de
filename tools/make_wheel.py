#!/usr/bin/env python3
"""Makes wheels of a build that is there already: make_wheel.py BUILD OUTPUT

tessera: the component `python` of the build and python/tessera. Where the build links for older
systems (cmake/wheel.cmake), an OpenMP library and licences are added, and auditwheel checks the
result and names the oldest system that runs it.
tessera-cubins-sm90a, tessera-code-objects: a pack of kernels for GPUs each, which the library finds
by an entry point (python/tessera/_packs.py).

Needs packages of the Python that runs it: auditwheel, patchelf and pykdtree, whose OpenMP library
is AlmaLinux's and runs on glibc 2.17 or newer.
"""
import base64
import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import zipfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
NEEDED = ("_fast.abi3.so", "lib/libtessera.so.0", "lib/tessera-worker", "lib/essential.pack")
OLDEST = "manylinux_2_28_x86_64"
# The pack's file: the wheel, the word of the extra that brings it, what it holds.
PACKS = {
    "cubins": ("tessera-cubins-sm90a", "hopper", "Tessera's kernels for NVIDIA Hopper, built"),
    "code_objects": ("tessera-code-objects", "cdna", "Tessera's kernels for AMD CDNA, built"),
}
# Debian's packages whose code the library holds, or whose licence that code has.
LICENCES = ("libfmt-dev", "libsqlite3-dev", "zlib1g-dev", "nlohmann-json3-dev", "libcli11-dev",
            "libxxhash-dev", "libgomp1", "libstdc++-12-dev")


def field(name):
    """A field of pyproject.toml's table [project]; Python 3.9 cannot read TOML by itself."""
    text = (ROOT / "pyproject.toml").read_text(encoding="ascii")
    return re.search(rf'^{name} = "([^"]*)"', text, re.MULTILINE).group(1)


def extras():
    """{"ray": ["ray>=2.52"], ...}: the table [project.optional-dependencies]."""
    text = (ROOT / "pyproject.toml").read_text(encoding="ascii")
    table = re.search(r"^\[project.optional-dependencies\]\n((?:\w.*\n)+)", text, re.MULTILINE)
    return {line.split(" = ")[0]: re.findall(r'"([^"]*)"', line.split("#")[0])
            for line in table.group(1).splitlines()}


def metadata(name, summary, needs):
    lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {field('version')}",
             f"Summary: {summary}", f"Requires-Python: {field('requires-python')}", *needs]
    return ("\n".join(lines) + "\n").encode()


def write_wheel(folder, name, tag, files, info):
    """files, info: {the name in the wheel, or in its folder of facts: (bytes, is a program)}"""
    stem = f"{name.replace('-', '_')}-{field('version')}"
    purelib = "true" if tag.endswith("any") else "false"
    wheel = f"Wheel-Version: 1.0\nGenerator: make_wheel\nRoot-Is-Purelib: {purelib}\nTag: {tag}\n"
    info = {**info, "WHEEL": (wheel.encode(), False)}
    files = {**files, **{f"{stem}.dist-info/{key}": value for key, value in info.items()}}
    record = []
    for key, (data, _) in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        record.append(f"{key},sha256={digest},{len(data)}\n")
    record.append(f"{stem}.dist-info/RECORD,,\n")
    files[f"{stem}.dist-info/RECORD"] = "".join(record).encode(), False
    path = pathlib.Path(folder) / f"{stem}-{tag}.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as archive:
        for key, (data, is_program) in files.items():
            entry = zipfile.ZipInfo(key, (1980, 1, 1, 0, 0, 0))
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (0o100755 if is_program else 0o100644) << 16
            archive.writestr(entry, data)
    return path


def installed(build, folder):
    """{the name in the wheel: file}: what the build installs, and the Python of the package."""
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
    return files


def read(path):
    return path.read_bytes(), path.stat().st_mode & 0o111 != 0


def run_tool(*words):
    """Runs a program of this Python's environment, which may use others of it."""
    path = f"{sysconfig.get_path('scripts')}:{os.environ['PATH']}"
    subprocess.run(["env", f"PATH={path}", "SOURCE_DATE_EPOCH=315532800", *words], check=True)


def add_openmp(folder):
    """GNU's OpenMP library by the name that every program asks for, in the folder."""
    packages = pathlib.Path(sysconfig.get_path("purelib"))
    found = sorted(packages.glob("pykdtree.libs/libgomp-*"))
    if len(found) != 1:
        sys.exit(f"wheel: {packages} has {len(found)} libraries pykdtree.libs/libgomp-*, one is "
                 "needed; './dev wheel' installs pykdtree")
    copy = pathlib.Path(folder) / "libgomp.so.1"
    shutil.copyfile(found[0], copy)
    run_tool("patchelf", "--page-size", "4096", "--set-soname", copy.name, str(copy))
    return copy


def licences():
    texts = {name: pathlib.Path(f"/usr/share/doc/{name}/copyright") for name in LICENCES}
    missing = [name for name, path in texts.items() if not path.is_file()]
    if missing:
        sys.exit(f"wheel: no licence of {', '.join(missing)} in /usr/share/doc")
    names = {}  # packages of one source have one text
    for name, path in texts.items():
        names.setdefault(path.read_bytes(), []).append(name)
    return {f"licenses/{'_and_'.join(same)}.txt": (text, False) for text, same in names.items()}


def make_library(files, folder, output):
    """The wheel of the library, without the packs that have wheels of their own."""
    needs = ["Requires-Dist: numpy"]
    for extra, packages in extras().items():
        needs.append(f"Provides-Extra: {extra}")
        needs += [f"Requires-Dist: {package}; extra == '{extra}'" for package in packages]
    info = {"METADATA": (metadata(field("name"), field("description"), needs), False)}
    platform = re.sub(r"[-.]", "_", sysconfig.get_platform())
    tag = f"cp39-abi3-{platform}"
    if b"libfmt.so" in read(files["tessera/lib/libtessera.so.0"])[0]:  # for this system alone
        return write_wheel(output, field("name"), tag, {k: read(p) for k, p in files.items()}, info)
    files = {**files, "tessera/lib/libgomp.so.1": add_openmp(folder)}
    raw = write_wheel(folder, field("name"), tag, {k: read(p) for k, p in files.items()},
                      {**info, **licences()})
    run_tool("auditwheel", "repair", "-z", "9", "--plat", OLDEST, "--only-plat", "--wheel-dir",
             str(output), str(raw))
    return next(output.glob(f"{field('name')}-{field('version')}-cp39-abi3-manylinux*.whl"))


def make_pack(pack, output):
    """The wheel of one pack: data, and the entry point by which it is found."""
    name, extra, summary = PACKS[pack.stem]
    module = name.replace("-", "_")
    needs = [f"Requires-Dist: {field('name')}=={field('version')}"]
    points = f"[tessera.packs]\n{extra} = {module}\n".encode()
    files = {f"{module}/__init__.py": (f'"""{summary}."""\n'.encode(), False),
             f"{module}/{pack.name}": read(pack)}
    info = {"METADATA": (metadata(name, summary, needs), False),
            "entry_points.txt": (points, False)}
    return write_wheel(output, name, "py3-none-any", files, info)


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    build, output = sys.argv[1], pathlib.Path(sys.argv[2])
    output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as extra:
        files = installed(build, folder)
        packs = [files.pop(f"tessera/lib/{pack}.pack", None) for pack in PACKS]
        made = [make_library(files, extra, output)]
        made += [make_pack(pack, output) for pack in packs if pack is not None]
    for path in made:
        print(f"wheel: {path}, {path.stat().st_size / 2**20:.1f} MB")


if __name__ == "__main__":
    main()
