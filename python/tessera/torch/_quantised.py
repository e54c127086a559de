"""Tensors, normalisations and gates in 8 bits, with scales that are given or written."""
from __future__ import annotations

from typing import Any, Optional, Sequence, Tuple

import torch

from .. import _norms
from .._abi import Error
from .._gated import gelu_kind, interleaving
from .._problem import Problem
from .._quantised import BLOCK, check_quant
from . import _run
from ._operators import Operator, check, register

Tensor = torch.Tensor
_SLOTS = ("in", "residual", "scale", "shift", "out", "sum", "out_scale", "out_scales")
_TYPES = (torch.float8_e4m3fn, torch.float8_e5m2)


def quantise(x: Tensor, *, quant: str = "row", out_scale: Optional[Tensor] = None,
             dtype: torch.dtype = torch.float8_e4m3fn, scales_by_column: bool = False
             ) -> Tuple[Tensor, ...]:
    """x in 8 bits: (out, scales), where out * scales is x but for the rounding. The arguments and
    results are those of rms_norm_quantised()."""
    return _call((x, None, None, None, out_scale), "copy", 1e-5, quant, dtype, scales_by_column)


def rms_norm_quantised(x: Tensor, scale: Optional[Tensor] = None, *,
                       residual: Optional[Tensor] = None, epsilon: float = 1e-5,
                       quant: str = "row", out_scale: Optional[Tensor] = None,
                       dtype: torch.dtype = torch.float8_e4m3fn, scales_by_column: bool = False
                       ) -> Tuple[Tensor, ...]:
    """rms_norm() in 8 bits: (out, scales), and x + residual behind them where there is a residual.

    out * scales is what rms_norm() gives, but for the rounding. quant: what shares a scale, the
    "tensor" (then out_scale is given, one float32, and returned), a "row" or a "block" of 128
    columns. scales: (..., 1) or (..., blocks) in float32; scales_by_column: those of neighbouring
    rows are neighbours in memory. dtype: torch.float8_e4m3fn or torch.float8_e5m2. There are no
    gradients.
    """
    return _call((x, residual, scale, None, out_scale), "rmsnorm", epsilon, quant, dtype,
                 scales_by_column)


def layer_norm_quantised(x: Tensor, scale: Optional[Tensor] = None,
                         shift: Optional[Tensor] = None, *, residual: Optional[Tensor] = None,
                         epsilon: float = 1e-5, quant: str = "row",
                         out_scale: Optional[Tensor] = None,
                         dtype: torch.dtype = torch.float8_e4m3fn, scales_by_column: bool = False
                         ) -> Tuple[Tensor, ...]:
    """layer_norm() in 8 bits; the arguments and results of rms_norm_quantised()."""
    return _call((x, residual, scale, shift, out_scale), "layernorm", epsilon, quant, dtype,
                 scales_by_column)


def silu_mul_quantised(x: Tensor, *, interleaved: bool = False, quant: str = "row",
                       out_scale: Optional[Tensor] = None,
                       dtype: torch.dtype = torch.float8_e4m3fn, scales_by_column: bool = False
                       ) -> Tuple[Tensor, ...]:
    """silu_mul() in 8 bits: (out, scales), as in rms_norm_quantised()."""
    interleaving(interleaved)
    return _call((x, None, None, None, out_scale), "silu_mul", 1e-5, quant, dtype,
                 scales_by_column, interleaved)


def gelu_mul_quantised(x: Tensor, *, approximate: str = "none", interleaved: bool = False,
                       quant: str = "row", out_scale: Optional[Tensor] = None,
                       dtype: torch.dtype = torch.float8_e4m3fn, scales_by_column: bool = False
                       ) -> Tuple[Tensor, ...]:
    """gelu_mul() in 8 bits: (out, scales), as in rms_norm_quantised()."""
    interleaving(interleaved)
    return _call((x, None, None, None, out_scale), gelu_kind(approximate), 1e-5, quant, dtype,
                 scales_by_column, interleaved)


def _call(tensors: Tuple[Any, ...], kind: str, epsilon: float, quant: str, dtype: torch.dtype,
          by_column: bool, interleaved: bool = False) -> Tuple[Tensor, ...]:
    x, residual, scale, shift, out_scale = tensors
    check_quant(quant, by_column, out_scale is not None)
    _check(kind, x, residual, scale, shift, out_scale, quant, dtype)
    out, scales, sums = torch.ops.tessera.norm_quantised(*tensors, kind, float(epsilon), quant,
                                                         dtype, by_column, interleaved)
    scales = scales if out_scale is None else out_scale
    return (out, scales) if residual is None else (out, scales, sums)


