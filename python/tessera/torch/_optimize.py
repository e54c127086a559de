"""optimize(model): Tessera's layers in the place of PyTorch's, one by one."""
from __future__ import annotations

from typing import Any, Dict, List, NamedTuple, Optional, Tuple

import torch
from torch import nn

from .._abi import Error
from .._dispatcher import default_dispatcher
from . import _check, _conv, _fold, _fuse, _run
from ._linear import Linear, why_not_packable

Tensor = torch.Tensor

# A packed weight takes memory twice, so that it must be this much faster.
LEAST_GAIN = 0.05

# A problem's measured seconds, with the weight as it is and with the packed one.
Measured = Dict[str, Tuple[float, float]]

# A module, the class it had and the one that it got.
Change = Tuple[nn.Module, type, type]

_LAYERS = tuple(_fuse.CLASSES)
_OURS = tuple(_fuse.CLASSES.values())
_NONE = _fuse.Found(None, None, None)


class Layer(NamedTuple):
    """What became of one torch.nn.Linear, Conv1d to Conv3d or ConvTranspose1d to 3d."""

    name: str                 # its path in the model
    problem: str              # the line; "" where the layer was left alone
    activation: Optional[str]  # what a Sequential leaves to its kernel
    kernel: str
    source: str               # how the kernel was chosen
    predicted_seconds: float
    packed: bool
    note: str                 # why it was left alone, packed or not packed
    norm: bool = False        # whether its kernel computes the batch norm behind it, too


class Kept(NamedTuple):
    """An activation or a batch norm that is a pass of its own."""

    name: str
    activation: str           # "batch norm" is one
    note: str                 # why no kernel computes it


class Report(List[Layer]):
    """The layers in the model's order; str() is a table of them.

    kept: the activations and batch norms that no kernel computes. check: what comparing outputs and
    gradients on the example gave. agrees: whether they agreed; None where nothing could be
    compared.
    """

    def __init__(self, layers: Any = ()) -> None:
        super().__init__(layers)
        self.kept: List[Kept] = []
        self.check = "not compared with the model as it was, because there is no example"
        self.agrees: Optional[bool] = None

    def __str__(self) -> str:
        lines = []
        for layer in self:
            if not layer.problem:
                lines.append(f"{layer.name}: left alone, because {layer.note}")
                continue
            note = f"\n    {layer.note}" if layer.note else ""
            note = "\n    with the batch norm behind it" + note if layer.norm else note
            lines.append(f"{layer.name}: {layer.problem}\n    {layer.kernel} ({layer.source}), "
                         f"{layer.predicted_seconds * 1e6:.1f} us predicted{note}")
        lines += [f"{kept.name}: {kept.activation} is a pass of its own, because {kept.note}"
                  for kept in self.kept]
        done = sum(1 for layer in self if layer.problem)
        return "\n".join([*lines, self.check, f"{done} of {len(self)} modules were replaced"])


def optimize(model: nn.Module, example: Any = None, *, rows: int = 128, pack: bool = True,
             fuse: bool = True, fold: bool = True, check: bool = True
             ) -> Tuple[nn.Module, Report]:
    """Gives each torch.nn.Linear, Conv1d to Conv3d and ConvTranspose1d to 3d of the model, in
    place, the class of that name in tessera.torch. Returns the model, which is the same object, and
    a Report; print it.

    Each module stays the object that it was, with its name, parameters, hooks and attributes.
    example: one input of the model, a tuple of them, or a dictionary of named ones: the model runs
    on it, and each layer's own input is taken; without it the report has convolutions of one image
    of 56 x 56. check: with an example, outputs and gradients are compared before and after; where
    they differ by more than roundings explain, all is put back, and the report says so.
    rows: for how many rows of input kernels of Linear are chosen and weights packed; any number
    stays right. pack: frozen weights of Linear on a CPU get a second copy in a kernel's own form,
    where that is at least 5% faster; each shape is measured for this, in up to seconds. fuse: a
    Sequential leaves an activation to the kernel of the layer before it, in each call whose layer
    and activation have no hooks and need no gradient. fold: so it does with a batch norm in eval
    mode, which a convolution before it computes by a weight and a bias of its own.
    """
    inputs: Dict[int, Tensor] = {}
    before = None
    if example is not None:
        before = _seen(model, example, inputs, check)
    candidates = _fuse.candidates(model, fuse, fold)
    found = {id(layer): kept for layer, kept in candidates}
    report = Report()
    changes: List[Change] = []
    measured: Measured = {}
    for name, module in model.named_modules():
        if isinstance(module, _LAYERS) and not isinstance(module, _OURS):
            kind = type(module)
            report.append(_take(name, module, found.get(id(module), _NONE),
                                inputs.get(id(module)), rows, pack, measured))
            if type(module) is not kind:
                changes.append((module, kind, type(module)))
    changes += _fuse.fuse(model, fuse, fold)
    _fuse.prepare(model)
    report.kept = _kept(model, candidates, fuse, fold)
    if before is not None:
        _compare(model, example, before, report, changes)
    elif example is not None:
        report.check = "not compared with the model as it was, because check=False was given"
    return model, report


