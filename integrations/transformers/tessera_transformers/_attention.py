"""The attention function and the mask function of the name "tessera"."""
from __future__ import annotations

from typing import Any, Optional, Tuple

import tessera
import tessera.torch
import torch
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from ._report import leave

Tensor = torch.Tensor
WHAT = "attention"
_TYPES = (torch.float32, torch.float16, torch.bfloat16)
_LONGEST_HEAD, _LONGEST_VALUE = 576, 512


def tessera_mask(*arguments: Any, **named: Any) -> Optional[Tensor]:
    """A mask of truth values, or None where is_causal says all, as the framework makes it for
    PyTorch's function: a call that goes there finds the mask that it expects."""
    return sdpa_mask(*arguments, **named)


def _added(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """What is added to the scores. All layers of a forward pass share one mask, which therefore
    keeps what was made of it, until somebody writes into it."""
    if mask.dtype != torch.bool:
        return mask.to(dtype)
    if torch.compiler.is_compiling() or mask.is_inference():
        return _of_truth(mask, dtype)
    kept = getattr(mask, "_tessera_added", None)
    if kept is None or kept[0] != mask._version or kept[1].dtype != dtype:
        kept = (mask._version, _of_truth(mask, dtype))
        mask._tessera_added = kept  # type: ignore[attr-defined]
    return kept[1]


def _of_truth(mask: Tensor, dtype: torch.dtype) -> Tensor:
    return torch.zeros_like(mask, dtype=dtype).masked_fill_(~mask, float("-inf"))


def _why_not_tensors(query: Tensor, key: Tensor, value: Tensor) -> str:
    if query.device.type not in ("cpu", "cuda"):
        return f"the tensors lie on {query.device.type}, and there are kernels for cpu and cuda"
    if query.dtype not in _TYPES or not query.dtype == key.dtype == value.dtype:
        return (f"the types are {query.dtype}, {key.dtype} and {value.dtype}; all must be one of "
                "float32, float16 and bfloat16")
    if query.shape[-1] > _LONGEST_HEAD or value.shape[-1] > _LONGEST_VALUE:
        return (f"the heads have {query.shape[-1]} and {value.shape[-1]} elements, and may have "
                f"{_LONGEST_HEAD} and {_LONGEST_VALUE}")
    if not query.shape[0] == key.shape[0] == value.shape[0]:
        return f"the query has a batch of {query.shape[0]} and the key of {key.shape[0]}"
    if query.shape[1] % key.shape[1]:
        return f"{key.shape[1]} heads of keys do not divide {query.shape[1]} heads of the query"
    return ""


def _why_not_wishes(mask: Optional[Tensor], dropout: float, named: Any) -> str:
    if named.get("output_attentions", False):
        return "output_attentions asks for the weights, which no kernel stores"
    if named.get("position_bias") is not None:
        return "the model adds a position_bias, which the framework joins with its mask"
    if mask is not None and (not isinstance(mask, Tensor) or mask.dim() != 4):
        return "the mask is no tensor of 4 dimensions"
    if not 0 <= dropout < 1:
        return f"dropout is {dropout}, and must be at least 0 and below 1"
    return ""


def _is_causal(module: Any, query: Tensor, mask: Optional[Tensor], given: Optional[bool]) -> bool:
    """As PyTorch's function is told by the framework: query i sees the keys up to i."""
    wish = given if given is not None else getattr(module, "is_causal", True)
    return bool(query.shape[2] > 1 and mask is None and wish)


def _check_sinks(tensors: Tuple[Tensor, ...]) -> None:
    """PyTorch's function would leave a model's sinks out, which is another result."""
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
        raise tessera.Error("attention: a model with sinks (s_aux) can be run and not trained with "
                            "attn_implementation='tessera'; choose 'eager' for training",
                            "unsupported")


def _with_sinks(out: Tensor, lse: Tensor, sinks: Tensor) -> Tensor:
    """Each head has one logit more, to which no value belongs: it only makes the others less."""
    part = torch.sigmoid(lse - sinks.float().reshape(1, -1, 1))
    return (out * part.unsqueeze(-1)).to(out.dtype)


def _run(module: Any, query: Tensor, key: Tensor, value: Tensor, mask: Optional[Tensor],
         dropout: float, scaling: Optional[float], is_causal: Optional[bool], named: Any) -> Tensor:
    causal = _is_causal(module, query, mask, is_causal)
    sinks = named.get("s_aux")
    found = tessera.torch.attention(
        query, key, value, layout="bhsd", mask="top_left" if causal else None,
        bias=None if mask is None else _added(mask, query.dtype), scale=scaling,
        soft_cap=float(named.get("softcap") or 0.0), dropout=dropout, return_lse=sinks is not None)
    out = found if sinks is None else _with_sinks(*found, sinks)
    return out.transpose(1, 2).contiguous()


def tessera_attention(module: torch.nn.Module, query: Tensor, key: Tensor, value: Tensor,
                      attention_mask: Optional[Tensor], dropout: float = 0.0,
                      scaling: Optional[float] = None, is_causal: Optional[bool] = None,
                      **named: Any) -> Tuple[Tensor, None]:
    """(batch, queries, heads, hdim_v) of query (batch, heads, queries, hdim), and no weights."""
    if named.get("s_aux") is not None:
        _check_sinks((query, key, value, named["s_aux"]))
    why = (_why_not_tensors(query, key, value) or _why_not_wishes(attention_mask, dropout, named))
    if not why:
        try:
            return _run(module, query, key, value, attention_mask, dropout, scaling, is_causal,
                        named), None
        except tessera.Error as error:
            why = str(error)
    if named.get("s_aux") is not None:
        raise tessera.Error(f"attention: PyTorch's function knows no sinks, and ours cannot: {why}",
                            "unsupported")
    leave(WHAT, why, module)
    return sdpa_attention_forward(module, query, key, value, attention_mask, dropout=dropout,
                                  scaling=scaling, is_causal=is_causal, **named)
