"""The C library: where it lies, its structs and functions, and its failures as exceptions.

This is the one module that names C types. It follows include/tessera/tessera.h line by line.
"""
from __future__ import annotations

import ctypes
import json
import os
import pathlib
import sys
from typing import Any, Dict, List, Optional

from . import _openmp, _packs
from ._values import Error, number, shown, whole

ABI = 1
_HERE = pathlib.Path(__file__).resolve().parent

# The numbers of tsr_status_t.
CODES = ("ok", "invalid_argument", "parse_error", "not_found", "unsupported", "illegal_spec",
         "compile_failed", "load_failed", "launch_failed", "jit_disabled", "io_error",
         "cache_refused", "verification_failed", "crashed", "timeout", "out_of_memory",
         "internal", "cancelled")


PROGRESS = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t,
                            ctypes.c_size_t, ctypes.c_char_p)
STOP = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)
COMPILE_HOOK = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p)
LOG_SINK = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p)

_P, _S, _INT = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int
_SIZE, _DOUBLE = ctypes.c_size_t, ctypes.c_double


_RULES = {_INT: lambda name, value: whole(name, value, -2**31, 2**31),
          ctypes.c_int64: lambda name, value: whole(name, value, -2**63, 2**63),
          ctypes.c_uint64: lambda name, value: whole(name, value, 0, 2**64),
          _DOUBLE: number}


class _Options(ctypes.Structure):
    """A struct of options: struct_size is set, what is not given is zero."""

    def __init__(self, **fields: Any) -> None:
        super().__init__(struct_size=ctypes.sizeof(type(self)))
        for name, value in fields.items():
            self.set(name, value)

    def set(self, name: str, value: Any, what: str = "") -> None:
        """Sets a field, which ctypes would cut to its bits. what: its name in a sentence."""
        rule = _RULES.get(dict(self._fields_)[name])
        setattr(self, name, value if rule is None else rule(what or name, value))


class Callbacks(_Options):
    _fields_ = [("struct_size", _SIZE), ("user", _P), ("progress", PROGRESS), ("stop", STOP)]


class BuildOptions(_Options):
    _fields_ = [("struct_size", _SIZE), ("cache", _S), ("cache_bytes", ctypes.c_int64),
                ("compiler", _S), ("nvrtc", _S), ("worker", _S), ("packs", ctypes.POINTER(_S)),
                ("no_shipped_packs", _INT), ("no_compile", _INT), ("timeout_seconds", _DOUBLE),
                ("hip_compiler", _S)]


class DispatcherOptions(_Options):
    _fields_ = [("struct_size", _SIZE), ("target", _S), ("threads", _INT), ("device", _INT),
                ("models", _S), ("deterministic", _INT), ("autotune", _INT),
                ("autotune_seconds", _DOUBLE), ("autotune_top", _INT), ("tuning_store", _S),
                ("pool", _P), ("build", ctypes.POINTER(BuildOptions)), ("by_length", _INT),
                ("measure_without_model", _INT), ("without_model_top", _INT),
                ("reserved", _INT), ("batch_invariant", _INT), ("record", _S),
                ("verify_every", ctypes.c_int64)]


class ChooseOptions(_Options):
    _fields_ = [("struct_size", _SIZE), ("threads", _INT), ("force", _S)]


class LaunchOptions(_Options):
    _fields_ = [("struct_size", _SIZE), ("stream", _P), ("workspace", _P),
                ("workspace_bytes", _SIZE), ("verify", _INT)]


class BenchOptions(_Options):
    _fields_ = [("struct_size", _SIZE), ("rounds", _INT), ("warmup", _INT),
                ("min_seconds", _DOUBLE), ("flush_caches", _INT), ("seed", ctypes.c_uint64)]