def _check(kind: str, x: Tensor, residual: Optional[Tensor], scale: Optional[Tensor],
           shift: Optional[Tensor], out_scale: Optional[Tensor], quant: str, dtype: torch.dtype
           ) -> None:
    if x.dim() == 0:
        raise Error("x must have a dimension at least, got none")
    if dtype not in _TYPES:
        raise Error(f"dtype must be torch.float8_e4m3fn or torch.float8_e5m2, got {dtype}")
    if out_scale is not None and (out_scale.numel() != 1 or out_scale.dtype != torch.float32):
        raise Error("out_scale must be one float32, got "
                    f"{out_scale.numel()} of {out_scale.dtype}")
    for name, weight in (("scale", scale), ("shift", shift)):
        if weight is not None and (weight.dim() != 1 or weight.shape[0] != x.shape[-1]):
            raise Error(f"{name} must have the shape ({x.shape[-1]},), got {tuple(weight.shape)}")
    if residual is not None and (residual.shape != x.shape or residual.dtype != x.dtype):
        raise Error(f"residual must have x's shape and type, {tuple(x.shape)} of {x.dtype}, got "
                    f"{tuple(residual.shape)} of {residual.dtype}")
    if scale is not None and shift is not None and scale.dtype != shift.dtype:
        raise Error(f"shift must have scale's type, {scale.dtype}, got {shift.dtype}")


# ---- The operator --------------------------------------------------------------------------------

def _new_scales(x: Tensor, lead: Sequence[Any], columns: Any, quant: str, by_column: bool
                ) -> Tensor:
    blocks = (columns + BLOCK - 1) // BLOCK if quant == "block" else 1
    last = len(lead)
    order = [last, *range(last)] if by_column and last else []
    return _run.new_in_order(x, (*lead, blocks), order, torch.float32)


def _made(x: Tensor, residual: Optional[Tensor], kind: str, quant: str, dtype: torch.dtype,
          by_column: bool) -> Tuple[Tensor, Tensor, Tensor]:
    """The results: out, scales and sum, without elements where there is none."""
    check(x.dim() > 0, "x must have at least 1 dimension")
    columns = x.shape[-1] // 2 if kind in _norms.GATED else x.shape[-1]
    lead = tuple(x.shape[:-1])
    out = x.new_empty((*lead, columns), dtype=dtype)
    none = quant == "tensor"
    scales = (x.new_empty((0,), dtype=torch.float32) if none
              else _new_scales(x, lead, columns, quant, by_column))
    return out, scales, x.new_empty((0,) if residual is None else x.shape)


def _fake(x: Tensor, residual: Optional[Tensor], scale: Optional[Tensor], shift: Optional[Tensor],
          out_scale: Optional[Tensor], kind: str, epsilon: float, quant: str, dtype: torch.dtype,
          by_column: bool, interleaved: bool) -> Tuple[Tensor, Tensor, Tensor]:
    return _made(x, residual, kind, quant, dtype, by_column)


def _run_quantised(x: Tensor, residual: Optional[Tensor], scale: Optional[Tensor],
                   shift: Optional[Tensor], out_scale: Optional[Tensor], kind: str, epsilon: float,
                   quant: str, dtype: torch.dtype, by_column: bool, interleaved: bool
                   ) -> Tuple[Tensor, Tensor, Tensor]:
    _run.check_devices([(name, tensor) for name, tensor in (
        ("x", x), ("residual", residual), ("scale", scale), ("shift", shift),
        ("out_scale", out_scale))])
    _norms.shape_of(kind, tuple(x.shape))
    x, residual, scale, shift = [None if tensor is None else tensor.contiguous()  # type: ignore
                                 for tensor in (x, residual, scale, shift)]
    out, scales, sums = results = _made(x, residual, kind, quant, dtype, by_column)
    if out.numel() == 0:
        return results
    tensors = (x, residual, scale, shift, out, None if residual is None else sums, out_scale,
               scales if out_scale is None else None)
    options = (kind, None if kind in _norms.ELEMENTWISE else epsilon, quant, by_column, interleaved)
    _run.launch_on(_run.bound_of(bind, options, tensors), tensors, x)
    return results


def bind(options: Tuple[Any, ...], tensors: Sequence[Optional[Tensor]]) -> _run.Bound:
    kind, epsilon, quant, by_column, interleaved = options
    views = {name: _run.tensor_view(tensor, name) for name, tensor in zip(_SLOTS, tensors)
             if tensor is not None}
    asked = (kind, epsilon, ("quant", quant), ("scales_by_column", by_column),
             ("interleaved", interleaved))
    problem = Problem("norm", **_norms.fields_of(asked, views))
    x = tensors[0]
    assert x is not None
    plan = _run.plan_for(problem, x.device)
    return _run.bind(plan, [_SLOTS.index(operand.name) for operand in plan.operands], tensors,
                     x.device)


register(Operator(
    "norm_quantised(Tensor x, Tensor? residual, Tensor? scale, Tensor? shift, Tensor? out_scale, "
    "str kind, float epsilon, str quant, ScalarType dtype, bool by_column, bool interleaved) "
    "-> (Tensor, Tensor, Tensor)", _run_quantised, _fake,
    refusal="results of 8 bits have no derivative"))
