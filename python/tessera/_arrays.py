"""Arrays of any package as a View: address, type, shape and strides. Nothing is copied.

NumPy's arrays are read through __array_interface__, which holds for types of ml_dtypes too, arrays
of PyTorch, JAX and CuPy through DLPack, and all else through the buffer protocol. None of these
packages is imported.
"""
from __future__ import annotations

import contextlib
import ctypes
import math
import sys
from typing import Any, Dict, NamedTuple, Optional, Sequence, Tuple

from . import _dtypes, _values
from ._abi import Error


# An argument that view_of() takes.
Array = Any


class View(NamedTuple):
    address: int
    dtype: str                # Tessera's word
    shape: Tuple[int, ...]
    strides: Tuple[int, ...]  # in elements
    device: Tuple[str, int]   # ("cpu", 0), ("cuda", 1)
    is_readonly: bool
    owner: Any                # keeps the memory while the view lives

    def nbytes(self) -> int:
        if 0 in self.shape:
            return 0
        last = sum((n - 1) * abs(s) for n, s in zip(self.shape, self.strides))
        return (last + 1) * _dtypes.BYTES[self.dtype]


class _Device(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int32), ("id", ctypes.c_int32)]


class _DataType(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class _Tensor(ctypes.Structure):
    """DLTensor, with which a DLManagedTensor begins."""

    _fields_ = [("data", ctypes.c_void_p), ("device", _Device), ("ndim", ctypes.c_int32),
                ("dtype", _DataType), ("shape", ctypes.POINTER(ctypes.c_int64)),
                ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64)]


# What a DLManagedTensorVersioned has before its DLTensor: the version, two numbers of 32 bits, the
# manager and the deleter, and the flags.
_Header = ctypes.c_uint64 * 4
_VERSION = (1, 0)  # of DLPack, the newest that is asked for
_IS_READONLY = 1   # a flag

_DEVICES = {1: "cpu", 2: "cuda", 3: "cpu", 10: "hip", 11: "cpu", 13: "cuda"}
# The legacy default stream, as DLPack numbers it; a launch knows it as NULL.
_DEFAULT_STREAM = {"cuda": 1, "hip": 0}

_get_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_get_pointer.restype = ctypes.c_void_p
_get_pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
_get_name = ctypes.pythonapi.PyCapsule_GetName
_get_name.restype = ctypes.c_char_p
_get_name.argtypes = [ctypes.py_object]


def packed_strides(shape: Tuple[int, ...]) -> Tuple[int, ...]:
    strides, product = [], 1
    for size in reversed(shape):
        strides.append(product)
        product *= max(size, 1)
    return tuple(reversed(strides))


def check_packed(name: str, view: View) -> None:
    """That the elements are neighbours, in the order of the dimensions."""
    packed = 1
    for size, stride in zip(reversed(view.shape), reversed(view.strides)):
        if size > 1 and stride != packed and 0 not in view.shape:
            raise Error(f"{name} must have no gaps, got the strides {view.strides} over "
                        f"{view.shape}")
        packed *= size


