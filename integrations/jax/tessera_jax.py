"""Tessera's products, convolutions, attention and norms as functions of JAX, under jax.jit.

A call becomes one call of XLA's that starts the kernel on the buffers that XLA gives: no Python
runs then, and nothing is copied. What Tessera refuses, JAX computes, and report() says what and
why.
Types: float32, bfloat16 and float16, one for all arrays of a call. matmul, conv and attention have
gradients.
"""
from __future__ import annotations

import functools
import math
from typing import Any, Dict, Optional, Sequence, Tuple

import jax
import jax.numpy as jnp
import tessera

import _tessera_reference as reference
from _tessera_calls import Refusal, call, module, or_else, plan, report

__all__ = ["Refusal", "attention", "conv", "layer_norm", "matmul", "module", "report", "rms_norm",
           "softmax"]
_TYPES = ("float32", "bfloat16", "float16")
Shaped = jax.ShapeDtypeStruct


def _check(**arrays: Any) -> str:
    """The type of all arrays that are given, or tessera.Error."""
    given = {name: array for name, array in arrays.items() if array is not None}
    names = {name: jnp.dtype(array.dtype).name for name, array in given.items()}
    for name, word in names.items():
        if word not in _TYPES:
            raise tessera.Error(f"{name} has the type {word}; Tessera takes "
                                f"{', '.join(_TYPES)} here")
        if 0 in given[name].shape:
            raise tessera.Error(f"{name} has no elements, its shape is {given[name].shape}")
    if len(set(names.values())) > 1:
        raise tessera.Error("all arrays must have one type, got " +
                            ", ".join(f"{name}: {word}" for name, word in names.items()))
    return next(iter(names.values()))


def _epilogue(bias: Any, activation: Optional[str], residual: Any = None) -> Dict[str, str]:
    if activation not in reference.ACTIVATIONS:
        known = ", ".join(filter(None, reference.ACTIVATIONS))
        raise ValueError(f"activation must be one of {known}, or None, got {activation!r}")
    steps = ["bias"] * (bias is not None) + [activation] * (activation is not None)
    steps += ["add"] * (residual is not None)
    return {"epilogue": "+".join(steps)} if steps else {}


def _given(**arrays: Any) -> Dict[str, Any]:
    return {name: array for name, array in arrays.items() if array is not None}


# ---- Products ------------------------------------------------------------------------------------

def matmul(a: Any, b: Any, *, bias: Any = None, residual: Any = None,
           activation: Optional[str] = None) -> jax.Array:
    """activation(a @ b + bias) + residual, in one pass; shapes as for jax.numpy.matmul.

    bias: (n,). residual: the result's shape. activation: relu, gelu, gelu_tanh, silu, sigmoid or
    tanh.
    """
    a, b = jnp.asarray(a), jnp.asarray(b)
    _epilogue(bias, activation)
    return or_else("matmul", lambda: _matmul(a, b, bias, residual, activation),
                   lambda: reference.matmul(a, b, bias, residual, activation))


def _matmul(a: Any, b: Any, bias: Any, residual: Any, activation: Optional[str]) -> Any:
    _check(a=a, b=b, bias=bias, residual=residual)
    shape = jax.eval_shape(jnp.matmul, a, b).shape
    a, b = a[None, :] if a.ndim == 1 else a, b[:, None] if b.ndim == 1 else b
    m, k, n = a.shape[-2], a.shape[-1], b.shape[-1]
    if bias is not None and bias.shape != (n,):
        raise tessera.Error(f"bias must have the shape {(n,)}, got {bias.shape}")
    if residual is not None and residual.shape != shape:
        raise tessera.Error(f"residual must have the shape {shape}, got {residual.shape}")
    lead = jnp.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    if math.prod(b.shape[:-2]) == 1:  # one matrix b: the rows of all a are those of one product
        a, b = a.reshape(-1, k), b.reshape(k, n)
    else:
        a = a.reshape(m, k) if math.prod(a.shape[:-2]) == 1 else _spread(a, lead)
        b = _spread(b, lead)
    if residual is not None:
        residual = residual.reshape((-1, m, n) if b.ndim == 3 else (-1, n))
    plan(_gemm_problem(a, b, bias, residual, activation, "rrr"))
    return _product(a, b, bias, residual, activation).reshape(shape)


