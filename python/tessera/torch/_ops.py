"""The operators torch.ops.tessera.*: what they compute, their shapes, their derivatives."""
from __future__ import annotations

from typing import Any, Dict, List, NamedTuple, Optional, Tuple

import torch

from .._abi import Error
from .._layout import broadcast
from . import _packed, _run
from ._operators import Operator, _library, check, register, total

Tensor = torch.Tensor
ACTIVATIONS = ("relu", "gelu", "gelu_tanh", "silu", "sigmoid", "tanh")


# ---- What they compute ---------------------------------------------------------------------------

def run_linear(x: Tensor, weight: Tensor, bias: Optional[Tensor] = None,
               activation: Optional[str] = None, packed: Optional[Tensor] = None,
               packed_for: Optional[str] = None) -> Tensor:
    if packed is not None and not _packed.is_copy_of(packed, weight):
        packed = packed_for = None  # the weight has changed since, or it is another one
    return _run.run_gemm(x, weight, bias, activation, None, True, packed, packed_for)


def run_packed_linear(x: Tensor, weight: Tensor, bias: Optional[Tensor], activation: Optional[str],
                      packed: Tensor, packed_for: str) -> Tensor:
    """run_linear() where the caller has compared the packed weight with the weight."""
    return _run.run_gemm(x, weight, bias, activation, None, True, packed, packed_for)


def run_matmul(a: Tensor, b: Tensor, bias: Optional[Tensor] = None,
               residual: Optional[Tensor] = None, activation: Optional[str] = None) -> Tensor:
    return _run.run_gemm(a, b, bias, activation, residual, False)


def run_softmax(x: Tensor) -> Tensor:
    return _run.run_norm("softmax", x, None, None, None, None)[0]


def run_rms_norm(x: Tensor, scale: Optional[Tensor], epsilon: float) -> Tensor:
    return _run.run_norm("rmsnorm", x, None, scale, None, epsilon)[0]


def run_layer_norm(x: Tensor, scale: Optional[Tensor], shift: Optional[Tensor],
                    epsilon: float) -> Tensor:
    return _run.run_norm("layernorm", x, None, scale, shift, epsilon)[0]


def run_add_rms_norm(x: Tensor, residual: Tensor, scale: Optional[Tensor], epsilon: float
                      ) -> Tuple[Tensor, ...]:
    return _run.run_norm("rmsnorm", x, residual, scale, None, epsilon)


def run_add_layer_norm(x: Tensor, residual: Tensor, scale: Optional[Tensor],
                        shift: Optional[Tensor], epsilon: float) -> Tuple[Tensor, ...]:
    return _run.run_norm("layernorm", x, residual, scale, shift, epsilon)


# For each tensor that _run names, its position among the arguments of the function.
SLOTS: Dict[Any, Tuple[Optional[int], ...]] = {
    run_linear: (0, 1, 2, None, None), run_packed_linear: (0, 1, 2, None, 4),
    run_matmul: (0, 1, 2, 3, None), run_softmax: (0, None, None, None),
    run_rms_norm: (0, None, 1, None), run_layer_norm: (0, None, 1, 2),
    run_add_rms_norm: (0, 1, 2, None), run_add_layer_norm: (0, 1, 2, 3)}

# The caller has compared the packed weight with the weight; the kernel reads one of them.
UNREAD = {run_packed_linear: (1, 4)}


# ---- Shapes, for tensors without memory ----------------------------------------------------------

_RESULTS = {torch.int8: torch.int32, torch.float8_e4m3fn: torch.float16,
            torch.float8_e5m2: torch.float16}


def _fake_linear(x: Tensor, weight: Tensor, bias: Optional[Tensor] = None,
                 activation: Optional[str] = None, packed: Optional[Tensor] = None,
                 packed_for: Optional[str] = None) -> Tensor:
    check(weight.dim() == 2, "the weight must have 2 dimensions")
    check(x.dim() > 0 and x.shape[-1] == weight.shape[1],
          "the input's last dimension must be the weight's")
    return x.new_empty((*x.shape[:-1], weight.shape[0]), dtype=_RESULTS.get(x.dtype, x.dtype))


def _fake_matmul(a: Tensor, b: Tensor, bias: Optional[Tensor] = None,
                 residual: Optional[Tensor] = None, activation: Optional[str] = None) -> Tensor:
    check(a.dim() > 0 and b.dim() > 0, "a and b must have at least 1 dimension")
    check(a.shape[-1] == b.shape[-2 if b.dim() > 1 else 0],
          "a's columns must be as many as b's rows")
    lead = broadcast(("a", "b"), (tuple(a.shape[:-2]), tuple(b.shape[:-2])))
    shape = (*lead, *(a.shape[-2:-1] if a.dim() > 1 else ()),
             *(b.shape[-1:] if b.dim() > 1 else ()))
    return a.new_empty(shape, dtype=_RESULTS.get(a.dtype, a.dtype))


