"""The operators torch.ops.tessera.*: what they compute, their shapes, their derivatives."""
from __future__ import annotations

from typing import Any, Optional, Tuple

import torch

from .._abi import Error
from . import _run

Tensor = torch.Tensor
ACTIVATIONS = ("relu", "gelu", "gelu_tanh", "silu", "sigmoid", "tanh")

# The operators live as long as this object.
_library = torch.library.Library("tessera", "DEF")
_library.define("linear(Tensor x, Tensor weight, Tensor? bias=None, str? activation=None, "
                "Tensor? packed=None, str? packed_for=None) -> Tensor",
                tags=torch.Tag.pt2_compliant_tag)
_library.define("matmul(Tensor a, Tensor b, Tensor? bias=None, Tensor? residual=None, "
                "str? activation=None) -> Tensor",
                tags=torch.Tag.pt2_compliant_tag)
_library.define("softmax(Tensor x) -> Tensor", tags=torch.Tag.pt2_compliant_tag)
_library.define("rms_norm(Tensor x, Tensor? scale, float epsilon) -> Tensor",
                tags=torch.Tag.pt2_compliant_tag)
_library.define("layer_norm(Tensor x, Tensor? scale, Tensor? shift, float epsilon) -> Tensor",
                tags=torch.Tag.pt2_compliant_tag)
_library.define("add_rms_norm(Tensor x, Tensor residual, Tensor? scale, float epsilon) "
                "-> (Tensor, Tensor)", tags=torch.Tag.pt2_compliant_tag)
_library.define("add_layer_norm(Tensor x, Tensor residual, Tensor? scale, Tensor? shift, "
                "float epsilon) -> (Tensor, Tensor)", tags=torch.Tag.pt2_compliant_tag)


# ---- What they compute ---------------------------------------------------------------------------

def run_linear(x: Tensor, weight: Tensor, bias: Optional[Tensor] = None,
               activation: Optional[str] = None, packed: Optional[Tensor] = None,
               packed_for: Optional[str] = None) -> Tensor:
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


# ---- Shapes, for tensors without memory ----------------------------------------------------------

_RESULTS = {torch.int8: torch.int32, torch.float8_e4m3fn: torch.float16,
            torch.float8_e5m2: torch.float16}


def _fake_linear(x: Tensor, weight: Tensor, bias: Optional[Tensor] = None,
                 activation: Optional[str] = None, packed: Optional[Tensor] = None,
                 packed_for: Optional[str] = None) -> Tensor:
    torch._check(weight.dim() == 2, lambda: "the weight must have 2 dimensions")
    torch._check(x.dim() > 0 and x.shape[-1] == weight.shape[1],
                 lambda: "the input's last dimension must be the weight's")
    return x.new_empty((*x.shape[:-1], weight.shape[0]), dtype=_RESULTS.get(x.dtype, x.dtype))


def _fake_matmul(a: Tensor, b: Tensor, bias: Optional[Tensor] = None,
                 residual: Optional[Tensor] = None, activation: Optional[str] = None) -> Tensor:
    if a.dim() > 1 and b.dim() > 1:
        lead = torch.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        shape = (*lead, a.shape[-2], b.shape[-1])
    else:
        rows = a.shape[:-1] if a.dim() > 1 else b.shape[:-2]
        shape = (*rows, *(b.shape[-1:] if b.dim() > 1 else ()))
    return a.new_empty(shape, dtype=_RESULTS.get(a.dtype, a.dtype))


def _fake_one(x: Tensor, *_: Any) -> Tensor:
    return x.new_empty(x.shape)


def _fake_two(x: Tensor, *_: Any) -> Tuple[Tensor, Tensor]:
    return x.new_empty(x.shape), x.new_empty(x.shape)


for _name, _function, _fake in (
        ("linear", run_linear, _fake_linear), ("matmul", run_matmul, _fake_matmul),
        ("softmax", run_softmax, _fake_one), ("rms_norm", run_rms_norm, _fake_one),
        ("layer_norm", run_layer_norm, _fake_one),
        ("add_rms_norm", run_add_rms_norm, _fake_two),
        ("add_layer_norm", run_add_layer_norm, _fake_two)):
    for _device in ("CPU", "CUDA"):
        _library.impl(_name, _function, _device)
    torch.library.register_fake(f"tessera::{_name}", _fake, lib=_library)


