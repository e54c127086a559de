"""The gradients of attention: the operator torch.ops.tessera.attention_backward, and what makes
torch.ops.tessera.attention differentiable."""
from __future__ import annotations

import functools
from typing import Any, NamedTuple, Optional, Sequence, Tuple

import torch

from .. import _attention_fields, _attention_shapes
from .._abi import Error
from . import _attention_ops, _run, _warm
from ._attention_ops import check_ranks, lengths_of, needed_words, options_of, view_of
from ._functions import _is_plain, call_anew, ops
from ._operators import Operator, _library, register

Tensor = torch.Tensor
_NAMES = ("q", "k", "v", "bias", "slopes", "seqlens_q", "seqlens_k", "dropout_rng", "out", "lse",
          "dout", "dlse", "dq", "dk", "dv", "dbias")
_SCHEMA = ("attention_backward(Tensor dout, Tensor q, Tensor k, Tensor v, Tensor? bias, "
           "Tensor? slopes, Tensor out, Tensor lse, Tensor? seqlens_q, Tensor? seqlens_k, "
           "Tensor? dropout_rng, str layout, str? mask, int[]? window, int sink, "
           "float? scale, float soft_cap, int? max_seqlen_q, int? max_seqlen_k, int skip_q, "
           "float dropout, bool has_dbias, Tensor? dlse=None) -> (Tensor, Tensor, Tensor, Tensor)")
# Where a call that was seen before has these. The values of lengths are a part of a plan.
_PLACES = {"seqlens_q": None, "seqlens_k": None, "dlse": None, "dq": -1, "dk": -2, "dv": -3,
           "dbias": None}
_SLOTS = tuple(_PLACES.get(name, i) for i, name in enumerate(_NAMES))
_HOW = 10  # arguments from layout on, up to dropout


def refusal(named: Sequence[Tuple[str, Optional[Tensor]]], is_paged: bool) -> Optional[str]:
    """Why the gradients that are asked for cannot be computed; None where they can."""
    asked = [name for name, tensor in named if tensor is not None and tensor.requires_grad]
    if not asked:
        return None
    if is_paged:
        return f"{asked[0]} requires a gradient, which attention has not where keys lie in pages"
    narrow = [name for name, tensor in named[:3] if tensor is not None and tensor.itemsize == 1]
    if not narrow:
        return None
    if narrow[0] in asked:
        return f"{narrow[0]} requires a gradient, which attention has not of 8 bits"
    return f"{asked[0]} requires a gradient, which attention has not where {narrow[0]} has 8 bits"


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


def _new_dbias(bias: Optional[Tensor], slopes: Optional[Tensor], make: Any) -> Optional[Tensor]:
    """Room for the gradient of what there is of the two."""
    given = slopes if bias is None else bias
    if given is None:
        return None
    return make(given.shape, dtype=given.dtype, device=given.device)


class Known(NamedTuple):
    """How gradients are computed that were computed before, from tensors that lie alike."""

    bound: _run.Bound
    leaves: bool  # whether a kernel leaves parts of dq, dk and dv as they are


Results = Tuple[Tensor, Tensor, Tensor, Tensor]


def run(*arguments: Any) -> Results:
    """dq, dk, dv and the gradient of bias or slopes, which is empty where it is not asked for. out,
    lse: what attention gave; dropout_rng: the same two words."""
    return _run_keeping(*arguments)[0]


def _run_keeping(dout: Tensor, q: Tensor, k: Tensor, v: Tensor, bias: Optional[Tensor],
                 slopes: Optional[Tensor], out: Tensor, lse: Tensor, seqlens_q: Optional[Tensor],
                 seqlens_k: Optional[Tensor], dropout_rng: Optional[Tensor], *others: Any
                 ) -> Tuple[Results, Optional[Known]]:
    """The same, and how, where the tensors are taken as they were given."""
    how, has_dbias, *rest = others[:_HOW], *others[_HOW:]
    dlse: Optional[Tensor] = rest[0] if rest else None  # left out where it is None
    given = (dout, seqlens_q, seqlens_k, dropout_rng, lse)
    options = options_of(*how)[0]
    check_ranks(q, k, v, options.layout, False)
    lengths, options = lengths_of(q, k, (seqlens_q, seqlens_k), options)
    words = needed_words(dropout_rng, options.dropout)
    if dout.dim() and dout.stride(-1) != 1:
        dout = dout.contiguous()
    leaves = _attention_shapes.leaves_gradients(options, q.shape, k.shape, lengths[0] is not None)
    dbias = None
    if has_dbias:
        bias, slopes = (x if x is None else _without_copies(x) for x in (bias, slopes))
        dbias = _new_dbias(bias, slopes, torch.zeros if leaves else torch.empty)
    dq, dk, dv = (_gradient_of(tensor, leaves) for tensor in (q, k, v))
    lse = lse.contiguous()
    tensors = (q, k, v, bias, slopes, *lengths, words, out, lse, dout,
               dlse if dlse is None else dlse.float().contiguous(), dq, dk, dv, dbias)
    bound = _run.bound_of(_ROW, options, tensors)
    _run.launch_on(bound, tensors, dq)
    taken = (dout, *lengths, words, lse)
    as_given = dlse is dbias is None and all(x is y for x, y in zip(given, taken))
    results = (dq, dk, dv, q.new_empty(0) if dbias is None else dbias)
    return results, Known(bound, leaves) if as_given else None