def _spread(x: Any, lead: Tuple[int, ...]) -> Any:
    return jnp.broadcast_to(x, (*lead, *x.shape[-2:])).reshape(-1, *x.shape[-2:])


def _sizes(a: Any, b: Any, layout: str) -> Tuple[int, int, int, int]:
    """m, n, k and the batches of matrices whose memory is as layout says."""
    m, k = a.shape[-2:] if layout[0] == "r" else a.shape[:-3:-1]
    n = b.shape[-1] if layout[1] == "r" else b.shape[-2]
    return m, n, k, max(x.shape[0] if x.ndim == 3 else 1 for x in (a, b))


def _gemm_problem(a: Any, b: Any, bias: Any, residual: Any, activation: Optional[str],
                  layout: str) -> tessera.Problem:
    m, n, k, batch = _sizes(a, b, layout)
    fields: Dict[str, Any] = {"m": m, "n": n, "k": k, "layout": layout, "dtype": a.dtype}
    if batch > 1:
        fields["batch"] = batch
        shared = [name for name, x in (("a", a), ("b", b)) if x.ndim == 2]
        fields.update((f"batch_stride_{name}", 0) for name in shared)
        if bias is not None:
            fields["batch_stride_d0"] = 0
    return tessera.Problem("gemm", **fields, **_epilogue(bias, activation, residual))


def _gemm(a: Any, b: Any, layout: str = "rrr", bias: Any = None, residual: Any = None,
          activation: Optional[str] = None) -> Any:
    problem = _gemm_problem(a, b, bias, residual, activation, layout)
    m, n, _, batch = _sizes(a, b, layout)
    shape = (batch, m, n) if 3 in (a.ndim, b.ndim) else (m, n)
    extras = dict(zip(("d0", "d1"), _given(bias=bias, residual=residual).values()))
    return call(problem, [Shaped(shape, a.dtype)], a=a, b=b, **extras)[0]


@functools.partial(jax.custom_vjp, nondiff_argnums=(4,))
def _product(a: Any, b: Any, bias: Any, residual: Any, activation: Optional[str]) -> Any:
    return _gemm(a, b, "rrr", bias, residual, activation)


def _product_forward(a: Any, b: Any, bias: Any, residual: Any, activation: Optional[str]) -> Any:
    return _gemm(a, b, "rrr", bias, residual, activation), (a, b, bias, residual)


def _product_backward(activation: Optional[str], kept: Any, grad: Any) -> Any:
    a, b, bias, residual = kept
    by_residual = None if residual is None else grad
    grad = _before(activation, lambda: _gemm(a, b, "rrr", bias), grad)
    swap = functools.partial(jnp.swapaxes, axis1=-1, axis2=-2)
    by_a = or_else("gradient of matmul by a", lambda: _gemm(grad, b, "rcr"),
                   lambda: reference.matmul(grad, swap(b), None, None, None))
    by_b = or_else("gradient of matmul by b", lambda: _gemm(a, grad, "crr"),
                   lambda: reference.matmul(swap(a), grad, None, None, None))
    by_a = by_a if by_a.ndim == a.ndim else _summed(by_a, (0,))  # all batches share a
    by_bias = None if bias is None else _summed(grad, tuple(range(grad.ndim - 1)))
    return by_a, by_b, by_bias, by_residual


def _summed(x: Any, axes: Sequence[int]) -> Any:
    return jnp.sum(reference.wide(x), axis=tuple(axes)).astype(x.dtype)


def _before(activation: Optional[str], sums: Any, grad: Any) -> Any:
    """The gradient by what the activation got, which is computed again."""
    if activation is None:
        return grad
    return jax.vjp(reference.ACTIVATIONS[activation], sums())[1](grad)[0]


_product.defvjp(_product_forward, _product_backward)


# ---- Convolutions --------------------------------------------------------------------------------

