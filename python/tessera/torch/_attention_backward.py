"""The gradients of attention: the operator torch.ops.tessera.attention_backward, and what makes
torch.ops.tessera.attention differentiable."""
from __future__ import annotations

import functools
from typing import Any, Optional, Sequence, Tuple

import torch

from .. import _attention_fields, _attention_shapes
from .._abi import Error
from . import _attention_ops, _run
from ._attention_ops import check_ranks, lengths_of, needed_words, options_of, view_of
from ._functions import _call, ops
from ._operators import Operator, _library, register

Tensor = torch.Tensor
_NAMES = ("q", "k", "v", "bias", "slopes", "seqlens_q", "seqlens_k", "dropout_rng", "out", "lse",
          "dout", "dq", "dk", "dv", "dbias")
MOST_HDIM_V = 512  # as families/fmha/fmha.h has it
_SCHEMA = ("attention_backward(Tensor dout, Tensor q, Tensor k, Tensor v, Tensor? bias, "
           "Tensor? slopes, Tensor out, Tensor lse, Tensor? seqlens_q, Tensor? seqlens_k, "
           "Tensor? dropout_rng, str layout, str? mask, int[]? window, int sink, "
           "float? scale, float soft_cap, int? max_seqlen_q, int? max_seqlen_k, int skip_q, "
           "float dropout, bool has_dbias) -> (Tensor, Tensor, Tensor, Tensor)")


def refusal(named: Sequence[Tuple[str, Optional[Tensor]]], is_paged: bool) -> Optional[str]:
    """Why the gradients that are asked for cannot be computed; None where they can."""
    for name, tensor in named:
        if tensor is None or not tensor.requires_grad:
            continue
        if name == "slopes":
            return "slopes require a gradient, which attention has of q, k, v and bias alone"
        if is_paged:
            return f"{name} requires a gradient, which attention has not where keys lie in pages"
        if tensor.itemsize == 1:
            return f"{name} requires a gradient, which attention has not of 8 bits"
    return None


# ---- Calls ---------------------------------------------------------------------------------------

_ROW = functools.partial(_run.bind_row, _NAMES, _attention_fields.gradient_fields,
                         sized=("dq", "dk", "dv", "dbias"), view=view_of,
                         check=_attention_fields.plain)


def _gradient_of(tensor: Tensor, leaves: bool) -> Tensor:
    """Room for it, which lies as the tensor does where that has no gaps."""
    return torch.zeros_like(tensor) if leaves else torch.empty_like(tensor)


def _without_copies(bias: Tensor) -> Tensor:
    """Elements that a stride of 0 repeats have a gradient each. A dimension of one element has the
    sum of all that it is broadcast to."""
    repeats = any(size > 1 and step == 0 for size, step in zip(bias.shape, bias.stride()))
    return bias.contiguous() if repeats else bias


def run(dout: Tensor, q: Tensor, k: Tensor, v: Tensor, bias: Optional[Tensor],
        slopes: Optional[Tensor], out: Tensor, lse: Tensor, seqlens_q: Optional[Tensor],
        seqlens_k: Optional[Tensor], dropout_rng: Optional[Tensor], *others: Any
        ) -> Tuple[Tensor, Tensor, Tensor, Tensor]:
    """dq, dk, dv and dbias, which is empty where it is not asked for. out, lse: what attention
    gave; dropout_rng: the same two words."""
    *how, has_dbias = others
    options = options_of(*how)[0]
    check_ranks(q, k, v, options.layout, False)
    lengths, options = lengths_of(q, k, (seqlens_q, seqlens_k), options)
    words = needed_words(dropout_rng, options.dropout)
    if dout.dim() and dout.stride(-1) != 1:
        dout = dout.contiguous()
    leaves = _attention_shapes.leaves_gradients(options, q.shape, k.shape, lengths[0] is not None)
    dbias = None
    if has_dbias and bias is not None:
        bias = _without_copies(bias)
        make = torch.zeros if leaves else torch.empty
        dbias = make(bias.shape, dtype=bias.dtype, device=bias.device)
    dq, dk, dv = (_gradient_of(tensor, leaves) for tensor in (q, k, v))
    tensors = (q, k, v, bias, slopes, *lengths, words, out, lse.contiguous(), dout, dq, dk, dv,
               dbias)
    _run.run(_ROW, options, tensors, dq)
    return dq, dk, dv, q.new_empty(0) if dbias is None else dbias


