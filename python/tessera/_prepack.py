"""Weights that are packed once, in a kernel's own form, for many multiplications."""
from __future__ import annotations

from typing import Any, Dict, Optional

from . import _abi, _arrays, _dtypes
from ._abi import Error
from ._checks import checked
from ._dispatcher import Dispatcher, check_views, dispatcher_for
from ._layout import Matrices, check_strides, layout_of
from ._problem import Problem

# What a packed weight and a multiplication must have in common, because its kernel is fixed.
_SIGNATURE = ("epilogue", "layout", "a", "b", "out", "d")


class PackedWeight:
    """What prepack() returns; matmul() takes it as b. It holds its own memory, and no reference to
    the array that was packed."""

    @checked
    def __init__(self, problem: Problem, kernel: str, signature: Dict[str, Any],
                 view: _arrays.View) -> None:
        self.problem = problem      # for which the kernel was chosen
        self.kernel = kernel        # whose form the weight has
        self.signature = signature
        self.view = view            # the weight's shape, and the packed memory
        self.memory = view.owner
        self.key = (kernel, view.shape, view.strides)

    @property
    def shape(self) -> Any:
        return self.view.shape

    @property
    def out(self) -> str:
        return self.signature["out"]

    @checked
    def fit(self, fields: Dict[str, Any]) -> Dict[str, Any]:
        """A multiplication's fields, for this weight. Raises Error where it was packed for
        another kind."""
        for name in _SIGNATURE:
            if fields.get(name) != self.signature.get(name):
                raise Error(f"the weight was packed for {name}={self.signature.get(name, 'none')}, "
                            f"got {name}={fields.get(name, 'none')}; pack it again for this call")
        return packed_fields(fields)

    def __reduce__(self) -> Any:
        raise Error("a packed weight cannot be copied or pickled; pack the weight again",
                    "unsupported")

    def __repr__(self) -> str:
        return f"<tessera.PackedWeight {self.shape} for {self.kernel}>"


def packed_fields(fields: Dict[str, Any]) -> Dict[str, Any]:
    """The same multiplication with a weight that is packed ahead."""
    kept = {name: value for name, value in fields.items()
            if name not in ("ld_b", "batch_stride_b")}
    if "batch" in kept:
        kept["batch_stride_b"] = 0
    return {**kept, "preshuffle": True}


def signature_of(operands: str, layout: str, bias: bool, activation: Optional[str],
                 residual: bool = False, out: Any = None, extra: Any = None) -> Dict[str, Any]:
    """The fields of a multiplication's kind. operands: their type. layout: the weight's, "r" or
    "c". out, extra: types as prepack() has them."""
    word = (_dtypes.word_of(out, "out") if out is not None else
            _dtypes.RESULTS.get(operands, operands))
    fields = {"a": operands, "b": operands, "out": word, "layout": f"r{layout}r"}
    steps = ["bias"] * bool(bias) + [activation] * (activation is not None)
    steps += ["add"] * bool(residual)
    if steps:
        fields["epilogue"] = "+".join(map(str, steps))
    if bias or residual:
        fields["d"] = word if extra is None else _dtypes.word_of(extra, "extra")
    return fields


@checked
def prepack(b: Any, *, rows: int = 128, bias: bool = False, activation: Optional[str] = None,
            residual: bool = False, out: Any = None, extra: Any = None, stream: Any = None,
            dispatcher: Optional[Dispatcher] = None) -> PackedWeight:
    """Packs a weight for matmul(a, packed, ...).

    b: (k, n), by rows or by columns (weight.T). rows: about how many rows a will have; any number
    is right, and this one is fast. bias, activation, residual: whether matmul() will be called with
    them. out: the result's type; None: as matmul() has it. extra: the type of bias and residual;
    None: the result's. stream, dispatcher: as in matmul(). a must have b's type, lie by rows, and
    have no other layout later. Raises Error where no kernel of the target packs such a weight.
    """
    view = _arrays.view_of(b, "b", _arrays.stream_address(stream))
    if len(view.shape) != 2:
        raise Error(f"prepack: b must have 2 dimensions, got {len(view.shape)}")
    chosen = dispatcher_for(dispatcher, view)
    check_views(chosen, [("b", view)])
    check_strides("b", view.shape, view.strides)
    layout, ld = layout_of(Matrices("b", view.shape, view.strides))
    signature = signature_of(view.dtype, layout, bias, activation, residual, out, extra)
    k, n = view.shape
    problem = Problem("gemm", m=rows, n=n, k=k, preshuffle=True, **signature,
                      **({} if ld is None else {"ld_b": ld}))
    plan = chosen.plan(problem)
    size = _abi.size("tsr_packed_bytes", plan)
    memory = _arrays.empty((size + 256,), "int8", b, view)
    start = -_arrays.view_of(memory, "memory").address % 256
    memory = memory[start:start + size]
    at = _arrays.view_of(memory, "memory").address
    plan._pack(view.address, at, _abi.LaunchOptions(stream=_arrays.stream_address(stream)))
    packed = view._replace(address=at, owner=memory, is_readonly=True)
    return PackedWeight(problem, plan.kernel, signature, packed)
