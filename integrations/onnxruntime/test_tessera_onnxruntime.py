"""The provider against ONNX Runtime's own one, and against NumPy where that has no kernels."""
import json
import os
import pathlib
import random
import threading

import ml_dtypes
import numpy
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

import tessera_onnxruntime

SEED = int(os.environ.get("TESSERA_TEST_SEED", random.randrange(10**6)))
WORDS = {TensorProto.FLOAT: "float32", TensorProto.FLOAT16: "float16",
         TensorProto.BFLOAT16: ml_dtypes.bfloat16}


@pytest.fixture(autouse=True)
def source():
    print(f"TESSERA_TEST_SEED={SEED}")
    return numpy.random.default_rng(SEED)


def model_of(nodes, inputs, opset=23, constants=()):
    """A model whose last node's output is the result. inputs: {name: (shape, type)}."""
    tensors = [helper.make_tensor_value_info(name, kind, shape)
               for name, (shape, kind) in inputs.items()]
    kind = next(iter(inputs.values()))[1]
    graph = helper.make_graph(nodes, "graph", tensors, [
        helper.make_empty_tensor_value_info(nodes[-1].output[0])], list(constants))
    graph.output[0].type.tensor_type.elem_type = kind
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    return onnx.shape_inference.infer_shapes(model).SerializeToString()


def session_of(model, folder, **options):
    report = str(folder / "report.json")
    settings = onnxruntime.SessionOptions()
    settings.log_severity_level = 3
    tessera_onnxruntime.add_to(settings, report, **options)
    # By default ONNX Runtime would run everything by its own provider after a failure.
    session = onnxruntime.InferenceSession(model, settings, enable_fallback=0)
    session.disable_fallback()
    return session, tessera_onnxruntime.report_of(report)


def reference_of(model):
    settings = onnxruntime.SessionOptions()
    settings.log_severity_level = 3
    return onnxruntime.InferenceSession(model, settings, providers=["CPUExecutionProvider"])


def both(model, given, folder):
    """Tessera's result, ONNX Runtime's own, and the report."""
    session, report = session_of(model, folder)
    return session.run(None, given)[0], reference_of(model).run(None, given)[0], report


def check(found, wanted, terms, size):
    """Two sums in float32 of so many terms, whose absolute values add up to size at most."""
    assert found.shape == wanted.shape and found.dtype == wanted.dtype
    bound = 4 * (terms + 4) * 2.0**-24 * size
    assert (numpy.abs(found - wanted) <= bound).all(), numpy.abs(found - wanted).max()


def drawn(source, *shape):
    return source.uniform(-1, 1, shape).astype("float32")


def named(*shape):
    """The same shape with names instead of sizes."""
    return [f"n{i}" for i in range(len(shape))]


MATMULS = [((3, 4), (4, 5)), ((2, 3, 7, 8), (8, 5)), ((2, 3, 4, 5), (2, 3, 5, 6)),
           ((4, 5), (2, 3, 5, 6)), ((2, 1, 4, 5), (3, 5, 6)), ((2, 3, 4, 5), (2, 1, 5, 6)),
           ((1, 1, 4, 5), (3, 5, 6)), ((4,), (4, 5)), ((2, 3, 4), (4,)), ((4,), (2, 4, 5)),
           ((4,), (4,))]


@pytest.mark.parametrize("known", ["sizes", "ranks", "nothing"])
@pytest.mark.parametrize("a_shape, b_shape", MATMULS)
def test_matmul_is_that_of_onnx_runtime(source, tmp_path, a_shape, b_shape, known):
    shapes = {"sizes": (a_shape, b_shape), "nothing": (None, None),
              "ranks": ([None] * len(a_shape), [None] * len(b_shape))}[known]
    model = model_of([helper.make_node("MatMul", ["a", "b"], ["c"], name="product")],
                     {"a": (shapes[0], TensorProto.FLOAT), "b": (shapes[1], TensorProto.FLOAT)})
    given = {"a": drawn(source, *a_shape), "b": drawn(source, *b_shape)}
    found, wanted, report = both(model, given, tmp_path)
    check(found, wanted, a_shape[-1], a_shape[-1])
    assert [entry["node"] for entry in report["taken"]] == ["product"]


