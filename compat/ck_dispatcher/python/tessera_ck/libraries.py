"""What the operations share: the kernels of one configuration, files of built ones, registries."""
from __future__ import annotations

import dataclasses
import pathlib
import threading
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

import tessera
from tessera import Error, _abi

from . import kernel_files, launching, targets

# What a kernel that does not compute a problem says.
UNABLE = ("unsupported", "not_found", "illegal_spec", "invalid_argument")


class Library:
    """The kernels of one configuration for one target. Several threads may use it."""

    def __init__(self, config: Any, wish_of: Callable[[Any, targets.Target], Any]) -> None:
        self.config = config
        self.target = config.target()
        self.wish = wish_of(config, self.target)
        self._measures = not self.wish.is_exact  # whether several kernels compete
        self._is_strict = bool(getattr(config, "deterministic", False))
        self._lock = threading.Lock()
        self._dispatchers: Dict[bool, tessera.Dispatcher] = {}  # True: of deterministic choices
        self._plans: Dict[Any, tessera.Plan] = {}
        self._decisions: Dict[Any, Dict[str, Any]] = {}
        self._file: Optional[pathlib.Path] = None  # from which it was loaded, or which lists it

    @classmethod
    def find(cls) -> Optional[pathlib.Path]:
        """The file of Tessera's library."""
        try:
            return _abi.find_library()
        except Error:
            return None

    def initialize(self) -> bool:
        """Whether there is a kernel. It starts no GPU; the first run does."""
        return bool(self.wish.kernels)

    def kernel_names(self) -> List[str]:
        return list(self.wish.kernels)

    def kernel_count(self) -> int:
        return len(self.wish.kernels)

    @property
    def path(self) -> pathlib.Path:
        """The file that was loaded, or that lists the kernels; else that of Tessera's library,
        which holds the kernels or compiles them."""
        return self._file or self.find() or pathlib.Path()

    def refusal(self) -> str:
        """Why nothing can run: there is no kernel, or no such machine; empty where it can."""
        if not self.wish.kernels:
            return "; ".join(self.wish.corrections)
        return targets.why_not_here(self.target)

    def cleanup(self) -> None:
        with self._lock:
            for kept in (self._plans, self._decisions, self._dispatchers):
                kept.clear()

    def _live(self, deterministic: bool = False) -> tessera.Dispatcher:
        strict = deterministic or self._is_strict
        with self._lock:
            if strict not in self._dispatchers:
                self._dispatchers[strict] = self._new_dispatcher(strict)
            return self._dispatchers[strict]

    def _new_dispatcher(self, strict: bool) -> tessera.Dispatcher:
        word = self.target.word
        if self.wish.is_exact:
            pool = kernel_files.registry_of(self.target, self.wish.kernels)
            return tessera.Dispatcher(word, pool=pool, deterministic=strict)
        return tessera.Dispatcher(word, deterministic=True) if strict else targets.dispatcher_of(
            word)

    def _select(self, problem: tessera.Problem) -> Dict[str, Any]:
        """Tessera's decision; builds nothing, and needs no such machine."""
        if not self.wish.kernels:
            raise Error("; ".join(self.wish.corrections), "not_found")
        return self._live().select(problem)

    def _decision(self, key: Any, make_problem: Callable[[], tessera.Problem]
                  ) -> Optional[Dict[str, Any]]:
        """The kernel and the predicted seconds of _select(), once for a key; None where no kernel
        computes the problem."""
        with self._lock:
            found = self._decisions.get(key)
        try:
            if found is None:
                whole = self._select(make_problem())
                found = {each: whole[each] for each in ("kernel", "predicted_seconds")}
                with self._lock:
                    self._decisions[key] = found
            return found
        except Error as error:
            if error.code in UNABLE:
                return None
            raise

    def _plan_of(self, key: Any, make_problem: Callable[[], tessera.Problem],
                 deterministic: bool = False) -> tessera.Plan:
        """The plan that is kept under a key. Measures where no model knows the problem, and keeps
        the winner."""
        with self._lock:
            found = self._plans.get(key)
        if found is None:
            live, problem = self._live(deterministic), make_problem()
            found = (launching.measured_plan(live, problem) if self._measures
                     else live.plan(problem))
            with self._lock:
                self._plans[key] = found
                self._decisions.clear()  # what was measured may change them
        return found

    def _ran(self, plan: tessera.Plan, arrays: Dict[str, Any], flops: float, verify: bool
             ) -> Dict[str, Any]:
        """Runs a plan; what a result says of it besides the output."""
        seconds = launching.launch(plan, arrays, verify=verify)
        return {"success": True, "time_ms": seconds * 1e3, "kernel_name": plan.kernel,
                "tflops": flops / seconds / 1e12 if seconds > 0 else 0.0,
                "target": self.target.name}


