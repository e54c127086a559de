"""One OpenMP library in a process: the one that is there, or that PyTorch will bring.

libtessera.so needs libgomp.so.1. The loader gives it one of that name that is loaded, whoever
brought it. A package's own may bear another name (libgomp-a34b3233.so.1), which the loader takes
for another library. Its functions are then made visible to all, where they are found first.
"""
from __future__ import annotations

import ctypes
import importlib.util
import os
import pathlib
import re
from typing import List

NAME = "libgomp.so.1"
_RENAMED = re.compile(r"libgomp-[^/]*\.so[^/]*$")


def loaded() -> List[str]:
    """The files of GNU's OpenMP library that this process has loaded, where /proc can say it."""
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as maps:
            files = [line.rstrip("\n").partition("/") for line in maps]
    except OSError:
        return []
    found = ["/" + file for _, _, file in files if os.path.basename(file).startswith("libgomp")]
    return list(dict.fromkeys(found))


def _of_torch() -> List[str]:
    """A renamed one in an installed PyTorch, which is not imported for that."""
    spec = importlib.util.find_spec("torch")
    folders = [pathlib.Path(place) for place in (spec and spec.submodule_search_locations) or ()]
    return [str(file) for folder in folders for place in (folder / "lib", f"{folder}.libs")
            for file in sorted(pathlib.Path(place).glob("libgomp-*.so*"))]


def share() -> None:
    """Called before the library is loaded. Where no OpenMP library is loaded, PyTorch's renamed one
    is, then the system's; without both the loader takes the one beside the library."""
    files = loaded()
    renamed = [file for file in files if _RENAMED.search(file)]
    renamed.sort(key=lambda file: "/torch" not in file)
    if not files:
        renamed = _of_torch()
    if renamed:
        ctypes.CDLL(renamed[0], mode=os.RTLD_GLOBAL)
        return
    try:
        ctypes.CDLL(NAME)
    except OSError:
        pass  # the system has none
