"""Products of 8-bit floats with scales: torch.ops.tessera.scaled_mm and scaled_grouped_mm."""
from __future__ import annotations

from typing import Any, Dict, List, Optional, Sequence, Tuple

import torch

from .. import _dtypes, _grouped, _scales
from .._abi import Error
from .._checks import named
from .._layout import Matrices, gemm_sizes
from .._problem import Problem
from .._scales import Found, Side
from . import _run
from ._attention_ops import TENSORS
from ._functions import ops
from ._operators import Operator, check, register

Tensor = torch.Tensor
_NAMES = ("a", "b", "scale_a", "scale_b", "bias", "offs", "out")
_BYTE = getattr(torch, "float8_e8m0fnu", None)  # since PyTorch 2.7
_OUTPUTS = (torch.bfloat16, torch.float16, torch.float32)


# ---- Scales --------------------------------------------------------------------------------------

def _grouping(a: Tensor, b: Tensor, offs: Optional[Tensor]) -> str:
    """The kind of groups; "" without offs, where both may have batches."""
    ranks = a.dim(), b.dim()
    if offs is not None:
        return _grouped.grouping_of(ranks, {"ends": True, "index": None, "rows": None})
    if ranks not in ((2, 2), (3, 3)):
        raise Error(f"a and b must have 2 and 2 or 3 and 3 dimensions without offs, got {ranks[0]} "
                    f"and {ranks[1]}")
    return ""


def _sides(a: Tensor, b: Tensor, scales: Sequence[Tensor]) -> Tuple[Side, Side]:
    """The scales lie as their operands do: of a matrix for each group they are one for each."""
    lead = [tuple(x.shape[:-2]) for x in (a, b)]
    return (Side("scale_a", a.shape[-2], a.shape[-1], lead[0], False, scales[0].dtype == _BYTE),
            Side("scale_b", b.shape[-1], b.shape[-2], lead[1], True, scales[1].dtype == _BYTE))


