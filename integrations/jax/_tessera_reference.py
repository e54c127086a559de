"""What JAX computes where Tessera refuses: the same formulas in jax.numpy."""
from __future__ import annotations

import math
from typing import Any, Optional, Sequence, Tuple

import jax
import jax.numpy as jnp

ACTIVATIONS = {
    None: lambda x: x, "relu": jax.nn.relu, "silu": jax.nn.silu, "sigmoid": jax.nn.sigmoid,
    "tanh": jnp.tanh, "gelu": lambda x: jax.nn.gelu(x, approximate=False),
    "gelu_tanh": lambda x: jax.nn.gelu(x, approximate=True)}


def wide(x: Any) -> Any:
    """Float32 for narrower floats, in which sums are formed."""
    is_narrow = jnp.issubdtype(x.dtype, jnp.floating) and x.dtype.itemsize < 4
    return x.astype(jnp.float32) if is_narrow else x


def finish(sums: Any, bias: Any, residual: Any, activation: Optional[str], dtype: Any) -> Any:
    if bias is not None:
        sums = sums + wide(bias)
    sums = ACTIVATIONS[activation](sums)
    return (sums if residual is None else sums + wide(residual)).astype(dtype)


def matmul(a: Any, b: Any, bias: Any, residual: Any, activation: Optional[str]) -> Any:
    return finish(jnp.matmul(wide(a), wide(b)), bias, residual, activation, jnp.result_type(a, b))


def conv(x: Any, w: Any, bias: Any, stride: Sequence[int], padding: Sequence[Tuple[int, int]],
         dilation: Sequence[int], groups: int, activation: Optional[str], layout: str) -> Any:
    space = "DHW"[3 - (x.ndim - 2):]
    words = (f"NC{space}", f"OI{space}") if layout == "nchw" else (f"N{space}C", f"O{space}I")
    sums = jax.lax.conv_general_dilated(
        wide(x), wide(w), stride, padding, rhs_dilation=dilation, feature_group_count=groups,
        dimension_numbers=(*words, words[0]))
    if bias is not None and layout == "nchw":
        bias = bias.reshape(-1, *[1] * len(space))
    return finish(sums, bias, None, activation, x.dtype)


def attention(q: Any, k: Any, v: Any, bias: Any, mask: Optional[str], window: Tuple[int, int],
              scale: Optional[float], soft_cap: float) -> Any:
    queries, keys, repeat = q.shape[1], k.shape[1], q.shape[2] // k.shape[2]
    k, v = (jnp.repeat(x, repeat, axis=2) for x in (k, v))
    scores = jnp.einsum("bqhd,bkhd->bhqk", wide(q), wide(k))
    scores *= 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    if soft_cap:
        scores = soft_cap * jnp.tanh(scores / soft_cap)
    if bias is not None:
        scores = scores + wide(bias)
    if mask is not None:
        shift = keys - queries if mask == "bottom_right" else 0
        ahead = jnp.arange(keys) - jnp.arange(queries)[:, None] - shift
        left, right = (math.inf if end < 0 else end for end in window)
        scores = jnp.where((ahead <= right) & (ahead >= -left), scores, -jnp.inf)
    most = jnp.max(scores, axis=-1, keepdims=True)
    weights = jnp.exp(scores - jnp.where(jnp.isfinite(most), most, 0))
    total = jnp.sum(weights, axis=-1, keepdims=True)
    return jnp.einsum("bhqk,bkhd->bqhd", weights / jnp.where(total == 0, 1, total),
                      wide(v)).astype(q.dtype)


def norm(kind: str, x: Any, scale: Any, shift: Any, epsilon: Optional[float]) -> Any:
    given, dtype = wide(x), x.dtype
    if kind == "softmax":
        return jax.nn.softmax(given, axis=-1).astype(dtype)
    if kind == "layernorm":
        given = given - jnp.mean(given, axis=-1, keepdims=True)
    found = given * jax.lax.rsqrt(jnp.mean(given * given, axis=-1, keepdims=True) + epsilon)
    if scale is not None:
        found = found * wide(scale)
    return (found if shift is None else found + wide(shift)).astype(dtype)