def _in_elements(strides: Tuple[int, ...], itemsize: int, what: str) -> Tuple[int, ...]:
    for stride in strides:
        if stride % itemsize != 0:
            raise Error(f"{what} has a stride of {stride} bytes, which is no multiple of its "
                        f"element's {itemsize} bytes")
    return tuple(stride // itemsize for stride in strides)


def _from_interface(array: Any, what: str) -> View:
    interface = array.__array_interface__
    word = _dtypes.word_of(array.dtype, what)
    shape = tuple(interface["shape"])
    strides = interface.get("strides")
    strides = (packed_strides(shape) if strides is None
               else _in_elements(strides, _dtypes.BYTES[word], what))
    address, is_readonly = interface["data"]
    return View(address, word, shape, strides, ("cpu", 0), is_readonly, array)


def _from_dlpack(array: Any, stream: Optional[int], what: str) -> View:
    kind, device = array.__dlpack_device__()
    backend = _DEVICES.get(int(kind))
    if backend is None:
        raise Error(f"{what} lies on a device of DLPack's type {int(kind)}, where Tessera has no "
                    "kernels")
    # Its package makes the stream wait for what it has enqueued for this array.
    how = {} if backend == "cpu" else {"stream": stream or _DEFAULT_STREAM[backend]}
    capsule = _capsule(array, how, what)
    tensor, is_readonly = _tensor_in(capsule, what)
    kind = (tensor.dtype.code, tensor.dtype.bits)
    if kind not in _dtypes.DLPACK or tensor.dtype.lanes != 1:
        raise _dtypes.unknown(what, str(getattr(array, "dtype", kind)))
    shape = tuple(tensor.shape[:tensor.ndim])
    strides = tuple(tensor.strides[:tensor.ndim]) if tensor.strides else packed_strides(shape)
    return View((tensor.data or 0) + tensor.byte_offset, _dtypes.DLPACK[kind], shape, strides,
                (backend, int(device) if backend != "cpu" else 0), is_readonly, (array, capsule))


def _capsule(array: Any, how: Dict[str, Any], what: str) -> Any:
    """Only since version 1.0 can DLPack say that memory is read-only; packages refuse to give such
    an array by an older version. Older packages do not know the argument."""
    try:
        try:
            return array.__dlpack__(max_version=_VERSION, **how)
        except TypeError:
            return array.__dlpack__(**how)
    except Exception as error:
        raise Error(f"{what} cannot be read through DLPack: {error}") from error


def _tensor_in(capsule: Any, what: str) -> Tuple[_Tensor, bool]:
    """The tensor, and whether it is read-only. The capsule gives the memory back when it is
    forgotten, because nobody renames it."""
    name = _get_name(capsule)
    if name != b"dltensor_versioned":
        return _Tensor.from_address(_get_pointer(capsule, b"dltensor")), False
    address = _get_pointer(capsule, name)
    header = _Header.from_address(address)
    major = header[0] % 2**32 if sys.byteorder == "little" else header[0] >> 32
    if major != _VERSION[0]:
        raise Error(f"{what} is given by version {major} of DLPack, but Tessera knows version "
                    f"{_VERSION[0]}")
    tensor = _Tensor.from_address(address + ctypes.sizeof(_Header))
    return tensor, bool(header[3] & _IS_READONLY)


_FORMATS = {"f": "fp32", "e": "fp16", "b": "int8", "i": "int32"}


def _from_buffer(array: Any, what: str) -> View:
    try:
        memory = memoryview(array)
    except TypeError:
        raise Error(f"{what} must be an array (NumPy, DLPack or the buffer protocol), got "
                    f"{_values.shown(array)}") from None
    word = _FORMATS.get(memory.format)
    if word is None:
        raise _dtypes.unknown(what, f"with the format '{memory.format}'")
    if memory.readonly or not memory.c_contiguous:
        raise Error(f"{what} is a {type(array).__name__} that is read-only or has gaps; wrap it by "
                    "numpy.asarray() first")
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory)) if memory.nbytes else 0
    shape = tuple(memory.shape or ())
    return View(address, word, shape, packed_strides(shape), ("cpu", 0), False, memory)


def view_of(array: Any, what: str, stream: Optional[int] = None) -> View:
    """The View of an array. stream: the GPU's stream on which it will be used, an address."""
    try:
        if hasattr(array, "__array_interface__") and hasattr(array, "dtype"):
            return _from_interface(_not_a_scalar(array), what)
        if hasattr(array, "__dlpack__"):
            return _from_dlpack(array, stream, what)
        return _from_buffer(array, what)
    except Error:
        raise
    except Exception as error:  # what another package's array raises, or one that is none
        raise Error(f"{what} must be an array (NumPy, DLPack or the buffer protocol), but reading "
                    f"this {type(array).__name__} failed ({type(error).__name__})") from error


def _not_a_scalar(array: Any) -> Any:
    """NumPy's scalars show memory that is gone when they have shown it. A copy has its own, and
    nothing may be written there."""
    numpy = sys.modules.get("numpy")
    if numpy is None or not isinstance(array, numpy.generic):
        return array
    made = numpy.array(array)
    made.flags.writeable = False
    return made


def shape_of(array: Any, what: str) -> Tuple[int, ...]:
    """Of a package's array without reading its memory."""
    shape = _values.shape_of(array)
    return view_of(array, what).shape if shape is None else shape


def empty(shape: Tuple[int, ...], word: str, like: Any, view: View) -> Any:
    """A new array beside `like`: of its package on a GPU and for PyTorch, else of NumPy."""
    try:
        return _made(shape, word, like, view)
    except Error:
        raise
    except Exception:  # the package says it in words of its own
        raise Error(f"an array of the shape {shape} and the type {_dtypes.NAMES[word]} cannot be "
                    "made, because there is not so much memory", "out_of_memory") from None


def empty_in(order: Sequence[int], shape: Sequence[int], word: str, like: Any, view: View) -> Any:
    """The same, with the dimensions in that order in memory, (): in their own."""
    if list(order) == sorted(order):
        return empty(tuple(shape), word, like, view)
    made = empty(tuple(shape[i] for i in order), word, like, view)
    back = [list(order).index(i) for i in range(len(order))]
    return made.permute(back) if hasattr(made, "permute") else made.transpose(back)