def _fake_one(x: Tensor, *_: Any) -> Tensor:
    return x.new_empty(x.shape)


def _fake_two(x: Tensor, *_: Any) -> Tuple[Tensor, Tensor]:
    return x.new_empty(x.shape), x.new_empty(x.shape)


# ---- Derivatives ---------------------------------------------------------------------------------

def through_activation(grad: Tensor, before: Tensor, activation: str) -> Tensor:
    """The gradient of what the activation was applied to."""
    aten = torch.ops.aten
    if activation == "relu":
        return aten.threshold_backward(grad, before, 0)
    if activation in ("gelu", "gelu_tanh"):
        return aten.gelu_backward(grad, before,
                                  approximate="tanh" if activation == "gelu_tanh" else "none")
    if activation == "silu" and torch.is_grad_enabled():  # PyTorch's has not all derivatives
        sigmoid = before.sigmoid()
        return grad * sigmoid * (1 + before * (1 - sigmoid))
    if activation == "silu":
        return aten.silu_backward(grad, before)
    if activation == "sigmoid":
        return aten.sigmoid_backward(grad, before.sigmoid())
    if activation == "tanh":
        return aten.tanh_backward(grad, before.tanh())
    raise Error(f"the activation {activation} has no derivative here; it has one for " +
                ", ".join(ACTIVATIONS))


def through_fused(grad: Tensor, activation: Optional[str], op: Any, *inputs: Any) -> Tensor:
    """The same of an activation that op's kernel applies. op makes again what it was applied to,
    because the forward pass keeps only the result."""
    return grad if activation is None else through_activation(grad, op(*inputs), activation)


def _needs(ctx: Any, position: int) -> bool:
    """Whether an argument needs a gradient. PyTorch leaves arguments out that are at their default
    at the end."""
    return position < len(ctx.needs_input_grad) and ctx.needs_input_grad[position]


def _rows(tensor: Tensor) -> Tensor:
    """All rows as one matrix; there may be none, or none of their elements."""
    return tensor.flatten(0, -2) if tensor.dim() > 1 else tensor[None]


def _sum_rows(grad: Tensor) -> Tensor:
    """The sums of the columns, as a product with ones."""
    rows = _rows(grad)
    return torch.ops.tessera.matmul(rows.new_ones(1, rows.shape[0]), rows).reshape(-1)


def _product_tangents(op: Any, tangents: Tuple[Any, ...], inputs: Tuple[Any, ...], out: Tensor,
                      activation: Optional[str]) -> Tensor:
    """Of activation(op(a, b, bias)), which is linear in a, in b and in the bias."""
    (a, b, bias), (of_a, of_b, of_bias) = inputs, tangents
    if of_bias is not None:
        of_bias = of_bias.to(out.dtype).expand(out.shape) if b.dim() > 1 else of_bias.reshape(())
    terms = [op(of_a, b) if of_a is not None else None, op(a, of_b) if of_b is not None else None,
             of_bias]
    if all(term is None for term in terms):
        return torch.zeros_like(out)
    return through_fused(total(terms).expand(out.shape), activation, op, a, b, bias)


def _linear_tangents(inputs: Tuple[Any, ...], tangents: Tuple[Any, ...],
                     results: Tuple[Tensor, ...]) -> Tuple[Tensor, ...]:
    return (_product_tangents(torch.ops.tessera.linear, tangents[:3], inputs[:3], results[0],
                              inputs[3]),)


def _matmul_tangents(inputs: Tuple[Any, ...], tangents: Tuple[Any, ...],
                     results: Tuple[Tensor, ...]) -> Tuple[Tensor, ...]:
    found = _product_tangents(torch.ops.tessera.matmul, tangents[:3], inputs[:3], results[0],
                              inputs[4])
    return (total([found, tangents[3]]),)


def _linear_setup(ctx: Any, inputs: Tuple[Any, ...], output: Tensor) -> None:
    ctx.activation = inputs[3]
    ctx.save_for_backward(*inputs[:3])


def _linear_backward(ctx: Any, grad: Tensor) -> Tuple[Any, ...]:
    """Three products. With an activation a fourth one before."""
    x, weight, bias = ctx.saved_tensors
    ops = torch.ops.tessera
    grad = through_fused(grad, ctx.activation, ops.linear, x, weight, bias)
    d_x = ops.matmul(grad, weight) if _needs(ctx, 0) else None
    d_weight = d_bias = None
    if _needs(ctx, 1):
        d_weight = ops.matmul(_rows(grad).mT, _rows(x))
    if _needs(ctx, 2):
        d_bias = _sum_rows(grad).to(bias.dtype)
    return d_x, d_weight, d_bias, None, None, None


