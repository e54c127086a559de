"""Tessera in JAX against jax.numpy in double precision, within what the rounding of sums allows."""
import functools
import os
import random
import threading

import jax
import jax.numpy as jnp
import numpy
import pytest
import tessera
import tvm_ffi

import tessera_jax

# The largest relative error of one rounding.
UNIT = {"float32": 2.0**-24, "bfloat16": 2.0**-8, "float16": 2.0**-11}
TYPES = list(UNIT)
SEED = int(os.environ.get("TESSERA_TEST_SEED", random.randrange(10**6)))


@pytest.fixture(autouse=True)
def source():
    print(f"TESSERA_TEST_SEED={SEED}")
    return numpy.random.default_rng(SEED)


@pytest.fixture(autouse=True)
def nothing_is_left_to_jax(request):
    """Unless a test says otherwise, JAX computes nothing of it."""
    before = len(tessera_jax.report())
    yield
    if "refused" not in request.node.name:
        assert tessera_jax.report()[before:] == []


def drawn(source, shape, dtype):
    return jnp.asarray(source.uniform(-1, 1, shape), dtype)


def wide(*arrays):
    return [numpy.asarray(x.astype(jnp.float32), numpy.float64) for x in arrays]


def check(found, wanted, bound, dtype):
    """bound: of the error before the result is rounded to its type."""
    assert found.dtype == dtype and found.shape == wanted.shape
    error = numpy.abs(wide(found)[0] - wanted)
    limit = bound + UNIT[str(jnp.dtype(dtype))] * (numpy.abs(wanted) + bound) + 1e-30
    if dtype == "float16":
        limit = limit + 2.0**-25  # below the smallest normal number the steps stay the same
    assert (error <= limit).all(), f"{error.max()} at a bound of {limit.flat[error.argmax()]}"


def sum_bound(terms, magnitude):
    """The error of a sum in float32 whose terms have this magnitude in all, in any order."""
    return 2 * (terms + 4) * 2.0**-24 * magnitude


SHAPES = [((3, 4), (4, 5)), ((2, 3, 17, 33), (33, 9)), ((2, 3, 5, 8), (2, 3, 8, 6)), ((5,), (5, 7)),
          ((3, 6, 5), (5,)), ((6, 5), (4, 5, 3)), ((2, 1, 4, 6), (3, 6, 5))]


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shapes", SHAPES)
def test_product_is_that_of_jax(source, shapes, dtype):
    a, b = (drawn(source, shape, dtype) for shape in shapes)
    found = jax.jit(tessera_jax.matmul)(a, b)
    wide_a, wide_b = wide(a, b)
    bound = sum_bound(shapes[0][-1], numpy.abs(wide_a) @ numpy.abs(wide_b))
    check(found, wide_a @ wide_b, bound, dtype)


@pytest.mark.parametrize("activation", ["relu", "gelu", "gelu_tanh", "silu", "sigmoid", "tanh"])
def test_epilogue_is_that_of_jax(source, activation):
    m, k, n = source.integers(1, 60, 3)
    a, b = drawn(source, (2, m, k), "float32"), drawn(source, (k, n), "float32")
    bias, residual = drawn(source, (n,), "float32"), drawn(source, (2, m, n), "float32")
    found = jax.jit(lambda *given: tessera_jax.matmul(
        given[0], given[1], bias=given[2], residual=given[3], activation=activation))(
            a, b, bias, residual)
    wanted = tessera_jax.reference.matmul(a, b, bias, residual, activation)
    assert numpy.allclose(found, wanted, rtol=0, atol=1e-6 * (k + 10))


@pytest.mark.parametrize("dtype", TYPES)
def test_attention_is_that_of_jax(source, dtype):
    batch, queries, keys, kv, hdim = 2, *source.integers(1, 40, 2), 2, 16
    q = drawn(source, (batch, queries, 2 * kv, hdim), dtype)
    k, v = (drawn(source, (batch, keys, kv, hdim), dtype) for _ in "kv")
    bias = drawn(source, (1, 2 * kv, queries, keys), dtype)
    found = jax.jit(tessera_jax.attention)(q, k, v, bias=bias)
    q, k, v, bias = wide(q, k, v, bias)
    k, v = numpy.repeat(k, 2, 2), numpy.repeat(v, 2, 2)
    scores = numpy.einsum("bqhd,bkhd->bhqk", q, k) / hdim**0.5 + bias
    weights = numpy.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    wanted = numpy.einsum("bhqk,bkhd->bqhd", weights, v)
    size = numpy.einsum("bhqk,bkhd->bqhd", weights, numpy.abs(v))
    most = hdim**0.5 + 1  # of a score
    relative = 4 * sum_bound(hdim, most) + sum_bound(keys, 1.0) + 2**-18
    check(found, wanted, (relative + 2 * UNIT[dtype]) * size, dtype)  # weights are rounded to dtype