def view_as(array: Any, word: str, name: str, stream: Optional[int]) -> View:
    """The View of an array of a type that no problem knows, by one that does."""
    dtype = getattr(sys.modules["torch"], word) if package_of(array) == "torch" else word
    try:
        same = array.view(dtype)
    except Exception:
        raise Error(f"{name} must have no gaps, got {_values.shown(array)}") from None
    return view_of(same, name, stream)


def package_of(array: Any) -> str:
    return type(array).__module__.partition(".")[0]


def _made(shape: Tuple[int, ...], word: str, like: Any, view: View) -> Any:
    package = package_of(like)
    if package == "torch":
        dtype = getattr(sys.modules["torch"], _dtypes.NAMES[word])
        return like.new_empty(shape, dtype=dtype)
    if view.device[0] == "cpu":
        import numpy
        return numpy.empty(shape, _dtypes.numpy_dtype(word, getattr(like, "dtype", None)))
    if package == "cupy":
        return sys.modules["cupy"].empty(shape, dtype=_dtypes.NAMES[word])
    raise Error(f"a result on {view.device[0]} cannot be made for an array of {package}; give out=")


def full(shape: Sequence[int], value: Any, dtype: str, like: Any, refusal: str) -> Any:
    """A new array beside `like`, as empty() makes it, that holds a value. dtype: as NumPy calls it.
    refusal: of a package whose arrays cannot be made on a GPU."""
    package = package_of(like)
    if package == "torch":
        return like.new_full(shape, value, dtype=getattr(sys.modules["torch"], dtype))
    if is_on_host(like):
        import numpy
        return numpy.full(shape, value, dtype)
    if package == "cupy":
        return sys.modules["cupy"].full(shape, value, dtype)
    raise Error(f"{refusal} for an array of {package}")


def from_host(array: Any, like: Any, refusal: str) -> Any:
    """An array of NumPy's, copied to where `like` lies. refusal: as full() has it."""
    package = package_of(like)
    if package == "torch":
        return sys.modules["torch"].from_numpy(array).to(like.device)
    if package == "cupy":
        return sys.modules["cupy"].asarray(array)
    if not is_on_host(like):
        raise Error(f"{refusal} for an array of {package}")
    return array


def on_stream(like: Any, stream: Optional[int]) -> Any:
    """A context in which arrays beside `like` are made for the work of a stream, so that a package
    that gives their memory to others waits until this work is done. None: the default stream."""
    package = package_of(like)
    if is_on_host(like) or package not in ("torch", "cupy"):
        return contextlib.nullcontext()
    cuda = sys.modules[package].cuda
    if package == "cupy":
        return cuda.ExternalStream(stream) if stream else cuda.Stream.null
    return cuda.stream(cuda.ExternalStream(stream, like.device) if stream
                       else cuda.default_stream(like.device))


def check_output(view: View, what: str) -> None:
    if view.is_readonly:
        raise Error(f"{what} is read-only, but the result goes there")
    owner = view.owner[0] if isinstance(view.owner, tuple) else view.owner
    if package_of(owner) in ("jax", "jaxlib"):
        raise Error(f"{what} is an array of JAX, which may not be written; leave it out")
    for size, stride in zip(view.shape, view.strides):
        if stride == 0 and size > 1 and 0 not in view.shape:
            raise Error(f"{what} has stride 0 over {size} elements, so that results would overlap")


def workspace_of(array: Any, stream: Optional[int]) -> View:
    """The View of memory that a kernel writes as a whole, from its first byte on."""
    view = view_of(array, "workspace", stream)
    check_output(view, "workspace")
    if view.nbytes() != math.prod(view.shape) * _dtypes.BYTES[view.dtype] or min(
            view.strides, default=0) < 0:
        raise Error("workspace must be memory without gaps in ascending order, got the shape "
                    f"{view.shape} and the strides {view.strides} (in elements)")
    return view


def is_on_host(array: Any) -> bool:
    place = getattr(array, "__dlpack_device__", None)
    try:
        return place is None or _DEVICES.get(int(place()[0])) == "cpu"
    except Exception as error:
        raise Error(f"an array of the type {type(array).__name__} does not say where it lies "
                    f"({type(error).__name__})") from error


_STREAM = ("cuda_stream", "ptr", "handle")  # what objects of PyTorch and CuPy call the address


def stream_address(stream: Any) -> Optional[int]:
    """A stream given as an address, or as an object of PyTorch (cuda_stream) or CuPy (ptr)."""
    if stream is None:
        return None
    for given in (stream, *(getattr(stream, name, None) for name in _STREAM)):
        if isinstance(given, int):
            return _values.whole("stream", given, 0, 2**64) or None
    raise Error("stream must be an address, or an object with cuda_stream or ptr, got "
                f"{type(stream).__name__}")
