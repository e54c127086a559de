"""Sequential containers that give an activation, and a batch norm before it, to the kernel of the
layer before them.

A container decides at each call. So a hook that comes later, a layer that is called by another path
and an activation that is replaced are all seen, and layers and activations stay what they are.
"""
from __future__ import annotations

import functools
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Tuple

import torch
from torch import nn
from torch.nn.modules import module as _module

from . import _conv, _conv_transpose, _fold
from ._linear import Linear

Tensor = torch.Tensor
_C: Any = torch._C

# PyTorch's layers, and the classes that optimize() gives to them.
CLASSES: Dict[type, type] = {nn.Linear: Linear, **_conv.MODULES, **_conv_transpose.MODULES}
_OURS = tuple(CLASSES.values())
# Those whose kernels have an activation behind the sum, and those that can hold a batch norm.
_ACTIVATED = (Linear, *_conv.MODULES, *_conv.MODULES.values(), nn.Linear)
_FOLDING = (*_conv.MODULES, *_conv.MODULES.values(), *_conv_transpose.MODULES,
            *_conv_transpose.MODULES.values())
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


def _may_activate(layer: Any, activation: Any) -> Optional[str]:
    """The activation's word where the layer's kernel can compute it."""
    if type(layer) not in _ACTIVATED or getattr(layer, "activation", None) is not None:
        return None
    return word_of(activation)


def _fused_word(layer: Any, activation: Any, x: Tensor) -> Optional[str]:
    """What the layer's kernel can compute in the activation's place. Where a gradient will be
    asked for that is nothing, because the backward pass would make the layer's result again."""
    word = _may_activate(layer, activation)
    if (word is None or type(layer) not in _OURS or not is_bare(layer)
            or not is_bare(activation)):
        return None
    needs = torch.is_grad_enabled() and (
        x.requires_grad or layer.weight.requires_grad
        or (layer.bias is not None and layer.bias.requires_grad))
    return None if needs else word


def _step(container: Any, modules: List[Any], at: int, x: Tensor) -> Tuple[Tensor, int]:
    """What the module at that place makes of x with those behind it that it can compute as well,
    and how many these are in all."""
    layer, following = modules[at], modules[at + 1] if at + 1 < len(modules) else None
    if container.tessera_folds and type(layer) in _FOLDING and type(layer) in _OURS \
            and type(following) in _fold.NORMS and is_bare(layer) and is_bare(following):
        fold = _fold.folded_for(layer, following, x)
        if fold is not None:
            last = modules[at + 2] if container.tessera_fuses and at + 2 < len(modules) else None
            word = _may_activate(layer, last)
            if word is not None and not is_bare(last):
                word = None
            return layer.with_folded(x, fold, word), 2 if word is None else 3
    word = _fused_word(layer, following, x) if container.tessera_fuses else None
    if word is None:
        return layer(x), 1
    return layer.with_activation(x, word), 2


def _run(container: nn.Module, x: Any) -> Any:
    """nn.Sequential.forward, but for neighbours that one kernel computes."""
    modules: List[Any] = list(container._modules.values())
    at = 0
    while at < len(modules):
        x, count = (modules[at](x), 1) if _is_watched(x) else _step(container, modules, at, x)
        at += count
    return x


@functools.lru_cache(maxsize=None)
def fused_class(kind: type, fuses: bool, folds: bool) -> type:
    """The class with another forward, and with the name of the class."""
    def forward(self: Any, input: Any) -> Any:
        return _run(self, input)

    def reduce(self: Any, protocol: Any) -> Any:  # no pickle finds this class by its name
        make, arguments, *rest = super(made, self).__reduce_ex__(protocol)
        plain = tuple(kind if a is made else a for a in arguments)
        return (_made_again, (kind, make, plain, fuses, folds), *rest)
    made = type(kind.__name__, (kind,), {
        "forward": forward, "__reduce_ex__": reduce, "__module__": kind.__module__,
        "__qualname__": kind.__qualname__, "__doc__": kind.__doc__, "tessera_fused": True,
        "tessera_fuses": fuses, "tessera_folds": folds})
    return made


def _made_again(kind: type, make: Any, arguments: Tuple[Any, ...], fuses: bool = True,
                folds: bool = True) -> Any:
    container = make(*arguments)
    container.__class__ = fused_class(kind, fuses, folds)
    return container


def is_fused(module: nn.Module) -> bool:
    return bool(getattr(type(module), "tessera_fused", False))


def runs_in_order(module: nn.Module) -> bool:
    """Whether the module is a Sequential and nothing more."""
    return (isinstance(module, nn.Sequential) and "forward" not in module.__dict__
            and type(module).__iter__ is nn.Sequential.__iter__
            and (type(module).forward is nn.Sequential.forward or is_fused(module)))


def neighbours(module: nn.Module) -> Iterator[Tuple[nn.Module, nn.Module]]:
    """Each two modules of which the second alone reads what the first returns to the container."""
    modules = list(module._modules.values()) if runs_in_order(module) else []
    for first, second in zip(modules, modules[1:]):
        if first is not None and second is not None:
            yield first, second


class Found(NamedTuple):
    """What a container leaves to the kernel of a layer."""

    norm: Optional[nn.Module]   # the batch norm behind it
    after: Optional[nn.Module]  # the activation behind that, or behind the layer
    word: Optional[str]         # what that activation is called

    def __bool__(self) -> bool:
        return self.norm is not None or self.word is not None


def candidates(model: nn.Module, fuse: bool, fold: bool) -> List[Tuple[nn.Module, Found]]:
    """What each layer could compute besides, once for each container that has it."""
    found: List[Tuple[nn.Module, Found]] = []
    for container in model.modules():
        after = {id(first): second for first, second in neighbours(container)}
        for layer in container._modules.values():
            norm, last = None, after.get(id(layer))
            if fold and type(layer) in _FOLDING and last is not None \
                    and not _fold.why_not(layer, last):
                norm, last = last, after.get(id(last))
            word = _may_activate(layer, last) if fuse and last is not None else None
            kept = Found(norm, last if word else None, word)
            if kept:
                found.append((layer, kept))
    return found


def fuse(model: nn.Module, fuses: bool, folds: bool) -> List[Tuple[nn.Module, type, type]]:
    """Gives each container with such neighbours its new class, and its own class back to one that
    has none now. Returns what changed, with the classes before and after."""
    changed = []
    for module in model.modules():
        kind = type(module)
        is_ours = "tessera_fused" in vars(kind)
        if not runs_in_order(module) or is_fused(module) and not is_ours:
            continue
        own = kind.__mro__[1] if is_ours else kind
        wanted = own
        if any(type(layer) in _OURS and _could_take(layer, after, fuses, folds)
               for layer, after in neighbours(module)):
            wanted = fused_class(own, fuses, folds)
        if wanted is not kind:
            module.__class__ = wanted
            changed.append((module, kind, wanted))
    return changed


def _could_take(layer: Any, after: nn.Module, fuses: bool, folds: bool) -> bool:
    """Whether the container can leave something to the layer now, or a norm after eval()."""
    if folds and type(layer) in _FOLDING and type(after) in _fold.NORMS:
        return True
    return fuses and _may_activate(layer, after) is not None


def prepare(model: nn.Module) -> None:
    """Folds the norms now, so that no CUDA graph meets a layer that is not folded yet."""
    for container in model.modules():
        for layer, after in neighbours(container):
            if getattr(type(container), "tessera_folds", False) and type(layer) in _OURS \
                    and type(layer) in _FOLDING and not _fold.why_not(layer, after):
                _fold.folded(layer, after)
