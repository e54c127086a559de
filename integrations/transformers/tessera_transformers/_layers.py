"""use_tessera(model): layers get a class whose forward calls Tessera. Which layer is replaced by
what is a table, as the mappings of the package `kernels` are. That package loads built repositories
from its hub or a folder, which Python functions are not, so that nothing of it is used here.

A layer is known by its class' name or type, and compared: its own forward and ours must agree on
random input of the model's type before it is replaced."""
from __future__ import annotations

from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple

import tessera
import tessera.torch
import torch
from torch import nn
from transformers.activations import GELUActivation, SiLUActivation

from ._report import leave

Tensor = torch.Tensor
ROWS = 5  # of the input on which both are compared


class Replaced(NamedTuple):
    """A layer: its name in the model, the row of LAYERS, and why it was left alone, or ""."""

    name: str
    kind: str
    note: str


class Row(NamedTuple):
    """is_one: whether a module may be of this kind. forward: what takes the place of its forward.
    width: of its input."""

    is_one: Callable[[Any], bool]
    forward: Callable[..., Tensor]
    width: Callable[[Any], int]


# ---- What is computed ----------------------------------------------------------------------------

def _epsilon(module: Any) -> Optional[float]:
    for name in ("variance_epsilon", "eps", "epsilon"):
        if isinstance(getattr(module, name, None), float):
            return getattr(module, name)
    return None


def _is_rms_norm(module: Any) -> bool:
    weight = getattr(module, "weight", None)
    return (type(module).__name__.endswith("RMSNorm") and isinstance(weight, Tensor)
            and weight.dim() == 1 and _epsilon(module) is not None)


def _rms_norm(self: Any, x: Tensor) -> Tensor:
    return tessera.torch.rms_norm(x, self.weight, epsilon=_epsilon(self))


def _is_layer_norm(module: Any) -> bool:
    return (type(module) is nn.LayerNorm and len(module.normalized_shape) == 1
            and module.weight is not None)


def _layer_norm(self: Any, x: Tensor) -> Tensor:
    return tessera.torch.layer_norm(x, self.weight, self.bias, epsilon=self.eps)


_GATED = ("gate_proj", "up_proj", "down_proj")
_PLAIN = (nn.Linear, tessera.torch.Linear)
_WORDS = {nn.SiLU: "silu", SiLUActivation: "silu", nn.ReLU: "relu", nn.Sigmoid: "sigmoid",
          nn.Tanh: "tanh"}


def _word(activation: Any) -> Optional[str]:
    """The kernels' word for it."""
    if isinstance(activation, nn.GELU):
        return "gelu" if activation.approximate == "none" else "gelu_tanh"
    if isinstance(activation, GELUActivation):
        return "gelu"
    return _WORDS.get(type(activation))


def _is_gated_mlp(module: Any) -> bool:
    return (all(isinstance(getattr(module, name, None), _PLAIN) for name in _GATED)
            and len([*module.children()]) == 4
            and _word(getattr(module, "act_fn", None)) is not None)


def _activated(layer: Any, activation: Any, x: Tensor) -> Tensor:
    """activation(layer(x)) in one kernel, where nothing else looks at the layer's result, and it
    has no packed weight that would serve better."""
    is_plain = (type(layer) in _PLAIN and not layer._forward_hooks and not layer._forward_pre_hooks
                and not activation._forward_hooks and not activation._forward_pre_hooks
                and "forward" not in layer.__dict__)
    if not is_plain or getattr(layer, "packed", None) is not None:
        return activation(layer(x))
    return tessera.torch.linear(x, layer.weight, layer.bias, _word(activation))


def _gated_mlp(self: Any, x: Tensor) -> Tensor:
    return self.down_proj(_activated(self.gate_proj, self.act_fn, x) * self.up_proj(x))


LAYERS: Dict[str, Row] = {
    "RMSNorm": Row(_is_rms_norm, _rms_norm, lambda module: module.weight.shape[0]),
    "LayerNorm": Row(_is_layer_norm, _layer_norm, lambda module: module.normalized_shape[0]),
    "GatedMLP": Row(_is_gated_mlp, _gated_mlp, lambda module: module.gate_proj.in_features),
}


