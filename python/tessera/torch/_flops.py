"""What torch.utils.flop_counter.FlopCounterMode counts for the operators: the multiplications and
additions of their products, as it counts them for PyTorch's own, so nothing for norms and softmax.

Its module imports Triton where that is installed, so that it is left to who wants to count. The
formulas are registered when it is imported.
"""
from __future__ import annotations

import importlib.abc
import importlib.util
import math
import sys
from typing import Any, List, Optional

import torch

from .. import _attention_shapes, _sequences

Tensor = torch.Tensor
_MODULE = "torch.utils.flop_counter"


def _linear(x: Tensor, weight: Tensor, *_: Any, **__: Any) -> int:
    return 2 * x.numel() * weight.shape[0]


def _matmul(a: Tensor, *_: Any, out_val: Tensor, **__: Any) -> int:
    return 2 * out_val.numel() * a.shape[-1]


def _conv(x: Tensor, weight: Tensor, *_: Any, out_val: Tensor, **__: Any) -> int:
    return 2 * out_val.numel() * math.prod(weight.shape[1:])


def _conv_backward_data(grad: Tensor, weight: Tensor, *_: Any, **__: Any) -> int:
    return 2 * grad.numel() * math.prod(weight.shape[1:])


def _conv_backward_weight(x: Tensor, grad: Tensor, *_: Any, out_val: Tensor, **__: Any) -> int:
    return 2 * grad.numel() * math.prod(out_val.shape[1:])


def _lengths(seqlens: Optional[Tensor], is_packed: bool, room: int, batch: int) -> List[int]:
    """Of each sequence; all of its room where nothing else is known."""
    if seqlens is None or seqlens.device.type == "meta":
        return [room] * batch
    found = seqlens.diff() if is_packed else seqlens
    return found.tolist()


def _pairs(q: Tensor, k: Tensor, seqlens_q: Optional[Tensor], seqlens_k: Optional[Tensor],
           table: Optional[Tensor], layout: str) -> int:
    """Queries times keys, of all heads. Masks leave none out, as in PyTorch's count."""
    is_packed = q.dim() == 3
    queries = _attention_shapes.tokens_in(tuple(q.shape), layout)
    batch = q.shape[0] if not is_packed else 1 if seqlens_q is None else seqlens_q.shape[0] - 1
    if table is None:
        keys, packed_k = _attention_shapes.tokens_in(tuple(k.shape), layout), is_packed
    else:
        keys = table.shape[-1] * _sequences.page_size(tuple(k.shape), layout)
        packed_k = False
    products = zip(_lengths(seqlens_q, is_packed, queries, batch),
                   _lengths(seqlens_k, packed_k, keys, batch))
    return q.shape[-3 if layout == "bhsd" else -2] * sum(map(math.prod, products))


def _attention(q: Tensor, k: Tensor, v: Tensor, bias: Any, slopes: Any, seqlens_q: Any,
               seqlens_k: Any, words: Any, table: Any, starts: Any, layout: str, *_: Any,
               out_val: Any, **__: Any) -> int:
    pairs = _pairs(q, k, seqlens_q, seqlens_k, table, layout)
    return 2 * pairs * (q.shape[-1] + out_val[0].shape[-1])


def _attention_backward(dout: Tensor, q: Tensor, k: Tensor, v: Tensor, bias: Any, slopes: Any,
                        out: Tensor, lse: Tensor, seqlens_q: Any, seqlens_k: Any, words: Any,
                        layout: str, *_: Any, **__: Any) -> int:
    """The scores again, and two products for each of both."""
    pairs = _pairs(q, k, seqlens_q, seqlens_k, None, layout)
    return 2 * pairs * (3 * q.shape[-1] + 2 * v.shape[-1])


_FORMULAS = {"linear": _linear, "matmul": _matmul, "conv": _conv,
             "conv_backward_data": _conv_backward_data,
             "conv_backward_weight": _conv_backward_weight, "attention": _attention,
             "attention_backward": _attention_backward}


class _AtImport(importlib.abc.MetaPathFinder):
    """Finds the module as the others do, and adds the formulas once it has run."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        if name != _MODULE:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def exec_module(module: Any) -> None:
                execute(module)
                _register(module)
            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def _register(module: Any) -> None:
    for name, formula in _FORMULAS.items():
        module.register_flop_formula(getattr(torch.ops.tessera, name), get_raw=True)(formula)


def register() -> None:
    """Registers the formulas, at once where the module was imported before."""
    module = sys.modules.get(_MODULE)
    if module is not None:
        _register(module)
    else:
        sys.meta_path.insert(0, _AtImport())