def _matmul_setup(ctx: Any, inputs: Tuple[Any, ...], output: Tensor) -> None:
    a, b, bias, residual, ctx.activation = inputs
    ctx.residual = None if residual is None else residual.dtype
    ctx.save_for_backward(a, b, bias)


def _matmul_backward(ctx: Any, grad: Tensor) -> Tuple[Any, ...]:
    a, b, bias = ctx.saved_tensors
    ops = torch.ops.tessera
    d_residual = grad.to(ctx.residual) if _needs(ctx, 3) else None
    grad = through_fused(grad, ctx.activation, ops.matmul, a, b, bias)
    matrix_a, matrix_b = a if a.dim() > 1 else a[None], b if b.dim() > 1 else b[:, None]
    over = grad[..., None] if b.dim() == 1 else grad
    over = over[..., None, :] if a.dim() == 1 else over
    d_a = d_b = d_bias = None
    if _needs(ctx, 0):
        d_a = ops.matmul(over, matrix_b.mT).sum_to_size(matrix_a.shape).reshape(a.shape)
    if _needs(ctx, 1):
        d_b = ops.matmul(matrix_a.mT, over).sum_to_size(matrix_b.shape).reshape(b.shape)
    if _needs(ctx, 2):
        d_bias = _sum_rows(over).to(bias.dtype)
    return d_a, d_b, d_bias, d_residual, None


