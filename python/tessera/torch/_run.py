"""Plans for tensors, and their launches.

A call is known by its tensors' shapes, strides, types and devices. Its plan is made at the first
such call; later calls look it up, make the result with PyTorch's allocator and launch.
"""
from __future__ import annotations

import ctypes
import functools
import operator
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

import torch

from .. import _abi, _arrays, _dtypes, _matmul, _norms
from .._abi import Error
from .._dispatcher import default_dispatcher
from .._layout import broadcast, collapse
from .._plan import Plan
from .._prepack import packed_fields
from .._problem import Operand, Problem
from .._values import check_equal
from . import _warm

Tensor = torch.Tensor
MOST_ENTRIES = 4096


class Bound(NamedTuple):
    """A plan, and what a launch of it needs."""

    plan: Optional[Plan]          # None: the result has no elements
    address: int                  # of the plan's handle
    sources: Sequence[int]        # for each operand of the plan its position among a call's tensors
    pick: Callable[[Any], Any]    # from the call's addresses to those of the plan's operands
    addresses: Any                # the C type of an array of them
    count: int
    workspace_bytes: int
    stream_of: Optional[int]      # the number of the GPU, on whose current stream it runs
    # What makes each result beside a tensor, and, for each tensor of a call, what copies it first
    # because of its strides. Empty: no tensor is copied.
    makers: Sequence[Callable[[Tensor], Tensor]]
    copies: Sequence[Optional[Callable[[Tensor], Tensor]]]
    # What later calls on the same tensors need, by what else they depend on: of attention its
    # gradients.
    later: Dict[Any, Any]


_bound: Dict[Any, Bound] = {}
_launch: Any = None


def type_word(tensor: Tensor, what: str) -> str:
    """Tessera's word for a tensor's type."""
    word = _dtypes.WORDS.get(str(tensor.dtype).rpartition(".")[2])
    if tensor.dtype == torch.float64:
        raise Error(f"{what} has the type float64, which Tessera does not know; convert it with "
                    ".float()")
    if word is None:
        raise _dtypes.unknown(what, str(tensor.dtype).rpartition(".")[2])
    return word


def tensor_view(tensor: Tensor, what: str) -> _arrays.View:
    return lying_view(tensor, what)._replace(
        address=tensor.data_ptr(), device=device_key(tensor.device, what), owner=tensor)


def lying_view(tensor: Tensor, what: str) -> _arrays.View:
    """The View of a tensor whose memory is not read."""
    return _arrays.View(0, type_word(tensor, what), tuple(tensor.shape), tuple(tensor.stride()),
                        ("cpu", 0), False, None)


def device_key(device: torch.device, what: str) -> Tuple[str, int]:
    """Tessera's name of a device."""
    if device.type == "cpu":
        return "cpu", 0
    if device.type == "cuda":
        return "hip" if torch.version.hip else "cuda", device.index or 0
    raise Error(f"{what} lies on {device}, but Tessera runs on cpu and cuda", "unsupported")


def check_devices(named: Sequence[Tuple[str, Optional[Tensor]]]) -> None:
    given = [(name, tensor) for name, tensor in named if tensor is not None]
    first, here = given[0][0], given[0][1].device
    for name, tensor in given[1:]:
        if tensor.device != here:
            raise Error(f"{first} lies on {here} and {name} on {tensor.device}; all tensors must "
                        "lie on one device")


def bind(plan: Optional[Plan], sources: Sequence[int], tensors: Sequence[Optional[Tensor]],
         device: torch.device, makers: Sequence[Any] = (), copies: Sequence[Any] = ()) -> Bound:
    """sources: for each operand of the plan its position among the call's addresses. tensors: those
    whose addresses they are, or tensors without memory that lie alike."""
    copies = copies if any(copies) else ()
    if plan is None:
        return Bound(None, 0, (), tuple, None, 0, 0, None, makers, copies, {})
    for operand, source in zip(plan.operands, sources):
        _check_operand(plan, operand, tensors[source])
    pick = operator.itemgetter(*sources) if len(sources) > 1 else tuple
    on_gpu = device.type != "cpu"
    return Bound(plan, plan._address, tuple(sources), pick, ctypes.c_void_p * len(sources),
                 len(sources), plan.workspace_bytes if on_gpu else 0,
                 (device.index or 0) if on_gpu else None, makers, copies, {})


# Types that stand for one of the problem's, of as many bytes.
_STAND_FOR = {torch.int64: ("int32",), torch.uint8: ("int8",)}


