"""Sweeps on many processes, machines or GPUs, through Ray: `python -m tessera.distributed`.

    python -m tessera.distributed --local 2 --problems wide --kernels all-legal --store s.sqlite
    python -m tessera.distributed --address auto --gpus --problems decode --store s.sqlite ...

The problems are cut into shards, which Ray deals out to workers. Each is an ordinary `tessera sweep
--shard I/N`, and their stores are merged at the end. A shard whose worker dies is given to another
one, and shards that an earlier call finished are not measured again. Needs `pip install
tessera[ray]`; the workers need the package, too. docs/tuning.md says how Slurm does the same.
"""
from __future__ import annotations

import argparse
import contextlib
import os
import re
import secrets
import sys
import tempfile
from typing import Any, Dict, Iterator, List, Optional, Sequence

import tessera
from tessera import Error
from tessera._checks import checked

# A worker that dies takes its shard's measurements with it, unless the folder of shards is shared.
TRIES = 4
LEAST_RAY = (2, 52)


def _ray() -> Any:
    try:
        import ray
    except ImportError:
        raise Error("tessera.distributed needs Ray; install it with: pip install 'tessera[ray]'",
                    "not_found") from None
    digits = [re.match("[0-9]*", part).group() for part in ray.__version__.split(".")]
    if [int(part or 0) for part in digits[:2]] < list(LEAST_RAY):
        raise Error(f"tessera.distributed needs Ray {LEAST_RAY[0]}.{LEAST_RAY[1]} or later, the "
                    f"first with tokens, without which whoever reaches its ports runs code as you; "
                    f"got {ray.__version__}; install it with: pip install -U 'tessera[ray]'",
                    "unsupported")
    return ray


def _read_variables() -> None:
    """Makes Ray read its variables anew. It may have been imported before they were set."""
    try:
        from ray._raylet import AuthenticationTokenLoader, Config
        Config.initialize("")
        AuthenticationTokenLoader.instance().reset_cache()
    except (ImportError, AttributeError):
        raise Error("Ray was imported before tessera.distributed could ask it for a token; import "
                    "it later, or set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN before",
                    "unsupported") from None


@contextlib.contextmanager
def _token() -> Iterator[None]:
    """Ray asks for a token while this lives: the caller's, or a new one. Its processes inherit
    it."""
    names = ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN")
    before = {name: os.environ.get(name) for name in names}
    os.environ["RAY_AUTH_MODE"] = "token"
    if not before["RAY_AUTH_TOKEN"] and not os.environ.get("RAY_AUTH_TOKEN_PATH"):
        os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value
        with contextlib.suppress(Error):  # a Ray that cannot has not begun anything
            _read_variables()


def shard_file(folder: str, shard: int, shards: int) -> str:
    return os.path.join(folder, f"{shard}of{shards}.sqlite")


def measure_shard(options: Dict[str, Any], shard: int, shards: int, folder: str) -> bytes:
    """Sweeps one shard and returns its store's bytes. Goes on with what lies in the folder, where
    this machine sees it; elsewhere it measures into a folder of its own."""
    if os.path.isdir(folder):
        file = shard_file(folder, shard, shards)
        tessera.sweep(shard=f"{shard}/{shards}", store=file, **options)
        with open(file, "rb") as stream:
            return stream.read()
    with tempfile.TemporaryDirectory(prefix="tessera-shard-") as own:
        return measure_shard(options, shard, shards, own)


@checked
def sweep(*, store: str, workers: int = 0, address: Optional[str] = None, shards: int = 0,
          gpus: bool = False, **options: Any) -> Dict[str, Any]:
    """Measures problems on Ray's workers and merges the results into `store`.

    workers: starts Ray here with so many workers, on the loopback address and with a token, and
    stops it at the end; 0: uses the cluster at `address`, "auto" or None for the one that runs
    here. shards: how many parts; 0: four for each worker, so that none waits long for the last.
    gpus: each shard gets a GPU of its own, so that all GPUs of the machines work. The other options
    are those of tessera.sweep(). Returns {"store", "shards", "measurements"}. Raises Error where
    Ray is missing or knows no tokens, and what tessera.sweep() raises.
    """
    if workers < 0 or shards < 0:
        raise Error(f"workers and shards must be at least 0, got {workers} and {shards}",
                    "invalid_argument")
    started = workers > 0
    with _token() if started else contextlib.nullcontext():
        ray = _ray()
        if started:
            _read_variables()
        try:
            if started:  # for this machine alone
                ray.init(num_cpus=workers, include_dashboard=False, logging_level="ERROR",
                         _node_ip_address="127.0.0.1")
            elif not ray.is_initialized():
                ray.init(address=address or "auto", logging_level="ERROR")
            return _sweep_with(ray, os.path.abspath(store), shards, gpus, options)
        finally:
            if started:
                ray.shutdown()