def _fake(dout: Tensor, q: Tensor, k: Tensor, v: Tensor, bias: Optional[Tensor],
          slopes: Optional[Tensor], *others: Any) -> Tuple[Tensor, Tensor, Tensor, Tensor]:
    has_dbias = others[5 + _HOW]  # behind out, lse, the lengths, dropout_rng and how
    dbias = _new_dbias(bias, slopes, torch.empty) if has_dbias else None
    return (torch.empty_like(q), torch.empty_like(k), torch.empty_like(v),
            q.new_empty(0) if dbias is None else dbias)


# ---- What PyTorch calls --------------------------------------------------------------------------

def _setup(ctx: Any, inputs: Tuple[Any, ...], output: Any) -> None:
    q, k, v, bias, slopes, seqlens_q, seqlens_k, words, table = inputs[:9]
    named = (("q", q), ("k", k), ("v", v), ("bias", bias), ("slopes", slopes))
    ctx.why = refusal(named, table is not None)
    ctx.set_materialize_grads(False)
    out, lse, _ = output
    ctx.save_for_backward(q, k, v, bias, slopes, seqlens_q, seqlens_k, words, out, lse)
    ctx.inputs = inputs[8:]
    ctx.how = inputs[10:10 + _HOW]
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
    if dlse is None and not any(ctx.needs_input_grad[3:5]) and not torch.is_grad_enabled():
        given = (q, k, v, bias, slopes, seqlens_q, seqlens_k, words, out, lse, dout)
        found = _warm.find(_backward, *given, *ctx.how)
        if type(found) is tuple:
            return (*found, *none[3:])
        forward = getattr(ctx, "known", None)
        if (forward is not None or type(found) is list) and _is_plain((dout,), 1):
            return (*_gradients_at_once(found, forward, given, ctx.how), *none[3:])
    of_bias = bias is not None and ctx.needs_input_grad[3]
    of_slopes = slopes is not None and ctx.needs_input_grad[4]
    if dout is None:
        dout = torch.zeros_like(out)
    tensors = (dout, q, k, v, bias, slopes, out, lse, seqlens_q, seqlens_k, words)
    dq, dk, dv, dbias = call_anew(ops.attention_backward, run, 4, tensors, *ctx.how,
                              of_bias or of_slopes, dlse)
    return (dq, dk, dv, dbias if of_bias else None, dbias if of_slopes else None, *none[5:])


def _gradients_at_once(found: Any, forward: Optional[_run.Bound], given: Tuple[Any, ...],
                       how: Tuple[Any, ...]) -> Tuple[Tensor, ...]:
    """dq, dk and dv where nothing but the memory of tensors matters. found: what find() said.
    forward: attention's plan, where the forward pass was not one that was seen before. given:
    attention's tensors from q on, its results, and dout, in the order of _NAMES."""
    q, k, v, *_, out, lse, dout = given
    is_new = type(found) is list and not any(tensor is not None for tensor in given[5:8])
    if forward is None or is_new:
        results, known = _run_keeping(dout, *given[:5], out, lse, *given[5:8], *how, False)
        _warm.see(known.bound if known is not None and not known.leaves else None)
        _warm.keep(found, (*given, *how), _SLOTS, results[:3])
        return results[:3]
    # Hooks of saved tensors may give back others, which lie differently.
    key = (*[None if t is None else (t.stride(), t.dtype, t.device) for t in given],
           _run.settings())
    known = forward.later.get(key)
    if known is None:
        results, known = _run_keeping(dout, *given[:5], out, lse, *given[5:8], *how, False)
        if known is not None:
            forward.later[key] = known
        return results[:3]
    dq, dk, dv = (_gradient_of(tensor, known.leaves) for tensor in (q, k, v))
    _run.launch_on(known.bound, (*given, None, dq, dk, dv, None), dq)
    return dq, dk, dv


_NO_TANGENTS = ("attention has no derivative in forward mode (jvp, jacfwd); torch.func.vjp and "
                "jacrev compute it in reverse mode")

register(Operator(_attention_ops.SCHEMA, _attention_ops.run, _attention_ops.fake, _setup, _backward,
                  refusal=_NO_TANGENTS, keeping=_attention_ops.run_keeping,
                  slots=_attention_ops.SLOTS))
register(Operator(_SCHEMA, run, _fake, refusal="attention has no second derivative"))
for _key, _device in (("AutocastCPU", "cpu"), ("AutocastCUDA", "cuda")):
    _library.impl("attention", _attention_ops.cast_and_call(_device), _key)