@pytest.mark.parametrize("mask", ["top_left", "bottom_right"])
def test_masked_attention_is_that_of_jax(source, mask):
    queries, keys = (int(x) for x in source.integers(1, 30, 2))
    q, k, v = (drawn(source, (1, n, 2, 8), "float32") for n in (queries, keys, keys))
    how = dict(mask=mask, window=(3, 1), soft_cap=2.0, scale=0.5)
    found = jax.jit(lambda *given: tessera_jax.attention(*given, **how))(q, k, v)
    wanted = tessera_jax.reference.attention(q, k, v, None, mask, (3, 1), 0.5, 2.0)
    assert numpy.allclose(found, wanted, rtol=0, atol=1e-5)


def test_attention_is_that_of_jax_own_function(source):
    q, k, v = (drawn(source, (2, 9, 4, 8), "float32") for _ in "qkv")
    wanted = jax.nn.dot_product_attention(q, k, v, is_causal=True)
    assert numpy.allclose(tessera_jax.attention(q, k, v, mask="top_left"), wanted, atol=1e-5)


CONVS = [((2, 4, 6, 7), (6, 2, 3, 3), dict(stride=(2, 1), padding=((1, 1), (0, 2)), groups=2)),
         ((1, 3, 9), (5, 3, 4), dict(padding=1, dilation=2)),
         ((2, 3, 4, 5, 4), (4, 3, 2, 2, 2), dict())]


def to_last(x):
    return jnp.moveaxis(x, 1, -1)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("layout", ["nchw", "nhwgc"])
@pytest.mark.parametrize("x_shape, w_shape, how", CONVS)
def test_convolution_is_that_of_jax(source, x_shape, w_shape, how, layout, dtype):
    x, w = drawn(source, x_shape, dtype), drawn(source, w_shape, dtype)
    bias = drawn(source, w_shape[:1], dtype)
    if layout == "nhwgc":
        x, w = to_last(x), to_last(w)
    found = jax.jit(functools.partial(tessera_jax.conv, layout=layout, **how))(x, w, bias=bias)
    with jax.enable_x64(True):
        given = [jnp.asarray(numpy.float64(y)) for y in wide(x, w, bias)]
        ndim = x.ndim - 2
        settings = (tessera_jax._each(how.get("stride", 1), ndim),
                    tuple(p if isinstance(p, tuple) else (p, p)
                          for p in tessera_jax._each(how.get("padding", 0), ndim)),
                    tessera_jax._each(how.get("dilation", 1), ndim), how.get("groups", 1), None,
                    layout)
        wanted = numpy.asarray(tessera_jax.reference.conv(*given, *settings))
        size = numpy.asarray(tessera_jax.reference.conv(*map(jnp.abs, given), *settings))
    check(found, wanted, sum_bound(w[0].size, size), dtype)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("kind", ["layer_norm", "rms_norm", "softmax"])
def test_norm_is_that_of_jax(source, kind, dtype):
    rows, columns = (int(x) for x in source.integers(1, 70, 2))
    x, scale, shift = (drawn(source, shape, dtype)
                       for shape in ((2, rows, columns), (columns,), (columns,)))
    extras = {"layer_norm": (scale, shift), "rms_norm": (scale,), "softmax": ()}[kind]
    found = jax.jit(getattr(tessera_jax, kind))(x, *extras)
    x, *extras = wide(x, *extras)
    centred = x - x.mean(-1, keepdims=True) if kind == "layer_norm" else x
    spread = numpy.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5)
    if kind == "softmax":
        wanted = numpy.exp(x) / numpy.exp(x).sum(-1, keepdims=True)
        bound = sum_bound(columns, 1.0) * wanted + 2**-20 * wanted
    else:
        wanted = centred / spread * extras[0] + (extras[1] if len(extras) > 1 else 0)
        # A row whose elements nearly agree is all rounding, which the small spread makes large.
        bound = sum_bound(columns, 1.0) * (1 + 1 / spread) ** 2
    check(found, wanted, bound, dtype)


def gradients_of(function, *given):
    return jax.jit(jax.grad(lambda *x: (function(*x).astype(jnp.float32)**2).sum(),
                            tuple(range(len(given)))))(*given)