def test_matmul_of_one_array_with_itself_is_that_of_onnx_runtime(source, tmp_path):
    model = model_of([helper.make_node("MatMul", ["a", "a"], ["c"])],
                     {"a": (["n", "n"], TensorProto.FLOAT)})
    found, wanted, _ = both(model, {"a": drawn(source, 9, 9)}, tmp_path)
    check(found, wanted, 9, 9)


@pytest.mark.parametrize("kind", [TensorProto.FLOAT16, TensorProto.BFLOAT16])
def test_matmul_of_16_bits_is_that_of_numpy(source, tmp_path, kind):
    a, b = drawn(source, 6, 20).astype(WORDS[kind]), drawn(source, 20, 7).astype(WORDS[kind])
    model = model_of([helper.make_node("MatMul", ["a", "b"], ["c"])],
                     {"a": (["m", 20], kind), "b": ([20, 7], kind)})
    session, report = session_of(model, tmp_path)
    assert len(report["taken"]) == 1
    if kind == TensorProto.FLOAT16:
        found = session.run(None, {"a": a, "b": b})[0]
    else:  # NumPy's arrays cannot say that they are bfloat16
        given = {name: onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(
            array.view("uint16"), kind) for name, array in (("a", a), ("b", b))}
        result = session.run_with_ort_values(None, given)[0]
        bits = numpy.ctypeslib.as_array(
            (numpy.ctypeslib.ctypes.c_uint16 * 42).from_address(result.data_ptr()))
        found = bits.view(WORDS[kind]).reshape(6, 7)
    a, b = a.astype("float64"), b.astype("float64")
    unit = 2.0**-11 if kind == TensorProto.FLOAT16 else 2.0**-8
    bound = unit * numpy.abs(a @ b) + 50 * 2.0**-24 * (numpy.abs(a) @ numpy.abs(b)) + 2.0**-25
    assert (numpy.abs(found.astype("float64") - a @ b) <= bound).all()


SHORT = [("Conv", {"x": (2, 4, 7, 9), "w": (6, 4, 3, 3), "b": (6,)}, dict(pads=[1, 1, 1, 1])),
         ("Gemm", {"a": (5, 40), "b": (7, 40), "c": (7,)}, dict(transB=1)),
         ("LayerNormalization", {"x": (9, 48), "scale": (48,), "shift": (48,)}, {}),
         ("Softmax", {"x": (9, 48)}, {}),
         ("Attention", {"q": (1, 2, 9, 16), "k": (1, 2, 11, 16), "v": (1, 2, 11, 16)}, {})]


@pytest.mark.parametrize("op, shapes, attributes", SHORT)
def test_float16_is_near_float32_of_onnx_runtime(source, tmp_path, op, shapes, attributes):
    models = [model_of([helper.make_node(op, list(shapes), ["y"], **attributes)],
                       {name: (shape, kind) for name, shape in shapes.items()})
              for kind in (TensorProto.FLOAT16, TensorProto.FLOAT)]
    given = {name: drawn(source, *shape).astype("float16") for name, shape in shapes.items()}
    session, report = session_of(models[0], tmp_path)
    assert len(report["taken"]) == 1
    found = session.run(None, given)[0]
    wanted = reference_of(models[1]).run(
        None, {name: array.astype("float32") for name, array in given.items()})[0]
    assert found.dtype == "float16" and found.shape == wanted.shape
    # The result is rounded, and so may be the weights of attention.
    assert (numpy.abs(found - wanted) <= 3 * 2.0**-11 * (numpy.abs(wanted) + 1)).all()


GEMMS = [(None, {}), ((6,), {}), ((1, 6), dict(transB=1)), ((5, 6), dict(alpha=0.5, beta=-2.0)),
         ((5, 6), dict(transA=1, transB=1)), ((6,), dict(transA=1, alpha=2.0))]


