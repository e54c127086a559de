"""Tessera's products as candidates of Inductor's autotuning.

    import tessera_inductor
    tessera_inductor.register()
    fast = torch.compile(model, mode="max-autotune")

A product of PyTorch (aten.mm: nn.Linear without a bias, torch.mm) then has Tessera's among its
candidates, and torch.ops.tessera.linear and matmul, which tessera.torch's functions and modules
call, have PyTorch's own product. Inductor measures all of them and takes the fastest.
"""
from __future__ import annotations

import inspect
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple

import tessera
import tessera.torch
import torch
from torch._inductor import config
from torch._inductor.kernel.custom_op import autotune_custom_op
from torch._inductor.lowering import fallback_handler, lowerings

Tensor = torch.Tensor
_TYPES = (torch.float32, torch.float16, torch.bfloat16)
_ACTIVATIONS = {"relu": torch.relu, "gelu": torch.nn.functional.gelu,
                "gelu_tanh": lambda x: torch.nn.functional.gelu(x, approximate="tanh"),
                "silu": torch.nn.functional.silu, "sigmoid": torch.sigmoid, "tanh": torch.tanh}


# Exchanging three tensors takes 46 us, and copying fewer elements than these takes less.
_COPIED = 1 << 16


# ---- The report ----------------------------------------------------------------------------------

class NotTaken(NamedTuple):
    """A reason for which PyTorch computed a product, or nothing was measured. calls: how often;
    what the compiler decides is counted once for each time that it compiles."""

    what: str
    why: str
    calls: int


_met: Dict[Tuple[str, str], int] = {}


def report(clear: bool = False) -> List[NotTaken]:
    """All since the import, or since this was last asked for with clear=True."""
    found = [NotTaken(what, why, calls) for (what, why), calls in _met.items()]
    if clear:
        _met.clear()
    return found


def _leave(what: str, why: str) -> None:
    _met[what, why] = _met.get((what, why), 0) + 1


# ---- A candidate of aten.mm ----------------------------------------------------------------------

def tessera_mm(a: Tensor, b: Tensor, *, out: Tensor) -> Tensor:
    """out = a @ b, by the name that Inductor's code has for it. What Tessera does not take gets
    PyTorch's own product, and the report says so."""
    why = "" if a.dtype in _TYPES and a.dtype == b.dtype else f"the types are {a.dtype}, {b.dtype}"
    try:
        if not why:
            return _product(a, b, out)
    except tessera.Error as error:
        why = str(error)
    _leave("aten.mm", why)
    return torch.mm(a, b, out=out)


def _product(a: Tensor, b: Tensor, out: Tensor) -> Tensor:
    if out.numel() < _COPIED:
        return out.copy_(tessera.torch.matmul(a, b))
    stream = torch.cuda.current_stream() if a.is_cuda else None
    tessera.matmul(a, b, out=out, stream=stream)
    return out


# ---- Candidates of our operators -----------------------------------------------------------------
# The twins compute the same and have no lowering of their own, so that Inductor's search, which
# traces each candidate, ends with them.

@torch.library.custom_op("tessera_inductor::linear", mutates_args=())
def _linear_kernel(x: Tensor, weight: Tensor, bias: Optional[Tensor] = None,
                   activation: Optional[str] = None) -> Tensor:
    return torch.ops.tessera.linear(x, weight, bias, activation)


@_linear_kernel.register_fake
def _linear_shape(x: Tensor, weight: Tensor, bias: Optional[Tensor] = None,
                  activation: Optional[str] = None) -> Tensor:
    return torch.ops.tessera.linear(x, weight, bias, activation)


@torch.library.custom_op("tessera_inductor::matmul", mutates_args=())
def _matmul_kernel(a: Tensor, b: Tensor, bias: Optional[Tensor] = None,
                   residual: Optional[Tensor] = None, activation: Optional[str] = None) -> Tensor:
    return torch.ops.tessera.matmul(a, b, bias, residual, activation)


@_matmul_kernel.register_fake
def _matmul_shape(a: Tensor, b: Tensor, bias: Optional[Tensor] = None,
                  residual: Optional[Tensor] = None, activation: Optional[str] = None) -> Tensor:
    return torch.ops.tessera.matmul(a, b, bias, residual, activation)


def _activated(x: Tensor, activation: Optional[str]) -> Tensor:
    return x if activation is None else _ACTIVATIONS[activation](x)