class LateRunner:
    """Runs the kernels of a file of setup_multiple_*_dispatchers(), or a configuration's. Nothing
    is loaded, and no GPU started, before the first run(). Subclasses say how a library is made, and
    of which configurations."""

    _make_library: Callable[[Any], Any]
    _make_config: Any

    def __init__(self, lib_path: Optional[Any] = None, config: Optional[Any] = None) -> None:
        self.library_path = None if lib_path is None else pathlib.Path(lib_path)
        self._config = config
        self._lib: Any = None

    @property
    def lib(self) -> Any:
        if self._lib is None:
            config = self._config
            if self.library_path is not None:
                config = kernel_files.config_of(self.library_path, self._make_config)
            self._lib = type(self)._make_library(config)
        return self._lib

    @lib.setter
    def lib(self, given: Any) -> None:
        self._lib = given

    def cleanup(self) -> None:
        if self._lib is not None:
            self._lib.cleanup()
        self._lib = None


class Built(NamedTuple):
    """What became of a library's kernels: a file of those that were built, or a sentence."""
    path: Optional[pathlib.Path]
    count: int
    error: str


def list_file(lib: Library, name: str, built: Sequence[str], folder: Optional[Any] = None
              ) -> pathlib.Path:
    """Writes a file that lists a library's kernels, and is its path from then on."""
    lib._file = kernel_files.write(name, lib.target, dataclasses.asdict(lib.config), built, folder)
    return lib._file


def build_files(libs: Sequence[Library], folder: Optional[Any] = None,
                max_workers: Optional[int] = None) -> List[Built]:
    """Builds all libraries' kernels, `max_workers` at a time. No GPU is started."""
    wanted: Dict[targets.Target, List[str]] = {}
    for lib in libs:
        wanted.setdefault(lib.target, []).extend(lib.wish.kernels)
    failed = {target: kernel_files.build(target, names, max_workers)
              for target, names in wanted.items()}
    return [_file_of(lib, failed[lib.target], folder) for lib in libs]


def _file_of(lib: Library, errors: Dict[str, str], folder: Optional[Any]) -> Built:
    built = [name for name in lib.wish.kernels if name not in errors]
    if not built:
        failures = errors.values() if lib.wish.kernels else ()
        return Built(None, 0, next(iter(failures), "; ".join(lib.wish.corrections)))
    return Built(list_file(lib, built[0], built, folder), len(built), "")


def set_up(libs: Sequence[Library], folder: Optional[Any], verbose: bool,
           max_workers: Optional[int]) -> List[Optional[pathlib.Path]]:
    """As build_files(); says what failed, and with `verbose` what was built."""
    found = build_files(libs, folder, max_workers)
    for lib, built in zip(libs, found):
        if built.path is None:
            print(built.error)
        elif verbose:
            print(f"{lib.target}: {built.count} kernels, {built.path}")
    return [built.path for built in found]


class Configurations:
    """A registry: configurations in the order of registering, and a library for each. Subclasses
    say how a library is made."""

    _make_library: Callable[[Any], Any]

    def __init__(self, name: str = "default") -> None:
        self.name = name
        self._configs: List[Any] = []
        self._libs: Dict[Any, Any] = {}

    def __len__(self) -> int:
        return len(self._configs)

    @property
    def kernels(self) -> List[Any]:
        return list(self._configs)

    def register_kernel(self, config: Any) -> bool:
        """Whether it is new here."""
        if config in self._configs:
            return False
        self._configs.append(config)
        return True

    def _lib_of(self, config: Any) -> Any:
        key = config.target(), dataclasses.astuple(config)
        if key not in self._libs:
            self._libs[key] = type(self)._make_library(config)
        return self._libs[key]

    def _fitting(self, decide: Callable[[Any], Optional[Dict[str, Any]]],
                 keep: Callable[[Any], bool] = lambda config: True) -> List[Tuple[float, Any]]:
        """The predicted seconds of each configuration that is kept and for whose library there is a
        decision."""
        asked = ((config, decide(self._lib_of(config))) for config in self._configs if keep(config))
        return [(decision["predicted_seconds"], config) for config, decision in asked if decision]


def fastest(fitting: Sequence[Tuple[float, Any]]) -> Any:
    """Of equal ones the first; None where there is none."""
    return min(fitting, key=lambda each: each[0])[1] if fitting else None
