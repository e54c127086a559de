"""Linear: torch.nn.Linear over Tessera's kernels."""
from __future__ import annotations

import ctypes
import json
from typing import Any, Dict, Optional

import torch

from .. import _abi, _dtypes
from .._abi import Error
from .._problem import Problem
from . import _ops, _run
from ._functions import linear, packed_linear

Tensor = torch.Tensor


class Linear(torch.nn.Linear):
    """activation(x @ weight.T + bias), with the parameters and the state dict of torch.nn.Linear.

    activation: None, "relu", "gelu", "gelu_tanh", "silu", "sigmoid" or "tanh"; the kernel applies
    it. pack() keeps a second copy of a frozen weight in a kernel's own form, for CPUs.
    """

    def __init__(self, in_features: int, out_features: int, bias: bool = True, device: Any = None,
                 dtype: Any = None, *, activation: Optional[str] = None) -> None:
        if activation is not None and activation not in _ops.ACTIVATIONS:
            raise Error(f"the activation must be one of {', '.join(_ops.ACTIVATIONS)}, got "
                        f"{activation!r}")
        super().__init__(in_features, out_features, bias, device, dtype)
        self.activation = activation
        self.packed: Optional[Tensor] = None
        self.kernel: Optional[str] = None

    @classmethod
    def of(cls, module: torch.nn.Linear, activation: Optional[str] = None) -> "Linear":
        """A module with the same parameters, not copies of them."""
        made = cls(module.in_features, module.out_features, module.bias is not None, "meta",
                   module.weight.dtype, activation=activation)
        made.weight, made.bias = module.weight, module.bias
        return made.train(module.training)

    def forward(self, x: Tensor) -> Tensor:
        if self.packed is None:
            return linear(x, self.weight, self.bias, self.activation)
        return packed_linear(x, self.weight, self.bias, self.activation, self.packed,
                             str(self.kernel))

    def problem(self, rows: int, packed: bool = False) -> Problem:
        """What forward() asks for an input of so many rows."""
        word = _dtypes.word_of(self.weight.dtype, "the weight")
        steps = ["bias"] * (self.bias is not None) + [self.activation or ""]
        fields: Dict[str, Any] = dict(m=rows, n=self.out_features, k=self.in_features,
                                      layout="rcr", a=word, b=word, out=word)
        if any(steps):
            fields["epilogue"] = "+".join(filter(None, steps))
        if self.bias is not None:
            fields["d"] = _dtypes.word_of(self.bias.dtype, "the bias")
        return Problem("gemm", **fields, preshuffle=packed)

    def pack(self, rows: int = 128) -> None:
        """Packs the weight for inputs of about so many rows; any number stays right. The weight
        must be frozen and on a CPU. Call unpack() and pack() after the weight has changed."""
        if self.weight.requires_grad:
            raise Error("a weight that requires a gradient is not packed, because it will change; "
                        "call requires_grad_(False) first")
        if self.weight.device.type != "cpu":
            raise Error(f"weights are packed on a CPU only; this one lies on {self.weight.device}")
        plan = _run.plan_for(self.problem(rows, packed=True), self.weight.device)
        weight = self.weight.detach().contiguous()
        packed = torch.empty(_abi.size("tsr_packed_bytes", plan), dtype=torch.uint8)
        operands = (ctypes.c_void_p * len(plan.operands))(
            *[weight.data_ptr() if op.name == "b" else 0 for op in plan.operands])
        _abi.call("tsr_pack", plan, operands, len(plan.operands), packed.data_ptr(), None)
        self.packed, self.kernel = packed, plan.kernel

    def cold_seconds(self, rows: int, packed: bool) -> float:
        """The measured time of a call whose weight is in no cache, as it is in a model: the other
        layers have passed through the caches since its last call."""
        plan = _run.plan_for(self.problem(rows, packed), self.weight.device,
                             force=self.kernel if packed else None)
        x = self.weight.new_empty(rows, self.in_features).normal_()
        tensors = {"a": x, "b": self.packed if packed else self.weight.detach().contiguous(),
                   "d0": self.bias, "out": x.new_empty(rows, self.out_features)}
        addresses = (ctypes.c_void_p * len(plan.operands))(
            *[tensors[op.name].data_ptr() for op in plan.operands])  # type: ignore[union-attr]
        options = _abi.BenchOptions(rounds=7, warmup=1, flush_caches=1)
        found = _abi.text("tsr_bench", plan, addresses, len(plan.operands), ctypes.byref(options),
                          None)
        return json.loads(found)["median_seconds"]

    def unpack(self) -> None:
        """Forgets the packed copy."""
        self.packed = self.kernel = None

    def _apply(self, *args: Any, **options: Any) -> Any:  # .to(), .cuda(), .half()
        self.unpack()
        return super()._apply(*args, **options)

    def _load_from_state_dict(self, *args: Any) -> None:
        super()._load_from_state_dict(*args)
        self.unpack()

    def extra_repr(self) -> str:
        more = f", activation={self.activation}" if self.activation else ""
        return super().extra_repr() + more + (", packed" if self.packed is not None else "")