# ---- Replacing -----------------------------------------------------------------------------------

_classes: Dict[Tuple[type, str], type] = {}


def _class_of(module: nn.Module, kind: str) -> type:
    """A class derived from the module's own, of the same name, so that who asks for the type gets
    the answer that it got before."""
    former = type(module)
    if (former, kind) not in _classes:
        ours = LAYERS[kind].forward

        def forward(self: Any, x: Tensor, *others: Any, **named: Any) -> Tensor:
            if others or named:
                return former.forward(self, x, *others, **named)
            try:
                return ours(self, x)
            except tessera.Error as error:
                leave(kind, str(error), self)
                return former.forward(self, x)
        made = type(former.__name__, (former,), {"forward": forward, "__module__": __name__})
        _classes[former, kind] = made
    return _classes[former, kind]


def _tolerance(dtype: torch.dtype) -> float:
    """A part of the greatest element. A norm of transformers rounds twice and ours once; products
    differ by the order of their sums, in which the roundings of a gated layer's three results to
    its type are the most: half an eps each, taken twice."""
    return 4 * torch.finfo(dtype).eps if dtype != torch.float32 else 1e-5


def _why_not(module: Any, row: Row) -> str:
    if "forward" in module.__dict__:
        return "its forward was replaced by another one"
    if module._forward_hooks or module._forward_pre_hooks:
        return "it has hooks"
    weight = next(module.parameters())
    if weight.device.type not in ("cpu", "cuda"):
        return f"it lies on {weight.device.type}, and there are kernels for cpu and cuda"
    x = torch.randn(1, ROWS, row.width(module), generator=torch.Generator().manual_seed(1))
    x = x.to(weight.device, weight.dtype)
    try:
        with torch.no_grad():
            theirs, ours = module(x), row.forward(module, x)
        error = tessera.torch.worst_error(ours, theirs)
    except Exception as error_of:  # a module of this name may take other arguments
        return f"it could not be compared: {error_of}"
    limit = _tolerance(weight.dtype)
    return "" if error <= limit else (f"its own result differs by {error:.1e} of the greatest "
                                      f"element, and {limit:.1e} may differ")


def _replace(name: str, module: nn.Module, kind: str) -> Replaced:
    why = _why_not(module, LAYERS[kind])
    if not why:
        module.__class__ = _class_of(module, kind)
    return Replaced(name, kind, why)


def _set(model: Any, what: str) -> List[Replaced]:
    """The framework's own switches, which a model of another package need not have."""
    switch = getattr(model, f"set_{what}_implementation", None)
    if switch is None:
        return [Replaced("", what, f"the model has no set_{what}_implementation")]
    try:
        switch("tessera")
    except (ValueError, KeyError) as error:
        return [Replaced("", what, str(error))]
    taken = getattr(model.config, f"_{what}_implementation", None)
    return [Replaced("", what, "" if taken == "tessera" else f"the model keeps {taken}")]


def use_tessera(model: nn.Module, *, attention: bool = True, experts: bool = True,
                linear: bool = True, layers: Tuple[str, ...] = tuple(LAYERS), **options: Any
                ) -> Tuple[List[Replaced], Any]:
    """Gives attention, experts, linear layers and the layers of LAYERS to Tessera, in place.
    Returns what was replaced or left alone, and the report of tessera.torch.optimize, which gets
    `options` (rows, pack, example), or None with linear=False."""
    found = [*(_set(model, "attn") if attention else []),
             *(_set(model, "experts") if experts and _has_experts(model) else [])]
    for name, module in model.named_modules():
        for kind in layers:
            if LAYERS[kind].is_one(module):
                found.append(_replace(name, module, kind))
    report = tessera.torch.optimize(model, **options)[1] if linear else None
    return found, report


def _has_experts(model: nn.Module) -> bool:
    return any(hasattr(module, "_is_expert_parallel") for module in model.modules())
