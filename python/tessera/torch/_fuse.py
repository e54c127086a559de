"""Sequential containers that give an activation to the kernel of the layer before it.

A container decides at each call. So a hook that comes later, a layer that is called by another path
and an activation that is replaced are all seen, and layers and activations stay what they are.
"""
from __future__ import annotations

import functools
from typing import Any, Dict, Iterator, List, Optional, Tuple

import torch
from torch import nn
from torch.nn.modules import module as _module

from . import _conv
from ._linear import Linear

Tensor = torch.Tensor
_C: Any = torch._C

# PyTorch's layers, and the classes that optimize() gives to them.
CLASSES: Dict[type, type] = {nn.Linear: Linear, **_conv.MODULES}
_OURS = tuple(CLASSES.values())
_WORDS = {nn.ReLU: "relu", nn.SiLU: "silu", nn.Sigmoid: "sigmoid", nn.Tanh: "tanh"}
_GELU = {"none": "gelu", "tanh": "gelu_tanh"}


def word_of(activation: Any) -> Optional[str]:
    """The kernels' word for what a module computes."""
    if type(activation) is nn.GELU:
        return _GELU.get(activation.approximate)
    return _WORDS.get(type(activation))


def is_bare(module: nn.Module) -> bool:
    """Whether a call of the module is its class's forward and nothing else sees the result."""
    return not (module._forward_hooks or module._forward_pre_hooks or module._backward_hooks
                or module._backward_pre_hooks or module._compiled_call_impl is not None
                or "forward" in module.__dict__)


def _is_watched(x: Any) -> bool:
    """Whether something sees the calls of all modules or of all operators."""
    if type(x) is not Tensor or _module._has_any_global_hook():
        return True
    return not torch.compiler.is_compiling() and bool(
        _C._len_torch_function_stack() or _C._len_torch_dispatch_stack()
        or _C._get_tracing_state() is not None)


def _fused_word(layer: Any, activation: Any, x: Tensor) -> Optional[str]:
    """What the layer's kernel can compute in the activation's place. Where a gradient will be
    asked for that is nothing, because the backward pass would make the layer's result again."""
    word = word_of(activation)
    if (word is None or type(layer) not in _OURS or layer.activation is not None
            or not is_bare(layer) or not is_bare(activation)):
        return None
    needs = torch.is_grad_enabled() and (
        x.requires_grad or layer.weight.requires_grad
        or (layer.bias is not None and layer.bias.requires_grad))
    return None if needs else word


def _run(container: nn.Module, x: Any) -> Any:
    """nn.Sequential.forward, but for neighbours that one kernel computes."""
    modules: List[Any] = list(container._modules.values())
    at = 0
    while at < len(modules):
        word = None
        if at + 1 < len(modules) and not _is_watched(x):
            word = _fused_word(modules[at], modules[at + 1], x)
        x = modules[at](x) if word is None else modules[at].with_activation(x, word)
        at += 1 if word is None else 2
    return x


@functools.lru_cache(maxsize=None)
def fused_class(kind: type) -> type:
    """The class with another forward, and with the name of the class."""
    def forward(self: Any, input: Any) -> Any:
        return _run(self, input)

    def reduce(self: Any, protocol: Any) -> Any:  # no pickle finds this class by its name
        make, arguments, *rest = super(made, self).__reduce_ex__(protocol)
        return (_made_again, (kind, make, tuple(kind if a is made else a for a in arguments)),
                *rest)
    made = type(kind.__name__, (kind,), {
        "forward": forward, "__reduce_ex__": reduce, "__module__": kind.__module__,
        "__qualname__": kind.__qualname__, "__doc__": kind.__doc__, "tessera_fused": True})
    return made


def _made_again(kind: type, make: Any, arguments: Tuple[Any, ...]) -> Any:
    container = make(*arguments)
    container.__class__ = fused_class(kind)
    return container


def is_fused(module: nn.Module) -> bool:
    return bool(getattr(type(module), "tessera_fused", False))


def runs_in_order(module: nn.Module) -> bool:
    """Whether the module is a Sequential and nothing more."""
    return (isinstance(module, nn.Sequential) and "forward" not in module.__dict__
            and (type(module).forward is nn.Sequential.forward or is_fused(module)))


def neighbours(module: nn.Module) -> Iterator[Tuple[nn.Module, nn.Module]]:
    """Each two modules of which the second alone reads what the first returns to the container."""
    modules = list(module._modules.values()) if runs_in_order(module) else []
    for first, second in zip(modules, modules[1:]):
        if first is not None and second is not None:
            yield first, second


def candidates(model: nn.Module) -> Dict[int, str]:
    """Which layer could have which activation in its kernel, by the layer's id()."""
    return {id(layer): word for module in model.modules() for layer, after in neighbours(module)
            for word in [word_of(after)]
            if word is not None and isinstance(layer, (*CLASSES, *_OURS))
            and getattr(layer, "activation", None) is None}


def fuse(model: nn.Module) -> List[nn.Module]:
    """Gives each container with such a pair its new class. Returns the containers."""
    found = []
    for module in model.modules():
        if not is_fused(module) and any(type(layer) in _OURS and word_of(after) is not None
                                        for layer, after in neighbours(module)):
            module.__class__ = fused_class(type(module))
            found.append(module)
    return found