def conv(x: Any, w: Any, *, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1,
         bias: Any = None, activation: Optional[str] = None, layout: str = "nhwgc") -> jax.Array:
    """activation(conv(x, w) + bias) in 1 to 3 dimensions; the filter is not turned over.

    layout: "nhwgc": x (n, height, width, c), w (k, height, width, c / groups); "nchw": (n, c,
    height, width), (k, c / groups, height, width). padding: a number, one for each dimension, or
    pairs (before, behind).
    """
    x, w = jnp.asarray(x), jnp.asarray(w)
    _epilogue(bias, activation)
    if layout not in ("nhwgc", "nchw"):
        raise ValueError(f"layout must be nhwgc or nchw, got {layout!r}")
    ndim = x.ndim - 2
    how = (_each(stride, ndim), tuple(p if isinstance(p, tuple) else (p, p)
                                      for p in _each(padding, ndim)),
           _each(dilation, ndim), groups, activation, layout)
    return or_else("conv", lambda: _conv(x, w, bias, how),
                   lambda: reference.conv(x, w, bias, *how))


def _each(value: Any, ndim: int) -> Tuple[Any, ...]:
    return (value,) * ndim if isinstance(value, int) else tuple(value)


def _conv(x: Any, w: Any, bias: Any, how: Tuple[Any, ...]) -> Any:
    _check(x=x, w=w, bias=bias)
    shape = jax.eval_shape(lambda *given: reference.conv(*given, None, *how), x, w).shape
    channel = 1 if how[5] == "nchw" else -1
    if bias is not None and bias.shape != (shape[channel],):
        raise tessera.Error(f"bias must have the shape {(shape[channel],)}, got {bias.shape}")
    plan(_conv_problem("forward", x, w, how, bias))
    return _convolved(x, w, bias, how, shape)


def _conv_problem(direction: str, x: Any, w: Any, how: Tuple[Any, ...], bias: Any = None,
                  is_plain: bool = False) -> tessera.Problem:
    stride, padding, dilation, groups, activation, layout = how
    space = slice(2, None) if layout == "nchw" else slice(1, -1)
    extras = {} if is_plain else _epilogue(bias, activation)
    return tessera.conv_problem(
        direction, n=x.shape[0], c=x.shape[1 if layout == "nchw" else -1], k=w.shape[0],
        size=x.shape[space], filter=w.shape[space], stride=stride, padding=padding,
        dilation=dilation, groups=groups, dtype=x.dtype, layout=layout, **extras)


@functools.partial(jax.custom_vjp, nondiff_argnums=(3, 4))
def _convolved(x: Any, w: Any, bias: Any, how: Tuple[Any, ...], shape: Tuple[int, ...]) -> Any:
    problem = _conv_problem("forward", x, w, how, bias)
    return call(problem, [Shaped(shape, x.dtype)], **{"in": x}, weight=w, **_given(d0=bias))[0]


def _conv_forward(x: Any, w: Any, bias: Any, how: Tuple[Any, ...], shape: Tuple[int, ...]) -> Any:
    return _convolved(x, w, bias, how, shape), (x, w, bias)


def _conv_backward(how: Tuple[Any, ...], shape: Tuple[int, ...], kept: Any, grad: Any) -> Any:
    x, w, bias = kept
    plain = (*how[:4], None, how[5])
    grad = _before(how[4], lambda: _convolved(x, w, bias, plain, shape), grad)
    theirs = jax.vjp(lambda *given: reference.conv(*given, None, *plain), x, w)[1]
    by_x = or_else("gradient of conv by x", lambda: call(
        _conv_problem("backward_data", x, w, plain, is_plain=True), [Shaped(x.shape, x.dtype)],
        weight=w, grad_out=grad)[0], lambda: theirs(grad)[0])
    by_w = or_else("gradient of conv by w", lambda: call(
        _conv_problem("backward_weight", x, w, plain, is_plain=True), [Shaped(w.shape, w.dtype)],
        **{"in": x}, grad_out=grad)[0], lambda: theirs(grad)[1])
    channel = 1 if how[5] == "nchw" else grad.ndim - 1
    others = [i for i in range(grad.ndim) if i != channel]
    by_bias = None if bias is None else _summed(grad, others)
    return by_x, by_w, by_bias