def _seen(model: nn.Module, example: Any, inputs: Dict[int, Tensor], check: bool
          ) -> Optional[_check.Seen]:
    """What the model gives for the example; each layer's last input, without memory, by the
    layer's id(), goes to `inputs`."""
    def look(module: nn.Module, arguments: Tuple[Any, ...], named: Dict[str, Any]) -> None:
        given = _check.tensors_in([arguments, named])
        if given:
            inputs[id(module)] = given[0].detach().to("meta")
    hooks = [module.register_forward_pre_hook(look, with_kwargs=True) for module in model.modules()
             if isinstance(module, _LAYERS)]
    try:
        if check:
            return _check.look(model, example)
        _check.outputs_of(model, example)
        return None
    finally:
        for hook in hooks:
            hook.remove()


def _compare(model: nn.Module, example: Any, before: _check.Seen, report: Report,
             changes: List[Change]) -> None:
    """Writes into the report how far the model is from what it was, and puts all back where that
    is too far."""
    report.agrees = False
    try:
        after = _check.look(model, example)
        lost = "" if before.why_none else after.why_none
        what = f"it gives no gradients, because {lost}" if lost else ""
        if not lost:
            found = _check.distances(after, before)
            report.agrees, what = found.are_near, _words(found, before)
    except Exception as error:  # whatever the model's own code raises
        lost = what = f"it raised {type(error).__name__}: {error}"
    if not report.agrees and changes:
        _set(changes, 1)
        own = _check.distances(_check.look(model, example), before)
        if not own.are_near and not lost:
            _set(changes, 2)
            report.agrees = None
            what = f"nothing, because in two runs of the model as it was {_words(own, before)}"
    report.check = f"compared on the example: {what}"
    if report.agrees is False:
        _put_back(report, changes, f"the model changed on its example: {what}; roundings explain "
                                   f"{found.unit**0.5:.1e} and {found.unit**0.25:.1e}"
                  if not lost else f"on its example {what}")


def _put_back(report: Report, changes: List[Change], note: str) -> None:
    report.check, report.kept = f"all was put back, because {note}", []
    report[:] = [Layer(layer.name, "", None, "", "", 0.0, False, note if layer.problem else
                       layer.note) for layer in report]
    for module, *_ in changes:
        module.__dict__.pop("_copy", None)
        module.__dict__.pop("_folded", None)


def _words(found: _check.Distances, before: _check.Seen) -> str:
    outputs = f"outputs differ by {found.outputs:.1e} of the greatest element"
    if before.why_none:
        return f"{outputs}; gradients were not compared, because {before.why_none}"
    return f"{outputs}, gradients by {found.gradients:.1e} of their sizes"


def _set(changes: List[Change], which: int) -> None:
    """1: each module's former class. 2: the one that it got."""
    for change in changes:
        change[0].__class__ = change[which]


def _kept(model: nn.Module, candidates: List[Tuple[nn.Module, _fuse.Found]], fuse: bool, fold: bool
          ) -> List[Kept]:
    """Activations and batch norms that no Sequential leaves to a kernel, and why."""
    before = {id(after): layer for module in model.modules()
              for layer, after in _fuse.neighbours(module)}
    taken = {id(module) for layer, found in candidates if type(layer) in _OURS
             for module in found[:2]}
    kept = []
    for name, module in model.named_modules():
        is_norm = type(module) in _fold.NORMS
        word = "batch norm" if is_norm else _fuse.word_of(module)
        if word is None or id(module) in taken:
            continue
        layer = before.get(id(module))
        if not (fold if is_norm else fuse):
            note = f"{'fold' if is_norm else 'fuse'}=False was given"
        elif layer is None:
            note = ("no Sequential has it after another module, and what the code of a forward "
                    "does with it nobody can know")
        elif isinstance(layer, _LAYERS) and type(layer) not in _OURS:
            note = "the layer before it was left alone"
        else:
            note = _why_kept(module, layer, is_norm)
        kept.append(Kept(name, word, note))
    return kept


