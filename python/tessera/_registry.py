"""Kernel sets, which declare kernels, and registries, which hold live ones."""
from __future__ import annotations

import ctypes
import json
import threading
from typing import Any, Dict, List, Optional, Union

from . import _abi, _interrupt, _values
from ._abi import Error
from ._checks import checked
from ._problem import Problem, as_problem

_BUILD_TEXTS = ("compiler", "nvrtc", "hip_compiler", "worker")
_BUILD_NUMBERS = ("cache_bytes", "no_shipped_packs", "no_compile", "timeout_seconds")


def build_options(cache: Optional[str], given: Optional[Dict[str, Any]]
                  ) -> Optional[_abi.BuildOptions]:
    """The struct for a folder and further fields; None where all is at its default."""
    if cache is None and not given:
        return None
    options = _abi.BuildOptions(cache=_abi.encode(cache))
    for name, value in (given or {}).items():
        if name == "packs":
            options.packs = _packs(value)
        elif name in _BUILD_TEXTS:
            setattr(options, name, _abi.encode(value))
        elif name in _BUILD_NUMBERS:
            options.set(name, value, f"build's {name}")
        else:
            known = ", ".join(("packs", *_BUILD_TEXTS, *_BUILD_NUMBERS))
            raise Error(f"build has no field {_values.shown(name)}; it has {known}", "not_found")
    return options


def _packs(given: Any) -> Any:
    """The files as C has them, ended by NULL."""
    files = [_abi.encode(file) for file in _values.items("build's packs", given)]
    if None in files:
        raise Error("build's packs must be files, got None")
    return (ctypes.c_char_p * (len(files) + 1))(*files, None)


class KernelSet(_abi.Handle):
    """A declared list of kernels, made step by step; each step returns the set.

    KernelSet("mine", target="avx512").op("gemm").where(dtype="fp32", tile="240x*")
    target: a row's name or a JSON file; None: this machine.
    """

    _kind = "kernel_set"

    def __new__(cls, *_: Any, **__: Any) -> "KernelSet":
        made = super().__new__(cls)
        made._lock = threading.Lock()  # the library's sets are not for several threads at once
        return made

    def _step(self, name: str, *arguments: Any) -> "KernelSet":
        with self._lock:
            _abi.call(name, self, *arguments)
        return self

    @checked
    def __init__(self, name: str = "kernels", target: Optional[str] = None) -> None:
        self._make("tsr_kernel_set_create", _abi.encode(name), _abi.encode(target))

    @classmethod
    @checked
    def from_json(cls, given: Union[str, Dict[str, Any]]) -> "KernelSet":
        """{"name", "kernels": [...]}, and what is written by hand: "target", "groups",
        "preselected", "receipt", "problems"."""
        made = cls.__new__(cls)
        made._make("tsr_kernel_set_from_json", _abi.given_json(given))
        return made

    @checked
    def op(self, name: str) -> "KernelSet":
        """Starts a group: the kernels of an operation."""
        return self._step("tsr_kernel_set_op", _abi.encode(name))

    def where(self, **patterns: Union[str, List[str]]) -> "KernelSet":
        """Narrows the group by fields and wildcards; a list means alternatives."""
        for field, given in patterns.items():
            for pattern in [given] if isinstance(given, str) else _values.items(field, given):
                self._step("tsr_kernel_set_where", _abi.encode(field), _abi.encode(pattern))
        return self

    @checked
    def add(self, kernel: str) -> "KernelSet":
        """One kernel by name."""
        return self._step("tsr_kernel_set_add", _abi.encode(kernel))

    @checked
    def preselected(self, name: str) -> "KernelSet":
        """A preselected set such as "fp32_rcr_essential"."""
        return self._step("tsr_kernel_set_preselected", _abi.encode(name))

    @checked
    def receipt(self, name: Union[str, int]) -> "KernelSet":
        """What a framework needs, by a receipt's name or number: "flash", 4."""
        return self._step("tsr_kernel_set_receipt", _abi.encode(str(name)))

    @checked
    def for_problem(self, problem: Union[str, Problem], best: int = 1) -> "KernelSet":
        """The `best` fastest kernels for a problem, by estimate."""
        return self._step("tsr_kernel_set_for_problem", as_problem(problem),
                          _values.whole_int("best", best))

    def to_json(self) -> str:
        """{"name", "kernels": ["gemm_...", ...]}: sorted by name, lossless."""
        with self._lock:
            return _abi.text("tsr_kernel_set_json", self)

    @property
    def kernels(self) -> List[str]:
        return json.loads(self.to_json())["kernels"]

    def __reduce__(self) -> Any:
        return KernelSet.from_json, (self.to_json(),)

    def __len__(self) -> int:
        return len(self.kernels)

    def __bool__(self) -> bool:
        return True


