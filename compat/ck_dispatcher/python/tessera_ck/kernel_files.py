"""Lists of kernels in files, by which the original's users name what was built: a file holds the
target, the configuration and the kernels' lossless names. The built kernels lie in the cache."""
from __future__ import annotations

import hashlib
import json
import os
import pathlib
from typing import Any, Dict, List, Optional, Sequence

import tessera
from tessera import Error

from .targets import Target, why_not_here

SUFFIX = ".kernels.json"


def default_folder() -> pathlib.Path:
    """Beside the cache of built kernels."""
    base = os.environ.get("TESSERA_CACHE_DIR")
    if not base:
        root = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
        base = os.path.join(root, "tessera")
    return pathlib.Path(base.rstrip("/") + "_ck_dispatcher")


def write(name: str, target: Target, config: Dict[str, Any], kernels: Sequence[str],
          folder: Optional[Any] = None) -> pathlib.Path:
    place = pathlib.Path(folder) if folder else default_folder()
    place.mkdir(parents=True, exist_ok=True)
    whole = {"target": target.word, "config": config, "kernels": sorted(kernels)}
    digest = hashlib.sha256(json.dumps(whole, sort_keys=True).encode()).hexdigest()[:12]
    file = place / f"{name}_{digest}{SUFFIX}"
    scratch = file.with_name(file.name + f".{os.getpid()}")
    scratch.write_text(json.dumps(whole, indent=2) + "\n", encoding="ascii")
    scratch.replace(file)
    return file


def read(path: Any) -> Dict[str, Any]:
    """Raises Error for a file that is none of these."""
    try:
        whole = json.loads(pathlib.Path(path).read_text(encoding="ascii"))
        if isinstance(whole["kernels"], list) and isinstance(whole["config"], dict):
            return whole
    except OSError as error:
        raise Error(f"{path} cannot be read: {error.strerror}", "io_error") from None
    except (ValueError, KeyError, TypeError):
        pass
    raise Error(f"{path} is no list of kernels; setup_multiple_*_dispatchers() returns such files",
                "parse_error")


def config_of(path: Any, kind: Any) -> Any:
    """The configuration, a `kind`, whose kernels a file lists."""
    return kind(**read(path)["config"])


def build(target: Target, kernels: Sequence[str], max_workers: Optional[int] = None
          ) -> Dict[str, str]:
    """Builds kernels into the cache, and returns a sentence for each that failed.

    Kernels of a machine that is not here are emitted, which says whether they can be.
    """
    names = sorted(set(kernels))
    if not names:
        return {}
    if why_not_here(target):
        return {name: error for name in names if (error := _emit_error(target, name))}
    registry = registry_of(target, names)
    return {row["kernel"]: row["error"] for row in registry.build(max_workers=max_workers or 0)
            if row["error"]}


def _emit_error(target: Target, name: str) -> str:
    try:
        tessera.command("show", kernel=name, target=target.word, source=True)
    except Error as error:
        return str(error)
    return ""


def kernel_set(target: Target, names: Sequence[str]) -> tessera.KernelSet:
    kernels = tessera.KernelSet("ck_dispatcher", target.word)
    for name in names:
        kernels.add(name)
    return kernels


def registry_of(target: Target, names: Sequence[str]) -> tessera.Registry:
    registry = tessera.Registry("ck_dispatcher")
    registry.declare(kernel_set(target, names))
    return registry


def list_kernels(op: str, target: Target, **options: Any) -> List[str]:
    """What `tessera list` prints; [] where the target has no space for the operation."""
    return tessera.command("list", op=op, target=target.word, **options)["kernels"]