def _check_operand(plan: Plan, operand: Operand, tensor: Optional[Tensor]) -> None:
    """Refuses a tensor that is shorter than what a kernel reads or writes there. A call's key has
    the shapes, strides and types of all its tensors, so that one look is enough."""
    if tensor is None:
        raise Error(f"{operand.name} must be given, because the problem '{plan.problem}' reads it",
                    "internal")
    reach = 0 if tensor.numel() == 0 else tensor.itemsize * (
        1 + sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride())))
    words = _STAND_FOR.get(tensor.dtype) or (type_word(tensor, operand.name),)
    if reach < operand.bytes or operand.dtype not in (*words, "tf32" if "fp32" in words else ""):
        raise Error(f"{operand.name} must have {operand.bytes} bytes of {operand.dtype} for the "
                    f"problem '{plan.problem}', got {reach} bytes of {words[0]}")


def new_in_order(like: Tensor, shape: Sequence[Any], order: Sequence[int], dtype: torch.dtype
                 ) -> Tensor:
    """A new tensor without gaps, with its dimensions in that order in memory, (): in their own. It
    is no view: PyTorch lets nobody write into one that an operator with a derivative returns."""
    if not order:
        return like.new_empty(tuple(shape), dtype=dtype)
    strides: List[Any] = [1] * len(shape)
    step: Any = 1
    for at in reversed(order):
        strides[at], size = step, shape[at]
        step = step * (size or 1 if type(size) is int else torch.sym_max(size, 1))
    return like.new_empty_strided(tuple(shape), strides, dtype=dtype)


def copy_as(shape: Sequence[int], tensor: Tensor) -> Tensor:
    """A copy without gaps in a shape to which the tensor is broadcast."""
    return tensor.expand(shape).contiguous()


_is_batch_invariant = False


def use_batch_invariant_kernels(mode: bool) -> None:
    """From now on all calls of the process choose kernels with which a row, an image or a sequence
    has the same bits whatever else is in the batch; or no longer."""
    global _is_batch_invariant
    if type(mode) is not bool:
        raise Error(f"mode must be True or False, got {type(mode).__name__}")
    _is_batch_invariant = mode


def are_batch_invariant_kernels_enabled() -> bool:
    return _is_batch_invariant


def settings() -> Tuple[int, bool, bool]:
    """What is said of all calls, and plans depend on."""
    return (torch.get_num_threads(), torch.are_deterministic_algorithms_enabled(),
            _is_batch_invariant)


def launch_on(bound: Bound, tensors: Sequence[Optional[Tensor]], like: Tensor) -> None:
    """Launches a call whose tensors need no copies."""
    if bound.plan is not None:
        launch(bound, [0 if t is None else t.data_ptr() for t in tensors], like)


def launch(bound: Bound, addresses: Sequence[int], like: Tensor) -> None:
    """On a GPU: on PyTorch's current stream, with a workspace of PyTorch's allocator, which may be
    used again by later work of this stream. On a CPU the library's own memory is the workspace,
    because it is kept between calls, and PyTorch would ask the system for it each time."""
    global _launch
    if _launch is None:
        _launch = _abi.function("tsr_launch")
    operands = bound.addresses(*bound.pick(addresses))
    options = workspace = None
    if bound.stream_of is not None:
        fields = _abi.LaunchOptions(stream=torch._C._cuda_getCurrentRawStream(bound.stream_of))
        if bound.workspace_bytes:
            workspace = like.new_empty(bound.workspace_bytes, dtype=torch.uint8)
            fields.workspace = workspace.data_ptr()
            fields.workspace_bytes = bound.workspace_bytes
        options = ctypes.byref(fields)
    status = _launch(bound.address, operands, bound.count, options)
    if status == 0:
        return
    error = _abi.last_error(status)
    copies = _copy_odd(bound, operands) if error.code == "invalid_argument" else []
    if not copies or _launch(bound.address, operands, bound.count, options):
        raise error


class _Bytes:
    """Memory of a GPU, in the form that PyTorch makes a tensor of."""

    def __init__(self, address: int, size: int) -> None:
        self.__cuda_array_interface__ = {"version": 3, "data": (address, False), "typestr": "|u1",
                                         "shape": (size,), "strides": None}


def _copy_odd(bound: Bound, operands: Any) -> List[Tensor]:
    """Copies the inputs that lie at no multiple of 16 bytes, which some kernels for GPUs ask for,
    and puts the copies' addresses in their places. They must live until the launch."""
    if bound.stream_of is None or bound.plan is None:
        return []
    copies = []
    for i, operand in enumerate(bound.plan.operands):
        address = operands[i] or 0
        if address % 16 == 0 or operand.access != "read" or operand.in_array:
            continue
        memory = torch.as_tensor(_Bytes(address, operand.bytes), device=f"cuda:{bound.stream_of}")
        copies.append(memory.clone())
        operands[i] = copies[-1].data_ptr()
    return copies