_convolved.defvjp(_conv_forward, _conv_backward)


# ---- Attention -----------------------------------------------------------------------------------

def attention(q: Any, k: Any, v: Any, *, bias: Any = None, mask: Optional[str] = None,
              window: Optional[Tuple[int, int]] = None, scale: Optional[float] = None,
              soft_cap: float = 0.0) -> jax.Array:
    """softmax(scale * q @ k.T + bias) @ v, as jax.nn.dot_product_attention has its arrays:
    q (batch, queries, heads, hdim), k and v (batch, keys, heads_kv, hdim).

    bias: broadcast to (batch, heads, queries, keys). mask: "top_left" or "bottom_right", which is
    the diagonal that window's (left, right) counts from, -1 for no end. A query that sees no key
    gets 0.
    """
    q, k, v = jnp.asarray(q), jnp.asarray(k), jnp.asarray(v)
    if mask not in (None, "top_left", "bottom_right") or (mask is None and window is not None):
        raise ValueError(f"mask must be top_left or bottom_right, or None without a window, got "
                         f"{mask!r}")
    how = (mask, (-1, 0) if window is None else tuple(window), scale, soft_cap)
    if bias is not None:
        bias = bias.reshape(*[1] * (4 - bias.ndim), *bias.shape)
    return or_else("attention", lambda: _attention(q, k, v, bias, how),
                   lambda: reference.attention(q, k, v, bias, *how))


def _attention(q: Any, k: Any, v: Any, bias: Any, how: Tuple[Any, ...]) -> Any:
    _check(q=q, k=k, v=v, bias=bias)
    if any(x.ndim != 4 for x in (q, k, v)):
        raise tessera.Error(f"q, k and v must have 4 dimensions, got {q.ndim}, {k.ndim}, {v.ndim}")
    if k.shape[:3] != v.shape[:3] or k.shape[0] != q.shape[0] or k.shape[3] != q.shape[3]:
        raise tessera.Error(f"q, k and v have the shapes {q.shape}, {k.shape} and {v.shape}, "
                            "which do not fit")
    whole = (q.shape[0], q.shape[2], q.shape[1], k.shape[1])
    if bias is not None and any(size not in (1, most) for size, most in zip(bias.shape, whole)):
        raise tessera.Error(f"bias must be broadcast to {whole}, got {bias.shape}")
    plan(_attention_problem(q, k, v, bias, how))
    return _attended(q, k, v, bias, how)


def _attention_problem(q: Any, k: Any, v: Any, bias: Any, how: Tuple[Any, ...],
                       **fields: Any) -> tessera.Problem:
    mask, window, scale, soft_cap = how
    if bias is not None:
        fields["bias"] = "elementwise"
        packed = [math.prod(bias.shape[i + 1:]) for i in range(4)]
        fields.update((f"bias_stride_{letter}", 0 if size == 1 else step)
                      for letter, size, step in zip("bhqk", bias.shape, packed))
    if scale is not None:
        fields["scale"] = scale
    return tessera.attention_problem(
        batch=q.shape[0], heads=q.shape[2], heads_kv=k.shape[2], seqlen_q=q.shape[1],
        seqlen_k=k.shape[1], hdim=q.shape[3], hdim_v=v.shape[3], dtype=q.dtype, mask=mask,
        window=window if mask else None, soft_cap=soft_cap, **fields)


def _out_of(q: Any, v: Any) -> Shaped:
    return Shaped((*q.shape[:3], v.shape[3]), q.dtype)


@functools.partial(jax.custom_vjp, nondiff_argnums=(4,))
def _attended(q: Any, k: Any, v: Any, bias: Any, how: Tuple[Any, ...]) -> Any:
    problem = _attention_problem(q, k, v, bias, how)
    return call(problem, [_out_of(q, v)], q=q, k=k, v=v, **_given(bias=bias))[0]