@pytest.mark.parametrize("c_shape, attributes", GEMMS)
def test_gemm_is_that_of_onnx_runtime(source, tmp_path, c_shape, attributes):
    a_shape = (7, 5) if attributes.get("transA") else (5, 7)
    b_shape = (6, 7) if attributes.get("transB") else (7, 6)
    shapes = {"a": a_shape, "b": b_shape, **({} if c_shape is None else {"c": c_shape})}
    model = model_of([helper.make_node("Gemm", list(shapes), ["d"], **attributes)],
                     {name: (shape, TensorProto.FLOAT) for name, shape in shapes.items()})
    given = {name: drawn(source, *shape) for name, shape in shapes.items()}
    found, wanted, report = both(model, given, tmp_path)
    check(found, wanted, 7, 16)
    assert len(report["taken"]) == 1


CONVS = [((2, 4, 9, 10), (6, 2, 3, 3), dict(group=2, strides=[2, 1], pads=[1, 1, 0, 2])),
         ((1, 3, 12), (5, 3, 4), dict(dilations=[2], pads=[3, 1])),
         ((1, 2, 5, 6, 7), (4, 2, 2, 3, 2), dict(auto_pad="VALID")),
         ((2, 8, 5, 5), (8, 1, 3, 3), dict(group=8, pads=[1, 1, 1, 1]))]


@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize("x_shape, w_shape, attributes", CONVS)
def test_convolution_is_that_of_onnx_runtime(source, tmp_path, x_shape, w_shape, attributes,
                                             has_bias):
    shapes = {"x": x_shape, "w": w_shape, **({"b": w_shape[:1]} if has_bias else {})}
    model = model_of([helper.make_node("Conv", list(shapes), ["y"], **attributes)], {
        "x": (["n", x_shape[1], *named(*x_shape[2:])], TensorProto.FLOAT),
        **{name: (shapes[name], TensorProto.FLOAT) for name in list(shapes)[1:]}})
    given = {name: drawn(source, *shape) for name, shape in shapes.items()}
    found, wanted, report = both(model, given, tmp_path)
    terms = int(numpy.prod(w_shape[1:])) + 1
    check(found, wanted, terms, terms)
    assert len(report["taken"]) == 1


@pytest.mark.parametrize("axis", [-1, 1])
@pytest.mark.parametrize("op", ["LayerNormalization", "RMSNormalization", "Softmax"])
def test_norm_is_that_of_onnx_runtime(source, tmp_path, op, axis):
    shape = (3, int(source.integers(2, 40)), int(source.integers(2, 40)))
    rows = {"LayerNormalization": ["scale", "shift"], "RMSNormalization": ["scale"], "Softmax": []}
    row = shape[axis:]
    model = model_of([helper.make_node(op, ["x", *rows[op]], ["y"], axis=axis)], {
        "x": (["n", *shape[1:]], TensorProto.FLOAT),
        **{name: (row, TensorProto.FLOAT) for name in rows[op]}})
    given = {"x": drawn(source, *shape), **{name: drawn(source, *row) for name in rows[op]}}
    found, wanted, report = both(model, given, tmp_path)
    assert numpy.abs(found - wanted).max() <= 1e-4 and found.shape == wanted.shape
    assert len(report["taken"]) == (0 if op == "Softmax" and axis == 1 else 1)


ATTENTIONS = [dict(), dict(is_causal=1), dict(scale=0.3), dict(softcap=2.0)]


