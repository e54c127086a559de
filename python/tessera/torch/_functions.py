"""The functions of tessera.torch, over the operators."""
from __future__ import annotations

from typing import Any, Callable, Optional, Sequence, Tuple, Union

import torch
from torch.autograd import forward_ad

from .._abi import Error
from . import _operators, _ops, _run, _warm

Tensor = torch.Tensor
_C: Any = torch._C
_TYPES = (torch.Tensor, torch.nn.Parameter)
_STRIDED = torch.strided
ops: Any = torch.ops.tessera


class WrongType(Error, TypeError):
    """What is given as a tensor, and is none."""


def check_tensors(function: str, names: Sequence[str], tensors: Sequence[Any], needed: int) -> None:
    """Refuses what is no tensor, or a tensor without strides. The first `needed` may not be None
    either."""
    if torch.compiler.is_compiling():
        return  # PyTorch looks at them
    for position, (name, tensor) in enumerate(zip(names, tensors)):
        is_left_out = tensor is None and position >= needed
        if not is_left_out and not hasattr(type(tensor), "__torch_function__"):
            raise WrongType(f"{function}: {name} must be a torch.Tensor, got " +
                            ("None" if tensor is None else f"{type(tensor).__name__}; "
                             "torch.as_tensor() makes one of numbers and arrays"))
        if isinstance(tensor, Tensor) and (tensor.is_nested or tensor.layout is not _STRIDED):
            kind, way = (("a nested tensor", "torch.nested.to_padded_tensor()") if tensor.is_nested
                         else (f"of the layout {tensor.layout}", "to_dense()"))
            raise Error(f"{function}: {name} is {kind}, and Tessera takes strided tensors; {way} "
                        "makes one", "unsupported")


def _is_plain(tensors: Tuple[Optional[Tensor], ...], needed: int) -> bool:
    """Whether nothing but the memory of the tensors and their derivatives matter: no tracing, no
    other interpretation of the call."""
    for position, tensor in enumerate(tensors):
        if tensor is None:
            if position < needed:
                return False
        elif (type(tensor) not in _TYPES or tensor.is_neg() or
              not (tensor.is_cpu or tensor.is_cuda) or tensor.layout is not _STRIDED or
              tensor._is_zerotensor() or tensor.is_nested):
            return False
    return not (forward_ad._current_level >= 0
                or _C._is_any_autocast_enabled() or _C._len_torch_dispatch_stack()
                or _C._len_torch_function_stack() or _C._get_tracing_state() is not None
                or _C._functorch.peek_interpreter_stack() is not None
                or _C._autograd._profiler_enabled())


def _call(op: Any, function: Callable[..., Any], needed: int, count: int, *arguments: Any) -> Any:
    """The operator, whose first `count` arguments are tensors, and `needed` of them may not be
    None. A call that was seen before is launched at once."""
    if torch.compiler.is_dynamo_compiling():
        return op(*arguments)
    found = _warm.find(function, *arguments)
    if type(found) in _warm.RESULTS:
        return found
    tensors = arguments[:count]
    if found is None or not _are_given(tensors, needed):
        return call_anew(op, function, needed, tensors, *arguments[count:])
    if found is False:
        return (_operators.direct(op) or op)(*arguments)
    _warm.see(None)
    made = function(*arguments)
    _warm.keep(found, arguments, _ops.SLOTS[function], made, _ops.UNREAD.get(function, ()))
    return made


def _are_given(tensors: Sequence[Any], needed: int) -> bool:
    """Whether these are tensors of PyTorch's own types, or None where that may be."""
    return all([type(tensor) in _TYPES or tensor is None and position >= needed
                for position, tensor in enumerate(tensors)])


def check_found(found: Any, function: str, names: Sequence[str], tensors: Sequence[Any],
                needed: int) -> None:
    """check_tensors() after find(), which has looked at what is a tensor."""
    if found is None or not _are_given(tensors, needed):
        check_tensors(function, names, tensors, needed)


