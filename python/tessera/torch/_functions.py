"""The functions of tessera.torch, over the operators."""
from __future__ import annotations

from typing import Any, Callable, Optional, Tuple, Union

import torch

from . import _ops

Tensor = torch.Tensor
_C: Any = torch._C
_TYPES = (torch.Tensor, torch.nn.Parameter)
ops: Any = torch.ops.tessera


def _is_plain(tensors: Tuple[Optional[Tensor], ...]) -> bool:
    """Whether nothing but the memory of the tensors matters: no gradient, no tracing, no other
    interpretation of the call."""
    for tensor in tensors:
        if tensor is not None and (type(tensor) not in _TYPES or tensor.is_neg() or
                                   not (tensor.is_cpu or tensor.is_cuda)):
            return False
    return not (torch.is_grad_enabled() and _C._any_requires_grad(*tensors)
                or _C._is_any_autocast_enabled() or _C._len_torch_dispatch_stack()
                or _C._len_torch_function_stack() or _C._get_tracing_state() is not None
                or _C._functorch.peek_interpreter_stack() is not None
                or _C._autograd._profiler_enabled())


def _call(op: Any, function: Callable[..., Any], tensors: Tuple[Optional[Tensor], ...],
          *others: Any) -> Any:
    """The operator. Where it can be, its function is called at once, which saves the 8 us that
    PyTorch takes to find it."""
    if not torch.compiler.is_compiling() and _is_plain(tensors):
        return function(*tensors, *others)
    return op(*tensors, *others)


def linear(x: Tensor, weight: Tensor, bias: Optional[Tensor] = None,
           activation: Optional[str] = None) -> Tensor:
    """activation(x @ weight.T + bias), as torch.nn.functional.linear has it.

    x: (..., k), weight: (n, k), of one type: float32, float16, bfloat16. bias: (n,), of that type
    or float32. activation: "relu", "gelu", "gelu_tanh", "silu", "sigmoid", "tanh".
    """
    return _call(ops.linear, _ops.run_linear, (x, weight, bias), activation)


def packed_linear(x: Tensor, weight: Tensor, bias: Optional[Tensor], activation: Optional[str],
                  packed: Tensor, packed_for: str) -> Tensor:
    """linear() with a second copy of the weight, in the form of the kernel `packed_for`."""
    return _call(ops.linear, _ops.run_linear, (x, weight, bias), activation, packed, packed_for)


def matmul(a: Tensor, b: Tensor, bias: Optional[Tensor] = None, activation: Optional[str] = None,
           residual: Optional[Tensor] = None) -> Tensor:
    """activation(a @ b + bias) + residual, with the shapes of torch.matmul."""
    return _call(ops.matmul, _ops.run_matmul, (a, b, bias, residual), activation)


def softmax(x: Tensor) -> Tensor:
    """torch.softmax(x, -1)."""
    return _call(ops.softmax, _ops.run_softmax, (x,))


def rms_norm(x: Tensor, scale: Optional[Tensor] = None, *, residual: Optional[Tensor] = None,
             epsilon: float = 1e-5) -> Union[Tensor, Tuple[Tensor, Tensor]]:
    """x / sqrt(mean(x * x) + epsilon) * scale over the last dimension. With a residual x + residual
    is normalised; the result is then (normalised, x + residual)."""
    if residual is None:
        return _call(ops.rms_norm, _ops.run_rms_norm, (x, scale), epsilon)
    return _call(ops.add_rms_norm, _ops.run_add_rms_norm, (x, residual, scale), epsilon)


def layer_norm(x: Tensor, scale: Optional[Tensor] = None, shift: Optional[Tensor] = None, *,
               residual: Optional[Tensor] = None, epsilon: float = 1e-5
               ) -> Union[Tensor, Tuple[Tensor, Tensor]]:
    """(x - mean) / sqrt(variance + epsilon) * scale + shift over the last dimension. A residual is
    as in rms_norm()."""
    if residual is None:
        return _call(ops.layer_norm, _ops.run_layer_norm, (x, scale, shift), epsilon)
    return _call(ops.add_layer_norm, _ops.run_add_layer_norm, (x, residual, scale, shift), epsilon)
