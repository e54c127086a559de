"""The graph of all-MiniLM-L6-v2 in ONNX's own operators, with the weights that a package has."""
from __future__ import annotations

import json
import pathlib
from typing import Dict, List

import numpy
import onnx
from onnx import TensorProto, helper, numpy_helper

LAYERS, HEADS = 6, 12


def weights_of(file: pathlib.Path) -> Dict[str, numpy.ndarray]:
    """The arrays of a file of safetensors: the length of a JSON header, the header, the bytes."""
    data = file.read_bytes()
    begin = 8 + int.from_bytes(data[:8], "little")
    found = {}
    for name, entry in json.loads(data[8:begin]).items():
        if name != "__metadata__" and entry["dtype"] == "F32":
            first, end = (begin + offset for offset in entry["data_offsets"])
            found[name] = numpy.frombuffer(data[first:end], "float32").reshape(entry["shape"])
    return found


class _Graph:
    """Nodes and constants as they are added."""

    def __init__(self, weights: Dict[str, numpy.ndarray]) -> None:
        self.weights, self.nodes = weights, []
        self.constants: Dict[str, onnx.TensorProto] = {}

    def constant(self, name: str, array: numpy.ndarray) -> str:
        self.constants[name] = numpy_helper.from_array(numpy.ascontiguousarray(array), name)
        return name

    def add(self, op: str, inputs: List[str], **attributes: object) -> str:
        name = f"{op}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [name], name=name, **attributes))
        return name

    def linear(self, x: str, name: str) -> str:
        weight = self.constant(f"{name}.weight", self.weights[f"{name}.weight"].T)
        bias = self.constant(f"{name}.bias", self.weights[f"{name}.bias"])
        return self.add("Add", [self.add("MatMul", [x, weight]), bias])

    def norm(self, x: str, name: str) -> str:
        rows = [self.constant(f"{name}.{part}", self.weights[f"{name}.{part}"])
                for part in ("weight", "bias")]
        return self.add("LayerNormalization", [x, *rows], axis=-1, epsilon=1e-12)

    def embed(self, tokens: str) -> str:
        tables = {part: self.weights[f"embeddings.{part}_embeddings.weight"]
                  for part in ("word", "position", "token_type")}
        words = self.add("Gather", [self.constant("words", tables["word"]), tokens])
        size = self.add("Gather", [self.add("Shape", [tokens]), self.constant(
            "one", numpy.array(1, "int64"))])
        ends = [self.constant("zeros", numpy.zeros(1, "int64")),
                self.add("Reshape", [size, self.constant("row", numpy.array([1], "int64"))])]
        places = self.add("Slice", [self.constant(
            "places", tables["position"] + tables["token_type"][0]), *ends])
        return self.norm(self.add("Add", [words, places]), "embeddings.LayerNorm")

    def layer(self, x: str, number: int) -> str:
        begin = f"encoder.layer.{number}"
        q, k, v = (self.linear(x, f"{begin}.attention.self.{part}")
                   for part in ("query", "key", "value"))
        seen = self.add("Attention", [q, k, v, "mask"], q_num_heads=HEADS, kv_num_heads=HEADS)
        seen = self.linear(seen, f"{begin}.attention.output.dense")
        x = self.norm(self.add("Add", [x, seen]), f"{begin}.attention.output.LayerNorm")
        wide = self.add("Gelu", [self.linear(x, f"{begin}.intermediate.dense")])
        narrow = self.linear(wide, f"{begin}.output.dense")
        return self.norm(self.add("Add", [x, narrow]), f"{begin}.output.LayerNorm")


def model_of(file: pathlib.Path) -> bytes:
    """tokens (batch, n) of int64 and mask (batch, 1, n, n), which is added to scores, to (batch, n,
    384)."""
    graph = _Graph(weights_of(file))
    x = graph.embed("tokens")
    for number in range(LAYERS):
        x = graph.layer(x, number)
    inputs = [helper.make_tensor_value_info("tokens", TensorProto.INT64, ["batch", "n"]),
              helper.make_tensor_value_info("mask", TensorProto.FLOAT, ["batch", 1, "n", "n"])]
    out = helper.make_tensor_value_info(x, TensorProto.FLOAT, ["batch", "n", 384])
    made = helper.make_graph(graph.nodes, "minilm", inputs, [out], list(graph.constants.values()))
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", 23)], ir_version=10)
    return onnx.shape_inference.infer_shapes(model).SerializeToString()