def remember(key: Any, bound: Bound) -> Bound:
    if len(_bound) >= MOST_ENTRIES:
        _bound.clear()
    _bound[key] = bound
    return bound


def bound_of(bind_call: Callable[[Any, Any], Bound], options: Any,
             tensors: Sequence[Optional[Tensor]]) -> Bound:
    """bind_call: makes the plan of a function's call from the options and the tensors, at the first
    call of such tensors."""
    key = (bind_call, options, settings(),
           *[None if t is None else (t.shape, t.stride(), t.dtype, t.device) for t in tensors])
    bound = _bound.get(key)
    return remember(key, bind_call(options, tensors)) if bound is None else bound


def run(bind_call: Callable[[Any, Any], Bound], options: Any, tensors: Sequence[Optional[Tensor]],
        like: Tensor) -> List[Tensor]:
    """Launches a call, and returns its new results."""
    bound = bound_of(bind_call, options, tensors)
    _warm.see(bound)
    made = [make(like) for make in bound.makers]
    if bound.plan is not None:
        if bound.copies:
            tensors = copied(tensors, bound.copies)
        launch_on(bound, (*tensors, *made), like)
    return made


def copied(tensors: Sequence[Optional[Tensor]], copies: Sequence[Any]) -> List[Optional[Tensor]]:
    return [tensor if tensor is None or copy is None else copy(tensor)
            for tensor, copy in zip(tensors, copies)]


def forget() -> None:
    """Forgets all plans, for tests."""
    _bound.clear()
    _warm.forget()


def bind_row(names: Tuple[str, ...], fields: Callable[[Any, Dict[str, _arrays.View]], Any],
             options: Any, tensors: Sequence[Optional[Tensor]], sized: Tuple[str, ...] = (),
             written: Tuple[str, ...] = (), view: Any = tensor_view, check: Any = None) -> Bound:
    """The plan of an operation of attention, none of whose tensors is copied. names: its tensors,
    in the order of a call, with the results. fields: makes a problem's fields from options and
    views. sized: nothing is launched where none of these has an element. written: tensors that are
    looked at, because the caller gave them. check: makes the options plain."""
    given = [(name, tensor) for name, tensor in zip(names, tensors) if tensor is not None]
    check_devices(given)
    views = {name: view(tensor, name) for name, tensor in given}
    for name in written:
        _arrays.check_output(views[name], name)
    options = options if check is None else check(options, views)
    problem, device = Problem("fmha", **fields(options, views)), given[0][1].device
    if sized and all(0 in views[name].shape for name in sized if name in views):
        return bind(None, [], tensors, device)
    plan = plan_for(problem, device)
    return bind(plan, [names.index(operand.name) for operand in plan.operands], tensors, device)


def plan_for(problem: Problem, device: torch.device, force: Optional[str] = None) -> Plan:
    dispatcher = default_dispatcher(device_key(device, "a tensor"),
                                    torch.are_deterministic_algorithms_enabled(),
                                    _is_batch_invariant)
    return dispatcher.plan(problem, threads=threads_on(device), force=force)


def threads_on(device: torch.device) -> int:
    """A launch takes as many threads as PyTorch does."""
    return torch.get_num_threads() if device.type == "cpu" else 0


def _lies_badly(tensor: Optional[Tensor]) -> bool:
    """Whether no problem says the strides: neither rows at one distance nor columns."""
    if tensor is None or tensor.numel() == 0 or tensor.dim() == 0:
        return False
    shape, strides = tensor.shape, tensor.stride()
    if any(n > 1 and s == 0 for n, s in zip(shape, strides)):
        return True
    if tensor.dim() == 1:
        return shape[0] > 1 and strides[0] != 1
    return shape[-1] > 1 and strides[-1] != 1 and not (shape[-2] <= 1 or strides[-2] == 1)


