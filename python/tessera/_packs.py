"""Packs of kernels that other packages bring, such as tessera-cubins-sm90a.

An entry point of the group tessera.packs names a package, whose folder holds files *.pack. The
package is not imported. Entry points are read as installers write them, because the standard
library's reader takes 30 ms.
"""
from __future__ import annotations

import configparser
import importlib.util
import os
import sys
from typing import Iterator, List

GROUP = "tessera.packs"


def _texts() -> Iterator[str]:
    """The entry points of every installed package that may have some of the group."""
    for place in sys.path:
        try:
            installed = [entry.path for entry in os.scandir(place or ".")
                         if entry.name.endswith((".dist-info", ".egg-info"))]
        except OSError:  # an archive, or nothing
            continue
        for folder in sorted(installed):
            try:
                with open(os.path.join(folder, "entry_points.txt"), encoding="utf-8") as file:
                    text = file.read()
            except (OSError, UnicodeDecodeError):
                continue
            if f"[{GROUP}]" in text:
                yield text


def folders() -> List[str]:
    """The folders of the packages that entry points name, in the order of sys.path."""
    found: List[str] = []
    for text in _texts():
        parser = configparser.ConfigParser(delimiters=("=",), interpolation=None)
        try:
            parser.read_string(text)
            names = [value.strip() for value in dict(parser.items(GROUP)).values()]
            specs = [importlib.util.find_spec(name) for name in names if name.isidentifier()]
        except (configparser.Error, ImportError, ValueError):
            continue  # a package that is damaged or half removed brings nothing
        for spec in specs:
            found += (spec and spec.submodule_search_locations) or []
    return list(dict.fromkeys(found))
