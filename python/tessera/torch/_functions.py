"""The functions of tessera.torch, over the operators."""
from __future__ import annotations

from typing import Any, Optional, Tuple, Union

import torch

from . import _ops

Tensor = torch.Tensor
_C: Any = torch._C
_TYPES = (torch.Tensor, torch.nn.Parameter, type(None))


def _is_plain(*tensors: Optional[Tensor]) -> bool:
    """Whether nothing but the memory of the tensors matters: no gradient, no tracing, no other
    interpretation of the call. Then the operator's function can be called at once, which saves the
    8 us that PyTorch takes to find it."""
    if torch.compiler.is_compiling():
        return False
    for tensor in tensors:
        if type(tensor) not in _TYPES or (tensor is not None and tensor.is_neg()):
            return False
    return not (torch.is_grad_enabled() and _C._any_requires_grad(*tensors)
                or _C._is_any_autocast_enabled() or _C._len_torch_dispatch_stack()
                or _C._len_torch_function_stack() or _C._get_tracing_state() is not None
                or _C._functorch.peek_interpreter_stack() is not None
                or _C._autograd._profiler_enabled())


def linear(x: Tensor, weight: Tensor, bias: Optional[Tensor] = None,
           activation: Optional[str] = None) -> Tensor:
    """activation(x @ weight.T + bias), as torch.nn.functional.linear has it.

    x: (..., k), weight: (n, k), of one type: float32, float16, bfloat16. bias: (n,), of that type
    or float32. activation: "relu", "gelu", "gelu_tanh", "silu", "sigmoid", "tanh".
    """
    if _is_plain(x, weight, bias):
        return _ops.run_linear(x, weight, bias, activation)
    return torch.ops.tessera.linear(x, weight, bias, activation)


def matmul(a: Tensor, b: Tensor, bias: Optional[Tensor] = None, activation: Optional[str] = None,
           residual: Optional[Tensor] = None) -> Tensor:
    """activation(a @ b + bias) + residual, with the shapes of torch.matmul."""
    if _is_plain(a, b, bias, residual):
        return _ops.run_matmul(a, b, bias, activation, residual)
    return torch.ops.tessera.matmul(a, b, bias, activation, residual)


def softmax(x: Tensor) -> Tensor:
    """torch.softmax(x, -1)."""
    return torch.ops.tessera.softmax(x)


def rms_norm(x: Tensor, scale: Optional[Tensor] = None, *, residual: Optional[Tensor] = None,
             epsilon: float = 1e-5) -> Union[Tensor, Tuple[Tensor, Tensor]]:
    """x / sqrt(mean(x * x) + epsilon) * scale over the last dimension. With a residual x + residual
    is normalised; the result is then (normalised, x + residual)."""
    ops: Any = torch.ops.tessera
    if residual is None:
        return ops.rms_norm(x, scale, epsilon)
    return ops.add_rms_norm(x, residual, scale, epsilon)


def layer_norm(x: Tensor, scale: Optional[Tensor] = None, shift: Optional[Tensor] = None, *,
               residual: Optional[Tensor] = None, epsilon: float = 1e-5
               ) -> Union[Tensor, Tuple[Tensor, Tensor]]:
    """(x - mean) / sqrt(variance + epsilon) * scale + shift over the last dimension. A residual is
    as in rms_norm()."""
    ops: Any = torch.ops.tessera
    if residual is None:
        return ops.layer_norm(x, scale, shift, epsilon)
    return ops.add_layer_norm(x, residual, scale, shift, epsilon)


assert _ops  # the operators are registered by importing it