def _bind_gemm(options: Tuple[Optional[str], bool, Optional[str]],
               tensors: Sequence[Optional[Tensor]]) -> Bound:
    """options: the activation; whether b is a weight of torch.nn.Linear, (n, k); the kernel for
    which the weight is packed. tensors: a, b, bias, residual, packed."""
    transpose, (*given, packed) = options[1], tensors
    labels = ("the input", "the weight") if transpose else ("a", "b")
    check_devices(list(zip((*labels, "bias", "residual", "packed"), tensors)))
    shapes = [tuple(tensor.shape) if tensor is not None and _lies_badly(tensor) else None
              for tensor in given]
    if not transpose:
        shapes = _spread(given, shapes)
    try:
        return _gemm_with(options, given, shapes, packed)
    except Error as error:
        uneven = [shape or (tuple(tensor.shape) if tensor is not None and
                            not tensor.is_contiguous() else None)
                  for shape, tensor in zip(shapes, given)]
        if error.code != "invalid_argument" or uneven == shapes:
            raise
        uneven = uneven if transpose else _spread(given, uneven)
        return _gemm_with(options, given, uneven, packed)


def _spread(tensors: Sequence[Optional[Tensor]], copied: List[Any]) -> List[Any]:
    """The shapes in which tensors are copied, with a and b in the result's leading dimensions where
    no single distance leads from each of their matrices to the next, as they lie or in the copy:
    both are broadcast, each along another dimension."""
    a, b = tensors[:2]
    assert a is not None and b is not None
    lead = broadcast(("a", "b"), [tuple(tensor.shape[:-2]) for tensor in (a, b)])
    found = []
    for tensor, shape in zip((a, b), copied):
        own = tuple(tensor.shape[:-2])
        strides = tensor.stride() if shape is None else _arrays.packed_strides(tuple(tensor.shape))
        steps = (0,) * (len(lead) - len(own)) + tuple(0 if size == 1 else step
                                                      for size, step in zip(own, strides))
        is_even = not own or collapse(lead, [steps]) is not None
        found.append(shape if is_even else (*lead, *tensor.shape[-2:]))
    return [*found, *copied[2:]]