class Registry(_abi.Handle):
    """Kernels that were declared, and those of them that are built and loaded.

    cache: the folder of built kernels. build: further fields of tsr_build_options_t, see
    Dispatcher.
    """

    _kind = "registry"

    @checked
    def __init__(self, name: str = "registry", *, cache: Optional[str] = None,
                 build: Optional[Dict[str, Any]] = None) -> None:
        options = build_options(cache, build)
        self._make("tsr_registry_create", _abi.encode(name),
                   None if options is None else ctypes.byref(options))

    @checked
    def add_target(self, file: str) -> "Registry":
        """Adds a target of the user's own, from a JSON file."""
        _abi.call("tsr_registry_add_target", self, _abi.encode(file))
        return self

    def declare(self, kernels: KernelSet) -> "Registry":
        """Declares kernels without building them."""
        if not isinstance(kernels, KernelSet):
            raise Error(f"declare needs a KernelSet, got {_values.shown(kernels)}")
        with kernels._lock:
            _abi.call("tsr_registry_declare", self, kernels)
        return self

    @checked
    def build(self, max_workers: int = 0, progress: Optional[_interrupt.Progress] = None
              ) -> List[Dict[str, Any]]:
        """Builds and loads all declared kernels, `max_workers` at a time (0: one for each core).

        progress(label, done, total, kernel) is called after each kernel, in another thread; what it
        raises ends the build and is raised here. Ctrl-C ends the build after the kernels that are
        under way. Returns [{"kernel", "was_cached", "seconds", "error"}, ...]: a kernel that failed
        has a sentence in "error".
        """
        workers = _values.whole_int("max_workers", max_workers)
        text = _interrupt.run(progress, lambda callbacks: _abi.text(
            "tsr_registry_build", self, workers, callbacks))
        return json.loads(text)["results"]

    def list(self) -> List[Dict[str, Any]]:
        """[{"kernel", "is_loaded"}, ...], sorted by name."""
        return json.loads(_abi.text("tsr_registry_list", self))["kernels"]

    @checked
    def filter(self, pattern: str = "*") -> "Registry":
        """A copy with the kernels whose names match a wildcard: "*_sm90a"."""
        made = Registry.__new__(Registry)
        made._make("tsr_registry_filter", self, _abi.encode(pattern))
        return made

    @checked
    def filter_receipt(self, name: Union[str, int]) -> "Registry":
        """A copy with the kernels whose signatures a receipt asks for."""
        made = Registry.__new__(Registry)
        made._make("tsr_registry_filter_receipt", self, _abi.encode(str(name)))
        return made

    def receipts(self) -> List[str]:
        """The names of the receipts that have a kernel here."""
        return json.loads(_abi.text("tsr_registry_receipts", self))["receipts"]

    def merge(self, other: "Registry") -> "Registry":
        """Adds what the other registry has declared and loaded."""
        if not isinstance(other, Registry):
            raise Error(f"merge needs a Registry, got {_values.shown(other)}")
        _abi.call("tsr_registry_merge", self, other)
        return self

    def export_json(self) -> str:
        return _abi.text("tsr_registry_export", self)

    @checked
    def import_json(self, text: str) -> "Registry":
        _abi.call("tsr_registry_import", self, _abi.encode(text))
        return self

    def __len__(self) -> int:
        return len(self.list())

    def __bool__(self) -> bool:
        return True