def check_gradients(ours, theirs, given):
    for found, wanted, x in zip(gradients_of(ours, *given), gradients_of(theirs, *given), given):
        assert found.shape == x.shape and found.dtype == x.dtype
        size = numpy.abs(wanted).max() + 1
        assert numpy.abs(found - wanted).max() <= 2e-5 * size


@pytest.mark.parametrize("shapes", [((2, 5, 7), (7, 4)), ((3, 4, 5), (3, 5, 6)),
                                    ((4, 5), (3, 5, 6))])
@pytest.mark.parametrize("activation", [None, "gelu", "relu"])
def test_gradient_of_product_is_that_of_jax(source, shapes, activation):
    a, b = (drawn(source, shape, "float32") for shape in shapes)
    out = jax.eval_shape(jnp.matmul, a, b).shape
    given = (a, b, drawn(source, out[-1:], "float32"), drawn(source, out, "float32"))
    check_gradients(lambda a, b, c, d: tessera_jax.matmul(a, b, bias=c, residual=d,
                                                          activation=activation),
                    lambda a, b, c, d: tessera_jax.reference.matmul(a, b, c, d, activation), given)


@pytest.mark.parametrize("layout", ["nchw", "nhwgc"])
def test_gradient_of_convolution_is_that_of_jax(source, layout):
    x, w = drawn(source, (2, 4, 6, 7), "float32"), drawn(source, (6, 2, 3, 3), "float32")
    if layout == "nhwgc":
        x, w = to_last(x), to_last(w)
    bias = drawn(source, (6,), "float32")
    check_gradients(
        lambda x, w, b: tessera_jax.conv(x, w, bias=b, stride=(2, 1), padding=((1, 1), (0, 2)),
                                         groups=2, activation="silu", layout=layout),
        lambda x, w, b: tessera_jax.reference.conv(x, w, b, (2, 1), ((1, 1), (0, 2)), (1, 1), 2,
                                                   "silu", layout), (x, w, bias))


def test_gradient_of_attention_is_that_of_jax(source):
    q = drawn(source, (2, 7, 4, 16), "float32")
    k, v = (drawn(source, (2, 9, 2, 16), "float32") for _ in "kv")
    bias = drawn(source, (1, 4, 7, 9), "float32")
    check_gradients(
        lambda q, k, v, b: tessera_jax.attention(q, k, v, bias=b, mask="bottom_right"),
        lambda q, k, v, b: tessera_jax.reference.attention(q, k, v, b, "bottom_right", (-1, 0),
                                                           None, 0.0), (q, k, v, bias))


def test_gradient_of_norm_is_refused(source):
    x = drawn(source, (3, 4), "float32")
    with pytest.raises(TypeError, match="no gradient of softmax"):
        jax.grad(lambda x: tessera_jax.softmax(x).sum())(x)


def test_vmap_and_shapes_without_arrays_are_inferred(source):
    a, b = drawn(source, (3, 4, 5), "float32"), drawn(source, (5, 6), "float32")
    assert numpy.allclose(jax.vmap(tessera_jax.matmul, (0, None))(a, b), a @ b, atol=1e-5)
    shape = jax.eval_shape(tessera_jax.matmul, jax.ShapeDtypeStruct((2, 3, 4), jnp.bfloat16),
                           jax.ShapeDtypeStruct((4, 5), jnp.bfloat16))
    assert shape.shape == (2, 3, 5) and shape.dtype == jnp.bfloat16


def test_refused_types_and_shapes_are_left_to_jax_with_a_reason(source):
    cases = [((jnp.ones((2, 3), int), jnp.ones((3, 4), int)), "a has the type int32"),
             ((jnp.ones((2, 3)), jnp.ones((3, 4), jnp.bfloat16)), "all arrays must have one type"),
             ((jnp.ones((0, 3)), jnp.ones((3, 4))), "a has no elements")]
    for given, why in cases:
        found = jax.jit(tessera_jax.matmul)(*given)
        wanted, left = jnp.matmul(*given), tessera_jax.report()[-1]
        assert jnp.array_equal(found, wanted) and found.dtype == wanted.dtype
        assert left.function == "matmul" and why in left.why
    with pytest.raises(TypeError):  # JAX's own refusal
        tessera_jax.matmul(jnp.ones((2, 3)), jnp.ones((4, 5)))
    q = jnp.ones((1, 2, 1, 600))
    assert jnp.allclose(tessera_jax.attention(q, q, q), 1, atol=1e-5)
    assert "576" in tessera_jax.report()[-1].why


