"""Which machine is meant: the one that is named, else this machine's GPU, else its CPU."""
from __future__ import annotations

import functools
import os
from typing import Any, Dict, NamedTuple, Optional

import tessera
from tessera import Error

# The original's words for "whatever is here".
HERE_WORDS = ("", "native", "auto", "host")


class Target(NamedTuple):
    word: Optional[str]  # what a Dispatcher is made with; None: this machine's CPU
    name: str            # the row's name, the last word of kernel names
    backend: str         # "cpu", "cuda", "hip"
    why: str             # why this one, for people

    def __str__(self) -> str:
        return f"target {self.name} ({self.why})"


def plain_name(arch: Optional[str]) -> Optional[str]:
    """"gfx942:sramecc+:xnack-" is gfx942; None and "native" are None."""
    if arch is None:
        return None
    if not isinstance(arch, str):
        raise Error(f"a target is a name such as 'gfx942', got {type(arch).__name__}")
    name = arch.partition(":")[0].strip()
    return None if name in HERE_WORDS else name


@functools.lru_cache(maxsize=None)
def rows() -> Dict[str, Dict[str, Any]]:
    return {row["name"]: row for row in tessera.targets()["targets"]}


@functools.lru_cache(maxsize=None)
def row_of(name: str) -> Dict[str, Any]:
    """The whole row: its spaces, limits and units."""
    found = tessera.targets(target=name)
    return found.get("target", found)


def resolve(arch: Optional[str] = None) -> Target:
    """Raises Error for a name that is unknown."""
    name = plain_name(arch)
    if name is not None:
        return _named(name, "as asked")
    wanted = os.environ.get("TESSERA_TARGET")
    if wanted:
        return _named(wanted, "as TESSERA_TARGET says")
    for row in rows().values():
        if row["backend"] != "cpu" and row["runs_here"]:
            return Target(row["name"], row["name"], row["backend"], "this machine's GPU")
    here = dispatcher_of(None).target
    return Target(None, here["name"], here["backend"],
                  "this machine's CPU, because no GPU was found that runs kernels")


def _named(name: str, why: str) -> Target:
    if name in rows():
        return Target(name, name, rows()[name]["backend"], why)
    row = dispatcher_of(name).target  # a file, or a sentence with the known names
    return Target(name, row["name"], row["backend"], why)


@functools.lru_cache(maxsize=None)
def dispatcher_of(word: Optional[str]) -> tessera.Dispatcher:
    """The dispatcher over a target's whole space; it is shared."""
    return tessera.Dispatcher(word)


def why_not_here(target: Target) -> str:
    """Empty where the target's kernels run on this machine, else a sentence."""
    if target.word is None:
        return ""
    row = rows().get(target.name, {"runs_here": True, "why_not": ""})
    if row["runs_here"]:
        return ""
    return row["why_not"] or f"target '{target.name}' does not run on this machine"


def original_space(arch: Optional[str], op: str) -> Dict[str, Any]:
    """What a row lists for CK Tile's own kernels of an operation; where it has no such list, what
    it lists for Tessera's."""
    row = dispatcher_of(resolve(arch).word).target
    return row.get("cktile_spaces", {}).get(op) or row.get("spaces", {}).get(op, {})


def pipelines(target: Target, op: str) -> Any:
    """The words of the pipelines in a target's space of an operation; () where it has none."""
    space = dispatcher_of(target.word).target.get("spaces", {}).get(op, {})
    return tuple(space.get("pipelines", ()))