def _sweep_with(ray: Any, store: str, shards: int, gpus: bool,
                options: Dict[str, Any]) -> Dict[str, Any]:
    resources = ray.cluster_resources()
    units = int(resources.get("GPU" if gpus else "CPU", 0))
    if units < 1:
        raise Error(f"Ray's cluster has no {'GPU' if gpus else 'processor'} for a worker, got "
                    f"{units}", "unsupported")
    return _sweep_on(ray, store, shards or 4 * units, gpus, options)


def _sweep_on(ray: Any, store: str, shards: int, gpus: bool,
              options: Dict[str, Any]) -> Dict[str, Any]:
    folder = store + ".shards"
    os.makedirs(folder, exist_ok=True)
    remote = ray.remote(num_cpus=0 if gpus else 1, num_gpus=1 if gpus else 0,
                        max_retries=TRIES - 1)(measure_shard)
    waiting = {remote.remote(options, shard, shards, folder): shard
               for shard in range(1, shards + 1)}
    while waiting:
        done, _ = ray.wait(list(waiting), num_returns=1)
        shard = waiting.pop(done[0])
        _keep(shard_file(folder, shard, shards), ray.get(done[0]))
        print(f"{shards - len(waiting)} of {shards} shards", file=sys.stderr)
    files = [shard_file(folder, shard, shards) for shard in range(1, shards + 1)]
    merged = tessera.data(what="merge", files=[store, *files])
    for file in files:
        for end in ("", "-wal", "-shm"):
            if os.path.exists(file + end):
                os.remove(file + end)
    os.rmdir(folder)
    return {"store": store, "shards": shards, "merged": merged}


def _keep(file: str, content: bytes) -> None:
    """Writes a shard that a worker measured where this folder is not to be seen."""
    if os.path.exists(file):
        return
    with open(file + ".part", "wb") as stream:
        stream.write(content)
    os.replace(file + ".part", file)


def _options_of(words: Sequence[str]) -> Dict[str, Any]:
    """The options of `tessera sweep` among the words: --name VALUE..., or --name alone."""
    options: Dict[str, Any] = {}
    name = ""
    for word in words:
        if word.startswith("--"):
            name = word[2:].replace("-", "_")
            options[name] = []
        elif name:
            options[name].append(word)
        else:
            raise Error(f"expected an option such as --problems, got '{word}'", "invalid_argument")
    return {name: _value_of(name, values) for name, values in options.items()}


def _value_of(name: str, values: List[str]) -> Any:
    if name in ("problems", "kernels"):
        return values
    if len(values) != 1:
        return values or True
    for number in (int, float):
        try:
            return number(values[0])
        except ValueError:
            pass
    return values[0]


def main(words: Optional[List[str]] = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tessera.distributed", allow_abbrev=False,
        description="Measures kernels on many workers through Ray. All other options are those of "
                    "'tessera sweep'.")
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--local", type=int, default=0, metavar="N",
                       help="start Ray here with N workers and stop it at the end")
    where.add_argument("--address", help="a running cluster of Ray's; left out: the one here")
    parser.add_argument("--gpus", action="store_true", help="a GPU for each shard")
    parser.add_argument("--shards", type=int, default=0, help="0: four for each worker")
    parser.add_argument("--store", required=True, help="the file that measurements go into")
    given, rest = parser.parse_known_args(words)
    try:
        result = sweep(store=given.store, workers=given.local, address=given.address,
                       shards=given.shards, gpus=given.gpus, **_options_of(rest))
    except Error as error:
        print(f"tessera: {error}", file=sys.stderr)
        return 1
    print(f"{result['shards']} shards are in {result['store']}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