def test_threads_share_a_compiled_function(source):
    a, b = drawn(source, (40, 50), "float32"), drawn(source, (50, 60), "float32")
    function = jax.jit(tessera_jax.matmul)
    wanted = numpy.asarray(function(a, b))
    wrong = []
    threads = [threading.Thread(target=lambda: wrong.extend(
        i for i in range(50) if not numpy.array_equal(function(a, b), wanted))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_results_lie_in_buffers_of_jax(source):
    a, b = drawn(source, (64, 64), "float32"), drawn(source, (64, 64), "float32")
    lowered = jax.jit(tessera_jax.matmul).lower(a, b).compile().as_text()
    body = lowered[lowered.index("ENTRY"):]
    assert "tessera_launch" in body and " copy(" not in body


# ---- DLPack --------------------------------------------------------------------------------------

def as_jax(x):
    return jnp.asarray(x)


def as_torch(x):
    return pytest.importorskip("torch").from_numpy(x.copy())


MAKERS = {"numpy": lambda x: x, "jax": as_jax, "tvm_ffi": tvm_ffi.from_dlpack, "torch": as_torch}


@pytest.mark.parametrize("package", list(MAKERS))
def test_arrays_of_any_package_are_taken_and_given_through_dlpack(source, package):
    a, b = (source.uniform(-1, 1, shape).astype("float32") for shape in ((5, 6), (6, 4)))
    make = MAKERS[package]
    found = tessera.matmul(make(a), make(b))
    assert numpy.allclose(numpy.from_dlpack(found), a @ b, atol=1e-5)
    x, w = (source.uniform(-1, 1, shape).astype("float32")
            for shape in ((1, 5, 6, 3), (4, 3, 3, 3)))
    wanted = tessera.conv(x, w, padding=1)
    assert numpy.array_equal(numpy.from_dlpack(tessera.conv(make(x), make(w), padding=1)), wanted)
    q = source.uniform(-1, 1, (1, 4, 2, 8)).astype("float32")
    found = numpy.from_dlpack(tessera.attention(make(q), make(q), make(q)))
    assert numpy.array_equal(found, tessera.attention(q, q, q))


@pytest.mark.parametrize("package", ["numpy", "torch", "tvm_ffi"])
def test_strided_arrays_are_taken_through_dlpack(source, package):
    whole = source.uniform(-1, 1, (8, 20)).astype("float32")
    make = MAKERS[package]
    if package == "tvm_ffi":  # its tensors have no slices of their own
        part, turned = make(whole[:, 3:9]), make(whole[:, 3:9].T)
        assert not part.is_contiguous() and not turned.is_contiguous()
    else:
        part, turned = make(whole)[:, 3:9], make(whole)[:, 3:9].T
    found, wanted = tessera.matmul(part, turned), whole[:, 3:9] @ whole[:, 3:9].T
    assert numpy.allclose(numpy.from_dlpack(found), wanted, atol=1e-5)


def test_function_of_tvm_ffi_takes_tensors_and_refuses_unfit_ones(source):
    a, b = (source.uniform(-1, 1, shape).astype("float32") for shape in ((3, 4), (4, 5)))
    out = numpy.zeros((3, 5), "float32")
    module = tessera_jax.module()
    module.tessera_know(1, "", "gemm m=3 n=5 k=4 layout=rrr", "a b out")
    given = [tvm_ffi.from_dlpack(x) for x in (a, b, out)]
    module.tessera_launch(1, *given)
    assert numpy.allclose(out, a @ b, atol=1e-5)
    with pytest.raises(ValueError, match="b must be packed and have 80 bytes, got 60"):
        module.tessera_launch(1, given[0], given[2], given[2])
    with pytest.raises(ValueError, match="with gaps"):
        module.tessera_launch(1, tvm_ffi.from_dlpack(numpy.zeros((3, 8), "float32")[:, ::2]),
                              *given[1:])
    with pytest.raises(TypeError, match="a must have the type fp32, got fp16"):
        module.tessera_launch(1, tvm_ffi.from_dlpack(numpy.zeros((3, 4), "float16")), *given[1:])
    with pytest.raises(ValueError, match="takes 3 operands, got 2"):
        module.tessera_launch(1, *given[:2])
    module.tessera_know(3, "avx2", "gemm m=3 n=5 k=4 layout=rrr", "a b out")
    module.tessera_launch(3, *given)  # another target, another dispatcher
    with pytest.raises(ValueError, match="no problem has the number 2"):
        module.tessera_launch(2, *given)
    with pytest.raises(ValueError, match="stands for"):
        module.tessera_know(1, "", "gemm m=3 n=5 k=5 layout=rrr", "a b out")
