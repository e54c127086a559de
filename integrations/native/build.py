"""Compiles a plug's C++ files into a shared library over libtessera.so, once for each text."""
from __future__ import annotations

import ctypes
import hashlib
import os
import pathlib
import subprocess
import tempfile
from typing import Sequence

_HERE = pathlib.Path(__file__).resolve().parent
_INCLUDE = _HERE.parent.parent / "include"


def library() -> pathlib.Path:
    """libtessera.so: TESSERA_LIBRARY, or the one of the installed package, or the checkout's."""
    named = os.environ.get("TESSERA_LIBRARY")
    if named:
        return pathlib.Path(named).resolve()
    import tessera
    package = pathlib.Path(tessera.__file__).resolve().parent
    places = (package / "lib/libtessera.so.0",
              package.parents[1] / "build/release/src/libtessera.so.0")
    for place in places:
        if place.is_file():
            return place
    raise FileNotFoundError("libtessera.so.0 was found at none of: " + ", ".join(map(str, places)))


def build(sources: Sequence[pathlib.Path], includes: Sequence[str] = ()) -> pathlib.Path:
    """The shared library of C++ files, which CXX compiles, or c++. It lies in
    TESSERA_PLUG_DIR, or in a folder of the user's cache, and is made again where a source, the
    folders or libtessera's place differ. Raises RuntimeError with the compiler's output."""
    tessera_library = library()
    ctypes.CDLL(str(tessera_library), mode=ctypes.RTLD_GLOBAL)
    command = [os.environ.get("CXX", "c++"), "-std=c++17", "-O2", "-shared", "-fPIC",
               "-fvisibility=hidden", f"-I{_INCLUDE}", f"-I{_HERE}",
               *[f"-I{folder}" for folder in includes], *map(str, sources),
               str(tessera_library), f"-Wl,-rpath,{tessera_library.parent}"]
    headers = [*_HERE.glob("*.h"), *sources[0].parent.glob("*.h")]
    texts = [path.read_bytes() for path in (*sources, *sorted(headers))]
    texts.append(repr(command).encode())
    digest = hashlib.sha256(bytes(1).join(texts)).hexdigest()[:16]
    name = f"{sources[0].stem}-{digest}.so"
    folder = pathlib.Path(os.environ.get("TESSERA_PLUG_DIR") or
                          pathlib.Path.home() / ".cache/tessera/plugs")
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    _check_own(folder)
    if not (folder / name).is_file():
        _compile(command, folder / name)
    return folder / name


def _check_own(folder: pathlib.Path) -> None:
    """A library in a folder that others write would run as this user."""
    found = folder.stat()
    if found.st_uid != os.getuid() or found.st_mode & 0o022:
        raise PermissionError(f"{folder} belongs to or may be written by others; name another "
                              "folder by TESSERA_PLUG_DIR, or take their rights away")


def _compile(command: Sequence[str], made: pathlib.Path) -> None:
    """Into a file beside it first, so that no other process loads half a library."""
    with tempfile.TemporaryDirectory(dir=made.parent) as folder:
        part = pathlib.Path(folder) / made.name
        run = subprocess.run([*command, "-o", str(part)], capture_output=True, text=True)
        if run.returncode != 0:
            raise RuntimeError(f"{made.name} could not be compiled:\n{run.stderr}")
        part.replace(made)