# The arguments of each function that returns a status; _P stands for handles, structs, and
# addresses that results are written to.
_FUNCTIONS = {
    "tsr_set_log_sink": [LOG_SINK, _P],
    "tsr_set_compile_hook": [COMPILE_HOOK, _P],
    "tsr_add_python_prefix": [_S],
    "tsr_add_packs": [_S],
    "tsr_problem_parse": [_S, _P],
    "tsr_problem_from_json": [_S, _P],
    "tsr_problem_create": [_S, _P],
    "tsr_problem_set": [_P, _S, _S],
    "tsr_problem_set_integer": [_P, _S, ctypes.c_int64],
    "tsr_problem_set_number": [_P, _S, _DOUBLE],
    "tsr_problem_get": [_P, _S, _P],
    "tsr_problem_line": [_P, _P],
    "tsr_problem_json": [_P, _P],
    "tsr_problem_validate": [_P],
    "tsr_problem_describe": [_P, _P],
    "tsr_problem_build": [_S, _S, _P],
    "tsr_kernel_set_create": [_S, _S, _P],
    "tsr_kernel_set_from_json": [_S, _P],
    "tsr_kernel_set_op": [_P, _S],
    "tsr_kernel_set_where": [_P, _S, _S],
    "tsr_kernel_set_add": [_P, _S],
    "tsr_kernel_set_preselected": [_P, _S],
    "tsr_kernel_set_receipt": [_P, _S],
    "tsr_kernel_set_for_problem": [_P, _P, _INT],
    "tsr_kernel_set_json": [_P, _P],
    "tsr_registry_create": [_S, _P, _P],
    "tsr_registry_add_target": [_P, _S],
    "tsr_registry_declare": [_P, _P],
    "tsr_registry_build": [_P, _INT, _P, _P],
    "tsr_registry_list": [_P, _P],
    "tsr_registry_filter": [_P, _S, _P],
    "tsr_registry_filter_receipt": [_P, _S, _P],
    "tsr_registry_receipts": [_P, _P],
    "tsr_registry_merge": [_P, _P],
    "tsr_registry_export": [_P, _P],
    "tsr_registry_import": [_P, _S],
    "tsr_dispatcher_create": [_P, _P],
    "tsr_dispatcher_target": [_P, _P],
    "tsr_record_begin": [_S],
    "tsr_record_end": [_S],
    "tsr_preload": [_P, _S, _P],
    "tsr_sampling": [_P, _P],
    "tsr_choose": [_P, _P, _P, _P],
    "tsr_explain": [_P, _P, _P, _INT, _P],
    "tsr_autotune": [_P, _P, _DOUBLE, _INT, _P],
    "tsr_set_stop": [_P, _P],
    "tsr_plan": [_P, _P, _P, _P],
    "tsr_plan_json": [_P, _P],
    "tsr_operand_count": [_P, _P],
    "tsr_operand_index": [_P, _S, _P],
    "tsr_workspace_bytes": [_P, _P],
    "tsr_launch": [_P, _P, _SIZE, _P],
    "tsr_synchronize": [_P, _P],
    "tsr_packed_bytes": [_P, _P],
    "tsr_pack": [_P, _P, _SIZE, _P, _P],
    "tsr_bench": [_P, _P, _SIZE, _P, _P, _P],
    "tsr_verify": [_P, ctypes.c_uint64],
    "tsr_range_plan": [_P, _S, _P, _P],
    "tsr_range_plan_json": [_P, _P],
    "tsr_range_plan_at": [_P, ctypes.c_int64, _P],
    "tsr_range_workspace_bytes": [_P, _P],
    "tsr_range_launch": [_P, ctypes.c_int64, _P, _SIZE, _P],
    "tsr_model_load": [_S, _P],
    "tsr_model_json": [_P, _P],
    "tsr_model_predict": [_P, _P, _S, _INT, _P],
    "tsr_model_predict_all": [_P, _P, _P, _SIZE, _INT, _P],
    "tsr_model_rank": [_P, _P, _INT, _SIZE, _P],
    "tsr_command": [_S, _S, _P, _P, _P],
    "tsr_commands": [_P],
}
HANDLES = ("problem", "kernel_set", "registry", "dispatcher", "plan", "model")


def library_places() -> List[pathlib.Path]:
    """Where the library is searched, in this order: TESSERA_LIBRARY alone, where it is set; beside
    this file, as the wheel has it; the optimised build of the checkout that holds this file."""
    wanted = os.environ.get("TESSERA_LIBRARY", "")
    if wanted:
        return [pathlib.Path(wanted)]
    checkout = _HERE.parent.parent
    return [_HERE / "lib" / "libtessera.so.0", checkout / "build/release/src/libtessera.so.0"]


def find_library() -> pathlib.Path:
    places = library_places()
    for place in places:
        if place.is_file():
            return place
    raise Error("the library was found at none of: " + ", ".join(map(str, places)) +
                "; build it with './dev build', or set TESSERA_LIBRARY to libtessera.so",
                "not_found")


def _hint(error: str) -> str:
    """What else there is to say where the loader refused a library of a newer system."""
    if "version `GLIBC" not in error:
        return ""
    return (f"; it was built for a newer system than this one, which has "
            f"{os.confstr('CS_GNU_LIBC_VERSION')}: install a wheel, or 'pip install .' in a "
            "checkout")


def load(path: pathlib.Path) -> ctypes.CDLL:
    """Loads a library of this ABI, and declares its functions. Raises Error for any other."""
    _openmp.share()
    try:
        library = ctypes.CDLL(str(path))
        library.tsr_abi.restype = _INT
        theirs = library.tsr_abi()
    except (OSError, AttributeError) as error:
        raise Error(f"{path} cannot be loaded as Tessera's library: {error}{_hint(str(error))}",
                    "load_failed") from None
    if theirs != ABI:
        raise Error(f"{path} has ABI number {theirs}, this package needs {ABI}; install a package "
                    "and a library of the same release", "load_failed")
    for name in ("tsr_version", "tsr_error", "tsr_error_details"):
        getattr(library, name).restype = _S
    library.tsr_free.argtypes = [_P]
    for handle in HANDLES:
        getattr(library, f"tsr_{handle}_destroy").argtypes = [_P]
    if hasattr(library, "tsr_range_plan_destroy"):  # later than the first release
        library.tsr_range_plan_destroy.argtypes = [_P]
    if hasattr(library, "tsr_add_python_prefix"):  # later than the first release
        library.tsr_add_python_prefix(ctypes.c_char_p(os.fsencode(sys.prefix)))
    if hasattr(library, "tsr_add_packs"):
        for folder in _packs.folders():
            library.tsr_add_packs(ctypes.c_char_p(os.fsencode(folder)))
    return library