def _attention_forward(q: Any, k: Any, v: Any, bias: Any, how: Tuple[Any, ...]) -> Any:
    problem = _attention_problem(q, k, v, bias, how, lse=True)
    lse = Shaped((q.shape[0], q.shape[2], q.shape[1]), jnp.float32)
    out, lse = call(problem, [_out_of(q, v), lse], q=q, k=k, v=v, **_given(bias=bias))
    return out, (q, k, v, bias, out, lse)


def _attention_backward(how: Tuple[Any, ...], kept: Any, grad: Any) -> Any:
    q, k, v, bias, out, lse = kept
    given = _given(q=q, k=k, v=v, bias=bias)
    results = [Shaped(x.shape, x.dtype) for x in given.values()]

    def ours() -> Any:
        problem = _attention_problem(q, k, v, bias, how, kind="backward", dbias=bias is not None)
        return call(problem, results, **given, out=out, lse=lse, dout=grad)

    def theirs() -> Any:
        return jax.vjp(lambda q, k, v, bias=None: reference.attention(q, k, v, bias, *how),
                       *given.values())[1](grad)

    found = or_else("gradient of attention", ours, theirs)
    return (*found, None)[:4]


_attended.defvjp(_attention_forward, _attention_backward)


# ---- Norms ---------------------------------------------------------------------------------------

def softmax(x: Any) -> jax.Array:
    """exp(x) / sum(exp(x)) over the last dimension. It has no gradient here."""
    return _norm_or_else("softmax", "softmax", x, None, None, None)


def rms_norm(x: Any, scale: Any = None, *, epsilon: float = 1e-5) -> jax.Array:
    """x / sqrt(mean(x * x) + epsilon) * scale over the last dimension. It has no gradient here."""
    return _norm_or_else("rms_norm", "rmsnorm", x, scale, None, epsilon)


def layer_norm(x: Any, scale: Any = None, shift: Any = None, *, epsilon: float = 1e-5) -> jax.Array:
    """(x - mean) / sqrt(variance + epsilon) * scale + shift. It has no gradient here."""
    return _norm_or_else("layer_norm", "layernorm", x, scale, shift, epsilon)


def _norm_or_else(function: str, kind: str, x: Any, scale: Any, shift: Any,
                  epsilon: Optional[float]) -> Any:
    x = jnp.asarray(x)
    return or_else(function, lambda: _norm(kind, x, scale, shift, epsilon),
                   lambda: reference.norm(kind, x, scale, shift, epsilon))


def _norm(kind: str, x: Any, scale: Any, shift: Any, epsilon: Optional[float]) -> Any:
    _check(x=x, scale=scale, shift=shift)
    for name, row in _given(scale=scale, shift=shift).items():
        if row.shape != x.shape[-1:]:
            raise tessera.Error(f"{name} must have the shape {x.shape[-1:]}, got {row.shape}")
    plan(_norm_problem(kind, x, scale, shift, epsilon))
    return _normed(x, scale, shift, kind, epsilon)


def _norm_problem(kind: str, x: Any, scale: Any, shift: Any, epsilon: Optional[float]) -> Any:
    if x.ndim < 1:
        raise tessera.Error(f"{kind}: x must have at least 1 dimension, got a single number")
    fields = {} if epsilon is None else {"epsilon": epsilon}
    return tessera.Problem("norm", kind=kind, rows=math.prod(x.shape[:-1]), columns=x.shape[-1],
                           dtype=x.dtype, scale=scale is not None, shift=shift is not None,
                           **fields)


@functools.partial(jax.custom_vjp, nondiff_argnums=(3, 4))
def _normed(x: Any, scale: Any, shift: Any, kind: str, epsilon: Optional[float]) -> Any:
    return call(_norm_problem(kind, x, scale, shift, epsilon), [Shaped(x.shape, x.dtype)],
                **{"in": x}, **_given(scale=scale, shift=shift))[0]


def _norm_forward(x: Any, scale: Any, shift: Any, kind: str, epsilon: Optional[float]) -> Any:
    raise TypeError(f"Tessera computes no gradient of {kind}; differentiate the same formula of "
                    "jax.numpy instead")


_normed.defvjp(_norm_forward, lambda kind, epsilon, kept, grad: (None, None, None))
