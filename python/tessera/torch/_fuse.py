"""Finds activations that follow a layer, and takes them out of the model, for the kernel.

Each module's own forward is traced with torch.fx, its children being leaves. So a module whose
forward cannot be traced costs only its own fusions.
"""
from __future__ import annotations

import inspect
from typing import Dict, List, Optional, Tuple

import torch
import torch.nn.functional as functional
from torch import fx, nn

MODULES = {nn.ReLU: "relu", nn.SiLU: "silu", nn.Sigmoid: "sigmoid", nn.Tanh: "tanh"}
FUNCTIONS = {functional.relu: "relu", torch.relu: "relu", functional.silu: "silu",
             torch.sigmoid: "sigmoid", functional.sigmoid: "sigmoid", torch.tanh: "tanh",
             functional.tanh: "tanh"}
METHODS = ("relu", "sigmoid", "tanh")
LAYERS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)


class _OneLevel(fx.Tracer):
    def is_leaf_module(self, module: nn.Module, name: str) -> bool:
        return True


def _trace(module: nn.Module) -> Optional[fx.Graph]:
    """None where torch.fx cannot follow the forward. A parameter with a default may be None at
    times, and then the graph would have only one of two ways."""
    parameters = inspect.signature(type(module).forward).parameters.values()
    if any(p.default is not p.empty or p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
           for p in parameters):
        return None
    try:
        return _OneLevel().trace(module)
    except Exception:  # whatever the model's own code raises for what are no tensors
        return None


def _gelu(approximate: str) -> Optional[str]:
    return {"none": "gelu", "tanh": "gelu_tanh"}.get(approximate)


def _activation(node: fx.Node, children: Dict[str, nn.Module]) -> Optional[str]:
    if node.op == "call_module":
        child = children[node.target]  # type: ignore[index]
        if type(child) is nn.GELU:
            return _gelu(child.approximate)
        return MODULES.get(type(child))  # type: ignore[call-overload]
    if node.op == "call_method":
        alone = len(node.args) == 1 and not node.kwargs and node.target in METHODS
        return str(node.target) if alone else None
    if node.op != "call_function" or len(node.args) != 1:
        return None
    more = {name: value for name, value in node.kwargs.items() if name != "inplace"}
    if node.target is functional.gelu:
        return _gelu(str(more.pop("approximate", "none"))) if len(more) <= 1 else None
    return None if more else FUNCTIONS.get(node.target)  # type: ignore[arg-type]


def _pairs(graph: fx.Graph, children: Dict[str, nn.Module]) -> List[Tuple[fx.Node, fx.Node, str]]:
    """(a layer's only call, the activation that alone reads it, its word)"""
    calls = [node.target for node in graph.nodes if node.op == "call_module"]
    found = []
    for node in graph.nodes:
        if (node.op != "call_module" or type(children[node.target]) not in LAYERS or
                len(node.users) != 1 or calls.count(node.target) != 1):
            continue
        user = next(iter(node.users))
        word = _activation(user, children)
        if word is not None and user.args[:1] == (node,):
            found.append((node, user, word))
    return found


def _set(root: nn.Module, name: str, module: nn.Module) -> None:
    parent, _, last = name.rpartition(".")
    setattr(root.get_submodule(parent), last, module)


def _fuse_one(module: nn.Module, shared: Dict[int, int]) -> Tuple[nn.Module, Dict[int, str]]:
    """The module, or a graph in its place where an activation was a function; and which layer
    got which activation, by id()."""
    children = dict(module.named_modules(remove_duplicate=False))
    if not any(type(child) in LAYERS for child in module.children()):
        return module, {}
    graph = _trace(module)
    pairs = _pairs(graph, children) if graph is not None else []
    words: Dict[int, str] = {}
    is_changed = False
    calls = [node.target for node in graph.nodes] if graph is not None else []
    for node, user, word in pairs:
        layer = children[node.target]  # type: ignore[index]
        if shared.get(id(layer), 1) > 1:
            continue
        if user.op == "call_module" and calls.count(user.target) == 1:
            _set(module, str(user.target), nn.Identity())
        elif not module.training:
            user.replace_all_uses_with(node)
            graph.erase_node(user)  # type: ignore[union-attr]
            is_changed = True
        else:
            continue
        words[id(layer)] = word
    if is_changed:
        graph.lint()  # type: ignore[union-attr]
        return fx.GraphModule(module, graph, type(module).__name__), words  # type: ignore[arg-type]
    return module, words


def fuse(root: nn.Module) -> Tuple[nn.Module, Dict[int, str]]:
    """Takes activations out of the model, children first. Returns the model and the words."""
    named = list(root.named_modules(remove_duplicate=False))
    shared: Dict[int, int] = {}
    for _, module in named:
        shared[id(module)] = shared.get(id(module), 0) + 1
    words: Dict[int, str] = {}
    for name, module in sorted(named, key=lambda pair: -pair[0].count(".") - bool(pair[0])):
        if shared[id(module)] > 1:
            continue
        made, found = _fuse_one(module, shared)
        words.update(found)
        if made is not module and name:
            _set(root, name, made)
        elif made is not module:
            root = made
    return root, words