def _why_kept(module: nn.Module, layer: Any, is_norm: bool) -> str:
    if type(layer) not in _OURS or is_norm and isinstance(layer, Linear):
        return f"it follows a {type(layer).__name__}"
    if is_norm:
        return _fold.why_not(layer, module)
    if getattr(layer, "activation", None) is not None:
        return f"its layer has {layer.activation} already"
    return "no kernel of a transposed convolution has an activation behind it"


def _refusal(module: nn.Module) -> str:
    if type(module) not in _LAYERS:
        return f"it is a {type(module).__name__}, which may compute something else"
    if "forward" in module.__dict__:
        return "its forward was replaced by another one"
    if "activation" in module.__dict__:
        return "it has an attribute 'activation' of its own, which ours would apply"
    return ""


def _take(name: str, module: nn.Module, found: _fuse.Found, seen: Optional[Tensor], rows: int,
          pack: bool, measured: Measured) -> Layer:
    note, kind, word = _refusal(module), type(module), found.word
    if not note:
        try:
            module.__class__ = _fuse.CLASSES[kind]
            if not isinstance(module, Linear):
                return _taken_conv(name, module, found, seen)
            if seen is not None:
                rows = max(seen.numel() // max(module.in_features, 1), 1)
            return _taken(name, module, word, rows, pack, measured)
        except Error as error:
            module.__class__, note = kind, str(error)
    return Layer(name, "", None, "", "", 0.0, False, note)


def _taken_conv(name: str, made: Any, found: _fuse.Found, seen: Optional[Tensor]) -> Layer:
    note = ""
    if seen is None:
        size = _conv.EXAMPLE_SIZES[len(made.stride) - 1]
        seen = made.weight.new_empty(1, made.in_channels, *size, device="meta")
        note = f"chosen for an image of {' x '.join(map(str, size))}, because there is no example"
    device = made.weight.device
    dispatcher = default_dispatcher(_run.device_key(device, "the weight"))
    problem = made.problem(seen, found.word, found.norm is not None)
    choice = dispatcher.select(problem, threads=_run.threads_on(device))
    return Layer(name, choice["problem"], found.word, choice["kernel"], choice["source"],
                 choice["predicted_seconds"], False, note, found.norm is not None)


def _taken(name: str, made: Linear, word: Optional[str], rows: int, pack: bool, measured: Measured
           ) -> Layer:
    device = made.weight.device
    dispatcher = default_dispatcher(_run.device_key(device, "the weight"))
    threads = _run.threads_on(device)
    choice = dispatcher.select(made.problem(rows, activation=word), threads=threads)
    why = why_not_packable(made.weight) if pack else "pack=False was given"
    note = f"not packed, because {why}" if why else ""
    if not note:
        try:
            other = dispatcher.select(made.problem(rows, True, word), threads=threads)
            note = _pack(made, rows, word, choice, other, measured)
        except Error as error:
            note = f"not packed, because {error}"
    if made.packed is not None:
        choice = other
    return Layer(name, choice["problem"], word, choice["kernel"], choice["source"],
                 choice["predicted_seconds"], made.packed is not None, note)


def _pack(made: Linear, rows: int, word: Optional[str], plain: Dict[str, Any],
          packed: Dict[str, Any], measured: Measured) -> str:
    """Packs the weight where that is faster, by prediction and measured. Returns why, or why not.
    Layers of one shape are measured once."""
    if packed["predicted_seconds"] > plain["predicted_seconds"]:
        return "not packed, because that is predicted to be slower"
    key = plain["problem"]
    if key in measured and measured[key][1] > measured[key][0] * (1 - LEAST_GAIN):
        return _timed("not packed", *measured[key])
    made.pack(rows, word)
    if key not in measured:
        measured[key] = (made.cold_seconds(rows, False, word),
                         made.cold_seconds(rows, True, word))
    if measured[key][1] <= measured[key][0] * (1 - LEAST_GAIN):
        return _timed("packed", *measured[key])
    made.unpack()
    return _timed("not packed", *measured[key])


def _timed(what: str, plain: float, packed: float) -> str:
    return (f"{what}, because from cold caches {plain * 1e6:.1f} us were measured with the weight "
            f"as it is, and {packed * 1e6:.1f} us with the packed one")
