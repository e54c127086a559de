"""What vLLM's plug computes, over tensors of PyTorch: nothing here imports vLLM.

Caches are (pages, heads_kv, page size, 2 * head size) with any strides, keys before values, as
vLLM 0.33 gives them, or (2, pages, page size, heads_kv, head size) as versions before did.
"""
from __future__ import annotations

import inspect
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple

import tessera.torch
import torch

Tensor = torch.Tensor
PROVIDER = "tessera"
TYPES = (torch.float32, torch.float16, torch.bfloat16)
LONGEST_HEAD = 512


# ---- The report ----------------------------------------------------------------------------------

class NotTaken(NamedTuple):
    """A reason for which vLLM was told that it should take another provider. calls: how often;
    calls of compiled code are counted where they are compiled."""

    what: str
    why: str
    calls: int


_met: Dict[Tuple[str, str], int] = {}


def report(clear: bool = False) -> List[NotTaken]:
    """What was left to vLLM since the import, or since it was last asked for with clear=True."""
    found = [NotTaken(what, why, calls) for (what, why), calls in _met.items()]
    if clear:
        _met.clear()
    return found


def _leave(what: str, why: str) -> None:
    _met[what, why] = _met.get((what, why), 0) + 1


# ---- Operators of vLLM's IR ----------------------------------------------------------------------

def rms_norm(x: Tensor, weight: Optional[Tensor], epsilon: float,
             variance_size: Optional[int] = None) -> Tensor:
    """vllm.ir.ops.rms_norm."""
    return tessera.torch.rms_norm(x, weight, epsilon=epsilon)


def _why_not(x: Tensor, weight: Optional[Tensor], variance_size: Optional[int],
             residual: Optional[Tensor] = None) -> str:
    if variance_size is not None:
        return "variance_size asks for the mean of a part of each row"
    if x.dtype not in TYPES:
        return f"x has the type {x.dtype}, and may have float32, float16 and bfloat16"
    for name, other in (("weight", weight), ("x_residual", residual)):
        if other is not None and other.dtype != x.dtype:
            return f"{name} has the type {other.dtype}, and x has {x.dtype}"
    return "" if x.shape[-1] > 0 else "the rows have no elements"


def _takes(what: str, why: str) -> bool:
    if why:
        _leave(what, why)
    return not why


def takes_rms_norm(x: Tensor, weight: Optional[Tensor], epsilon: float,
                   variance_size: Optional[int] = None) -> bool:
    return _takes("rms_norm", _why_not(x, weight, variance_size))


def fused_add_rms_norm(x: Tensor, x_residual: Tensor, weight: Optional[Tensor], epsilon: float,
                       variance_size: Optional[int] = None) -> Tuple[Tensor, Tensor]:
    """vllm.ir.ops.fused_add_rms_norm: the norm of the sum, and the sum."""
    return tessera.torch.rms_norm(x, weight, residual=x_residual, epsilon=epsilon)


def takes_fused_add_rms_norm(x: Tensor, x_residual: Tensor, weight: Optional[Tensor],
                             epsilon: float, variance_size: Optional[int] = None) -> bool:
    return _takes("fused_add_rms_norm", _why_not(x, weight, variance_size, x_residual))


OPERATORS = {"rms_norm": (rms_norm, takes_rms_norm),
             "fused_add_rms_norm": (fused_add_rms_norm, takes_fused_add_rms_norm)}


def register_ir(ops: Any, supported: bool = True) -> Tuple[str, ...]:
    """Registers with each operator of `ops` (the module vllm.ir.ops) that has ours' parameters;
    returns their names. vLLM compares schemas, and refuses what differs. batch_invariant is told
    where this version of vLLM asks for it: a row has the same bits in each batch under
    tessera.torch.use_batch_invariant_kernels(True), which use_batch_invariant() switches on."""
    done = []
    for name, (function, takes) in OPERATORS.items():
        op = getattr(ops, name, None)
        if op is None or not _has_parameters_of(op, function):
            _leave(name, "this vLLM has no such operator" if op is None else
                   "the operator of this vLLM has other parameters")
            continue
        more = {}
        if "batch_invariant" in inspect.signature(op.register_impl).parameters:
            more["batch_invariant"] = tessera.torch.are_batch_invariant_kernels_enabled()
        op.register_impl(PROVIDER, supports_args=takes, supported=supported, **more)(function)
        done.append(name)
    return tuple(done)


