"""optimize(model): Tessera's layers in the place of PyTorch's, one by one."""
from __future__ import annotations

from typing import Any, Dict, List, NamedTuple, Optional, Tuple

import torch
from torch import nn

from .._abi import Error
from .._dispatcher import default_dispatcher
from . import _conv, _fuse, _run
from ._linear import Linear

Tensor = torch.Tensor

# A packed weight takes memory twice, so that it must be this much faster.
LEAST_GAIN = 0.05

# A problem's measured seconds, with the weight as it is and with the packed one.
Measured = Dict[str, Tuple[float, float]]

# The modules of this package, which stay as they are.
_OURS = (Linear, *_conv.MODULES.values())


class Layer(NamedTuple):
    """What became of one torch.nn.Linear, Conv1d, Conv2d or Conv3d."""

    name: str                 # its path in the model
    problem: str              # the line; "" where the layer was left alone
    activation: Optional[str]
    kernel: str
    source: str               # how the kernel was chosen
    predicted_seconds: float
    packed: bool
    note: str                 # why it was left alone, packed or not packed


class Report(List[Layer]):
    """The layers in the model's order; str() is a table of them."""

    def __str__(self) -> str:
        lines = []
        for layer in self:
            if not layer.problem:
                lines.append(f"{layer.name}: left alone, because {layer.note}")
                continue
            note = f"\n    {layer.note}" if layer.note else ""
            lines.append(f"{layer.name}: {layer.problem}\n    {layer.kernel} ({layer.source}), "
                         f"{layer.predicted_seconds * 1e6:.1f} us predicted{note}")
        done = sum(1 for layer in self if layer.problem)
        return "\n".join([*lines, f"{done} of {len(self)} modules were replaced"])


def optimize(model: nn.Module, *, rows: int = 128, example: Any = None, pack: bool = True,
             fuse: bool = True) -> Tuple[nn.Module, Report]:
    """Replaces each torch.nn.Linear, Conv1d, Conv2d and Conv3d of the model, in place, by that of
    tessera.torch with the same parameters. Returns the model and a Report; print it.

    rows: for how many rows of input kernels of Linear are chosen and weights packed; any number
    stays right. example: one input of the model, or a tuple of them: the model runs on it once, and
    each layer's own input is taken; without it the report has convolutions of one image of 56 x 56.
    pack: frozen weights of Linear on a CPU get a second copy in a kernel's own form, where that is
    at least 5% faster; each shape is measured for this, in up to seconds. fuse: an activation that
    alone follows a layer is left to the kernel, where torch.fx can see it; a module whose forward
    calls it as a function becomes a torch.fx.GraphModule, in evaluation mode only. The model
    returned is another object only where that is the outermost module, or where the model is itself
    such a layer.
    """
    seen = _inputs_seen(model, example) if example is not None else {}
    words: Dict[int, str] = {}
    if fuse:
        model, words = _fuse.fuse(model)
    report = Report()
    made: Dict[int, nn.Module] = {}
    measured: Measured = {}
    for name, module in list(model.named_modules(remove_duplicate=False)):
        if not isinstance(module, _fuse.LAYERS) or isinstance(module, _OURS):
            continue
        if id(module) not in made:
            made[id(module)], layer = _replace(name, module, words.get(id(module)),
                                               seen.get(id(module)), rows, pack, measured)
            report.append(layer)
        if made[id(module)] is module:
            continue
        if not name:
            return made[id(module)], report
        _fuse._set(model, name, made[id(module)])
    return model, report


def _inputs_seen(model: nn.Module, example: Any) -> Dict[int, Tensor]:
    """Each layer's last input, without memory, by the layer's id()."""
    seen: Dict[int, Tensor] = {}

    def look(module: nn.Module, inputs: Tuple[Any, ...]) -> None:
        seen[id(module)] = inputs[0].to("meta")
    hooks = [module.register_forward_pre_hook(look) for module in model.modules()
             if isinstance(module, _fuse.LAYERS)]
    try:
        with torch.no_grad():
            model(*(example if isinstance(example, tuple) else (example,)))
    finally:
        for hook in hooks:
            hook.remove()
    return seen


def _refusal(module: nn.Module) -> str:
    if type(module) not in _fuse.LAYERS:
        return f"it is a {type(module).__name__}, which may compute something else"
    hooks = (module._forward_hooks, module._forward_pre_hooks, module._backward_hooks,
             module._backward_pre_hooks)
    if any(hooks):
        return "it has hooks, which would be lost"
    if hasattr(module, "parametrizations"):
        return "its weight is computed anew for each call"
    return ""