def _unswizzled(side: Side, scale: Tensor) -> Tensor:
    """cuBLAS's order of one dimension as rows by blocks along k: tiles of 128 rows by 4 blocks,
    within each of which 32 rows lie 16 bytes apart."""
    if not side.is_byte or scale.dim() != 1 or side.lead:
        return scale
    rows, k = _scales.swizzled_blocks(side)
    if scale.numel() != rows * k * 512:
        raise Error(f"{side.label} of 1 dimension must have {rows * k * 512} elements, those of "
                    f"{rows} x {k} tiles of 128 {'columns' if side.is_b else 'rows'} by 4 blocks "
                    f"along k, got {scale.numel()}")
    tiles = scale.view(torch.uint8).reshape(rows, k, 32, 4, 4)
    whole = tiles.permute(0, 3, 2, 1, 4).reshape(rows * 128, k * 4)
    return whole[:side.rows, :-(-side.k // 32)].view(_BYTE)


def _of_groups(side: Side, scale: Tensor, groups: int) -> Tensor:
    """Scales of whole rows that follow each other for all groups along k."""
    if scale.dim() == 1 and not side.is_byte and groups > 1 and scale.numel() == groups * side.rows:
        return scale.reshape(groups, side.rows)
    return scale


def _laid(side: Side, scale: Tensor, found: Found) -> Tensor:
    """The scales as a problem takes them: vectors, or rows before k. Few are copied."""
    if side.is_byte:
        scale = scale.view(torch.uint8)
    elif scale.dtype != torch.float32:
        raise Error(f"{side.label} must have the type float32 or float8_e8m0fnu, got "
                    f"{str(scale.dtype).rpartition('.')[2]}")
    if found.kind == "tensor":
        return scale.reshape(()).expand(*side.lead, side.rows).contiguous()
    if found.kind == "row":
        return scale.reshape(*side.lead, side.rows).contiguous()
    scale = scale.mT if found.is_turned else scale
    return scale.contiguous() if any(step < 0 for step in scale.stride()) else scale


def _prepared(a: Tensor, b: Tensor, scales: Sequence[Tensor], grouping: str, groups: int
              ) -> Tuple[Tuple[Found, Found], List[Tensor]]:
    sides = _sides(a, b, scales)
    _scales.check_types(sides)
    given = [_unswizzled(*row) for row in zip(sides, scales)]
    if grouping == "along_k":
        given = [_of_groups(side, scale, groups) for side, scale in zip(sides, given)]
        per_group = [scale.dim() == 2 and tuple(scale.shape) == (groups, side.rows)
                     and not side.is_byte for side, scale in zip(sides, given)]
        sides = tuple(side._replace(lead=(groups,)) if is_own else side
                      for side, is_own in zip(sides, per_group))  # type: ignore[assignment]
    found = _scales.pair(sides, [tuple(scale.shape) for scale in given])
    return found, [_laid(*row) for row in zip(sides, given, found)]


# ---- Plans ---------------------------------------------------------------------------------------

def _dense_fields(views: Dict[str, Any]) -> Tuple[Dict[str, Any], bool]:
    a, b, out = (Matrices(name, views[name].shape, views[name].strides)
                 for name in ("a", "b", "out"))
    fields = gemm_sizes(a, b, out, None, a.lead, None)
    fields.update((name, views[name].dtype) for name in ("a", "b", "out"))
    return fields, False


def _fields(grouping: str, views: Dict[str, Any]) -> Tuple[Dict[str, Any], bool]:
    """The problem without scales, and whether a and b have changed places."""
    if not grouping:
        return _dense_fields(views)
    options = _grouped.Options(grouping)
    chosen = {name: view for name, view in views.items() if name in ("a", "b", "out")}
    chosen["group_ends"] = views["offs"]
    fields, slots = _grouped.problem_of(options, chosen)
    return fields, slots["a"] == "b"


def _bind(options: Any, tensors: Sequence[Optional[Tensor]]) -> _run.Bound:
    """options: the grouping, what the scales are, and whether they are bytes."""
    grouping, found, is_byte = options
    given = [(name, x) for name, x in zip(_NAMES, tensors) if x is not None]
    _run.check_devices(given)
    views = {name: _run.tensor_view(x, name) for name, x in given
             if not (is_byte and name.startswith("scale_"))}
    fields, is_turned = _fields(grouping, views)
    order = ("b", "a") if is_turned else ("a", "b")
    scales = [tensors[_NAMES.index(f"scale_{name}")] for name in order]
    slots = {name: name for name in _NAMES}
    slots.update({"a": order[0], "b": order[1], "group_ends": "offs"})
    if found[0].kind in _scales.WHOLE:
        fields.update(_scales.whole_epilogue(views.get("bias")))
        slots.update(d0=f"scale_{order[0]}", d1=f"scale_{order[1]}", d2="bias")
        for i, scale in enumerate(scales):
            assert scale is not None
            fields[f"batch_stride_d{i}"] = scale.stride(0) if scale.dim() == 2 else 0
        fields.update({"batch_stride_d2": 0} if "bias" in views else {})
    else:
        kinds = found[::-1] if is_turned else found
        for name, kind, scale in zip(("a", "b"), kinds, scales):
            assert scale is not None
            fields.update(_scales.block_fields(name, kind, tuple(scale.shape), scale.stride()))
        fields["scale_type"] = "e8m0" if is_byte else "fp32"
        slots.update(scale_a=f"scale_{order[0]}", scale_b=f"scale_{order[1]}", d0="bias")
        if "bias" in views:
            fields.update(epilogue="bias", d=views["bias"].dtype, batch_stride_d0=0)
    device = given[0][1].device
    if 0 in views["out"].shape:
        return _run.bind(None, [], tensors, device)
    plan = _run.plan_for(Problem("gemm", **fields), device)
    return _run.bind(plan, [_NAMES.index(slots[x.name]) for x in plan.operands], tensors, device)


# ---- Operators -----------------------------------------------------------------------------------

def _check(a: Tensor, b: Tensor, bias: Optional[Tensor], dtype: torch.dtype) -> None:
    for name, tensor in (("a", a), ("b", b)):
        if tensor.dtype not in (torch.float8_e4m3fn, torch.float8_e5m2):
            raise Error(f"{name} must have the type float8_e4m3fn or float8_e5m2, got "
                        f"{str(tensor.dtype).rpartition('.')[2]}")
    if dtype not in _OUTPUTS:
        raise Error("out_dtype must be bfloat16, float16 or float32, got "
                    f"{str(dtype).rpartition('.')[2]}")
    check(a.shape[-1] == b.shape[-2], f"a has {a.shape[-1]} columns and b has {b.shape[-2]} rows; "
          "the two must be equal")
    if bias is not None:
        check(bias.dim() == 1 and bias.shape[0] == b.shape[-1],
              f"bias must have the shape ({b.shape[-1]},), got {tuple(bias.shape)}")


def _out(a: Tensor, b: Tensor, offs: Optional[Tensor], dtype: torch.dtype) -> Tensor:
    """A new result."""
    lead = tuple(a.shape[:-2]) if b.dim() == 3 else ()
    if offs is not None:
        lead = (offs.shape[0],) if a.dim() == b.dim() == 2 else ()
    order = (1, 0) if offs is not None and a.dim() == 3 else ()
    return _run.new_in_order(a, (*lead, a.shape[-2], b.shape[-1]), order, dtype)


def _multiply(name: str, a: Tensor, b: Tensor, scales: Sequence[Tensor], bias: Optional[Tensor],
              offs: Optional[Tensor], dtype: torch.dtype) -> Tensor:
    try:
        _check(a, b, bias, dtype)
        grouping = _grouping(a, b, offs)
        ends = None if offs is None else TENSORS.row("offs", offs)[0]
        found, laid = _prepared(a, b, scales, grouping, 0 if offs is None else offs.shape[0])
        out = _out(a, b, offs, dtype)
        if grouping and grouping != "along_k":
            out.zero_()  # rows and columns of no group
        if bias is not None and (found[0].kind in _scales.WHOLE or bias.dtype != dtype):
            bias = bias.float()
        operands = [x.contiguous() if _run._lies_badly(x) else x for x in (a, b)]
        options = grouping, found, scales[0].dtype == _BYTE
        _run.run(_bind, options, (*operands, *laid, bias, ends, out), a)
        return out
    except Error as error:
        raise named(name, error) from None


def run_mm(a: Tensor, b: Tensor, scale_a: Tensor, scale_b: Tensor, bias: Optional[Tensor],
           out_dtype: torch.dtype) -> Tensor:
    return _multiply("scaled_mm", a, b, (scale_a, scale_b), bias, None, out_dtype)


def run_grouped(a: Tensor, b: Tensor, scale_a: Tensor, scale_b: Tensor, offs: Optional[Tensor],
                out_dtype: torch.dtype) -> Tensor:
    return _multiply("scaled_grouped_mm", a, b, (scale_a, scale_b), None, offs, out_dtype)


def _fake_mm(a: Tensor, b: Tensor, scale_a: Tensor, scale_b: Tensor, bias: Optional[Tensor],
             out_dtype: torch.dtype) -> Tensor:
    _check(a, b, bias, out_dtype)
    return _out(a, b, None, out_dtype)


def _fake_grouped(a: Tensor, b: Tensor, scale_a: Tensor, scale_b: Tensor, offs: Optional[Tensor],
                  out_dtype: torch.dtype) -> Tensor:
    _check(a, b, None, out_dtype)
    _grouping(a, b, offs)
    return _out(a, b, offs, out_dtype)


_REFUSAL = "products of 8-bit floats with scales have no derivatives"
register(Operator("scaled_mm(Tensor a, Tensor b, Tensor scale_a, Tensor scale_b, Tensor? bias, "
                  "ScalarType out_dtype) -> Tensor", run_mm, _fake_mm, refusal=_REFUSAL))
register(Operator("scaled_grouped_mm(Tensor a, Tensor b, Tensor scale_a, Tensor scale_b, "
                  "Tensor? offs, ScalarType out_dtype) -> Tensor", run_grouped, _fake_grouped,
                  refusal=_REFUSAL))


def _output_type(mat_a: Tensor, scale_result: Optional[Tensor],
                 out_dtype: Optional[torch.dtype]) -> torch.dtype:
    if scale_result is not None:
        raise Error("scale_result must be None, because results have 16 or 32 bits")
    return mat_a.dtype if out_dtype is None else out_dtype


def scaled_mm(mat_a: Tensor, mat_b: Tensor, scale_a: Tensor, scale_b: Tensor,
              bias: Optional[Tensor] = None, scale_result: Optional[Tensor] = None,
              out_dtype: Optional[torch.dtype] = torch.bfloat16, use_fast_accum: bool = False
              ) -> Tensor:
    """(scale_a * mat_a) @ (scale_b * mat_b) + bias, with the arguments of torch._scaled_mm.

    mat_a (m, k) and mat_b (k, n) in float8_e4m3fn or float8_e5m2, of any sizes and strides. The
    shapes of the scales say what shares one:
    float32: 1 number; (m, 1) and (1, n); (m, k / 128) and (k / 128, n), of which each may be
        (m / 128, k / 128) or (k / 128, n / 128) instead.
    float8_e8m0fnu: (m, k / 32) and (n, k / 32), or 1 dimension in the order of cuBLAS, which is
        copied.
    Sizes are rounded up. Scales may have any strides. out_dtype: bfloat16, float16 or float32.
    use_fast_accum changes nothing: sums are in float32.
    """
    dtype = _output_type(mat_a, scale_result, out_dtype)
    return ops.scaled_mm(mat_a, mat_b, scale_a, scale_b, bias, dtype)


def scaled_grouped_mm(mat_a: Tensor, mat_b: Tensor, scale_a: Tensor, scale_b: Tensor,
                      offs: Optional[Tensor] = None, bias: Optional[Tensor] = None,
                      scale_result: Optional[Tensor] = None,
                      out_dtype: Optional[torch.dtype] = torch.bfloat16,
                      use_fast_accum: bool = False) -> Tensor:
    """The products of groups with scales, with the arguments of torch._scaled_grouped_mm.

    mat_a, mat_b and offs are those of grouped_mm(). Scales of rows: (m,) or (groups, m), and (n,)
    or (groups, n), as their operands have 2 or 3 dimensions; along k (groups * m,) and
    (groups * n,). Scales of blocks have the shapes of scaled_mm(), behind the groups where the
    operand has 3 dimensions; blocks along k are counted from the first k of all groups.
    bias must be None, as in PyTorch. The rest is as in scaled_mm().
    """
    if bias is not None:
        raise Error("scaled_grouped_mm: bias must be None, as torch._scaled_grouped_mm has it")
    dtype = _output_type(mat_a, scale_result, out_dtype)
    return ops.scaled_grouped_mm(mat_a, mat_b, scale_a, scale_b, offs, dtype)