def _gemm_with(options: Any, tensors: Sequence[Optional[Tensor]], shapes: List[Any],
               packed: Optional[Tensor]) -> Bound:
    """shapes: in which tensors are copied, None for those that are not."""
    activation, transpose, kernel = options
    copies = [None if shape is None else functools.partial(copy_as, shape) for shape in shapes]
    a, b, bias, residual = copied(tensors, copies)
    assert a is not None and b is not None
    labels = ("the input", "the weight") if transpose else ("a", "b")
    views = {name: tensor_view(tensor, label) for name, label, tensor in
             zip(_matmul.SLOTS, (*labels, "bias", "residual"), (a, b, bias, residual))
             if tensor is not None}
    if transpose:
        views["b"] = _transposed(views["b"], "the weight")
        _check_inner(views["a"], views["b"])
    shape, word = _matmul.result_of(views)
    dtype = getattr(torch, _dtypes.NAMES[word])
    out = torch.empty(shape, dtype=dtype, device=a.device)
    views["out"] = tensor_view(out, "out")
    fields, slots = _matmul.problem_of(_matmul.Options("matmul", activation, 1.0, 0.0), views)
    makers, copies = [_new_of(shape, dtype, a.dtype)], [*copies, None]
    if 0 in shape:
        return bind(None, [], [], a.device, makers, copies)
    plan, is_packed = _plan_gemm(fields, a.device, packed, kernel)
    slots = {**slots, "b": "packed"} if is_packed else slots
    names = (*_matmul.SLOTS[:4], "packed", "out")
    sources = [names.index(slots[operand.name]) for operand in plan.operands]
    lying = b if packed is None else b.new_empty(packed.numel() // b.itemsize, device="meta")
    return bind(plan, sources, (a, b, bias, residual, lying, out), a.device, makers, copies)


def _new_of(shape: Tuple[int, ...], dtype: torch.dtype, near: torch.dtype) -> Any:
    if dtype is near:  # the faster way
        return lambda like: like.new_empty(shape)
    return lambda like: like.new_empty(shape, dtype=dtype)


def _transposed(view: _arrays.View, what: str) -> _arrays.View:
    if len(view.shape) != 2:
        raise Error(f"{what} must have 2 dimensions, got {len(view.shape)}")
    return view._replace(shape=view.shape[::-1], strides=view.strides[::-1])


def _check_inner(a: _arrays.View, b: _arrays.View) -> None:
    if not a.shape or a.shape[-1] != b.shape[0]:
        got = a.shape[-1] if a.shape else "a single number"
        raise Error(f"the input's last dimension must have {b.shape[0]} elements as the weight's "
                    f"has, got {got}")
    check_equal("the type {}", "the input", _dtypes.NAMES[a.dtype], "the weight",
                _dtypes.NAMES[b.dtype])


def _plan_gemm(fields: Dict[str, Any], device: torch.device, packed: Optional[Tensor],
               kernel: Optional[str]) -> Tuple[Plan, bool]:
    """The plan, and whether it takes the packed weight: the faster one by prediction."""
    plan = plan_for(Problem("gemm", **fields), device)
    if packed is None or _is_batch_invariant:  # a packed kernel may add up in another order
        return plan, False
    try:
        other = plan_for(Problem("gemm", **packed_fields(fields)), device, force=kernel)
    except Error:  # the kernel that packed it cannot do this shape
        return plan, False
    _check_packed(packed, other)
    if other.info()["predicted_seconds"] <= plan.info()["predicted_seconds"]:
        return other, True
    return plan, False


def _check_packed(packed: Tensor, plan: Plan) -> None:
    wanted = _abi.size("tsr_packed_bytes", plan)
    if packed.dtype != torch.uint8 or packed.shape != (wanted,) or not packed.is_contiguous():
        raise Error(f"packed must have the type uint8, the shape {(wanted,)} and no gaps for the "
                    f"kernel {plan.kernel}, got {str(packed.dtype).rpartition('.')[2]}, "
                    f"{tuple(packed.shape)} and the strides {packed.stride()}")


def run_gemm(a: Tensor, b: Tensor, bias: Optional[Tensor], activation: Optional[str],
             residual: Optional[Tensor], transpose: bool, packed: Optional[Tensor] = None,
             kernel: Optional[str] = None) -> Tensor:
    """As run() does, without its loops, which take as long as a sixth of a small product."""
    key = (a.shape, a.stride(), a.dtype, a.device, b.shape, b.stride(), b.dtype, b.device,
           None if bias is None else (bias.shape, bias.stride(), bias.dtype, bias.device),
           activation, None if residual is None else
           (residual.shape, residual.stride(), residual.dtype, residual.device), transpose, kernel,
           None if packed is None else (packed.shape, packed.stride(), packed.dtype,
                                        packed.device), settings())
    bound = _bound.get(key)
    if bound is None:
        bound = remember(key, _bind_gemm((activation, transpose, kernel),
                                         (a, b, bias, residual, packed)))
    _warm.see(bound)
    out = bound.makers[0](a)
    if bound.plan is None:
        return out
    if bound.copies:
        a, b, bias, residual, packed = copied(  # type: ignore[assignment]
            (a, b, bias, residual, packed), bound.copies)
    launch(bound, (a.data_ptr(), b.data_ptr(), 0 if bias is None else bias.data_ptr(),
                   0 if residual is None else residual.data_ptr(),
                   0 if packed is None else packed.data_ptr(), out.data_ptr()), out)
    return out


# ---- Normalisations -----------------------------------------------------------------------------

def _has_rows(tensor: Tensor) -> bool:
    """Whether the elements of a row are neighbours, and the rows at one distance."""
    if tensor.dim() == 0 or (tensor.shape[-1] > 1 and tensor.stride(-1) != 1):
        return False
    found = collapse(tuple(tensor.shape[:-1]), [tuple(tensor.stride()[:-1])])
    return found is not None and (found[0] <= 1 or found[1][0] >= tensor.shape[-1])


def _bind_norm(options: Tuple[str, Optional[float]], tensors: Sequence[Optional[Tensor]]) -> Bound:
    """tensors: x, residual, scale, shift."""
    names = _norms.SLOTS[:4]
    check_devices(list(zip(("the input", *names[1:]), tensors)))
    copies = [Tensor.contiguous if tensor is not None and tensor.dim() > 0 and
              not _has_rows(tensor) else None for tensor in tensors]
    lying = dict(zip(names, copied(tensors, copies)))
    x = lying["in"]
    assert x is not None
    made = ("out",) if lying["residual"] is None else ("out", "sum")
    lying.update({name: torch.empty(x.shape, dtype=x.dtype, device=x.device) for name in made})
    views = {name: tensor_view(tensor, name) for name, tensor in lying.items()
             if tensor is not None}
    makers = [_new_of(tuple(x.shape), x.dtype, x.dtype)] * len(made)
    problem = Problem("norm", **_norms.fields_of(options, views))
    if x.numel() == 0:
        return bind(None, [], [], x.device, makers, copies)
    plan, order = plan_for(problem, x.device), list(lying)
    sources = [order.index(operand.name) for operand in plan.operands]
    return bind(plan, sources, list(lying.values()), x.device, makers, copies)


def run_norm(kind: str, x: Tensor, residual: Optional[Tensor], scale: Optional[Tensor],
             shift: Optional[Tensor], epsilon: Optional[float]) -> Tuple[Tensor, ...]:
    return tuple(run(_bind_norm, (kind, epsilon), (x, residual, scale, shift), x))
