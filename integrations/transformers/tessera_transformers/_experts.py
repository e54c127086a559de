"""The experts function of the name "tessera": two products for each expert that has tokens."""
from __future__ import annotations

from typing import Any, List, Optional

import tessera
import tessera.torch
import torch
from transformers.integrations.moe import batched_mm_experts_forward

from ._report import leave

Tensor = torch.Tensor
WHAT = "experts"
_TYPES = (torch.float32, torch.float16, torch.bfloat16)


def _why_not(module: Any, x: Tensor, first: Optional[Tensor]) -> str:
    if torch.compiler.is_compiling():
        return "how many tokens an expert gets is not known to a compiler"
    if getattr(module, "_is_expert_parallel", False):
        return "the experts are spread over processes"
    if first is None or first.dim() != 3 or getattr(module, "down_proj", None) is None:
        return "the weights are no tensors of (experts, rows, columns)"
    if x.device.type not in ("cpu", "cuda"):
        return f"the tensors lie on {x.device.type}, and there are kernels for cpu and cuda"
    if x.dtype not in _TYPES or first.dtype != x.dtype:
        return (f"the types are {x.dtype} and {first.dtype}; both must be one of float32, float16 "
                "and bfloat16")
    return ""


def _products(module: Any, rows: Tensor, counts: List[int], name: str) -> Tensor:
    """Rows are sorted by expert, and each expert multiplies its own."""
    weight, bias = getattr(module, name), None
    if module.has_bias:
        bias = getattr(module, f"{name}_bias")
    parts, start = [], 0
    for expert, count in enumerate(counts):
        if count:
            of = weight[expert].mT if module.is_transposed else weight[expert]
            parts.append(tessera.torch.linear(rows[start:start + count], of,
                                              None if bias is None else bias[expert]))
        start += count
    return torch.cat(parts) if len(parts) != 1 else parts[0]


def _run(module: Any, x: Tensor, index: Tensor, weights: Tensor, name: str) -> Tensor:
    chosen = index.shape[-1]
    experts, order = torch.sort(index.reshape(-1), stable=True)
    counts = torch.bincount(experts, minlength=module.num_experts).tolist()
    hidden = _products(module, x[order // chosen], counts, name)
    hidden = module._apply_gate(hidden) if module.has_gate else module.act_fn(hidden)
    hidden = _products(module, hidden, counts, "down_proj")
    if module.has_post_expert_norm:
        hidden = module.post_expert_norm(hidden)
    hidden = hidden * weights.reshape(-1)[order].unsqueeze(-1)
    back = torch.empty_like(order)
    back[order] = torch.arange(order.numel(), device=order.device)
    return hidden[back].view(x.shape[0], chosen, -1).sum(dim=1).to(x.dtype)


def tessera_experts(self: torch.nn.Module, hidden_states: Tensor, top_k_index: Tensor,
                    top_k_weights: Tensor) -> Tensor:
    """(tokens, hidden) of hidden_states (tokens, hidden), of which each goes to top_k experts."""
    name = "gate_up_proj" if getattr(self, "has_gate", True) else "up_proj"
    why = _why_not(self, hidden_states, getattr(self, name, None))
    if not why and hidden_states.shape[0] == 0:
        why = "there are no tokens"
    if not why:
        try:
            return _run(self, hidden_states, top_k_index, top_k_weights, name)
        except tessera.Error as error:
            why = str(error)
    leave(WHAT, why, self)
    return batched_mm_experts_forward(self, hidden_states, top_k_index, top_k_weights)