@pytest.mark.parametrize("rank", [3, 4])
@pytest.mark.parametrize("attributes", ATTENTIONS)
@pytest.mark.parametrize("mask", [None, ("q", "k"), (2, 1, "q", "k"), (1, 4, "q", "k")])
def test_attention_is_that_of_onnx_runtime(source, tmp_path, attributes, rank, mask):
    queries, keys = (int(n) for n in source.integers(2, 30, 2))
    sizes = {"q": queries, "k": keys}
    shapes = {"q": (2, 4, queries, 8), "k": (2, 2, keys, 8), "v": (2, 2, keys, 16)}
    if rank == 3:
        shapes = {name: (2, shape[2], shape[1] * shape[3]) for name, shape in shapes.items()}
        attributes = dict(attributes, q_num_heads=4, kv_num_heads=2)
    given = {name: drawn(source, *shape) for name, shape in shapes.items()}
    token = rank - 2
    known = {name: [*shape[:token], "k" if name == "v" else name, *shape[token + 1:]]
             for name, shape in shapes.items()}
    if mask is not None:
        known["mask"] = list(mask)
        given["mask"] = drawn(source, *[sizes.get(size, size) for size in mask])
    model = model_of([helper.make_node("Attention", list(known), ["y"], **attributes)],
                     {name: (shape, TensorProto.FLOAT) for name, shape in known.items()})
    found, wanted, report = both(model, given, tmp_path)
    assert found.shape == wanted.shape and numpy.abs(found - wanted).max() <= 2e-5
    assert len(report["taken"]) == (0 if mask is not None and "softcap" in attributes else 1)


FLOAT, INT, DOUBLE = TensorProto.FLOAT, TensorProto.INT32, TensorProto.DOUBLE
REFUSED = [
    ("MatMul", {"a": ([3, 4], DOUBLE), "b": ([4, 5], DOUBLE)}, {}, "no tensor of float32"),
    ("MatMul", {"a": ([3, 4], INT), "b": ([4, 5], INT)}, {}, "no tensor of float32"),
    ("Gemm", {"a": ([3, 4], FLOAT), "b": ([4, 5], FLOAT), "c": ([3, 1], FLOAT)}, {},
     "as many columns"),
    ("Gemm", {"a": ([3, 4], FLOAT), "b": ([4, 5], FLOAT), "c": ([5], FLOAT)}, dict(beta=2.0),
     "beta is not 1"),
    ("Conv", {"x": ([1, 2, 5, 5], FLOAT), "w": ([3, 2, 3, 3], FLOAT)},
     dict(auto_pad="SAME_UPPER"), "auto_pad is SAME_UPPER"),
    ("Softmax", {"x": ([3, 4, 5], FLOAT)}, dict(axis=1), "not over the last dimension"),
    ("Relu", {"x": ([3, 4, 5], FLOAT)}, {}, "no such operator")]


@pytest.mark.parametrize("op, inputs, attributes, why", REFUSED)
def test_refused_node_is_left_with_a_reason(source, tmp_path, op, inputs, attributes, why):
    model = model_of([helper.make_node(op, list(inputs), ["y"], **attributes)], inputs)
    given = {name: (4 * drawn(source, *shape)).astype(helper.tensor_dtype_to_np_dtype(kind))
             for name, (shape, kind) in inputs.items()}
    found, wanted, report = both(model, given, tmp_path)
    assert numpy.array_equal(found, wanted)
    assert report["taken"] == [] and why in report["left"][0]["why"]


def test_random_shapes_agree_in_one_session(source, tmp_path):
    groups, filters = int(source.integers(1, 4)), [int(n) for n in source.integers(1, 4, 2)]
    w_shape = (2 * groups, int(source.integers(1, 5)), *filters)
    how = dict(group=groups, strides=[int(n) for n in source.integers(1, 3, 2)],
               pads=[int(n) for n in source.integers(0, 3, 4)],
               dilations=[int(n) for n in source.integers(1, 3, 2)])
    x_shape = ["n", w_shape[1] * groups, "h", "w"]
    nodes = [("Conv", {"a": (x_shape, FLOAT), "b": (w_shape, FLOAT)}, how,
              lambda: _conv_shapes(source, w_shape, groups)),
             ("Gemm", {"a": (["k", "m"], FLOAT), "b": (["n", "k"], FLOAT)},
              dict(transA=1, transB=1), lambda: _gemm_shapes(source)),
             ("MatMul", {"a": (None, FLOAT), "b": (None, FLOAT)}, {},
              lambda: _matmul_shapes(source))]
    for op, inputs, attributes, shapes in nodes:
        model = model_of([helper.make_node(op, ["a", "b"], ["c"], **attributes)], inputs)
        (session, report), reference = session_of(model, tmp_path), reference_of(model)
        assert len(report["taken"]) == 1
        for _ in range(8):
            a, b = (drawn(source, *shape) for shape in shapes())
            given = {"a": a, "b": b}
            check(session.run(None, given)[0], reference.run(None, given)[0], 90, 90)