def _has_parameters_of(op: Any, function: Callable[..., Any]) -> bool:
    native = op.impls["native"].impl_fn
    return (list(inspect.signature(native).parameters)
            == list(inspect.signature(function).parameters))


# ---- Caches of pages -----------------------------------------------------------------------------

class Caches(NamedTuple):
    """keys, values: views of (pages, page size, heads_kv, head size), which are written through."""

    keys: Tensor
    values: Tensor


def caches_of(kv_cache: Tensor) -> Caches:
    """Views of a layer's cache, of either number of dimensions."""
    if kv_cache.dim() == 4:
        keys, values = kv_cache.transpose(1, 2).chunk(2, dim=-1)
    else:
        keys, values = kv_cache.unbind(0)
    return Caches(keys, values)


def write_pages(key: Tensor, value: Tensor, caches: Caches, slot_mapping: Tensor) -> None:
    """Writes token i into slot_mapping[i], which is page * page size + place; tokens with a
    negative slot are padding. key, value: (tokens or more, heads_kv, head size)."""
    tokens, size = slot_mapping.shape[0], caches.keys.shape[1]
    slots = slot_mapping.long()
    page, place = slots.div(size, rounding_mode="floor"), slots.remainder(size)
    if slots.is_cpu:
        kept = slots >= 0
        page, place = page[kept], place[kept]
        key, value = key[:tokens][kept], value[:tokens][kept]
    else:
        key, value, page, place = _without_padding(key[:tokens], value[:tokens], caches, slots,
                                                   page, place)
    caches.keys[page, place] = key.to(caches.keys.dtype)
    caches.values[page, place] = value.to(caches.values.dtype)


def _without_padding(key: Tensor, value: Tensor, caches: Caches, slots: Tensor, page: Tensor,
                     place: Tensor) -> Tuple[Tensor, ...]:
    """Where the host reads no slot, padding writes what the first real token writes, and where
    there is none, what lies in the first place."""
    is_real = slots >= 0
    pick = torch.where(is_real, torch.arange(slots.numel(), device=slots.device),
                       is_real.to(torch.uint8).argmax())
    page, place = page[pick].clamp(min=0), torch.where(is_real.any(), place[pick], 0)
    key, value = (torch.where(is_real.any(), new[pick].to(cache.dtype), cache[page, place])
                  for new, cache in ((key, caches.keys), (value, caches.values)))
    return key, value, page, place


def attend(query: Tensor, caches: Caches, query_start_loc: Tensor, seq_lens: Tensor,
           block_table: Tensor, max_query_len: int, max_seq_len: int, scale: float, causal: bool,
           window: Optional[Tuple[int, int]] = None, soft_cap: float = 0.0,
           slopes: Optional[Tensor] = None, sinks: Optional[Tensor] = None) -> Tensor:
    """(tokens, heads, head size): packed queries, of which each sequence's last one is its last
    key. query_start_loc: batch + 1 prefix sums. seq_lens: keys of each sequence, with its new
    ones. block_table: (batch, most pages)."""
    mask = "bottom_right" if causal or window is not None else None
    found = tessera.torch.attention(
        query, caches.keys, caches.values, mask=mask, window=window, scale=scale,
        soft_cap=soft_cap, slopes=slopes, seqlens_q=query_start_loc, seqlens_k=seq_lens,
        max_seqlen_q=max_query_len, max_seqlen_k=max_seq_len, page_table=block_table,
        return_lse=sinks is not None)
    if sinks is None:
        return found
    out, lse = found
    part = torch.sigmoid(lse - sinks.float()[:, None])  # one logit more, to which no value belongs
    return (out * part.T.unsqueeze(-1)).to(out.dtype)


def window_of(sliding_window: Optional[int], is_causal: bool) -> Optional[Tuple[int, int]]:
    """vLLM counts the query's own key, Tessera the keys beside it."""
    if sliding_window is None:
        return None
    return (sliding_window - 1, 0 if is_causal else sliding_window - 1)


def use_batch_invariant() -> None:
    """To be called before register_ir()."""
    tessera.torch.use_batch_invariant_kernels(True)
