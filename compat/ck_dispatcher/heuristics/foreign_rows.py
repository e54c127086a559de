"""Measurements in the original's files, converted by `tessera data import`."""
from __future__ import annotations

import pathlib
import tempfile
from typing import Any, Dict, Iterable, List, Optional, Sequence, Tuple

import _paths  # noqa: F401
from tessera import Error
from tessera_ck import scripts as _scripts
from tessera_ck import targets as _targets


def convert(file: Any, arch: Optional[str], output: Any, merged: Iterable[Any] = (),
            parts: Sequence[Tuple[Any, List[str]]] = (), **options: Any) -> pathlib.Path:
    """Imports a file of any of the original's forms, checks it, and writes `output`: a store, .csv
    or .parquet file. With `merged`, files of Tessera's, all together lie in {stem}_merged beside
    it. options: those of the command. parts: files in the place of `file`, and the fields that each
    has beside those of the options."""
    target = _targets.resolve(arch)
    place = pathlib.Path(output)
    place.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        store = pathlib.Path(folder) / "rows.sqlite"
        done = _imported(store, parts or [(file, [])], target.name, options)
        valid = done["added"] - done["failed"]
        if valid <= 0:
            raise Error(f"{file} holds no valid measurement", "not_found")
        _say(done)
        checked = _scripts.run("data", what="check", files=[str(store)])
        for finding in checked.get("findings", []):
            if finding["count"]:
                print(f"{finding['what']}: {finding['count']}, {finding['rule']}")
        _write(store, place)
        others = [str(each) for each in merged]
        if others:
            together = pathlib.Path(folder) / "all.sqlite"
            _scripts.run("data", what="merge", files=[str(together), str(store), *others],
                         prefer="newest")
            _write(together, place.with_name(f"{place.stem}_merged{place.suffix}"))
    print(f"{valid} measurements in {place}")
    return place


def _imported(store: pathlib.Path, parts: Iterable[Tuple[Any, List[str]]], target: str,
              options: Dict[str, Any]) -> Dict[str, int]:
    """Imports all files into a store; what the command counted."""
    total: Dict[str, int] = {}
    given = list(options.pop("field", None) or [])
    for file, fields in parts:
        done = _scripts.run("data", what="import", files=[str(store), str(file)],
                            device_name=target, target=target, field=[*given, *fields] or None,
                            **options)
        for key, count in done.items():
            if isinstance(count, int):
                total[key] = total.get(key, 0) + count
    return total


def _say(done: Any) -> None:
    for key, words in (("failed", "rows of runs that failed"),
                       ("mended", "mem kernels whose padding flags were mended"),
                       ("unpadded", "kernels that do not pad, which names do not say"),
                       ("merged", "rows that had a faster one of the same kernel and problem")):
        if done[key]:
            print(f"{done[key]} {words}")


def _write(store: pathlib.Path, place: pathlib.Path) -> None:
    if place.suffix in (".csv", ".parquet"):
        _scripts.run("data", what="export", files=[str(store), str(place)])
    else:
        _scripts.run("data", what="merge", files=[str(place), str(store)])