def _softmax_setup(ctx: Any, inputs: Tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(output)


def _softmax_backward(ctx: Any, grad: Tensor) -> Tensor:
    y, = ctx.saved_tensors
    return torch.ops.aten._softmax_backward_data(grad, y, -1, y.dtype)


def _power_of_rows(wide: Tensor, epsilon: float) -> Tensor:
    """The power of two for each row with which the largest of its elements and of epsilon's root is
    near 1, so that no square overflows, and none vanishes that counts."""
    largest = torch.linalg.vector_norm(wide, float("inf"), -1, keepdim=True)
    bounded = largest.clamp(max(epsilon ** 0.5, 2.0 ** -126), 2.0 ** 125)
    return torch.ldexp(torch.ones_like(bounded), -torch.frexp(bounded).exponent)


def _normalised(x: Tensor, epsilon: float, centred: bool) -> Tuple[Tensor, Tensor, Tensor]:
    """The normalised rows, and in two factors one over their deviation, in fp32."""
    wide, unit = x.float(), 1.0
    if centred:  # in halves, because a difference of two floats may be none
        mean = wide.mean(-1, keepdim=True, dtype=torch.float64)
        unit = 0.5
        wide = wide * unit - (mean * unit).float()
    power = _power_of_rows(wide, epsilon * unit * unit)
    wide = wide * power
    variance = wide.square().mean(-1, keepdim=True) + epsilon * unit * unit * power * power
    inverse = torch.rsqrt(variance)
    return wide * inverse, inverse, power * unit


def _norm_gradients(grad: Tensor, x: Tensor, scale: Optional[Tensor], epsilon: float, centred: bool
                    ) -> Tuple[Tensor, Tensor, Tensor]:
    """The gradients of x, scale and shift."""
    rows, inverse, power = _normalised(x, epsilon, centred)
    wide = grad.float()
    inner = wide if scale is None else wide * scale.float()
    d_x = inner - rows * (inner * rows).mean(-1, keepdim=True)
    if centred:
        d_x = d_x - inner.mean(-1, keepdim=True)
    last = (wide.shape[-1],)
    return ((d_x * inverse * power).to(x.dtype), (wide * rows).sum_to_size(last),
            wide.sum_to_size(last))


def _softmax_tangents(inputs: Tuple[Any, ...], tangents: Tuple[Any, ...],
                      results: Tuple[Tensor, ...]) -> Tuple[Tensor, ...]:
    """The Jacobian is its own transpose, here and for the rows that the norms make."""
    y, = results
    return (torch.ops.aten._softmax_backward_data(tangents[0], y, -1, y.dtype),)


def _norm_tangent(x: Tensor, scale: Optional[Tensor], of_x: Optional[Tensor],
                  of_scale: Optional[Tensor], of_shift: Optional[Tensor], epsilon: float,
                  centred: bool) -> Tensor:
    found = torch.zeros_like(x, dtype=torch.float32)
    if of_x is not None:
        wide, _, _ = _norm_gradients(of_x.float(), x.float(), None, epsilon, centred)
        found = wide if scale is None else wide * scale.float()
    if of_scale is not None:
        found = found + _normalised(x, epsilon, centred)[0] * of_scale.float()
    return (found if of_shift is None else found + of_shift.float()).to(x.dtype)


class _Norm(NamedTuple):
    """The derivatives of a norm. adds: whether the first two inputs are added, and their sum is the
    second result. centred: whether a shift follows the scale."""

    adds: bool
    centred: bool

    def parts(self, inputs: Tuple[Any, ...]) -> List[Any]:
        """x, residual, scale, shift and epsilon; None for what it does not have."""
        found = list(inputs)
        if not self.adds:
            found.insert(1, None)
        if not self.centred:
            found.insert(3, None)
        return found

    def setup(self, ctx: Any, inputs: Tuple[Any, ...], output: Any) -> None:
        x, _, scale, shift, ctx.epsilon = self.parts(inputs)
        ctx.shift = None if shift is None else shift.dtype
        ctx.save_for_backward(output[1] if self.adds else x, scale)

    def backward(self, ctx: Any, grad: Tensor, grad_sum: Optional[Tensor] = None
                 ) -> Tuple[Any, ...]:
        x, scale = ctx.saved_tensors
        d_x, d_scale, d_shift = _norm_gradients(grad, x, scale, ctx.epsilon, self.centred)
        if self.adds:
            d_x = d_x + grad_sum
        return (*[d_x] * (1 + self.adds), None if scale is None else d_scale.to(scale.dtype),
                *[None if ctx.shift is None else d_shift.to(ctx.shift)] * self.centred, None)

    def tangents(self, inputs: Tuple[Any, ...], tangents: Tuple[Any, ...],
                 results: Tuple[Tensor, ...]) -> Tuple[Tensor, ...]:
        x, _, scale, _, epsilon = self.parts(inputs)
        of_x, of_residual, of_scale, of_shift, _ = self.parts(tangents)
        x = results[1] if self.adds else x
        given = [tangent for tangent in (of_x, of_residual) if tangent is not None]
        of_sum = total(given) if given else None
        of_out = _norm_tangent(x, scale, of_sum, of_scale, of_shift, epsilon, self.centred)
        if not self.adds:
            return (of_out,)
        return of_out, torch.zeros_like(x) if of_sum is None else of_sum


def _norm(schema: str, run: Any) -> Operator:
    made = _Norm("residual" in schema, "shift" in schema)
    return Operator(schema, run, _fake_two if made.adds else _fake_one, made.setup, made.backward,
                    made.tangents, rows=(0, 1) if made.adds else (0,), slots=SLOTS[run])


for _operator in (
        Operator("linear(Tensor x, Tensor weight, Tensor? bias=None, str? activation=None, "
                 "Tensor? packed=None, str? packed_for=None) -> Tensor", run_linear, _fake_linear,
                 _linear_setup, _linear_backward, _linear_tangents, rows=(0,),
                 slots=SLOTS[run_linear]),
        Operator("matmul(Tensor a, Tensor b, Tensor? bias=None, Tensor? residual=None, "
                 "str? activation=None) -> Tensor", run_matmul, _fake_matmul, _matmul_setup,
                 _matmul_backward, _matmul_tangents, slots=SLOTS[run_matmul]),
        Operator("softmax(Tensor x) -> Tensor", run_softmax, _fake_one, _softmax_setup,
                 _softmax_backward, _softmax_tangents, rows=(0,), slots=SLOTS[run_softmax]),
        _norm("rms_norm(Tensor x, Tensor? scale, float epsilon) -> Tensor", run_rms_norm),
        _norm("layer_norm(Tensor x, Tensor? scale, Tensor? shift, float epsilon) -> Tensor",
              run_layer_norm),
        _norm("add_rms_norm(Tensor x, Tensor residual, Tensor? scale, float epsilon) "
              "-> (Tensor, Tensor)", run_add_rms_norm),
        _norm("add_layer_norm(Tensor x, Tensor residual, Tensor? scale, Tensor? shift, "
              "float epsilon) -> (Tensor, Tensor)", run_add_layer_norm)):
    register(_operator)


# ---- Mixed precision -----------------------------------------------------------------------------

def _cast_and_call(op: Any, device: str) -> Any:
    """As torch.nn.functional.linear does under torch.autocast: in the smaller type."""
    def cast(tensor: Any, dtype: torch.dtype) -> Any:
        is_wide = isinstance(tensor, Tensor) and tensor.dtype in (
            torch.float32, torch.float16, torch.bfloat16)
        return tensor.to(dtype) if is_wide else tensor

    def call(*arguments: Any) -> Any:
        dtype = torch.get_autocast_dtype(device)
        with torch.autocast(device, enabled=False):
            return op(*[cast(argument, dtype) for argument in arguments])
    return call


for _op in (torch.ops.tessera.linear.default, torch.ops.tessera.matmul.default):
    for _key, _device in (("AutocastCPU", "cpu"), ("AutocastCUDA", "cuda")):
        _library.impl(_op._opname, _cast_and_call(_op, _device), _key)
