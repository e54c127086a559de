"""RMSNorm and LayerNorm whose outputs have 8 bits, with scales that are given or written."""
from __future__ import annotations

from typing import Any, Optional, Tuple

import torch

from .. import _dtypes
from .._abi import Error
from .._problem import Problem
from . import _run

Tensor = torch.Tensor
BLOCK = 128
QUANTS = ("tensor", "row", "block")


def rms_norm_quantised(x: Tensor, scale: Optional[Tensor] = None, *,
                       residual: Optional[Tensor] = None, epsilon: float = 1e-5,
                       quant: str = "row", out_scale: Optional[Tensor] = None,
                       dtype: torch.dtype = torch.float8_e4m3fn, scales_by_column: bool = False
                       ) -> Tuple[Tensor, ...]:
    """rms_norm() in 8 bits: (out, scales), and x + residual behind them where there is a residual.

    out * scales is what rms_norm() gives, but for the rounding. quant: what shares a scale, the
    "tensor" (then out_scale is given, one float32, and returned), a "row" or a "block" of 128
    columns. scales: (..., 1) or (..., blocks) in float32; scales_by_column: those of neighbouring
    rows are neighbours in memory. dtype: torch.float8_e4m3fn or torch.float8_e5m2. Without
    gradients.
    """
    fields = {"kind": "rmsnorm", "quant": quant, "by_column": scales_by_column}
    return _quantised(fields, x, scale, None, residual, epsilon, out_scale, dtype)


def layer_norm_quantised(x: Tensor, scale: Optional[Tensor] = None,
                         shift: Optional[Tensor] = None, *, residual: Optional[Tensor] = None,
                         epsilon: float = 1e-5, quant: str = "row",
                         out_scale: Optional[Tensor] = None,
                         dtype: torch.dtype = torch.float8_e4m3fn, scales_by_column: bool = False
                         ) -> Tuple[Tensor, ...]:
    """layer_norm() in 8 bits; the arguments and results of rms_norm_quantised()."""
    fields = {"kind": "layernorm", "quant": quant, "by_column": scales_by_column}
    return _quantised(fields, x, scale, shift, residual, epsilon, out_scale, dtype)


def _check(x: Tensor, fields: Any, out_scale: Optional[Tensor]) -> None:
    if fields["quant"] not in QUANTS:
        raise Error(f"quant must be one of {', '.join(QUANTS)}, got {fields['quant']!r}")
    if x.dim() == 0:
        raise Error("x must have a dimension at least, got none")
    if (out_scale is not None) != (fields["quant"] == "tensor"):
        raise Error("out_scale is given with quant='tensor' and not otherwise, got "
                    f"{'one' if out_scale is not None else 'none'} with quant={fields['quant']!r}")
    if out_scale is not None and (out_scale.numel() != 1 or out_scale.dtype != torch.float32):
        raise Error("out_scale must be one float32, got "
                    f"{out_scale.numel()} of {out_scale.dtype}")


def _weight(name: str, tensor: Optional[Tensor], x: Tensor) -> Optional[Tensor]:
    if tensor is None:
        return None
    if tuple(tensor.shape) != (x.shape[-1],):
        raise Error(f"{name} must have the shape ({x.shape[-1]},), got {tuple(tensor.shape)}")
    return tensor.contiguous()


def _scales(x: Tensor, rows: int, fields: Any) -> Tensor:
    blocks = -(-x.shape[-1] // BLOCK) if fields["quant"] == "block" else 1
    if not fields["by_column"]:
        return x.new_empty((rows, blocks), dtype=torch.float32)
    return x.new_empty((blocks, rows), dtype=torch.float32).t()


def _line(made: Any, fields: Any, epsilon: float) -> str:
    x, weight = made["in"], made.get("scale", made.get("shift"))
    words = {"kind": fields["kind"], "rows": x.shape[0], "columns": x.shape[1],
             "in": _run.type_word(x, "x"), "out": _run.type_word(made["out"], "dtype"),
             "weight": _run.type_word(x if weight is None else weight, "scale"),
             "epsilon": repr(float(epsilon)), "quant": fields["quant"],
             "scales_by_column": int(fields["by_column"])}
    words.update((name, int(name in made)) for name in ("scale", "shift", "residual"))
    return "norm " + " ".join(f"{name}={value}" for name, value in words.items())


def _quantised(fields: Any, x: Tensor, scale: Optional[Tensor], shift: Optional[Tensor],
               residual: Optional[Tensor], epsilon: float, out_scale: Optional[Tensor],
               dtype: torch.dtype) -> Tuple[Tensor, ...]:
    _check(x, fields, out_scale)
    if residual is not None and (residual.shape != x.shape or residual.dtype != x.dtype):
        raise Error(f"residual must have x's shape and type, {tuple(x.shape)} of {x.dtype}, got "
                    f"{tuple(residual.shape)} of {residual.dtype}")
    if scale is not None and shift is not None and scale.dtype != shift.dtype:
        raise Error(f"shift must have scale's type, {scale.dtype}, got {shift.dtype}")
    flat = x.detach().reshape(-1, x.shape[-1]).contiguous()
    given = {"in": flat, "scale": _weight("scale", scale, x), "shift": _weight("shift", shift, x),
             "residual": None if residual is None else residual.reshape(flat.shape).contiguous(),
             "out": torch.empty_like(flat, dtype=dtype), "out_scale": out_scale}
    if residual is not None:
        given["sum"] = torch.empty_like(flat)
    scales = out_scale if out_scale is not None else _scales(flat, flat.shape[0], fields)
    if out_scale is None:
        given["out_scales"] = scales
    made = {name: tensor.detach() for name, tensor in given.items() if tensor is not None}
    _run.check_devices(list(made.items()))
    if flat.numel() > 0:
        _launch(made, _line(made, fields, epsilon), x.device)
    if out_scale is None:
        scales = scales.reshape(*x.shape[:-1], scales.shape[-1]) if x.dim() != 2 else scales
    results = (made["out"].reshape(x.shape), scales)
    return results + ((made["sum"].reshape(x.shape),) if residual is not None else ())


def _launch(made: Any, line: str, device: torch.device) -> None:
    plan = _run.plan_for(Problem(line), device)
    names = [operand.name for operand in plan.operands]
    tensors = [made[name] for name in names]
    bound = _run.bind(plan, range(len(names)), tensors, device)
    _run.launch_on(bound, tensors, made["in"])
