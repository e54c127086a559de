"""Registers the operators torch.ops.tessera.*, each by its row: what computes it, the shapes of its
results without memory, its derivatives in both directions, and its batches under torch.vmap."""
from __future__ import annotations

import contextlib
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

import torch
from torch._functorch.utils import enable_single_level_autograd_function
from torch.autograd import forward_ad

from .._abi import Error
from . import _eager, _warm
from ._run import check_devices

Tensor = torch.Tensor
_C: Any = torch._C
# The operators live as long as this object.
_library = torch.library.Library("tessera", "DEF")


class Operator(NamedTuple):
    """A row. Without `backward` or `tangents` the operator has no such derivative, and `refusal`
    says so, beginning with what it is about."""

    schema: str                                      # as PyTorch writes it, with the name
    run: Callable[..., Any]
    fake: Callable[..., Any]
    setup: Optional[Callable[..., None]] = None      # (ctx, inputs, output)
    backward: Optional[Callable[..., Any]] = None    # (ctx, *grads)
    tangents: Optional[Callable[..., Any]] = None    # (inputs, their tangents, results), a tuple
    refusal: str = ""
    rows: Tuple[int, ...] = ()                       # inputs that may get one more dimension first
    # As run(), whose results it returns with what `backward` finds in ctx.known.
    keeping: Optional[Callable[..., Tuple[Any, Any]]] = None
    # For each tensor that the plan's call names, its position among the arguments, -1 - i for the
    # result i; (): calls that were seen before are not launched at once.
    slots: Tuple[Optional[int], ...] = ()


def check(condition: Any, sentence: str) -> None:
    """torch._check() for what a shape must be, without its import of sympy for plain numbers."""
    if not isinstance(condition, bool):
        torch._check(condition, lambda: sentence)
    elif not condition:
        raise Error(sentence)


def register(operator: Operator) -> None:
    name = operator.schema.partition("(")[0]
    _library.define(operator.schema, tags=torch.Tag.pt2_compliant_tag)
    op = getattr(torch.ops.tessera, name).default
    for device in ("CPU", "CUDA"):
        _library.impl(name, operator.run, device)
    names = [argument.name for argument in op._schema.arguments]

    def fake(*arguments: Any, **named: Any) -> Any:
        check_devices([(what, tensor) for what, tensor in (*zip(names, arguments), *named.items())
                       if isinstance(tensor, Tensor)])
        return operator.fake(*arguments, **named)
    torch.library.register_fake(f"tessera::{name}", fake, lib=_library)
    _library.impl(name, _differentiable(op, operator), "Autograd", with_keyset=True)
    torch.library.register_vmap(f"tessera::{name}", _batched(op, operator), lib=_library)
    if operator.slots:
        _eager.launch_at_once(getattr(torch.ops.tessera, name), operator.slots)
    if operator.setup is not None and operator.backward is not None:
        _direct[getattr(torch.ops.tessera, name)] = _without_dispatcher(op, operator)


# ---- Derivatives ---------------------------------------------------------------------------------

_direct: Dict[Any, Callable[..., Any]] = {}


def _backward_of(operator: Operator) -> Callable[..., Any]:
    def backward(ctx: Any, *grads: Any) -> Any:
        if operator.backward is None:
            name = operator.schema.partition("(")[0]
            raise Error(f"{name}: {operator.refusal}", "unsupported")
        found = operator.backward(ctx, *grads)
        found = found if isinstance(found, tuple) else (found,)
        return (*found, *(None,) * (len(ctx.needs_input_grad) - len(found)))
    return backward


def _applied(name: str, forward: Callable[..., Any], backward: Callable[..., Any]) -> Any:
    """A function with this derivative. It is not Function.apply(), which would go through all
    levels of torch.func once more."""
    made: Any = type(name, (torch.autograd.Function,),
                     {"forward": staticmethod(forward), "backward": staticmethod(backward)})
    return super(torch.autograd.Function, made).apply


def _differentiable(op: Any, operator: Operator) -> Callable[..., Any]:
    """What runs where PyTorch looks for derivatives. Levels of torch.func come here one by one, and
    each has taken its own wrapping off, so that one rule serves all of them."""
    defaults = tuple(argument.default_value for argument in op._schema.arguments)

    def filled(arguments: Tuple[Any, ...]) -> Tuple[Any, ...]:
        """PyTorch leaves arguments out that are at their default at the end."""
        return (*arguments, *defaults[len(arguments):])

    def below(keyset: Any, arguments: Tuple[Any, ...]) -> Any:
        with _C._AutoDispatchBelowAutograd():
            return op.redispatch(keyset & _C._after_autograd_keyset, *arguments)

    def forward(ctx: Any, *arguments: Any) -> Any:
        *inputs, keyset = arguments
        with _recording_levels_below():
            result = below(keyset, tuple(inputs))
        if operator.setup is not None:
            operator.setup(ctx, filled(tuple(inputs)), result)
        return result

    single = _applied(f"{op._opname}_derivative", forward, _backward_of(operator))

    def apply(*arguments: Any) -> Any:
        if not _C._are_functorch_transforms_active():
            return single(*arguments)
        with enable_single_level_autograd_function():
            return single(*arguments)

    def kernel(keyset: Any, *arguments: Any) -> Any:
        if _has_levels() and _C._is_fwd_grad_enabled():
            inputs, tangents = _unpacked(arguments)
            if any(tangent is not None for tangent in tangents):
                return _with_tangents(op, operator, filled(inputs), filled(tangents))
        if _C.is_grad_enabled() and _C._any_requires_grad(*arguments):
            if op._schema.is_mutable:
                raise Error(f"{op._opname}: {operator.refusal}", "unsupported")
            return apply(*arguments, keyset)
        return below(keyset, arguments)
    return kernel