def _linear_candidates(has_bias: bool, activation: Optional[str]) -> List[Callable[..., Tensor]]:
    """Functions of the tensors that there are."""
    def tessera_linear(x: Tensor, weight: Tensor, bias: Optional[Tensor] = None) -> Tensor:
        return torch.ops.tessera_inductor.linear(x, weight, bias, activation)

    def aten_linear(x: Tensor, weight: Tensor, bias: Optional[Tensor] = None) -> Tensor:
        bias = None if bias is None else bias.to(x.dtype)
        return _activated(torch.nn.functional.linear(x, weight, bias), activation)
    return [tessera_linear, aten_linear]


def _matmul_candidates(has_bias: bool, activation: Optional[str]) -> List[Callable[..., Tensor]]:
    def split(others: Any) -> Any:
        """The bias comes before the residual."""
        others = list(others)
        bias = others.pop(0) if has_bias else None
        return bias, others[0] if others else None

    def tessera_matmul(a: Tensor, b: Tensor, *others: Tensor) -> Tensor:
        return torch.ops.tessera_inductor.matmul(a, b, *split(others), activation)

    def aten_matmul(a: Tensor, b: Tensor, *others: Tensor) -> Tensor:
        bias, residual = split(others)
        out = torch.matmul(a, b)
        out = _activated(out if bias is None else out + bias.to(out.dtype), activation)
        return out if residual is None else out + residual.to(out.dtype)
    return [tessera_matmul, aten_matmul]


def _chosen(name: str, candidates: List[Callable[..., Tensor]], tensors: List[Any]) -> Any:
    """Newer versions than torch 2.11 ask whether the operator itself is a candidate, and give the
    choice beside the result."""
    more = {}
    if "include_fallback" in inspect.signature(autotune_custom_op).parameters:
        more["include_fallback"] = False
    found = autotune_custom_op(name=name, decompositions=candidates, inputs=tensors,
                               non_tensor_args=[{} for _ in candidates],
                               op_overload=None, **more)  # type: ignore[arg-type]
    return found[0] if isinstance(found, tuple) else found


def _why_not(tensors: List[Any]) -> str:
    """Inductor measures under max_autotune alone. The types of 8 bits have results of another type,
    which PyTorch's product has not."""
    if not (config.max_autotune or config.max_autotune_gemm):
        return "not measured: max_autotune is not asked for"
    other = [tensor.get_dtype() for tensor in tensors if tensor.get_dtype() not in _TYPES]
    return f"not measured: PyTorch's product has no {other[0]}" if other else ""


_as_it_is: dict = {}


def _linear_lowering(x: Any, weight: Any, bias: Any = None, activation: Optional[str] = None,
                     packed: Any = None, packed_for: Optional[str] = None) -> Any:
    """A packed weight has been measured before, and stays."""
    tensors = [tensor for tensor in (x, weight, bias) if tensor is not None]
    why = "not measured: the weight is packed" if packed is not None else _why_not(tensors)
    if why:
        _leave("tessera.linear", why)
        return _as_it_is["linear"](x, weight, bias, activation, packed, packed_for)
    return _chosen("tessera_linear", _linear_candidates(bias is not None, activation), tensors)


def _matmul_lowering(a: Any, b: Any, bias: Any = None, residual: Any = None,
                     activation: Optional[str] = None) -> Any:
    tensors = [tensor for tensor in (a, b, bias, residual) if tensor is not None]
    why = _why_not(tensors)
    if why:
        _leave("tessera.matmul", why)
        return _as_it_is["matmul"](a, b, bias, residual, activation)
    return _chosen("tessera_matmul", _matmul_candidates(bias is not None, activation), tensors)


def register() -> None:
    """Twice is once."""
    if tessera_mm not in config.external_matmul:
        config.external_matmul.append(tessera_mm)
    for name, lowering in (("linear", _linear_lowering), ("matmul", _matmul_lowering)):
        op = getattr(torch.ops.tessera, name).default
        if name not in _as_it_is:
            _as_it_is[name] = fallback_handler(op, add_to_fallback_set=False)
        lowerings[op] = lowering


def unregister() -> None:
    if tessera_mm in config.external_matmul:
        config.external_matmul.remove(tessera_mm)
    for name in _as_it_is:
        lowerings.pop(getattr(torch.ops.tessera, name).default, None)