def _replace(name: str, module: nn.Module, activation: Optional[str], seen: Optional[Tensor],
             rows: int, pack: bool, measured: Measured) -> Tuple[nn.Module, Layer]:
    note = _refusal(module)
    if not note:
        try:
            if not isinstance(module, nn.Linear):
                return _replaced_conv(name, module, activation, seen)
            if seen is not None:
                rows = max(seen.numel() // max(module.in_features, 1), 1)
            return _replaced(name, module, activation, rows, pack, measured)
        except Error as error:
            note = str(error)
    kept = module if activation is None else nn.Sequential(module, _module_of(activation))
    return kept, Layer(name, "", activation, "", "", 0.0, False, note)


def _module_of(activation: str) -> nn.Module:
    """The activation again, for a layer that lost it and cannot have it in a kernel."""
    if activation.startswith("gelu"):
        return nn.GELU("tanh" if activation == "gelu_tanh" else "none")
    return {word: kind for kind, word in _fuse.MODULES.items()}[activation]()


def _replaced_conv(name: str, module: nn.Module, activation: Optional[str],
                   seen: Optional[Tensor]) -> Tuple[nn.Module, Layer]:
    made = _conv.MODULES[type(module)].of(module, activation)  # type: ignore[index]
    note = ""
    if seen is None:
        size = _conv.EXAMPLE_SIZES[len(made.stride) - 1]
        seen = made.weight.new_empty(1, made.in_channels, *size, device="meta")
        note = f"chosen for an image of {' x '.join(map(str, size))}, because there is no example"
    device = made.weight.device
    dispatcher = default_dispatcher(_run.device_key(device, "the weight"))
    choice = dispatcher.select(made.problem(seen), threads=_run.threads_on(device))
    return made, Layer(name, choice["problem"], activation, choice["kernel"], choice["source"],
                       choice["predicted_seconds"], False, note)


def _replaced(name: str, module: nn.Linear, activation: Optional[str], rows: int, pack: bool,
              measured: Measured) -> Tuple[nn.Module, Layer]:
    made = Linear.of(module, activation)
    device = made.weight.device
    dispatcher = default_dispatcher(_run.device_key(device, "the weight"))
    threads = _run.threads_on(device)
    choice = dispatcher.select(made.problem(rows), threads=threads)
    note = _why_not_packed(made, pack)
    if not note:
        try:
            other = dispatcher.select(made.problem(rows, packed=True), threads=threads)
            note = _pack(made, rows, choice, other, measured)
        except Error as error:
            note = f"not packed, because {error}"
    if made.packed is not None:
        choice = other
    layer = Layer(name, choice["problem"], activation, choice["kernel"], choice["source"],
                  choice["predicted_seconds"], made.packed is not None, note)
    return made, layer


def _pack(made: Linear, rows: int, plain: Dict[str, Any], packed: Dict[str, Any],
          measured: Measured) -> str:
    """Packs the weight where that is faster, by prediction and measured. Returns why, or why not.
    Layers of one shape are measured once."""
    if packed["predicted_seconds"] > plain["predicted_seconds"]:
        return "not packed, because that is predicted to be slower"
    key = plain["problem"]
    if key in measured and measured[key][1] > measured[key][0] * (1 - LEAST_GAIN):
        return _timed("not packed", *measured[key])
    made.pack(rows)
    if key not in measured:
        measured[key] = (made.cold_seconds(rows, False), made.cold_seconds(rows, True))
    if measured[key][1] <= measured[key][0] * (1 - LEAST_GAIN):
        return _timed("packed", *measured[key])
    made.unpack()
    return _timed("not packed", *measured[key])


def _timed(what: str, plain: float, packed: float) -> str:
    return (f"{what}, because from cold caches {plain * 1e6:.1f} us were measured with the weight "
            f"as it is, and {packed * 1e6:.1f} us with the packed one")


def _why_not_packed(made: Linear, pack: bool) -> str:
    if not pack:
        return "not packed, because pack=False was given"
    if made.weight.device.type != "cpu":
        return "not packed, because kernels for GPUs take weights as they are"
    if made.weight.requires_grad:
        return "not packed, because the weight requires a gradient and will change"
    return ""