# ---- Derivatives ---------------------------------------------------------------------------------

def through_activation(grad: Tensor, before: Tensor, activation: str) -> Tensor:
    """The gradient of what the activation was applied to."""
    aten = torch.ops.aten
    if activation == "relu":
        return aten.threshold_backward(grad, before, 0)
    if activation in ("gelu", "gelu_tanh"):
        return aten.gelu_backward(grad, before,
                                  approximate="tanh" if activation == "gelu_tanh" else "none")
    if activation == "silu":
        return aten.silu_backward(grad, before)
    if activation == "sigmoid":
        return aten.sigmoid_backward(grad, before.sigmoid())
    if activation == "tanh":
        return aten.tanh_backward(grad, before.tanh())
    raise Error(f"the activation {activation} has no derivative here; it has one for " +
                ", ".join(ACTIVATIONS))


def _needs(ctx: Any, position: int) -> bool:
    """Whether an argument needs a gradient. PyTorch leaves arguments out that are at their default
    at the end."""
    return position < len(ctx.needs_input_grad) and ctx.needs_input_grad[position]


def _sum_rows(grad: Tensor) -> Tensor:
    """The sums of the columns, as a product with ones."""
    rows = grad.reshape(-1, grad.shape[-1])
    return torch.ops.tessera.matmul(rows.new_ones(1, rows.shape[0]), rows).reshape(-1)


def _linear_setup(ctx: Any, inputs: Tuple[Any, ...], output: Tensor) -> None:
    x, weight, bias, ctx.activation = inputs[:4]
    ctx.save_for_backward(x, weight, *([] if bias is None else [bias]))


def _linear_backward(ctx: Any, grad: Tensor) -> Tuple[Any, ...]:
    """Three products. With an activation a fourth one before, which makes again what it was applied
    to, because the forward pass fuses it and keeps only the result."""
    x, weight, *bias = ctx.saved_tensors
    ops = torch.ops.tessera
    if ctx.activation is not None:
        before = ops.linear(x, weight, bias[0] if bias else None)
        grad = through_activation(grad, before, ctx.activation)
    d_x = ops.matmul(grad, weight) if _needs(ctx, 0) else None
    d_weight = d_bias = None
    if _needs(ctx, 1):
        rows = grad.reshape(-1, grad.shape[-1])
        d_weight = ops.matmul(rows.mT, x.reshape(-1, x.shape[-1]))
    if _needs(ctx, 2):
        d_bias = _sum_rows(grad).to(bias[0].dtype)
    return d_x, d_weight, d_bias, None, None, None


def _matmul_setup(ctx: Any, inputs: Tuple[Any, ...], output: Tensor) -> None:
    a, b, bias, residual, ctx.activation = inputs
    ctx.residual = None if residual is None else residual.dtype
    ctx.save_for_backward(a, b, *([] if bias is None else [bias]))


def _matmul_backward(ctx: Any, grad: Tensor) -> Tuple[Any, ...]:
    a, b, *bias = ctx.saved_tensors
    ops = torch.ops.tessera
    d_residual = grad.to(ctx.residual) if _needs(ctx, 3) else None
    if ctx.activation is not None:
        before = ops.matmul(a, b, bias[0] if bias else None)
        grad = through_activation(grad, before, ctx.activation)
    matrix_a, matrix_b = a if a.dim() > 1 else a[None], b if b.dim() > 1 else b[:, None]
    over = grad[..., None] if b.dim() == 1 else grad
    over = over[..., None, :] if a.dim() == 1 else over
    d_a = d_b = d_bias = None
    if _needs(ctx, 0):
        d_a = ops.matmul(over, matrix_b.mT).sum_to_size(matrix_a.shape).reshape(a.shape)
    if _needs(ctx, 1):
        d_b = ops.matmul(matrix_a.mT, over).sum_to_size(matrix_b.shape).reshape(b.shape)
    if _needs(ctx, 2):
        d_bias = _sum_rows(over).to(bias[0].dtype)
    return d_a, d_b, d_bias, d_residual, None