def _fake(dout: Tensor, q: Tensor, k: Tensor, v: Tensor, bias: Optional[Tensor], *others: Any
          ) -> Tuple[Tensor, Tensor, Tensor, Tensor]:
    dbias = q.new_empty(0)
    if others[-1] and bias is not None:
        dbias = torch.empty(bias.shape, dtype=bias.dtype, device=bias.device)
    return torch.empty_like(q), torch.empty_like(k), torch.empty_like(v), dbias


# ---- What PyTorch calls --------------------------------------------------------------------------

def _setup(ctx: Any, inputs: Tuple[Any, ...], output: Any) -> None:
    q, k, v, bias, slopes, seqlens_q, seqlens_k, words, table = inputs[:9]
    named = (("q", q), ("k", k), ("v", v), ("bias", bias), ("slopes", slopes))
    ctx.why = refusal(named, table is not None)
    ctx.set_materialize_grads(False)
    out, lse, _ = output
    ctx.save_for_backward(q, k, v, bias, slopes, seqlens_q, seqlens_k, words, out, lse)
    ctx.inputs = inputs[8:]
    ctx.how = inputs[10:20]  # from layout on, up to dropout
    ctx.count = len(inputs)


def _backward(ctx: Any, dout: Optional[Tensor], dlse: Optional[Tensor], _: Any) -> Tuple[Any, ...]:
    if ctx.why is not None:
        raise Error(ctx.why, "unsupported")
    none = (None,) * ctx.count
    if dout is None and dlse is None:
        return none
    q, k, v, bias, slopes, seqlens_q, seqlens_k, words, out, lse = ctx.saved_tensors
    if lse.dim() == 1 and lse.numel() == 0 and q.dim() > 2:  # was not asked for
        with torch.no_grad():
            out, lse, _ = torch.ops.tessera.attention(
                q, k, v, bias, slopes, seqlens_q, seqlens_k, words, *ctx.inputs[:2], *ctx.how, True,
                False)
    has_dbias = bias is not None and ctx.needs_input_grad[3]
    hdim_v = v.shape[-1]
    if dout is None:
        dout = torch.zeros_like(out)
    if dlse is not None:
        dout, v, out = _with_gradient_of_lse(dlse, dout, v, out, ctx.how[0])
    tensors = (dout, q, k, v, bias, slopes, out, lse, seqlens_q, seqlens_k, words)
    dq, dk, dv, dbias = _call(ops.attention_backward, run, 4, tensors, *ctx.how, has_dbias)
    dv = dv if dlse is None else dv.narrow(-1, 0, hdim_v)
    return (dq, dk, dv, dbias if has_dbias else None, *none[4:])


def _with_gradient_of_lse(dlse: Tensor, dout: Tensor, v: Tensor, out: Tensor, layout: str
                          ) -> Tuple[Tensor, Tensor, Tensor]:
    """dout, v and out with more elements in each head, which let a kernel subtract dlse.

    A score's gradient is weight * (dout @ v - dout @ out + dlse). An element in which v holds 0,
    dout a number and out -dlse over that number changes the second product alone. Narrow types
    need three such elements for the digits of dlse.
    """
    factors = (1.0,) if out.dtype == torch.float32 else (256.0, 1.0, 1 / 256)
    # Kernels for GPUs load 16 bytes at once.
    width = len(factors) if out.device.type == "cpu" else 8
    if v.shape[-1] + width > MOST_HDIM_V:
        raise Error(f"the gradient of lse needs heads of v of at most {MOST_HDIM_V - width} "
                    f"elements, got {v.shape[-1]}", "unsupported")
    left = dlse.float().mT if layout == "bshd" else dlse.float()
    parts = []
    for factor in factors:
        parts.append((left / factor).to(out.dtype))
        left = left - parts[-1].float() * factor
    parts += [torch.zeros_like(parts[0])] * (width - len(parts))
    numbers = out.new_tensor([*factors, *[0.0] * (width - len(factors))])
    return (torch.cat((dout, numbers.to(dout.dtype).expand(*dout.shape[:-1], width)), -1),
            torch.nn.functional.pad(v, (0, width)),
            torch.cat((out, -torch.stack(parts, -1)), -1))


_NO_TANGENTS = ("attention has no derivative in forward mode (jvp, jacfwd); torch.func.vjp and "
                "jacrev compute it in reverse mode")

register(Operator(_attention_ops.SCHEMA, _attention_ops.run, _attention_ops.fake, _setup, _backward,
                  refusal=_NO_TANGENTS))
register(Operator(_SCHEMA, run, _fake, refusal="attention has no second derivative"))
for _key, _device in (("AutocastCPU", "cpu"), ("AutocastCUDA", "cuda")):
    _library.impl("attention", _attention_ops.cast_and_call(_device), _key)