def direct(op: Any) -> Optional[Callable[..., Any]]:
    """What computes an operator and its derivative without PyTorch's dispatcher, for calls that
    nothing else looks at; None where the operator has no derivative."""
    return _direct.get(op)


def _without_dispatcher(op: Any, operator: Operator) -> Callable[..., Any]:
    setup: Any = operator.setup
    keeping = operator.keeping or (lambda *inputs: (operator.run(*inputs), None))
    defaults = tuple(argument.default_value for argument in op._schema.arguments)

    def forward(ctx: Any, *inputs: Any) -> Any:
        found = _warm.find(operator.run, *inputs) if operator.slots else None
        if type(found) in _warm.RESULTS:
            result, ctx.known = found, None
        else:
            _warm.see(None)
            result, ctx.known = keeping(*inputs)
            _warm.keep(found, inputs, operator.slots, result)
        setup(ctx, (*inputs, *defaults[len(inputs):]), result)
        return result
    return _applied(f"{operator.schema.partition('(')[0]}_at_once", forward, _backward_of(operator))


def _recording_levels_below() -> Any:
    """A Function's forward() runs with derivatives switched off, in all levels of torch.func. Those
    below need theirs, for second derivatives; at the level itself nothing more is recorded."""
    if not _C._are_functorch_transforms_active():
        return contextlib.nullcontext()
    stack = contextlib.ExitStack()
    stack.enter_context(torch.enable_grad())
    stack.enter_context(forward_ad._set_fwd_grad_enabled(True))
    return stack


def _has_levels() -> bool:
    """Whether there may be tangents. What torch.compile made of torch.func.jvp enters its level
    without telling forward_ad."""
    return forward_ad._current_level >= 0 or _C._are_functorch_transforms_active()


def _unpacked(arguments: Tuple[Any, ...]) -> Tuple[Tuple[Any, ...], Tuple[Optional[Tensor], ...]]:
    """The arguments without their tangents, and the tangents. PyTorch has one level of them, 0;
    those of torch.func are in wrappers."""
    pairs = [torch._VF._unpack_dual(argument, level=0)  # type: ignore[attr-defined]
             if isinstance(argument, Tensor) and argument.is_floating_point() else (argument, None)
             for argument in arguments]
    return tuple(pair[0] for pair in pairs), tuple(pair[1] for pair in pairs)


def _with_tangents(op: Any, operator: Operator, inputs: Tuple[Any, ...],
                   tangents: Tuple[Optional[Tensor], ...]) -> Any:
    if operator.tangents is None:
        raise Error(f"{op._opname}: {operator.refusal}", "unsupported")
    result = op(*inputs)
    results = result if isinstance(result, tuple) else (result,)
    found = operator.tangents(inputs, tangents, results)
    duals = tuple(torch._VF._make_dual(  # type: ignore[attr-defined]
        primal, tangent.to(primal.dtype), level=0) for primal, tangent in zip(results, found))
    return duals if isinstance(result, tuple) else duals[0]


def total(terms: Sequence[Optional[Tensor]]) -> Tensor:
    """The sum of those that there are."""
    given = [term for term in terms if term is not None]
    found = given[0]
    for term in given[1:]:
        found = found + term
    return found


# ---- Batches of torch.vmap -----------------------------------------------------------------------

def _batched(op: Any, operator: Operator) -> Callable[..., Any]:
    """One call with a dimension more where the operator works row by row; else a call for each."""
    def rule(info: Any, in_dims: Sequence[Any], *arguments: Any) -> Any:
        if op._schema.is_mutable:
            raise Error(f"{op._opname}: torch.vmap has no rule for it, because it writes into a "
                        "cache", "unsupported")
        batched = [i for i, at in enumerate(in_dims) if isinstance(at, int)]
        if all(i in operator.rows for i in batched) and \
                all(i in batched or arguments[i] is None for i in operator.rows):
            result = op(*[argument.movedim(in_dims[i], 0) if i in batched else argument
                          for i, argument in enumerate(arguments)])
            return (result, (0,) * len(result)) if isinstance(result, tuple) else (result, 0)
        if info.batch_size == 0:
            raise Error(f"{op._opname}: torch.vmap needs at least 1 element to map over, got 0")
        results: List[Any] = [
            op(*[argument.select(in_dims[i], n) if i in batched else argument
                 for i, argument in enumerate(arguments)]) for n in range(info.batch_size)]
        if isinstance(results[0], tuple):
            return tuple(map(torch.stack, zip(*results))), (0,) * len(results[0])
        return torch.stack(results), 0
    return rule