def call_found(found: Any, op: Any, function: Callable[..., Any], needed: int,
               tensors: Tuple[Optional[Tensor], ...], *others: Any) -> Any:
    """call_anew() after find() and check_found()."""
    if found is None:
        return call_anew(op, function, needed, tensors, *others)
    if found is False:
        return (_operators.direct(op) or op)(*tensors, *others)
    return function(*tensors, *others)


def call_anew(op: Any, function: Callable[..., Any], needed: int,
              tensors: Tuple[Optional[Tensor], ...], *others: Any) -> Any:
    """The same without the table of calls. Where it can be, the function is called at once, which
    saves the 8 us that PyTorch takes to find it."""
    if not torch.compiler.is_compiling():
        if _is_plain(tensors, needed):
            if not (torch.is_grad_enabled() and _C._any_requires_grad(*tensors)):
                return function(*tensors, *others)
            at_once = _operators.direct(op)
            if at_once is not None:
                return at_once(*tensors, *others)
        names = [argument.name for argument in op.default._schema.arguments]
        check_tensors(op.default._opname, names, tensors, needed)
    return op(*tensors, *others)


def linear(x: Tensor, weight: Tensor, bias: Optional[Tensor] = None,
           activation: Optional[str] = None) -> Tensor:
    """activation(x @ weight.T + bias), as torch.nn.functional.linear has it.

    x: (..., k), weight: (n, k), of one type: float32, float16, bfloat16. bias: (n,), of that type
    or float32. activation: "relu", "gelu", "gelu_tanh", "silu", "sigmoid", "tanh".
    """
    return _call(ops.linear, _ops.run_linear, 2, 3, x, weight, bias, activation)


def packed_linear(x: Tensor, weight: Tensor, bias: Optional[Tensor], activation: Optional[str],
                  packed: Tensor, packed_for: str) -> Tensor:
    """linear() with a second copy of the weight, in the form of the kernel `packed_for`. The caller
    knows that it is one; the operator, which a compiled model calls, compares them itself."""
    return _call(ops.linear, _ops.run_packed_linear, 2, 3, x, weight, bias, activation, packed,
                 packed_for)


def matmul(a: Tensor, b: Tensor, bias: Optional[Tensor] = None, activation: Optional[str] = None,
           residual: Optional[Tensor] = None) -> Tensor:
    """activation(a @ b + bias) + residual, with the shapes of torch.matmul."""
    return _call(ops.matmul, _ops.run_matmul, 2, 4, a, b, bias, residual, activation)


def softmax(x: Tensor) -> Tensor:
    """torch.softmax(x, -1)."""
    return _call(ops.softmax, _ops.run_softmax, 1, 1, x)


def rms_norm(x: Tensor, scale: Optional[Tensor] = None, *, residual: Optional[Tensor] = None,
             epsilon: float = 1e-5) -> Union[Tensor, Tuple[Tensor, Tensor]]:
    """x / sqrt(mean(x * x) + epsilon) * scale over the last dimension. With a residual x + residual
    is normalised; the result is then (normalised, x + residual)."""
    if residual is None:
        return _call(ops.rms_norm, _ops.run_rms_norm, 1, 2, x, scale, epsilon)
    return _call(ops.add_rms_norm, _ops.run_add_rms_norm, 2, 3, x, residual, scale, epsilon)


def layer_norm(x: Tensor, scale: Optional[Tensor] = None, shift: Optional[Tensor] = None, *,
               residual: Optional[Tensor] = None, epsilon: float = 1e-5
               ) -> Union[Tensor, Tuple[Tensor, Tensor]]:
    """(x - mean) / sqrt(variance + epsilon) * scale + shift over the last dimension. A residual is
    as in rms_norm()."""
    if residual is None:
        return _call(ops.layer_norm, _ops.run_layer_norm, 1, 3, x, scale, shift, epsilon)
    return _call(ops.add_layer_norm, _ops.run_add_layer_norm, 2, 4, x, residual, scale, shift,
                 epsilon)
