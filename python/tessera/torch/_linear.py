"""Linear: torch.nn.Linear over Tessera's kernels."""
from __future__ import annotations

import ctypes
import json
from typing import Any, Optional

import torch

from .. import _abi, _dtypes
from .._abi import Error
from .._prepack import signature_of
from .._problem import Problem
from . import _ops, _packed, _run
from ._functions import linear, packed_linear

Tensor = torch.Tensor


class Linear(torch.nn.Linear):
    """activation(x @ weight.T + bias), with the parameters and the state dict of torch.nn.Linear.

    activation: None, "relu", "gelu", "gelu_tanh", "silu", "sigmoid" or "tanh"; the kernel applies
    it. pack() keeps a second copy of a frozen weight in a kernel's own form, for CPUs.
    """

    # Of the class, so that a torch.nn.Linear becomes this one by its class alone.
    activation: Optional[str] = None
    _copy: Optional[_packed.Copy] = None

    def __init__(self, in_features: int, out_features: int, bias: bool = True, device: Any = None,
                 dtype: Any = None, *, activation: Optional[str] = None) -> None:
        if activation is not None and activation not in _ops.ACTIVATIONS:
            raise Error(f"the activation must be one of {', '.join(_ops.ACTIVATIONS)}, got "
                        f"{activation!r}")
        super().__init__(in_features, out_features, bias, device, dtype)
        self.activation = activation

    def forward(self, x: Tensor) -> Tensor:
        return self.with_activation(x, self.activation)

    def with_activation(self, x: Tensor, activation: Optional[str]) -> Tensor:
        """forward() with that activation in the kernel."""
        weight, copy = self.weight, self._copy
        if copy is not None and not torch.compiler.is_compiling() and not copy.is_of(weight):
            copy = self._packed_again(copy, weight)
        if copy is None or copy.memory is None:
            return linear(x, weight, self.bias, activation)
        return packed_linear(x, weight, self.bias, activation, copy.memory, str(copy.kernel))

    @property
    def packed(self) -> Optional[Tensor]:
        """The weight in a kernel's own form; None where there is none of the weight as it is."""
        copy = self._copy
        return copy.memory if copy is not None and copy.is_of(self.weight) else None

    @property
    def kernel(self) -> Optional[str]:
        """The kernel whose form the packed weight has."""
        return None if self.packed is None else self._copy.kernel  # type: ignore[union-attr]

    def problem(self, rows: int, packed: bool = False, activation: Optional[str] = None) -> Problem:
        """What forward() asks for an input of so many rows, or with_activation()."""
        word = _dtypes.word_of(self.weight.dtype, "the weight")
        bias = None if self.bias is None else self.bias.dtype
        fields = signature_of(word, "c", bias is not None, activation or self.activation,
                              extra=bias)
        return Problem("gemm", m=rows, n=self.weight.shape[0], k=self.weight.shape[1], **fields,
                       preshuffle=packed)

    def pack(self, rows: int = 128, activation: Optional[str] = None) -> None:
        """Packs the weight for inputs of about so many rows; any number stays right. The weight
        must be frozen and on a CPU. activation: what with_activation() will be given.

        Each call compares the weight with what was packed. Where it has changed the call takes the
        weight as it is, and the second call with the changed weight packs it again. See
        docs/torch.md for the changes that PyTorch lets nobody see.
        """
        if self.weight.requires_grad:
            raise Error("a weight that requires a gradient is not packed, because it will change; "
                        "call requires_grad_(False) first")
        why = why_not_packable(self.weight)
        if why:
            raise Error(f"the weight is not packed, because {why}")
        self._copy = self._packed(_packed.Copy(rows, activation), self.weight)

    def _packed(self, wish: _packed.Copy, weight: Tensor) -> _packed.Copy:
        plan = _run.plan_for(self.problem(wish.rows, True, wish.activation), weight.device)
        source = _packed.Source(weight)
        laid = weight.detach().contiguous()
        memory = torch.empty(_abi.size("tsr_packed_bytes", plan), dtype=torch.uint8)
        plan._pack(laid.data_ptr(), memory.data_ptr())
        made = _packed.Copy(wish.rows, wish.activation)
        made.kernel, made.memory = plan.kernel, _packed.mark(memory, source)
        return made

    def _packed_again(self, copy: _packed.Copy, weight: Tensor) -> Optional[_packed.Copy]:
        """A copy of the weight as it is now, or None. The old copy stays whole, because another
        thread may be reading it."""
        if why_not_packable(weight) or not copy.was_seen(weight):
            return None
        try:
            self._copy = self._packed(copy, weight)
        except Error:  # no kernel packs the weight's new type or size
            self.unpack()
        return self._copy

    def cold_seconds(self, rows: int, packed: bool, activation: Optional[str] = None) -> float:
        """The measured time of a call whose weight is in no cache, as it is in a model: the other
        layers have passed through the caches since its last call."""
        plan = _run.plan_for(self.problem(rows, packed, activation), self.weight.device,
                             force=self.kernel if packed else None)
        x = self.weight.new_empty(rows, self.in_features).normal_()
        tensors = {"a": x, "b": self.packed if packed else self.weight.detach().contiguous(),
                   "d0": self.bias, "out": x.new_empty(rows, self.out_features)}
        addresses = plan._array_of(
            [tensors[op.name].data_ptr() for op in plan.operands])  # type: ignore[union-attr]
        options = _abi.BenchOptions(rounds=7, warmup=1, flush_caches=1)
        found = _abi.text("tsr_bench", plan, addresses, len(plan.operands), ctypes.byref(options),
                          None)
        return json.loads(found)["median_seconds"]

    def unpack(self) -> None:
        """Forgets the packed copy."""
        self._copy = None

    def extra_repr(self) -> str:
        more = f", activation={self.activation}" if self.activation else ""
        return super().extra_repr() + more + (", packed" if self.packed is not None else "")


def why_not_packable(weight: Tensor) -> str:
    """Why a copy of the weight would be of no use, or could not be told from an old one; "" where
    nothing is in the way."""
    if weight.device.type != "cpu":
        return "kernels for GPUs take weights as they are"
    if weight.requires_grad:
        return "the weight requires a gradient and will change"
    if weight.is_inference():
        return "the weight was made in inference mode, where PyTorch counts no changes"
    if not isinstance(weight, torch.nn.Parameter):
        return "the weight is no parameter, but computed anew for each call"
    if type(weight) is not torch.nn.Parameter or weight.layout is not torch.strided:
        return f"the weight is a {type(weight).__name__} of layout {weight.layout}"
    return ""