def _softmax_setup(ctx: Any, inputs: Tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(output)


def _softmax_backward(ctx: Any, grad: Tensor) -> Tensor:
    y, = ctx.saved_tensors
    return torch.ops.aten._softmax_backward_data(grad, y, -1, y.dtype)


def _normalised(x: Tensor, epsilon: float, centred: bool) -> Tuple[Tensor, Tensor]:
    """The normalised rows and one over their deviation, in fp32."""
    wide = x.float()
    if centred:
        wide = wide - wide.mean(-1, keepdim=True)
    inverse = torch.rsqrt(wide.square().mean(-1, keepdim=True) + epsilon)
    return wide * inverse, inverse


def _norm_gradients(grad: Tensor, x: Tensor, scale: Optional[Tensor], epsilon: float, centred: bool
                    ) -> Tuple[Tensor, Tensor, Tensor]:
    """The gradients of x, scale and shift."""
    rows, inverse = _normalised(x, epsilon, centred)
    wide = grad.float()
    inner = wide if scale is None else wide * scale.float()
    d_x = inner - rows * (inner * rows).mean(-1, keepdim=True)
    if centred:
        d_x = d_x - inner.mean(-1, keepdim=True)
    last = (wide.shape[-1],)
    return ((d_x * inverse).to(x.dtype), (wide * rows).sum_to_size(last), wide.sum_to_size(last))


def _rms_norm_setup(ctx: Any, inputs: Tuple[Any, ...], output: Tensor) -> None:
    x, scale, ctx.epsilon = inputs
    ctx.save_for_backward(x, scale)


def _rms_norm_backward(ctx: Any, grad: Tensor) -> Tuple[Any, ...]:
    x, scale = ctx.saved_tensors
    d_x, d_scale, _ = _norm_gradients(grad, x, scale, ctx.epsilon, False)
    return d_x, None if scale is None else d_scale.to(scale.dtype), None


def _layer_norm_setup(ctx: Any, inputs: Tuple[Any, ...], output: Tensor) -> None:
    x, scale, shift, ctx.epsilon = inputs
    ctx.shift = None if shift is None else shift.dtype
    ctx.save_for_backward(x, scale)


def _layer_norm_backward(ctx: Any, grad: Tensor) -> Tuple[Any, ...]:
    x, scale = ctx.saved_tensors
    d_x, d_scale, d_shift = _norm_gradients(grad, x, scale, ctx.epsilon, True)
    return (d_x, None if scale is None else d_scale.to(scale.dtype),
            None if ctx.shift is None else d_shift.to(ctx.shift), None)


def _add_norm_setup(ctx: Any, inputs: Tuple[Any, ...], output: Tuple[Tensor, Tensor]) -> None:
    ctx.epsilon, ctx.count = inputs[-1], len(inputs)
    ctx.shift = inputs[3].dtype if len(inputs) == 5 and inputs[3] is not None else None
    ctx.save_for_backward(output[1], inputs[2])


def _add_norm_backward(ctx: Any, grad: Tensor, grad_sum: Tensor) -> Tuple[Any, ...]:
    total, scale = ctx.saved_tensors
    centred = ctx.count == 5
    d_x, d_scale, d_shift = _norm_gradients(grad, total, scale, ctx.epsilon, centred)
    d_x = d_x + grad_sum
    d_scale = None if scale is None else d_scale.to(scale.dtype)
    d_shift = None if ctx.shift is None else d_shift.to(ctx.shift)
    return (d_x, d_x, d_scale, d_shift, None) if centred else (d_x, d_x, d_scale, None)


for _name, _backward, _setup in (
        ("linear", _linear_backward, _linear_setup), ("matmul", _matmul_backward, _matmul_setup),
        ("softmax", _softmax_backward, _softmax_setup),
        ("rms_norm", _rms_norm_backward, _rms_norm_setup),
        ("layer_norm", _layer_norm_backward, _layer_norm_setup),
        ("add_rms_norm", _add_norm_backward, _add_norm_setup),
        ("add_layer_norm", _add_norm_backward, _add_norm_setup)):
    torch.library.register_autograd(f"tessera::{_name}", _backward, setup_context=_setup,
                                    lib=_library)


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