_library: Optional[ctypes.CDLL] = None


def library() -> ctypes.CDLL:
    global _library
    if _library is None:
        _library = load(find_library())
    return _library


_functions: Dict[str, Any] = {}


def function(name: str) -> Any:
    """A function that returns a status, declared at its first use.

    No other thread sees it before its arguments are declared, because ctypes reads wrong ones
    where they change during a call.
    """
    found = _functions.get(name)
    if found is None:
        try:
            made = library()[name]
        except AttributeError:
            raise Error(f"the library of release {version()} has no function {name}",
                        "unsupported") from None
        made.argtypes = _FUNCTIONS[name]
        found = _functions.setdefault(name, made)
    return found


def version() -> str:
    return library().tsr_version().decode()


def last_error(status: int) -> Error:
    """The calling thread's last failure."""
    code = CODES[status] if 0 <= status < len(CODES) else "unknown"
    return Error(library().tsr_error().decode("utf-8", "replace"), code,
                 library().tsr_error_details().decode("utf-8", "replace"))


def call(name: str, *arguments: Any) -> None:
    """Calls a function, with the GIL released. Raises Error where it fails."""
    try:
        status = function(name)(*arguments)
    except ctypes.ArgumentError:
        for argument in arguments:
            if isinstance(argument, Handle):
                argument._as_parameter_  # says that it was closed
        kinds = ", ".join(type(argument).__name__ for argument in arguments)
        raise Error(f"{name} takes other arguments than {kinds}") from None
    if status != 0:
        raise last_error(status)


def take_text(address: ctypes.c_void_p) -> str:
    """The text that a function returned, which is given back."""
    if not address.value:
        return ""
    try:
        return ctypes.string_at(address.value).decode("utf-8", "replace")
    finally:
        library().tsr_free(address)


def text(name: str, *arguments: Any) -> str:
    """Calls a function whose last argument is the address for a text."""
    result = ctypes.c_void_p()
    call(name, *arguments, ctypes.byref(result))
    return take_text(result)


def size(name: str, *arguments: Any) -> int:
    result = ctypes.c_size_t()
    call(name, *arguments, ctypes.byref(result))
    return result.value


def encode(word: Any) -> Optional[bytes]:
    """A text or a path for the library; None stays None. It cannot hold a zero byte."""
    if word is None:
        return None
    if not isinstance(word, (str, bytes, os.PathLike)):
        raise Error(f"a text or a path is needed, got {shown(word)}")
    try:
        encoded = os.fsencode(word)
    except Exception:  # half of a surrogate pair, or a path that has no name
        raise Error(f"a text must be one that UTF-8 can hold, got {shown(word)}") from None
    if b"\0" in encoded:
        raise Error(f"a text must not hold a zero byte, got {shown(word)}")
    return encoded


def as_json(value: Any, takes: str) -> str:
    """A value as JSON. takes: who takes it, with the verb of a sentence."""
    try:
        return json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        raise Error(f"{takes} words, numbers that are finite, True, False, None, and lists and "
                    f"dicts of them, got {shown(value)}") from None


def given_json(given: Any) -> Optional[bytes]:
    """What from_json() is given: a text, or a value that becomes one."""
    return encode(given if isinstance(given, str) else as_json(given, "from_json takes"))


class Owned(ctypes.c_void_p):
    """The address of an object of the library, which is given back when nobody holds it any more.

    Each call holds the address that it was given until it has returned, so that Python's own count
    of references is the count of calls in flight.
    """

    kind = ""  # one of HANDLES

    def __del__(self) -> None:
        try:
            if self.value:
                getattr(library(), f"tsr_{self.kind}_destroy")(self.value)
        except Exception:  # the interpreter is ending, and the library's memory ends with it
            pass


class Handle:
    """An object of the library. It is given back when Python forgets it, or by close()."""

    _kind = ""  # one of HANDLES
    _held: Optional[Owned] = None

    def _make(self, name: str, *arguments: Any) -> None:
        made = Owned()
        made.kind = self._kind
        call(name, *arguments, ctypes.byref(made))
        self._held = made

    @property
    def _as_parameter_(self) -> Owned:
        held = self._held
        if held is None:
            raise Error(f"the {self._kind} was closed, and cannot be used any more")
        return held

    @property
    def _address(self) -> int:
        return self._as_parameter_.value or 0

    def close(self) -> None:
        """Gives the object back, when the last call of another thread that uses it has returned.
        Using it afterwards is an Error; closing it again is not."""
        self._held = None

    def __reduce__(self) -> Any:
        raise Error(f"a {self._kind} cannot be copied or pickled, because its memory belongs to "
                    "this process", "unsupported")

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()
