"""The table of calls that were seen before, and the way through it: the extension's call_tensors()
finds a call's plan, makes the results and launches, without Python code between.

A function whose call is one launch leaves what it launched (`seen`), and `keep` puts it into the
table. What the table lacks, tensors that ask for a gradient, tracing, autocast and all else that is
more than computing take the way that there is without the extension.
"""
from __future__ import annotations

import ctypes
import os
import struct
import sys
import threading
from typing import Any, Callable, Dict, Optional, Sequence, Tuple, Union

import torch
from torch.autograd import forward_ad

from .. import _abi, _warm

Tensor = torch.Tensor
Results = Union[Tensor, Tuple[Tensor, ...]]
_C: Any = torch._C
_MOST_DIMENSIONS = 8
_DEVICES = {"cpu": 0, "cuda": 1}  # the numbers of PyTorch's functions in C
_table: Dict[Any, Any] = {}
_numbers: Dict[torch.dtype, int] = {}  # of types, in PyTorch's functions in C
_seen = threading.local()


def _nothing(what: Any, *arguments: Any) -> Any:
    return None


def _facts_to_read() -> Tuple[Any, ...]:
    sample = torch.empty_strided((1, 3, 2), (11, 2, 1))
    # Whether the exchange knows the streams of AMD's GPUs has not been tried.
    exchange = None if torch.version.hip else getattr(Tensor, "__dlpack_c_exchange_api__", None)
    return (Tensor, torch.nn.Parameter, _C.TensorBase, torch.strided, exchange, sample)


def _library(name: str) -> ctypes.CDLL:
    """One of PyTorch's, which the process has loaded."""
    folder = os.path.join(os.path.dirname(torch.__file__), "lib")
    return ctypes.CDLL(os.path.join(folder, name), mode=os.RTLD_NOLOAD | os.RTLD_LAZY)


def _facts_to_make() -> Tuple[int, ...]:
    """The addresses of PyTorch's functions in C; () where this version lacks one, and Python makes
    the results. Fills _numbers."""
    try:
        core, python = _library("libtorch_cpu.so"), _library("libtorch_python.so")
        found = [getattr(core, "aoti_torch_" + name) for name in
                 ("empty_strided", "get_data_ptr", "delete_tensor_object")]
        found.append(getattr(python, "_Z16THPVariable_WrapRKN2at10TensorBaseE"))
        for name in ("float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "int32",
                     "int8", "uint8"):
            _numbers[getattr(torch, name)] = getattr(core, "aoti_torch_dtype_" + name)()
    except (AttributeError, OSError):
        _numbers.clear()
        return ()
    return tuple(ctypes.cast(function, ctypes.c_void_p).value or 0 for function in found)


def _bound_call(reading: Optional[Tuple[Any, ...]] = None,
                making: Optional[Tuple[int, ...]] = None) -> Callable[..., Any]:
    """The extension's function. reading, making: in place of what this PyTorch has, for tests."""
    fast = _warm._fast
    if fast is None:
        return _nothing
    _warm.bind()
    reading = _facts_to_read() if reading is None else reading
    making = _facts_to_make() if making is None else making
    idle = (_C._is_any_autocast_enabled, _C._len_torch_dispatch_stack, _C._len_torch_function_stack,
            _C._is_tracing, _C._functorch.peek_interpreter_stack,
            _C._autograd._profiler_enabled)
    settings = (_C.get_num_threads, _C._get_deterministic_algorithms)
    run = sys.modules[__package__ + "._run"]
    fast.bind_tensors((_table, reading, making,
                       (idle, settings, _C.is_grad_enabled, forward_ad.__dict__, run.__dict__,
                        getattr(_C, "_cuda_getCurrentRawStream", None), torch.dtype)))
    return fast.call_tensors


def _first(what: Any, *arguments: Any) -> Any:
    """Loads the library, and puts the extension's function in this one's place."""
    global find
    find = _bound_call()
    return find(what, *arguments)


# The types of what find() gives of a call that was seen before.
RESULTS = (Tensor, tuple)
# find(what, *arguments): the result of a call that was seen before, or the tuple of several; a
# list, for keep(), of one that may be kept; False where nothing but a gradient is asked for; None
# for others. `what` says what is computed of the
# arguments.
find: Callable[..., Any] = _first


def see(bound: Any) -> None:
    """What a call launches, if all of it is one launch of tensors as they were given."""
    _seen.bound = bound


def _maker_of(tensor: Tensor) -> Any:
    """What makes a new tensor that lies as this one does: its numbers for PyTorch's functions in C,
    or a function of a tensor beside it."""
    rank, number = tensor.dim(), _numbers.get(tensor.dtype)
    if number is None or rank > _MOST_DIMENSIONS or tensor.device.type not in _DEVICES:
        shape, strides, dtype = tuple(tensor.shape), tensor.stride(), tensor.dtype
        return lambda like: like.new_empty_strided(shape, strides, dtype=dtype)
    padding = (0,) * (_MOST_DIMENSIONS - rank)
    return struct.pack(f"{3 + 2 * _MOST_DIMENSIONS}q", rank, number, _DEVICES[tensor.device.type],
                       *tensor.shape, *padding, *tensor.stride(), *padding)


def keep(found: Any, arguments: Sequence[Any], slots: Sequence[Optional[int]], made: Results,
         unread: Sequence[int] = ()) -> None:
    """Puts what the call has launched since find() into the table. found: what that returned for
    the arguments. slots: for each tensor that the plan's call names, its position among the
    arguments, -1 - i for the result i; results follow. made: the new results. unread: the
    arguments that the kernel need not read."""
    bound = _seen.__dict__.pop("bound", None)
    if type(found) is not list or bound is None or bound.plan is None or bound.copies or \
            bound.plan._held is None:
        return
    results, count = made if type(made) is tuple else (made,), len(arguments)
    places = [slot if slot is None or slot >= 0 else count - 1 - slot for slot in slots]
    places += range(count, count + len(results))
    sources = [places[source] for source in bound.sources]
    given = [i for i, argument in enumerate(arguments) if isinstance(argument, Tensor)]
    # A tensor that the kernel does not read says something else, which the key does not have, and a
    # number that PyTorch makes a tensor of has no address here.
    if None in sources or len(sources) > _warm.MOST_OPERANDS or \
            {source for source in sources if source < count} - {*unread} != {*given} - {*unread}:
        return
    padded = sources + [0] * (_warm.MOST_OPERANDS - len(sources))
    entry = struct.pack(f"Pi{_warm.MOST_OPERANDS}i", bound.address, len(sources), *padded)
    workspace, room = None, bound.workspace_bytes
    if room:
        workspace = room, _maker_of(arguments[given[0]].new_empty(room, dtype=torch.uint8))
    if len(_table) >= _warm.MOST_ENTRIES:
        _table.clear()
    _table[found[0]] = (entry, tuple([_maker_of(result) for result in results]), workspace, bound)


def forget() -> None:
    """Forgets all calls."""
    _table.clear()