def _conv_shapes(source, w_shape, groups):
    n, height, width = (int(size) for size in source.integers((1, 5, 5), (4, 30, 30)))
    return (n, w_shape[1] * groups, height, width), w_shape


def _gemm_shapes(source):
    m, n, k = (int(size) for size in source.integers(1, 90, 3))
    return (k, m), (n, k)


def _matmul_shapes(source):
    """Shapes of any ranks, whose leading dimensions broadcast."""
    m, n, k = (int(size) for size in source.integers(1, 50, 3))
    lead = [int(size) for size in source.integers(1, 4, source.integers(0, 4))]

    def part():
        kept = lead[int(source.integers(0, len(lead) + 1)):]
        return [1 if source.integers(0, 3) == 0 else size for size in kept]

    return (*part(), m, k), (*part(), k, n)


def test_shapes_of_the_run_may_change_and_those_that_do_not_fit_are_refused(source, tmp_path):
    model = model_of([helper.make_node("MatMul", ["a", "b"], ["c"], name="product")],
                     {"a": (["m", "k"], FLOAT), "b": (["k2", "n"], FLOAT)})
    session, _ = session_of(model, tmp_path)
    for _ in range(5):
        m, k, n = source.integers(0, 20, 3)
        a, b = drawn(source, m, k), drawn(source, k, n)
        check(session.run(None, {"a": a, "b": b})[0], a @ b, int(k), int(k) + 1)
    with pytest.raises(Exception, match=r"node product: MatMul: the shapes \(2, 3\) and \(4, 5\)"):
        session.run(None, {"a": drawn(source, 2, 3), "b": drawn(source, 4, 5)})


def test_call_that_fails_is_left_to_onnx_runtime_by_default(tmp_path, capsys):
    model = model_of([helper.make_node("MatMul", ["a", "b"], ["c"])],
                     {"a": (["m", "k"], FLOAT), "b": (["k2", "n"], FLOAT)})
    settings = onnxruntime.SessionOptions()
    tessera_onnxruntime.add_to(settings)
    session = onnxruntime.InferenceSession(model, settings)
    with pytest.raises(Exception, match="dimension mismatch"):  # the other provider's words
        session.run(None, {"a": numpy.ones((2, 3), "float32"), "b": numpy.ones((4, 5), "float32")})
    assert "Tessera: node" in capsys.readouterr().out


def test_threads_share_a_session(source, tmp_path):
    model = model_of([helper.make_node("MatMul", ["a", "b"], ["c"])],
                     {"a": (["m", 30], FLOAT), "b": ([30, 20], FLOAT)})
    session, _ = session_of(model, tmp_path, threads=1)
    b, wrong = drawn(source, 30, 20), []

    def work(seed):
        own = numpy.random.default_rng(seed)
        for _ in range(30):
            a = own.uniform(-1, 1, (int(own.integers(1, 9)), 30)).astype("float32")
            if numpy.abs(session.run(None, {"a": a, "b": b})[0] - a @ b).max() > 1e-4:
                wrong.append(a.shape)

    threads = [threading.Thread(target=work, args=(SEED + i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_options_that_are_wrong_are_refused(tmp_path):
    model = model_of([helper.make_node("Relu", ["a"], ["b"])], {"a": ([3], FLOAT)})
    with pytest.raises(Exception, match="threads must be a number from 0 to 4096, got '-1'"):
        session_of(model, tmp_path, threads=-1)
    settings = onnxruntime.SessionOptions()
    tessera_onnxruntime.add_to(settings, str(tmp_path / "missing" / "report.json"))
    with pytest.raises(Exception, match="could not be written"):
        onnxruntime.InferenceSession(model, settings, enable_fallback=0)
